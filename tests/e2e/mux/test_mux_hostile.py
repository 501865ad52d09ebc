# SPDX-License-Identifier: MIT
"""cellgate.mux.v1 and the form of sandbox-sdk under clients and workers that mean harm: at random, from a seed that is printed. The relay
lives, who behaves is served all the while, and in the end nothing is left of them. MUX_HOSTILE_SECONDS (4) and MUX_HOSTILE_SEED choose."""

import contextlib
import json
import os
import random
import socket
import struct
import threading
import time

import pytest
from cell import until
from origin import Origin
from raw import NotYet, RawOrigin, Seen
from test_mux_v1 import CREDIT, DATA, END, REQUEST, RESET, ROUTES, Client
from tunnels import Tunnels
from worker import BINARY, TEXT, Ws

SECONDS = float(os.environ.get("MUX_HOSTILE_SECONDS", 4))
SEED = int(os.environ.get("MUX_HOSTILE_SEED", random.SystemRandom().randrange(1 << 32)))
SIZES = [0, 1, 2, 4, 5, 119, 120, 121, 125, 126, 127, 4096, 16383, 16384, 16385, 65530, 65531, 65535, 65536, 65537, 1 << 20]
KINDS = [0, REQUEST, 2, DATA, END, RESET, CREDIT, 7, 255]
HEADS = [b"Content-Length: 3\r\n", b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
         b"Content-Type: text/event-stream\r\n", b"Content-Type: application/json\r\n", b"X-Cell-Handover: a=b\r\n", b"Connection: upgrade\r\n",
         b"X: " + b"y" * 15000 + b"\r\n", b"x: a\0b\r\n", b"x: \xe9\r\n", b"Trailer: x\r\n"]
STATUS = [b"200 OK", b"204 No", b"304 Not", b"103 Early", b"101 Switch", b"500 x", b"099 x", b"x"]
PIECES = [b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"data: x\n\n", b"data: " + b"x" * 70000, b"\"", b"{\"a\":", b"\r\n\r\n", b"0;" + b"x" * 3000 + b"\r\n"]


class Worker(Origin):
    """Answers /good as it should; all else at random."""

    def __init__(self):
        self.asked = 0
        super().__init__(answer=self.serve)

    def serve(self, connection, request):
        self.asked += 1
        if request.target == "/good":
            body = connection.read_body(request)
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return False
        rng = random.Random(request.target)
        with contextlib.suppress(OSError):
            connection.sock.settimeout(2)
            if rng.random() < 0.1:
                connection.sock.recv(1 << 16)
            for _ in range(rng.randrange(1, 4)):
                connection.send(b"HTTP/1.1 " + rng.choice(STATUS) + b"\r\n" + b"".join(rng.sample(HEADS, rng.randrange(4))) + b"\r\n")
                connection.send(b"".join(rng.choices(PIECES, k=rng.randrange(6))))
            if rng.random() < 0.2:
                connection.send(b"x" * rng.choice(SIZES))
        return True


@pytest.fixture
def cell(cells):
    worker = Worker()
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES})
    cell.hostile_worker = worker
    return cell


def frame(rng, opcode, payload):
    """Of a client, mostly as it should be."""
    first = opcode | (0 if rng.random() < 0.03 else 0x80) | (0x40 if rng.random() < 0.01 else 0)
    mask = 0 if rng.random() < 0.01 else 0x80
    size = len(payload)
    head = bytes([first, mask | size]) if size < 126 else bytes([first, mask | 126]) + struct.pack(">H", size) if size < 65536 else bytes([first, mask | 127]) + struct.pack(">Q", size)
    return head + (b"\0\0\0\0" if mask else b"") + payload


def request(rng):
    message = {"method": rng.choice(["GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"]), "path": f"/w/sb-1/{rng.randrange(1 << 30)}"}
    for key, values in {"body": [True, False, 1, None], "length": [0, 3, 65536, 1 << 40, -1, 1.5], "window": [0, 1, 1000, 1 << 30, 1 << 31, -1],
                        "headers": [{"A": "b"}, {"A": "b\r\nc: d"}, {"Host": "x"}, {"": "x"}, [], {"A": 1}, {"A": "x" * 20000}]}.items():
        if rng.random() < 0.3:
            message[key] = rng.choice(values)
    text = json.dumps(message).encode()
    return text[: rng.randrange(len(text))] if rng.random() < 0.05 else text


