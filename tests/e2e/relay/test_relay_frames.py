# SPDX-License-Identifier: MIT
"""Single frames of the sizes at which heads get longer and reads end, both ways and across a redial, on every adapter.
CELLGATE_LONG=1 adds sizes, cuts and rounds."""

import json
import os
import random
import socket
import struct
import threading

import pytest
from direct import BINARY, CLOSE, PING, PONG, TEXT, Direct, frame

LONG = bool(os.environ.get("CELLGATE_LONG"))
SIZES = [124, 125, 126, 127, 16383, 16384, 16385, 65534, 65535, 65536, 65537, 131072, 600_000, 1 << 20]
if LONG:
    SIZES += [1, 2, 4095, 4096, 4097, 65521, 65526, 81919, 81920, 131071, 262144, 500_000, 3 << 20]
ADAPTERS = ["none", "scrollback", "since", "cell"]


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    """Nobody is quiet for long here, but machines pause."""
    relay = {"buffer": "8MiB", "keepalive": "60s", "dead_after": "60s", "redial_backoff": ["5ms", "10ms", "20ms"],
             "dial_timeout": "10s", "redial_budget": "30s"}
    with Direct(tmp_path_factory.mktemp("d"), relay=relay) as d:
        yield d


class Plain:
    """What is said is what is heard; what a lost worker said last is lost."""

    path, prefix, resends = "/sandboxes/sb-1/pty/s1", b"", False

    def __init__(self, direct, adapter):
        self.direct, self.adapter = direct, adapter
        self.worker = direct.worker()
        self.output = self.heard = self.typed = b""
        self.client = direct.ask(self.worker, resume=adapter, stream=1, path=self.path, sandbox=f"sb-{len(direct.workers)}")
        self.upstream = self.serve()
        assert direct.answer(self.client)[0] == 101
        self.greet()

    def serve(self):
        return self.worker.serve()

    def greet(self):
        pass

    def redial(self):
        self.upstream.reset()
        self.upstream = self.serve()

    def say(self, data):
        self.output += data
        self.upstream.say(self.prefix + data)

    def cut(self, data, at):
        """A frame of which only the beginning comes before the worker is lost. What of it is read is not known."""
        raw = frame(BINARY, self.prefix + data)
        self.upstream.send(raw[: at + len(raw) - len(data)])
        self.output += data

    def replay(self):
        """What the next worker says of what was said already."""
        self.output = self.heard

    def take(self, opcode, payload):
        return payload if opcode == BINARY else b""

    def hears(self):
        while len(self.heard) < len(self.output):
            opcode, payload = self.client.message()
            self.heard += self.take(opcode, payload)
        assert self.heard == self.output

    def types(self, data):
        self.client.say(b"\0" + data)
        got = b""
        while len(got) < len(data):
            opcode, payload = self.upstream.message()
            assert opcode == BINARY and payload[:1] == b"\0"
            got += payload[1:]
        assert got == data

    def outcomes(self):
        count = lambda outcome: self.direct.metric(f'cellgate_relay_resume_total{{adapter="{self.adapter}",outcome="{outcome}"}}')  # noqa: E731
        return count("exact"), count("gap")

    def close(self):
        self.client.close_with(1000)
        while self.upstream.hear()[0] != CLOSE:
            pass
        self.upstream.close_with(1000)
        while self.client.hear()[0] != CLOSE:
            pass
        assert self.direct.relay.poll() is None, "the relay has died"


class Ring(Plain):
    path, prefix = "/sandboxes/sb-1/exec/s1", b"\x01"

    def greet(self):
        self.upstream.say(b"\x04")
        assert self.client.message() == (BINARY, b"\x04")

    def replay(self):
        self.upstream.say(self.prefix + self.output)
        self.upstream.say(b"\x04")

    def take(self, opcode, payload):
        assert (opcode, payload[:1]) == (BINARY, b"\x01")
        return payload[1:]


class Since(Plain):
    path, prefix = "/pty/s1/ws", b"\x01"
    connected = json.dumps({"type": "connected", "session_id": "s1", "mode": "pty"}).encode()

    def serve(self):
        if self.output:
            self.worker.refuse("200 OK", json.dumps({"running": True, "output_offset": len(self.output)}).encode())
        return self.worker.serve()

    def greet(self):
        self.upstream.say(self.connected, TEXT)
        assert self.client.message() == (TEXT, self.connected)

    def replay(self):
        """From a little before the place that was asked for."""
        asked = int(self.upstream.line.split("since=")[1].split("&")[0])
        begin = max(0, asked - 1000)
        self.upstream.say(b"\x03" + struct.pack(">Q", begin) + self.output[begin:])
        self.upstream.say(self.connected, TEXT)

    def take(self, opcode, payload):
        if payload[0] == 1:
            return payload[1:]
        assert int.from_bytes(payload[1:9], "big") == len(self.heard)
        return payload[9:]


class Numbered(Plain):
    """Cell-Resume; nothing is acknowledged before the redial."""

    path = "/terminal/s1"

    def __init__(self, *arguments):
        self.said, self.got = [], 0
        super().__init__(*arguments)

    def serve(self):
        return self.worker.serve(f"Cell-Resume: 1; recv={self.got}; next=1; buffer={8 << 20}")

    def say(self, data):
        self.said.append(data)
        super().say(data)

    def cut(self, data, at):
        self.said.append(data)
        super().cut(data, at)

    def replay(self):
        for data in self.said:
            self.upstream.say(data)

    def types(self, data):
        self.client.say(b"\0" + data)
        while (got := self.upstream.hear())[0] in (PONG, PING):
            pass
        opcode, payload, fin = got
        while not fin:
            following, more, fin = self.upstream.hear()
            payload += more if following not in (PING, PONG) else b""
            fin = fin and following not in (PING, PONG)
        assert payload == b"\0" + data
        self.got += 1
        self.upstream.say(b"cr" + struct.pack(">Q", self.got), PONG)


