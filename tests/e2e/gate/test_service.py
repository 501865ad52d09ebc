# SPDX-License-Identifier: MIT
"""Paths of a control plane, which routes lead to a service of the configuration. It judges its callers itself, and gets what they bring;
or the gate does, and it gets headers of its own."""

import hashlib
import json
import os
import re
import signal
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
            {"name": "admin", "path": "/admin/{rest...}", "to_service": "admin", "to": "/{rest}", "need": "exec", "orgs": ["o1", "o2"]},
            {"name": "all", "path": "/all", "to_service": "admin", "need": "exec", "orgs": ["*"]},
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


def test_a_service_of_the_gates_own_credentials_is_for_the_organisations_of_its_route(cell, plane):
    before = len(plane.requests)
    for org in "o3", "o", "*":
        assert asked(cell, "GET", "/admin/a", [cell.bearer("*", org=org)]) == (403, "not_granted"), org
    assert asked(cell, "GET", "/all", [cell.bearer("*")]) == (401, "token_invalid")  # of no organisation
    assert len(plane.requests) == before
    for target, org in ("/admin/a", "o1"), ("/admin/a", "o2"), ("/all", "o3"):
        assert asked(cell, "GET", target, [cell.bearer("*", org=org)]) == (200, "")
        assert plane.requests[-1].all("authorization") == [OWN]


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
        ({"to_service": "admin"}, "1:{at}: route 'a': to_service: the service cannot tell one organisation's callers from another's"),
        ({"to_service": "plane", "need": "exec"}, "say whose are good"),
        ({"to_service": "admin", "orgs": []}, "say whose are good"),
        ({"to_service": "admin", "orgs": [""]}, "an organisation of 1 to 255 bytes"),
        ({"to_service": "plane", "need": "none", "orgs": ["*"]}, "nobody says an organisation"),
        ({"path": "/a/{sandbox}", "orgs": ["*"]}, "only with to_service"),
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
    assert done.returncode == 1 and why.replace("{at}", str(json.dumps(bad).index('{"name": "a"') + 1)) in done.stderr, done.stderr


@pytest.mark.parametrize("service", [{"url": "http://plane:80"}, {"url": "http://10.0.0.1"}, {"url": "http+unix:/x"}, {"url": "http://10.0.0.1:80", "headers": {"X-Other": "a"}}, {"url": "http://10.0.0.1:80", "x": 1}, 1])
def test_what_a_service_may_not_say(cell, tmp_path, service):
    bad = {**json.loads(cell.config_file.read_text()), "services": {"plane": service}}
    (tmp_path / "k1.secret").write_bytes((cell.folder / "k1.secret").read_bytes())
    (tmp_path / "c.json").write_text(json.dumps(bad))
    done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", tmp_path / "c.json"], capture_output=True, text=True)
    assert done.returncode == 1 and "c.json:1:" in done.stderr, done.stderr


# ---- headers in a file ----


def checked(folder, program="cellgate-agent", *more):
    return subprocess.run([BIN / program, "-t", "-c", folder / "cellgate.json", *more], capture_output=True, text=True, timeout=30)


@pytest.fixture
def folder(tmp_path):
    """A configuration whose service has its headers in a file."""
    (tmp_path / "k1.secret").write_bytes(b"a secret of the tests, of 32 bytes or more")
    (tmp_path / "k1.secret").chmod(0o600)
    given = config("http://127.0.0.1:9") | {"cell": "test", "directory": {"kind": "file", "path": "sandboxes.json"}}
    given["services"]["admin"] = {"url": "http://127.0.0.1:9", "headers_file": "admin.json"}
    (tmp_path / "cellgate.json").write_text(json.dumps(given))
    (tmp_path / "admin.json").write_text(json.dumps({"Authorization": OWN}))
    (tmp_path / "admin.json").chmod(0o600)
    return tmp_path


def test_a_service_gets_headers_of_a_file_that_a_reload_reads_again(cells, plane, worker):
    given = config(plane.url)
    given["services"]["admin"] = {"url": plane.url, "headers_file": "admin.json"}
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config=given, files={"admin.json": json.dumps({"Authorization": OWN}).encode()})
    path = cell.folder / "admin.json"
    token = cell.bearer("*", org="o1")

    def sent():
        assert asked(cell, "GET", "/admin/x", [token])[0] == 200
        return plane.requests[-1].all("authorization")

    assert sent() == [OWN]
    log = cell.run_dir / "agent.log"
    assert OWN not in log.read_text()
    for mode, text, says in ((0o644, "Bearer another", "everybody can read it (mode 644"), (0o600, "Bearer another", "msg=reloaded what=configuration")):
        path.write_text(json.dumps({"Authorization": text}))
        path.chmod(mode)
        os.kill(cell.pid("agent"), signal.SIGHUP)
        until(lambda: says in log.read_text(), 10, "the agent does not say so")
        assert sent() == [OWN if mode == 0o644 else text]


