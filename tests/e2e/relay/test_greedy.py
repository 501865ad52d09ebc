# SPDX-License-Identifier: MIT
"""One owner that keeps a relay's thread busy with small frames, however many sockets it has: what its neighbours notice."""

import contextlib
import json
import secrets
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cell import SANITIZED
from direct import BINARY, PING, PONG, TEXT, Direct, frame

MANY = 64
FLOOD = Path(__file__).parents[1] / "support/flood.py"


@pytest.fixture
def direct(tmp_path):
    with Direct(tmp_path, relay={"threads": 1, "mux": "127.0.0.1:9", **{f"max_tunnels_per_{of}": 1000 for of in ("sandbox", "org", "token")}}, agent=False) as direct:
        yield direct


@contextlib.contextmanager
def flooded(tmp_path, block, senders, readers):
    (tmp_path / "block").write_bytes(block)
    fds = [[str(peer.sock.fileno()) for peer in peers] for peers in (senders, readers)]
    process = subprocess.Popen([sys.executable, FLOOD, tmp_path / "block", *(",".join(numbers) for numbers in fds)],
                               pass_fds=[int(fd) for numbers in fds for fd in numbers])
    try:
        time.sleep(0.5)  # all sockets are full by then
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def round_trips(client, upstream, count=200):
    """Seconds, the shortest first."""
    took = []
    for _ in range(count):
        since = time.monotonic()
        client.say(b"word")
        assert upstream.hear()[:2] == (BINARY, b"word")
        upstream.say(b"echo")
        assert client.hear()[:2] == (BINARY, b"echo")
        took.append(time.monotonic() - since)
    return sorted(took)