KINDS = {"none": Plain, "scrollback": Ring, "since": Since, "cell": Numbered}


@pytest.fixture(params=ADAPTERS)
def tunnel(request, direct):
    return lambda: KINDS[request.param](direct, request.param)


def test_single_frames_of_any_size_pass_both_ways(tunnel):
    t = tunnel()
    for size in SIZES:
        t.say(os.urandom(size))
        t.hears()
        t.types(os.urandom(size))
    t.close()


@pytest.mark.parametrize("had", [10, 70_000])
def test_a_redial_is_exact_whatever_the_size_of_its_frames(tunnel, had):
    for size in SIZES:
        t = tunnel()
        exact, gaps = t.outcomes()
        t.say(os.urandom(had))
        t.hears()
        t.types(os.urandom(size))
        t.redial()
        new = os.urandom(size)
        if t.adapter in ("scrollback", "since"):
            t.output += new
            t.replay()
        else:
            t.replay()
            t.say(new)
        t.say(b"and on")
        t.hears()
        t.types(os.urandom(size))
        assert t.outcomes() == ((exact, gaps + 1) if t.adapter == "none" else (exact + 1, gaps))
        t.close()


def test_a_frame_that_is_cut_anywhere_goes_on_with_the_next_worker(direct):
    chance = random.Random(5)
    for adapter in ADAPTERS[1:]:
        for size in SIZES if LONG else (126, 65536, 131072, 600_000):
            t = KINDS[adapter](direct, adapter)
            t.say(os.urandom(1000))
            t.hears()
            # so little that it does not wait for the client: else the relay reads no more, and does not see the end
            t.cut(os.urandom(size), chance.randrange(min(size, 100_000)))
            t.redial()
            t.replay()
            t.say(b"and on")
            t.hears()
            t.types(b"x" * size)
            t.close()


def reason(direct, name):
    return direct.metric(f'cellgate_relay_tunnels_closed_total{{route="pty",reason="{name}"}}')


@pytest.mark.parametrize("size", [4096, 65536, 1 << 20, 9 << 20])
def test_a_replay_that_is_longer_than_what_is_held_is_a_declared_gap(direct, size):
    """Of a worker with a larger ring, or one that does not end its replay."""
    t = Ring(direct, "scrollback")
    exact, gaps = t.outcomes()
    t.say(os.urandom(10_000))
    t.hears()
    t.redial()
    ring = t.output + os.urandom((9 << 20) - len(t.output))
    frames = b"".join(frame(BINARY, b"\x01" + ring[at : at + size]) for at in range(0, len(ring), size))
    replay = threading.Thread(target=t.upstream.send, args=(frames,))
    replay.start()
    t.output = ring
    t.hears()  # before the replay has ended
    replay.join()
    assert t.outcomes() == (exact, gaps + 1)
    t.upstream.say(b"\x04")
    t.say(b"and on")
    t.hears()
    assert t.outcomes() == (exact, gaps + 1)
    assert reason(direct, "no_memory") == 0
    t.close()


@pytest.mark.parametrize("offset", [(1 << 53) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_no_counter_falls_whatever_offset_a_worker_says(direct, offset):
    name = 'cellgate_relay_resume_missing_bytes_total{adapter="since"}'
    t = Since(direct, "since")
    t.say(b"some")
    t.hears()
    for _ in range(3):
        before, (exact, gaps) = direct.metric(name), t.outcomes()
        t.redial()
        t.upstream.say(b"\x03" + struct.pack(">Q", offset) + b"x" * 70_000)
        t.upstream.say(t.connected, TEXT)
        heard = b""
        while len(heard) < 70_000:
            opcode, payload = t.client.message()
            assert opcode == BINARY
            heard += payload[9:] if payload[0] == 3 else payload[1:]
        assert heard == b"x" * 70_000
        assert direct.metric(name) >= before
        assert sum(t.outcomes()) == exact + gaps + 1
        assert t.outcomes()[1] == gaps + 1 or offset < 1 << 53
    t.close()


# ---- more frames than one event handles ----


@pytest.mark.parametrize("adapter", ["none", "since"])
def test_many_small_messages_at_once_come_in_order_and_before_what_follows(direct, adapter):
    """A part of what was read waits for its turn: neither new bytes nor an end overtake it."""
    worker = direct.worker()
    client, upstream = direct.open(worker, resume=adapter, stream=1, sandbox=f"sb-{len(direct.workers)}")
    for sender, hearer in ((upstream, client), (client, upstream)):
        mask = b"\1\2\3\4" if sender.masks else None
        words = [b"\1%d" % number for number in range(20_000)]
        sender.send(b"".join(frame(BINARY, word, mask=mask) + (frame(PING, b"", mask=mask) if not number % 1000 else b"") for number, word in enumerate(words)))
        heard = []
        while len(heard) < len(words):
            if (said := hearer.hear())[0] == BINARY:
                heard.append(said[1])
        assert heard == words
    client.send(b"".join(frame(BINARY, b"%d" % number, mask=b"\1\2\3\4") for number in range(3000)) + frame(CLOSE, b"\x03\xe8", mask=b"\1\2\3\4"))
    client.sock.shutdown(socket.SHUT_WR)
    last = [said for said in iter(lambda: upstream.hear()[:2], (CLOSE, b"\x03\xe8")) if said[0] == BINARY]
    assert last == [(BINARY, b"%d" % number) for number in range(3000)]
