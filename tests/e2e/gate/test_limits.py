# SPDX-License-Identifier: MIT
"""What a route says of its upgrades and requests, through the whole stack: refusals as closes, headers stripped and set, origins,
times and sizes, and how much one sandbox or organisation may have at a time."""

import json
import os
import re
import select
import threading
import time

import pytest
from browser import Browser
from cell import closed_port, token, until
from client import Http1, Http2, request
from direct import CLOSE, PING
from origin import respond, switch
from tunnels import QUICK, Tunnels, pass_both_ways, route

ROUTES = [
    route("plain"),
    route("http", "pty"),
    route("closing", "pty", refuse="close"),
    {"name": "direct", "path": "/direct/{sandbox}/{rest...}", "to": "/{rest...}", "need": "pty", "upgrade": True, "refuse": "close"},
    route("headers", strip=["X-Drop", "Origin"], set={"X-Set": "of the route", "X-Both": "of the route"}, origins=["*"], auth="keep", cookies="keep"),
    route("listed", origins=["https://app.test", "https://other.test:8443"]),
    route("any", origins=["*"]),
    {"name": "own", "path": "/own/{sandbox}/{rest...}", "to": "/{rest...}", "need": "none", "upgrade": True},
    route("idle", idle="400ms"),
    route("old", max_age="400ms"),
    route("small", max_message="100B"),
    route("still", timeout="400ms"),
    {"name": "still-direct", "path": "/still-direct/{sandbox}/{rest...}", "to": "/{rest...}", "need": "none", "upgrade": True, "timeout": "400ms"},
    {"name": "short", "path": "/short/{sandbox}/{rest...}", "to": "/{rest...}", "need": "none", "timeout": "300ms"},
    {"name": "pages", "path": "/pages/{sandbox}/{rest...}", "to": "/{rest...}", "need": "none"},
    {"name": "api", "path": "/api/sandboxes/{sandbox}/{rest...}", "need": "none"},
]
RELAY = QUICK | {"connect_budget": "200ms", "dial_timeout": "2s", "max_tunnels_per_sandbox": 2, "max_tunnels_per_org": 3}


@pytest.fixture(scope="module")
def tunnels(cells):
    made = Tunnels(cells(config={"relay": RELAY, "routes": ROUTES}))
    yield made
    made.close()


class At:
    """A worker that is nothing but an address."""

    def __init__(self, url):
        self.url = url


# ---- refusals as closes ----


def head_of(tunnels, client):
    line, fields = client.head()
    assert line.split()[1] == "101", line
    return fields


@pytest.mark.parametrize("name", ["closing", "direct"])
def test_each_refusal_of_the_agent_is_a_code_that_a_browser_can_read(tunnels, name):
    up = tunnels.sandbox(tunnels.worker(), org="acme")
    cases = [
        (up, None, "4401 token_missing"),
        (up, {"secret": b"another secret of 32 bytes or more."}, "4401 token_invalid"),
        (up, {"ttl": -60}, "4401 token_expired"),
        (up, {"aud": "cell-x"}, "4403 wrong_cell"),
        (up, {"sandbox": "sb-x"}, "4403 wrong_sandbox"),
        (up, {"need": ["http"]}, "4403 not_granted"),
        (up, {"org": "other"}, "4404 sandbox_not_found"),
        ("absent", {}, "4404 sandbox_not_found"),
        (tunnels.sandbox(state="stopped"), {}, "4410 sandbox_stopped"),
        (tunnels.sandbox(At("http://192.0.2.1:1")), {}, "4502 worker_unreachable"),
    ]
    for sandbox, claims, want in cases:
        headers = [] if claims is None else [("Authorization", "Bearer " + token(**{"sandbox": sandbox} | claims))]
        client = tunnels.ask(sandbox, name, headers=headers)
        head_of(tunnels, client)
        code, reason = client.closed()
        assert f"{code} {reason}" == want, (sandbox, claims)
    client = tunnels.ask(up, name, headers=[tunnels.cell.bearer(up), ("Origin", "https://evil.test")])
    head_of(tunnels, client)
    assert client.closed() == (4403, "origin_refused")


