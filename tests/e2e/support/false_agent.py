# SPDX-License-Identifier: MIT
"""An agent of the test's own making, that says what it is told to, and those who ask an agent as HAProxy and relays do."""

import socket
import struct
import threading

from cell import stop_listening


def varint(n):
    if n < 240:
        return bytes([n])
    out, n = [(n & 0xFF) | 0xF0], (n - 240) >> 4
    while n >= 128:
        out.append((n & 0xFF) | 0x80)
        n = (n - 128) >> 7
    return bytes([*out, n])


def read_varint(data, at):
    value, at = data[at], at + 1
    if value < 240:
        return value, at
    shift = 4
    while True:
        byte, at = data[at], at + 1
        value += byte << shift
        shift += 7
        if byte < 128:
            return value, at


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return varint(len(value)) + value


def typed(value):
    if isinstance(value, bool):
        return b"\x11" if value else b"\x01"
    if isinstance(value, int):
        return b"\x04" + varint(value & (2**64 - 1))
    if isinstance(value, bytes):
        return bytes([6 if len(value) == 4 else 7]) + value
    return b"\x08" + text(value)


def set_var(name, value, scope=2):
    return b"\x01\x03" + bytes([scope]) + text(name) + typed(value)


def frame(kind, stream, number, payload):
    body = bytes([kind]) + struct.pack(">I", 1) + varint(stream) + varint(number) + payload
    return struct.pack(">I", len(body)) + body


def actions(*pairs):
    """An answer that sets these variables."""
    return lambda stream, number: frame(103, stream, number, b"".join(set_var(*pair) for pair in pairs))


class FalseAgent:
    """Shakes hands as an agent does, and answers each NOTIFY with the bytes that answer(stream, frame) returns; None
    closes the connection."""

    def __init__(self, path, answer, hello=None):
        self.path, self.answer, self.hello = path, answer, hello
        self.asked, self.closed = 0, False
        self.sockets = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(256)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _reply(self, data):
        stream, at = read_varint(data, 5)
        number, _ = read_varint(data, at)
        if data[0] == 1:
            agreed = text("version") + typed("2.0") + text("max-frame-size") + b"\x03" + varint(16380)
            return self.hello or frame(101, 0, 0, agreed + text("capabilities") + typed("pipelining"))
        if data[0] == 3:
            self.asked += 1
            return self.answer(stream, number)
        return None

    def _serve(self, sock):
        with sock, sock.makefile("rb") as stream:
            try:
                while len(size := stream.read(4)) == 4:
                    answer = self._reply(stream.read(struct.unpack(">I", size)[0]))
                    if answer is None:
                        return
                    sock.sendall(answer)
            except OSError:
                pass

    def close(self):
        """Twice if need be: a second time it leaves alone who may be at its place by then."""
        if self.closed:
            return
        self.closed = True
        stop_listening(self.listener)
        self.path.unlink()
        for sock in self.sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


OFFER = text("supported-versions") + typed("2.0") + text("max-frame-size") + b"\x03" + varint(16380)
HELLO = frame(1, 0, 0, OFFER + text("capabilities") + typed("pipelining") + text("engine-id") + typed("test"))


class FalseHaproxy:
    """Asks an agent on one connection, several questions at a time. It listens at a path, or on a port."""

    def __init__(self, path):
        at_port = isinstance(path, int)
        self.socket = socket.socket(socket.AF_INET if at_port else socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", path) if at_port else str(path))
        self.stream = self.socket.makefile("rb")
        self.socket.sendall(HELLO)
        assert self.receive()[0] == 101

    message = "cell-route"

    def frames(self, questions, message=None):
        frames = b""
        for stream, arguments in questions.items():
            pairs = b"".join(text(name) + typed(value) for name, value in arguments.items())
            frames += frame(3, stream, 1, text(message or self.message) + bytes([len(arguments)]) + pairs)
        return frames

    def ask(self, questions, message=None):
        """All {stream: {argument: value}} in one write."""
        self.socket.sendall(self.frames(questions, message))

    def receive(self):
        """(type, stream, payload) of the next frame."""
        data = self.stream.read(struct.unpack(">I", self.stream.read(4))[0])
        stream, at = read_varint(data, 5)
        return data[0], stream, data[read_varint(data, at)[1]:]

    def close(self):
        self.stream.close()
        self.socket.close()


def variables(payload):
    """{name: value} of an answer."""
    found, at = {}, 0
    while at < len(payload):
        size, at = read_varint(payload, at + 3)
        name, at = payload[at:at + size].decode(), at + size
        kind, at = payload[at] & 15, at + 1
        if kind == 1:
            found[name] = bool(payload[at - 1] & 16)
        elif kind in (6, 7):
            size = 4 if kind == 6 else 16
            found[name], at = payload[at:at + size], at + size
        elif kind in (8, 9):
            size, at = read_varint(payload, at)
            found[name], at = payload[at:at + size], at + size
        else:
            found[name], at = read_varint(payload, at)
    return found


class FalseRelay(FalseHaproxy):
    """Asks an agent as relays do."""

    message = "cell-resolve"

    def one(self, message="cell-resolve", stream=1, **arguments):
        """The answer to one question."""
        self.ask({stream: arguments}, message)
        kind, said, payload = self.receive()
        assert (kind, said) == (103, stream)
        return variables(payload)
