# SPDX-License-Identifier: MIT
"""Each refusal: status, code, JSON body and headers, over HTTP/1.1, TLS and HTTP/2; and what a caller without a token
learns from them, which is nothing."""

import json
import os
import re
import time

import pytest
from cell import AT_ONCE, ROOT, closed_port
from client import WEBSOCKET, Http1, Http2, exchange, request
from origin import Connection

CONFIG = {
    "routes": [
        {"name": "preview", "host": "{port}-{sandbox}.preview.test", "cookie": True, "need": "http"},
        {"name": "web", "path": "/web/{sandbox}/{port}/{rest...}", "to": "/{rest}", "need": "http", "cors": ["https://app.test"]},
        {"name": "relay", "path": "/relay/{sandbox}", "upgrade": True, "via": "relay", "need": "none"},
        {"name": "open", "path": "/open/{sandbox}/{port}/{rest...}", "to": "/{rest}", "need": "none"},
    ]
}


def sentences():
    """code -> (status, retryable, Retry-After, sentence), from the agent's own table."""
    text = (ROOT / "spoa/proto/refusal.h").read_text()
    rows = re.findall(r'X\((\w+), (\d+), (true|false), (\d+), "([^"]*)"\)', text)
    return {code: (int(status), retry == "true", int(after), sentence) for code, status, retry, after, sentence in rows}


REFUSALS = sentences()


@pytest.fixture(scope="module")
def origin(origins):
    def answer(connection, request):
        if request.target == "/hang":
            time.sleep(3)
        elif request.target == "/nothing":
            return True
        else:
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return origins(answer=answer)


def application(url):
    """A record of a sandbox that has nothing to manage, and serves its port 80."""
    return {"worker": url, "serves": "application", "ports": {"80": url}}


@pytest.fixture(scope="module")
def cell(cells, origin):
    records = {
        "up": application(origin.url) | {"org": "o1"},
        "gone": application(f"http://127.0.0.1:{closed_port()}"),
        "stopped": {"state": "stopped"},
        "migrating": {"state": "migrating"},
        "waking": {"state": "waking"},
        "outside": application("http://192.0.2.1:80"),
    } | {f"elsewhere-{number}": application(f"http://{address}:{origin.port}") for number, address in enumerate(ELSEWHERE)}
    return cells(sandboxes=records, config=CONFIG, environment={"CELLGATE_WORKER_TIMEOUT": "1s"})


# What the default networks do not hold, however it is written.
ELSEWHERE = ["0.0.0.0", "0.1.2.3", "169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "8.8.8.8",
             "[::]", "[fe80::1]", "[ff02::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::ffff:8.8.8.8]", "[2001:db8::1]"]


@pytest.fixture(params=["http", "https", "h2"])
def client(request, cell):
    make = {"http": lambda: Http1(cell.http), "https": lambda: Http1(cell.https, tls=True), "h2": lambda: Http2(cell.https)}
    with make[request.param]() as connection:
        yield connection


def refused(response, code):
    status, retryable, after, sentence = REFUSALS[code]
    more = {"waking": True} if code == "sandbox_waking" else {}
    assert (response.status, json.loads(response.body)) == (status, {"error": code, "message": sentence, "retryable": retryable} | more)
    assert response.all("content-type") == ["application/json"]
    assert response.all("cache-control") == ["no-store"]
    assert response.all("retry-after") == ([str(after)] if after else [])
    assert response.all("www-authenticate") == (["Bearer"] if status == 401 else [])
    return response


CASES = [
    # target, claims of the token (None: no token), code
    ("/nowhere", {}, "no_route"),
    ("/web/up/0/", {}, "bad_request"),
    ("/web/up/65536/", {}, "bad_request"),
    ("/web/up/80/../../x", {}, "bad_request"),
    ("/web/up/80/", None, "token_missing"),
    ("/web/up/80/", {"secret": b"another secret of 32 bytes or more."}, "token_invalid"),
    ("/web/up/80/", {"ttl": -60}, "token_expired"),
    ("/web/up/80/", {"aud": "cell-x"}, "wrong_cell"),
    ("/web/up/80/", {"sandbox": "sb-x"}, "wrong_sandbox"),
    ("/web/up/80/", {"need": ["pty"]}, "not_granted"),
    ("/web/up/80/", {"ports": [81]}, "not_granted"),
    ("/web/absent/80/", {"sandbox": "absent"}, "sandbox_not_found"),
    ("/web/up/80/", {"org": "o2"}, "sandbox_not_found"),
    ("/web/stopped/80/", {"sandbox": "stopped"}, "sandbox_stopped"),
    ("/web/migrating/80/", {"sandbox": "migrating"}, "sandbox_migrating"),
    ("/web/waking/80/", {"sandbox": "waking"}, "sandbox_waking"),
    ("/web/outside/80/", {"sandbox": "outside"}, "worker_unreachable"),
    ("/web/gone/80/", {"sandbox": "gone"}, "worker_unreachable"),
    ("/web/up/80/hang", {}, "worker_timeout"),
]


