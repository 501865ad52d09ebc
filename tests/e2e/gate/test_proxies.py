# SPDX-License-Identifier: MIT
"""Who the client is: behind load balancers that say so (PROXY protocol, X-Forwarded-For and -Proto), and beside them,
where nobody is believed. And plain HTTP, which is sent to https or refused."""

import ipaddress
import json
import socket
import ssl
import struct

import pytest
from cell import until
from client import WEBSOCKET, Http1, head, request
from origin import Connection

# Two balancers, each by another way, and a client that is none.
PROXY, FORWARDER, STRANGER = "127.0.0.2", "127.0.0.3", "127.0.0.9"
ROUTES = [
    {"name": "s", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
    {"name": "relayed", "path": "/r/{sandbox}/{rest...}", "to": "/{rest}", "need": "none", "via": "relay", "upgrade": True},
]
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, origin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists")
    (folder / "proxy.lst").write_text(f"# balancers\n{PROXY}\n")
    (folder / "trusted.lst").write_text(f"{FORWARDER}\n10.0.0.0/8\n2001:db8:1::/48\n")
    environment = {"CELLGATE_ACCEPT_PROXY": str(folder / "proxy.lst"), "CELLGATE_TRUSTED_PROXIES": str(folder / "trusted.lst")}
    environment |= {"CELLGATE_PLAIN_HTTP": "redirect", "CELLGATE_HSTS": "max-age=300"}
    return cells(sandboxes={"sb-1": {"worker": origin.url}}, config={"routes": ROUTES}, environment=environment)


def connected(port, source, first=b"", tls=True):
    """From that address, with these bytes in front of everything."""
    sock = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(first)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        sock = context.wrap_socket(sock, server_hostname="localhost")
    return sock


class Client(Http1):
    def __init__(self, sock):
        Connection.__init__(self, sock)
        self.interim = []


def ask(cell, source, headers=(), first=b"", tls=True, method="GET", target="/s/sb-1/"):
    with Client(connected(cell.https if tls else cell.http, source, first, tls)) as client:
        return client.request(method, target, headers)


def seen(origin, response):
    """What the worker was told of the client."""
    assert response.status == 200, (response.status, response.body)
    got = origin.requests[-1]
    assert len(got.all("x-forwarded-for")) == len(got.all("x-forwarded-proto")) == 1
    return got.get("x-forwarded-for"), got.get("x-forwarded-proto")


# ---- PROXY protocol ----


def v1(source, port=80):
    kind, own = ("TCP6", "2001:db8::1") if ":" in source else ("TCP4", "192.0.2.1")
    return f"PROXY {kind} {source} {own} 40000 {port}\r\n".encode()


def v2(source, port=80, tlvs=b""):
    own = "2001:db8::1" if ":" in source else "192.0.2.1"
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(own).packed + struct.pack(">HH", 40000, port) + tlvs
    return SIGNATURE + bytes([0x21, 0x21 if ":" in source else 0x11]) + struct.pack(">H", len(addresses)) + addresses


def tlv(kind, value):
    return bytes([kind]) + struct.pack(">H", len(value)) + value


TLVS = tlv(2, b"name.example") + tlv(4, bytes(7)) + tlv(0xEE, b"\xff" * 300) + tlv(5, b"id")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("source", ["203.0.113.7", "2001:db8::7"])
@pytest.mark.parametrize("header", [v1, v2, lambda source, port: v2(source, port, TLVS)], ids=["v1", "v2", "tlvs"])
def test_a_balancer_that_speaks_the_proxy_protocol_says_who_the_client_is(cell, origin, header, source, tls):
    """Without TLS of its own it has ended that of the client, who came to port 443."""
    forged = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "http")]
    assert seen(origin, ask(cell, PROXY, forged, header(source, 443), tls)) == (source, "https")
    until(lambda: f" client={source} " in cell.access_log(), 10, "it is not logged")


def test_who_came_to_a_balancer_without_tls_is_sent_to_https(cell):
    assert ask(cell, PROXY, first=v1("203.0.113.7", 80), tls=False).status == 308


def test_its_own_health_check_is_its_own(cell, origin):
    local = SIGNATURE + b"\x20\x00\x00\x00"
    assert seen(origin, ask(cell, PROXY, first=local)) == (PROXY, "https")


@pytest.mark.parametrize("header", [v1, v2])
@pytest.mark.parametrize("source", [STRANGER, FORWARDER])
@pytest.mark.parametrize("tls", [False, True])
def test_nobody_else_can_begin_with_a_proxy_header(cell, origin, header, source, tls):
    before = len(origin.requests)
    with pytest.raises((OSError, AssertionError)) if tls else pytest.MonkeyPatch.context():
        assert ask(cell, source, first=header("203.0.113.7", 443), tls=tls).status == 400
        assert not tls
    assert len(origin.requests) == before


