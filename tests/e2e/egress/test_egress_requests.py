# SPDX-License-Identifier: MIT
"""Requests of programs in sandboxes that HAProxy reads: plain ones, and those inside of connections that are inspected."""

import contextlib
import json
import select
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cell import AT_ONCE, BIN, closed_port, haproxy_version, until
from client import WEBSOCKET, Http1, Http2, head
from origin import Connection, accept_of
from test_egress import HOST, allow, caller, certificate, config, destinations, dial, metric, rules  # noqa: F401 fixtures

SECRET = "Bearer the-sandbox-never-has-this"


class Origin:
    """An HTTP server that answers with what it saw, as JSON; `seen` has the requests, `kept` the connections."""

    def __init__(self, answer=None):
        self.answer, self.seen = answer, []

    def __call__(self, sock):
        connection = Connection(sock)
        while (request := connection.read_request()) is not None:
            request.body = connection.read_body(request)
            self.seen.append(request)
            if self.answer:
                self.answer(connection, request)
                continue
            if request.get("upgrade"):
                accept = accept_of(request.get("sec-websocket-key").encode())
                connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\nglued")
                while data := connection.read():
                    connection.send(data)
                return
            text = json.dumps({"line": request.line, "headers": request.headers, "body": request.body.decode()}).encode()
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


def inspected(cell, port, name=HOST, to=HOST, timeout=20):
    """A TLS connection inside of a CONNECT, as a program makes it that trusts the cell's authority."""
    answer = dial(cell, f"{to}:{port}", caller(cell), timeout=timeout)
    assert answer.status == 200 and answer.rest == b""
    context = ssl.create_default_context(cafile=cell.egress_ca)
    sock = context.wrap_socket(answer.sock, server_hostname=name)
    return Http1(None, sock=sock)


def ask(cell, port, method="GET", target="/", headers=(), body=b"", host=None, **more):
    client = inspected(cell, port, **more)
    with contextlib.closing(client.sock):
        return client.request(method, target, headers, body, host=host or f"{HOST}:{port}")


def refused(answer):
    body = json.loads(answer.body)
    assert body["message"] and body["retryable"] in (True, False) and answer.get("content-type") == "application/json"
    return answer.status, body["error"], body.get("reason"), body.get("rule")


@pytest.fixture
def site(cells, destinations, certificate):  # noqa: F811
    """A cell with one sandbox, whose one rule is made of `rule`, and the origin behind it."""
    ca, context = certificate

    def make(answer=None, tls=True, more=None, secrets=None, **rule):
        origin = Origin(answer)
        server = destinations(origin, tls=context if tls else None)
        egress = {"ca_file": str(ca)} | ({"secrets": {"token": "token"}} if secrets else {})
        record = rules({"host": HOST, "ports": [server.port], "private": True, "inspect": True} | rule, **(more or {}))
        cell = cells(config=config(**egress), sandboxes={"sb-1": record}, egress=True, files={"token": secrets} if secrets else None)
        return cell, server.port, origin

    return make


# ---- what passes ----


def test_what_passes_is_as_the_program_sent_it(site):
    """But for what is of this hop. Its connection is kept, so is that to the destination."""
    cell, port, origin = site()
    client = inspected(cell, port)
    for body in (b"", b"x", b"y" * 125, b"y" * 16384, b"z" * 65536, b"z" * (1 << 20)):
        got = client.request("POST", "/a//b/%2e%2e/c;p?q=1&r=%2F", [("X-Kept", "a, b"), ("Keep-Alive", "5"), ("Proxy-Authorization", "Basic x"), ("x-cell-org", "forged")], body, host=f"{HOST}:{port}")
        assert got.status == 200
        seen = origin.seen[-1]
        assert (seen.line, seen.get("host"), seen.get("x-kept"), seen.body) == ("POST /a//b/%2e%2e/c;p?q=1&r=%2F HTTP/1.1", f"{HOST}:{port}", "a, b", body)
        assert not {"proxy-authorization", "x-cell-org", "x-cell-handover", "connection"} & {n.lower() for n, _ in seen.headers}
    client.sock.close()
    cell.says("agent", "msg=egress verdict=direct")


def test_http_2_inside(site):
    """By prior knowledge: HAProxy offers no ALPN with a certificate that it made."""
    cell, port, origin = site()
    client = inspected(cell, port)
    h2 = Http2(None, sock=client.sock)
    for path in ("/one?x", "/two"):
        got = h2.request("GET", path, host=f"{HOST}:{port}")
        assert (got.status, origin.seen[-1].line) == (200, f"GET {path} HTTP/1.1")
    assert refused(h2.request("GET", "/", host="other.example.org"))[:2] == (421, "misdirected_request")


def test_the_first_connection_to_each_name_passes(cells, destinations, certificate):  # noqa: F811
    """HAProxy makes a certificate for each; with another key than RSA the first handshake of each would fail (2.6)."""
    ca, context = certificate
    origin = Origin()
    server = destinations(origin, tls=context)
    names = [f"n{i}.example.org" for i in range(20)]
    record = rules({"host": "*.example.org", "ports": [server.port], "private": True, "inspect": True})
    cell = cells(config=config(hosts={n: "127.0.0.1" for n in names}, ca_file=str(ca)), sandboxes={"sb-1": record}, egress=True)
    for name in names:  # the origin's certificate is for another name: the refusal is HAProxy's, inside
        assert refused(ask(cell, server.port, name=name, to=name, host=f"{name}:{server.port}"))[:2] == (502, "destination_unreachable")
    assert refused(ask(cell, server.port, name=names[0], to=names[0], host=f"{names[0]}:{server.port}"))[0] == 502
    assert origin.seen == []


