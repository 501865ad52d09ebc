# SPDX-License-Identifier: MIT
"""Programs as people run them in sandboxes, through the cell's other door: socat, curl, git, Python, node. The destinations are the
tests' own, on loopback."""

import base64
import contextlib
import glob
import hashlib
import http.server
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile

import pytest
from cell import free_port, until
from origin import accept_of
from test_egress import HOST, allow, certificate, config, destinations, metric, rules  # noqa: F401 fixtures
from worker import BINARY, TEXT, Ws

pytestmark = pytest.mark.usefixtures("destinations")
SECRET = "Bearer that-no-sandbox-has"
GREETINGS = [b"first", b"x" * 126, b"y" * 65536]


def frame(payload, opcode=2):
    size = len(payload)
    head = struct.pack(">BB", 0x80 | opcode, size) if size < 126 else struct.pack(">BBH", 0x80 | opcode, 126, size) if size < 65536 else struct.pack(">BBQ", 0x80 | opcode, 127, size)
    return head + payload


def read_exactly(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def serve_websocket(sock):
    """A 101 with frames glued to it, then an echo, and a frame of its own ten times a second."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += sock.recv(65536)
    key = next(line.split(b":")[1].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept_of(key) + b"\r\n\r\n"
    sock.sendall(answer + b"".join(map(frame, GREETINGS)))
    lock, over = threading.Lock(), threading.Event()

    def tick():
        number = 0
        while not over.wait(0.1):
            with lock:
                sock.sendall(frame(b"%d" % number, TEXT))
            number += 1

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        while True:
            size = read_exactly(sock, 2)[1] & 127
            size = struct.unpack(">H", read_exactly(sock, 2))[0] if size == 126 else struct.unpack(">Q", read_exactly(sock, 8))[0] if size == 127 else size
            mask, masked = read_exactly(sock, 4), read_exactly(sock, size)
            with lock:
                sock.sendall(frame(bytes(b ^ mask[i % 4] for i, b in enumerate(masked))))
    finally:
        over.set()
        ticking.join()


def in_force(cell):
    """The HAProxy that has the admin socket."""
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.connect(f"{cell.run_dir}/haproxy.sock")
        sock.sendall(b"show info\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
        return int(answer.partition(b"\nPid: ")[2].split()[0])


def reload_haproxy(cell):
    """A new process takes over; the old one keeps what is open."""
    old = in_force(cell)
    command = open(f"/proc/{old}/cmdline").read().split("\0-sf\0")[0].rstrip("\0").split("\0")
    environment = dict(line.split("=", 1) for line in open(f"/proc/{old}/environ").read().split("\0") if "=" in line)
    with open(cell.folder / "haproxy-new.log", "wb") as log:
        new = subprocess.Popen([*command, "-sf", str(old)], env=environment, stdout=log, stderr=log)
    cell.processes.append(new)
    until(lambda: in_force(cell) == new.pid, 20, "the new HAProxy does not take over")


@pytest.mark.parametrize("inspect", [False, True])
def test_a_websocket_through_socat_has_its_frames(cells, destinations, inspect):
    """The report that began it: behind a proxy a WebSocket got its 101 and then no frame. Frames of both sides arrive, those glued
    to the 101, too, while the agent dies and HAProxy is reloaded."""
    server = destinations(serve_websocket)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port, inspect=inspect))}, egress=True)
    port = free_port()
    token = cell.token(need=["egress"])
    proxy = f"PROXY:127.0.0.1:{HOST}:{server.port},proxyport={cell.egress},proxyauth=sandbox:{token}"
    cell.spawn("socat", "socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", proxy)
    until(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True).stdout)
    with Ws(port, "/", host=f"{HOST}:{server.port}") as ws:
        assert [ws.message() for _ in GREETINGS] == [(BINARY, greeting) for greeting in GREETINGS]
        ticks, echoes, sent, end = [], [], [], time.monotonic() + 4
        killed = False
        while time.monotonic() < end or len(ticks) <= 45:
            sent.append(os.urandom(300))
            ws.send(BINARY, sent[-1])
            while len(echoes) < len(sent):
                opcode, payload = ws.message()
                (ticks if opcode == TEXT else echoes).append(payload)
            if not killed and len(ticks) > 10:
                killed = True
                cell.kill("agent")
                reload_haproxy(cell)
                end = time.monotonic() + 4
        assert killed and echoes == sent and ticks == [b"%d" % i for i in range(len(ticks))]
        with Ws(port, "/", host=f"{HOST}:{server.port}") as later:  # through the new one
            assert later.message() == (BINARY, GREETINGS[0])
    until(lambda: metric(cell, "cellgate_relay_egress_connections") == 0)


@pytest.fixture
def website(tmp_path, certificate):
    """Serves a folder over TLS."""
    _, context = certificate
    folder = tmp_path / "www" / "allowed"
    folder.mkdir(parents=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=folder.parent)

        def log_message(self, *_):
            pass

        def do_GET(self):
            server.seen.append(self.headers["Authorization"])
            super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []
    # the handshake is each connection's own: before the thread that accepts has done it, it would hear of no shutdown
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.folder = folder
    yield server
    server.shutdown()
    server.server_close()


class Sandbox:
    """What a program in a sandbox has in its environment. `inspected`: its requests are read, and it trusts the cell's authority alone."""

    def __init__(self, cell, ca, tmp_path, inspected):
        self.cell, self.inspected = cell, inspected
        ca = cell.egress_ca if inspected else ca
        self.home = tmp_path / "home"
        self.home.mkdir()
        self.proxy = f"http://sandbox:{cell.token(need=['egress'])}@127.0.0.1:{cell.egress}"
        certificates = {name: str(ca) for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "npm_config_cafile")}
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "HTTPS_PROXY": self.proxy, "https_proxy": self.proxy} | certificates

    def run(self, *command):
        return subprocess.run([str(word) for word in command], env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=30)


