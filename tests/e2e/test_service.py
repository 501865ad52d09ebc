# SPDX-License-Identifier: MIT
"""Paths of a control plane, which routes lead to a service of the configuration. It judges its callers itself, and gets what they bring;
or the gate does, and it gets headers of its own."""

import hashlib
import json
import subprocess

import pytest
from cell import BIN, until
from client import Http1, Http2

KEY = "osb_of_the_control_plane"
OWN = "Bearer what-the-service-wants"


@pytest.fixture(scope="module")
def plane(origins):
    return origins()


@pytest.fixture(scope="module")
def worker(origins):
    return origins()


def config(url):
    return {
        "services": {"plane": {"url": url}, "admin": {"url": url, "headers": {"Authorization": OWN}}, "far": {"url": "http://192.0.2.1:80"}},
        "systems": ["opencomputer"],
        "routes": [
            {"name": "create", "path": "/api/sandboxes", "to_service": "plane", "need": "none"},
            {"name": "hibernate", "path": "/api/sandboxes/{id}/hibernate", "upgrade": False, "to_service": "plane", "need": "none", "to": "/v2/{id}/sleep"},
            {"name": "admin", "path": "/admin/{rest...}", "to_service": "admin", "to": "/{rest}", "need": "exec"},
            {"name": "far", "path": "/far", "to_service": "far", "need": "none"},
            "defaults",
        ],
        "tokens": [
            {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"},
            {"kind": "static", "sources": ["X-API-Key", "?api_key"], "everywhere": True, "need": ["exec", "http"]},
            {"kind": "static", "public": True, "everywhere": True, "sources": ["label"], "need": ["exec"]},
        ],
    }


@pytest.fixture(scope="module")
def cell(cells, plane, worker):
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    return cells(sandboxes={"sb-1": {"worker": worker.url, "access": {"token_sha256": digest}}}, config=config(plane.url))


def asked(cell, method, target, headers=(), kind="http", body=b""):
    with Http1(cell.http) if kind == "http" else Http2(cell.https) as client:
        response = client.request(method, target, headers, body)
    return response.status, json.loads(response.body)["error"] if response.status >= 400 else ""


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_a_service_gets_what_its_callers_bring(cell, plane, worker, kind):
    before = len(worker.requests)
    bearer = cell.bearer()
    brought = [bearer, ("X-API-Key", KEY), ("OPEN-SANDBOX-API-KEY", "k2"), ("Cookie", "session=1"), ("X-Cell-Handover", "forged"), ("X-Forwarded-For", "1.2.3.4")]
    assert asked(cell, "POST", "/api/sandboxes?api_key=k3&a=1&cellgate_token=x", brought, kind, b"{}") == (200, "")
    seen = plane.requests[-1]
    assert seen.target == "/api/sandboxes?api_key=k3&a=1&cellgate_token=x" and seen.all("host") == [plane.url.removeprefix("http://")]
    assert seen.all("authorization") == [bearer[1]] and seen.all("x-api-key") == [KEY] and seen.all("open-sandbox-api-key") == ["k2"]
    assert seen.all("cookie") == [] and seen.all("x-cell-handover") == [] and seen.all("x-forwarded-for") == ["127.0.0.1"]
    assert asked(cell, "POST", "/api/sandboxes/sb-1/hibernate?now", [("X-API-Key", KEY)], kind) == (200, "")
    assert plane.requests[-1].target == "/v2/sb-1/sleep?now"
    assert len(worker.requests) == before
    # what is a sandbox's goes there as before, without the credential
    assert asked(cell, "GET", "/api/sandboxes/sb-1/exec", [("X-API-Key", KEY)], kind) == (200, "")
    assert worker.requests[-1].target == "/sandboxes/sb-1/exec" and worker.requests[-1].all("x-api-key") == []


def test_with_headers_of_its_own_a_service_wants_a_token_of_all_sandboxes(cell, plane):
    before = len(plane.requests)
    assert asked(cell, "GET", "/admin/a") == (401, "token_missing")
    assert asked(cell, "GET", "/admin/a", [("X-API-Key", KEY)]) == (401, "token_invalid")
    assert asked(cell, "GET", "/admin/a", [cell.bearer()]) == (403, "wrong_sandbox")
    assert asked(cell, "GET", "/admin/a", [cell.bearer("*", org="o1", need=["pty"])]) == (403, "not_granted")
    assert asked(cell, "GET", "/admin/a", [cell.bearer("*", org="o1", ttl=-100)]) == (401, "token_expired")
    assert len(plane.requests) == before
    assert asked(cell, "GET", f"/admin/a?b&cellgate_token={cell.token('*', org='o1')}") == (200, "")
    assert plane.requests[-1].target == "/a?b" and plane.requests[-1].all("authorization") == [OWN]


def test_a_revoked_token_opens_no_service(cell):
    old = cell.bearer("*", org="o1", iat=1_700_000_000, exp=1_700_003_000)
    assert asked(cell, "GET", "/admin/a", [old]) == (401, "token_expired")
    good = cell.bearer("*", org="o1")
    part = cell.folder / "sandboxes.json.part"
    part.write_text(json.dumps({"not_before": 4_000_000_000, "sandboxes": {}}))
    part.rename(cell.folder / "sandboxes.json")
    until(lambda: asked(cell, "GET", "/admin/a", [good]) == (401, "token_revoked"))
    cell.set_sandboxes()
    until(lambda: asked(cell, "GET", "/admin/a", [good]) == (200, ""))


def test_a_service_outside_of_the_networks_is_not_dialled(cell):
    assert asked(cell, "GET", "/far") == (502, "worker_unreachable")


def test_a_websocket_reaches_a_service(cell, plane):
    with Http1(cell.http) as client:
        assert client.upgrade("/api/sandboxes?token=t", [("X-API-Key", KEY)]).status == 101
    assert plane.requests[-1].target == "/api/sandboxes?token=t" and plane.requests[-1].all("x-api-key") == [KEY]


def test_a_preflight_or_two_credentials_change_nothing(cell):
    assert asked(cell, "GET", "/api/sandboxes", [("Authorization", "Bearer a"), ("Authorization", "Bearer b")]) == (400, "bad_request")


def test_the_log_and_explain_know_of_services(cell):
    done = subprocess.run([BIN / "cellgate", "explain", "--config", cell.config_file, "POST http://h/api/sandboxes"], capture_output=True, text=True, check=True)
    assert "the route leads to a service" in done.stdout and "plane" in done.stdout
    assert asked(cell, "POST", "/api/sandboxes") == (200, "")
    cell.says("haproxy", "route=create")


@pytest.mark.parametrize(
    "route, why",
    [
        ({"to_service": "none"}, "`services` has no 'none'"),
        ({"to_service": "admin", "need": "none"}, "would be everybody's"),
        ({"to_service": "plane", "via": "relay", "upgrade": True}, "not together with via"),
        ({"to_service": "plane", "cookie": True}, "not together with via"),
        ({"to_service": "plane", "set": {"X-Access-Token": "a"}}, "not together with via"),
    ],
)
def test_what_a_service_cannot_be(cell, tmp_path, route, why):
    bad = {**json.loads(cell.config_file.read_text()), "routes": [{"name": "a", "path": "/a", **route}, "defaults"]}
    (tmp_path / "k1.secret").write_bytes((cell.folder / "k1.secret").read_bytes())
    (tmp_path / "c.json").write_text(json.dumps(bad))
    done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", tmp_path / "c.json"], capture_output=True, text=True)
    assert done.returncode == 1 and why in done.stderr, done.stderr


@pytest.mark.parametrize("service", [{"url": "http://plane:80"}, {"url": "http://10.0.0.1"}, {"url": "http+unix:/x"}, {"url": "http://10.0.0.1:80", "headers": {"X-Other": "a"}}, {"url": "http://10.0.0.1:80", "x": 1}, 1])
def test_what_a_service_may_not_say(cell, tmp_path, service):
    bad = {**json.loads(cell.config_file.read_text()), "services": {"plane": service}}
    (tmp_path / "k1.secret").write_bytes((cell.folder / "k1.secret").read_bytes())
    (tmp_path / "c.json").write_text(json.dumps(bad))
    done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", tmp_path / "c.json"], capture_output=True, text=True)
    assert done.returncode == 1 and "c.json:1:" in done.stderr, done.stderr