def test_who_is_refused_takes_no_place_of_the_sandboxs(tunnels):
    worker = tunnels.worker()
    up = tunnels.sandbox(worker, org="acme")
    refused = [tunnels.ask(up, "closing") for _ in range(4)]  # two are allowed at a time; these do not answer their Close
    for client in refused:
        head_of(tunnels, client)
    client, _ = tunnels.open(worker, up, "closing", headers=[tunnels.cell.bearer(up)])
    for peer in [client, *refused]:
        peer.close()
    tunnels.gone(up)


def test_refusals_of_the_relay_and_of_the_worker_are_closes_too(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)

    def ask(name=sandbox):
        return tunnels.ask(name, "closing", headers=[tunnels.cell.bearer(name)])

    def told(client):
        head_of(tunnels, client)
        return client.closed()

    client = ask()
    worker.refuse("404 Not Found", b"no such session")
    assert told(client) == (4404, "worker_refused")
    client = ask()
    worker.refuse("302 Found", b"", "Location: /elsewhere")
    assert told(client) == (4502, "worker_refused")
    client = ask()
    silent = worker.take()
    assert told(client) == (4504, "worker_timeout")
    silent.close()
    assert told(ask(tunnels.sandbox(At(f"http://127.0.0.1:{closed_port()}")))) == (4502, "worker_unreachable")
    for _ in range(2):
        tunnels.open(worker, sandbox, "closing", headers=[tunnels.cell.bearer(sandbox)])
    assert told(ask()) == (4503, "too_many_tunnels")
    assert tunnels.metric('cellgate_relay_refused_total{error="too_many_tunnels"}') >= 1


def test_a_close_comes_with_a_subprotocol_that_was_offered_and_never_the_token(tunnels):
    """A browser that offers subprotocols and is given none ends with 1006 and does not read what follows."""
    for offered, selected in [("binary, base64", "binary"), ("cellgate.bearer.x.y.z, cellgate", "cellgate"), ("cellgate.bearer.x.y.z", None)]:
        for name in ("closing", "direct"):
            client = tunnels.ask("absent", name, headers=[("Sec-WebSocket-Protocol", offered)])
            assert head_of(tunnels, client).get("sec-websocket-protocol") == selected
            assert client.closed()[0] == 4401


