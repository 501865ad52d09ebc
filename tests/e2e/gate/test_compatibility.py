# SPDX-License-Identifier: MIT
"""What the tests and the known defects of the systems in the field ask for and no other file asserts; docs/evidence/compatibility.md has
the whole list."""

import gzip
import hashlib
import socket
import struct
import threading
import time

import pytest
from cell import haproxy_version, until
from client import Http1, Http2, request
from origin import Origin, respond, switch
from raw import RawOrigin, Seen

CONFIG = {
    "worker_networks": ["127.0.0.0/8", "::1/128"],
    "routes": [
        {"name": "relay", "path": "/r/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "none", "origins": ["*"]},
        {"name": "direct", "path": "/d/{sandbox}/{rest...}", "to": "/{rest}", "need": "none", "origins": ["*"]},
    ],
}


class Origin6(Origin):
    """On the loopback address of IPv6."""

    def __init__(self):
        self.answer, self.upgrade, self.tls, self.requests, self.connections = respond, lambda c, r: switch(c, r), None, [], 0
        self.listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://[::1]:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()


@pytest.fixture(scope="module")
def origin(origins):
    return origins(upgrade=lambda connection, request: switch(connection, request, b"X-Of-Worker: 1\r\nX-Of-Worker: 2\r\n"))


@pytest.fixture(scope="module")
def origin6():
    origin = Origin6()
    yield origin
    origin.close()


@pytest.fixture(scope="module")
def raw():
    raw = RawOrigin()
    yield raw
    raw.close()


@pytest.fixture(scope="module")
def cell(cells, origin, origin6, raw):
    return cells(sandboxes={"sb": {"worker": origin.url}, "six": {"worker": origin6.url}, "raw": {"worker": raw.url}}, config=CONFIG)


@pytest.fixture(params=["http", "h2"])
def client(request, cell):
    with Http1(cell.http) if request.param == "http" else Http2(cell.https) as connection:
        yield connection


def test_a_delete_keeps_its_body(client, origin):
    response = client.request("DELETE", "/d/sb/files", body=b'{"path":"/x"}')
    assert (response.status, response.body) == (200, b'{"path":"/x"}')
    assert origin.requests[-1].method == "DELETE" and origin.requests[-1].body == b'{"path":"/x"}'


def test_a_compressed_answer_stays_as_it_is(client, origin):
    packed = gzip.compress(b"text " * 1000)

    def answer(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)

    origin.answer, kept = answer, origin.answer
    try:
        response = client.request("GET", "/d/sb/", [("Accept-Encoding", "gzip, br")])
    finally:
        origin.answer = kept
    assert (response.body, response.all("content-encoding")) == (packed, ["gzip"])
    assert origin.requests[-1].all("accept-encoding") == ["gzip, br"]


# ---- a request runs once, whatever becomes of it ----

NOT_FOUND = b'{"error":"sandbox sb not found"}'


@pytest.mark.parametrize("before", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("how", ["closes", "resets", "502", "503"])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_request_reaches_a_worker_once(client, cell, origin, method, how, before):
    """On a new connection and on one that was used before. Nor does an answer of the worker's say anything of the sandbox."""
    target = f"/once/{method}/{how}/{before}"

    def answer(connection, request):
        if request.target != target:
            return respond(connection, request)
        request.body = connection.read_body(request)
        if how == "resets":
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how != "closes":
            connection.send(f"HTTP/1.1 {how} Oops\r\nContent-Length: {len(NOT_FOUND)}\r\nRetry-After: 0\r\n\r\n".encode() + NOT_FOUND)
        return True

    origin.answer, kept = answer, origin.answer
    try:
        for _ in range(before):
            assert client.request("GET", "/d/sb/").status == 200
        count = len(origin.requests)
        try:
            response = client.request(method, "/d/sb" + target, body=b"" if method == "GET" else b"x" * 1000)
            assert response.status == (502 if how in ("closes", "resets") else int(how))
            assert (response.body == NOT_FOUND) == (how in ("502", "503"))
        except (AssertionError, ConnectionError) as e:
            # A connection that was used before, or a stream, just ends: docs/haproxy.md.
            assert how in ("closes", "resets") and (before or isinstance(client, Http2)) and "ended before an answer" in str(e)
        assert [r.target for r in origin.requests[count:]] == [target]
        assert request(cell.http, "GET", "/d/sb/").status == 200
    finally:
        origin.answer = kept


# ---- much at once ----


def test_more_than_a_hundred_at_a_time(cells, origins):
    """Half requests, half tunnels, all of one sandbox: the worker answers when all are there."""
    count, gate = 150, threading.Event()

    def arrive(connection, request):
        if len(origin.requests) >= count:
            gate.set()
        gate.wait(20)

    def answer(connection, request):
        arrive(connection, request)
        respond(connection, request)

    def upgrade(connection, request):
        arrive(connection, request)
        switch(connection, request)

    origin = origins(answer=answer, upgrade=upgrade)
    cell = cells(sandboxes={"sb": {"worker": origin.url}}, config=CONFIG)
    clients = [Http1(cell.http, timeout=30) for _ in range(count)]
    try:
        for number, client in enumerate(clients):
            more = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" if number % 2 else ""
            client.send(f"GET /d/sb/{number} HTTP/1.1\r\nHost: cell.test\r\n{more}\r\n".encode())
            until(lambda: len(origin.requests) > number - 10, 20, "they do not arrive")  # not a test of how fast they are decided
        assert [client.response().status for client in clients] == [101 if number % 2 else 200 for number in range(count)]
    finally:
        for client in clients:
            client.sock.close()


LARGEST = 64 << 20  # relay.max_message


def read_message(connection):
    """(opcode, length, SHA-256) of a message, in as many frames as it comes in; masks are zeros."""
    digest, size, opcode, fin = hashlib.sha256(), 0, None, False
    while not fin:
        first, second = connection.read_exactly(2)
        length = second & 127
        if length > 125:
            length = int.from_bytes(connection.read_exactly(2 if length == 126 else 8), "big")
        assert not second & 128 or connection.read_exactly(4) == bytes(4)
        digest.update(connection.read_exactly(length))
        opcode, size, fin = first & 15 if opcode is None else opcode, size + length, bool(first & 128)
    return opcode, size, digest.digest()


@pytest.mark.parametrize("way", ["d", "r"])
def test_a_message_of_64_mib_both_ways(cell, origin, way):
    payload, heard = bytes(range(251)) * (LARGEST // 251 + 1), []
    payload = payload[:LARGEST]
    whole = (2, LARGEST, hashlib.sha256(payload).digest())

    def answer(connection, request):
        switch(connection, request)
        connection.send(b"\x82\x7f" + LARGEST.to_bytes(8, "big") + payload)
        heard.append(read_message(connection))
        connection.send(b"\x82\x02ok")
        connection.read()

    origin.upgrade, kept = answer, origin.upgrade
    try:
        with Http1(cell.http, timeout=60) as client:
            assert client.upgrade(f"/{way}/sb/ws").status == 101
            assert read_message(client) == whole
            client.send(b"\x82\xff" + LARGEST.to_bytes(8, "big") + bytes(4) + payload)
            assert client.read_exactly(4) == b"\x82\x02ok" and heard == [whole]
            if way == "r":  # one byte more
                client.send(b"\x82\xff" + (LARGEST + 1).to_bytes(8, "big") + bytes(4))
                assert client.read_exactly(4)[2:] == (1009).to_bytes(2, "big")
    finally:
        origin.upgrade = kept


@pytest.mark.parametrize("reader", ["client", "worker"])
def test_who_does_not_read_holds_up_who_sends_on_a_direct_route(cell, origin, reader):
    """Nothing is collected in between, others are served, and all of it comes once it is read."""
    piece, pieces = bytes(range(256)) * 256, 512
    sent, may_read, digests = [0], threading.Event(), []

    def flood(connection):
        for number in range(pieces):
            connection.send(piece)
            sent[0] = number + 1

    def drain(connection):
        may_read.wait(30)
        digest, left = hashlib.sha256(), len(piece) * pieces
        while left:
            data = connection.read_exactly(min(left, 1 << 20))
            digest.update(data)
            left -= len(data)
        digests.append(digest.digest())

    def answer(connection, request):
        switch(connection, request)
        (flood if reader == "client" else drain)(connection)

    origin.upgrade, kept = answer, origin.upgrade
    try:
        with Http1(cell.http, timeout=60) as client:
            assert client.upgrade("/d/sb/ws").status == 101
            other = threading.Thread(target=drain if reader == "client" else flood, args=(client,))
            other.start()
            last, end = -1, time.monotonic() + 30
            while (last != sent[0] or not last) and time.monotonic() < end:  # until nothing moves any more
                last = sent[0]
                time.sleep(0.3)
            assert 0 < sent[0] < pieces, "nothing pushes back"
            assert request(cell.http, "GET", "/d/sb/").status == 200
            may_read.set()
            other.join(60)
            until(lambda: digests, 60, "not all of it comes")
            assert digests == [hashlib.sha256(piece * pieces).digest()]
    finally:
        may_read.set()
        origin.upgrade = kept


HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", HINTS + b"HTTP/1.1 200 OK\r\nContent-Length: 550000\r\n\r\n"], ids=["no length", "hints and a length"])
def test_a_long_answer_is_whole(client, origin, head):
    """Also when it is ended by its connection's end, as in HTTP/1.0, or hints and head come in one packet."""
    if head.startswith(HINTS) and haproxy_version() < (3, 2):
        pytest.skip("HAProxy's own: it stalls behind an interim answer that came with the next one's head (docs/haproxy.md)")
    whole = b"to the end " * 50000

    def answer(connection, request):
        connection.send(head + whole)
        return True

    origin.answer, kept = answer, origin.answer
    try:
        body = client.request("GET", "/d/sb/").body
        assert len(body) == len(whole)
        assert body == whole
    finally:
        origin.answer = kept


@pytest.mark.parametrize("way", ["d", "r"])
def test_origin_and_own_headers_pass_with_an_upgrade(cell, origin, way):
    own = [("Origin", "https://app.test"), ("X-Custom", "1"), ("X-Custom", "2"), ("X-EXECD-ACCESS-TOKEN", "execd's"), ("User-Agent", "mine/1")]
    with Http1(cell.http) as client:
        response = client.upgrade(f"/{way}/sb/ws?a=1&b=%2F", own)
    assert response.status == 101 and response.all("x-of-worker") == ["1", "2"]
    seen = origin.requests[-1]
    assert seen.target == "/ws?a=1&b=%2F"
    for name in {n for n, _ in own}:
        assert seen.all(name) == [v for n, v in own if n == name]


def test_origin_passes_with_a_plain_request(client, origin):
    assert client.request("GET", "/d/sb/", [("Origin", "https://app.test")]).status == 200
    assert origin.requests[-1].all("origin") == ["https://app.test"]


@pytest.mark.parametrize("way", ["d", "r"])
def test_a_worker_on_ipv6(cell, origin6, way):
    with Http1(cell.http) as client:
        assert client.upgrade(f"/{way}/six/ws").status == 101
    assert origin6.requests[-1].all("host") == [f"[::1]:{origin6.port}"]


@pytest.mark.parametrize("connection", ["keep-alive, Upgrade", "Upgrade, keep-alive", "upgrade", "keep-alive,upgrade"])
@pytest.mark.parametrize("way", ["d", "r"])
def test_every_browsers_spelling_of_an_upgrade(cell, raw, way, connection):
    """Firefox says `keep-alive, Upgrade`."""
    before = len(raw.connections)
    with Http1(cell.http) as client:
        headers = [("Upgrade", "WebSocket"), ("Connection", connection), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]
        assert client.request("GET", f"/{way}/raw/ws", headers).status == 101
    assert [Seen(bytes(got)).target for got in raw.connections[before:]] == ["/ws"]
