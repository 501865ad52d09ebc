# SPDX-License-Identifier: MIT
"""Direct routes: what passes HAProxy passes byte for byte, both ways, over HTTP/1.1, TLS and HTTP/2."""

import contextlib
import hashlib
import json
import os
import random
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

import pytest
from cell import BIN, ROOT, end, haproxy_version, until
from client import KEY, Http1, Http2, frame, request
from origin import accept_of, switch

CONFIG = {
    "routes": [
        {"name": "cookies", "path": "/cookies/{sandbox}/{rest...}", "to": "/{rest}", "cookies": "keep", "need": "http"},
        {"name": "own", "host": "{sandbox}.own.test", "need": "none"},
        {"name": "boxes", "headers": {"X-Box": "{sandbox}"}, "path": "/box/{rest...}", "need": "none"},
        {"name": "auth", "path": "/auth/{sandbox}/{rest...}", "to": "/{rest}", "auth": "keep", "need": "none"},
        {"name": "keep", "path": "/keep/{sandbox}/{rest...}", "to": "/{rest}", "host_header": "keep", "need": "none"},
        {"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
    ]
}
SIZES = [0, 1, 125, 126, 65535, 65536, 16 << 20]


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, origin):
    several = {"X-EXECD-ACCESS-TOKEN": "execd's", "OPENSANDBOX-EGRESS-AUTH": "egress's", "Authorization": "Basic YTpi", "X-Of-Record": "of the record"}
    records = {"sb-1": {"worker": origin.url, "headers": {"X-EXECD-ACCESS-TOKEN": "of the record"}}, "sb-2": {"worker": origin.url}}
    return cells(sandboxes=records | {"sb-3": {"worker": origin.url, "headers": several}}, config=CONFIG)


def connect(cell, kind):
    made = Http1(cell.http, timeout=30) if kind == "http" else Http1(cell.https, tls=True, timeout=30) if kind == "https" else Http2(cell.https, timeout=30)
    made.kind = kind
    return made


@pytest.fixture(params=["http", "https", "h2"])
def client(request, cell):
    with connect(cell, request.param) as connection:
        yield connection


def through(client, origin, target, headers=(), **more):
    """What the worker got of a plain request."""
    response = client.request("GET", target, headers, **more)
    assert response.status == 200, response.body
    return origin.requests[-1]


# ---- requests ----


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/a%2Fb%2fc",
        "/a/../b/./c",
        "/a//b///",
        "/%41%7E~%00",
        "/a;b=c,d@e:f!$&'()*+",
        "/?",
        "/?a=b&a=c&&=&x",
        "/?q=%20+%zz?/?",
        "/x?cellgate=1&to=http://other/?a=b",
        "/" + "p" * 3000 + "?" + "q" * 3000,
    ],
)
def test_target_is_kept_byte_for_byte(client, origin, target):
    assert through(client, origin, "/s/sb-2" + target).target == target


def test_absolute_form_becomes_origin_form(cell, origin):
    with Http1(cell.http) as client:
        assert through(client, origin, "http://cell.test/s/sb-2/a?b").line == "GET /a?b HTTP/1.1"
        assert origin.requests[-1].get("host") == f"127.0.0.1:{origin.port}"


def test_repeated_headers_stay_repeated_and_in_order(client, origin):
    sent = [("X-One", "1"), ("X-Two", "a, b"), ("X-One", "2"), ("X-Two", "c"), ("X-One", "")]
    got = through(client, origin, "/s/sb-2/", sent)
    assert got.all("x-one") == ["1", "2", ""] and got.all("x-two") == ["a, b", "c"]


