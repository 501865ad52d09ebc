# SPDX-License-Identifier: MIT
"""Applications with a login of their own behind the gate: where the host names the sandbox their Authorization and cookies
reach them, over each way, and no credential of the gate's does."""

import base64
import hashlib

import pytest
from cell import token
from client import Http1, Http2

SECRET = "the-access-secret-of-app"
BASIC = "Basic " + base64.b64encode(b"root:").decode()  # as e2b's SDK names its user
FOREIGN = token(cell="of-the-application", secret=b"a key of the application, no gate's", sub="u1")
CONFIG = {
    "systems": ["e2b"],
    "domains": {"e2b": ["e2b.test"]},
    "routes": [
        {"name": "tunnel", "host": "{sandbox}.tunnel.test", "upgrade": True, "via": "relay"},
        {"name": "socket", "host": "{sandbox}.page.test", "upgrade": True, "via": "relay", "redial": False, "cookie": True},
        {"name": "page", "host": "{sandbox}.page.test", "cookie": True},
        {"name": "path", "path": "/p/{sandbox}/{rest...}", "to": "/{rest}"},
        "defaults",
    ],
    "tokens": [
        {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"},
        {"kind": "static", "sources": ["e2b-traffic-access-token"]},
        {"kind": "static", "public": True, "routes": ["page"], "sources": ["label"]},
    ],
}


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, origin):
    record = {"worker": origin.url, "serves": "application", "ports": {"3000": origin.url}}
    access = {"access": {"token_sha256": hashlib.sha256(SECRET.encode()).hexdigest()}}
    return cells(sandboxes={"app": record | access, "free": record}, config=CONFIG)


def ours(**claims):
    return token(sandbox="app", **{"ttl": 3600} | claims)  # some are made when the file is read, and it may come late


# host, target, headers beside Authorization
E2B = ("3000-app.e2b.test", "/a", [("e2b-traffic-access-token", SECRET)])
QUERY = ("3000-app.e2b.test", f"/a?cellgate_token={ours()}", [])
COOKIE = ("app.page.test", "/a", [("Cookie", f"session=s1; __Host-cellgate={ours()}; theme=dark")])
PUBLIC = ("free.page.test", "/a", [])
PROTOCOL = ("3000-app.e2b.test", "/a", [("Sec-WebSocket-Protocol", f"chat, cellgate.bearer.{ours()}")])
TUNNEL = ("app.tunnel.test", f"/a?cellgate_token={ours()}", [])
OWN = [BASIC, "Bearer " + FOREIGN, "Bearer an-opaque-token", 'Digest username="u"', "token ghp_x"]


def clients(cell):
    return [lambda: Http1(cell.http), lambda: Http2(cell.https)]


def seen(origin, want):
    request = origin.requests[-1]
    assert SECRET not in str(request.headers) and "__host-cellgate" not in str(request.headers).lower()
    assert request.all("authorization") == want
    return request


@pytest.mark.parametrize("own", OWN, ids=["basic", "bearer", "opaque", "digest", "token"])
@pytest.mark.parametrize("way", [E2B, QUERY, COOKIE, PUBLIC], ids=["header", "query", "cookie", "public"])
def test_an_applications_authorization_reaches_it(cell, origin, way, own):
    host, target, headers = way
    for make in clients(cell):
        with make() as client:
            assert client.request("POST", target, [*headers, ("Authorization", own)], b"x", host=host).status == (200 if way is not COOKIE else 403)
        if way is COOKIE:  # without an Origin a cookie alone changes nothing
            with make() as client:
                assert client.request("GET", target, [*headers, ("Authorization", own)], host=host).status == 200
            assert seen(origin, [own]).all("cookie") == ["session=s1; theme=dark"]
        else:
            seen(origin, [own])


@pytest.mark.parametrize("own", OWN, ids=["basic", "bearer", "opaque", "digest", "token"])
@pytest.mark.parametrize("way", [E2B, PROTOCOL, TUNNEL], ids=["header", "subprotocol", "relay"])
def test_it_reaches_the_application_with_an_upgrade(cell, origin, way, own):
    host, target, headers = way
    with Http1(cell.http) as client:
        assert client.upgrade(target, [*headers, ("Authorization", own)], host=host).status == 101
    assert ours() not in str(seen(origin, [own]).headers)


def test_a_page_that_was_let_in_by_cookie_opens_its_websocket_through_the_relay(cell, origin):
    """From the query to the cookie, the page, and its socket: with the page's origin, and from no other."""
    host, target, cookie = COOKIE
    with Http1(cell.https, tls=True) as client:
        answer = client.request("GET", f"/a?cellgate_token={ours()}", host=host)
        assert answer.status == 302 and answer.get("set-cookie").startswith("__Host-cellgate=")
        assert client.request("GET", target, cookie, host=host).status == 200
    own = ("Origin", f"https://{host}")
    with Http1(cell.https, tls=True) as client:
        assert client.upgrade("/socket", [*cookie, own], host=host).status == 101
    assert seen(origin, []).all("cookie") == ["session=s1; theme=dark"]
    assert 'cellgate_relay_tunnels_opened_total{route="socket"} 1' in cell.admin("/metrics", "relay")
    for headers, status in [([*cookie, ("Origin", "https://evil.test")], 403), (cookie, 403), ([own], 401)]:
        with Http1(cell.https, tls=True) as client:
            assert client.upgrade("/socket", headers, host=host).status == status