def test_plain_http_inside(site):
    """A CONNECT whose program then speaks HTTP without TLS."""
    cell, port, origin = site(tls=False)
    answer = dial(cell, f"{HOST}:{port}", caller(cell), glued=head("GET", "/a", [("Host", f"{HOST}:{port}")]))
    assert answer.status == 200
    client = Connection(answer.sock)
    client.rest = answer.rest
    assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200") and origin.seen[-1].line == "GET /a HTTP/1.1"
    answer = dial(cell, f"{HOST}:{port}", caller(cell), glued=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert answer.status == 200 and b" 400 " in answer.read_all()[:16]
    assert len(origin.seen) == 1


@pytest.mark.parametrize("tls", [True, False])
def test_a_websocket_inside(site, tls):
    """What is glued to the 101 arrives, and bytes pass both ways."""
    cell, port, origin = site(tls=tls)
    if tls:
        client = inspected(cell, port)
    else:
        client = Http1(None, sock=dial(cell, f"{HOST}:{port}", caller(cell)).sock)
    got = client.upgrade("/socket", host=f"{HOST}:{port}")
    assert got.status == 101 and client.read_exactly(5) == b"glued"
    for size in (1, 126, 65536, 1 << 20):
        client.send(b"m" * size)
        assert client.read_exactly(size) == b"m" * size
    assert origin.seen[-1].get("upgrade") == "websocket"


# ---- what does not ----


@pytest.mark.parametrize(
    "rule, allowed, denied",
    [
        ({"access": "read-only"}, ["GET", "OPTIONS"], ["POST", "PUT", "PATCH", "DELETE", "BREW"]),
        ({"access": "read-write"}, ["GET", "POST", "PATCH"], ["DELETE", "PROPFIND"]),
        ({"access": "full"}, ["GET", "DELETE", "BREW"], ["TRACE", "trace", "Track", "connect"]),
        ({"methods": ["GET", "DELETE"]}, ["GET", "DELETE"], ["POST", "OPTIONS", "get"]),
    ],
)
def test_methods(site, rule, allowed, denied):
    cell, port, origin = site(**rule)
    for method in allowed:
        assert ask(cell, port, method).status == 200
    for method in denied:
        status, error, _, _ = refused(ask(cell, port, method))
        assert (status, error) in ((403, "egress_denied"), (405, "method_not_allowed")), method
    assert [r.line.split()[0] for r in origin.seen] == allowed


def test_paths(site):
    cell, port, origin = site(paths=["/repos/**", "/one", "/a/*/c"])
    good = ["/repos/%c3%a9/x", "/repos/%F0%9F%98%80", "/repos/", "/repos/x/y?z=/../", "/one", "/one?q", "/a/b/c", "/%6fne", "/repos/@scope%2fname", "/repos/x%2Fy/z"]
    bad = [
        "/repos/%c0%ae%c0%ae/two", "/repos/%e0%80%ae%e0%80%ae/two", "/repos/%ef%bc%8e%ef%bc%8e/two", "/repos/a%e2%88%95b", "/repos/%80%81", "/repos/%c3", "/repos/%c3/x", "/repos/%f5%80%80%80", "/repos/%ed%a0%80",
        "/", "/two", "/one/", "/repos", "/a/b/d", "/a/b/c/d", "/repos/../two", "/repos/%2e%2e/two", "/repos/.%2e/two", "/repos//x", "//repos/x", "/repos/./x",
        "/repos/%2fetc", "/repos%2fx", "/a/b%2fc", "/a/b%2fx/c", "/repos/x%2f..%2f..%2ftwo", "/repos/x%2f%2fy", "/repos\\..\\two", "/repos/;x/../two", "/repos/x;y", "/repos/%00", "/repos/%zz", "/repos/%5c..", "/ONE", "/one%3fx", "/one%23",
    ]
    for path in good:
        assert ask(cell, port, target=path).status == 200, path
    for path in bad:
        status, error, reason, rule = refused(ask(cell, port, target=path))
        assert (status, error, rule) == (403, "egress_denied", 0) and "path" in reason or status == 400, path
    assert [r.line.split()[1] for r in origin.seen] == good


def test_upgrades_where_the_rule_lets_none_pass(site):
    cell, port, origin = site(websocket=False)
    client = inspected(cell, port)
    assert refused(client.upgrade("/", host=f"{HOST}:{port}")) == (403, "egress_denied", "its rule lets no upgrade pass", 0)
    assert origin.seen == []


@pytest.mark.parametrize(
    "headers, status",
    [
        ([("Sec-WebSocket-Version", "12")], 426),
        ([("Sec-WebSocket-Key", "short")], 400),
        ([("Upgrade", "h2c")], 400),
        ([("Connection", "close, X-Mine")], 400),
    ],
)
def test_upgrades_are_those_of_websockets(site, headers, status):
    cell, port, origin = site()
    names = {n for n, _ in headers}
    claimed = [h for h in WEBSOCKET if h[0] not in names] if "Connection" not in names else []
    assert ask(cell, port, headers=[*claimed, *headers]).status == status
    assert origin.seen == []


def test_a_101_that_answers_nothing_opens_no_tunnel(site):
    def lie(connection, request):
        lies.append(request.line)
        connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + (b"AAAAAAAAAAAAAAAAAAAAAAAAAAA=" if request.get("upgrade") else b"x") + b"\r\n\r\nsecret")

    lies = []
    cell, port, _ = site(answer=lie)
    client = inspected(cell, port)
    assert refused(client.upgrade("/", host=f"{HOST}:{port}"))[:2] == (502, "destination_unreachable")
    got = ask(cell, port)
    assert got.status == 502 and b"secret" not in got.body and len(lies) == 2


@pytest.mark.parametrize("way", ["tls", "plain", "relay-tls", "relay-plain"])
def test_subprotocols_in_several_lines_are_one_list(site, way):
    tls = way.endswith("tls")
    cell, port, origin = site(answer=framed, tls=tls, **({"via": "relay"} if way.startswith("relay") else {}))
    for chosen, status in ("a", 101), ("c", 101), ("x", 502):
        client = inspected(cell, port) if tls else Http1(None, sock=dial(cell, f"{HOST}:{port}", caller(cell)).sock)
        with client:
            got = client.upgrade(f"/?Sec-WebSocket-Protocol={chosen}", [("Sec-WebSocket-Protocol", line) for line in ("a", "b", "c, d")], host=f"{HOST}:{port}")
            assert (got.status, got.get("sec-websocket-protocol")) == (status, chosen if status == 101 else None)
            (seen,) = origin.seen[-1].all("sec-websocket-protocol")
            assert seen.replace(", ", ",") == "a,b,c,d"


@pytest.mark.parametrize("tls", [True, False])
def test_another_offer_than_a_websocket_is_ignored(site, tls):
    """Java's client and curl --http2 offer h2c with each request without TLS (RFC 9110 section 7.8)."""
    cell, port, origin = site(tls=tls)
    offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA")]
    client = inspected(cell, port) if tls else Http1(None, sock=dial(cell, f"{HOST}:{port}", caller(cell)).sock)
    with client:
        assert client.request("POST", "/x", offer, b"words", host=f"{HOST}:{port}").status == 200
    if not tls:
        with Http1(cell.egress) as client:
            assert client.request("GET", f"http://{HOST}:{port}/y", [caller(cell), *offer], host=f"{HOST}:{port}").status == 200
    for seen in origin.seen:
        assert not {"upgrade", "http2-settings"} & set(seen.names) and "pgrade" not in str(seen.all("connection"))


