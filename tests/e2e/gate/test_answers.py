# SPDX-License-Identifier: MIT
"""What clients see of a worker's answers, under a host of its own and below a prefix, direct and through the relay: redirects
and cookies that work, repeated headers in order, and nothing that is meant for what stands in between."""

import subprocess

import pytest
from browser import Browser
from cell import haproxy_version
from client import Http1, Http2, frame
from origin import switch

CONFIG = {
    "domains": {"e2b": ["e2b.test"]},
    "routes": [
        {"name": "host", "host": "{port}-{sandbox}.<e2b>", "need": "none"},
        {"name": "below", "path": "/p/{sandbox}/{port}/{rest...}", "to": "/{rest...}", "need": "none", "cookies": "keep"},
        {"name": "api", "path": "/api/sandboxes/{sandbox}/{rest...}", "to": "/sandboxes/{sandbox}/{rest...}", "need": "none"},
        {"name": "moved", "path": "/moved/{sandbox}/{rest...}", "to": "/other/{rest...}", "need": "none"},
        {"name": "relay", "path": "/r/{sandbox}/{rest...}", "to": "/{rest...}", "need": "none", "upgrade": True, "via": "relay"},
    ],
}


class Answers:
    """An origin that answers with the lines that the test gives, and a 101 with them to an upgrade."""

    def __init__(self, origins):
        self.lines, self.status = [], "200 OK"
        self.interim = b""  # said before the answer
        self.origin = origins(answer=self.answer, upgrade=self.upgrade)

    def answer(self, connection, request):
        lines = "".join(f"{line}\r\n" for line in self.lines)
        connection.send(self.interim)
        connection.send(f"HTTP/1.1 {self.status}\r\n{lines}Content-Length: 0\r\n\r\n".encode())

    def upgrade(self, connection, request):
        if not self.status.startswith("101"):
            return self.answer(connection, request)
        connection.send(self.interim)
        switch(connection, request, "".join(f"{line}\r\n" for line in self.lines).encode())
        while data := connection.read():
            connection.send(self.echo(data))

    @staticmethod
    def echo(data):
        """A masked frame comes back as a server sends it."""
        if data[0] != 0x82 or not data[1] & 0x80:
            return data
        return data[:1] + bytes([data[1] & 0x7f]) + bytes(b ^ data[2 + i % 4] for i, b in enumerate(data[6:]))


@pytest.fixture(scope="module")
def worker(origins):
    return Answers(origins)


@pytest.fixture(scope="module")
def cell(cells, worker):
    # The worker's address is no name that a client would use; `sb-other` is reached under the port that is asked for.
    records = {"sb-1": {"worker": worker.origin.url, "headers": {"X-EXECD-ACCESS-TOKEN": "of the record", "X-Record-Key": "secret"}},
               "sb-2": {"worker": worker.origin.url}}
    return cells(sandboxes=records, config=CONFIG)


@pytest.fixture(params=["http", "https", "h2"])
def client(request, cell):
    make = {"http": lambda: Http1(cell.http), "https": lambda: Http1(cell.https, tls=True), "h2": lambda: Http2(cell.https)}
    with make[request.param]() as connection:
        connection.kind = request.param
        yield connection


def ask(client, worker, target, lines, status="200 OK", **more):
    worker.lines, worker.status = lines, status
    return client.request("GET", target, **more)


BELOW = "/p/sb-2/{port}"  # {port}: the worker's


def filled(worker, text):
    return text.replace("{port}", str(worker.origin.port))


# ---- Location ----

