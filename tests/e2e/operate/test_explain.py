# SPDX-License-Identifier: MIT
"""`cellgate explain`: the decision and its reasons, without an agent and without a credential."""

import hashlib
import json
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cell import ALL_SYSTEMS as SYSTEMS
from cell import BIN
from plane import FakePlane, Plane, answer

ROOT = Path(__file__).parents[3]
CELLGATE = str(BIN / "cellgate")
RECORD = {"worker": "http://127.0.0.1:9001", "epoch": 3, "headers": {"X-EXECD-ACCESS-TOKEN": "record-secret"}}

LOOPBACK = ["127.0.0.0/8", "::1/128"]


def run(*arguments, stdin=None):
    return subprocess.run([CELLGATE, *arguments], capture_output=True, text=True, timeout=20, input=stdin)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    (folder / "k").write_text("0123456789abcdef0123456789abcdef")
    (folder / "s.json").write_text(json.dumps({"sandboxes": {"sb-1": RECORD}}))
    (folder / "c.json").write_text(
        json.dumps(
            {
                "directory": {"kind": "file", "path": "s.json"},
                "worker_networks": LOOPBACK,
                "tokens": [{"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": "k"}],
                "systems": SYSTEMS,
            }
        )
    )
    return str(folder / "c.json")


@pytest.fixture(scope="module")
def token(config):
    return run("token", "--config", config, "--sandbox", "sb-1").stdout.strip()


def test_says_which_route_and_why_not_the_others(config, token):
    done = run("explain", "--config", config, f"GET http://h/v1/sandboxes/sb-1/proxy/9001/a?b=secret&cellgate_token={token}")
    assert done.returncode == 0, done.stderr
    assert "not opencomputer-preview: its form of host has no domain" in done.stdout
    assert "not terminal: it is for WebSocket upgrades only" in done.stdout
    assert "this one matches: opensandbox-proxy" in done.stdout
    assert "carried by: query" in done.stdout
    for secret in (token, "record-secret", "secret"):
        assert secret not in done.stdout + done.stderr


def test_says_which_system_would_have_served_it(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"sandboxes": {"sb-1": RECORD}}))
    config = {"worker_networks": LOOPBACK, "directory": {"kind": "file", "path": "s.json"}, "open": True, "systems": ["opencomputer"]}
    (tmp_path / "c.json").write_text(json.dumps(config))
    done = run("explain", "--config", str(tmp_path / "c.json"), "GET http://h/v1/sandboxes/sb-1/proxy/9001/a")
    assert done.returncode == 1 and "no_route" in done.stdout
    assert "it would match if `systems` had: opensandbox\n" in done.stdout
    assert "which has the route: opensandbox-proxy\n" in done.stdout
    done = run("explain", "--config", str(tmp_path / "c.json"), "GET http://h/nowhere")
    assert done.returncode == 1 and "it would match" not in done.stdout


def test_a_revocation_that_is_pushed_counts(config, token, tmp_path):
    plane = Plane(tmp_path)
    try:
        plane.set("sb-1", worker="http://127.0.0.1:9001")
        key = Path(config).with_name("k")
        tokens = [{"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": str(key)}]
        (tmp_path / "c.json").write_text(json.dumps({"worker_networks": LOOPBACK, "directory": plane.directory(), "tokens": tokens, "systems": SYSTEMS}))
        request = ("--config", str(tmp_path / "c.json"), "-H", f"Authorization: Bearer {token}", "GET http://h/v1/sandboxes/sb-1/proxy/9001/a")
        assert run("explain", *request).returncode == 0
        plane("revoke", str(int(time.time()) + 100))
        done = run("explain", *request)
        assert done.returncode == 1 and "token_revoked" in done.stdout, done.stdout
    finally:
        plane.close()


