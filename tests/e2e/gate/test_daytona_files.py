# SPDX-License-Identifier: MIT
"""Daytona's pre-signed URLs of files: the record has the sandbox's signing key, and the gate alone judges the signature."""

import base64
import hashlib
import hmac
import json
import time
import urllib.parse

import pytest
from client import WEBSOCKET, Http1

KEY, OTHER, API = "a-signing-key-of-32-characters-1", "a-signing-key-of-32-characters-2", "dtn_example_key"
CONFIG = {
    "systems": ["daytona"],
    "agent": {"auth_failures": 0},  # these tests guess more often than anybody may
    "domains": {"daytona": ["proxy.test"]},
    "tokens": [
        {"kind": "daytona-file-url"},
        {"kind": "static", "sources": ["authorization"], "routes": ["daytona-toolbox", "daytona-toolbox-pty"], "need": ["exec", "pty"]},
        {"kind": "static", "sources": ["X-Daytona-Preview-Token"]},
    ],
}
GOOD, WRONG, MISSING = (200, None), (401, "token_invalid"), (401, "token_missing")


@pytest.fixture(scope="module")
def toolbox(origins):
    return origins()


@pytest.fixture(scope="module")
def application(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, toolbox, application):
    access = {"access": {"token_sha256": hashlib.sha256(API.encode()).hexdigest()}}
    up = {"worker": toolbox.url, "ports": {"2280": toolbox.url, "3000": application.url}} | access
    records = {"sb": up | {"signing_key": KEY}, "other": up | {"signing_key": OTHER}, "keyless": up}
    return cells(sandboxes=records, config=CONFIG)


def signature(path, expires, method="GET", key=KEY):
    mac = hmac.new(key.encode(), f"v1:files:{method}:{path}:{expires}".encode(), hashlib.sha256).digest()
    return "v1_" + base64.urlsafe_b64encode(mac).decode().rstrip("=")


def soon():
    return int(time.time()) + 60


def query(path="/home/user/a b+ü.txt", expires=None, method="GET", key=KEY, instead=()):
    expires = soon() if expires is None else expires
    parameters = {"path": path, "expires": expires, "signature": signature(path, expires, method, key)} | dict(instead)
    return urllib.parse.urlencode({name: value for name, value in parameters.items() if value is not None})


def ask(cell, method, target, headers=(), host="cell.test"):
    with Http1(cell.http) as client:
        got = client.request(method, target, headers, b"x" if method == "POST" else b"", host=host)
    return got.status, json.loads(got.body)["error"] if got.status != 200 and got.body else None


DOWNLOAD, UPLOAD = "/toolbox/sb/files/download", "/toolbox/sb/files/upload-v2"


def test_a_signed_url_opens_its_file_and_the_toolbox_sees_no_signature(cell, toolbox):
    at_host = {"host": "2280-sb.proxy.test"}
    for method, target, more in (("GET", DOWNLOAD, {}), ("HEAD", DOWNLOAD, {}), ("POST", UPLOAD, {}), ("GET", "/files/download", at_host), ("POST", "/files/upload-v2", at_host)):
        for expires in (soon(), 0):
            made = query(expires=expires, method="POST" if method == "POST" else "GET")
            before = len(toolbox.requests)
            assert ask(cell, method, f"{target}?{made}", **more)[0] == 200, (method, target)
            (seen,) = toolbox.requests[before:]
            assert seen.target == target.removeprefix("/toolbox/sb") + "?" + urllib.parse.urlencode({"path": "/home/user/a b+ü.txt"})
            assert KEY not in str(seen.headers)


def test_a_signed_url_opens_nothing_else(cell, toolbox):
    before = len(toolbox.requests)
    for name, target in {
        "another path": f"{DOWNLOAD}?{query('/a', instead={'path': '/b'})}",
        "another end": f"{DOWNLOAD}?{query('/a', instead={'expires': soon() + 60})}",
        "no end": f"{DOWNLOAD}?{query('/a', instead={'expires': 0})}",
        "an end with a zero": f"{DOWNLOAD}?{query('/a', instead={'expires': f'0{soon()}'})}",
        "an end that is none": f"{DOWNLOAD}?{query('/a', instead={'expires': '-1'})}",
        "to upload": f"{DOWNLOAD}?{query('/a', method='POST')}",
        "an empty path": f"{DOWNLOAD}?{query('')}",
        "of another sandbox": f"/toolbox/other/files/download?{query('/a')}",
        "of one without a key": f"/toolbox/keyless/files/download?{query('/a')}",
        "of one without a key, by none": f"/toolbox/keyless/files/download?{query('/a', key='')}",
        "of one without a key, by what stands for none": f"/toolbox/keyless/files/download?{query('/a', key='0' * 32)}",
        "of none": f"/toolbox/none/files/download?{query('/a', key='0' * 32)}",
        "by another key": f"{DOWNLOAD}?{query('/a', key=OTHER)}",
        "of nothing": f"{DOWNLOAD}?{query('/a', instead={'signature': ''})}",
        "of another version": f"{DOWNLOAD}?{query('/a', instead={'signature': 'v2_' + 'A' * 43})}",
        "cut": f"{DOWNLOAD}?{query('/a', instead={'signature': signature('/a', soon())[:-1]})}",
    }.items():
        assert ask(cell, "GET", target) == WRONG, name
    assert ask(cell, "GET", f"{DOWNLOAD}?{query('/a', expires=int(time.time()) - 5)}") == (401, "token_expired")
    for parameter in ("path", "expires"):
        assert ask(cell, "GET", f"{DOWNLOAD}?{query('/a', instead={parameter: None})}") == (400, "bad_request")
    assert ask(cell, "GET", f"{DOWNLOAD}?{query('/a')}&p%61th=/b") == (400, "bad_request")
    assert ask(cell, "GET", f"{DOWNLOAD}?{query('/a')}", WEBSOCKET)[0] in (401, 403)
    assert len(toolbox.requests) == before


@pytest.mark.parametrize("target", ["/files/delete", "/files/download/", "/x/files/download", "/process/execute", "/files/upload-v2", "/FILES/download", "/files/search/files/download"])
def test_a_signature_counts_at_no_other_path(cell, toolbox, target):
    before = len(toolbox.requests)
    got = [ask(cell, "GET", f"/toolbox/sb{target}?{query('/a')}"), ask(cell, "GET", f"{target}?{query('/a')}", host="2280-sb.proxy.test")]
    assert all(status in (401, 403) for status, _ in got), got
    assert len(toolbox.requests) == before


def test_a_signature_counts_by_no_other_method_or_port(cell, toolbox, application):
    before = len(toolbox.requests)
    for method in ("PUT", "DELETE", "PATCH", "POST"):
        assert ask(cell, method, f"{DOWNLOAD}?{query('/a')}") == MISSING, method
    assert ask(cell, "GET", f"/files/download?{query('/a')}", host="3000-sb.proxy.test") == MISSING
    assert len(toolbox.requests) == before
    # there it is the application's
    target = f"/files/download?{query('/a')}"
    assert ask(cell, "GET", target, [("X-Daytona-Preview-Token", API)], "3000-sb.proxy.test") == GOOD
    assert application.requests[-1].target == target


def test_neither_key_nor_signature_is_logged(cell):
    expires = soon()
    made = signature("/a", expires)
    for sandbox in ("sb", "none"):
        ask(cell, "GET", f"/toolbox/{sandbox}/files/download?{query('/a', expires)}")
    text = cell.access_log() + json.dumps(cell.logs())
    assert "sandbox=none" in text and made not in text and KEY not in text