def v1_message(rng, number):
    kind = rng.choices(KINDS, [1, 20, 1, 12, 6, 8, 8, 1, 1])[0]
    if kind == REQUEST:
        number[0] += rng.choices([1, 0, -1, 1 << 20], [60, 1, 1, 2])[0]
        return bytes([kind]) + struct.pack(">I", number[0] & 0xffffffff) + request(rng)
    whose = rng.choices([number[0], max(number[0] - rng.randrange(5), 1), 0, 0xffffffff], [30, 30, 1, 1])[0] & 0xffffffff
    payload = os.urandom(4) if kind == CREDIT and rng.random() < 0.1 else struct.pack(">I", rng.choice([1, 100, 65536])) if kind == CREDIT else b""
    if kind == END:
        payload = rng.choice([b"", b"", b'{"trailers":{"a":"b"}}', b'{"trailers":{"a":"b\\r\\n"}}', b"{", b"x" * 65536])
    elif kind != CREDIT:
        payload = b"x" * rng.choices(SIZES, [len(SIZES)] * 18 + [5, 1, 1])[0]
    return bytes([kind]) + struct.pack(">I", whose) + payload


def sdk_message(rng, number):
    number[0] += 1
    id = f"ws_{number[0] - rng.choices([0, 1, 2], [50, 1, 1])[0]}"
    if rng.random() < 0.2:
        return json.dumps({"type": "cancel", "id": id}).encode()
    message = {"type": "request", "id": id, **json.loads(json.dumps({"method": "POST", "path": f"/w/sb-1/{rng.randrange(1 << 30)}", "body": {"a": "x" * rng.choice(SIZES[:12])}}))}
    text = json.dumps(message).encode()
    return text[: rng.randrange(len(text))] if rng.random() < 0.05 else text


def attack(cell, token, seed):
    """One socket, which says some messages, cut anywhere, and leaves in one way or another."""
    rng = random.Random(seed)
    v1, number = rng.random() < 0.75, [0]
    with contextlib.suppress(OSError, EOFError, AssertionError):  # it was closed, or refused
        ws = Ws(cell.http, "/v1/mux", [("Sec-WebSocket-Protocol", "cellgate.mux.v1" if v1 else "x"), ("Authorization", "Bearer " + token)])
        sock = ws.http.sock
        sock.settimeout(2)
        for _ in range(rng.randrange(1, 40)):
            message = v1_message(rng, number) if v1 else sdk_message(rng, number)
            bytes_ = frame(rng, BINARY if v1 or rng.random() < 0.3 else TEXT, message)
            if rng.random() < 0.05:
                bytes_ += frame(rng, rng.choice([8, 9, 10, 3]), b"p" * rng.choice([0, 1, 2, 125, 126]))
            cut = rng.randrange(len(bytes_) + 1)
            sock.sendall(bytes_[:cut])
            if rng.random() < 0.3:
                sock.recv(rng.choice([1, 100, 65536]))
            sock.sendall(bytes_[cut:])
        if rng.random() < 0.3:
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        if rng.random() < 0.3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


def test_hostile_clients_and_workers_at_random(cell):
    print(f"MUX_HOSTILE_SEED={SEED}")
    token, ends, seeds = cell.token("sb-1", need=["exec"]), time.monotonic() + SECONDS, iter(range(SEED, SEED + (1 << 30)))
    relay, lock = cell.pid("relay"), threading.Lock()

    def attacks():
        while time.monotonic() < ends:
            with lock:
                seed = next(seeds)
            attack(cell, token, seed)

    threads = [threading.Thread(target=attacks) for _ in range(8)]
    for thread in threads:
        thread.start()
    good, rng = 0, random.Random(SEED)
    with Client(cell, token) as client:
        while any(thread.is_alive() for thread in threads):
            body = rng.randbytes(rng.choice(SIZES[:19]))
            number = client.ask("/good", "POST", body=True)
            client.upload(number, body)
            client.put(END, number)
            assert client.response(number)["status"] == 200 and client.body(number) == (body, {})
            good += 1
    assert good and cell.hostile_worker.asked > good
    tunnels = Tunnels(cell)
    until(lambda: tunnels.metric("cellgate_relay_mux_sockets") == 0, 20, "sockets are left")
    assert tunnels.metric("cellgate_relay_held_bytes") == 0
    until(lambda: len(os.listdir(f"/proc/{relay}/fd")) < 40, 20, "descriptors are left")
    assert cell.pid("relay") == relay
    for name in ("agent", "relay"):
        assert token not in (cell.run_dir / f"{name}.log").read_text()


