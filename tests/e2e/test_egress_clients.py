# SPDX-License-Identifier: MIT
"""Programs as people run them in sandboxes, through the cell's other door: socat, curl, git, Python, node. The destinations are the
tests' own, on loopback."""

import hashlib
import http.server
import os
import struct
import subprocess
import sys
import threading
import time

import pytest
from cell import free_port, until
from origin import accept_of
from test_egress import HOST, allow, certificate, config, destinations, metric, rules  # noqa: F401 fixtures
from worker import BINARY, TEXT, Ws

pytestmark = pytest.mark.usefixtures("destinations")
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


def test_a_websocket_through_socat_has_its_frames(cells, destinations):
    """The report that began it: behind a proxy a WebSocket got its 101 and then no frame. Frames of both sides arrive, those glued
    to the 101, too, while HAProxy starts anew and the agent dies."""
    server = destinations(serve_websocket)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    port = free_port()
    token = cell.token(need=["egress"])
    proxy = f"PROXY:127.0.0.1:{HOST}:{server.port},proxyport={cell.egress},proxyauth=sandbox:{token}"
    cell.spawn("socat", "socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", proxy)
    until(lambda: subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True).stdout)
    with Ws(port, "/") as ws:
        assert [ws.message() for _ in GREETINGS] == [(BINARY, greeting) for greeting in GREETINGS]
        ticks, echoes, sent, end = [], [], [], time.monotonic() + 4
        killed = False
        while time.monotonic() < end:
            sent.append(os.urandom(300))
            ws.send(BINARY, sent[-1])
            while len(echoes) < len(sent):
                opcode, payload = ws.message()
                (ticks if opcode == TEXT else echoes).append(payload)
            if not killed and len(ticks) > 10:
                killed = True
                cell.kill("agent")
        assert killed and echoes == sent and ticks == [b"%d" % i for i in range(len(ticks))] and len(ticks) > 25
    until(lambda: metric(cell, "cellgate_relay_egress_connections") == 0)


@pytest.fixture
def website(tmp_path, certificate):
    """Serves a folder over TLS."""
    _, context = certificate
    folder = tmp_path / "www"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=folder)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.folder = folder
    yield server
    server.shutdown()
    server.server_close()


class Sandbox:
    """What a program in a sandbox has in its environment."""

    def __init__(self, cell, ca, tmp_path):
        self.home = tmp_path / "home"
        self.home.mkdir()
        self.proxy = f"http://sandbox:{cell.token(need=['egress'])}@127.0.0.1:{cell.egress}"
        certificates = {name: str(ca) for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")}
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "HTTPS_PROXY": self.proxy, "https_proxy": self.proxy} | certificates

    def run(self, *command):
        return subprocess.run([str(word) for word in command], env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=60)


@pytest.fixture
def sandbox(cells, website, certificate, tmp_path):
    ca, _ = certificate
    port = website.server_port
    hosts = {"denied.example.org": "127.0.0.1"}
    cell = cells(config=config(hosts=hosts), sandboxes={"sb-1": rules(allow(port))}, egress=True)
    made = Sandbox(cell, ca, tmp_path)
    made.url, made.denied = f"https://{HOST}:{port}", f"https://denied.example.org:{port}"
    return made


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
    https.get({createConnection: () => tls.connect({socket, servername: url.hostname}), path: url.pathname, host: url.host}, (got) => {
      const hash = crypto.createHash("sha256");
      got.on("data", (data) => hash.update(data)).on("end", () => { console.log(hash.digest("hex")); process.exit(0); });
    });
  }).end();
"""


@pytest.mark.parametrize("name", ["python", "node"])
def test_a_program_of_ones_own(sandbox, website, tmp_path, name):
    program, source = {"python": (sys.executable, PYTHON), "node": ("node", NODE)}[name]
    (website.folder / "large").write_bytes(body := os.urandom(3 << 20))
    script = tmp_path / ("script" if name == "python" else "script.cjs")
    script.write_text(source)
    done = sandbox.run(program, script, sandbox.url + "/large")
    assert done.stdout.strip() == hashlib.sha256(body).hexdigest(), done.stderr
    done = sandbox.run(program, script, sandbox.denied + "/large")
    assert done.returncode != 0 and "403" in done.stderr


def test_a_program_that_would_reach_another_host_by_the_same_address(sandbox, website):
    """Fronting: it connects to a host that is allowed, and asks for another one there."""
    done = sandbox.run("curl", "-sS", "--connect-to", f"denied.example.org::{HOST}:", sandbox.denied + "/")
    assert done.returncode == 35, done.stderr  # the alert instead of a handshake


