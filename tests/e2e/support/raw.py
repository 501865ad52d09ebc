# SPDX-License-Identifier: MIT
"""A worker that keeps every byte of every connection, and a strict reader that says what of these bytes is one HTTP/1.1
request: whatever a client did, nothing else may have reached a worker. And HTTP/2 frames as no library would send them."""

import re
import socket
import struct
import threading

import hpack
from cell import stop_listening
from client import connect
from origin import accept_of

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
LINE = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.1")
FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*([\x20-\x7e\x80-\xff\t]*)")


class NotOne(Exception):
    """The bytes are not a well-formed request."""


class NotYet(NotOne):
    """They may become one."""


class Seen:
    """One request as a worker without any tolerance reads it (RFC 9112): the rest of the bytes is in `rest`."""

    def __init__(self, raw):
        head, mark, self.rest = raw.partition(b"\r\n\r\n")
        if not mark:
            raise NotYet(f"no end of the head: {raw!r}")
        line, *fields = head.split(b"\r\n")
        if not (found := LINE.fullmatch(line)):
            raise NotOne(f"request line {line!r}")
        self.line, self.method, self.target = line.decode(), found[1].decode(), found[2].decode()
        self.fields = []
        for field in fields:
            if not (found := FIELD.fullmatch(field)):
                raise NotOne(f"header {field!r}")
            self.fields.append((found[1].decode().lower(), found[2].decode("latin-1").strip(" \t")))
        if len(self.all("host")) != 1:
            raise NotOne(f"hosts {self.all('host')}")
        self.trailers = []
        self.body = self._body()

    def all(self, name):
        return [v for n, v in self.fields if n == name]

    def _take(self, size):
        if len(self.rest) < size:
            raise NotYet(f"{len(self.rest)} of {size} bytes of the body")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def _body(self):
        lengths, codings = self.all("content-length"), [v.lower() for v in self.all("transfer-encoding")]
        if (lengths and codings) or len(lengths) > 1 or codings not in ([], ["chunked"]):
            raise NotOne(f"lengths {lengths}, codings {codings}")
        if lengths:
            if not re.fullmatch("[0-9]+", lengths[0]):
                raise NotOne(f"length {lengths[0]!r}")
            return self._take(int(lengths[0]))
        return self._chunks() if codings else b""

    def _chunks(self):
        body = b""
        while True:
            size, mark, self.rest = self.rest.partition(b"\r\n")
            if not mark:
                raise NotYet("no end of a chunk's size")
            if not re.fullmatch(rb"[0-9A-Fa-f]+", size):
                raise NotOne(f"size of a chunk {size!r}")
            if not int(size, 16):
                break
            body += self._take(int(size, 16))
            if self._take(2) != b"\r\n":
                raise NotOne("end of a chunk")
        trailers, mark, self.rest = (b"\r\n" + self.rest).partition(b"\r\n\r\n")
        if not mark:
            raise NotYet("no end of the trailers")
        self.trailers = trailers.split(b"\r\n")[1:]
        return body


class RawOrigin:
    """Answers the first request of each connection, an upgrade with 101 and what is none with 499, and keeps what comes
    until the connection's end. `connections` are bytearrays, in order of their arrival; `reply` may be replaced."""

    OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    BAD = b"HTTP/1.1 499 Not One Request\r\nContent-Length: 0\r\n\r\n"

    def __init__(self):
        self.reply = self.OK
        self.connections = []
        self.ended = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            raw = bytearray()
            self.connections.append(raw)
            threading.Thread(target=self._serve, args=(sock, raw), daemon=True).start()

    def _serve(self, sock, raw):
        answered = False
        try:
            with sock:
                while data := sock.recv(65536):
                    raw += data
                    if not answered and (answer := self._answer(bytes(raw))):
                        answered = True
                        sock.sendall(answer)
        except OSError:
            pass
        self.ended += 1

    def _answer(self, raw):
        try:
            request = Seen(raw)
        except NotYet:
            return None
        except NotOne:
            return self.BAD
        if "upgrade" not in dict(request.fields):
            return self.reply
        accept = accept_of(request.all("sec-websocket-key")[0].encode())
        return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"

    def close(self):
        stop_listening(self.listener)


# ---- HTTP/2 ----

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def h2_frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def h2_headers(fields, end=True):
    """One HEADERS frame on stream 1; nothing in it is checked."""
    fields = [(n if isinstance(n, bytes) else n.encode("latin-1"), v if isinstance(v, bytes) else v.encode("latin-1")) for n, v in fields]
    return h2_frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), 1, hpack.Encoder().encode(fields))


def h2_data(data, end=True):
    return h2_frame(DATA, END_STREAM if end else 0, 1, data)


def h2_talk(port, frames, timeout=10, opens=False):
    """Sends the frames on a new connection: the status that stream 1 is answered with, or "reset", "goaway", "closed". A
    200 is waited for to its end, unless it opens a tunnel."""
    decoder, status = hpack.Decoder(), None
    with connect(port, tls=True, alpn="h2", timeout=timeout) as sock:
        stream = sock.makefile("rb")
        sock.sendall(PREFACE + h2_frame(SETTINGS, 0, 0) + frames)
        try:
            while len(head := stream.read(9)) == 9:
                kind, flags, number = struct.unpack(">BBI", head[3:])
                payload = stream.read(int.from_bytes(head[:3], "big"))
                if kind == HEADERS and number == 1:
                    status = dict(decoder.decode(payload)).get(":status") or status
                    if status == "200" and not flags & END_STREAM and not opens:
                        continue
                    return int(status)
                if kind == DATA and number == 1:
                    return int(status)
                if kind == RST_STREAM and number == 1:
                    return "reset"
                if kind == GOAWAY:
                    return "goaway"
        except ConnectionError:
            pass
    return "closed"