REDIRECTS = [
    # what the worker says, what the client sees below the prefix, and under the host (None: unchanged)
    ("login", "login", None),
    ("?again", "?again", None),
    ("/login", "/p/sb-2/{port}/login", None),
    ("/", "/p/sb-2/{port}/", None),
    ("/login?next=/a%2Fb&x=http://127.0.0.1:{port}/", "/p/sb-2/{port}/login?next=/a%2Fb&x=http://127.0.0.1:{port}/", None),
    ("/p/sb-2/{port}/login", "/p/sb-2/{port}/login", None),
    ("/p/sb-2/{port}", "/p/sb-2/{port}", None),
    ("/p/sb-2/{port}9/x", "/p/sb-2/{port}/p/sb-2/{port}9/x", None),
    ("http://127.0.0.1:{port}/login?a=b#c", "/p/sb-2/{port}/login?a=b#c", "/login?a=b#c"),
    ("HTTP://127.0.0.1:{port}/Login", "/p/sb-2/{port}/Login", "/Login"),
    ("http://127.0.0.1:{port}", "/p/sb-2/{port}/", "/"),
    ("http://127.0.0.1:{port}?a=b/c", "/p/sb-2/{port}/?a=b/c", "/?a=b/c"),
    ("http://127.0.0.1:{port}#c", "/p/sb-2/{port}/#c", "/#c"),
    ("http://127.0.0.1:{port}/login?next=http://elsewhere.test/a", "/p/sb-2/{port}/login?next=http://elsewhere.test/a", "/login?next=http://elsewhere.test/a"),
    ("http://127.0.0.1:{port}?next=http://elsewhere.test/a", "/p/sb-2/{port}/?next=http://elsewhere.test/a", "/?next=http://elsewhere.test/a"),
    # two slashes in front, as browsers read them, would be the name of a host
    ("http://127.0.0.1:{port}//elsewhere.test/a", "/p/sb-2/{port}/.//elsewhere.test/a", "/.//elsewhere.test/a"),
    ("http://127.0.0.1:{port}/\\elsewhere.test/a", "/p/sb-2/{port}/./\\elsewhere.test/a", "/./\\elsewhere.test/a"),
    ("http://127.0.0.1:{port}/\t/elsewhere.test/a", "/p/sb-2/{port}/./\t/elsewhere.test/a", "/./\t/elsewhere.test/a"),
    # no scheme is that of the page; a worker that redirects an upgrade may say ws
    ("//127.0.0.1:{port}/login?a=b#c", "/p/sb-2/{port}/login?a=b#c", "/login?a=b#c"),
    ("//127.0.0.1:{port}", "/p/sb-2/{port}/", "/"),
    ("//127.0.0.1:{port}?next=//elsewhere.test/a", "/p/sb-2/{port}/?next=//elsewhere.test/a", "/?next=//elsewhere.test/a"),
    ("//127.0.0.1:{port}//elsewhere.test", "/p/sb-2/{port}/.//elsewhere.test", "/.//elsewhere.test"),
    ("http://127.0.0.1:{port}//elsewhere.test", "/p/sb-2/{port}/.//elsewhere.test", "/.//elsewhere.test"),
    ("ws://127.0.0.1:{port}/ws", "/p/sb-2/{port}/ws", "/ws"),
    ("WSS://127.0.0.1:{port}?a", "/p/sb-2/{port}/?a", "/?a"),
    ("//127.0.0.1:1/login", None, None),
    ("ftp://127.0.0.1:{port}/login", None, None),
    ("http://127.0.0.1:1/login", None, None),
    ("//elsewhere.test/login", None, None),
    ("https://elsewhere.test/login?back=/", None, None),
    ("https://elsewhere.test/", None, None),
    ("mailto:someone@elsewhere.test", None, None),
]


@pytest.mark.parametrize("said,below,under", REDIRECTS)
def test_a_redirect_leads_where_the_client_can_follow(cell, worker, said, below, under):
    said, below, under = (filled(worker, x) if x else x for x in (said, below, under))
    lines = ["Location: " + said]
    with Http1(cell.http) as client:
        seen = ask(client, worker, filled(worker, BELOW + "/a"), lines, "302 Found")
        assert (seen.status, seen.all("location")) == (302, [below or said])
        seen = ask(client, worker, "/a", lines, "302 Found", host=f"{worker.origin.port}-sb-2.e2b.test")
        assert (seen.status, seen.all("location")) == (302, [under or said])