def framed(connection, request):
    """A good 101 with the header that the query names, or what is no status."""
    _, _, query = request.target.partition("?")
    if query[:1].isdigit():
        connection.send(b"HTTP/1.1 " + query.encode() + b" x\r\nContent-Length: 2\r\n\r\nno")
        return
    name, _, value = query.partition("=")
    accept = accept_of(request.get("sec-websocket-key").encode())
    connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + f"\r\n{name}: {value}\r\n\r\n".encode())
    while data := connection.read():
        connection.send(data)


# whether a 101 with it opens a tunnel; from HAProxy 3.2 on it drops the others by itself where no relay judges
FRAMED = {"Content-Length=0": True, "Content-Length=00": True, "Content-Length=5": False, "Transfer-Encoding=chunked": False}


@pytest.mark.parametrize("way", ["tls", "plain", "relay-tls", "relay-plain"])
def test_a_101_may_say_that_it_has_no_body_and_nothing_else(site, way):
    relay, tls = way.startswith("relay"), way.endswith("tls")
    cell, port, origin = site(answer=framed, tls=tls, **({"via": "relay"} if relay else {}))
    for query, good in FRAMED.items():
        client = inspected(cell, port) if tls else Http1(None, sock=dial(cell, f"{HOST}:{port}", caller(cell)).sock)
        with client:
            got = client.upgrade(f"/?{query}", host=f"{HOST}:{port}")
            opens = good or (not relay and haproxy_version() >= (3, 2))
            assert got.status == (101 if opens else 502), query
            assert not opens or (got.get("content-length"), got.get("transfer-encoding")) == (None, None)


@pytest.mark.parametrize("tls", [True, False])
def test_what_is_no_status_is_no_answer(site, tls):
    cell, port, origin = site(answer=framed, tls=tls)
    for status in ("099", "001", "1000", "65535"):
        client = inspected(cell, port) if tls else Http1(None, sock=dial(cell, f"{HOST}:{port}", caller(cell)).sock)
        with client:
            assert client.request("GET", f"/?{status}", host=f"{HOST}:{port}").status == 502, status


def test_names_have_to_be_one(site, certificate):  # noqa: F811
    """Of the CONNECT, of TLS and of each request; by whatever spelling."""
    cell, port, origin = site()
    with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        inspected(cell, port, name="other.example.org")
    for host in (HOST, "other.example.org", f"other.example.org:{port}", f"{HOST}:{port + 1}", f"{HOST}:443", f"{HOST}.evil.org:{port}", f"127.0.0.1:{port}"):
        assert refused(ask(cell, port, host=host))[:2] == (421, "misdirected_request"), host
    for target in (f"https://other.example.org:{port}/", f"https://{HOST}/", f"https://u@{HOST}:{port}/"):
        assert ask(cell, port, target=target).status in (400, 421), target
    assert ask(cell, port, target=f"http://{HOST}:{port}/").status in (400, 421)
    assert origin.seen == []
    for host in (f"{HOST.upper()}:{port}", f"{HOST}.:{port}"):
        assert ask(cell, port, host=host).status == 200
        assert origin.seen[-1].get("host") == f"{HOST}:{port}"
    assert ask(cell, port, target=f"https://{HOST}:{port}/x").status == 200 and origin.seen[-1].line == "GET /x HTTP/1.1"