def test_without_refuse_close_it_is_http(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    assert tunnels.refused(sandbox, "http") == (401, "token_missing")
    client = tunnels.ask(sandbox, "http", headers=[tunnels.cell.bearer(sandbox)])
    worker.refuse("404 Not Found", b'{"a":1}')
    assert tunnels.answer(client)[::2] == (404, {"a": 1})


def test_a_browser_reads_why(tunnels, origins):
    def page(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 10\r\n\r\n<p>app</p>")

    pages = origins(answer=page)
    tunnels.place("page", pages)
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    good = tunnels.cell.token(sandbox)
    with Browser("--ignore-certificate-errors") as browser:
        for url in (f"http://127.0.0.1:{tunnels.cell.http}", f"https://127.0.0.1:{tunnels.cell.https}"):
            browser.open(url + "/pages/page/")
            browser.wait(lambda: browser.text("p"), "no page")

            def told(path, protocols, url=url):
                return browser.evaluate(
                    f"new Promise(done => {{ const s = new WebSocket({json.dumps(url.replace('http', 'ws', 1) + path)}, {json.dumps(protocols)});"
                    "s.onopen = () => s.send('opened'); s.onclose = e => done([e.code, e.reason]); })"
                )

            for name in ("closing", "direct"):
                assert told(f"/{name}/{sandbox}/s1", []) == [4401, "token_missing"]
                assert told(f"/{name}/{sandbox}/s1", ["cellgate", "cellgate.bearer." + token(sandbox="sb-x")]) == [4403, "wrong_sandbox"]
                assert told(f"/{name}/{sandbox}/s1", ["binary", "cellgate.bearer." + token(sandbox=sandbox, ttl=-60)]) == [4401, "token_expired"]
                assert told(f"/{name}/absent/s1", ["cellgate", "cellgate.bearer." + tunnels.cell.token("absent")]) == [4404, "sandbox_not_found"]
            assert told(f"/http/{sandbox}/s1", []) == [1006, ""]

            def serve():
                upstream = worker.serve()
                assert not {"sec-websocket-protocol", "authorization"} & set(upstream.fields)
                assert upstream.message() == (1, b"opened")
                upstream.close_with(4000, b"done")
                upstream.hear()
                upstream.close()

            for name in ("closing", "direct"):
                server = threading.Thread(target=serve)
                server.start()
                assert told(f"/{name}/{sandbox}/s1", ["cellgate", "cellgate.bearer." + good]) == [4000, "done"]
                server.join()
        browser.open(f"http://localhost:{tunnels.cell.http}/pages/page/")  # another origin
        browser.wait(lambda: browser.evaluate("location.hostname + document.readyState") == "localhostcomplete", "no other page")
        http = f"http://127.0.0.1:{tunnels.cell.http}"
        assert told(f"/closing/{sandbox}/s1", ["cellgate", "cellgate.bearer." + good], http) == [4403, "origin_refused"]


# ---- headers through the relay ----


def test_headers_are_stripped_and_set_and_the_others_pass_in_order(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker, headers={"X-Both": "of the record", "X-Record": "secret", "OPENSANDBOX-EGRESS-AUTH": "egress"})
    headers = [("X-A", "1"), ("X-Drop", "x"), ("x_drop", "x"), ("Origin", "https://app.test"), ("X-B", "a, b"), ("X-A", "2"), ("X-Set", "forged"), ("X_Set", "forged"),
               ("x-both", "forged"), ("X_RECORD", "forged"), ("X-A", ""), ("Cookie", "a=1"), ("Cookie", "b=2"), ("Authorization", "Basic YTpi"),
               ("traceparent", "00-1"), ("X-Cell-Handover", "route=plain;sandbox=x"), ("X-Forwarded-For", "6.6.6.6")]
    client, upstream = tunnels.open(worker, sandbox, "headers", headers=headers)
    text = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in upstream.lines)]

    def all_of(name):
        return [value for key, value in text if key.replace("_", "-") == name]

    assert all_of("x-a") == ["1", "2", ""] and all_of("x-b") == ["a, b"] and all_of("traceparent") == ["00-1"]
    assert not all_of("x-drop") and not all_of("origin") and not all_of("x-cell-handover")
    assert all_of("x-set") == ["of the route"] and all_of("x-record") == ["secret"] and all_of("opensandbox-egress-auth") == ["egress"]
    assert all_of("x-both") == ["of the record"] and all_of("authorization") == ["Basic YTpi"]
    assert "; ".join(all_of("cookie")) == "a=1; b=2" and all_of("x-forwarded-for") == ["127.0.0.1"]
    pass_both_ways(client, upstream)
    upstream.reset()  # a redial sends the same
    again = worker.serve()
    assert again.lines[1:] == [line if not line.startswith("Sec-WebSocket-Key") else again.lines[upstream.lines.index(line)] for line in upstream.lines[1:]]


# ---- origins ----


@pytest.mark.parametrize(
    "name,origin,good",
    [
        ("listed", "https://app.test", True),
        ("listed", "https://other.test:8443", True),
        ("listed", "https://other.test", False),
        ("listed", "http://app.test", False),
        ("listed", "https://app.test.evil.test", False),
        ("listed", "https://cell.test", False),
        ("listed", "null", False),
        ("listed", None, True),
        ("any", "https://evil.test", True),
        ("plain", "http://cell.test", True),
        ("plain", "https://cell.test", True),
        ("plain", "https://evil.test", False),
        ("plain", "null", False),
        ("own", "https://cell.test", True),
        ("own", "https://evil.test", False),
    ],
)
def test_origins_of_upgrades(tunnels, name, origin, good):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    headers = [("Origin", origin)] if origin else []
    if good:
        client, upstream = tunnels.open(worker, sandbox, name, headers=headers)
        assert upstream.fields.get("origin") == origin
        client.close()
        tunnels.gone(sandbox)
    else:
        assert tunnels.refused(sandbox, name, headers=headers) == (403, "origin_refused")
        assert not worker.dials(0.05)