def judge(name, alone, beside):
    p99 = [took[len(took) * 99 // 100] for took in (alone, beside)]
    middle = [took[len(took) // 2] for took in (alone, beside)]
    print(f"{name}: median {middle[0] * 1e3:.2f} -> {middle[1] * 1e3:.2f} ms, p99 {p99[0] * 1e3:.2f} -> {p99[1] * 1e3:.2f} ms")
    if not SANITIZED:
        # the machine that runs the tests may be busy with others: that shows in the slowest ones
        assert middle[1] < 10 * middle[0] + 0.02 and p99[1] < 1, (middle, p99)


MASK = b"\1\2\3\4"
FLOODS = {
    "small messages": ("client", frame(BINARY, b"x", mask=MASK)),
    "small messages of the worker": ("worker", frame(BINARY, b"x")),
    "fragments": ("worker", frame(BINARY, b"", fin=False) + frame(0, b"", fin=False) * 100 + frame(0, b"")),
    "Pings": ("client", frame(PING, b"", mask=MASK)),
    "Pongs that answer nothing": ("worker", frame(PONG, b"")),
    "Pongs beside open Pings": ("worker", frame(PONG, b"x")),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_tunnels_of_one_owner_leave_others_their_share(direct, tmp_path, kind):
    side, piece = FLOODS[kind]
    worker = direct.worker()
    quiet = direct.open(worker, sandbox="sb-quiet", org="quiet", stream=1)
    busy = [direct.open(worker, sandbox="sb-busy", org="busy", stream=1) for _ in range(MANY)]
    if kind == "Pongs beside open Pings":
        for client, _ in busy:
            client.send(frame(PING, b"", mask=MASK) * 2000)
    alone = round_trips(*quiet)
    clients, upstreams = zip(*busy)
    senders, readers = (clients, upstreams) if side == "client" else (upstreams, clients)
    with flooded(tmp_path, piece * (65536 // len(piece)), senders, readers):
        beside = round_trips(*quiet)
    judge(kind, alone, beside)


MUX = {
    "messages that are no request": frame(TEXT, b"{}", mask=MASK),
    "messages of a byte": frame(TEXT, b"x", mask=MASK),
    "Pings": frame(PING, b"", mask=MASK),
}


@pytest.mark.parametrize("kind", MUX)
def test_mux_sockets_of_one_address_leave_others_their_share(direct, tmp_path, kind):
    worker, piece = direct.worker(), MUX[kind]
    quiet = direct.open(worker, sandbox="sb-quiet", org="quiet", stream=1)
    busy = [direct.ask(None, mux="sandbox-sdk", sandbox=None, session=None, fields=["X-Forwarded-For: 192.0.2.1"]) for _ in range(MANY)]
    for client in busy:
        assert direct.answer(client)[0] == 101
    alone = round_trips(*quiet)
    with flooded(tmp_path, piece * (65536 // len(piece)), busy, []):
        beside = round_trips(*quiet)
    judge(f"mux: {kind}", alone, beside)


def test_mux_sockets_of_many_addresses_are_one_owner_to_others(direct, tmp_path):
    worker = direct.worker()
    quiet = direct.open(worker, sandbox="sb-quiet", org="quiet", stream=1)
    busy = [direct.ask(None, mux="sandbox-sdk", sandbox=None, session=None, fields=[f"X-Forwarded-For: 2001:db8:0:{number:x}::1"]) for number in range(400)]
    for client in busy:
        assert direct.answer(client)[0] == 101
    alone = round_trips(*quiet)
    piece = MUX["messages that are no request"]
    with flooded(tmp_path, piece * (65536 // len(piece)), busy, []):
        beside = round_trips(*quiet)
    judge("mux: many addresses", alone, beside)


def hear_all(client, seconds):
    """What comes until nothing does: how many messages, and the number of those that the gate has taken, if it says so."""
    heard, taken = 0, None
    client.sock.settimeout(seconds)
    with contextlib.suppress(TimeoutError):
        while True:
            opcode, payload, _ = client.hear()
            heard += opcode == BINARY
            taken = json.loads(payload)["cell-resume"].get("recv", taken) if opcode == TEXT else taken
    client.sock.settimeout(10)
    return heard, taken


def burst(direct, neighbour):
    """A client that acknowledges nothing until 6,000 of its messages wait at the gate, then all at once: the longest round trip beside."""
    tunnel, number, heard, taken = secrets.token_hex(16), 0, 0, None
    client = direct.ask(None, mux="sandbox-sdk", sandbox=None, session=None, path=f"/v1/mux?cr_tunnel={tunnel}&cr_attempt=1",
                        fields=["X-Forwarded-For: 192.0.2.1", "Sec-WebSocket-Protocol: cellgate.mux.v1.resume, cellgate.mux.v1"])
    assert direct.answer(client)[0] == 101 and client.hear()[0] == TEXT

    def message(kind, payload=b""):
        return frame(BINARY, bytes([kind]) + struct.pack(">I", number) + payload, mask=MASK)

    while taken is None or taken > number - 600:  # until the answers to what is no request fill what the gate keeps
        wrong = b""
        for number in range(number + 1, number + 1501):
            wrong += message(1, b"{")
        client.send(wrong)
        more, said = hear_all(client, 0.2)
        heard, taken = heard + more, said or taken
    asked = b""
    for number in range(number + 1, number + 3001):
        asked += message(1, b'{"method":"GET","path":"/"}') + message(5)
    client.send(asked)
    hear_all(client, 0.3)
    client.send(frame(TEXT, b'{"cell-resume":{"recv":%d}}' % heard, mask=MASK) + message(99) * 63)
    return round_trips(*neighbour)[-1]


def test_a_client_has_no_more_messages_handed_on_at_once_because_they_waited(tmp_path):
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as haproxy:
        relay = {"threads": 1, "mux": f"127.0.0.1:{haproxy.getsockname()[1]}"}
        with Direct(tmp_path, relay=relay, agent=False) as direct:
            neighbour = direct.open(direct.worker(), sandbox="sb-quiet", org="quiet", stream=1)
            waited = [burst(direct, neighbour) for _ in range(3)]
    print("longest round trips:", [f"{seconds * 1e3:.1f} ms" for seconds in waited])
    if not SANITIZED:
        assert min(waited) < 0.16, waited  # the machine may have been busy with others once or twice