@pytest.mark.parametrize("target,claims,code", CASES)
def test_refusal(client, cell, target, claims, code):
    from cell import token

    headers = [] if claims is None else [("Authorization", "Bearer " + token("test", **({"sandbox": "up"} | claims)))]
    refused(client.request("GET", target, headers), code)


@pytest.mark.parametrize("number", range(len(ELSEWHERE)), ids=ELSEWHERE)
def test_an_address_outside_of_the_networks_is_not_dialled(cell, origin, number):
    before = origin.connections
    refused(request(cell.http, "GET", f"/open/elsewhere-{number}/80/"), "worker_unreachable")
    with Http1(cell.http) as client:
        refused(client.upgrade(f"/relay/elsewhere-{number}"), "worker_unreachable")
    assert origin.connections == before


@pytest.mark.skipif(not os.environ.get("CELLGATE_LONG"), reason="ten seconds")
@pytest.mark.parametrize("data", [b"", b"GET /open/up/80/ HTTP/1.1\r\nHost: h\r\nX-Slow"], ids=["nothing", "half a head"])
def test_a_head_that_does_not_come_is_not_waited_for(cell, data):
    answer, closed = exchange(cell.http, data, timeout=40)
    assert answer.startswith(b"HTTP/1.1 408 ") and closed


def test_a_worker_that_closes_without_an_answer(cell):
    """On a kept connection and on HTTP/2 HAProxy closes instead: it means the client to repeat (docs/haproxy.md)."""
    refused(request(cell.http, "GET", "/open/up/80/nothing"), "worker_unreachable")


def test_a_revoked_token(cell):
    from cell import until

    old = cell.bearer("later", iat=int(time.time()) - 10)
    cell.set_sandboxes(later={"worker": cell.sandboxes["up"]["worker"], "not_before": int(time.time())})
    until(lambda: request(cell.http, "GET", "/web/later/80/", [old]).status != 404)
    refused(request(cell.http, "GET", "/web/later/80/", [old]), "token_revoked")


def test_a_head_that_is_too_large(client, cell):
    response = client.request("GET", "/web/up/80/", [("X-Large", "x" * 20000)])
    refused(response, "request_too_large")


@pytest.mark.parametrize("own", [0, 1500, 3000], ids="token+{}".format)
@pytest.mark.parametrize("size", [12000, 14000, 15000])
def test_a_head_within_the_limit_is_decided_whatever_its_cookies_are(cell, size, own):
    """docs/haproxy.md promises 15 KiB. What the agent is told must not be much larger than the head itself."""
    cookie = f"__Host-cellgate={cell.token('up', pad='x' * own)}; a="
    with Http1(cell.http) as client:
        response = client.request("GET", "/", [("Cookie", cookie + "c" * (size - len(cookie) - 100))], host="80-up.preview.test")
    assert response.status == 200


def test_a_token_that_is_too_large(cell):
    response = request(cell.http, "GET", "/web/up/80/", [("Authorization", "Bearer " + "x" * 9000)])
    assert response.status in (401, 431)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_are_served_nowhere(cell, method):
    response = request(cell.http, method, "cell.test:80" if method == "CONNECT" else "/web/up/80/")
    refused(response, "method_not_allowed")
    assert response.all("allow") == ["GET"]


def test_a_relay_that_is_not_there(cells):
    """503 at once, also when the socket is there and nobody listens."""
    cell = cells(sandboxes={"up": {"worker": "http://127.0.0.1:1"}}, config=CONFIG, environment={"CELLGATE_RELAY": "unix@/nonexistent.sock"})
    with Http1(cell.http) as client:
        started = time.monotonic()
        response = client.upgrade("/relay/up")
        if "relay-admin" not in cell.ports:
            refused(response, "relay_unavailable")
            assert time.monotonic() - started < AT_ONCE


def test_origin_of_another_host(cell):
    with Http1(cell.http) as client:
        refused(client.upgrade("/web/up/80/", [cell.bearer("up"), ("Origin", "https://evil.test")]), "origin_refused")


