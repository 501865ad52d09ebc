# SPDX-License-Identifier: MIT
"""What the tests and the known defects of the systems in the field ask for and no other file asserts; docs/compatibility.md has
the whole list."""

import gzip
import socket
import threading

import pytest
from cell import haproxy_version
from client import Http1, Http2
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