# ---- times and sizes of a route ----


def test_a_tunnel_is_closed_when_its_route_says_so(tunnels):
    worker = tunnels.worker()
    idle, old = tunnels.open(worker, route="idle"), tunnels.open(worker, route="old")
    began = time.monotonic()
    still, direct = tunnels.open(worker, route="still"), tunnels.open(worker, route="still-direct")
    for _ in range(3):
        time.sleep(0.1)
        old[0].say(b"x")  # in use, and old all the same
        idle[0].say(b"", PING)  # is no use of it
    assert idle[0].closed() == (1001, "idle")
    assert old[0].closed() == (1001, "max age")
    assert still[0].ended() and direct[0].ended() and time.monotonic() - began >= 0.35


def test_a_message_larger_than_the_routes_limit_ends_the_tunnel(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker, route="small")
    pass_both_ways(client, upstream, b"x" * 96)
    client.say(b"x" * 101)
    assert client.closed() == (1009, "message too big")
    client, upstream = tunnels.open(worker, route="small")
    upstream.say(b"x" * 60, fin=False)
    upstream.say(b"x" * 60, opcode=0)
    heard = []
    while not heard or heard[-1][0] != CLOSE:
        heard.append(client.hear())
    assert heard[-1][1][:2] == (1009).to_bytes(2, "big")


def test_a_request_that_hangs_for_longer_than_the_routes_timeout(tunnels, origins):
    def hang(connection, request):
        if request.target == "/hang":
            time.sleep(3)
        respond(connection, request)

    tunnels.place("hangs", origins(answer=hang))
    began = time.monotonic()
    answer = request(tunnels.cell.http, "GET", "/short/hangs/hang")
    assert (answer.status, json.loads(answer.body)["error"]) == (504, "worker_timeout") and time.monotonic() - began < 2.9
    assert request(tunnels.cell.http, "GET", "/pages/hangs/hang").status == 200