@pytest.fixture(params=["raw", "inspected"])
def sandbox(cells, website, certificate, tmp_path, request):
    """The host that is denied has the same address. Inspected, `/denied` of the other is, too, and requests get a credential."""
    ca, _ = certificate
    port = website.server_port
    rule = allow(port)
    if request.param == "inspected":
        rule |= {"inspect": True, "access": "read-only", "paths": ["/allowed/**"], "set": {"Authorization": {"secret": "token"}}}
    egress = {"ca_file": str(ca), "secrets": {"token": "token"}}
    cell = cells(config=config(hosts={"denied.example.org": "127.0.0.1"}, **egress), sandboxes={"sb-1": rules(rule)}, egress=True, files={"token": SECRET.encode()})
    made = Sandbox(cell, ca, tmp_path, request.param == "inspected")
    made.root = f"https://{HOST}:{port}"
    made.reaches = True
    made.url, made.denied = made.root + "/allowed", f"https://denied.example.org:{port}/allowed"
    yield made
    if made.inspected:
        assert bool(website.seen) == made.reaches and all(value == SECRET for value in website.seen)


def test_curl(sandbox, website):
    (website.folder / "large").write_bytes(body := os.urandom(3 << 20))
    done = sandbox.run("curl", "-sS", "-o", "got", sandbox.url + "/large")
    assert done.returncode == 0 and (sandbox.home / "got").read_bytes() == body, done.stderr
    done = sandbox.run("curl", "-sS", sandbox.denied + "/large")
    assert done.returncode == 56 and "403" in done.stderr
    sandbox.environment["https_proxy"] = sandbox.environment["HTTPS_PROXY"] = sandbox.proxy.replace("sandbox:", "sandbox:x")
    done = sandbox.run("curl", "-sS", sandbox.url + "/large")
    assert done.returncode == 56 and "407" in done.stderr


def test_git(sandbox, website, tmp_path):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    work = tmp_path / "work"
    for command in (["init", "-q", work], ["-C", work, "add", "."], ["-C", work, "commit", "-q", "-m", "one"]):
        work.mkdir(exist_ok=True)
        (work / "file").write_bytes(bytes(range(256)) * 4096)
        subprocess.run(["git", *identity, *command], check=True, capture_output=True)
    subprocess.run(["git", "clone", "-q", "--bare", work, website.folder / "x.git"], check=True, capture_output=True)
    subprocess.run(["git", "-C", website.folder / "x.git", "update-server-info"], check=True)
    done = sandbox.run("git", "clone", "-q", sandbox.url + "/x.git", "got")
    assert done.returncode == 0, done.stderr
    assert (sandbox.home / "got/file").read_bytes() == (work / "file").read_bytes()
    done = sandbox.run("git", "clone", "-q", sandbox.denied + "/x.git", "other")
    assert done.returncode != 0 and "403" in done.stderr


