# SPDX-License-Identifier: MIT
"""A real library's WebSocket server behind HAProxy and the relay behaves as in front of them: the same bytes go to both, and
what comes back is compared. What may differ is said in one place (`recut`), and the few answers that are the relay's own."""

import asyncio
import contextlib
import os
import struct
import threading

import pytest
from client import frame
from direct import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT
from tunnels import QUICK, ROUTES, Tunnels
from websockets.exceptions import ConnectionClosed
from websockets.legacy.server import serve

MASK = b"\x12\x34\x56\x78"
BIG = 16 << 20


class EchoServer:
    """The library's own echo: whatever message comes goes back; `close CODE REASON` makes it close."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        started = threading.Event()

        async def echo(ws):
            with contextlib.suppress(ConnectionClosed):
                async for message in ws:
                    if isinstance(message, str) and message.startswith("close "):
                        _, code, reason = message.split(" ", 2)
                        return await ws.close(int(code), reason)
                    await ws.send(message)

        async def begin():
            self.server = await serve(echo, "127.0.0.1", 0, compression=None, max_size=None, ping_interval=None, close_timeout=1)
            self.port = self.server.sockets[0].getsockname()[1]
            started.set()

        def run():
            self.loop.run_until_complete(begin())
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert started.wait(10)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self):
        async def finish():
            self.server.close()
            await self.server.wait_closed()

        asyncio.run_coroutine_threadsafe(finish(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)


@pytest.fixture(scope="module")
def echo():
    server = EchoServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def tunnels(cells, echo):
    tunnels = Tunnels(cells(config={"relay": QUICK, "routes": ROUTES}))
    tunnels.echo = tunnels.sandbox(echo)
    yield tunnels
    tunnels.close()


MARKER = (TEXT, b"is everything answered?", True)


def conversation(peer, sent, goodbye):
    """All frames that come back: what was sent is answered, then comes what ends it. The last one is the Close; behind it
    `clean end`, or None for an end without a Close."""
    sender = threading.Thread(target=send, args=(peer, sent + frame(*MARKER[:2], mask=MASK)))
    sender.start()
    frames = []
    try:
        while not frames or frames[-1] != MARKER:
            frames.append(peer.hear())
        sender.join(10)
        send(peer, goodbye)
        while frames[-1][0] != CLOSE:
            frames.append(peer.hear())
        peer.say(frames[-1][1][:2], CLOSE)
        frames.append("clean end" if peer.ended() and not peer.bytes else peer.bytes)
    except (EOFError, OSError):
        frames.append(None)
    sender.join(10)
    return frames


def send(peer, sent):
    try:
        peer.send(sent)
    except OSError:
        pass  # it was closed in the middle


def recut(frames):
    """Messages instead of frames: where a long one is cut is the relay's business. Control frames keep their order among
    themselves and relative to the messages that ended before them; pongs may come inside of a message or behind it."""
    messages, controls, payload, kind = [], [], b"", None
    for item in frames:
        if not isinstance(item, tuple):
            messages.append(item)
            continue
        opcode, part, fin = item
        if opcode in (CLOSE, PING, PONG):
            (messages if opcode == CLOSE else controls).append((opcode, part))
            continue
        kind, payload = (kind, payload + part) if opcode == CONTINUATION else (opcode, part)
        if fin:
            messages.append((kind, payload))
    return messages, controls


def both(tunnels, echo, sent, goodbye):
    """What came back (directly, through the stack), messages and controls."""
    direct = tunnels.accepted(tunnels.ask(tunnels.echo, port=echo.port))
    through = tunnels.accepted(tunnels.ask(tunnels.echo))
    return recut(conversation(direct, sent, goodbye)), recut(conversation(through, sent, goodbye))


def client(opcode, payload=b"", **more):
    return frame(opcode, payload, mask=MASK, **more)


GOODBYE = client(CLOSE, struct.pack(">H", 1000) + b"done")

# ---- what is well-formed ----

TEXTS = ["", "a", "κόσμε", "x" * 125, "y" * 126, "z" * 65535, "ü" * 32768]
GOOD = {f"text of {len(t.encode())} bytes": client(TEXT, t.encode()) for t in TEXTS}
GOOD |= {f"binary of {n} bytes": client(BINARY, bytes(range(256)) * (n // 256) + bytes(n % 256)) for n in (0, 1, 125, 126, 127, 16383, 16384, 16385, 65535, 65536, 100_000, 1 << 20)}
GOOD |= {
    "a mask of zeros": frame(BINARY, b"plain", mask=b"\0\0\0\0"),
    "fragments": client(TEXT, b"one ", fin=False) + client(CONTINUATION, b"two ", fin=False) + client(CONTINUATION, b"three"),
    "empty fragments": client(BINARY, b"", fin=False) + client(CONTINUATION, b"", fin=False) + client(CONTINUATION, b""),
    "a character in two fragments": client(TEXT, "ü".encode()[:1], fin=False) + client(CONTINUATION, "ü".encode()[1:]),
    "a thousand fragments": client(BINARY, b"0", fin=False) + client(CONTINUATION, b"x", fin=False) * 998 + client(CONTINUATION, b"1"),
    "fragments of 20 KiB": client(BINARY, b"a" * 20480, fin=False) + client(CONTINUATION, b"b" * 20480, fin=False) + client(CONTINUATION, b"c" * 20480),
    "a ping": client(PING, b"hello"),
    "an empty ping": client(PING),
    "a ping of 125 bytes": client(PING, b"p" * 125),
    "ten pings": b"".join(client(PING, b"%d" % i) for i in range(10)),
    "an unasked pong": client(PONG, b"unasked") + client(TEXT, b"after"),
    "a ping between fragments": client(TEXT, b"one ", fin=False) + client(PING, b"between") + client(CONTINUATION, b"two"),
    "pings between long fragments": client(BINARY, b"a" * 70_000, fin=False) + client(PING, b"1") + client(CONTINUATION, b"b" * 70_000, fin=False) + client(PING, b"2") + client(CONTINUATION, b"c"),
    "many messages at once": b"".join(client(TEXT, b"%d" % i) for i in range(500)),
}


@pytest.mark.parametrize("what", GOOD)
def test_what_is_well_formed_is_answered_alike(tunnels, echo, what):
    direct, through = both(tunnels, echo, GOOD[what], GOODBYE)
    assert direct == through
    assert direct[0][-2:] == [(CLOSE, struct.pack(">H", 1000) + b"done"), "clean end"]


@pytest.mark.parametrize("what", ["fragments", "a ping between fragments", "text of 126 bytes", "an unasked pong"])
def test_every_byte_by_itself(tunnels, echo, what):
    sent = GOOD[what]
    direct = tunnels.accepted(tunnels.ask(tunnels.echo, port=echo.port))
    through = tunnels.accepted(tunnels.ask(tunnels.echo))
    for byte in sent:
        through.send(bytes([byte]))
    assert recut(conversation(through, b"", GOODBYE)) == recut(conversation(direct, sent, GOODBYE))


@pytest.mark.parametrize("size", [BIG, 1 << 18])
def test_a_message_of_16_mib(tunnels, echo, size):
    """In one frame, and in many."""
    payload = os.urandom(1 << 16) * (BIG >> 16)
    parts = [payload[i : i + size] for i in range(0, BIG, size)]
    sent = b"".join(client(CONTINUATION if i else BINARY, part, fin=i + 1 == len(parts)) for i, part in enumerate(parts))
    direct, through = both(tunnels, echo, sent, GOODBYE)
    assert direct == through
    assert through[0][0] == (BINARY, payload)


# ---- closing ----


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x03\xe8bye", b"\x03\xe9", b"\x0b\xb8", b"\x13\x87why", b"\x03\xe8" + b"r" * 123])
def test_a_clients_close_is_answered_alike(tunnels, echo, payload):
    direct, through = both(tunnels, echo, b"", client(CLOSE, payload))
    assert direct == through and direct[0][-1] == "clean end"


@pytest.mark.parametrize("code,reason", [(1000, ""), (1000, "bye"), (3000, "three"), (4999, "r" * 123), (1008, "policy"), (1003, "")])
def test_a_servers_close_is_passed_on(tunnels, echo, code, reason):
    direct, through = both(tunnels, echo, b"", client(TEXT, f"close {code} {reason}".encode()))
    assert direct == through
    assert through[0][1:] == [(CLOSE, struct.pack(">H", code) + reason.encode()), "clean end"]


def test_a_workers_goodbye_waits_for_the_agents_answer_only(cells):
    """Where the tunnel ends with its worker. One that is redialled goes on waiting for a move."""
    with contextlib.closing(Tunnels(cells(config={"relay": QUICK | {"grace_period": "60s"}, "routes": ROUTES}))) as tunnels:
        worker = tunnels.worker()
        peer, upstream = tunnels.open(worker, route="own")
        upstream.close_with(1000, b"bye")
        assert peer.closed() == (1000, "bye")
        assert upstream.closed()[0] == 1000


def test_a_servers_reason_that_is_no_text_is_passed_on_and_never_repeated(tunnels):
    worker = tunnels.worker()
    peer, upstream = tunnels.open(worker)
    upstream.close_with(1000, b"\xce\xba\xed\xa0\x80")
    assert upstream.hear() == (CLOSE, b"\x03\xef", True)
    assert peer.hear() == (CLOSE, b"\x03\xe8\xce\xba\xed\xa0\x80", True)


def test_a_reason_that_is_no_text_reaches_the_server_and_is_never_repeated(tunnels):
    """A server that drops the connection over it: Autobahn's case 7.5.1."""
    worker = tunnels.worker()
    peer, upstream = tunnels.open(worker)
    said = b"\x03\xe8\xce\xba\xed\xa0\x80"
    peer.send(client(CLOSE, said))
    assert upstream.hear()[:2] == (CLOSE, said)
    upstream.close()
    assert peer.hear() == (CLOSE, b"\x03\xef", True)


