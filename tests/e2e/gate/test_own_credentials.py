# SPDX-License-Identifier: MIT
"""Credentials in headers and parameters that the configuration names: what brings them, where they are good, and that no worker
ever sees one, whatever let the caller in, not even if HAProxy was not told to remove it."""

import hashlib
import json
import re
import signal
import subprocess

import pytest
from cell import BIN, token, until
from client import Http1, Http2

KEY = "osb_0123456789abcdef"
CONFIG = {
    "systems": ["opencomputer"],
    "domains": {"opencomputer": ["oc.test"]},
    "routes": [
        {"name": "own", "path": "/own/{sandbox}/{rest...}", "to": "/{rest}"},
        {"name": "relayed", "path": "/relayed/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "pty"},
        "defaults",
        {"name": "boxes", "headers": {"X-Box": "{sandbox}", "X-Box-Port": "{port?80}"}},
    ],
    "tokens": [
        {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret", "sources": ["X-Gate-Token", "?gate", "authorization"]},
        {"kind": "static", "sources": ["X-API-Key", "?api_key", "?token"], "systems": ["opencomputer"], "routes": ["relayed"], "need": ["exec", "pty", "http"]},
        {"kind": "static", "sources": ["X-OC-Preview-Token"]},
    ],
}


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, origin):
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    return cells(sandboxes={"sb-1": {"worker": origin.url, "ports": {"80": origin.url}, "access": {"token_sha256": digest}}}, config=CONFIG)


def ours(**claims):
    return token(sandbox="sb-1", **claims)


API = "/api/sandboxes/sb-1/exec"
GOOD, MISSING, INVALID = (200, ""), (401, "token_missing"), (401, "token_invalid")


def asked(cell, target, headers=(), host="cell.test", kind="http"):
    with Http1(cell.http) if kind == "http" else Http2(cell.https) as client:
        response = client.request("GET", target, headers, host=host)
    error = re.search(rb'"error":"(\w+)"', response.body)
    return response.status, error[1].decode() if error else ""


def seen(origin, target):
    """What the worker got, of which no part is a credential."""
    request = origin.requests[-1]
    text = request.target + str(request.headers)
    assert KEY not in text and ours()[:20] not in text, text
    assert not {name for name in request.names if "api" in name or "box" in name or "gate" in name}
    assert request.target == target


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_a_secret_opens_by_header_and_by_parameter(cell, origin, kind):
    worker = "/sandboxes/sb-1/exec"
    assert asked(cell, API, [("X-API-Key", KEY)], kind=kind) == GOOD
    seen(origin, worker)
    for target, left in ((f"{API}?api_key={KEY}", ""), (f"{API}?cols=80&token={KEY}&rows=24", "?cols=80&rows=24"), (f"{API}?a=1&api%5Fkey={KEY}", "?a=1")):
        assert asked(cell, target, kind=kind) == GOOD
        seen(origin, worker + left)
    assert asked(cell, API, [("X-API-Key", KEY + "x")], kind=kind) == INVALID
    assert asked(cell, API, [("X-API-Key", "")], kind=kind) == INVALID
    assert asked(cell, f"{API}?api_key=x", kind=kind) == INVALID
    assert asked(cell, API, kind=kind) == MISSING


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_a_jwt_opens_by_what_its_entry_lists_and_by_nothing_else(cell, origin, kind):
    for target, headers in (("/own/sb-1/a", [("X-Gate-Token", ours())]), (f"/own/sb-1/a?gate={ours()}", []), ("/own/sb-1/a", [("Authorization", f"Bearer {ours()}")])):
        assert asked(cell, target, headers, kind=kind) == GOOD
        seen(origin, "/a")
    assert asked(cell, f"/own/sb-1/a?cellgate_token={ours()}", kind=kind) == INVALID
    assert asked(cell, "/own/sb-1/a", [("X-Gate-Token", token(cell="other", sandbox="sb-1"))], kind=kind) == (403, "wrong_cell")
    assert asked(cell, "/own/sb-1/a", [("X-Gate-Token", ours(ttl=-100))], kind=kind) == (401, "token_expired")


def test_elsewhere_it_opens_nothing(cell):
    assert asked(cell, "/own/sb-1/a", [("X-API-Key", KEY)]) == MISSING
    assert asked(cell, f"/own/sb-1/a?api_key={KEY}") == MISSING


@pytest.mark.parametrize("name", ["X-API-Key", "x-api-key", "X_API_Key", "x_Api-key", "X-Gate-Token", "X_Gate_Token", "X-Box-Port", "x_box"])
def test_no_worker_sees_one_whatever_let_the_caller_in(cell, origin, name):
    bearer = ("Authorization", f"Bearer {ours()}")
    value = ours() if name.lower() == "x-gate-token" else "80" if "port" in name.lower() else KEY
    for target, host in (("/own/sb-1/a", "cell.test"), ("/a", "sb-1-p80.oc.test")):
        assert asked(cell, target, [bearer, (name, value)], host=host) == GOOD
        seen(origin, "/a")


def test_a_parameter_leaves_where_it_is_listened_to_whatever_let_the_caller_in(cell, origin):
    bearer = ("Authorization", f"Bearer {ours()}")
    assert asked(cell, f"{API}?api_key={KEY}&x=1", [bearer]) == GOOD
    seen(origin, "/sandboxes/sb-1/exec?x=1")
    assert asked(cell, f"/own/sb-1/a?gate={ours()}&x=1", [bearer]) == GOOD
    seen(origin, "/a?x=1")
    # on other routes such a name is the application's
    assert asked(cell, "/own/sb-1/a?token=of-the-application", [bearer]) == GOOD
    seen(origin, "/a?token=of-the-application")


def test_two_are_ambiguous(cell):
    assert asked(cell, API, [("X-API-Key", KEY), ("X-API-Key", KEY)]) == (400, "bad_request")
    assert asked(cell, f"{API}?api_key={KEY}&api_key={KEY}") == (400, "bad_request")


@pytest.mark.parametrize("way", ["header", "parameter"])
def test_a_tunnel_opens_by_them_and_its_worker_sees_none(cell, origin, way):
    target, headers = ("/relayed/sb-1/ws", [("X-API-Key", KEY)]) if way == "header" else (f"/relayed/sb-1/ws?x=1&token={KEY}", [])
    with Http1(cell.http) as client:
        assert client.upgrade(target, headers).status == 101
    seen(origin, "/ws" if way == "header" else "/ws?x=1")


def test_a_header_of_ones_own_says_which_sandbox_is_meant(cell, origin):
    bearer = ("Authorization", f"Bearer {ours()}")
    for headers in ([("X-Box", "sb-1")], [("X-Box", "sb-1"), ("X-Box-Port", "80")]):
        assert asked(cell, "/anything?a", [bearer, *headers]) == GOOD
        seen(origin, "/anything?a")
    assert asked(cell, "/anything", [bearer, ("X-Box", "sb-2")]) == (403, "wrong_sandbox")
    assert asked(cell, "/anything", [bearer, ("X-Box", "sb-1"), ("X-Box-Port", "0")]) == (400, "bad_request")
    assert asked(cell, "/anything", [bearer]) == (404, "no_route")


def test_what_haproxy_was_not_told_of_never_reaches_a_worker(cells, origin):
    """Its environment is older than the agent's configuration: the request is refused, and the log says why."""
    cell = cells(sandboxes={"sb-1": {"worker": origin.url, "ports": {"80": origin.url}}}, config={**CONFIG, "tokens": CONFIG["tokens"][:1]})
    bearer = ("Authorization", f"Bearer {ours()}")
    assert asked(cell, "/own/sb-1/a", [bearer, ("X-New", "k")]) == GOOD
    cell.config["tokens"] = [*CONFIG["tokens"][:1], {"kind": "static", "sources": ["X-New"], "everywhere": True}]
    cell.config_file.write_text(json.dumps(cell.config))
    cell.kill("agent", signal.SIGHUP)
    until(lambda: asked(cell, "/own/sb-1/a", [bearer, ("X-New", "k")]) == (503, "agent_unavailable"))
    count = len(origin.requests)
    assert asked(cell, "/own/sb-1/a", [bearer, ("x_new", "k")]) == (503, "agent_unavailable")
    assert asked(cell, "/own/sb-1/a", [bearer]) == GOOD
    assert len(origin.requests) == count + 1
    cell.says("agent", "HAProxy does not remove a header")


def test_the_command_prints_what_haproxy_has_to_be_told(cell):
    done = subprocess.run([BIN / "cellgate", "headers", "--config", cell.folder / "cellgate.json"], capture_output=True, text=True, check=True)
    assert done.stdout == "CELLGATE_HEADERS='x[-_]gate[-_]token|x[-_]api[-_]key|x[-_]box|x[-_]box[-_]port'\nCELLGATE_PARAMETERS='gate|api_key|token'\n"