def test_a_revocation_that_comes_behind_the_record_counts(config, token, tmp_path):
    """As from a control plane that sends the head of its events first, and then what they begin with."""
    answered = threading.Event()

    def record(connection, request):
        answer(connection, 200, {"worker": "http://127.0.0.1:9001"})
        answered.set()

    def events(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        answered.wait(10)
        connection.send(b"event: revoke\ndata: {\"not_before\":%d}\n\n" % (time.time() + 100))
        connection.read()
        return True

    plane = FakePlane()
    plane.ways["sb-1"], plane.events = record, events
    try:
        tokens = [{"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": str(Path(config).with_name("k"))}]
        (tmp_path / "c.json").write_text(json.dumps({"worker_networks": LOOPBACK, "directory": {"kind": "http", "url": plane.url}, "tokens": tokens, "systems": SYSTEMS}))
        done = run("explain", "--config", str(tmp_path / "c.json"), "-H", f"Authorization: Bearer {token}", "GET http://h/v1/sandboxes/sb-1/proxy/9001/a")
        assert done.returncode == 1 and "token_revoked" in done.stdout, done.stdout + done.stderr
    finally:
        plane.close()


def test_json_holds_steps_and_verdict(config, token):
    done = run(
        "explain", "--json", "--upgrade", "--config", config, "-H", f"Authorization: Bearer {token}",
        "GET http://h/api/sandboxes/sb-1/pty/s1",
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["verdict"]["verdict"] == "relay"
    assert told["verdict"]["path"] == "/sandboxes/sb-1/pty/s1"
    assert told["verdict"]["removed"] == "Authorization"
    assert {"step": "token", "text": "carried by", "detail": "authorization"} in told["steps"]
    assert token not in done.stdout


def test_says_which_headers_are_set_and_removed(config, token, tmp_path):
    routes = [
        {"name": "relay", "path": "/r/{sandbox}", "upgrade": True, "via": "relay", "need": "none", "strip": ["X-Drop"], "set": {"X-Set": "secret"}},
        {"name": "direct", "path": "/d/{sandbox}/{rest...}", "to": "/{rest...}", "need": "none"},
    ]
    records = {"sb-1": RECORD | {"headers": {"X-EXECD-ACCESS-TOKEN": "secret", "X-Other": "secret"}}}
    (tmp_path / "s.json").write_text(json.dumps({"sandboxes": records}))
    (tmp_path / "c.json").write_text(json.dumps({"worker_networks": LOOPBACK, "directory": {"kind": "file", "path": "s.json"}, "open": True, "tokens": [], "routes": routes}))
    lines = [x for line in ("X_Drop: secret", "X-Kept: secret", "X_Cell_Org: secret", "Cookie: secret") for x in ("-H", line)]
    done = run("explain", "--config", str(tmp_path / "c.json"), "--upgrade", *lines, "GET http://h/r/sb-1")
    assert "header    set by the route: X-Set\n" in done.stdout and "header    set by the record: X-Other\n" in done.stdout
    assert re.search(r"removed +X_Drop, X_Cell_Org, Cookie\n", done.stdout) and "secret" not in done.stdout
    done = run("explain", "--config", str(tmp_path / "c.json"), *lines, "GET http://h/d/sb-1/a")
    assert "header    set by the record: X-EXECD-ACCESS-TOKEN\n" in done.stdout
    assert "header    not set, HAProxy has no rule for it: X-Other\n" in done.stdout
    assert re.search(r"prefix +/d/sb-1\n", done.stdout) and "secret" not in done.stdout


@pytest.mark.parametrize(
    "request_line, code",
    [
        ("GET http://h/nothing", "no_route"),
        ("GET http://h/sandboxes/sb-1/proxy/9001/", "token_missing"),
        ("GET http://h/sandboxes/sb-1/proxy/0/", "bad_request"),
        ("CONNECT http://h/", "bad_request"),
    ],
)
def test_refusals_exit_with_1(config, request_line, code):
    done = run("explain", "--json", "--config", config, request_line)
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"]["error"] == code


def test_wrong_usage_exits_with_2(config):
    assert run("explain", "--config", config).returncode == 2
    assert run("explain", "--config", config, "--nonsense", "GET http://h/").returncode == 2
    assert run("explain", "--config", config, "GET").returncode == 2
    assert run("explain", "--config", config, "-H", "no colon", "GET http://h/").returncode == 2
    assert run("explain", "--help").returncode == 0


def test_a_bad_configuration_is_named_with_its_position(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"worker_networks":["10.0.0.0/8"],"directory":{"kind":"file","path":"s"},"tokens":[],"open":true,"routes":[{"name":"r"}]}')
    done = run("explain", "--config", str(path), "GET http://h/")
    assert done.returncode == 1
    assert f"{path}:1:" in done.stderr


def test_the_documentation_has_every_built_in_route_and_every_key(config):
    text = (ROOT / "docs/routing.md").read_text()
    routes = re.findall(r"not ([a-z0-9-]+): ", run("explain", "--config", config, "GET http://h/nothing").stdout)
    keys = re.findall(r'^    \{"([a-z_]+)", OPTION', (ROOT / "spoa/agent/route/keys.c").read_text(), re.M)
    assert len(routes) > 15 and len(keys) > 20
    assert [name for name in routes + keys if f"`{name}`" not in text] == []


# ---- what is secret need not be an argument ----


def test_headers_and_the_request_are_read_from_files(config, token, tmp_path):
    (tmp_path / "headers").write_text(f"Authorization: Bearer {token}\r\nX-Other: 1\n")
    (tmp_path / "request").write_text(f"GET /sandboxes/sb-1/proxy/9001/a?cellgate_token={token} HTTP/1.1\r\nHost: h\r\n\r\nnot a header\r\n")
    url = "GET http://h/sandboxes/sb-1/proxy/9001/a"
    for arguments, stdin in (
        (["-H", f"@{tmp_path}/headers", url], None),
        (["-H", "@-", url], f"Authorization: Bearer {token}"),
        ([f"@{tmp_path}/request"], None),
        (["@-"], f"{url}?cellgate_token={token}\n"),
    ):
        done = run("explain", "--config", config, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "verdict             direct" in done.stdout and token not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments, stdin",
    [
        (["-H", "@/nonexistent", "GET http://h/"], None),
        (["-H", "secret without colon", "GET http://h/"], None),
        (["-H", "@-", "GET http://h/"], "secret without colon"),
        (["@-"], ""),
        (["@-"], "\nGET http://h/\n"),
        (["@-"], "GET http://h/\n" + "A: secret\n" * 129),
        (["@-", "GET http://h/"], "GET http://h/"),
        (["-H", "@-", "GET http://h/"], "A: secret\n" * 10000),
    ],
)
def test_what_cannot_be_read_is_said_without_quoting_it(config, arguments, stdin):
    done = run("explain", "--config", config, *arguments, stdin=stdin)
    assert done.returncode == 2 and done.stderr.startswith("cellgate explain: ")
    assert "secret" not in done.stdout + done.stderr.partition("Usage:")[0]


def test_says_which_rule_about_the_token_decided(tmp_path):
    (tmp_path / "k").write_text("0123456789abcdef0123456789abcdef")
    secret = "an access secret"
    record = RECORD | {"serves": "application", "access": {"token_sha256": hashlib.sha256(secret.encode()).hexdigest()}}
    (tmp_path / "s.json").write_text(json.dumps({"sandboxes": {"sb-1": record}}))
    tokens = [{"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": "k"}, {"kind": "agent-sandbox", "secret_file": "k"}, {"kind": "static", "everywhere": True}]
    (tmp_path / "c.json").write_text(json.dumps({"worker_networks": LOOPBACK, "directory": {"kind": "file", "path": "s.json"}, "tokens": tokens, "systems": SYSTEMS}))
    config, url = str(tmp_path / "c.json"), "GET http://h/sandboxes/sb-1/proxy/9001/"

    def steps(header):
        done = run("explain", "--config", config, "-H", "@-", url, stdin=header)
        return [line.partition(" ")[2].strip() for line in done.stdout.splitlines() if line.startswith("token ")]

    jwt = run("token", "--config", config, "--sandbox", "sb-1").stdout.strip()
    assert steps(f"Authorization: Bearer {jwt}") == ["carried by: authorization", "judged as a token of kind: jwt", "with the key: k1", "it is valid and grants this"]
    good = steps(f"X-OC-Preview-Token: {secret}")
    assert good[:2] == ["carried by: X-OC-Preview-Token", "judged as a token of kind: static"] and good[-1] == "it is valid and grants this"
    assert steps("X-OC-Preview-Token: wrong")[-1] == "it is not the access secret of a sandbox of this name"
    assert steps("Authorization: Bearer v1.x.y") == ["carried by: authorization", "judged as a token of kind: agent-sandbox", "it is not v1.PAYLOAD.SIGNATURE in base64url"]
    assert steps("Authorization: Basic x") == ["carried by: none", "there is none"]