def test_response_headers_and_status_pass(client, origin):
    def answer(connection, request):
        connection.send(b"HTTP/1.1 418 Teapot\r\nSet-Cookie: a=1\r\nX: 1\r\nSet-Cookie: b=2\r\nX: 2\r\nContent-Length: 2\r\n\r\nno")

    origin.answer, kept = answer, origin.answer
    try:
        response = client.request("GET", "/s/sb-2/")
    finally:
        origin.answer = kept
    assert (response.status, response.body) == (418, b"no")
    assert response.all("set-cookie") == ["a=1", "b=2"] and response.all("x") == ["1", "2"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_methods_pass(client, origin, method):
    assert client.request(method, "/s/sb-2/m").status == 200
    assert origin.requests[-1].method == method


@pytest.mark.parametrize("upgrade", [False, True], ids=["plain", "upgrade"])
def test_what_a_worker_does_not_see(client, origin, upgrade):
    secret = [
        ("Authorization", "Bearer not-for-the-worker"),
        ("Cookie", "a=1; __Host-cellgate=not-for-the-worker"),
        ("X-Cell-Route", "forged"),
        ("X_Cell_Route", "forged"),
        ("x-cell_org", "forged"),
        ("OPEN-SANDBOX-API-KEY", "not-for-the-worker"),
        ("OPEN_SANDBOX_API_KEY", "not-for-the-worker"),
        ("X_Sandbox_ID", "forged"),
        ("X-Sandbox_Port", "forged"),
        ("X-Sandbox-Preview-Proxy", "forged"),
        ("x-sandbox-preview-port", "forged"),
        ("X_Sandbox_Preview_Token", "not-for-the-worker"),
        ("X-Sandbox-Preview-Sandbox-Id", "forged"),
        ("OpenSandbox_Secure_Access", "not-for-the-worker"),
        ("X_EXECD_ACCESS_TOKEN", "forged"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Host", "forged"),
        ("X_Forwarded_Proto", "forged"),
        ("Forwarded", "for=6.6.6.6"),
        ("Proxy-Authorization", "Basic not-for-the-worker"),
        ("Proxy_Authorization", "Basic not-for-the-worker"),
        ("Proxy", "http://6.6.6.6/"),
        ("Keep_Alive", "forged"),
        ("Proxy_Connection", "forged"),
        ("HTTP2_Settings", "forged"),
        ("Content_Length", "6.6.6.6"),
        ("Transfer_Encoding", "forged"),
        ("Sec_WebSocket_Protocol", "cellgate.bearer.not-for-the-worker"),
        ("Referer", "https://cell.test/s/not-for-the-worker/?cellgate_token=not-for-the-worker"),
    ]
    if client.kind != "h2" and not upgrade:
        secret += [("Keep-Alive", "timeout=5"), ("TE", "trailers"), ("Connection", "keep-alive, TE"), ("Proxy-Connection", "keep-alive")]
    kept = [("X-EXECD-ACCESS-TOKEN", "of the client"), ("OPENSANDBOX-EGRESS-AUTH", "of the client"), ("X-Access-Token", "of the client")]
    kept += [("traceparent", "00-1"), ("X-Request-ID", "mine"), ("X-Sandbox", "application"), ("X-Sandbox-Preview", "application")]
    if upgrade:
        tunnel(client, headers=secret + kept)
    got = origin.requests[-1] if upgrade else through(client, origin, "/s/sb-2/", secret + kept)
    text = got.head.decode("latin-1").lower()
    assert "not-for-the-worker" not in text and "forged" not in text and "6.6.6.6" not in text
    assert not {"keep-alive", "te", "proxy-connection", "cookie", "authorization", "forwarded"} & set(got.names)
    for name, value in kept:
        assert got.all(name) == [value]
    assert got.all("referer") == ["https://cell.test/"]
    assert got.all("x-forwarded-for") == ["127.0.0.1"]
    assert got.all("x-forwarded-host") == ["cell.test"]
    assert got.all("x-forwarded-proto") == ["http" if client.kind == "http" else "https"]


def test_what_the_record_sets_replaces_the_clients(client, origin):
    got = through(client, origin, "/s/sb-1/", [("X-EXECD-ACCESS-TOKEN", "of the client")])
    assert got.all("x-execd-access-token") == ["of the record"]


@pytest.mark.parametrize("upgrade", [False, True], ids=["plain", "upgrade"])
def test_three_headers_of_a_record_can_be_set_and_what_a_client_says_of_others_passes(client, origin, upgrade):
    """HAProxy's rules name headers literally; through the relay any can be set (docs/routing.md)."""
    forged = [("X-EXECD-ACCESS-TOKEN", "forged"), ("x_execd_access_token", "forged"), ("OPENSANDBOX-EGRESS-AUTH", "forged"), ("Authorization", "Bearer forged"), ("X-Of-Record", "of the client")]
    if upgrade:
        tunnel(client, "/s/sb-3/ws", forged)
    got = origin.requests[-1] if upgrade else through(client, origin, "/s/sb-3/", forged)
    assert (got.all("x-execd-access-token"), got.all("opensandbox-egress-auth"), got.all("authorization")) == (["execd's"], ["egress's"], ["Basic YTpi"])
    assert got.all("x-of-record") == ["of the client"] and b"forged" not in got.head


@pytest.mark.parametrize("target", ["/s/sb-2/", "/auth/sb-2/", "/of-service"])
def test_explain_says_what_is_removed(cells, origin, target):
    """What `cellgate explain` says and what a worker sees of headers of every kind, with `-` and with `_`."""
    routes = [*CONFIG["routes"], {"name": "service", "path": "/of-service", "to_service": "plane", "need": "none"}]
    cell = cells(sandboxes={"sb-2": {"worker": origin.url}}, config={"routes": routes, "services": {"plane": {"url": origin.url}}})
    names = {"Authorization", "Cookie", "Forwarded", "TE", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Proxy", "HTTP2-Settings", "Sec-WebSocket-Extensions", "X-Own", "X-Cell", "X-Sandbox"}
    names |= {"X-Cell-Route", "X-Forwarded-For", "X-Forwarded-Prefix", "OPEN-SANDBOX-API-KEY", "OPEN-SANDBOX-INGRESS", "OpenSandbox-Ingress-To", "X-OC-Preview-Token", "X-Box"}
    names |= {"OpenSandbox-Secure-Access", "X-Daytona-Preview-Token", "X-EXECD-ACCESS-TOKEN", "OPENSANDBOX-EGRESS-AUTH", "X-Access-Token", "traceparent", "X-Request-ID", "Origin"}
    names |= {f"X-Sandbox-{x}" for x in ("ID", "Namespace", "Port", "UID", "Pod-IP", "Preview-Proxy", "Preview-Port", "Preview-Token", "Preview-Sandbox-Id", "Preview-Own")}
    names |= {"E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2b-Traffic-Access-Token", "E2b-Own"}
    names |= {name.replace("-", "_") for name in names} | {name.replace("-", "_", 1) for name in names} | {"Content_Length", "Transfer_Encoding", "Sec-WebSocket_Protocol"}
    for some in (sorted(names)[:70], sorted(names)[70:140], sorted(names)[140:]):
        lines = [word for name in some for word in ("-H", f"{name}: mine")]
        done = subprocess.run([BIN / "cellgate", "explain", "--json", "--config", cell.config_file, *lines, f"GET http://cell.test{target}"], capture_output=True)
        assert done.returncode == 0, done
        told = json.loads(done.stdout)["verdict"]
        with Http1(cell.http) as client:
            got = through(client, origin, target, [(name, "mine") for name in some])
        arrived = {name for name in some if "mine" in got.all(name)}
        assert set(told.get("removed", "").split(", ")) - {""} == set(some) - arrived
        assert told.get("keeps_authorization", False) == ("Authorization" in arrived), told
        assert told.get("to_service", False) == (target == "/of-service"), told


@pytest.mark.parametrize("value, left", [("https://a.test/b/c?signature=secret", "https://a.test/b/c"), ("https://a.test/b#c?d", "https://a.test/b"), ("/b?c", "/b"), ("https://a.test/b", "https://a.test/b")])
def test_of_a_referer_the_query_is_cut_off(cell, origin, value, left):
    """Where the host is the sandbox's own, its pages may know each other's paths."""
    with Http1(cell.http) as client:
        assert client.request("GET", "/b", [("Referer", value)], host="sb-2.own.test").status == 200
    assert origin.requests[-1].all("referer") == [left]


def test_two_of_our_cookies_are_refused_wherever_they_stand(client, cell):
    """Whoever may write cookies for the parent domain could put a token of his own beside the user's."""
    ours = f"__Host-cellgate={cell.token('sb-2')}"
    forms = [[f"{ours}; {ours}"], [f"a=1; {ours}; b=2;  __Host-cellgate=x"], [ours, ours], [ours, "a=1; __Host-cellgate=\"\""], [f"{ours};__Host-cellgate=x"]]
    for lines in forms:
        for path in ("/cookies/sb-2/", "/s/sb-2/"):
            response = client.request("GET", path, [cell.bearer("sb-2"), *(("Cookie", line) for line in lines)])
            assert (response.status, json.loads(response.body)["error"]) == (400, "bad_request"), (lines, path)


def test_an_id_is_made_where_there_is_none(client, origin):
    assert len(through(client, origin, "/s/sb-2/").get("x-request-id")) == 36


def test_host_is_the_workers_or_kept(client, origin):
    assert through(client, origin, "/s/sb-2/").all("host") == [f"127.0.0.1:{origin.port}"]
    assert through(client, origin, "/keep/sb-2/").all("host") == ["cell.test"]


def test_an_applications_own_authorization_is_kept_where_the_route_says_so(client, origin):
    assert through(client, origin, "/auth/sb-2/", [("Authorization", "Basic YTpi")]).all("authorization") == ["Basic YTpi"]


def test_cookies_are_kept_but_ours(client, cell, origin):
    ours = "__Host-cellgate=" + cell.token("sb-2")
    for cookies, left in [
        (f"a=1; {ours}; b=2", "a=1; b=2"),
        (f"{ours}; b=2", "b=2"),
        (f"a=1; {ours}", "a=1;"),
        (ours, None),
        ("a=1; b=2", "a=1; b=2"),
    ]:
        got = through(client, origin, "/cookies/sb-2/", [cell.bearer("sb-2"), ("Cookie", cookies)])
        assert (got.get("cookie") or "").strip() == (left or ""), cookies


# ---- bodies ----


def test_100_mib_both_ways(client, origin):
    body = os.urandom(1 << 20) * 100
    response = client.request("POST", "/s/sb-2/upload", body=body)
    assert response.status == 200
    assert hashlib.sha256(response.body).digest() == hashlib.sha256(body).digest()


def test_chunked_both_ways(cell, origin):
    def answer(connection, request):
        body = connection.read_body(request)
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + body + b"\r\n0\r\n\r\n")

    origin.answer, kept = answer, origin.answer
    try:
        with Http1(cell.http) as client:
            client.send(b"POST /s/sb-2/ HTTP/1.1\r\nHost: cell.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
            assert client.response().body == b"hello"
    finally:
        origin.answer = kept


def test_trailers_of_a_request_reach_the_worker_up_to_haproxy_3_1_and_those_of_an_answer_the_client(client, origin):
    """Behind the body, where nobody takes them for headers; their names are not looked at."""
    seen = []

    def answer(connection, request):
        while size := int(connection.read_until(b"\r\n"), 16):
            connection.read_exactly(size + 2)
        while line := connection.read_until(b"\r\n"):
            seen.append(line.lower())
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Checksum: 1\r\nX-Cell-Of-Worker: 2\r\n\r\n")

    origin.answer, kept = answer, origin.answer
    try:
        if client.kind == "h2":
            client._open([(":method", "POST"), (":scheme", "https"), (":authority", "cell.test"), (":path", "/s/sb-2/")], [], end=False)
            client.send(b"body")
            client.h2.send_headers(client.stream, [("x-sum", "3"), ("x-cell-route", "4")], end_stream=True)
            client._flush()
            assert client._response().status == 200 and client._rest() == b"ok"
            got = [(name, value) for name, value in client.trailers]
        else:
            client.send(b"POST /s/sb-2/ HTTP/1.1\r\nHost: cell.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 3\r\nX-Cell-Route: 4\r\n\r\n")
            assert client.response_head().status == 200
            assert client.read_until(b"\r\n0\r\n") == b"2\r\nok"
            got = [tuple(line.lower().split(": ")) for line in client.read_until(b"\r\n\r\n").decode().split("\r\n")]
        assert got == [("x-checksum", "1"), ("x-cell-of-worker", "2")]
        assert seen == ([b"x-sum: 3", b"x-cell-route: 4"] if haproxy_version() < (3, 2) else [])
    finally:
        origin.answer = kept


def test_a_body_arrives_as_it_is_sent(client, origin):
    """Its first bytes are at the worker while the client still has the rest: of a chunk that it has announced too."""
    begun, whole = threading.Event(), []

    def answer(connection, request):
        assert request.get("transfer-encoding") == "chunked"
        size = int(connection.read_until(b"\r\n"), 16)
        first = connection.read_exactly(5)
        begun.set()
        first += connection.read_exactly(size - 5)
        connection.read_until(b"\r\n")
        whole.append(first + connection.read_body(request))
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    origin.answer, kept = answer, origin.answer
    try:
        if client.kind == "h2":
            client._open([(":method", "POST"), (":scheme", "https"), (":authority", "cell.test"), (":path", "/s/sb-2/")], [], end=False)
            client.send(b"first")
        else:
            client.send(b"POST /s/sb-2/ HTTP/1.1\r\nHost: cell.test\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\nfirst")
        assert begun.wait(20), "the worker sees nothing of it"
        rest = b"x" * (0x100000 - 5)
        client.send(rest if client.kind == "h2" else rest + b"\r\n0\r\n\r\n", **({"end": True} if client.kind == "h2" else {}))
        assert (client._response() if client.kind == "h2" else client.response()).status == 200
        assert whole == [b"first" + rest]
    finally:
        origin.answer = kept


def test_events_pass_one_by_one(client, origin):
    """Each event arrives while the worker waits for the test to have seen it. Also one of several lines, and a last one that
    nothing ends."""
    seen, events = threading.Semaphore(0), [b"data: one\n\n", b"id: 2\ndata: a\ndata: b\n\n", b": comment\n\n", b"data: the last one"]

    def answer(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for event in events:
            connection.send(event)
            if not seen.acquire(timeout=20):
                return True
        return True

    origin.answer, kept = answer, origin.answer
    try:
        if client.kind == "h2":
            client._open([(":method", "GET"), (":scheme", "https"), (":authority", "cell.test"), (":path", "/s/sb-2/")], [], end=True)
            read = client.read
        else:
            client.send(b"GET /s/sb-2/ HTTP/1.1\r\nHost: cell.test\r\n\r\n")
            assert client.response_head().status == 200
            read = client.read
        for event in events:
            assert client.read_exactly(len(event)) == event
            seen.release()
        assert read() == b""
    finally:
        origin.answer = kept


# ---- WebSockets ----


def tunnel(client, target="/s/sb-2/ws", headers=()):
    response = client.upgrade(target, headers)
    assert response.status == (200 if client.kind == "h2" else 101)
    if client.kind != "h2":
        assert response.all("sec-websocket-accept") == [accept_of(KEY.encode()).decode()]
    return response


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("opcode", [1, 2])
def test_frames_pass_both_ways(client, origin, opcode, size):
    """The origin gives back the bytes as they came: what returns is what was sent, through HAProxy twice."""
    tunnel(client)
    sent = frame(opcode, (b"abcdefgh" * (size // 8 + 1))[:size], mask=b"\x01\x02\x03\x04")
    got = b""
    for start in range(0, len(sent), 1 << 18):
        part = sent[start : start + (1 << 18)]
        client.send(part)
        got += client.read_exactly(len(part))
    assert got == sent


def test_fragments_controls_and_closes_pass_unchanged(client, origin):
    """Also what breaks RFC 6455: on a direct route, that is between client and worker."""
    tunnel(client)
    mask = b"\x09\x08\x07\x06"
    sent = b"".join(
        [
            frame(1, b"frag", fin=False, mask=mask),
            frame(9, b"ping between", mask=mask),
            frame(0, b"", fin=False, mask=mask),
            frame(10, b"", mask=mask),
            frame(0, b"ment", mask=mask),
            frame(2, b"rsv", bits=0x40, mask=mask),
            frame(2, b"unmasked"),
            frame(15, b"?", mask=mask),
            *[frame(8, code.to_bytes(2, "big") + b"reason", mask=mask) for code in (1000, 1001, 1012, 3000, 4001, 4999, 5)],
            frame(8, b"", mask=mask),
        ]
    )
    client.send(sent)
    assert client.read_exactly(len(sent)) == sent


CLOSES = [(1000, b"bye"), (1001, b""), (1008, b"policy"), (1011, b"Internal error"), (1012, b"reload"), (3000, b"three"), (4001, b"TAKEN_OVER"), (4999, b"r" * 123)]


@pytest.mark.parametrize("who", ["client", "worker"])
@pytest.mark.parametrize("kind", ["http", "https", "h2"])
def test_every_close_passes_and_is_answered_and_then_is_the_end(cell, origin, kind, who):
    heard = []

    def answer(connection, request):
        switch(connection, request)
        if who == "worker":
            connection.send(frame(8, close))
        heard.append(connection.read_exactly(len(sent)))
        if who == "client":
            connection.send(frame(8, close))
        return True

    origin.upgrade, kept = answer, origin.upgrade
    try:
        for code, reason in CLOSES:
            close = code.to_bytes(2, "big") + reason
            sent = frame(8, close, mask=b"\x01\x02\x03\x04")
            with connect(cell, kind) as client:
                tunnel(client)
                if who == "client":
                    client.send(sent)
                assert client.read_exactly(len(close) + 2) == frame(8, close)
                if who == "worker":
                    client.send(sent)
                assert client.read() == b""
            assert heard.pop() == sent
    finally:
        origin.upgrade = kept


def test_a_worker_that_is_lost_ends_the_tunnel_and_no_close_is_made_up(client, origin):
    """What a browser calls 1006: that code is never sent."""

    def answer(connection, request):
        switch(connection, request)
        connection.send(frame(1, b"last"))
        assert connection.read_exactly(11) == frame(1, b"reset", mask=b"abcd")
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return True

    origin.upgrade, kept = answer, origin.upgrade
    try:
        tunnel(client)
        assert client.read_exactly(6) == frame(1, b"last")
        client.send(frame(1, b"reset", mask=b"abcd"))
        try:
            assert client.read() == b""
        except ConnectionResetError:
            pass
    finally:
        origin.upgrade = kept


def test_bytes_behind_the_heads_are_not_lost(cell, origin):
    def answer(connection, request):
        switch(connection, request, b"\r\n"[:0])
        connection.send(frame(1, b"at once"))
        connection.send(connection.read_exactly(11))
        return True

    origin.upgrade, kept = answer, origin.upgrade
    try:
        with Http1(cell.http) as client:
            early = frame(1, b"early", mask=b"abcd")
            client.send(
                b"GET /s/sb-2/ws HTTP/1.1\r\nHost: cell.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY.encode() + b"\r\n\r\n" + early
            )
            assert client.response_head().status == 101
            assert client.read_exactly(9 + 11) == frame(1, b"at once") + early
    finally:
        origin.upgrade = kept


def test_subprotocol_and_extensions_pass(client, origin):
    def answer(connection, request):
        switch(connection, request, b"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
        return True

    origin.upgrade, kept = answer, origin.upgrade
    try:
        response = tunnel(client, headers=[("Sec-WebSocket-Protocol", "chat, talk"), ("Sec-WebSocket-Extensions", "permessage-deflate; a=1")])
    finally:
        origin.upgrade = kept
    assert response.all("sec-websocket-protocol") == ["chat"] and response.all("sec-websocket-extensions") == ["permessage-deflate"]
    assert origin.requests[-1].all("sec-websocket-protocol") == ["chat, talk"]
    assert origin.requests[-1].all("sec-websocket-extensions") == ["permessage-deflate; a=1"]


def test_a_token_as_subprotocol_is_not_the_workers_and_cellgate_is_selected(client, cell, origin):
    offer = f"cellgate, cellgate.bearer.{cell.token('sb-2')}"
    response = tunnel(client, "/cookies/sb-2/ws", [("Sec-WebSocket-Protocol", offer)])
    assert response.all("sec-websocket-protocol") == ["cellgate"]
    assert b"bearer" not in origin.requests[-1].head


def test_the_end_passes_both_ways(client, origin):
    ended = threading.Event()

    def answer(connection, request):
        switch(connection, request)
        try:
            while connection.read():
                pass
        except ConnectionResetError:
            # The end of an HTTP/2 stream that was not ended in order.
            pass
        ended.set()

    origin.upgrade, kept = answer, origin.upgrade
    try:
        tunnel(client)
        client.sock.close()
        assert ended.wait(5)
    finally:
        origin.upgrade = kept


@pytest.mark.parametrize("who", ["client", "worker"])
def test_what_was_said_before_one_side_ended_arrives(cell, origin, who):
    """Also when the other side says nothing any more."""
    data, heard = bytes(range(256)) * 1000, []

    def say_and_end(connection):
        connection.send(data)
        connection.sock.shutdown(socket.SHUT_WR)
        while connection.read():
            pass

    def hear(connection):
        heard.append(connection.read_exactly(len(data)) + connection.read())

    def answer(connection, request):
        switch(connection, request)
        (say_and_end if who == "worker" else hear)(connection)

    origin.upgrade, kept = answer, origin.upgrade
    try:
        with connect(cell, "http") as client:
            tunnel(client)
            (hear if who == "worker" else say_and_end)(client)
        until(lambda: heard, 10, "it does not arrive")
        assert heard == [data]
    finally:
        origin.upgrade = kept


def test_a_worker_that_ends_ends_the_tunnel(client, origin):
    def answer(connection, request):
        switch(connection, request)
        connection.send(frame(8, b"\x03\xe8"))
        return True

    origin.upgrade, kept = answer, origin.upgrade
    try:
        tunnel(client)
        assert client.read_exactly(4) == frame(8, b"\x03\xe8")
        assert client.read() == b""
    finally:
        origin.upgrade = kept


def test_a_worker_that_refuses_is_passed_on_and_the_connection_closed(cell, origin):
    def answer(connection, request):
        connection.send(b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusy")

    origin.upgrade, kept = answer, origin.upgrade
    try:
        with Http1(cell.http) as client:
            response = client.upgrade("/s/sb-2/ws")
            assert (response.status, response.body) == (409, b"busy")
            assert client.read() == b""
    finally:
        origin.upgrade = kept


SWITCH = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
ACCEPT = "Sec-WebSocket-Accept: {accept}"
WRONG = {
    "wrong accept": [*SWITCH, "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA="],
    "no accept": SWITCH,
    "two accepts": [*SWITCH, ACCEPT, ACCEPT],
    "no upgrade": [SWITCH[0], SWITCH[2], ACCEPT],
    "h2c": [SWITCH[0], "Upgrade: h2c", SWITCH[2], ACCEPT],
    "no connection": [*SWITCH[:2], ACCEPT],
    "a length": [*SWITCH, ACCEPT, "Content-Length: 8"],
    "chunks": [*SWITCH, ACCEPT, "Transfer-Encoding: chunked"],
    "HTTP/1.0": [SWITCH[0].replace("1.1", "1.0"), *SWITCH[1:], ACCEPT],
    "a subprotocol that was not offered": [*SWITCH, ACCEPT, "Sec-WebSocket-Protocol: hat"],
    "two subprotocols": [*SWITCH, ACCEPT, "Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Protocol: talk"],
    "a list of subprotocols": [*SWITCH, ACCEPT, "Sec-WebSocket-Protocol: chat, talk"],
    "an extension that was not offered": [*SWITCH, ACCEPT, "Sec-WebSocket-Extensions: permessage-deflate"],
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_101_is_no_tunnel(client, origin, what):
    def answer(connection, request):
        lines = "\r\n".join(WRONG[what]).replace("{accept}", accept_of(request.get("sec-websocket-key").encode()).decode())
        connection.send(lines.encode() + b"\r\n\r\n\x81\x06tunnel")
        return True

    origin.upgrade, kept = answer, origin.upgrade
    try:
        response = client.upgrade("/s/sb-2/ws", [("Sec-WebSocket-Protocol", "chat, talk")])
        if what in ("a length", "chunks") and haproxy_version() >= (3, 2):  # which takes these two lines out: then it is a good one
            assert response.status in (101, 200) and not response.all("content-length") + response.all("transfer-encoding")
            return
        assert response.status == 502 and json.loads(response.body)["error"] == "worker_unreachable"
    finally:
        origin.upgrade = kept


@pytest.mark.parametrize("offered,selected", [("chat", "chat"), ("a, chat ,b", "chat"), ("a,b", None), (None, None)])
def test_a_101_may_select_one_of_the_subprotocols(client, origin, offered, selected):
    line = f"Sec-WebSocket-Protocol: {selected}\r\n".encode() if selected else b""
    origin.upgrade, kept = lambda connection, request: switch(connection, request, line), origin.upgrade
    try:
        response = tunnel(client, headers=[("Sec-WebSocket-Protocol", offered)] if offered else [])
        assert response.get("sec-websocket-protocol") == selected
    finally:
        origin.upgrade = kept


def test_a_101_that_nobody_asked_for_is_a_line_in_the_log(cell, client, origin):
    def answer(connection, request):
        connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nraw")
        return True

    origin.answer, kept = answer, origin.answer
    try:
        before = len(cell.access_log())
        response = client.request("GET", "/s/sb-2/")
        assert response.status == 502 and b"raw" not in response.body
        until(lambda: " 502 " in cell.access_log()[before:] and "sandbox=sb-2" in cell.access_log()[before:], 10, "it is not logged")
    finally:
        origin.answer = kept


def test_requests_share_no_connection_to_a_worker(cell, origin):
    before = origin.connections
    with Http1(cell.http) as client:
        for _ in range(3):
            assert client.request("GET", "/s/sb-2/").status == 200
    assert origin.connections == before + 3


# ---- a reload of HAProxy's own ----


def port_of_nobody():
    """Below those that the kernel gives to whoever asks for any: nobody takes it until it is bound."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(20000, 32000))) as free:
            return free.getsockname()[1]


class Reloaded:
    """HAProxy alone in front of the cell's agent, as often as it is started."""

    def __init__(self, cell, folder):
        self.folder, self.port = folder, port_of_nobody()
        self.environment = os.environ | {"CELLGATE_DIR": str(ROOT / "haproxy"), "CELLGATE_CERT": str(cell.run_dir / "cert.pem"), "CELLGATE_PLAIN_HTTP": "allow"}
        self.environment |= {"CELLGATE_HTTP": f"127.0.0.1:{self.port}", "CELLGATE_HTTPS": f"127.0.0.1:{port_of_nobody()}"}
        self.environment |= {"CELLGATE_STATS": f"{folder}/stats", "CELLGATE_WORKER_TLS": f"{folder}/tls", "CELLGATE_AGENT": f"unix@{cell.run_dir}/agent.sock"}

    def start(self, *more):
        command = [*os.environ["HAPROXY"].split(), "-db", "-f", ROOT / "haproxy/haproxy.cfg", *more]
        with open(f"{self.folder}/log", "ab") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        until(lambda: self.in_force() == process.pid, 20, "it does not start")
        return process

    def in_force(self):
        """The process that has the admin socket."""
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.connect(f"{self.folder}/stats")
            sock.sendall(b"show info\n")
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
            return int(answer.partition(b"\nPid: ")[2].split()[0])

    def open(self):
        client = Http1(self.port)
        client.kind = "http"
        tunnel(client)
        return client


def test_the_process_that_is_left_at_a_reload_keeps_its_tunnels_until_they_end(cell):
    def speaks(client):
        client.send(b"through")
        return client.read_exactly(7) == b"through"

    with tempfile.TemporaryDirectory(prefix="cg-") as folder, contextlib.ExitStack() as processes:
        haproxy = Reloaded(cell, folder)
        old = haproxy.start()
        processes.callback(end, old)
        with haproxy.open() as client:
            processes.callback(end, haproxy.start("-sf", str(old.pid)))
            assert speaks(client) and old.poll() is None
            with haproxy.open() as later:
                assert speaks(later) and speaks(client)
        assert old.wait(20) == 0
        assert request(haproxy.port, "GET", "/s/sb-2/").status == 200


# ---- TLS ----


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_comes_back_resumes_its_session(cell, origin, version):
    """Without tickets: HAProxy remembers the session, and no key of a ticket can open it later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    session, resumed = None, []
    for _ in range(3):
        with context.wrap_socket(socket.create_connection(("127.0.0.1", cell.https), 10), session=session) as sock, Http1(cell.https, sock=sock) as client:
            assert client.request("GET", "/s/sb-2/a").status == 200
            session, resumed = sock.session, [*resumed, sock.session_reused]
    assert resumed == [False, True, True]


# ---- the access log ----


def test_the_access_log_has_the_decision_and_no_secret(cell, origin):
    token = cell.token("sb-2")
    with Http1(cell.http) as client:
        client.request("GET", f"/cookies/sb-2/path-secret?cellgate_token={token}&query-secret", [("Cookie", "cookie-secret=1")])
        client.request("GET", "/cookies/sb-2/path-secret", [("Authorization", "Bearer auth-secret")])
    end = time.monotonic() + 5
    while "error=token_invalid" not in (text := cell.access_log()) and time.monotonic() < end:
        time.sleep(0.02)
    assert "route=cookies sandbox=sb-2" in text and f"worker=127.0.0.1:{origin.port}" in text
    assert "secret" not in text and token not in text