PYTHON = """
import hashlib, sys, urllib.request
print(hashlib.sha256(urllib.request.urlopen(sys.argv[1]).read()).hexdigest())
"""
NODE = """
const http = require("http"), https = require("https"), tls = require("tls"), crypto = require("crypto");
const url = new URL(process.argv[2]), proxy = new URL(process.env.HTTPS_PROXY);
const auth = Buffer.from(`${proxy.username}:${proxy.password}`).toString("base64");
http.request({host: proxy.hostname, port: proxy.port, method: "CONNECT", path: url.host, headers: {Host: url.host, "Proxy-Authorization": `Basic ${auth}`}})
  .on("connect", (answer, socket) => {
    if (answer.statusCode !== 200) { console.error(answer.statusCode); process.exit(1); }
    https.get({createConnection: () => tls.connect({socket, servername: url.hostname}), path: url.pathname, host: url.hostname, port: url.port}, (got) => {
      const hash = crypto.createHash("sha256");
      got.on("data", (data) => hash.update(data)).on("end", () => { console.log(hash.digest("hex")); process.exit(0); });
    });
  }).end();
"""


GO = """
package main

import ("crypto/sha256"; "fmt"; "io"; "net/http"; "os")

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
	hash := sha256.New()
	io.Copy(hash, answer.Body)
	fmt.Printf("%x\\n", hash.Sum(nil))
}
"""


GO_COMMAND = shutil.which("go") or next(iter(glob.glob("/usr/lib/go-*/bin/go")), None)
NO_GO = pytest.mark.skipif(not GO_COMMAND, reason="Debian's golang-go is not there")


def go_program(folder):
    (folder / "main.go").write_text(GO)
    environment = os.environ | {"GOCACHE": os.environ.get("GOCACHE", "/var/tmp/cellgate-gocache"), "GO111MODULE": "off", "CGO_ENABLED": "0"}
    subprocess.run([GO_COMMAND, "build", "-o", folder / "client", folder / "main.go"], check=True, capture_output=True, env=environment)
    return [folder / "client"]


@pytest.mark.parametrize("name", ["python", "node", pytest.param("go", marks=NO_GO)])
def test_a_program_of_ones_own(sandbox, website, tmp_path, name):
    (website.folder / "large").write_bytes(body := os.urandom(3 << 20))
    (tmp_path / "script.cjs").write_text(NODE)
    program = {"python": lambda: [sys.executable, "-c", PYTHON], "node": lambda: ["node", tmp_path / "script.cjs"], "go": lambda: go_program(tmp_path)}[name]()
    done = sandbox.run(*program, sandbox.url + "/large")
    assert done.stdout.strip() == hashlib.sha256(body).hexdigest(), done.stderr
    done = sandbox.run(*program, sandbox.denied + "/large")
    denied = "403" if name != "go" else "Forbidden"  # it tells the status by its words
    assert done.returncode != 0 and denied in done.stderr, done.stderr


