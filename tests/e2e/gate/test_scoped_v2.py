# SPDX-License-Identifier: MIT
"""Scoped tokens of agent-sandbox, version 2, through HAProxy: each opens one request, and none reaches a worker or a log."""

import json
import subprocess
import sys
import time

import pytest
from cell import BIN, ROOT, until
from client import WEBSOCKET, Http1

sys.path.insert(0, str(ROOT / "tests/data"))
import make_scoped_v2 as data  # noqa: E402

SCOPED = b"0123456789abcdef0123456789abcdef"
ROUTES = [
    {"name": "by-path", "system": "agent-sandbox", "path": "/sandboxes/{namespace}/{sandbox}/{port}/{rest...}", "to": "/{rest}", "need": "http"},
    {"name": "by-relay", "path": "/relay/{sandbox}/{port}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "pty"},
    "defaults",
]
TOKENS = [{"kind": "agent-sandbox", "secret_file": "scoped"}, {"kind": "agent-sandbox-v2", "keys_file": "keys.json", "max_ttl": "1h"}]


@pytest.fixture(scope="module")
def worker(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, worker):
    box = {"ports": {port: worker.url for port in ("8080", "8888", "9090")}, "uid": data.UID}
    config = {"systems": ["agent-sandbox"], "routes": ROUTES, "tokens": TOKENS, "agent": {"auth_failures": 0}}
    return cells(sandboxes={"box": box, "other": box, "ns/box": box, "bare": {"ports": box["ports"]}}, config=config, files={"scoped": SCOPED, "keys.json": data.keys_file()})


def ask(cell, token, method="GET", target=data.PATH, name="box", port="9090", space=None, more=()):
    headers = [("Authorization", "Bearer " + token), *more]
    headers += [(header, value) for header, value in (("X-Sandbox-ID", name), ("X-Sandbox-Port", port), ("X-Sandbox-Namespace", space)) if value]
    with Http1(cell.http) as client:
        response = client.request(method, target, headers, b"x" if method == "POST" else b"")
    if method == "HEAD":
        return [response.status, None]
    return [response.status, json.loads(response.body)["error"] if response.status >= 400 else None]


def test_the_file_in_the_tree_is_what_the_script_makes():
    kept = json.loads((ROOT / "tests/data/scoped_v2.json").read_text())
    assert kept == {"now": data.NOW, "keys": json.loads(data.keys_file()), "tokens": data.table()}, "run tests/data/make_scoped_v2.py"


def test_each_token_opens_its_own_request_and_no_other(cell, worker):
    wrong, before, good = [], len(worker.requests), 0
    for row in data.table(int(time.time())):
        got, want = ask(cell, row["token"], **row["request"]), row["want"]
        want = [want[0], None] if row["request"].get("method") == "HEAD" else want
        good += want == data.GOOD
        if got != want:
            wrong.append((row["name"], got, want))
    assert not wrong
    assert good >= 6 and len(worker.requests) == before + good
    assert not any("authorization" in request.names or "v2." in request.target for request in worker.requests[before:])


def test_a_good_one_is_not_remembered_for_another_request(cell):
    made = data.token(data.claims(int(time.time())))
    for _ in range(3):
        assert ask(cell, made) == data.GOOD
        assert ask(cell, made, target="/exec/stop") == ask(cell, made, method="DELETE") == ask(cell, made, port="8080") == data.GRANT
        assert ask(cell, made, name="other") == data.SANDBOX


def test_a_sandbox_that_was_made_anew_is_another(cell):
    made = data.token(data.claims(int(time.time()), name="anew"))
    record = {"ports": {"9090": cell.sandboxes["box"]["ports"]["9090"]}}
    for uid, want in ((data.UID, data.GOOD), ("another", data.ABSENT), (data.UID, data.GOOD)):
        cell.set_sandboxes(anew=record | {"uid": uid})
        until(lambda want=want: ask(cell, made, name="anew") == want, 10, uid)


def test_what_the_router_does_not_believe_does_not_go_with_one(cell):
    made = data.token(data.claims(int(time.time())))
    for header in ("X-Sandbox-UID", "X-Sandbox-Pod-IP"):
        assert ask(cell, made, more=[(header, data.UID)]) == data.GRANT


def test_by_path_it_is_the_workers_path_that_was_signed(cell, worker):
    made = data.token(data.claims(int(time.time())))
    whole = data.token(data.claims(int(time.time()), path="/sandboxes/default/box/9090/exec/run"))
    with Http1(cell.http) as client:
        assert client.request("GET", "/sandboxes/default/box/9090" + data.PATH, [("Authorization", "Bearer " + made)]).status == 200
    assert worker.requests[-1].target == data.PATH
    for target, token in (("/sandboxes/default/box/8080" + data.PATH, made), ("/sandboxes/default/box/9090/x/.." + data.PATH, made), ("/sandboxes/default/box/9090" + data.PATH, whole)):
        with Http1(cell.http) as client:
            assert client.request("GET", target, [("Authorization", "Bearer " + token)]).status == 403


def test_no_tunnel_of_the_relay_is_opened_by_one(cell):
    made = data.token(data.claims(int(time.time())))
    with Http1(cell.http) as client:
        assert client.upgrade("/relay/box/9090" + data.PATH, [*WEBSOCKET, ("Authorization", "Bearer " + made)]).status in (400, 403)


def test_keys_that_are_none_are_refused_at_the_start(cells, tmp_path):
    key = data.b64(data.public("key-1"))
    bad = [b"", b"{}", b"[]", b'{"keys":[]}', b'{"keys":{}}', b'{"keys":[{}]}', b'{"keys":[1]}']
    bad += [json.dumps({"keys": keys}).encode() for keys in ([{"kid": "a.b", "publicKey": key}], [{"kid": "", "publicKey": key}], [{"kid": "a", "publicKey": key[:-1]}], [{"kid": "a", "publicKey": key + "="}], [{"kid": "a", "publicKey": key}] * 2, [{"kid": "a", "publicKey": key, "d": key}])]
    (tmp_path / "sandboxes.json").write_text('{"sandboxes":{}}')
    config = tmp_path / "cellgate.json"
    config.write_text(json.dumps({"directory": {"kind": "file", "path": "sandboxes.json"}, "systems": ["agent-sandbox"], "tokens": [TOKENS[1]]}))
    for content in bad:
        (tmp_path / "keys.json").write_bytes(content)
        assert subprocess.run([BIN / "cellgate-agent", "-t", "-c", config], capture_output=True).returncode == 1, content
    (tmp_path / "keys.json").write_bytes(data.keys_file())
    assert subprocess.run([BIN / "cellgate-agent", "-t", "-c", config], capture_output=True).returncode == 0


def test_none_is_logged(cell):
    made = data.token(data.claims(int(time.time())))
    ask(cell, made)
    ask(cell, made, target="/other")
    ask(cell, "x", name=made[:200])
    text = cell.access_log() + cell.logs()
    assert made[:40] not in text and made.split(".")[2] not in text and made.split(".")[3] not in text
