# SPDX-License-Identifier: MIT
"""Control planes for a cell: the real one (cell-plane), and one that does what a test says."""

import json
import signal
import socket
import subprocess
import threading

from cell import BIN, stop_listening, until
from origin import Origin


def answer(connection, status, body=b"", *fields):
    """A whole answer; the connection stays."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", *fields]
    connection.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


class FakePlane(Origin):
    """Serves `records` (name: record); `ways` (name: function(connection, request)) takes over for single sandboxes, `way`
    for all requests, `events` for the event stream. Every request is in `requests`."""

    def __init__(self, tls=None):
        self.records, self.ways = {}, {}
        self.way = self.events = None
        self.streams = []
        super().__init__(answer=self._answer, tls=tls)

    def _answer(self, connection, request):
        if self.way:
            return self.way(connection, request)
        if request.target == "/v1/events":
            return (self.events or self.follow)(connection, request)
        name = request.target.rpartition("/")[2]
        if name in self.ways:
            return self.ways[name](connection, request)
        if name in self.records:
            return answer(connection, 200, self.records[name])
        return answer(connection, 404, {"error": "sandbox_not_found"})

    def follow(self, connection, request):
        """A stream to which `push` writes, until the agent leaves."""
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        self.streams.append(connection)
        try:
            connection.read()
        finally:
            self.streams.remove(connection)
        return True

    def push(self, data):
        until(lambda: self.streams, 10, "nobody follows")
        for connection in list(self.streams):
            connection.send(data)

    def cut(self):
        """Ends the streams there are."""
        there = list(self.streams)
        for connection in there:
            connection.sock.shutdown(socket.SHUT_RDWR)
        until(lambda: all(connection not in self.streams for connection in there))  # the next one may be there already

    def asked(self, name):
        return [r for r in list(self.requests) if r.target.rpartition("/")[2] == name]

    def followed(self):
        return [r for r in list(self.requests) if r.target == "/v1/events"]


class Plane:
    """A cell-plane of its own, on a port that stays over restarts. Who asks it has to bring its secret."""

    SECRET = "secret-of-the-plane"
    BEARER = ("Authorization", "Bearer " + SECRET)
    FOLLOW = f"GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode()

    def __init__(self, folder, workers=(), wake=0.3, worker_secret=None):
        self.folder = folder
        self.secret_file = folder / "plane.secret"
        self.secret_file.write_text(self.SECRET + "\n")
        self.state, self.control = folder / "plane.json", folder / "plane.sock"
        self.arguments = ["--control", self.control, "--state", self.state, "--wake", str(wake)]
        for worker in workers:
            self.arguments += ["--worker", worker]
        self.arguments += ["--secret-file", self.secret_file]
        if worker_secret:
            self.arguments += ["--worker-secret-file", worker_secret]
        self.port, self.process = 0, None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def directory(self, **more):
        """Of an agent that asks it."""
        return {"kind": "http", "url": self.url, "token_file": str(self.secret_file)} | more

    def start(self):
        log = self.folder / "plane.log"
        with open(log, "wb") as output:
            command = [BIN / "cell-plane", "serve", "--listen", f"127.0.0.1:{self.port}", *self.arguments]
            self.process = subprocess.Popen([str(c) for c in command], stdout=output, stderr=subprocess.STDOUT)

        def listening():
            assert self.process.poll() is None, log.read_text()
            return log.read_text().startswith("listening ") and "\n" in log.read_text()

        until(listening, 10, "cell-plane does not start")
        self.port = int(log.read_text().split()[1].rpartition(":")[2])

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(10)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def __call__(self, *command):
        """One command of the operator's; what it prints."""
        done = subprocess.run([BIN / "cell-plane", "--control", self.control, *command], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def set(self, name, **record):
        return self("set", name, json.dumps(record))


class Proxy:
    """Between an agent and a control plane: `stall` stops forwarding while connections stay open, as after a cable was
    pulled."""

    def __init__(self, port):
        self.target = port
        self.flowing = threading.Event()
        self.flowing.set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self, stalled=True):
        self.flowing.clear() if stalled else self.flowing.set()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target), 5)
                far.settimeout(None)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                self.flowing.wait()
                sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        stop_listening(self.listener)
        self.flowing.set()