@pytest.mark.parametrize("first", [b"PROXY TCP4 203.0.113.7\r\n", SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12), SIGNATURE + b"\x21\x11\x00\x03abc", b"PROXY " + b"x" * 200, b""])
def test_a_balancers_connection_without_a_whole_header_is_closed(cell, origin, first):
    before = len(origin.requests)
    with connected(cell.http, PROXY, first + head("GET", "/s/sb-1/", [("Host", "cell.test")]), tls=False) as sock:
        try:
            assert sock.recv(1000) == b""
        except ConnectionResetError:
            pass
    assert len(origin.requests) == before


# ---- X-Forwarded-For and -Proto ----


@pytest.mark.parametrize(
    "lines,client",
    [
        ([], FORWARDER),
        (["203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6", "203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7, 10.1.2.3"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7,10.1.2.3", "2001:db8:1::5 , 10.3.3.3"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7, 10.0.0.4, 10.0.0.3, 10.0.0.2, 10.0.0.1"], "10.0.0.4"),
        (["2001:db8::7"], "2001:db8::7"),
        (["10.1.2.3"], "10.1.2.3"),
        (["6.6.6.6, garbage"], FORWARDER),
        (["6.6.6.6, unknown, 10.1.2.3"], "10.1.2.3"),
        (["6.6.6.6, 203.0.113.7/8"], FORWARDER),
        (["6.6.6.6, 203.0.113.700"], FORWARDER),
        (["203.0.113.7,"], FORWARDER),
        ([""], FORWARDER),
        (["6.6.6.6"] * 40 + ["203.0.113.7"], "203.0.113.7"),
    ],
)
def test_a_trusted_proxys_x_forwarded_for_names_the_client(cell, origin, lines, client):
    headers = [("X-Forwarded-For", line) for line in lines]
    assert seen(origin, ask(cell, FORWARDER, headers))[0] == client


@pytest.mark.parametrize("source", [STRANGER, "127.0.0.1"])
@pytest.mark.parametrize("name", ["X-Forwarded-For", "X_Forwarded_For", "Forwarded", "x-forwarded-for"])
def test_nobody_elses_x_forwarded_for_counts(cell, origin, source, name):
    assert seen(origin, ask(cell, source, [(name, "203.0.113.7"), ("X-Forwarded-Proto", "http")])) == (source, "https")


def test_behind_a_proxy_header_the_client_it_names_is_judged(cell, origin):
    """A trusted proxy that comes through the balancer is believed, a client is not."""
    headers = [("X-Forwarded-For", "203.0.113.7")]
    assert seen(origin, ask(cell, PROXY, headers, v2("10.1.2.3", 443)))[0] == "203.0.113.7"
    assert seen(origin, ask(cell, PROXY, headers, v2("198.51.100.1", 443)))[0] == "198.51.100.1"


def test_a_proxy_that_ends_tls_says_so(cell, origin):
    assert seen(origin, ask(cell, FORWARDER, [("X-Forwarded-Proto", "https")], tls=False)) == (FORWARDER, "https")
    assert seen(origin, ask(cell, FORWARDER, [("X-Forwarded-Proto", "http, https")], tls=False)) == (FORWARDER, "https")


@pytest.mark.parametrize("said", ["http", "https, http", "httpss", "", "wss"])
def test_a_proxy_whose_client_came_without_tls_says_so(cell, said):
    for tls in (True, False):
        assert ask(cell, FORWARDER, [("X-Forwarded-Proto", said)], tls=tls).status == 308


def test_nobody_else_says_that_he_came_with_tls(cell):
    for headers in ([("X-Forwarded-Proto", "https")], [("X_Forwarded_Proto", "https")], [("Forwarded", "proto=https")]):
        assert ask(cell, STRANGER, headers, tls=False).status == 308


@pytest.mark.parametrize("route", ["s", "r"])
def test_a_tunnels_worker_is_told_too(cell, origin, route):
    headers = [("X-Forwarded-For", "6.6.6.6, 203.0.113.9"), ("X-Forwarded-Proto", "https")]
    with Client(connected(cell.http, FORWARDER, tls=False)) as client:
        assert client.upgrade(f"/{route}/sb-1/ws", headers).status == 101
    assert origin.requests[-1].all("x-forwarded-for") == ["203.0.113.9"]
    assert origin.requests[-1].all("x-forwarded-proto") == ["https"]


# ---- plain HTTP ----