# ---- what is not well-formed: 1002 from whoever sees it first, and nothing of it reaches the server ----



def mistakes(mask):
    """Made by a client, or without a mask by a worker."""
    flag = 0x80 if mask else 0

    def made(opcode, payload=b"", **more):
        return frame(opcode, payload, mask=mask, **more)

    def head(first, *length):
        return bytes([first, flag | length[0], *length[1:]]) + (mask or b"")

    return {
        "wrong mask": frame(TEXT, b"x", mask=None if mask else MASK),
        "wrong mask of a ping": frame(PING, b"x", mask=None if mask else MASK),
        **{f"reserved bit {bit:#x}": made(TEXT, b"x", bits=bit) for bit in (0x10, 0x20, 0x40)},
        **{f"reserved opcode {opcode}": made(opcode, b"x") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
        "a ping of 126 bytes": head(0x80 | PING, 126, 0, 126) + b"p" * 126,
        "a ping in fragments": made(PING, b"x", fin=False),
        "a close in fragments": made(CLOSE, b"\x03\xe8", fin=False),
        "a continuation of nothing": made(CONTINUATION, b"x"),
        "a message within a message": made(TEXT, b"x", fin=False) + made(TEXT, b"y"),
        "a length of 2^63": head(0x80 | BINARY, 127, 0x80, 0, 0, 0, 0, 0, 0, 0),
        "a close of one byte": made(CLOSE, b"\x03"),
        **{f"close code {code}": made(CLOSE, struct.pack(">H", code)) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)},
    }


