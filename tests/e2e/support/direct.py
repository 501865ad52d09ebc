# SPDX-License-Identifier: MIT
"""A relay and an agent without HAProxy: the test hands upgrades over itself, and is the worker too. Everything is driven
step by step from the test's own thread: nothing happens in the background."""

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
import subprocess
import urllib.request
from pathlib import Path

from cell import BIN, end_now, free_port, until

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_key(key):
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


def frame(opcode, payload=b"", fin=True, mask=None):
    head = bytes([opcode | (0x80 if fin else 0)])
    flag = 0x80 if mask else 0
    if len(payload) < 126:
        head += bytes([flag | len(payload)])
    elif len(payload) < 65536:
        head += bytes([flag | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([flag | 127]) + struct.pack(">Q", len(payload))
    if not mask:
        return head + payload
    stream = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return head + mask + (int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(payload), "big")


class Peer:
    """One end of a connection, as bytes, HTTP heads or frames."""

    def __init__(self, sock, masks, seconds=10):
        self.sock, self.masks, self.bytes = sock, masks, b""
        sock.settimeout(seconds)

    def send(self, data):
        self.sock.sendall(data)

    def more(self):
        got = self.sock.recv(1 << 16)
        self.bytes += got
        return len(got)

    def take(self, count):
        while len(self.bytes) < count:
            if not self.more():
                raise EOFError(f"{len(self.bytes)} of {count} bytes")
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def head(self):
        """Start line and fields, names in lower case."""
        while b"\r\n\r\n" not in self.bytes:
            if not self.more():
                raise EOFError(self.bytes)
        text, _, self.bytes = self.bytes.partition(b"\r\n\r\n")
        self.lines = lines = text.decode("latin-1").split("\r\n")
        return lines[0], {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}

    def say(self, payload, opcode=BINARY, fin=True):
        self.send(frame(opcode, payload, fin, os.urandom(4) if self.masks else None))

    def close_with(self, code=None, reason=b""):
        self.say((struct.pack(">H", code) if code else b"") + reason, CLOSE)

    def hear(self):
        """(opcode, payload, fin) of the next frame."""
        first, second = self.take(2)
        assert bool(second & 0x80) == (not self.masks), "masked by the wrong side"
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self.take(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.take(8))
        mask = self.take(4) if second & 0x80 else b""
        payload = self.take(length)
        if mask:
            payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload)) if length < 4096 else unmask(payload, mask)
        return first & 0x0F, payload, bool(first & 0x80)

    def message(self):
        """(opcode, payload) of the next whole data message. Pings in front of it are answered: what is silent on a busy machine is
        pinged. Other control frames, and any inside of it, are an error."""
        while (heard := self.hear())[0] == PING:
            self.say(heard[1], PONG)
        opcode, payload, fin = heard
        assert opcode in (TEXT, BINARY), (opcode, payload)
        while not fin:
            following, more, fin = self.hear()
            assert following == CONTINUATION, (following, more)
            payload += more
        return opcode, payload

    def closed(self):
        """(code, reason) of the Close that comes next, which is answered."""
        opcode, payload, _ = self.hear()
        assert opcode == CLOSE, (opcode, payload)
        try:
            self.say(payload[:2], CLOSE)
        except OSError:
            pass
        return (struct.unpack(">H", payload[:2])[0] if payload else None), payload[2:].decode()

    def silent(self, seconds=0.2):
        """Nothing comes for a while."""
        self.sock.settimeout(seconds)
        try:
            return not self.bytes and not self.sock.recv(1 << 16, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(10)

    def ended(self):
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        return True

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


def unmask(payload, mask):
    stream = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(payload), "big")


