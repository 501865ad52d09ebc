# SPDX-License-Identifier: MIT
"""Upgrades that RFC 6455 does not allow, as raw bytes: none opens a tunnel, each gets its status, the connection is closed,
and what was glued behind it is never read as a request."""

import base64
import os
import socket
import subprocess

import pytest
from cell import end, haproxy_version, until
from client import KEY, Http2, exchange

CONFIG = {"routes": [{"name": "open", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"}]}

GOOD = {
    "line": "GET /s/sb/ws HTTP/1.1",
    "Host": "Host: cell.test",
    "Upgrade": "Upgrade: websocket",
    "Connection": "Connection: Upgrade",
    "Version": "Sec-WebSocket-Version: 13",
    "Key": f"Sec-WebSocket-Key: {KEY}",
}
GLUED = b"GET /s/sb/glued HTTP/1.1\r\nHost: cell.test\r\n\r\n"


def variant(**changed):
    """The good upgrade with lines replaced; None leaves one out, a list makes several."""
    lines = []
    for name, value in (GOOD | changed).items():
        lines += value if isinstance(value, list) else [value] if value is not None else []
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def key_of(size):
    return base64.b64encode(b"k" * size).decode()


BAD = [
    # ---- method ----
    (405, "post", variant(line="POST /s/sb/ws HTTP/1.1")),
    (405, "head", variant(line="HEAD /s/sb/ws HTTP/1.1")),
    (405, "options", variant(line="OPTIONS /s/sb/ws HTTP/1.1")),
    (405, "put", variant(line="PUT /s/sb/ws HTTP/1.1")),
    (405, "delete", variant(line="DELETE /s/sb/ws HTTP/1.1")),
    (405, "patch", variant(line="PATCH /s/sb/ws HTTP/1.1")),
    (405, "trace", variant(line="TRACE /s/sb/ws HTTP/1.1")),
    (405, "unknown method", variant(line="BREW /s/sb/ws HTTP/1.1")),
    (405, "lower-case method", variant(line="get /s/sb/ws HTTP/1.1")),
    (405, "connect", variant(line="CONNECT cell.test:80 HTTP/1.1", Host="Host: cell.test:80")),
    # ---- HTTP version ----
    (400, "http/1.0", variant(line="GET /s/sb/ws HTTP/1.0")),
    (400, "http/2.0 in the line", variant(line="GET /s/sb/ws HTTP/2.0")),
    (400, "http/1.2", variant(line="GET /s/sb/ws HTTP/1.2")),
    (400, "http/0.9", variant(line="GET /s/sb/ws")),
    (400, "no http", variant(line="GET /s/sb/ws FTP/1.1")),
    # ---- version of the protocol ----
    (426, "version missing", variant(Version=None)),
    (426, "version 12", variant(Version="Sec-WebSocket-Version: 12")),
    (426, "version 777", variant(Version="Sec-WebSocket-Version: 777")),
    (426, "version 8", variant(Version="Sec-WebSocket-Version: 8")),
    (426, "version 0", variant(Version="Sec-WebSocket-Version: 0")),
    (426, "version 013", variant(Version="Sec-WebSocket-Version: 013")),
    (426, "version 0xd", variant(Version="Sec-WebSocket-Version: 0xd")),
    (426, "version +13", variant(Version="Sec-WebSocket-Version: +13")),
    (426, "version 13.0", variant(Version="Sec-WebSocket-Version: 13.0")),
    (426, "version list", variant(Version="Sec-WebSocket-Version: 13, 8")),
    (426, "version list 8, 13", variant(Version="Sec-WebSocket-Version: 8, 13")),
    (426, "version twice", variant(Version=["Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 13"])),
    (426, "version empty", variant(Version="Sec-WebSocket-Version:")),
    # ---- key ----
    (400, "key missing", variant(Key=None)),
    (400, "key empty", variant(Key="Sec-WebSocket-Key:")),
    (400, "key of 15 bytes", variant(Key=f"Sec-WebSocket-Key: {key_of(15)}")),
    (400, "key of 17 bytes", variant(Key=f"Sec-WebSocket-Key: {key_of(17)}")),
    (400, "key of 32 bytes", variant(Key=f"Sec-WebSocket-Key: {key_of(32)}")),
    (400, "key without padding", variant(Key=f"Sec-WebSocket-Key: {KEY.rstrip('=')}")),
    (400, "key in base64url", variant(Key="Sec-WebSocket-Key: __________________--==")),
    (400, "key with a space", variant(Key=f"Sec-WebSocket-Key: {KEY[:10]} {KEY[11:]}")),
    (400, "key with a comma", variant(Key=f"Sec-WebSocket-Key: {KEY}, {KEY}")),
    (400, "key with bits behind its 16th byte", variant(Key=f"Sec-WebSocket-Key: {KEY[:21]}{chr(ord(KEY[21]) + 1)}==")),
    (400, "key not base64", variant(Key="Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!==")),
    (400, "two keys", variant(Key=[f"Sec-WebSocket-Key: {KEY}", f"Sec-WebSocket-Key: {key_of(16)}"])),
    (400, "the same key twice", variant(Key=[f"Sec-WebSocket-Key: {KEY}"] * 2)),
    # ---- Upgrade ----
    (400, "upgrade missing", variant(Upgrade=None)),
    (400, "upgrade empty", variant(Upgrade="Upgrade:")),
    (400, "upgrade with a version", variant(Upgrade="Upgrade: websocket/13")),
    (400, "upgrade list", variant(Upgrade="Upgrade: websocket, foo")),
    (400, "upgrade list, foreign first", variant(Upgrade="Upgrade: foo, websocket")),
    (400, "upgrade twice", variant(Upgrade=["Upgrade: websocket", "Upgrade: websocket"])),
    (400, "upgrade and another", variant(Upgrade=["Upgrade: foo", "Upgrade: websocket"])),
    (400, "upgrade to something else", variant(Upgrade="Upgrade: irc/6.9")),
    (400, "upgrade to tls", variant(Upgrade="Upgrade: TLS/1.0")),
    (400, "upgrade to h2c and websocket", variant(Upgrade="Upgrade: h2c, websocket")),
    (400, "upgrade in quotes", variant(Upgrade='Upgrade: "websocket"')),
    (400, "upgrade web socket", variant(Upgrade="Upgrade: web socket")),
    # ---- Connection ----
    (400, "connection missing", variant(Connection=None)),
    (400, "connection empty", variant(Connection="Connection:")),
    (400, "connection keep-alive only", variant(Connection="Connection: keep-alive")),
    (400, "connection close", variant(Connection="Connection: close")),
    (400, "connection names authorization", variant(Connection="Connection: Upgrade, Authorization")),
    (400, "connection names a routing header", variant(Connection="Connection: Upgrade, X-Sandbox-ID")),
    (400, "connection names the key", variant(Connection="Connection: Upgrade, Sec-WebSocket-Key")),
    (400, "connection names host", variant(Connection=["Connection: Upgrade", "Connection: Host"])),
    (400, "connection upgrade-insecure", variant(Connection="Connection: Upgrades")),
    (400, "three connections", variant(Connection=["Connection: Upgrade", "Connection: keep-alive", "Connection: Cookie"])),
    # ---- Host ----
    (400, "host missing", variant(Host=None)),
    (400, "host empty", variant(Host="Host:")),
    (400, "host twice", variant(Host=["Host: cell.test", "Host: other.test"])),
    (400, "host with user", variant(Host="Host: a@cell.test")),
    (400, "host with a path", variant(Host="Host: cell.test/x")),
    (400, "host with a space", variant(Host="Host: cell test")),
    (400, "host list", variant(Host="Host: cell.test, other.test")),
    (400, "host with a bad port", variant(Host="Host: cell.test:99999")),
    (400, "host with letters as port", variant(Host="Host: cell.test:http")),
    (400, "host open bracket", variant(Host="Host: [::1")),
    # ---- body ----
    (400, "body by length", variant(Body="Content-Length: 5") + b"hello"),
    (400, "body chunked", variant(Body="Transfer-Encoding: chunked") + b"0\r\n\r\n"),
    (400, "length and chunked", variant(Body=["Content-Length: 5", "Transfer-Encoding: chunked"]) + b"0\r\n\r\n"),
    (400, "two lengths", variant(Body=["Content-Length: 0", "Content-Length: 5"])),
    (400, "negative length", variant(Body="Content-Length: -1")),
    (400, "length of 2^64", variant(Body="Content-Length: 18446744073709551616")),
    (400, "length not a number", variant(Body="Content-Length: five")),
    # ---- syntax ----
    (400, "nul in a header", variant(X="X: a\0b")),
    (400, "space before the colon", variant(X="Upgrade : websocket")),
    (400, "no colon", variant(X="nonsense")),
    (400, "nul in the path", variant(line="GET /s/sb/w\0s HTTP/1.1")),
    (400, "a climbing path", variant(line="GET /s/sb/../../etc HTTP/1.1")),
    (400, "a climbing encoded path", variant(line="GET /s/sb/%2e%2e/%2e%2e/etc HTTP/1.1")),
    (400, "a path that climbs for who takes %2F for a part of a name", variant(line="GET /s/sb/a%2Fb\\..\\..\\etc HTTP/1.1")),
]


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, origin):
    return cells(sandboxes={"sb": {"worker": origin.url}}, config=CONFIG)


def test_the_good_one_opens_a_tunnel(cell, origin):
    answer, closed = exchange(cell.http, variant() + b"\x81\x05hello", timeout=1.5)
    assert answer.startswith(b"HTTP/1.1 101 ") and answer.endswith(b"\x81\x05hello") and not closed


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("status,name,data", BAD, ids=[name for _, name, _ in BAD])
def test_a_bad_upgrade(cell, origin, status, name, data, tls):
    if name == "upgrade to h2c and websocket" and haproxy_version() >= (3, 0):
        pytest.skip("HAProxy takes h2c out of the list, and what is left is good")
    before = len(origin.requests)
    answer, closed = exchange(cell.https if tls else cell.http, data + GLUED, tls=tls)
    line = answer.split(b"\r\n")[0].decode()
    assert line.split(" ")[1] == str(status), line
    assert closed and answer.count(b"HTTP/1.") == 1, "the glued request was answered"
    assert len(origin.requests) == before, "a worker was reached"
    if status == 426:
        assert b"sec-websocket-version: 13\r\n" in answer


@pytest.mark.skipif(not os.environ.get("CELLGATE_LONG"), reason="a measurement")
def test_what_haproxy_alone_passes_on(origins, tmp_path, pytestconfig):
    """Prints how many of them reach a worker as an upgrade where HAProxy has none of our rules."""
    refusing = origins(upgrade=lambda connection, request: connection.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    timeouts = "".join(f" timeout {name} 2s\n" for name in ("connect", "client", "server", "http-request"))
    (tmp_path / "cfg").write_text(f"defaults\n mode http\n{timeouts}listen plain\n bind 127.0.0.1:{port}\n server worker 127.0.0.1:{refusing.port}\n")
    haproxy = subprocess.Popen([*pytestconfig.getoption("--haproxy").split(), "-db", "-f", tmp_path / "cfg"], stderr=subprocess.DEVNULL)
    try:
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 20, "HAProxy does not listen")
        for _, _, data in BAD:
            exchange(port, data, timeout=0.3)
    finally:
        end(haproxy)
    print(f"{sum('upgrade' in request.names for request in refusing.requests)} of {len(BAD)} malformed upgrades")


H2_BAD = [
    (426, "version", {"sec-websocket-version": "8"}),
    (426, "two versions", {"sec-websocket-version": "13, 8"}),
    (400, "key", {"sec-websocket-version": "13", "sec-websocket-key": KEY}),
    (400, "length", {"sec-websocket-version": "13", "content-length": "5"}),
]


@pytest.mark.parametrize("status,name,headers", H2_BAD, ids=[name for _, name, _ in H2_BAD])
def test_a_bad_upgrade_on_http2(cell, origin, status, name, headers):
    before = len(origin.requests)
    with Http2(cell.https) as client:
        while not client.extended:
            client._pump()
        pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":authority", "cell.test"), (":path", "/s/sb/ws")]
        client._open(pseudo, list(headers.items()), end=False)
        while client.headers is None and not client.ended:
            client._pump()
        # HAProxy resets a stream that it finds malformed itself.
        assert client.headers is None or dict(client.headers)[":status"] == str(status)
    assert len(origin.requests) == before


def test_another_protocol_on_http2(cell, origin):
    before = len(origin.requests)
    with Http2(cell.https) as client:
        while not client.extended:
            client._pump()
        pseudo = [(":method", "CONNECT"), (":protocol", "connect-udp"), (":scheme", "https"), (":authority", "cell.test"), (":path", "/s/sb/ws")]
        client._open(pseudo, [("sec-websocket-version", "13")], end=False)
        while client.headers is None and not client.ended:
            client._pump()
        assert client.headers is None or dict(client.headers)[":status"] == "400"
    assert len(origin.requests) == before
