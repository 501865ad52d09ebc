# SPDX-License-Identifier: MIT
"""cell-sandboxd and cell-workers for a test, and a WebSocket client that shows every frame as it came."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

from cell import BIN, WORKER_BEARER, WORKER_SECRET, end, readable, worker_command
from client import KEY, Http1

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def start(*command, home=None):
    """Starts a program that says 'listening ADDRESS' once it is ready: (process, address)."""
    environment = os.environ | ({"HOME": home} if home else {})
    process = subprocess.Popen([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    line = process.stdout.readline() if readable(process.stdout, 10) else ""
    if not line.startswith("listening "):
        process.kill()
        raise AssertionError(f"{command[0]} does not start: {line}{process.communicate()[1]}")
    return process, line.split(" ", 1)[1].strip()


class Host:
    """A session manager, with as many workers in front of it as are asked for. Its shells find an empty home: what a person's
    start-up files do is slow, and must not be killed half-way."""

    def __init__(self, *options, before=()):
        self.folder = tempfile.TemporaryDirectory(prefix="cg-")
        self.socket = self.folder.name + "/s"
        self.manager, _ = start(*before, BIN / "cell-sandboxd", "--socket", self.socket, *options, home=self.folder.name)
        self.workers = []

    def worker(self, *options):
        worker = Worker(self.socket, *options)
        self.workers.append(worker)
        return worker

    def kill(self):
        """Returns when it is gone: a process that is killed has closed its sockets before."""
        self.manager.kill()
        self.manager.wait(10)

    def close(self):
        for worker in self.workers:
            worker.close()
        killed = self.manager.poll() == -signal.SIGKILL
        end(self.manager)
        assert killed or self.manager.returncode == 0, self.manager.stderr.read()
        self.manager.stdout.close()
        self.manager.stderr.close()
        self.folder.cleanup()


class Worker:
    def __init__(self, manager, *options):
        self.process, address = start(*worker_command(manager, *options))
        self.port = int(address.rsplit(":", 1)[1])

    def kill(self):
        """As Host.kill."""
        self.process.kill()
        self.process.wait(10)

    def close(self):
        killed = self.process.poll() == -signal.SIGKILL
        end(self.process)
        assert killed or self.process.returncode == 0, self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()

    def call(self, method, path, body=None, headers=()):
        """A JSON request: (status, document or None)."""
        data = b"" if body is None else json.dumps(body).encode()
        with Http1(self.port) as connection:
            response = connection.request(method, path, [WORKER_BEARER, *headers], data)
        return response.status, json.loads(response.body) if response.body else None

    def open(self, path, headers=(), timeout=10):
        return Ws(self.port, path, [WORKER_BEARER, *headers], timeout)


class Ws:
    """Raises Refused when the answer is not 101. Pings are answered; with show_control they are told too."""

    class Refused(Exception):
        def __init__(self, response):
            super().__init__(response.status)
            self.status, self.body, self.response = response.status, response.body, response

    def __init__(self, port, path, headers=(), timeout=10, show_control=False, host="cell.test", sock=None):
        self.http = Http1(port, timeout=timeout, sock=sock)
        self.show_control = show_control
        self.response = self.http.upgrade(path, headers, host)
        if self.response.status != 101:
            self.http.sock.close()
            raise Ws.Refused(self.response)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop()

    def drop(self):
        self.http.sock.close()

    def reset(self):
        self.http.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.http.sock.close()

    def send(self, opcode, payload=b"", fin=True, mask=None):
        mask = os.urandom(4) if mask is None else mask
        size = len(payload)
        head = bytes([(0x80 if fin else 0) | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += struct.pack(">BH", 0x80 | 126, size)
        else:
            head += struct.pack(">BQ", 0x80 | 127, size)
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        self.http.sock.sendall(head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big"))

    def say(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def frame(self):
        """(opcode, fin, payload); None at the end of the connection."""
        while True:
            try:
                head = self.http.read_exactly(2)
            except ConnectionError:
                return None
            size = head[1] & 127
            assert not head[1] & 128, "a server does not mask"
            if size == 126:
                size = struct.unpack(">H", self.http.read_exactly(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.http.read_exactly(8))[0]
            opcode, payload = head[0] & 15, self.http.read_exactly(size) if size else b""
            if opcode == PING:
                self.send(PONG, payload)
            if self.show_control or opcode not in (PING, PONG):
                return opcode, bool(head[0] & 128), payload

    def message(self):
        """(opcode, payload) of a message in one frame."""
        frame = self.frame()
        assert frame is not None, "the connection ended"
        assert frame[1], "a message in fragments"
        return frame[0], frame[2]

    def find(self, pattern, tags=None, seconds=10):
        """The match of a pattern in the payloads of binary messages, joined; with tags, each begins with one of them,
        which is left out. What is behind the match in the same message is lost."""
        seen, limit = b"", time.monotonic() + seconds
        while not (match := re.search(pattern, seen, re.DOTALL)):
            assert time.monotonic() < limit, seen[-500:]
            opcode, payload = self.message()
            assert opcode == BINARY, (opcode, payload, seen[-500:])
            assert tags is None or payload[0] in tags, payload
            seen += payload if tags is None else payload[1:]
        return match

    def until(self, marker, tags=None):
        """All up to the message with which the marker is complete."""
        return self.find(b".*" + re.escape(marker) + b".*", tags)[0]

    def rest(self):
        """All messages up to the Close, and the Close's (code, reason)."""
        messages = []
        while True:
            opcode, payload = self.message()
            if opcode == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if payload else 1005
                return messages, (code, payload[2:].decode())
            messages.append((opcode, payload))


__all__ = ["BINARY", "CLOSE", "CONTINUATION", "Host", "KEY", "PING", "PONG", "TEXT", "WORKER_BEARER", "WORKER_SECRET", "Worker", "Ws", "start"]