def test_a_redirect_to_the_clients_own_host(client, worker):
    """An application that knows its host, but neither that the client came with TLS nor the prefix."""
    host, tls = f"{worker.origin.port}-sb-2.e2b.test:8443", client.kind != "http"
    for said, seen in [("http://{host}/a", "/a" if tls else None), ("ws://{host}/a", "/a" if tls else None), ("https://{host}/a", None), ("//{host}/a", None)]:
        said = said.replace("{host}", host)
        got = ask(client, worker, "/", ["Location: " + said], "307 Temporary Redirect", host=host)
        assert got.all("location") == [seen or said]
    below = filled(worker, BELOW)
    for said in ("http://Cell.Test/a", "https://cell.test/a", "//cell.test/a", "wss://cell.test/a", f"https://cell.test{below}/a"):
        assert ask(client, worker, below + "/", ["Location: " + said], "301 Moved Permanently").all("location") == [below + "/a"]


def test_a_prefix_is_told_and_is_what_the_worker_does_not_see(client, worker):
    for target, prefix, path in [
        (filled(worker, BELOW + "/a/b?c"), filled(worker, BELOW), "/a/b?c"),
        (filled(worker, BELOW), filled(worker, BELOW), "/"),
        ("/api/sandboxes/sb-2/files", "/api", "/sandboxes/sb-2/files"),
        ("/moved/sb-2/a", None, "/other/a"),
        ("/p/sb-2/1|/x", None, None),  # no port
    ]:
        got = ask(client, worker, target, ["Location: /next"])
        assert got.status == 200 if path else got.status == 400, target
        if path:
            seen = worker.origin.requests[-1]
            assert (seen.target, seen.get("x-forwarded-prefix")) == (path, prefix)
            assert got.all("location") == [(prefix or "") + "/next"]


def test_a_forged_prefix_is_not_believed(client, worker):
    got = ask(client, worker, "/moved/sb-2/", ["Location: /next"], headers=[("X-Forwarded-Prefix", "/evil"), ("X_Forwarded_Prefix", "/evil")])
    assert got.all("location") == ["/next"]
    assert not any(name.startswith("x-forwarded-prefix") or "_" in name for name in worker.origin.requests[-1].names)


# ---- cookies ----

COOKIES = [
    # what the worker sets, what the client gets below the prefix /P, and under a host (None: unchanged)
    ("a=1", None, None),
    ("a=1; Path=/", "a=1; Path=/P/", None),
    ("a=1; path=/x/y; HttpOnly", "a=1; path=/P/x/y; HttpOnly", None),
    ("a=1; Path=/P; Secure", "a=1; Path=/P; Secure", None),
    ("a=1; Path=/P/x; Secure", "a=1; Path=/P/x; Secure", None),
    ("a=1; Path=/P9", "a=1; Path=/P/P9", None),
    ("a=1; Path=relative", None, None),
    ("a=1; Path=/x; Path=/", "a=1; Path=/x; Path=/P/", None),
    ("a=/; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/", "a=/; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/P/", None),
    ("a=b|c; Path=/", "a=b|c; Path=/P/", None),
    ("a=1; Domain=127.0.0.1; Path=/", "a=1; Path=/P/", "a=1; Path=/"),
    ("a=1; Path=/; domain=.e2b.test; Secure", "a=1; Path=/P/; Secure", "a=1; Path=/; Secure"),
    ("a=1; Domain=x; Domain=.test", "a=1", "a=1"),
    ("domain=1; Path=/", "domain=1; Path=/P/", None),
    ("__Host-a=1; Secure; Path=/", None, None),
    ("__Host-cellgate=forged; Secure; Path=/", "", ""),
    (" __Host-cellgate =forged", "", ""),
]