class Worker:
    """A listening socket; each connection is taken and answered by the test."""

    def __init__(self, path=None, host="127.0.0.1", port=0):
        """At a free port of loopback, or where it is told, or at a Unix socket of that path."""
        self.peers = []
        if path:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(path))
            self.listener.listen()
            self.url = f"http+unix:{path}"
        else:
            self.listener = socket.create_server((host, port))
            self.port = self.listener.getsockname()[1]
            self.url = f"http://{host}:{self.port}"
        self.listener.settimeout(10)

    def take(self):
        """The next connection, with its request read."""
        peer = Peer(self.listener.accept()[0], masks=False)
        peer.line, peer.fields = peer.head()
        self.peers.append(peer)
        return peer

    def serve(self, *fields, behind=b""):
        """Takes the next connection and accepts its upgrade."""
        return self.accept(self.take(), *fields, behind=behind)

    def accept(self, peer, *fields, behind=b""):
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Accept: " + accept_key(peer.fields["sec-websocket-key"]), *fields]
        peer.send("\r\n".join(lines).encode() + b"\r\n\r\n" + behind)
        return peer

    def refuse(self, status="404 Not Found", body=b"", *fields):
        peer = self.take()
        lines = ["HTTP/1.1 " + status, f"Content-Length: {len(body)}", *fields]
        peer.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        peer.close()

    def dials(self, seconds=0.3):
        """Whether somebody dials."""
        self.listener.settimeout(seconds)
        try:
            self.listener.accept()[0].close()
            return True
        except TimeoutError:
            return False
        finally:
            self.listener.settimeout(10)

    def close(self):
        self.listener.close()
        for peer in self.peers:
            peer.close()


def handover(**fields):
    def encode(value):
        return "".join(chr(b) if chr(b).isalnum() and b < 128 or chr(b) in "._~-" else f"%{b:02X}" for b in str(value).encode())

    return ";".join(f"{k}={encode(v)}" for k, v in fields.items() if v is not None)


IDENTITY = ("route", "sandbox", "namespace", "port", "org", "kid", "iat", "exp")