@pytest.fixture
def database():
    """A PostgreSQL of its own, on a port of its own."""
    programs = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"))), None)
    if not programs or os.getuid() != 0:
        pytest.skip("Debian's postgresql is not there, or nobody may become its user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        shutil.chown(folder, "postgres", "postgres")
        as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run([*as_postgres, f"{programs}/initdb", "-A", "trust", "-N", "-D", f"{folder}/data"], check=True, capture_output=True)
        port = free_port()
        server = subprocess.Popen([*as_postgres, f"{programs}/postgres", "-D", f"{folder}/data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: subprocess.run([f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode == 0, 30, "PostgreSQL does not start")
            yield port
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)


def test_psql(cells, database):
    """It knows no proxy: socat is one for it, as docs/egress.md says. The rule is for an address."""
    record = rules({"cidr": "127.0.0.1", "ports": [database], "private": True})
    cell = cells(config=config(), sandboxes={"sb-1": record}, egress=True)

    def query(to):
        port = free_port()
        cell.spawn(f"socat-{to}", "socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", f"PROXY:127.0.0.1:127.0.0.1:{to},proxyport={cell.egress},proxyauth=sandbox:{cell.token(need=['egress'])}")
        until(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True).stdout)
        return subprocess.run(["psql", "-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-c", "select sum(n) from generate_series(1, 100000) n", "-c", "select repeat('x', 1000000)"],
                              capture_output=True, text=True, timeout=30)

    done = query(database)
    assert (done.returncode, done.stdout) == (0, "5000050000\n" + "x" * 1000000 + "\n"), done.stderr
    assert query(free_port()).returncode == 2
    cell.says("agent", "verdict=raw")
    cell.says("agent", "error=egress_denied")


def test_npm(sandbox, website, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "told", "version": "1.0.0", "main": "index.js"}))
    (package / "index.js").write_text("console.log('told')\n")
    with tarfile.open(website.folder / "told-1.0.0.tgz", "w:gz") as archive:
        archive.add(package, "package")
    integrity = "sha512-" + base64.b64encode(hashlib.sha512((website.folder / "told-1.0.0.tgz").read_bytes()).digest()).decode()
    version = {"name": "told", "version": "1.0.0", "main": "index.js", "dist": {"tarball": sandbox.url + "/told-1.0.0.tgz", "integrity": integrity}}
    (website.folder / "told").write_text(json.dumps({"name": "told", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))
    done = sandbox.run("npm", "install", "--no-audit", "--no-fund", "--loglevel", "http", "--registry", sandbox.url + "/", "told")
    assert done.returncode == 0 and (sandbox.home / "node_modules/told/index.js").exists(), done.stderr
    done = sandbox.run("npm", "install", "--no-audit", "--no-fund", "--fetch-retries", "0", "--registry", sandbox.denied + "/", "other")
    assert done.returncode != 0 and "403" in done.stderr + done.stdout, done.stderr


def test_pip(sandbox, website):
    subprocess.run([sys.executable, "-m", "pip", "--version"], check=True, capture_output=True)
    index = website.folder / "simple" / "told"
    index.mkdir(parents=True)
    with zipfile.ZipFile(index / "told-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("told.py", "print('told')\n")
        wheel.writestr("told-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: told\nVersion: 1.0\n")
        wheel.writestr("told-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("told-1.0.dist-info/RECORD", "")
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--retries", "0", "--cert", sandbox.environment["PIP_CERT"], "--proxy", sandbox.proxy)
    done = sandbox.run(*pip, "download", "--no-cache-dir", "--index-url", sandbox.url + "/simple/", "told")
    assert done.returncode == 0 and (sandbox.home / "told-1.0-py3-none-any.whl").exists(), done.stderr
    done = sandbox.run(*pip, "download", "--no-cache-dir", "--index-url", sandbox.denied + "/simple/", "told")
    assert done.returncode != 0
    sandbox.cell.says("agent", "error=egress_denied")  # pip does not say why


def test_apt(sandbox, website):
    """The repository is not signed; what counts here is that its lists come."""
    text = "Package: told\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: told\nFilename: told.deb\nSize: 1\nSHA256: " + "0" * 64 + "\n"
    (website.folder / "flat").mkdir()
    (website.folder / "flat/Packages").write_text(text)
    for name in ("lists/partial", "archives/partial", "etc"):
        (sandbox.home / name).mkdir(parents=True)
    (sandbox.home / "status").write_text("")
    own = {"Dir::State::Lists": "lists", "Dir::State::status": "status", "Dir::Cache": "archives", "Dir::Etc": "etc", "Dir::Etc::sourcelist": "sources", "Dir::Etc::sourceparts": "/dev/null",
           "APT::Sandbox::User": "root" if os.getuid() == 0 else "", "Acquire::https::Proxy": sandbox.proxy, "Acquire::https::CaInfo": sandbox.environment["SSL_CERT_FILE"],
           "Acquire::Languages": "none", "Acquire::Retries": "0"}
    options = [word for name, value in own.items() for word in ("-o", f"{name}={sandbox.home / value if name.startswith('Dir') and not value.startswith('/') else value}")]

    def update(url):
        (sandbox.home / "sources").write_text(f"deb [trusted=yes] {url}/ flat/\n")
        return sandbox.run("apt-get", *options, "update")

    done = update(sandbox.url)
    assert done.returncode == 0 and "Package: told" in sandbox.run("apt-cache", *options, "show", "told").stdout, done.stderr
    done = update(sandbox.denied)
    assert "403" in done.stderr, done.stderr


def test_what_an_inspected_program_may_not(sandbox, website):
    if not sandbox.inspected:
        assert sandbox.run("curl", "-sS", "-o", "got", sandbox.root + "/").returncode == 0
        return
    for arguments in ((sandbox.root + "/other",), ("-X", "DELETE", sandbox.url + "/x"), ("--path-as-is", sandbox.url + "/../other")):
        done = sandbox.run("curl", "-sS", *arguments)
        assert done.returncode == 0 and json.loads(done.stdout)["error"] == "egress_denied", done.stderr
    sandbox.reaches = False


def test_a_program_that_would_reach_another_host_by_the_same_address(sandbox, website):
    """Fronting: it connects to a host that is allowed, and asks for another one there."""
    done = sandbox.run("curl", "-sS", "--connect-to", f"denied.example.org::{HOST}:", sandbox.denied + "/")
    assert done.returncode == 35, done.stderr  # the alert instead of a handshake
    sandbox.reaches = False


