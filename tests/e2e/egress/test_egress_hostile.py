# SPDX-License-Identifier: MIT
"""Programs and destinations that mean harm: inside of connections that are inspected, over HTTP/1.1 and HTTP/2, and in WebSockets that
the relay carries."""

import contextlib
import json
import socket
import threading
import time

import h2.exceptions
import pytest
from cell import AT_ONCE, until
from client import WEBSOCKET, frame, head
from origin import accept_of
from test_egress import HOST, allow, caller, certificate, config, destinations, metric, rules  # noqa: F401 fixtures
from test_egress_http2 import LISTED, http2
from test_egress_requests import Origin, inspected, refused, site  # noqa: F401 fixtures
from test_egress_upgrades import BINARY, MASK, Sockets, opened, read_message, sockets  # noqa: F401 fixtures

# ---- HTTP/1.1 ----

TO = b"Host: HOST\r\n"
SOCKET = "".join(f"{n}: {v}\r\n" for n, v in WEBSOCKET).encode()
REQUESTS = [
    # what it is for
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: \r\n\r\n", 421),
    (b"GET / HTTP/1.1\r\n" + TO + b"Host: other.example.org\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n", 421),
    (b"GET / HTTP/1.1\r\nHost: HOST@other.example.org\r\n\r\n", (400, 421)), (b"GET / HTTP/1.1\r\nHost: HOST, other.example.org\r\n\r\n", (400, 421)),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", 421), (b"GET / HTTP/1.1\r\nHost: [::1]:PORT\r\n\r\n", 421),
    (b"GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", 421), (b"GET https://other.example.org/ HTTP/1.1\r\n" + TO + b"\r\n", (400, 421)),
    (b"GET http://HOST/ HTTP/1.1\r\n" + TO + b"\r\n", 400), (b"GET ftp://HOST/ HTTP/1.1\r\n" + TO + b"\r\n", 400),
    (b"GET unix:/run/cellgate/relay.sock HTTP/1.1\r\n" + TO + b"\r\n", 400), (b"GET * HTTP/1.1\r\n" + TO + b"\r\n", 400),
    (b"GET //other.example.org/ HTTP/1.1\r\nHost: other.example.org\r\n\r\n", 421),
    # other ways out of it
    (b"CONNECT HOST HTTP/1.1\r\n" + TO + b"\r\n", 405), (b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n", 405),
    (b"CONNECT / HTTP/1.1\r\n" + TO + b"\r\n", (400, 405)), (b"TRACE / HTTP/1.1\r\n" + TO + b"\r\n", 405),
    (b"GET / HTTP/1.1\r\n" + TO + b"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + TO + SOCKET + b"\r\n", 405),
    (b"GET / HTTP/1.0\r\n" + TO + SOCKET + b"\r\n", 400), (b"GET / HTTP/1.1\r\n" + TO + SOCKET + b"Content-Length: 5\r\n\r\nhello", 400),
    (b"GET / HTTP/1.1\r\n" + TO + SOCKET + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + TO + SOCKET + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + TO + SOCKET + b"Sec-WebSocket-Version: 8\r\n\r\n", 426),
    # where it ends; None: HAProxy 3.2 ends the connection without a word
    (b"POST / HTTP/1.1\r\n" + TO + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", (400, None)), (b"POST / HTTP/1.1\r\n" + TO + b"Content-Length: +5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\n" + TO + b"Content-Length: 5, 6\r\n\r\nhello", 400), (b"POST / HTTP/1.1\r\n" + TO + b"Content-Length: -1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + TO + b"Content-Length: 0x5\r\n\r\nhello", 400), (b"POST / HTTP/1.1\r\n" + TO + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + TO + b"Transfer-Encoding: xchunked\r\n\r\n", (400, 422, 501)), (b"POST / HTTP/1.1\r\n" + TO + b"Transfer-Encoding: chunked, gzip\r\n\r\n", (400, 422, 501)),
    (b"POST / HTTP/1.0\r\n" + TO + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400), (b"GET / HTTP/1.2\r\n" + TO + b"\r\n", 400), (b"GET / HTTP/0.9\r\n" + TO + b"\r\n", 400),
    # how it is written
    (b"GET / HTTP/1.1\r\n" + TO + b"X : y\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + TO + b"X\0: y\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + TO + b"X: a\0b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + TO + b"X\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + TO + b": y\r\n\r\n", 400),
    (b"GET / HTTP/1.1 x\r\n" + TO + b"\r\n", 400), (b"G\x01T / HTTP/1.1\r\n" + TO + b"\r\n", 400), (b"GET /\x7f HTTP/1.1\r\n" + TO + b"\r\n", 400),
    (b"GET /#x HTTP/1.1\r\n" + TO + b"\r\n", 400), (b"GET /\xc3\xa9 HTTP/1.1\r\n" + TO + b"\r\n", 400), (b"\x16\x03\x01\x02\x00 / HTTP/1.1\r\n" + TO + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + TO + b"X: " + b"y" * 15500 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + TO + b"Connection: X-Api-Key\r\nX-Api-Key: mine\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + TO + b"Connection: authorization\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + TO + b"X-HTTP-Method-Override: DELETE\r\n\r\n", 403), (b"DELETE / HTTP/1.1\r\n" + TO + b"\r\n", 403), (b"GET /%2e%2e/ HTTP/1.1\r\n" + TO + b"\r\n", 403),
]  # fmt: skip


@pytest.mark.parametrize("via", [None, "relay"])
def test_hostile_requests_have_their_answer_and_reach_nobody(site, via):  # noqa: F811
    cell, port, origin = site(access="read-write", paths=["/**"], **({"via": via} if via else {}))
    wrong = []
    for request, status in REQUESTS:
        client = inspected(cell, port)
        client.send(request.replace(b"HOST", f"{HOST}:{port}".encode()).replace(b"PORT", str(port).encode()))
        data = b""
        with contextlib.suppress(OSError):
            while more := client.sock.recv(65536):
                data += more
        client.sock.close()
        text = data.partition(b"\r\n\r\n")[2]  # before 3.0 HAProxy's own is not ours
        said = int(data.split()[1]) if data else None, not text.startswith(b"{") or "error" in json.loads(text)
        if said[0] not in (status if isinstance(status, tuple) else (status,)) or not said[1]:
            wrong.append((request[:120], status, said))
    assert not wrong, "\n".join(map(str, wrong))
    assert origin.seen == []


# ---- HTTP/2 ----

P = {":method": "GET", ":scheme": "https", ":authority": "HOST", ":path": "/"}
STREAMS = [
    # (pseudo headers in their order, headers, body, statuses; None: it is reset)
    ([*(P | {":authority": "other.example.org"}).items()], [], b"", (421,)), ([*(P | {":authority": "HOST@other.example.org"}).items()], [], b"", (400, 421, None)),
    ([*(P | {":authority": ""}).items()], [], b"", (400, 421, None)), ([(k, v) for k, v in P.items() if k != ":authority"], [("host", "other.example.org")], b"", (421,)),
    ([(k, v) for k, v in P.items() if k != ":authority"], [], b"", (400, 421, None)), ([*P.items()], [("host", "other.example.org")], b"", (200, 400, 421, None)),
    ([*P.items(), (":authority", "other.example.org")], [], b"", (400, None)), ([*P.items(), (":path", "/other")], [], b"", (400, None)),
    ([*P.items(), (":method", "DELETE")], [], b"", (400, None)), ([*P.items(), (":unknown", "x")], [], b"", (400, None)), ([*P.items(), (":status", "200")], [], b"", (400, None)),
    ([*(P | {":scheme": "http"}).items()], [], b"", (400,)), ([*(P | {":scheme": "ftp"}).items()], [], b"", (400, None)), ([(k, v) for k, v in P.items() if k != ":scheme"], [], b"", (400, None)),
    ([*(P | {":path": "other"}).items()], [], b"", (400, None)), ([*(P | {":path": ""}).items()], [], b"", (400, None)),
    ([*(P | {":path": "https://other.example.org/"}).items()], [], b"", (400, 421, None)), ([*(P | {":path": "/ HTTP/1.1\r\nX: y"}).items()], [], b"", (400, None)),
    ([*(P | {":path": "/a b"}).items()], [], b"", (400, None)), ([*(P | {":path": "/a#b"}).items()], [], b"", (400, None)), ([*(P | {":path": "/%2e%2e/"}).items()], [], b"", (403,)),
    ([*(P | {":method": "GET / HTTP/1.1\r\nX:"}).items()], [], b"", (400, None)), ([*(P | {":method": "TRACE"}).items()], [], b"", (405,)), ([*(P | {":method": "DELETE"}).items()], [], b"", (403,)),
    # other ways out of it
    ([(":method", "CONNECT"), (":authority", "HOST")], [], b"", (405,)), ([(":method", "CONNECT"), (":authority", "169.254.169.254:80")], [], b"", (405,)),
    ([*(P | {":method": "CONNECT"}).items()], [], b"", (400, 405, None)), ([*(P | {":method": "CONNECT", ":protocol": "connect-udp"}).items()], [("sec-websocket-version", "13")], b"", (400,)),
    ([*(P | {":method": "CONNECT", ":protocol": "h2c"}).items()], [], b"", (400, None)), ([*(P | {":protocol": "websocket"}).items()], [("sec-websocket-version", "13")], b"", (400, None)),
    ([*(P | {":method": "CONNECT", ":protocol": "websocket", ":authority": "other.example.org"}).items()], [("sec-websocket-version", "13")], b"", (421,)),
    ([*(P | {":method": "CONNECT", ":protocol": "websocket"}).items()], [("sec-websocket-version", "8")], b"", (400, 426)),
    ([*(P | {":method": "CONNECT", ":protocol": "websocket"}).items()], [], b"", (400, 426)),
    # what is another protocol's
    ([*P.items()], [("Upper", "x")], b"", (400, None)), ([*P.items()], [("x y", "z")], b"", (400, None)), ([*P.items()], [("x", "a\r\nb: c")], b"", (400, None)),
    ([*P.items()], [("x", "a\0b")], b"", (400, None)), ([*P.items()], [("", "x")], b"", (400, None)), ([*P.items()], [("connection", "x-api-key")], b"", (400, None)),
    ([*P.items()], [("transfer-encoding", "chunked")], b"", (400, None)), ([*P.items()], [("te", "gzip")], b"", (400, None)), ([*P.items()], [("upgrade", "h2c")], b"", (400, None)),
    ([*(P | {":method": "POST"}).items()], [("content-length", "3")], b"hello", (400, None)), ([*(P | {":method": "POST"}).items()], [("content-length", "9")], b"hello", (400, None)),
    ([*(P | {":method": "POST"}).items()], [("content-length", "+5")], b"hello", (400, None)), ([*(P | {":method": "POST"}).items()], [("content-length", "5"), ("content-length", "6")], b"hello", (400, None)),
    ([*P.items()], [("x", "y" * 15500)], b"", (431, None)), ([*P.items()], [("x-http-method-override", "DELETE")], b"", (403,)),
]  # fmt: skip


def stream(client, pseudo, headers, body):
    """The status of one stream; None: it, or its connection, was ended without one."""
    client.data, client.headers, client.ended = [], None, False
    client.stream = client.h2.get_next_available_stream_id()
    try:
        client.h2.send_headers(client.stream, [*pseudo, *headers], end_stream=not body)
        client._flush()
        if body:
            client.send(body, end=True)
        while client.headers is None and not client.ended:
            client._pump()
    except (OSError, h2.exceptions.ProtocolError):
        return None
    return int(dict(client.headers)[":status"]) if client.headers else None


@pytest.fixture
def site2(cells, destinations, certificate):  # noqa: F811
    """A cell with HTTP/2 inside."""
    ca, context = certificate

    def make(serve=None, **rule):
        origin = serve or Origin()
        server = destinations(origin, tls=context)
        cell = cells(config=config(ca_file=str(ca), **LISTED), sandboxes={"sb-1": rules(allow(server.port, inspect=True, **rule))}, egress=True)
        return cell, server.port, origin

    return make


@pytest.mark.parametrize("via", [None, "relay"])
def test_hostile_streams_have_their_answer_and_reach_nobody(site2, via):
    cell, port, origin = site2(access="read-write", paths=["/**"], **({"via": via} if via else {}))
    wrong = []
    for pseudo, headers, body, statuses in STREAMS:
        with http2(cell, port) as client:
            said = stream(client, [(n, v.replace("HOST", f"{HOST}:{port}")) for n, v in pseudo], headers, body)
        if said not in statuses:
            wrong.append((pseudo, headers, statuses, said))
    assert not wrong, "\n".join(map(str, wrong))
    # the authority counts, not a Host beside it; of a request whose body is not what its head says no more than the head may arrive
    assert all(r.get("host") == f"{HOST}:{port}" and r.body == b"" and r.line in ("GET / HTTP/1.1", "POST / HTTP/1.1") for r in origin.seen), [r.headers for r in origin.seen]


# ---- WebSockets that the relay carries ----

GOOD = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "ACCEPT")]
LIES = {
    "another version": (b"HTTP/1.0 101 Switching Protocols", GOOD),
    "no Upgrade": (b"HTTP/1.1 101 Switching Protocols", GOOD[1:]),
    "another protocol": (b"HTTP/1.1 101 Switching Protocols", [("Upgrade", "h2c"), *GOOD[1:]]),
    "no Connection": (b"HTTP/1.1 101 Switching Protocols", [GOOD[0], GOOD[2]]),
    "no Accept": (b"HTTP/1.1 101 Switching Protocols", GOOD[:2]),
    "two Accepts": (b"HTTP/1.1 101 Switching Protocols", [*GOOD, GOOD[2]]),
    "a wrong Accept": (b"HTTP/1.1 101 Switching Protocols", [*GOOD[:2], ("Sec-WebSocket-Accept", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")]),
    "an extension": (b"HTTP/1.1 101 Switching Protocols", [*GOOD, ("Sec-WebSocket-Extensions", "permessage-deflate")]),
    "a protocol that nobody offered": (b"HTTP/1.1 101 Switching Protocols", [*GOOD, ("Sec-WebSocket-Protocol", "chat")]),
    "a length": (b"HTTP/1.1 101 Switching Protocols", [*GOOD, ("Content-Length", "5")]),
    "chunks": (b"HTTP/1.1 101 Switching Protocols", [*GOOD, ("Transfer-Encoding", "chunked")]),
    "no HTTP": (b"SSH-2.0-OpenSSH", GOOD),
    "a head without an end": (b"HTTP/1.1 101 Switching Protocols", [*GOOD, ("X", "y" * 70000)]),
    "a number that is none": (b"HTTP/1.1 1010 Switching Protocols", GOOD),
}


@pytest.mark.parametrize("tls", [True, False])
def test_destinations_that_lie_open_no_websocket(sockets, tls):  # noqa: F811
    """Each lie is a 502, and nothing behind it reaches the client."""
    def answer(connection, request):
        line, headers = LIES[lie]
        accept = accept_of(request.get("sec-websocket-key").encode()).decode()
        with contextlib.suppress(OSError):
            connection.send(b"\r\n".join([line, *(f"{n}: {v.replace('ACCEPT', accept)}".encode() for n, v in headers)]) + b"\r\n\r\n" + frame(BINARY, b"stolen"))
            connection.read()

    cell, port, origin = sockets(tls=tls, relay={"dial_timeout": "2s"})
    origin.answer = answer
    wrong = []
    for lie in LIES:
        client, got = opened(cell, port, tls)
        if got.status != 502 or b"stolen" in got.body or refused(got)[1] != "destination_unreachable":
            wrong.append((lie, got.status, got.body))
        client.sock.close()
    assert not wrong, "\n".join(map(str, wrong))
    until(lambda: metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 0)


def test_what_comes_before_a_101(sockets):  # noqa: F811
    """Interim answers are no answer; a 101 in pieces of a byte is one."""
    def answer(connection, request):
        accept = accept_of(request.get("sec-websocket-key").encode())
        said = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        for at in range(len(said)):
            connection.send(said[at : at + 1])
        connection.send(frame(BINARY, b"glued"))
        Sockets.echo(connection)

    cell, port, origin = sockets(tls=False)
    origin.answer = answer
    client, got = opened(cell, port, False)
    assert got.status == 101 and read_message(client) == b"glued"


@pytest.mark.parametrize("tls", [True, False])
def test_frames_that_are_cut_anywhere(sockets, tls):  # noqa: F811
    """In the head, in the mask, before and behind the last byte; several in one piece; both ways."""
    cut = []

    def serve(connection):
        with contextlib.suppress(ConnectionError):
            while True:
                data = frame(BINARY, read_message(connection))
                for piece in pieces(data, cut[0]):
                    connection.send(piece)

    def pieces(data, at):
        return (data[:at], data[at:]) if 0 < at < len(data) else (data,)

    cell, port, origin = sockets(serve=serve, tls=tls)
    client, got = opened(cell, port, tls)
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for size in (0, 1, 125, 126, 127, 16383, 16384, 16385, 65535, 65536, 1 << 20):
        whole = frame(BINARY, bytes(size % 251 for _ in range(size)), mask=MASK)
        for at in (1, 2, 3, 4, 5, 6, 9, 10, 13, 14, 15, len(whole) // 2, len(whole) - 1) if size < 1 << 20 else (9, len(whole) - 1):
            cut[:] = [at]
            for piece in pieces(whole, at):
                client.send(piece)
            assert len(read_message(client)) == size, (size, at)
    sizes = [0, 1, 125, 126, 4000] * 8
    client.send(b"".join(frame(BINARY, b"z" * size, mask=MASK) for size in sizes))
    assert [len(read_message(client)) for _ in sizes] == sizes


def test_the_rules_change_while_the_101_is_waited_for(sockets):  # noqa: F811
    """What was allowed when it was asked for is not when the destination answers: nothing opens."""
    def answer(connection, request):
        asked.set()
        go.wait(10)
        with contextlib.suppress(OSError):
            connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept_of(request.get("sec-websocket-key").encode()) + b"\r\n\r\n" + frame(BINARY, b"stolen"))
            heard.append(connection.read())

    asked, go, heard = threading.Event(), threading.Event(), []
    cell, port, origin = sockets()
    origin.answer = answer
    client = inspected(cell, port)
    client.send(head("GET", "/socket", [("Host", f"{HOST}:{port}"), *WEBSOCKET]))
    assert asked.wait(10)
    began = time.monotonic()
    cell.set_sandboxes(**{"sb-1": rules(allow(port, inspect=True, via="relay", access="read-only"))})
    data = b""
    with contextlib.suppress(OSError):
        while more := client.sock.recv(65536):
            data += more
    assert time.monotonic() - began < AT_ONCE and b"stolen" not in data and b" 101 " not in data, data
    go.set()
    until(lambda: metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 0 and metric(cell, "cellgate_relay_egress_connections") == 0)