def plain(cell, method="GET", target="/s/sb-1/a%2Fb?c=%20d&e", headers=(), host="Cell.Test:8080"):
    with Http1(cell.http) as client:
        return client.request(method, target, headers, host=host)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_plain_http_is_sent_to_https(cell, origin, method):
    before = len(origin.requests)
    answer = plain(cell, method)
    assert (answer.status, answer.all("location")) == (308, ["https://cell.test/s/sb-1/a%2Fb?c=%20d&e"])
    assert plain(cell, method, "http://cell.test/s/sb-1/", host="cell.test").all("location") == ["https://cell.test/s/sb-1/"]
    assert plain(cell, method, "/no-such-route", [("Cookie", "own=1")]).status == 308
    # Java's client and curl offer h2c without TLS
    assert plain(cell, method, "/", [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]).status == 308
    assert len(origin.requests) == before


@pytest.mark.parametrize("host", ["cell.test", "127.0.0.1:80", "a_b.cell.test:", "[::1]:8080", "[::ffff:127.0.0.1]"])
def test_plain_http_of_any_name_is_sent_to_https(cell, host):
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    assert plain(cell, target="/x", host=host).all("location") == [f"https://{name}/x"]


@pytest.mark.parametrize("host", ["evil.test#", "a/@b", "a@evil.test", "a?b", "a b", "a\\b", "[::1", "::1", "a:b", "[a]b", "a%2f", "[::1]x:80", "\"a\""])
def test_a_host_that_is_no_name_is_not_repeated(cell, host):
    answer = plain(cell, target="/x", host=host)
    assert (answer.status, answer.all("location")) == (400, [])


def sources(token):
    bearer = f"Bearer {token}"
    yield "/", [("Authorization", bearer)]
    yield "/", [("Authorization", "Basic YTpi")]
    yield "/", [("Cookie", f"a=1; __Host-cellgate={token}")]
    yield "/", [("Sec-WebSocket-Protocol", f"cellgate, cellgate.bearer.{token}")]
    for name in ("OpenSandbox-Secure-Access", "X-OC-Preview-Token", "X-Daytona-Preview-Token", "e2b-traffic-access-token", "OPEN-SANDBOX-INGRESS", "OPEN-SANDBOX-API-KEY"):
        yield "/", [(name, token)]
    for name in ("cellgate_token", "cellgat%65_token", "%63ellgate_token", "DAYTONA_SANDBOX_AUTH_KEY", "signature"):
        yield f"/?a=b&{name}={token}", []
        yield f"/?{name}={token}&a=b", []
    yield "/ws", WEBSOCKET
    yield "/ws", [*WEBSOCKET, ("Authorization", bearer)]


def test_a_credential_without_tls_is_refused_and_lost(cell, origin):
    before = len(origin.requests)
    for target, headers in sources(cell.token()):
        answer = plain(cell, target="/s/sb-1" + target, headers=headers)
        body = json.loads(answer.body)
        assert (answer.status, body["error"], body["retryable"]) == (403, "https_required", False), (target, headers)
        assert "replaced" in body["message"]
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert plain(cell, method).status == 403
    assert plain(cell, host=None).status in (400, 403)
    assert len(origin.requests) == before


def test_strict_transport_security_is_said_over_tls_alone(cell, origin):
    def answer(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=1; preload\r\nContent-Length: 0\r\n\r\n")

    origin.answer, kept = answer, origin.answer
    try:
        for target, status in (("/s/sb-1/", 200), ("/nothing", 404)):
            answer = ask(cell, STRANGER, target=target)
            assert (answer.status, answer.all("strict-transport-security")) == (status, ["max-age=300"])
        assert plain(cell).all("strict-transport-security") == []
    finally:
        origin.answer = kept


# ---- by default ----


def test_by_default_nobody_is_believed_and_the_quickstart_allows_plain_http(cells, origin):
    cell = cells(sandboxes={"sb-1": {"worker": origin.url}}, config={"routes": ROUTES})
    forged = [("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Proto", "https")]
    for source in (PROXY, FORWARDER):
        assert seen(origin, ask(cell, source, forged, tls=False)) == (source, "http")
        assert ask(cell, source, first=v1("203.0.113.7"), tls=False).status == 400
    assert request(cell.http, "GET", "/s/sb-1/", [cell.bearer()]).status == 200


def test_haproxys_own_socket_shows_and_changes_nothing(cell):
    def said(command):
        with socket.socket(socket.AF_UNIX) as stats:
            stats.connect(str(cell.run_dir / "haproxy.sock"))
            stats.sendall(command + b"\n")
            return stats.makefile().read()

    assert "relay" in said(b"show servers state relay") or "relay" in said(b"show stat")
    assert "ermission denied" in said(b"disable server relay/relay")