def test_cookies_belong_to_the_host_and_the_prefix_of_the_sandbox(client, worker):
    """All of them in one answer: repeated headers stay repeated and in order."""
    below = filled(worker, BELOW)
    lines = ["Set-Cookie: " + said.replace("/P", below) for said, _, _ in COOKIES]
    seen = ask(client, worker, below + "/", lines).all("set-cookie")
    assert seen == [(said if want is None else want).replace("/P", below) for said, want, _ in COOKIES]
    seen = ask(client, worker, "/", ["Set-Cookie: " + said for said, _, _ in COOKIES], host=f"{worker.origin.port}-sb-2.e2b.test").all("set-cookie")
    assert seen == [said if want is None else want for said, _, want in COOKIES]


def test_a_cookie_with_ever_more_domains_is_no_cookie(client, worker):
    got = ask(client, worker, filled(worker, BELOW + "/"), ["Set-Cookie: a=1" + "; Domain=.test" * 3, "X: y"])
    assert not got.all("set-cookie") and got.all("x") == ["y"]


# ---- what does not leave ----

INTERNAL = ["X-Cell-Handover: x", "x_cell_org: x", "X-EXECD-ACCESS-TOKEN: x", "X_Execd_Access_Token: x", "OPENSANDBOX-EGRESS-AUTH: x",
            "OpenSandbox-Secure-Access: x", "OPEN-SANDBOX-API-KEY: x", "X-OC-Preview-Token: x", "X-Daytona-Preview-Token: x",
            "Alt-Svc: h3=\":443\"", "Keep-Alive: timeout=5"]
PASSED = ["X-One: 1", "X-Two: a, b", "X-One: 2", "X-Two: c", "X-One: ", "Vary: Accept", "Vary: Origin", "Link: </a>; rel=x", "Link: </b>; rel=y",
          "WWW-Authenticate: Basic realm=\"a\"", "WWW-Authenticate: Digest x=y", "X-Cell: mine", "Refresh: 5"]


def passed(seen):
    names = {line.partition(":")[0].lower() for line in PASSED + INTERNAL}
    return [(name.lower(), value) for name, value in seen if name.lower() in names]


def test_internal_headers_stay_inside_and_all_others_pass_in_order(client, worker):
    for target, host in [(filled(worker, BELOW + "/"), "cell.test"), ("/", f"{worker.origin.port}-sb-2.e2b.test")]:
        got = ask(client, worker, target, PASSED[:5] + INTERNAL + ["Upgrade: h2c", "Service-Worker-Allowed: /"] + PASSED[5:], host=host)
        assert passed(got.headers) == [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in PASSED)]
        assert not got.all("upgrade") and got.all("service-worker-allowed") == ([] if host == "cell.test" else ["/"])


@pytest.mark.parametrize("tls", [False, True])
def test_the_same_holds_for_an_upgrade_direct_and_through_the_relay(cell, worker, tls):
    port = worker.origin.port
    lines = PASSED + INTERNAL + ["Set-Cookie: a=1; Path=/; Domain=.test", "Set-Cookie: b=2; Path=/"]
    for target, below in [(f"/p/sb-1/{port}/ws", f"/p/sb-1/{port}"), ("/r/sb-1/ws", "/r/sb-1")]:
        with Http1(cell.https if tls else cell.http, tls=tls) as client:
            worker.lines, worker.status = lines, "101 Switching Protocols"
            got = client.upgrade(target)
            assert got.status == 101
            assert passed(got.headers) == [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in PASSED)]
            assert got.all("set-cookie") == [f"a=1; Path={below}/", f"b=2; Path={below}/"]
            seen = worker.origin.requests[-1]
            assert (seen.target, seen.get("x-forwarded-prefix"), seen.get("x-execd-access-token")) == ("/ws", below, "of the record")


@pytest.mark.parametrize("target", ["/p/sb-1/{port}/ws", "/r/sb-1/ws"])
def test_an_upgrade_that_is_redirected_is_passed_on_and_not_followed(cell, worker, target):
    target = filled(worker, target)
    with Http1(cell.http) as client:
        worker.lines, worker.status = ["Location: /login", *INTERNAL], "302 Found"
        got = client.upgrade(target, [("X-Once", target)])
        assert (got.status, got.all("location")) == (302, [target.removesuffix("/ws") + "/login"])
        # a tunnel of an earlier test may still be redialled
        assert len([r for r in worker.origin.requests if r.get("x-once") == target]) == 1 and not passed(got.headers)


