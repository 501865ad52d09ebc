# SPDX-License-Identifier: MIT
"""A whole cell for a test: configuration, keys and directory in a folder of its own, HAProxy, agent and relay by
examples/quickstart/up, all on free ports. Processes are ended by their id."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import random
import select
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = (ROOT / os.environ.get("BUILD", "build") / "bin").resolve()
RELAY = BIN / "cellgate-relay"
COVERED = RELAY.exists() and b"__gcov_" in RELAY.read_bytes()
# Built with a sanitizer: slow, and it keeps what is freed.
SANITIZED = RELAY.exists() and any(mark in RELAY.read_bytes() for mark in (b"__asan_init", b"__tsan_init"))
SYSTEMS = ["opencomputer", "opensandbox"]
ALL_SYSTEMS = [*SYSTEMS, "sandbox-sdk", "agent-sandbox", "daytona", "e2b"]
SECRET = b"a secret of the tests, 32 bytes or more"


# What the gate and the cell-workers of these tests share, in a file that ends with this process.
WORKER_SECRET = "gate-and-workers-of-the-tests"
WORKER_BEARER = ("Authorization", "Bearer " + WORKER_SECRET)
_worker_secret = tempfile.NamedTemporaryFile("w", prefix="cg-secret-")
_worker_secret.write(WORKER_SECRET + "\n")
_worker_secret.flush()


WORKER_SECRET_FILE = _worker_secret.name


def worker_command(manager, *options, listen="127.0.0.1:0"):
    """A cell-worker that wants the secret."""
    return [BIN / "cell-worker", "--listen", listen, "--sandboxd", manager, "--secret-file", WORKER_SECRET_FILE, *options]


def on_worker(url, **record):
    """The record of a sandbox on such a worker."""
    return {"worker": url, "headers": dict([WORKER_BEARER])} | record


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(cell="test", secret=SECRET, ttl=300, header=None, **claims):
    """An HS256 token; a claim that is None is left out."""
    now = int(time.time())
    body = {"aud": cell, "iat": min(now, now + ttl - 60), "exp": now + ttl} | claims
    parts = [{"alg": "HS256", "typ": "JWT"} | (header or {}), {k: v for k, v in body.items() if v is not None}]
    signed = ".".join(b64(json.dumps(p).encode()) for p in parts)
    return signed + "." + b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())


def until(check, seconds=10.0, what="it did not happen", pause=0.01):
    """Polls until check() gives something true, which is returned."""
    end = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < end, what
        time.sleep(pause)
    return result


def stop(pid):
    """A stop takes effect only when each thread has noticed it."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(lambda: all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir()), 10, "it does not stop")


_closed = []


def closed_port():
    """A port at which nobody listens, and nobody will: it is taken, for as long as this process lives."""
    _closed.append(socket.socket())
    _closed[-1].bind(("127.0.0.1", 0))
    return _closed[-1].getsockname()[1]