def test_a_second_request_is_judged_as_the_first(site):
    """Pipelined, and smuggled behind a body that two readers could end in different places."""
    cell, port, origin = site(paths=["/good"])
    client = inspected(cell, port)
    client.send(head("GET", "/good", [("Host", f"{HOST}:{port}")]) + head("GET", "/bad", [("Host", f"{HOST}:{port}")]))
    assert client.response().status == 200 and refused(client.response())[0] == 403
    smuggled = head("GET", "/bad", [("Host", f"{HOST}:{port}")])
    for framing in (
        [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
        [("Content-Length", "0"), ("Content-Length", str(len(smuggled)))],
        [("Content-Length", "+5")],
        [("Transfer-Encoding", "chunked, identity")],
        [("Transfer-Encoding", "x")],
    ):
        client = inspected(cell, port)
        client.send(head("POST", "/good", [("Host", f"{HOST}:{port}"), *framing]) + b"0\r\n\r\n" + smuggled)
        with contextlib.suppress(OSError):
            while client.read():
                pass
    assert {r.line for r in origin.seen} <= {"GET /good HTTP/1.1", "POST /good HTTP/1.1"}
    assert all(b"/bad" not in r.body for r in origin.seen)


def test_who_says_nothing_is_told_so(site, cells, destinations, certificate):  # noqa: F811
    """Protocols in which the server speaks first cannot be inspected."""
    ca, context = certificate
    server = destinations()
    cell = cells(config=config(ca_file=str(ca)) | {"relay": {"head_time": "500ms"}}, sandboxes={"sb-1": rules(allow(server.port, inspect=True))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
    assert answer.status == 200
    told = answer.read_all()
    assert told.startswith(b"HTTP/1.1 408") and b'"error":"request_timeout"' in told
    assert server.accepted == 0
    assert until(lambda: metric(cell, 'cellgate_relay_egress_ended_total{reason="silent"}') == 1)


def test_a_handshake_inside_has_its_time(cells, destinations, certificate):  # noqa: F811
    """Who begins TLS and stops, in front of the server's answer or behind it, is ended; who is through may be silent for longer."""
    ca, context = certificate
    server = destinations(Origin(), tls=context)
    cell = cells(config=config(ca_file=str(ca)) | {"relay": {"head_time": "1s"}}, sandboxes={"sb-1": rules(allow(server.port, inspect=True))}, egress=True)
    to = f"{HOST}:{server.port}"

    def hello(version):
        trusts = ssl.create_default_context(cafile=cell.egress_ca)
        trusts.minimum_version = trusts.maximum_version = version
        said, heard = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusts.wrap_bio(heard, said, server_hostname=HOST)
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        return tls, said, heard

    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with contextlib.closing(inspected(cell, server.port).sock) as sock:  # before the others, and silent for as long as they may be
            for flights in (1, 2):
                tls, said, heard = hello(version)
                began = time.monotonic()
                answer = dial(cell, to, caller(cell), glued=said.read())
                if flights == 2:
                    heard.write(answer.rest or answer.sock.recv(65536))
                    with contextlib.suppress(ssl.SSLWantReadError):
                        tls.do_handshake()
                    answer.sock.sendall(said.read()[:-1])  # all but the last byte of the client's part
                answer.read_all()
                assert 0.9 < time.monotonic() - began < 5
            assert Http1(None, sock=sock).request("GET", "/", host=to).status == 200
    assert server.accepted == 2
    until(lambda: metric(cell, 'cellgate_relay_egress_ended_total{reason="silent"}') == 4)


def test_where_haproxy_does_not_listen_for_what_is_inspected_the_connect_says_so(site):
    cell, port, origin = site()
    (cell.run_dir / "egress-tls.sock").unlink()
    answer = dial(cell, f"{HOST}:{port}", caller(cell))
    assert (answer.status, answer.body["error"]) == (503, "relay_unavailable") and origin.seen == []


def test_destinations_that_fail_inside(site, cells, destinations, certificate):  # noqa: F811
    """Closed, without TLS, with a certificate of somebody else: 502 inside, and nothing sent."""
    ca, context = certificate
    plain = destinations(Origin())
    closed = closed_port()
    hosts = {"other.example.org": "127.0.0.1"}
    tls = destinations(Origin(), tls=context)
    ports = [closed, plain.port, tls.port]
    record = rules({"host": "*.example.org", "ports": ports, "private": True, "inspect": True})
    cell = cells(config=config(hosts=hosts, ca_file=str(ca)), sandboxes={"sb-1": record}, egress=True)
    assert refused(ask(cell, closed))[:2] == (502, "destination_unreachable")
    assert refused(ask(cell, plain.port))[:2] == (502, "destination_unreachable")
    client = inspected(cell, tls.port, name="other.example.org", to="other.example.org")
    assert refused(client.request("GET", "/", host=f"other.example.org:{tls.port}"))[:2] == (502, "destination_unreachable")
    assert tls.serve.seen == plain.serve.seen == []


def test_where_nobody_decides_nothing_passes(site):
    """An agent that is stopped, and one that is gone: 503 inside and outside, and the connection is good for the next try."""
    cell, port, origin = site()
    client = inspected(cell, port)
    assert client.request("GET", "/", host=f"{HOST}:{port}").status == 200
    cell.kill("agent", signal.SIGSTOP)
    threads = Path(f"/proc/{cell.pid('agent')}/task")
    until(lambda: all("State:\tT" in (thread / "status").read_text() for thread in threads.iterdir()))
    try:
        begun = time.monotonic()
        assert refused(client.request("GET", "/", host=f"{HOST}:{port}"))[:2] == (503, "agent_unavailable")
        assert plain(cell, f"http://{HOST}:{port}/").status == 503
        assert time.monotonic() - begun < 5
    finally:
        cell.kill("agent", signal.SIGCONT)
    assert len(origin.seen) == 1
    until(lambda: dial(cell, f"{HOST}:{port}", caller(cell)).status == 200)
    assert ask(cell, port).status == 200


def test_a_relay_that_ends_ends_what_is_inspected(site):
    cell, port, origin = site()
    client = inspected(cell, port)
    assert client.request("GET", "/", host=f"{HOST}:{port}").status == 200
    cell.kill("relay")
    with contextlib.suppress(OSError):
        assert client.read() == b""
    until(lambda: dial(cell, f"{HOST}:{port}", caller(cell)).status == 200)  # another one was started
    assert ask(cell, port).status == 200


def answers(*pieces, pause=0, close=False):
    """An origin's answer in these pieces, with a pause between them."""

    def answer(connection, request):
        for piece in pieces[:-1]:
            connection.send(piece)
            time.sleep(pause)
        connection.send(pieces[-1])
        if close:
            connection.sock.shutdown(socket.SHUT_RDWR)

    return answer


def test_an_answer_without_a_length_ends_with_its_connection(site):
    """However long it is silent in between."""
    cell, port, _ = site(answer=answers(b"HTTP/1.1 200 OK\r\n\r\nfirst", b", last", pause=6, close=True))
    assert ask(cell, port).body == b"first, last"
    cell, port, _ = site(answer=answers(b"HTTP/1.0 200 OK\r\n\r\nall" + b"x" * 65536, close=True))
    assert ask(cell, port).body == b"all" + b"x" * 65536


def test_an_answer_behind_an_interim_one_in_the_same_read_is_whole(site):
    cell, port, _ = site(answer=answers(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole"))
    client = inspected(cell, port)
    for _ in range(3):
        got = client.request("POST", "/", [("Expect", "100-continue")], b"body", host=f"{HOST}:{port}")
        assert (got.status, got.body) == (200, b"whole")
    client.sock.close()


@pytest.mark.parametrize("length", [b"Content-Length: +5\r\n\r\nhello", b"Content-Length: 5, 6\r\n\r\nhello", b"Content-Length: 0x5\r\n\r\nhello", b"Content-Length: -1\r\n\r\nhello"])
def test_answers_whose_length_is_none_are_refused(site, length):
    cell, port, _ = site(answer=answers(b"HTTP/1.1 200 OK\r\n" + length, close=True))
    got = ask(cell, port)
    assert got.status == 502 and b"hello" not in got.body


@pytest.mark.parametrize("size", [b"+5", b"-5", b"0x5", b" 5", b"g"])
def test_chunks_whose_length_is_none_are_cut(site, size):
    cell, port, _ = site(answer=answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + size + b"\r\nhello\r\n0\r\n\r\n", close=True))
    client = inspected(cell, port)
    client.sock.sendall(head("GET", "/", [("Host", f"{HOST}:{port}")]))
    got = b""
    with contextlib.suppress(OSError):
        while piece := client.sock.recv(4096):
            got += piece
    client.sock.close()
    assert b"hello" not in got and not got.endswith(b"0\r\n\r\n"), got


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_destination_that_ends_within_its_answer(site, end):
    """What it said arrives, and that there is no more is not taken for the whole."""
    def serve(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50000)
        if end == "reset":
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sock.close()

    cell, port, origin = site(answer=serve, tls=False)
    answer = dial(cell, f"{HOST}:{port}", caller(cell), glued=head("GET", "/", [("Host", f"{HOST}:{port}")]))
    got = answer.read_all()
    assert b" 200 OK" in got[:20] or end == "reset"
    assert len(got) < 100000


# ---- credentials ----


def test_a_credential_is_put_on_requests_that_the_sandbox_never_sees(site):
    cell, port, origin = site(set={"Authorization": {"secret": "token"}, "x-api-key": {"secret": "token"}}, secrets=SECRET.encode() + b"\nsecond line\n")
    got = ask(cell, port, headers=[("Authorization", "Bearer of the sandbox"), ("authorization", "another"), ("X-API-Key", "its own")])
    assert got.status == 200
    seen = [(n.lower(), v) for n, v in origin.seen[-1].headers]
    assert [v for n, v in seen if n == "authorization"] == [SECRET] and [v for n, v in seen if n == "x-api-key"] == [SECRET]
    assert refused(ask(cell, port, host="other.example.org"))[0] == 421
    everything = "".join(p.read_text(errors="replace") for p in cell.run_dir.glob("*.log")) + cell.admin("/metrics") + cell.admin("/metrics", "relay")
    assert "never-has-this" not in everything
    for name in ("haproxy", "agent", "relay"):
        assert b"never-has-this" not in open(f"/proc/{cell.pid(name)}/cmdline", "rb").read()


def test_a_credential_goes_over_verified_tls_alone(site, destinations):  # noqa: F811
    cell, port, origin = site(tls=False, set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode())
    assert refused(ask(cell, port))[0] == 502  # TLS towards a server that speaks none
    answer = dial(cell, f"{HOST}:{port}", caller(cell), glued=head("GET", "/", [("Host", f"{HOST}:{port}")]))
    assert b" 403 " in answer.read_all()[:16]
    assert dial(cell, f"http://{HOST}:{port}/", caller(cell), method="GET").status == 403
    assert origin.seen == []


def test_a_redirect_carries_no_credential(site):
    def redirect(connection, request):
        connection.send(b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example.org/\r\nAlt-Svc: h3=\":443\"\r\nContent-Length: 0\r\n\r\n")

    cell, port, origin = site(answer=redirect, set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode())
    got = ask(cell, port)
    assert (got.status, got.get("location"), got.get("alt-svc")) == (302, "https://elsewhere.example.org/", None)
    assert dial(cell, "elsewhere.example.org:443", caller(cell)).status == 403
    assert "the-sandbox" not in str(got.headers)


# ---- changes ----


def test_a_change_of_its_rule_ends_what_is_inspected(site):
    """Also an upgrade that the rule would not let pass now; a change of something else ends nothing."""
    cell, port, origin = site(paths=["/a", "/b"])
    one, other = inspected(cell, port), inspected(cell, port)
    assert one.request("GET", "/a", host=f"{HOST}:{port}").status == 200
    assert other.upgrade("/b", host=f"{HOST}:{port}").status == 101 and other.read_exactly(5) == b"glued"
    record = json.loads(json.dumps(cell.sandboxes["sb-1"]))
    record["egress"]["rules"].append({"host": "else.example.org", "ports": [443]})
    cell.set_sandboxes(**{"sb-1": record})
    until(lambda: "records=" in (cell.run_dir / "agent.log").read_text() and (cell.run_dir / "agent.log").read_text().count("directory loaded") == 2)
    assert one.request("GET", "/a", host=f"{HOST}:{port}").status == 200
    other.send(b"still")
    assert other.read_exactly(5) == b"still"
    record["egress"]["rules"][0]["paths"] = ["/a"]
    cell.set_sandboxes(**{"sb-1": record})
    other.sock.settimeout(3)
    with contextlib.suppress(OSError):
        assert other.read() == b""
    with contextlib.suppress(OSError):
        assert one.read() == b""
    assert until(lambda: metric(cell, 'cellgate_relay_egress_ended_total{reason="denied"}') == 2)


def test_a_change_of_a_rule_reaches_a_thousand_inspected_connections(cells, destinations):  # noqa: F811
    """Five hundred for each of two hosts, each with a request behind it and another one to come."""
    each, origin = 500, Origin()
    server = destinations(origin)
    hosts = ("a.example.org", "b.example.org")
    both = {host: allow(server.port, host, inspect=True, paths=["/good"]) for host in hosts}
    cell = cells(config=config(hosts=dict.fromkeys(hosts, "127.0.0.1")) | {"relay": {"max_tunnels_per_sandbox": 0}}, sandboxes={"sb-1": rules(*both.values())}, egress=True)
    token, opened = caller(cell), {host: [] for host in hosts}
    for host in hosts:
        for _ in range(each):
            answer = dial(cell, f"{host}:{server.port}", token, timeout=20)
            opened[host].append(Http1(None, sock=answer.sock))
            assert opened[host][-1].request("GET", "/good", host=f"{host}:{server.port}").status == 200
    began = time.monotonic()
    cell.set_sandboxes(**{"sb-1": rules(both["a.example.org"] | {"paths": ["/other"]}, both["b.example.org"])})
    for client in opened["a.example.org"]:
        with contextlib.suppress(ConnectionResetError):
            assert client.read() == b""
    assert time.monotonic() - began < AT_ONCE
    for client in opened["b.example.org"]:
        assert client.request("GET", "/good", host=f"b.example.org:{server.port}").status == 200
    assert metric(cell, 'cellgate_relay_egress_ended_total{reason="denied"}') == each
    for client in (*opened["a.example.org"], *opened["b.example.org"]):
        client.sock.close()


def test_audit_inside(site):
    cell, port, origin = site(paths=["/a"], access="read-only", more={"enforcement": "audit"})
    assert ask(cell, port, "POST", "/b").status == 200 and origin.seen[-1].line == "POST /b HTTP/1.1"
    line = cell.says("agent", "method=POST")
    assert "enforcement=audit" in line and "path=/b" in line and "rule=0" in line


def test_audit_puts_no_credential_on_what_would_be_refused(site):
    """Who only looks at what rules would refuse does not give the sandbox a credential for all of it."""
    cell, port, origin = site(paths=["/a"], access="read-only", set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode(), more={"enforcement": "audit"})
    for method, path, allowed in (("GET", "/a", True), ("POST", "/a", False), ("GET", "/b", False), ("DELETE", "/b", False)):
        assert ask(cell, port, method, path).status == 200
        assert origin.seen[-1].all("authorization") == ([SECRET] if allowed else []), (method, path)
    # what the sandbox itself sends is its own
    assert ask(cell, port, "POST", "/b", [("Authorization", "mine")]).status == 200 and origin.seen[-1].all("authorization") == ["mine"]


def test_a_secret_that_is_written_anew_counts_at_once(site):
    cell, port, origin = site(set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode())
    client = inspected(cell, port)

    def seen():
        assert client.request("GET", "/", host=f"{HOST}:{port}").status == 200
        return origin.seen[-1].all("authorization")

    assert seen() == [SECRET]
    secret = cell.config_file.parent / "token"
    for n, write in enumerate((lambda: secret.write_text("Bearer in-place\n"), lambda: replaced(secret, "Bearer replaced\n"))):
        write()
        until(lambda n=n: seen() == [["Bearer in-place", "Bearer replaced"][n]], 10, "the old secret stays")
    log = cell.run_dir / "agent.log"
    secret.chmod(0o644)
    secret.write_text("Bearer public\n")
    until(lambda: "egress.secrets" in log.read_text() and "everybody can read it (mode 644, should be 600)" in log.read_text(), 10, "it is not told")
    assert seen() == ["Bearer replaced"]
    assert "Bearer" not in log.read_text()


def test_secrets_that_do_not_fit_beside_the_request(site):
    """What the agent answers has to fit into a frame of 16 KiB."""
    cell, port, origin = site(set={name: {"secret": "token"} for name in ("Authorization", "X-Api-Key", "Cookie")}, secrets=b"x" * 4096)
    assert ask(cell, port).status == 200 and origin.seen[-1].get("cookie") == "x" * 4096
    assert refused(ask(cell, port, target="/" + "p" * 8000)) == (431, "request_too_large", "the request and what its rule sets are too large together", None)
    assert len(origin.seen) == 1


def test_files_that_haproxy_reads_are_looked_at(site, tmp_path):
    cell, _, _ = site()
    (cell.folder / "k1.secret").chmod(0o600)  # else it is told, too
    config = json.loads(cell.config_file.read_text())
    for name, mode in (("public.pem", 0o644), ("own.pem", 0o600)):
        (cell.config_file.parent / name).touch()
        (cell.config_file.parent / name).chmod(mode)
    for sign, ca, said in (("nowhere.pem", "own.pem", ["egress.sign_file: ", "there is no such file"]), ("public.pem", "own.pem", ["egress.sign_file: ", "everybody can read it (mode 644, should be 600)"]),
                           ("own.pem", "nowhere.crt", ["egress.ca_file: ", "there is no such file"]), ("own.pem", "public.pem", [])):
        file = cell.config_file.with_name("other.json")
        file.write_text(json.dumps(config | {"egress": config["egress"] | {"sign_file": sign, "ca_file": ca}}))
        done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", file], capture_output=True, text=True)
        assert done.returncode == 0 and all(text in done.stderr for text in said) and ("warning" in done.stderr) == bool(said), done.stderr


def test_what_rules_of_records_need_is_looked_at(site):
    """By -t, with the place in the file; a running agent refuses what they lack, and serves the rest."""
    cell, port, _ = site()
    folder = cell.config_file.parent
    (folder / "k1.secret").chmod(0o600)  # else it is told, too
    config = json.loads(cell.config_file.read_text())

    def check(rules, **egress):
        (folder / "records.json").write_text('{"sandboxes": {\n "sb-1": {"worker": "http://127.0.0.1:1"},\n "sb-2": {"worker": "http://127.0.0.1:1",\n  "egress": {"rules": [\n   ' + ",\n   ".join(map(json.dumps, rules)) + "]}}}}")
        file = cell.config_file.with_name("other.json")
        file.write_text(json.dumps(config | {"directory": {"kind": "file", "path": "records.json"}, "egress": config["egress"] | egress}))
        done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", file], capture_output=True, text=True)
        return done.returncode, done.stderr.replace(str(folder) + "/", "")

    raw, inspect = {"host": "a.example.org", "ports": [443]}, {"host": "b.example.org", "ports": [443], "inspect": True}
    secret = inspect | {"set": {"Authorization": {"secret": "nobody"}}}
    (folder / "own.pem").touch(0o600)
    assert check([raw]) == (0, "the configuration is valid, the directory has 2 sandboxes\n")
    assert check([raw, raw | {"inspect": False}])[0] == 0
    assert check([raw, inspect]) == (1, "records.json:6:4: the rule wants requests inspected, and there is no egress.sign_file\n")
    assert check([raw, inspect], sign_file="own.pem")[0] == 0
    code, said = check([raw, secret], sign_file="own.pem")
    assert code == 1 and said.startswith("records.json:6:") and said.endswith(": egress.secrets has no secret of this name\n")
    code, said = check([raw], default={"rules": [inspect]})
    assert code == 1 and said.startswith("other.json:1:") and said.endswith("there is no egress.sign_file\n")


def replaced(path, text):
    new = path.with_name("new")
    new.touch(0o600)
    new.write_text(text)
    new.rename(path)


@pytest.mark.parametrize("version, headers", [("1.0", [("Transfer-Encoding", "chunked")]), ("1.0", [("Transfer-Encoding", "chunked"), ("Content-Length", "5")]), ("1.2", [("Content-Length", "5")])])
def test_no_chunks_in_http_1_0_and_no_unknown_version(site, version, headers):
    """Readers differ about where such a request ends; what is behind it nobody has judged."""
    cell, port, origin = site(paths=["/good"])
    client = inspected(cell, port)
    lines = [f"POST /good HTTP/{version}", f"Host: {HOST}:{port}", *(f"{n}: {v}" for n, v in headers)]
    client.send("\r\n".join([*lines, "", ""]).encode() + b"1c\r\nGET /bad HTTP/1.0\r\nHost: x\r\n\r\n\r\n0\r\n\r\n")
    assert client.response().status == 400 and origin.seen == []


def test_whose_connection_failed_inside_is_in_the_log(site):
    """Of a program that does not trust the authority nothing else is known."""
    cell, port, origin = site()
    answer = dial(cell, f"{HOST}:{port}", caller(cell))
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(answer.sock, server_hostname=HOST)
    line = until(lambda: next((x for x in cell.access_log().splitlines() if "tls_error=" in x and x.startswith("inside")), None), 10, "HAProxy tells nothing")
    assert f" to=127.0.0.1:{port} host={HOST} connection_error=SSL handshake failure tls_error=" in line and "unknown ca" in line
    assert origin.seen == []


def test_why_a_destination_was_not_reached_is_in_the_log(cells, destinations, certificate):  # noqa: F811
    _, context = certificate
    server = destinations(Origin(), tls=context)
    record = rules({"host": HOST, "ports": [server.port], "private": True, "inspect": True})
    cell = cells(config=config(ca_file="/etc/ssl/certs/ca-certificates.crt"), sandboxes={"sb-1": record}, egress=True)
    assert refused(ask(cell, server.port))[:2] == (502, "destination_unreachable")
    line = until(lambda: next((x for x in cell.access_log().splitlines() if x.startswith("inside") and "connect_error=" in x), None), 10, "no line")
    assert "connect_error=SSL handshake failure" in line and "certificate verify failed" in line


@pytest.mark.parametrize("name", ["X-Api-Key", "X_Api_Key", "x-api_key", "X_API-KEY"])
def test_a_set_header_comes_once_by_whatever_spelling(site, name):
    """To CGI, WSGI and Rack `_` is `-`: a sandbox would act with a key of its own."""
    cell, port, origin = site(set={"X-Api-Key": {"secret": "token"}}, secrets=SECRET.encode())
    assert ask(cell, port, headers=[(name, "mine"), ("X-Other_Key", "kept")]).status == 200
    keys = [(n, v) for n, v in origin.seen[-1].headers if n.lower().replace("_", "-") == "x-api-key"]
    assert [v for _, v in keys] == [SECRET] and origin.seen[-1].get("x-other_key") == "kept"


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X_Http_Method", "X-Method-Override", "X-Original-URL", "x-rewrite_url"])
def test_headers_that_mean_another_request(site, name):
    cell, port, origin = site(paths=["/good"], access="read-write")
    assert refused(ask(cell, port, "POST", "/good", [(name, "DELETE")])) == (403, "egress_denied", "a header of it means another method or path to some servers", 0)
    assert origin.seen == [] and ask(cell, port, "POST", "/good").status == 200
    cell, port, origin = site()  # nothing is restricted
    assert ask(cell, port, "POST", "/good", [(name, "DELETE")]).status == 200


def test_what_a_destination_says_of_its_own_hop_stays_there(site):
    def answer(connection, request):
        status = b"407 Proxy Authentication Required" if request.target == "/407" else b"200 OK"
        connection.send(b"HTTP/1.1 " + status + b"\r\nConnection: set-cookie, x-a\r\nX-A: b\r\nProxy-Authenticate: Basic\r\nProxy_Status: x\r\nContent-Length: 0\r\n\r\n")

    for tls in (True, False):
        cell, port, _ = site(answer=answer, tls=tls) if tls else site(answer=answer, tls=False, inspect=False)
        got = ask(cell, port) if tls else plain(cell, f"http://{HOST}:{port}/")
        assert got.status == 200 and got.get("x-a") == "b"
        assert not [n for n, v in got.headers if n.lower().startswith("proxy") or "set-cookie" in v]
        got = ask(cell, port, target="/407") if tls else plain(cell, f"http://{HOST}:{port}/407")
        assert got.status == 502 and not [n for n, _ in got.headers if n.lower().startswith("proxy")]


# ---- how much at a time ----


class Waiting:
    """A destination that answers when the test says so."""

    def __init__(self):
        self.go, self.waits = threading.Event(), 0

    def __call__(self, sock):
        connection = Connection(sock)
        while connection.read_request() is not None:
            self.waits += 1
            self.go.wait(20)
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("environment, more", [({"CELLGATE_EGRESS_REQUESTS": "3"}, {}), ({}, {"max_connections": 3})])
@pytest.mark.parametrize("way", ["plain", "h2"])
def test_requests_of_a_sandbox_at_a_time(cells, destinations, certificate, way, environment, more):  # noqa: F811
    """Plain ones pass no relay, and a connection may carry a hundred over HTTP/2: HAProxy counts them."""
    ca, context = certificate
    waiting = Waiting()
    server = destinations(waiting, tls=context if way == "h2" else None)
    record = rules(allow(server.port) | ({"inspect": True} if way == "h2" else {}), **more)
    cell = cells(config=config(ca_file=str(ca)), sandboxes={"sb-1": record, "sb-2": record}, egress=True, environment=environment)
    target = f"http://{HOST}:{server.port}/"
    if way == "plain":
        held = [Http1(cell.egress) for _ in range(3)]
        for client in held:
            client.send(head("GET", target, [("Host", f"{HOST}:{server.port}"), caller(cell)]))
    else:
        held = [Http2(None, sock=inspected(cell, server.port).sock)]
        pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", f"{HOST}:{server.port}"), (":path", "/")]
        for _ in range(3):
            held[0]._open(pseudo, [], True)
    until(lambda: waiting.waits == 3, 10, "three do not wait")
    if way == "plain":
        assert refused(plain(cell, target))[:2] == (429, "too_many_connections")
    else:
        held[0]._open(pseudo, [], True)
        while held[0].headers is None:
            held[0]._pump()
        assert dict(held[0].headers)[":status"] == "429"
    assert waiting.waits == 3
    waiting.go.set()  # another sandbox is not meant, and room comes back
    with Http1(cell.egress) as client:
        if way == "plain":
            assert client.request("GET", target, [caller(cell, "sb-2")], host=f"{HOST}:{server.port}").status == 200
    for client in held:
        client.sock.close()
    if way == "plain":
        until(lambda: plain(cell, target).status == 200, 10, "no room comes back")
    else:
        until(lambda: ask(cell, server.port).status == 200, 10, "no room comes back")


def test_connections_of_one_source_leave_the_ingress_alone(cells):
    """Nobody needs a token for a connection."""
    cell = cells(config=config(), sandboxes={"sb-1": rules({"host": HOST, "ports": [443]})}, egress=True, environment={"CELLGATE_EGRESS_SOURCE": "20", "CELLGATE_EGRESS_MAXCONN": "40"})
    held = [socket.create_connection(("127.0.0.1", cell.egress), 10) for _ in range(25)]
    until(lambda: len(select.select(held, [], [], 0)[0]) == 5, 10, "five do not end")  # whichever come last to HAProxy's threads
    assert len(select.select(held, [], [], 0)[0]) == 5
    held += [socket.create_connection(("127.0.0.1", cell.egress), 10, (f"127.0.0.{n}", 0)) for n in range(2, 62)]
    with Http1(cell.http) as client:
        assert client.request("GET", "/nothing").status == 404
    for sock in held:
        sock.close()
    until(lambda: dial(cell, f"{HOST}:443").status == 407, 10, "no room comes back")


# ---- plain ----


def plain(cell, target, method="GET", headers=(), body=b"", host=None, token=True):
    with Http1(cell.egress) as client:
        return client.request(method, target, ([caller(cell)] if token else []) + list(headers), body, host=host or target.split("/")[2])


def test_a_plain_request(site):
    cell, port, origin = site(tls=False, paths=["/a/**"], access="read-write")
    got = plain(cell, f"http://{HOST.upper()}:{port}/a/b?c=d", "POST", [("Proxy-Connection", "keep-alive"), ("X-Kept", "1")], b"body")
    seen = origin.seen[-1]
    assert got.status == 200 and (seen.line, seen.get("host"), seen.get("x-kept"), seen.body) == ("POST /a/b?c=d HTTP/1.1", f"{HOST}:{port}", "1", b"body")
    assert not {"proxy-authorization", "proxy-connection", "connection"} & {n.lower() for n, _ in seen.headers}
    assert refused(plain(cell, f"http://{HOST}:{port}/b"))[:2] == (403, "egress_denied")
    assert refused(plain(cell, f"http://{HOST}:{port}/a/b", "DELETE"))[:2] == (403, "egress_denied")
    assert plain(cell, f"http://{HOST}:{port}/a/b", host="other.example.org").status == 400  # HAProxy's own
    assert refused(plain(cell, f"http://{HOST}:{port}/a/b", token=False))[:2] == (407, "proxy_auth_required")
    assert refused(plain(cell, f"http://other.example.org:{port}/a/b"))[:2] == (403, "egress_denied")
    assert refused(plain(cell, f"https://{HOST}:{port}/a/b"))[0] == 400
    assert len(origin.seen) == 1


def test_a_plain_request_by_a_rule_that_does_not_inspect(cells, destinations):  # noqa: F811
    """All of HTTP passes, a WebSocket too."""
    origin = Origin()
    server = destinations(origin)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    assert plain(cell, f"http://{HOST}:{server.port}", "DELETE").status == 200 and origin.seen[-1].line == "DELETE / HTTP/1.1"
    with Http1(cell.egress) as client:
        got = client.upgrade(f"http://{HOST}:{server.port}/x", [caller(cell)], host=f"{HOST}:{server.port}")
        assert got.status == 101 and client.read_exactly(5) == b"glued"
    assert refused(plain(cell, f"http://{HOST}:{closed_port()}/"))[:2] == (403, "egress_denied")


ODD_TARGETS = [
    "/", "*", "HOST/", "http://", "http:///", "http://u@HOST/", "http://u:p@HOST/", "http://127.1:80/", "http://0x7f000001/", "http://2130706433/", "http://017700000001/",
    "http://[::ffff:127.0.0.1%25lo]/", "http://HOST#@other/", "http://HOST\\@other/", "http://ho%73t/", "ftp://HOST/", f"http://{HOST}:0/", f"http://{HOST}:65536/", f"http://{HOST}:/x", "http://HOST/a#b",
]


def test_plain_targets_in_odd_spellings(cells, destinations):  # noqa: F811
    server = destinations(Origin())
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    for target in ODD_TARGETS:
        with Http1(cell.egress) as client:
            client.send(head("GET", target.replace("HOST", f"{HOST}:{server.port}"), [("Host", f"{HOST}:{server.port}"), caller(cell)]))
            got = client.response()
        assert got.status == 400, (target, got.body)
    assert server.accepted == 0


def test_explain(site):
    """The same judge, told of a request inside and of a plain one."""
    cell, port, _ = site(paths=["/a/**"], set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode())

    def explain(line, *arguments):
        done = subprocess.run([BIN / "cellgate", "explain", "--json", "--config", cell.config_file, "--sandbox", "sb-1", *arguments, line], capture_output=True, text=True)
        assert "never-has-this" not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)["verdict"] if done.stdout else done.stderr

    said = explain(f"GET https://{HOST}:{port}/a/b?c")[1]["reason"]
    assert said.endswith("egress.sign_file")  # of the CONNECT around it
    cell.config_file.write_text(json.dumps(json.loads(cell.config_file.read_text()) | {"egress": json.loads(cell.config_file.read_text())["egress"] | {"sign_file": "ca.pem"}}))
    code, verdict = explain(f"GET https://{HOST}:{port}/a/b?c")
    assert (code, verdict["verdict"], verdict["path"], verdict["set_authorization"]) == (0, "direct", "/a/b?c", True)
    assert explain(f"GET https://{HOST}:{port}/b")[1]["reason"] == "its rule does not allow this path"
    assert explain(f"GET https://{HOST}:{port}/a/b", "-H", "Host: other.example.org")[1]["error"] == "misdirected_request"
    assert explain(f"GET http://{HOST}:{port}/a/b")[1]["error"] == "egress_denied"
    verdict = explain(f"CONNECT {HOST}:{port}")[1]
    assert (verdict["verdict"], verdict["http2"]) == ("inspect", "not listed")
    for names, said in (([HOST], "offered"), (["*." + HOST.partition(".")[2]], "offered"), (["*." + HOST], "not listed"), (["x" + HOST], "not listed")):
        changed = json.loads(cell.config_file.read_text())
        changed["egress"] |= {"http2": names, "http2_folder": "http2"}
        cell.config_file.write_text(json.dumps(changed))
        assert explain(f"CONNECT {HOST.upper()}:{port}")[1]["http2"] == said, names
        assert explain(f"GET https://{HOST}:{port}/a/b?c")[1]["http2"] == said
    assert "http2" not in explain(f"GET https://{HOST}:{port}/b")[1]  # it is refused
    done = subprocess.run([BIN / "cellgate", "explain", "--config", cell.config_file, "--sandbox", "sb-1", f"GET http://{HOST}:1/"], capture_output=True, text=True)
    assert done.returncode == 1 and "rule 0: it is about this destination, and not this port" in done.stdout
    done = subprocess.run([BIN / "cellgate", "explain", "--config", cell.config_file, "--sandbox", "sb-1", "CONNECT other.example.org:443"], capture_output=True, text=True)
    assert "rule 0: it is about another host" in done.stdout and "no rule is about this destination" in done.stdout
    assert explain(f"GET https://{HOST}:x/")[0] == 2 and explain("GET")[0] == 2


def test_options_of_a_host_without_a_path_is_about_the_host(site):
    """RFC 9112 section 3.2.4: the last proxy sends the asterisk. HAProxy 3.0 shows it with a path, which it has not."""
    cell, port, origin = site(tls=False)
    for target, seen in (f"http://{HOST}:{port}", "/" if haproxy_version() == (3, 0) else "*"), (f"http://{HOST}:{port}/", "/"), (f"http://{HOST}:{port}/?q", "/?q"):
        with Http1(cell.egress) as client:
            assert client.request("OPTIONS", target, [caller(cell)], host=f"{HOST}:{port}").status == 200
        assert origin.seen[-1].line == f"OPTIONS {seen} HTTP/1.1"
    with Http1(cell.egress) as client:
        assert client.request("GET", f"http://{HOST}:{port}", [caller(cell)], host=f"{HOST}:{port}").status == 200
    assert origin.seen[-1].line == "GET / HTTP/1.1"


def test_a_query_may_stand_behind_the_port(site):
    """HAProxy before 3.2 takes the query for a part of the host and answers 400; and a Host of another name on every version."""
    cell, port, origin = site(tls=False)
    with Http1(cell.egress) as client:
        got = client.request("GET", f"http://{HOST}:{port}?q=1", [caller(cell)], host=f"{HOST}:{port}")
    assert got.status == (200 if haproxy_version() >= (3, 2) else 400)
    assert [r.line for r in origin.seen] == (["GET /?q=1 HTTP/1.1"] if got.status == 200 else [])
    with Http1(cell.egress) as client:
        assert client.request("GET", f"http://{HOST}:{port}/", [caller(cell)], host="other.example.org").status == 400