# ---- the framing of answers ----

# what stands beside a good 101, and whether it opens a tunnel: RFC 9110 section 8.6 forbids any length, and many servers say 0
GOOD, BAD, DROPPED = 0, 1, 2  # DROPPED: from HAProxy 3.2 on by itself, on direct routes; else bad
FRAMED = {"Content-Length: 0": GOOD, "Content-Length: 00": GOOD, "content-length:0": GOOD, "Content-Length: 0|Content-Length: 0": GOOD, "Content-Length: 0|Content-Length: 5": BAD,
          "Content-Length: 5": DROPPED, "Content-Length: 10": DROPPED, "Transfer-Encoding: chunked": DROPPED, "Content-Length: 0|Transfer-Encoding: chunked": DROPPED}


@pytest.mark.parametrize("lines", FRAMED)
def test_a_101_may_say_that_it_has_no_body_and_nothing_else(cell, worker, lines):
    worker.lines, worker.status = lines.split("|"), "101 Switching Protocols"
    for direct, target in (True, "/p/sb-1/{port}/ws"), (False, "/r/sb-1/ws"):
        opens = FRAMED[lines] == GOOD or (FRAMED[lines] == DROPPED and direct and haproxy_version() >= (3, 2))
        for client in Http1(cell.http), Http2(cell.https):
            with client:
                got = client.upgrade(filled(worker, target))
                assert got.status == ((101 if isinstance(client, Http1) else 200) if opens else 502), target
                if opens:
                    assert not got.all("content-length") and not got.all("transfer-encoding")
                    # what a client sends must look like a frame to the relay
                    client.send(b"frames" if direct else frame(2, b"frames", mask=b"abcd"))
                    assert client.read_exactly(6 if direct else 8)[-6:] == b"frames"


LINES = [(["a", "b"], "a, b", "b"), (["a", "b", "c, d"], "a, b, c, d", "c"), (["cellgate", "a", "cellgate.bearer.$", "b"], "a, b", "a"), (["cellgate", "cellgate.bearer.$"], None, "cellgate")]


@pytest.mark.parametrize("lines, seen, selected", LINES)
def test_subprotocols_in_several_lines_are_one_list(cell, worker, lines, seen, selected):
    """RFC 6455 section 11.3.4. The worker gets one line, by whichever way, without what is ours."""
    worker.lines, worker.status = [f"Sec-WebSocket-Protocol: {selected}"] if selected != "cellgate" else [], "101 Switching Protocols"
    for target in "/p/sb-1/{port}/ws", "/r/sb-1/ws":
        for client in Http1(cell.http), Http2(cell.https):
            with client:
                got = client.upgrade(filled(worker, target), [("Sec-WebSocket-Protocol", line.replace("$", "eyJ")) for line in lines])
                assert got.status in (101, 200) and got.all("sec-websocket-protocol") == [selected]
                (line,) = worker.origin.requests[-1].all("sec-websocket-protocol") or [None]
                assert line == seen or line.replace(",", ", ") == seen


