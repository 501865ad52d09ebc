# SPDX-License-Identifier: MIT
"""A worker made for looking at: it keeps each request as the bytes that came, and answers as a test says."""

import base64
import hashlib
import socket
import threading

from cell import stop_listening

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


class Request:
    def __init__(self, head):
        self.head = head
        self.line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = self.line.split(" ", 2)
        # In order and repeated, names in lower case.
        self.headers = [(n.lower(), v.strip()) for n, _, v in (x.partition(":") for x in lines)]
        self.body = b""

    def all(self, name):
        return [v for n, v in self.headers if n == name.lower()]

    def get(self, name, default=None):
        return next(iter(self.all(name)), default)

    @property
    def names(self):
        return [n for n, _ in self.headers]


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.rest = b""

    def read(self):
        """Some bytes, or b"" at the end."""
        data, self.rest = self.rest, b""
        return data or self.sock.recv(1 << 18)

    def read_until(self, mark):
        data = b""
        while mark not in data:
            more = self.read()
            if not more:
                return None
            data += more
        data, _, self.rest = data.partition(mark)
        return data

    def read_exactly(self, size):
        parts, have = [], 0
        while have < size:
            data = self.read()
            if not data:
                raise ConnectionError(f"{have} of {size} bytes")
            parts.append(data)
            have += len(data)
        data = b"".join(parts)
        self.rest = data[size:] + self.rest
        return data[:size]

    def read_request(self):
        head = self.read_until(b"\r\n\r\n")
        return Request(head) if head is not None else None

    def read_body(self, request):
        if request.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self.read_until(b"\r\n").split(b";")[0], 16):
                parts.append(self.read_exactly(size))
                self.read_until(b"\r\n")
            self.read_until(b"\r\n")
            return b"".join(parts)
        return self.read_exactly(int(request.get("content-length", 0)))

    def send(self, data):
        self.sock.sendall(data)


def respond(connection, request):
    """200 with the body of the request."""
    request.body = connection.read_body(request)
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body) + request.body)


def switch(connection, request, extra=b""):
    """101 as it should be."""
    accept = accept_of(request.get("sec-websocket-key").encode())
    connection.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n" + extra + b"\r\n"
    )


def echo(connection, request):
    """A tunnel that gives back the bytes it gets, and ends when its client does."""
    switch(connection, request)
    while data := connection.read():
        connection.send(data)


class Origin:
    """Each request is kept in `requests` and given to `answer(connection, request)`, which a test may replace; a
    WebSocket upgrade to `upgrade`. The connection is closed when the answer returns True, or after an upgrade."""

    def __init__(self, answer=respond, upgrade=echo, tls=None, host="127.0.0.1", port=0):
        self.answer, self.upgrade, self.tls = answer, upgrade, tls
        self.requests = []
        self.connections = 0
        self.listener = socket.create_server((host, port), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://{host}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with self.tls.wrap_socket(sock, server_side=True) if self.tls else sock as sock:
                connection = Connection(sock)
                while request := connection.read_request():
                    self.requests.append(request)
                    upgrade = request.get("upgrade", "").lower() == "websocket"
                    if (self.upgrade if upgrade else self.answer)(connection, request) or upgrade:
                        return
        except (OSError, ValueError):
            pass

    def close(self):
        stop_listening(self.listener)