@pytest.mark.parametrize("value", ["sb", "late", "revoked cell", "secret"])
def test_no_credential_of_the_gates_reaches_it(cell, origin, value):
    """Beside the one that counts: one that is good, has expired, is for another cell, or is the record's secret."""
    made = {"sb": ours(), "late": ours(ttl=-100), "revoked cell": token(cell="another", sandbox="app"), "secret": SECRET}[value]
    with Http1(cell.http) as client:
        client.request("GET", E2B[1], [*E2B[2], ("Authorization", f"Bearer {made}")], host=E2B[0])
    seen(origin, [])
    # the only one: decides, and is gone
    with Http1(cell.http) as client:
        status = client.request("GET", "/a", [("Authorization", f"Bearer {made}")], host=E2B[0]).status
    assert status == {"sb": 200, "late": 401, "revoked cell": 403, "secret": 401}[value]
    if status == 200:
        seen(origin, [])


def test_below_a_path_it_is_stripped_as_before(cell, origin):
    with Http1(cell.http) as client:
        assert client.request("GET", f"/p/app/a?cellgate_token={ours()}", [("Authorization", BASIC), ("Cookie", "session=s1")]).status == 200
    assert seen(origin, []).all("cookie") == []


def test_alone_a_strangers_token_opens_nothing(cell):
    with Http1(cell.http) as client:
        response = client.request("GET", "/a", [("Authorization", "Bearer " + FOREIGN)], host=E2B[0])
    assert response.status == 401 and b"token_invalid" in response.body


SCOPES = [{}, {"systems": ["opencomputer"]}, {"routes": ["api"]}, {"domains": ["api.test"]}, {"sources": ["X-Gate-Token"]}, {"sources": ["cookie", "query"]}, {"kid": "k1", "routes": ["api"]}]


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: "-".join(scope) or "everywhere")
def test_a_token_that_is_good_elsewhere_reaches_no_worker(cells, origin, scope):
    """Each request is let in by something else than the Bearer beside it, which an entry has signed."""
    routes = [{"name": "page", "host": "{sandbox}.page.test", "cookie": True}, {"name": "api", "path": "/p/{sandbox}/{rest...}", "to": "/{rest}"}, "defaults"]
    tokens = [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"} | scope, {"kind": "static", "sources": ["e2b-traffic-access-token"]},
              {"kind": "static", "public": True, "routes": ["page"], "sources": ["label"]}]
    record = {"worker": origin.url, "serves": "application", "ports": {"3000": origin.url}}
    secret = {"access": {"token_sha256": hashlib.sha256(SECRET.encode()).hexdigest()}}
    cell = cells(sandboxes={"app": record | secret, "free": record}, config={"systems": ["e2b", "opencomputer"], "domains": {"e2b": ["e2b.test"]}, "routes": routes, "tokens": tokens})
    header = {"kid": "k1"} if "kid" in scope else None
    for bearer in (token(sandbox="app", header=header), token(sandbox="app", ttl=-100, header=header)):
        for host, headers in (("3000-app.e2b.test", [("e2b-traffic-access-token", SECRET)]), ("free.page.test", [])):
            before = len(origin.requests)
            with Http1(cell.http) as client:
                client.request("GET", "/a", [*headers, ("Authorization", "Bearer " + bearer)], host=host)
            assert bearer not in str([request.headers for request in origin.requests[before:]]), host


@pytest.mark.parametrize("host", ["cell.test", "other.e2b.test", "e2b.test"])
@pytest.mark.parametrize("target, headers", [("/x", [("OpenSandbox-Ingress-To", "free-3000")]), ("/own/free/x", []), ("/x", [("X-Sandbox-ID", "box"), ("X-Sandbox-Namespace", "team"), ("X-Sandbox-Port", "3000")])], ids=["header", "path", "namespace"])
def test_a_domain_that_is_public_opens_no_other_form(cells, origin, host, target, headers):
    """Below a path, or by a header, a caller may name whatever host it likes."""
    record = {"worker": origin.url, "serves": "application", "ports": {"3000": origin.url}}
    config = {"systems": ["e2b", "opensandbox", "agent-sandbox"], "domains": {"e2b": ["e2b.test"]}, "routes": ["defaults", {"name": "own", "path": "/own/{sandbox}/{rest...}", "to": "/{rest}"}],
              "tokens": [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}, {"kind": "static", "public": True, "domains": ["<e2b>"]}]}
    cell = cells(sandboxes={"free": record, "team/box": record}, config=config)
    before = len(origin.requests)
    with Http1(cell.http) as client:
        assert client.request("GET", target, headers, host=host).status == 401
        assert len(origin.requests) == before
        assert client.request("GET", "/x", host="3000-free.e2b.test").status == 200