@pytest.mark.skipif(not os.environ.get("CELLGATE_LONG"), reason="longer than a timeout with room for a busy machine")
def test_an_answer_that_goes_on_for_longer_than_every_timeout_is_not_cut(cells, origins):
    def stream(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(16):
            connection.send(b"data: %d\n\n" % number)
            time.sleep(0.5)
        return True

    cell = cells(sandboxes={"streams": {"worker": origins(answer=stream).url}}, config={"routes": ROUTES}, environment={"CELLGATE_CLIENT_TIMEOUT": "5s", "CELLGATE_WORKER_TIMEOUT": "5s"})
    began = time.monotonic()
    assert request(cell.http, "GET", "/pages/streams/", timeout=30).body == b"".join(b"data: %d\n\n" % n for n in range(16))
    assert time.monotonic() - began > 6


# ---- how much at a time ----


def test_tunnels_of_a_sandbox_and_of_an_organisation_are_counted_over_all_routes(tunnels):
    worker = tunnels.worker()
    one, two = (tunnels.sandbox(worker, org="acme") for _ in range(2))
    first, _ = tunnels.open(worker, one)
    tunnels.open(worker, one, "any")
    assert tunnels.refused(one) == (503, "too_many_tunnels")
    tunnels.open(worker, two)
    assert tunnels.refused(two) == (503, "too_many_tunnels")
    log = tunnels.cell.run_dir / "relay.log"
    for limit, sandbox in (("sandbox at=2", one), ("org at=3", two)):
        until(lambda limit=limit, sandbox=sandbox: re.search(rf'msg="too many tunnels" limit={limit} .* sandbox={sandbox} ', log.read_text()), 10, f"{limit} is not told")
    first.close()
    until(lambda: len(tunnels.tunnels(one)) == 1)
    tunnels.open(worker, two)


class Slow:
    """A worker that answers when the test says so."""

    def __init__(self, origins):
        self.go = threading.Event()
        self.origin = origins(answer=self.answer, upgrade=self.upgrade)

    def answer(self, connection, request):
        if request.target == "/slow":
            self.go.wait(20)
        respond(connection, request)

    def upgrade(self, connection, request):
        switch(connection, request)
        connection.read()


def test_requests_of_a_sandbox_and_of_an_organisation_at_a_time(cells, origins):
    slow = Slow(origins)
    records = {name: {"worker": slow.origin.url, "org": org} for name, org in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")]}
    records["ns/a1"] = {"worker": slow.origin.url, "org": "b"}
    routes = [*ROUTES, {"name": "space", "headers": {"X-Sandbox-ID": "{sandbox}", "X-Sandbox-Namespace": "{namespace?default}"}, "need": "none"}]
    cell = cells(sandboxes=records, config={"routes": routes}, environment={"CELLGATE_SANDBOX_REQUESTS": "2", "CELLGATE_ORG_REQUESTS": "3"})

    def get(sandbox, target="/quick"):
        return request(cell.http, "GET", f"/pages/{sandbox}{target}")

    # The request before may count for a moment longer than its answer takes.

    def served(sandbox):
        until(lambda: get(sandbox).status == 200, 10, f"{sandbox} is not served")

    def waits(sandbox, target="/slow"):
        """A request that is being answered."""
        before = len(slow.origin.requests)

        def tried():
            client = Http1(cell.http)
            client.send(f"GET /pages/{sandbox}{target} HTTP/1.1\r\nHost: cell.test\r\n\r\n".encode())
            until(lambda: len(slow.origin.requests) > before or select.select([client.sock], [], [], 0)[0], 10, "nothing happens")
            return client if len(slow.origin.requests) > before else client.sock.close()

        return until(tried, 10, "it does not arrive")

    with Http1(cell.https, tls=True) as tunnel:
        assert tunnel.upgrade("/own/a1/ws").status == 101  # counts, too
        served("a1")
        served("a1")
        waiting = [waits("a1")]
        refused = get("a1")
        assert (refused.status, json.loads(refused.body)["error"], refused.get("retry-after")) == (429, "too_many_requests", "1")
        assert json.loads(refused.body)["retryable"] is True
        with Http2(cell.https) as client:
            assert client.request("GET", "/pages/a1/quick").status == 429
            assert client.upgrade("/own/a1/ws").status == 429
        # The same sandbox by another form, and one of its name in another namespace.
        assert request(cell.http, "GET", "/quick", [("X-Sandbox-ID", "a1"), ("X-Sandbox-Namespace", "default")]).status == 429
        assert request(cell.http, "GET", "/quick", [("X-Sandbox-ID", "a1"), ("X-Sandbox-Namespace", "ns")]).status == 200
        waiting.append(waits("a2"))
        assert get("a3").status == 429  # of the organisation
        served("b1")
    until(lambda: get("a3").status == 200, 10, "a tunnel that has ended still counts")
    slow.go.set()
    for client in waiting:
        assert client.response().status == 200
        client.sock.close()
    served("a1")
    served("a3")
    cell.says("haproxy", " 429 ", "error=too_many_requests")


def test_names_that_begin_alike_are_counted_apart(cells, origins):
    """However long the beginning is."""
    slow = Slow(origins)
    names = ["s" * 240 + end for end in "12"]
    records = {name: {"worker": slow.origin.url, "org": "o" * 254 + name[-1]} for name in names}
    cell = cells(sandboxes=records, config={"routes": ROUTES}, environment={"CELLGATE_SANDBOX_REQUESTS": "1", "CELLGATE_ORG_REQUESTS": "1"})
    with Http1(cell.http) as client:
        client.send(f"GET /pages/{names[0]}/slow HTTP/1.1\r\nHost: cell.test\r\n\r\n".encode())
        until(lambda: slow.origin.requests, 10, "it does not arrive")
        assert [request(cell.http, "GET", f"/pages/{name}/quick").status for name in names] == [429, 200]
        slow.go.set()
        assert client.response().status == 200