# The library takes them, RFC 6455 section 5.2 does not.
LENGTHS = {"5 in 16 bits": bytes([0x82, 0x80 | 126, 0, 5]) + MASK + b"12345",
           "5 in 64 bits": bytes([0x82, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 5]) + MASK + b"12345",
           "2^63": bytes([0x82, 0x80 | 127, 0x80, 0, 0, 0, 0, 0, 0, 0]) + MASK}
BAD = {what: data for what, data in mistakes(MASK).items() if "2^63" not in what}
BAD_OF_WORKERS = mistakes(None)


@pytest.mark.parametrize("what", BAD)
def test_what_is_not_well_formed_is_a_protocol_error(tunnels, echo, what):
    ((direct, _), (through, _)) = both(tunnels, echo, b"", BAD[what])
    assert (through[1][0], through[1][1][:2]) == (CLOSE, b"\x03\xea")
    assert (direct[1][0], direct[1][1][:2]) == (CLOSE, b"\x03\xea")


def test_what_a_server_says_to_what_came_before_a_mistake_comes_first(tunnels):
    """As without a relay: Autobahn's cases of a message and nonsense behind it."""
    worker = tunnels.worker()
    peer, upstream = tunnels.open(worker)
    peer.send(frame(TEXT, b"one", mask=MASK) + BAD["reserved opcode 3"] + frame(TEXT, b"two", mask=MASK))
    assert upstream.hear() == (TEXT, b"one", True)
    upstream.say(b"re: one", TEXT)
    assert upstream.closed() == (1001, "protocol error")
    assert peer.hear() == (TEXT, b"re: one", True)
    assert peer.closed() == (1002, "protocol error")


def test_what_a_client_says_to_what_came_before_a_workers_mistake_comes_first(tunnels):
    """The other way round. A client that does not answer the Close is not waited for."""
    for answers in (True, False):
        worker = tunnels.worker()
        peer, upstream = tunnels.open(worker)
        upstream.send(frame(TEXT, b"one") + BAD_OF_WORKERS["reserved opcode 3"] + frame(TEXT, b"two"))
        assert peer.hear() == (TEXT, b"one", True)
        assert peer.hear() == (CLOSE, b"\x03\xf3worker protocol error", True)
        peer.say(b"re: one", TEXT)
        if answers:
            peer.say(b"\x03\xf3", CLOSE)
        assert upstream.hear() == (TEXT, b"re: one", True)
        assert upstream.closed() == (1002, "worker protocol error")


@pytest.mark.parametrize("what", LENGTHS)
def test_a_length_that_is_not_as_it_should_be_is_a_protocol_error(tunnels, what):
    through = tunnels.accepted(tunnels.ask(tunnels.echo))
    (_, close, *_), _ = recut(conversation(through, b"", LENGTHS[what]))
    assert close[0] == CLOSE and close[1][:2] == b"\x03\xea"


def test_bytes_that_are_not_utf_8_are_the_servers_business(tunnels, echo):
    direct, through = both(tunnels, echo, b"", client(TEXT, b"\xff\xfe"))
    assert direct == through and direct[0][1][1][:2] == b"\x03\xef"


# ---- the same mistakes, made by a worker ----


@pytest.mark.parametrize("what", BAD_OF_WORKERS)
def test_a_worker_that_breaks_the_protocol_is_told_and_its_client_gets_1011(tunnels, what):
    worker = tunnels.worker()
    peer, upstream = tunnels.open(worker)
    upstream.send(frame(TEXT, b"before") + BAD_OF_WORKERS[what])
    assert peer.hear() == (TEXT, b"before", True)
    if what == "a message within a message":
        assert peer.hear() == (TEXT, b"x", False)
    assert peer.closed() == (1011, "worker protocol error")
    assert upstream.closed()[0] == 1002