@pytest.mark.parametrize("mode,good", [(0o600, True), (0o400, True), (0o640, True), (0o604, False), (0o644, False), (0o660, False), (0o602, False)], ids=oct)
def test_a_file_of_headers_is_its_owners(folder, mode, good):
    (folder / "admin.json").chmod(mode)
    done = checked(folder)
    assert (done.returncode == 0) == good, done.stderr
    if not good:
        assert re.match(rf"{folder}/cellgate.json:1:\d+: headers_file: {folder}/admin.json: \w+( \w+)? can (read|write) it \(mode {mode:o}, should be 600\)", done.stderr)


# where a secret stands in the configuration: a file of it that others can write is an error, whatever it is for
PLACES = {
    "key": lambda file: {"tokens": [{"kind": "jwt", "alg": "HS256", "secret_file": file}]},
    "metrics": lambda file: {"agent": {"monitor": "127.0.0.1:0", "monitor_token_file": file}},
    "redis": lambda file: {"directory": {"kind": "redis", "server": "127.0.0.1:9", "password_file": file}},
    "http": lambda file: {"directory": {"kind": "http", "url": "http://127.0.0.1:9/{sandbox}", "token_file": file}},
    "egress": lambda file: {"egress": {"secrets": {"github": file}}},
}


@pytest.mark.parametrize("mode,good", [(0o640, True), (0o660, False), (0o602, False)], ids=oct)
@pytest.mark.parametrize("place", PLACES)
def test_a_secret_that_others_can_write_is_refused_wherever_it_stands(folder, place, mode, good):
    secret = folder / "the.secret"
    secret.write_text("of-thirty-two-bytes-and-some-more-of-it")
    given = json.loads((folder / "cellgate.json").read_text())
    (folder / "cellgate.json").write_text(json.dumps(given | PLACES[place](secret.name)))
    secret.chmod(mode)
    done = checked(folder)
    assert (done.returncode == 0) == good and (f"write it (mode {mode:o}" in done.stderr) != good, done.stderr
    assert good or str(secret) in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_a_group_that_is_not_the_agents_may_not_read_it(folder):
    for entry in (folder, *folder.iterdir()):
        os.chown(entry, 1, 1)
    for group, good in ((1, True), (60, False)):
        (folder / "admin.json").chmod(0o640)
        os.chown(folder / "admin.json", 1, group)
        done = subprocess.run(["setpriv", "--reuid", "1", "--regid", "1", "--groups", "60", BIN / "cellgate-agent", "-t", "-c", "cellgate.json"], cwd=folder, capture_output=True, text=True, timeout=30)
        assert (done.returncode == 0) == good, done.stderr
        assert good or "a group can read it (mode 640" in done.stderr


@pytest.mark.parametrize("text,says", [("[1]", "an object of names and values is expected"), ("{", "admin.json:1:"), ('{"Host": "x"}', "HAProxy cannot set 'Host'"), (None, "No such file")])
def test_a_file_of_headers_that_is_none(folder, text, says):
    path = folder / "admin.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
        path.chmod(0o600)
    done = checked(folder)
    assert done.returncode == 1 and says in done.stderr and re.match(rf"{folder}/cellgate.json:1:\d+: headers_file: ", done.stderr), done.stderr


def test_nobody_but_the_agent_opens_it(folder):
    (folder / "admin.json").unlink()
    assert checked(folder).returncode == 1
    assert checked(folder, "cellgate-relay").returncode == 0
    for command in ("routes", "headers", "networks"):
        done = subprocess.run([BIN / "cellgate", command, "--config", folder / "cellgate.json"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


def test_a_credential_in_the_configuration_is_told_with_its_place(folder):
    given = json.loads((folder / "cellgate.json").read_text())
    given["services"]["admin"] = {"url": "http://127.0.0.1:9", "headers": {"Authorization": OWN}}
    given["routes"].insert(0, {"name": "set", "path": "/set/{sandbox}", "upgrade": True, "via": "relay", "set": {"X-Api-Key": "of-the-route", "X-Kind": "plain"}})
    (folder / "cellgate.json").write_text(json.dumps(given, indent=1))
    for mode, reader in ((0o644, "everybody on this machine"), (0o640, "the relay")):
        (folder / "cellgate.json").chmod(mode)
        done = checked(folder)
        told = re.findall(r"^warning: \S+/cellgate\.json:(\d+):\d+: (\w+): (.+) can read this credential", done.stderr, re.M)
        assert done.returncode == 0 and [(key, who) for _, key, who in told] == [("headers", reader), ("set", reader)], done.stderr
        lines = (folder / "cellgate.json").read_text().splitlines()
        assert ["Authorization" in lines[int(told[0][0]) - 1], "X-Api-Key" in lines[int(told[1][0]) - 1]] == [True, True]
        assert OWN not in done.stderr and "of-the-route" not in done.stderr


def test_a_check_says_what_a_start_would(folder):
    """Files that everybody can read: of keys, and of records with headers."""
    (folder / "k1.secret").chmod(0o644)
    (folder / "sandboxes.json").write_text(json.dumps({"sandboxes": {"sb-1": {"worker": "http://127.0.0.1:9", "headers": {"Authorization": OWN}}}}))
    (folder / "sandboxes.json").chmod(0o644)
    said = [line for line in checked(folder).stderr.splitlines() if line.startswith("warning: ") and "everybody" in line]
    assert [any(f"/{name}: everybody" in line for line in said) for name in ("k1.secret", "sandboxes.json")] == [True, True], said
