# SPDX-License-Identifier: MIT
"""Route tokens of OpenSandbox's fleets (`f1.`): the name of the sandbox stands in the token, and is worth nothing before its MAC is."""

import base64
import hashlib
import hmac
import json

import pytest
from client import WEBSOCKET, Http1, Http2

KEY, OTHER, SECRET = b"a-key-of-an-ingress-of-32-bytes!", b"another-key-of-an-ingress-32byte", "an-access-secret"
CONFIG = {
    "systems": ["opensandbox"],
    "agent": {"auth_failures": 0},  # these tests guess more often than anybody may
    "domains": {"opensandbox": ["sandboxes.test"]},
    "tokens": [
        {"kind": "opensandbox-route", "keys": {"a": "a.key"}, "fleets": True},
        {"kind": "opensandbox-route", "keys": {"b": "b.key"}},
        {"kind": "static", "sources": ["OpenSandbox-Secure-Access"]},
    ],
}


@pytest.fixture(scope="module")
def application(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, application):
    open_one = {"ports": {"8080": application.url, "44772": application.url}}
    closed = open_one | {"access": {"token_sha256": hashlib.sha256(SECRET.encode()).hexdigest()}}
    records = {"flt-1": open_one, "team/flt-1": open_one, "flt-closed": closed, "flt-revoked": open_one | {"not_before": 1}}
    files = {"a.key": base64.b64encode(KEY), "b.key": base64.b64encode(OTHER)}
    return cells(sandboxes=records, config=CONFIG, files=files)


def part(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def route(space="default", sandbox="flt-1", port=8080, kid="a", key=KEY, signed=None):
    text = "opensandbox-fleets-route-v1\n%s\n%s\n%d\n" % (signed or (space, sandbox, port))
    mac = hmac.new(key, text.encode(), hashlib.sha256).digest()[:16]
    return f"f1.{part(space.encode())}.{part(sandbox.encode())}.{port}.{kid}.{part(mac)}"


def ask(cell, token, form, headers=(), client=Http1):
    path, host, headers = ("/x?y=1", "cell.test", [(form, token), *headers]) if form != "path" else (f"/{token}/x?y=1", "sandboxes.test", list(headers))
    with client(cell.http if client is Http1 else cell.https) as one:
        got = one.request("GET", path, headers, host=host)
    return got.status, json.loads(got.body)["error"] if got.status != 200 else None


FORMS = ["OpenSandbox-Ingress-To", "OPEN-SANDBOX-INGRESS", "path"]
GOOD, WRONG, MISSING = (200, None), (401, "token_invalid"), (401, "token_missing")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("client", [Http1, Http2])
def test_a_route_leads_to_its_sandbox_and_port(cell, application, form, client):
    for space in ("default", "team"):
        before = len(application.requests)
        assert ask(cell, route(space), form, client=client) == GOOD
        (seen,) = application.requests[before:]
        assert seen.target == "/x?y=1"
        # the application knows its own prefix, as of a signed path
        assert form == "path" or "f1." not in str(seen.headers)


@pytest.mark.parametrize("form", FORMS)
def test_a_route_that_was_not_signed_opens_nothing(cell, application, form):
    before, good = len(application.requests), route()
    for name, token in {
        "of another namespace": route("team", signed=("default", "flt-1", 8080)),
        "of another sandbox": route(sandbox="flt-2", signed=("default", "flt-1", 8080)),
        "of another port": route(port=3000, signed=("default", "flt-1", 8080)),
        "by another key": route(key=OTHER),
        "by no key": route(kid="z"),
        "by a key whose entry takes none": route(kid="b", key=OTHER),
        "with another MAC": good[:-22] + "A" * 22,
    }.items():
        assert ask(cell, token, form) == WRONG, name
    assert len(application.requests) == before


@pytest.mark.parametrize("form", FORMS)
def test_what_has_not_its_form_is_no_route(cell, application, form):
    before, good = len(application.requests), route()
    head, mac = good.rsplit(".", 1)
    for name, token in {
        "a MAC too short": good[:-1],
        "a MAC too long": good + "A",
        "no MAC": head,
        "one part more": good + ".x",
        "no sandbox": f"f1.{part(b'default')}..8080.a.{mac}",
        "a sandbox that is no base64url": f"f1.{part(b'default')}.A.8080.a.{mac}",
        "a sandbox with a line end": route(sandbox="a\nb"),
        "a sandbox with a slash": route(sandbox="team/flt-1"),
        "a namespace with a slash": route(space="a/b"),
        "port 0": route(port=0),
        "a port too large": good.replace(".8080.", ".99999."),
        "a key's id in upper case": good.replace(".a.", ".A."),
        "another version": "f2" + good[2:],
    }.items():
        status, error = ask(cell, token, form)
        assert status in (400, 401, 404), (name, status, error)
    assert len(application.requests) == before


@pytest.mark.parametrize("form", FORMS)
def test_a_route_says_where_and_not_who(cell, form):
    """A sandbox with a secret wants the secret; one that is not there looks the same."""
    for sandbox in ("flt-closed", "flt-none"):
        assert ask(cell, route(sandbox=sandbox), form) == MISSING
        assert ask(cell, route(sandbox=sandbox), form, [("OpenSandbox-Secure-Access", "wrong")]) == WRONG
    assert ask(cell, route(sandbox="flt-closed"), form, [("OpenSandbox-Secure-Access", SECRET)]) == GOOD
    assert ask(cell, route(sandbox="flt-revoked"), form) == (401, "token_revoked")


@pytest.mark.parametrize("form", FORMS)
def test_no_route_opens_where_a_sandbox_is_managed(cell, application, form):
    before = len(application.requests)
    assert ask(cell, route(port=44772), form) == (403, "not_granted")
    assert len(application.requests) == before


def test_a_websocket_opens_by_it(cell):
    with Http1(cell.http) as client:
        got = client.request("GET", "/ws", [("OpenSandbox-Ingress-To", route()), *WEBSOCKET], host="cell.test")
    assert got.status != 401 and got.status != 403


def test_no_mac_is_logged(cell):
    token = route(sandbox="flt-unlogged")
    for form in FORMS:
        ask(cell, token, form)
    text = cell.access_log() + json.dumps(cell.logs())
    assert "flt-unlogged" in text and token.rpartition(".")[2] not in text