@pytest.mark.parametrize("count", [20000])
def test_requests_that_are_reset_at_once_reach_no_worker(cell, count):
    """Rapid reset: each costs the client more than it costs the gate."""
    text = json.dumps({"method": "GET", "path": "/w/sb-1/good"}).encode()
    plain = random.Random(0)
    plain.random = lambda: 1.0  # frames without a fault
    with Client(cell, cell.token("sb-1", need=["exec"])) as client:
        client.ws.http.sock.settimeout(60)
        for _ in range(0, count, 250):
            first = client.number + 1
            client.number += 250
            pairs = (frame(plain, BINARY, bytes([REQUEST]) + struct.pack(">I", n) + text) + frame(plain, BINARY, bytes([RESET]) + struct.pack(">I", n)) for n in range(first, first + 250))
            client.ws.http.sock.sendall(b"".join(pairs))
            # served after all before it: HAProxy's queue is full when HAProxy stands still meanwhile, and who comes then is refused
            assert client.call("/good", "POST")[0]["status"] == 200
    assert cell.hostile_worker.asked < count / 10
    tunnels = Tunnels(cell)
    until(lambda: tunnels.metric("cellgate_relay_mux_sockets") == 0, 10)
    assert tunnels.metric('cellgate_relay_mux_requests_total{outcome="cancelled"}') == count


# ---- texts that would be more than one request, or another one ----

ENDS = ["", "\r\n", "\n", "\r", "\r\n\r\n", " HTTP/1.1\r\nX-Stray: 1\r\n", "\0", "\u2028", "\x85", "\x0b", "\u010d\u010a", "\ud83d", "#x", "?cellgate_token=x", " ", "\t", "%0d%0a", ";"]
NAMES = ["Content-Length", "Transfer-Encoding", "content-length ", " Transfer-Encoding", "Transfer_Encoding", "Host", "hOST", "Connection", "Upgrade", "HTTP2-Settings", "Expect", "TE", "Trailer", "Keep-Alive",
         "Proxy-Connection", "X-Forwarded-For", "X-Forwarded-Host", "x-forwarded-proto", "Forwarded", "X-Cell-Handover", "X-Cell-Sandbox", "Authorization", "Cookie", ":authority", ":path", "A", "", "a b", "a:b",
         "Sec-WebSocket-Key", "Cell-Resume", "X-Stray\r\nX-Other", "\u00e9", "Range", "Content-Type", "X-HTTP-Method-Override"]
VALUES = ["0", "5", "chunked", "gzip, chunked", "close", "upgrade", "websocket", "100-continue", "evil.example", "10.0.0.1", "Bearer x", "x", "", "trailers", "X-Stray"]
PATHS = ["/w/sb-1/ok", "/w/sb-2/ok", "//w/sb-1/ok", "/w//sb-1/ok", "/w/sb-1/../sb-2/ok", "/w/sb-1/%2e%2e/sb-2/ok", "/w/sb-1%2f..%2fsb-2/ok", "http://evil.example/w/sb-2/ok", "*", "evil:80", "/v1/mux", "/w/sb-1\\..\\sb-2/ok", "/W/sb-2/x",
         "/w/sb-1;/../sb-2/ok", "/w/sb-1/ok?x=/w/sb-2/", "/./w/sb-2/ok"]
# Nothing of a message may look like these at a worker: it is HAProxy and the agent that say them.
OURS = {"host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-cell-handover", "x-cell-sandbox", "connection", "upgrade", "expect", "transfer-encoding", "content-length",
        "keep-alive", "proxy-connection", "te", "trailer", "http2-settings", "sec-websocket-key", "authorization", "cellgate-token"}


