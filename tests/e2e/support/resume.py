# SPDX-License-Identifier: MIT
"""A caller that speaks Cell-Resume by header (docs/resume-protocol.md): every item counted, whatever becomes of its legs."""

import json
import re
import secrets
import select
import struct
import time

from worker import BINARY, CLOSE, CONTINUATION, PONG, TEXT, WORKER_BEARER, Ws

Refused = Ws.Refused


def terms(header):
    """The numbers in a header's value."""
    version, *parameters = (x.strip() for x in header.split(";"))
    assert version == "1", header
    return {name: int(value) for name, value in (p.split("=") for p in parameters)}


class Caller:
    """`output` is all that came in binary messages, `texts` the text messages, `end` the session's end as (code, reason).
    `acknowledges` may be turned off, `window` is what is said in the request."""

    def __init__(self, query="", window=None):
        self.tunnel = secrets.token_hex(16)
        self.path = "/terminal" + query
        self.attempt, self.recv, self.window = 0, None, window
        self.output, self.texts, self.end, self.close = bytearray(), [], None, None
        self.inputs = []  # (opcode, payload) of every message, the first being number 1
        self.acknowledged = 0  # of these
        self.acknowledges = True
        self.patience = 10  # seconds for each thing that has to come
        self.ws = None
        self.partial, self.passed, self.opcode, self.mark = b"", b"", None, None

    # ---- legs ----

    def header(self, **changes):
        values = {"tunnel": self.tunnel, "attempt": self.attempt, "recv": self.recv, "buffer": self.window} | changes
        return "; ".join(["1", *(f"{n}={v}" for n, v in values.items() if v is not None)])

    def request(self, port, **changes):
        """A leg, that is not yet taken as the current one."""
        return Ws(port, self.path, [WORKER_BEARER, ("Cell-Resume", self.header(**changes))], self.patience, show_control=True)

    def dial(self, port):
        """Raises Refused. The old leg is left."""
        self.attempt += 1
        ws = self.request(port)
        said = terms(ws.response.get("cell-resume"))
        assert said["recv"] >= self.acknowledged, "the session went back in time"
        assert said["recv"] <= len(self.inputs), "the session counts what was never sent"
        assert said["next"] <= (self.recv or 0) + 1, "something is missing"
        if self.ws:
            self.ws.drop()
        self.ws, self.recv, self.counter = ws, self.recv or 0, said["next"]
        self.acknowledged = max(self.acknowledged, said["recv"])
        self.partial, self.opcode, self.close = b"", None, None
        for opcode, payload in self.inputs[self.acknowledged :]:
            ws.send(opcode, payload)
        return self

    def drop(self):
        if self.ws:
            self.ws.drop()
        self.ws = None

    # ---- what comes ----

    def take(self):
        """One frame; False at the end of the leg."""
        try:
            frame = self.ws.frame()
        except (ConnectionError, TimeoutError):
            return False
        if frame is None:
            return False
        opcode, fin, payload = frame
        if opcode == PONG:
            self.pong(payload)
        elif opcode == CLOSE:
            self.closed(payload)
        elif opcode in (TEXT, BINARY, CONTINUATION):
            self.data(opcode, fin, payload)
        return self.end is None and self.close is None

    def pong(self, payload):
        assert payload[:2] == b"cr", payload
        number = int.from_bytes(payload[2:10], "big")
        if payload[10:] == b"end":
            self.mark = number
        else:
            assert len(payload) == 10 and number <= len(self.inputs) + 1
            self.acknowledged = max(self.acknowledged, number)

    def closed(self, payload):
        self.close = (struct.unpack(">H", payload[:2])[0] if payload else 1005, payload[2:].decode())
        if self.mark is None:
            return
        assert self.mark == self.counter == self.recv + 1, "the end is not the next item"
        self.recv, self.end = self.mark, self.close
        self.acknowledge()
        self.try_to_send(CLOSE, payload)

    def data(self, opcode, fin, payload):
        self.mark = None
        self.opcode = opcode if opcode != CONTINUATION else self.opcode
        self.partial += payload
        if not fin:
            return
        number, message, self.partial = self.counter, self.partial, b""
        self.counter += 1
        if number <= self.recv:
            return
        assert number == self.recv + 1
        self.recv = number
        if self.opcode == BINARY:
            self.output += message
        else:
            self.texts.append(json.loads(message))
        if self.acknowledges:
            self.acknowledge()

    def acknowledge(self, number=None):
        self.try_to_send(PONG, b"cr" + (self.recv if number is None else number).to_bytes(8, "big"))

    def wait(self, condition, seconds=15):
        """Takes frames until it holds; False when the leg ends before."""
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, f"timed out: {bytes(self.output[-200:])!r}"
            if not self.take():
                return bool(condition())
        return True

    def find(self, pattern):
        assert self.wait(lambda: re.search(pattern, self.output, re.DOTALL)), (self.close, bytes(self.output[-200:]))
        return re.search(pattern, self.output, re.DOTALL)

    def pump(self, seconds):
        """Takes what comes within the time."""
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0 and self.ws:
            if not self.ws.http.rest and not select.select([self.ws.http.sock], [], [], left)[0]:
                return True
            if not self.take():
                return False
        return True

    # ---- what is said ----

    def say(self, payload, opcode=BINARY):
        """Kept until it is acknowledged; sent if there is a leg that takes it."""
        self.inputs.append((opcode, payload))
        if self.ws:
            self.try_to_send(opcode, payload)

    def try_to_send(self, opcode, payload):
        try:
            self.ws.send(opcode, payload)
        except OSError:
            pass  # the leg is lost, and what it has to say is read first

    def leave(self, code=1001, reason="client lost"):
        """The caller's end."""
        self.ws.send(PONG, b"cr" + (len(self.inputs) + 1).to_bytes(8, "big") + b"end")
        self.ws.send(CLOSE, struct.pack(">H", code) + reason.encode())