class Direct:
    """The relay's settings are made quick where waiting is what a test would do, and slow where a machine that pauses would be
    taken for a peer that is silent; `relay` overrides them. Without an agent nothing answers the relay.
    `environment` is the relay's besides ours."""

    def __init__(self, folder, relay=None, agent=True, limits=None, environment=None, top=None):
        self.folder = Path(folder)
        self.workers, self.clients = [], []
        self.records = {}
        self.epoch = 0
        self.with_agent, self.limits, self.environment = agent, limits, environment or {}
        self.agent = self.relay = None
        settings = {"listen": f"unix@{self.folder}/relay.sock", "agent": f"unix@{self.folder}/agent-relay.sock",
                    "control": f"unix@{self.folder}/relay.control.sock", "threads": 2,
                    "connect_budget": "1s", "dial_timeout": "3s", "grace_period": "300ms", "redial_budget": "4s",
                    "keepalive": "60s", "dead_after": "60s", "drain": "300ms"} | (relay or {})
        settings["admin"] = f"127.0.0.1:{free_port()}"
        self.admin_address = settings["admin"]
        config = {"cell": "test", "seccomp": "kill", "open": True, "tokens": [], "directory": {"kind": "file", "path": "sandboxes.json"},
                  "worker_networks": ["127.0.0.0/8", "::1/128"],
                  "log_level": "debug",
                  "agent": {"listen": f"unix@{self.folder}/agent.sock", "relay_listen": f"unix@{self.folder}/agent-relay.sock",
                            "control": f"unix@{self.folder}/agent.control.sock", "admin": f"unix@{self.folder}/agent.admin.sock",
                            "threads": 1},
                  "routes": [{"name": "pty", "path": "/sandboxes/{sandbox}/pty/{session}", "upgrade": True, "via": "relay",
                              "need": "none"}],
                  "relay": settings} | (top or {})
        (self.folder / "cellgate.json").write_text(json.dumps(config))
        self.write()

    def write(self):
        def loads():
            return (self.folder / "cellgate-agent.log").read_text().count("directory loaded")

        running = self.agent and self.agent.poll() is None
        before = loads() if running else 0
        part = self.folder / "sandboxes.part"
        part.write_text(json.dumps({"sandboxes": self.records}))
        part.rename(self.folder / "sandboxes.json")
        if running:
            until(lambda: loads() > before, 10, "the agent does not read its directory")

    def set(self, sandbox="sb-1", worker=None, **record):
        """The directory says so from now on; a worker may be None. Without arguments the sandbox is removed."""
        self.epoch += 1
        if worker is None and not record:
            self.records.pop(sandbox, None)
        else:
            self.records[sandbox] = {"epoch": self.epoch} | ({"worker": worker.url} if worker else {}) | record
        self.write()

    def spawn(self, program):
        log = open(self.folder / f"{program}.log", "ab")
        command = [BIN / program, "-c", self.folder / "cellgate.json"]
        if program == "cellgate-relay":
            command += ["--no-keeper"]  # its process id is the one that works
            command = ["env", *(f"{name}={value}" for name, value in self.environment.items()), *command]
            if self.limits:
                command = ["prlimit", f"--nofile={self.limits}:{self.limits}", *command]
        process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)
        log.close()
        return process

    def start_agent(self):
        self.agent = self.spawn("cellgate-agent")
        until(lambda: "directory loaded" in (self.folder / "cellgate-agent.log").read_text(), 10, "no agent")

    def __enter__(self):
        try:
            if self.with_agent:
                self.start_agent()
            self.relay = self.spawn("cellgate-relay")
            until(self.ready, 10, "no relay")
        except BaseException as e:
            self.stop()
            raise AssertionError(f"{e}\n{self.log()}") from e
        return self

    def stop(self):
        for peer in [*self.workers, *self.clients]:
            peer.close()
        if self.relay:
            end_now(self.relay)
        if self.agent:
            self.agent.kill()
            self.agent.wait()

    def __exit__(self, *_):
        self.stop()
        assert "Sanitizer" not in self.log() and "runtime error" not in self.log(), self.log()

    def ready(self):
        if self.relay.poll() is not None:
            raise AssertionError("the relay has ended")
        try:
            return self.get("/readyz") == "ready\n"
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.admin_address}{path}", timeout=10) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum of all series that begin with the text."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def tunnels(self):
        return json.loads(self.get("/tunnels"))["tunnels"]

    def control(self, **request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(str(self.folder / "relay.control.sock"))
            s.sendall(json.dumps(request).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and (got := s.recv(65536)):
                answer += got
        return json.loads(answer)

    def log(self):
        log = self.folder / "cellgate-relay.log"
        return log.read_text() if log.exists() else ""

    def worker(self):
        worker = Worker()
        self.workers.append(worker)
        return worker

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(self.folder / "relay.sock"))
        client = Peer(s, masks=True)
        self.clients.append(client)
        return client

    def ticket(self, handed):
        """As the agent makes it, for what it has admitted."""
        key = self.folder / "agent-relay.sock.key"
        if not key.exists():
            return None
        identity = handover(**{name: handed.get(name) for name in IDENTITY})
        mac = hmac.new(key.read_bytes(), b"cellgate ticket 2;" + identity.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mac[:16]).rstrip(b"=").decode()

    def ask(self, worker=None, fields=(), path="/sandboxes/sb-1/pty/s1?cols=80", behind=b"", head=None, **handed):
        """Sends the upgrade; the answer is not awaited."""
        sandbox = handed.get("sandbox", "sb-1")
        if worker and self.agent and sandbox not in self.records:
            self.set(sandbox, worker)
        client = self.connect()
        handed = {"route": "pty", "sandbox": "sb-1", "session": "s1", "epoch": self.epoch} | handed
        if worker:
            handed = {"addr": "127.0.0.1", "addr_port": worker.port} | handed
        handed = {"ticket": self.ticket(handed)} | handed
        client.key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", "Host: app.example", "Upgrade: websocket", "Connection: Upgrade",
                 "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + client.key, "X-Cell-Handover: " + handover(**handed), *fields]
        client.send((head or "\r\n".join(lines).encode() + b"\r\n\r\n") + behind)
        return client

    def answer(self, client):
        """(status, fields, body) of what the client gets instead of a tunnel, or with 101."""
        line, fields = client.head()
        status = int(line.split()[1])
        body = client.take(int(fields.get("content-length", 0)))
        return status, fields, body

    def open(self, worker, **handed):
        """A tunnel: both ends."""
        client = self.ask(worker, **handed)
        upstream = worker.serve()
        status, fields, _ = self.answer(client)
        assert status == 101 and fields["sec-websocket-accept"] == accept_key(client.key)
        return client, upstream