def free_port():
    """For a program that has to be told one. Not of those that the kernel hands out to whoever asks for any."""
    for port in random.sample(range(20000, 30000), 1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def stop_listening(listener):
    """Wakes who waits in accept(): in there they would hold it open, and take one more."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def readable(file, seconds):
    """Whether it is, within the time. select() takes no descriptor above 1023, and a process with many tests may have such."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


AT_ONCE = 5  # seconds, of a machine that is busy: for what would else take longer, or not happen
SOON = 0.8  # seconds: HAProxy asks an agent that is away for a little longer


def listens(path):
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


def alive(pid):
    """Whether it is there and no zombie. One that ends while it is read is ESRCH, not ENOENT."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(process, seconds=10):
    """SIGTERM, and SIGKILL if that is not enough."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_now(process, seconds=10):
    """As end(), of one that a second SIGTERM tells not to wait for anybody. Two that it has not noticed yet are one."""
    with contextlib.suppress(AssertionError):
        until(lambda: process.poll() is not None or process.terminate(), seconds, pause=0.05)
    end(process, 0)


def haproxy_version():
    """(2, 6) and so on: what can be expected differs."""
    text = subprocess.run([*os.environ["HAPROXY"].split(), "-v"], capture_output=True, text=True).stdout
    return tuple(int(x) for x in text.split()[2].split("-")[0].split(".")[:2])


# What the first `up` of this process has made is good for all, and takes long: an RSA key. Each cell has files of its own.
PEM = ("cert.pem", "egress-sign.pem")
_pem = {}


class Cell:
    """`config` is merged into the default configuration, key by key, which has SYSTEMS unless it brings routes;
    `sandboxes` is the directory's content; `files` are written beside it (keys); `environment` reaches haproxy.cfg (CELLGATE_WORKER_TIMEOUT, ...);
    `egress`: with the proxy for programs in sandboxes."""

    def __init__(self, folder, sandboxes=None, config=None, haproxy=None, environment=None, files=None, egress=False):
        self.folder = Path(folder)
        self.haproxy = haproxy or os.environ.get("HAPROXY", "haproxy")
        self.environment = environment or {}
        self.has_egress = egress
        self.sandboxes = {}
        self.processes = []
        for name, content in ({"k1.secret": SECRET} | (files or {})).items():
            (self.folder / name).write_bytes(content)
            (self.folder / name).chmod(0o600 if name != "k1.secret" else 0o644)
        self.set_sandboxes(**(sandboxes or {}))
        self.config = {
            "cell": "test",
            "seccomp": "kill",  # a system call that its table lacks ends the daemon, and the test
            "directory": {"kind": "file", "path": "sandboxes.json"},
            "worker_networks": ["127.0.0.0/8", "::1/128"],
            "tokens": [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}],
        } | ({} if "routes" in (config or {}) else {"systems": SYSTEMS}) | (config or {})
        self.config_file = self.folder / "cellgate.json"
        self.config_file.write_text(json.dumps(self.config))
        self.run_dir = self.folder / "run"
        self.up = None
        self.ports = {}
        self.egress_ca = None  # who signs what is inspected

    def set_sandboxes(self, **records):
        """Adds records (None removes one). Replaced whole, as an editor would."""
        self.sandboxes |= records
        kept = {name: record for name, record in self.sandboxes.items() if record is not None}
        part = self.folder / "sandboxes.json.part"
        part.write_text(json.dumps({"sandboxes": kept}))
        part.rename(self.folder / "sandboxes.json")

    def start(self):
        command = [ROOT / "examples/quickstart/up", "--config", self.config_file, "--run-dir", self.run_dir]
        command += ["--http-port", "0", "--https-port", "0", "--haproxy", self.haproxy]
        command += ["--egress-port", "0"] if self.has_egress else []
        environment = os.environ | {"CELLGATE_BIN": str(BIN), "CELLGATE_KEEPER": "off"} | self.environment  # one process: sanitizers do not know the keeper's clone
        self.give_pem()
        with open(self.folder / "up.log", "wb") as log:
            self.up = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
        text, deadline = "", time.monotonic() + 60
        while "ready\n" not in text:
            if readable(self.up.stdout, 0.2):
                text += os.read(self.up.stdout.fileno(), 4096).decode()
            if self.up.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the cell does not stand up\n{text}\n{self.logs()}")
        for line in text.splitlines():
            name, _, address = line.partition(" ")
            if name == "egress-ca":
                self.egress_ca = Path(address)
            elif address:
                self.ports[name] = int(address.rpartition(":")[2])
        _pem.update({name: (self.run_dir / name).read_bytes() for name in PEM if (self.run_dir / name).exists()})
        return self

    def give_pem(self):
        self.run_dir.mkdir(exist_ok=True)
        for name, content in _pem.items():
            file = self.run_dir / name
            if not file.exists():
                file.touch(0o600)
                file.write_bytes(content)

    def stop(self):
        for process in reversed(self.processes):
            end(process)
        if self.up:
            end_now(self.up)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    @property
    def http(self):
        return self.ports["http"]

    @property
    def egress(self):
        return self.ports["egress"]

    @property
    def https(self):
        return self.ports["https"]

    def token(self, sandbox="sb-1", **claims):
        return token(self.config["cell"], sandbox=sandbox, **claims)

    def bearer(self, sandbox="sb-1", **claims):
        return ("Authorization", "Bearer " + self.token(sandbox, **claims))

    def pid(self, name):
        """Of haproxy, agent or relay: the one that runs now."""
        return int((self.run_dir / f"{name}.pid").read_text())

    def kill(self, name, number=signal.SIGKILL):
        os.kill(self.pid(name), number)

    def admin(self, path, name="agent"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name + '-admin']}{path}", timeout=10) as answer:
            return answer.read().decode()

    def spawn(self, name, *command):
        """A process of this cell, ended with it; its output is in NAME.log. Shells in it read nobody's .bashrc."""
        environment = os.environ | {"HOME": str(self.folder)}
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.processes.append(process)
        return process

    def listening(self, name):
        """The address after `listening` in the log of a worker or a sandboxd that was spawned."""
        log = self.folder / f"{name}.log"

        def line():
            return next((x.split()[1] for x in log.read_text().splitlines(True) if x.startswith("listening ") and x.endswith("\n")), None)

        return until(line, 10, f"{name} does not listen")

    def sandboxd(self, name="sandboxd"):
        socket = self.folder / f"{name}.sock"
        self.spawn(name, BIN / "cell-sandboxd", "--socket", socket)
        self.listening(name)
        return socket

    def worker(self, sandboxd, name="worker", *arguments):
        """The address of a cell-worker on the sessions of that sandboxd."""
        self.spawn(name, *worker_command(sandboxd, "--name", name, *arguments))
        return self.listening(name)

    def says(self, name, *texts):
        """Waits for a line of the agent's, the relay's or HAProxy's log that has them all: who is answered may be there before it."""
        def line():
            lines = (self.run_dir / f"{name}.log").read_text().splitlines()
            return next((line for line in reversed(lines) if all(text in line for text in texts)), None)

        return until(line, 10, f"{name}.log has no line with {texts}")

    def access_log(self):
        return (self.run_dir / "haproxy.log").read_text(errors="replace")

    def logs(self):
        """The end of each log, for the report of a test that failed."""
        parts = []
        for log in sorted([*self.folder.glob("*.log"), *self.run_dir.glob("*.log")]):
            lines = log.read_text(errors="replace").splitlines()[-40:]
            parts += [f"---- {log.name}", *lines]
        return "\n".join(parts)