def test_another_offer_than_a_websocket_is_ignored(cell, worker):
    """Java's client and curl --http2 offer h2c with each request without TLS (RFC 9110 section 7.8)."""
    worker.lines, worker.status = [], "200 OK"
    offer = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA")]
    for target in filled(worker, BELOW + "/a"), "/moved/sb-2/a":
        for method, body in ("GET", b""), ("POST", b"words"):
            with Http1(cell.http) as client:
                assert client.request(method, target, offer, body).status == 200
            seen = worker.origin.requests[-1]
            assert not {"upgrade", "http2-settings"} & set(seen.names) and "pgrade" not in str(seen.all("connection"))
    port = cell.http
    done = subprocess.run(["curl", "-s", "--http2", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", f"http://127.0.0.1:{port}{filled(worker, BELOW)}/a"], capture_output=True, text=True)
    assert done.stdout == "200 1.1"


# The relay knows 100 to 599. To HAProxy leading zeros are none, and from 65536 on it counts anew: docs/haproxy.md.
NO_STATUS = ["099", "000", "001", "99", "1000", "1101", "9999", "65535", "20x", "-20", "+200"]


def test_what_is_no_status_is_no_answer(cell, worker):
    """Its length would be lost with it: what follows would be the next answer's."""
    worker.lines = ["X-A: b"]
    for worker.status in (f"{status} x" for status in NO_STATUS):
        for client in Http1(cell.http), Http2(cell.https):
            with client:
                assert client.request("GET", filled(worker, BELOW + "/a")).status == 502, worker.status
    for target in filled(worker, BELOW + "/ws"), "/r/sb-1/ws":
        with Http1(cell.http) as client:
            assert client.upgrade(target).status == 502


# ---- interim answers ----


@pytest.fixture
def hints(worker):
    """Two interim answers with what the last one must not have, before each answer."""
    lines = [*INTERNAL, "Set-Cookie: __Host-cellgate=x; Path=/", "Link: </a>; rel=preload"]
    worker.interim = "".join(f"HTTP/1.1 {status}\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n" for status in ("100 Continue", "103 Early Hints")).encode()
    yield [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines)]
    worker.interim = b""


def test_interim_answers_of_direct_workers_pass_as_they_are(client, worker, hints):
    """HAProxy hands them on before any rule is asked, and has none for them (docs/haproxy.md): what is in them is between a
    worker and its client. The answer behind them has been through the rules."""
    got = ask(client, worker, filled(worker, BELOW + "/"), INTERNAL + ["Set-Cookie: __Host-cellgate=x; Path=/", "X-One: 1"])
    assert got.status == 200 and passed(got.headers) == [("x-one", "1")] and not any(got.all("set-cookie"))
    assert [seen.status for seen in client.interim] == [100, 103]
    whole = sorted(pair for pair in hints if client.kind != "h2" or pair[0] != "keep-alive")  # HTTP/2 has no such header
    for seen in client.interim:
        assert sorted((name.lower(), value) for name, value in seen.headers) == whole


def test_interim_answers_stay_behind_the_relay(cell, worker, hints):
    with Http1(cell.http) as client:
        worker.lines, worker.status = PASSED[:1] + INTERNAL, "101 Switching Protocols"
        got = client.upgrade("/r/sb-1/ws")
        assert got.status == 101 and passed(got.headers) == [("x-one", "1")]
        assert not client.interim


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_browser_takes_no_cookie_from_an_interim_answer(cell, worker, scheme):
    """Nor one for the domain that all sandboxes share: that would be the one harm that such an answer can do."""
    host, port = f"{worker.origin.port}-sb-2.e2b.test", cell.https if scheme == "https" else cell.http
    worker.lines, worker.status = ["Set-Cookie: last=1; Path=/", "Content-Type: text/html"], "200 OK"
    worker.interim = b"HTTP/1.1 103 Early Hints\r\nSet-Cookie: early=1; Path=/\r\nSet-Cookie: wide=1; Path=/; Domain=e2b.test\r\n\r\n"
    try:
        with Browser("--ignore-certificate-errors", "--host-resolver-rules=MAP *.e2b.test 127.0.0.1") as browser:
            browser.open(f"{scheme}://{host}:{port}/")
            jar = lambda: browser.call("Network.getCookies", urls=[f"{scheme}://{host}:{port}/"])["cookies"]  # noqa: E731
            heard = lambda: any(event["method"] == "Network.responseReceivedEarlyHints" for event in browser.events)  # noqa: E731
            cookies = browser.wait(lambda: (had := jar()) and (scheme == "http" or heard()) and had, "a cookie, and over HTTP/2 the interim answer")
    finally:
        worker.interim = b""
    assert [cookie["name"] for cookie in cookies] == ["last"]