def nasty(rng, text):
    cut = rng.randrange(len(text) + 1)
    return text[:cut] + rng.choice(ENDS) + text[cut:] if rng.random() < 0.15 else text


def nasty_request(rng):
    fields = {nasty(rng, rng.choice(NAMES)): nasty(rng, rng.choice(VALUES)) for _ in range(rng.randrange(5))}
    message = {"method": nasty(rng, rng.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS"])), "path": nasty(rng, rng.choice(PATHS[:1] * 20 + PATHS)), "headers": fields}
    if body := message["method"] != "GET" and rng.random() < 0.5:
        message["body"] = True
        if rng.random() < 0.5:
            message["length"] = rng.choice([0, 5, 5, 5, 6])
    return message, body


def ends_with(rng):
    if rng.random() < 0.7:
        return b""
    return json.dumps({"trailers": {nasty(rng, rng.choice(NAMES)): nasty(rng, rng.choice(VALUES))}}).encode()


@pytest.mark.parametrize("form", ["v1", "sandbox-sdk"])
def test_a_message_is_one_request_of_its_sandbox_or_none(cells, form):
    """A worker without tolerance reads every byte that it gets. The token is for sb-1 alone, and no header of the gate's own is a message's."""
    origins = {name: RawOrigin() for name in ("sb-1", "sb-2")}
    cell = cells(sandboxes={name: {"worker": origin.url} for name, origin in origins.items()}, config={"routes": ROUTES})
    rng, count = random.Random(SEED), 1500
    print(f"MUX_HOSTILE_SEED={SEED}")
    token, settled = cell.token("sb-1", need=["exec"]), set()
    for start in range(1, count, 50):  # a socket for each fifty
        ws = Ws(cell.http, "/v1/mux", [("Sec-WebSocket-Protocol", "cellgate.mux.v1" if form == "v1" else "x"), ("Authorization", "Bearer " + token)])
        for number in range(start, start + 50):
            message, body = nasty_request(rng)
            if form == "v1":
                ws.send(BINARY, bytes([REQUEST]) + struct.pack(">I", number) + json.dumps(message).encode())
                if body:
                    ws.send(BINARY, bytes([DATA]) + struct.pack(">I", number) + b"hello")
                    ws.send(BINARY, bytes([END]) + struct.pack(">I", number) + ends_with(rng))
            else:
                message.pop("length", None)
                ws.say(type="request", id=str(number), **message | ({"body": nasty(rng, "hello")} if body else {}))
            while True:
                opcode, payload = ws.message()
                assert opcode in (BINARY, TEXT), payload
                if form == "v1" and payload[0] in (END, RESET) and struct.unpack(">I", payload[1:5])[0] == number:
                    break
                if form != "v1" and ("status" in (told := json.loads(payload))) and told.get("id", str(number)) == str(number):
                    break
            settled.add(number)
        ws.drop()
    assert len(settled) >= count - 50
    until(lambda: origins["sb-1"].ended == len(origins["sb-1"].connections), 20)
    assert not origins["sb-2"].connections and len(origins["sb-1"].connections) > count / 20
    for raw in origins["sb-1"].connections:
        assert b"\nx-stray" not in raw.lower() and b"\rx-stray" not in raw.lower(), bytes(raw)
        try:
            seen = Seen(bytes(raw))
        except NotYet:  # it was reset, since its body was not what it had said
            continue
        assert not seen.rest and "stray" not in seen.line.lower(), bytes(raw)
        names = [name for name, _ in seen.fields]
        assert "x-stray" not in names and "x-other" not in names, bytes(raw)
        assert not any(b"tray" in trailer.partition(b":")[0].lower() for trailer in seen.trailers), bytes(raw)
        for name, value in seen.fields:
            assert name not in OURS or value not in ("evil.example", "10.0.0.1", "upgrade", "websocket", "100-continue", "gzip, chunked", "X-Stray"), (name, value)
        assert "authorization" not in names, seen.fields
        assert seen.body in (b"", b"hello") or form != "v1", seen.body