def test_upgrade_version(cell):
    headers = [(n, "8" if n == "Sec-WebSocket-Version" else v) for n, v in WEBSOCKET]
    response = refused(request(cell.http, "GET", "/open/up/80/", headers), "upgrade_version")
    assert response.all("sec-websocket-version") == ["13"] and response.all("upgrade") == ["websocket"]


def test_a_page_for_people_while_a_sandbox_wakes(cell):
    response = request(cell.http, "GET", "/open/waking/80/", [("Accept", "text/html,*/*;q=0.8")])
    assert response.status == 503 and response.get("content-type") == "text/html" and b"refresh" in response.body
    assert response.get("retry-after") == "1"


def test_a_token_of_the_query_becomes_a_cookie(client, cell):
    token = cell.token("up")
    host = "80-up.preview.test"
    response = client.request("GET", f"/x?a=1&cellgate_token={token}&b=2", host=host)
    assert response.status == 302 and response.get("location") == "/x?a=1&b=2"
    assert response.get("cache-control") == "no-store"
    cookie = response.get("set-cookie")
    assert cookie.startswith(f"__Host-cellgate={token};")
    assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/"} <= {x.strip() for x in cookie.split(";")}
    assert client.request("GET", "/x", [("Cookie", f"a=1; __Host-cellgate={token}")], host=host).status == 200


def test_preflight(client, cell):
    headers = [("Origin", "https://app.test"), ("Access-Control-Request-Method", "PUT"), ("Access-Control-Request-Headers", "authorization, x-a")]
    response = client.request("OPTIONS", "/web/up/80/", headers)
    assert response.status == 204
    assert response.all("access-control-allow-origin") == ["https://app.test"] and response.get("vary") == "Origin"
    assert "PUT" in response.get("access-control-allow-methods") and response.get("access-control-allow-headers") == "authorization, x-a"


@pytest.mark.parametrize("with_token", [True, False])
def test_answers_to_a_cors_origin_name_it(cell, with_token):
    """Refusals too: the application has to read them."""
    headers = [("Origin", "https://app.test")] + ([cell.bearer("up")] if with_token else [])
    response = request(cell.http, "GET", "/web/up/80/", headers)
    assert response.status == (200 if with_token else 401)
    assert response.all("access-control-allow-origin") == ["https://app.test"]


def test_every_answer_of_a_route_with_cors_varies_by_origin(cell):
    """Also one to a request without Origin, which a cache would give to a page of any, and a worker's that cannot be reached."""
    for origin in None, "https://other.test", "https://APP.test:443":
        for credential, name in (cell.bearer("up"), "up"), (None, "up"), (cell.bearer("outside"), "outside"):
            headers = [h for h in (credential, ("Origin", origin) if origin else None) if h]
            response = request(cell.http, "GET", f"/web/{name}/80/", headers)
            assert "Origin" in response.all("vary"), (origin, name, response.status)
            assert response.all("access-control-allow-origin") == ([origin] if origin and "APP" in origin else [])
    assert "Origin" not in request(cell.http, "GET", "/nowhere").all("vary")


@pytest.mark.parametrize("credential", [None, "x.y.z", "expired", "foreign"])
def test_without_a_token_every_sandbox_looks_the_same(cell, credential):
    """Byte for byte: one that runs, one that is stopped, one that moves, and one that was never there."""
    made = {"expired": lambda name: cell.token(name, ttl=-60), "foreign": lambda name: cell.token("another")}
    answers = set()
    for name in ("up", "stopped", "migrating", "waking", "gone", "outside", "absent"):
        value = made[credential](name) if credential in made else credential
        line = f"Authorization: Bearer {value}\r\n" if value else ""
        answer, closed = exchange(cell.http, f"GET /web/{name}/80/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{line}\r\n".encode())
        assert closed
        answers.add(answer)
    assert len(answers) == 1
    assert next(iter(answers)).startswith(b"HTTP/1.1 40")


def test_a_refused_plain_request_leaves_its_connection_open(cell):
    with Http1(cell.http) as client:
        refused(client.request("GET", "/nowhere"), "no_route")
        refused(client.request("GET", "/nowhere"), "no_route")


def test_what_is_no_http_is_refused_by_haproxy_itself(cell):
    with Http1(cell.http) as client:
        client.send(b"GET / HTTP/1.1\r\nHost : h\r\n\r\n")
        assert Connection(client.sock).read_until(b"\r\n").startswith(b"HTTP/1.1 400")
