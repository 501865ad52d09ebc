# SPDX-License-Identifier: MIT
"""What e2b's SDK goes by: statuses and bodies of sandboxes that do not run, and its signed URLs of files."""

import base64
import hashlib
import json
import time
import urllib.parse

import pytest
from cell import closed_port, token
from client import WEBSOCKET, Http1, Http2

ENVD, PREVIEW = "an-envd-token", "a-traffic-token"
CONFIG = {
    "systems": ["e2b"],
    "agent": {"auth_failures": 0},  # these tests guess more often than anybody may
    "domains": {"e2b": ["e2b.test"]},
    "tokens": [
        {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"},
        {"kind": "e2b-file-url"},
        {"kind": "static", "sources": ["e2b-traffic-access-token"]},
        {"kind": "static", "sources": ["X-Access-Token"], "routes": ["e2b-envd", "e2b-envd-header"], "need": ["exec"]},
    ],
}


def access(secret):
    return {"access": {"token_sha256": hashlib.sha256(secret.encode()).hexdigest()}}


@pytest.fixture(scope="module")
def envd(origins):
    return origins()


@pytest.fixture(scope="module")
def application(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, envd, application):
    up = {"worker": envd.url, "headers": {"X-Access-Token": ENVD}} | access(ENVD)
    up["ports"] = {"3000": {"url": application.url, "access": {"token_sha256": hashlib.sha256(PREVIEW.encode()).hexdigest()}}}
    records = {"iup": up, "istopped": up | {"state": "stopped"}, "iwaking": up | {"state": "waking"}, "iother": up | {"headers": {"X-Access-Token": "of-another"}}}
    records["ideaf"] = up | {"worker": f"http://127.0.0.1:{closed_port()}"}
    records["iopen"] = {"worker": envd.url}
    return cells(sandboxes=records, config=CONFIG, environment={"CELLGATE_HEADERS": "x-access-token"})


def health(cell, sandbox, *headers, host=None):
    """What isRunning() asks, over both versions of HTTP."""
    answers = []
    for client in (Http1(cell.http), Http2(cell.https)):
        with client:
            got = client.request("GET", "/health", headers, host=host or f"49983-{sandbox}.e2b.test")
            answers.append((got.status, got.body, got.get("retry-after")))
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.parametrize(
    "sandbox,status,error,retry",
    [
        ("inone", 502, "sandbox_not_found", None),
        ("istopped", 502, "sandbox_stopped", None),
        ("iwaking", 409, "sandbox_waking", "1"),
    ],
)
def test_who_may_use_a_sandbox_learns_that_it_does_not_run(cell, sandbox, status, error, retry):
    bearer = ("Authorization", "Bearer " + token(sandbox=sandbox))
    for host in (None, f"49983-{sandbox}-6532622b.e2b.test"):
        got, body, after = health(cell, sandbox, bearer, host=host)
        told = json.loads(body)
        assert (got, after, told["error"], told["sandboxId"], told["code"]) == (status, retry, error, sandbox, status)
        assert told["message"]


def test_a_sandbox_that_cannot_be_reached_does_not_run_either(cell):
    assert health(cell, "ideaf", ("X-Access-Token", ENVD))[0] == 502


def test_a_running_sandbox_runs(cell):
    assert health(cell, "iup", ("X-Access-Token", ENVD))[0] == 200


def test_a_wrong_secret_gets_the_same_of_every_sandbox(cell):
    """One that runs, one that does not, and none: but for the name that was asked for, byte for byte."""
    for headers, status in (([("X-Access-Token", "wrong")], 502), ([("e2b-traffic-access-token", "wrong")], 502), ([], 401)):
        answers = {health(cell, name, *headers)[1].replace(name.encode(), b"NAME") for name in ("iup", "istopped", "iwaking", "inone")}
        assert len(answers) == 1, answers
        assert health(cell, "inone", *headers)[0] == status


def test_other_refusals_stay_what_they_are(cell):
    bearer = ("Authorization", "Bearer " + token(sandbox="iup", need=["http"]))
    status, body, _ = health(cell, "iup", bearer)
    assert (status, json.loads(body)["error"], "sandboxId" in json.loads(body)) == (403, "not_granted", False)


# ---- signed URLs ----


def signature(path, operation="read", user="", secret=ENVD, expires=None):
    """As the SDK's getSignature, with an empty user where there is none."""
    text = ":".join([path, operation, user, secret] + ([str(expires)] if expires is not None else []))
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def url(path="/home/user/a.txt", operation="read", user="", secret=ENVD, expires=None, instead=()):
    query = {"path": path} | ({"username": user} if user else {}) | ({"signature_expiration": expires} if expires is not None else {})
    return "/files?" + urllib.parse.urlencode(query | {"signature": signature(path, operation, user, secret, expires)} | dict(instead))


def ask(cell, method, target, headers=(), host="49983-iup.e2b.test"):
    with Http1(cell.http) as client:
        got = client.request(method, target, headers, b"x" if method == "POST" else b"", host=host)
    return got.status, json.loads(got.body)["error"] if got.status != 200 else None


GOOD, WRONG, MISSING = (200, None), (502, "token_invalid"), (401, "token_missing")


def soon():
    return int(time.time()) + 60


def test_a_signed_url_opens_its_file_and_envd_judges_it_too(cell, envd):
    """With the record's X-Access-Token envd would look at no signature: it does not get it."""
    for method, operation in (("GET", "read"), ("POST", "write")):
        for more in ({}, {"user": "ro ot"}, {"expires": soon()}, {"path": "/a b+ü&c"}, {"path": ""}):
            target, before = url(operation=operation, **more), len(envd.requests)
            assert ask(cell, method, target) == GOOD, target
            (seen,) = envd.requests[before:]
            assert seen.target == target and not seen.all("x-access-token")
    target = url()
    for host in ("49983-iup-6532622b.e2b.test", "cell.test"):
        assert ask(cell, "GET", target, [] if host != "cell.test" else [("E2b-Sandbox-Id", "iup")], host) == GOOD


def test_a_header_that_decides_gets_envds_token_as_ever(cell, envd):
    before = len(envd.requests)
    assert ask(cell, "GET", url(), [("X-Access-Token", ENVD)]) == GOOD
    (seen,) = envd.requests[before:]
    assert seen.all("x-access-token") == [ENVD]
    assert ask(cell, "GET", url(), [("X-Access-Token", "wrong")]) == WRONG


def test_a_signed_url_opens_nothing_else(cell, envd):
    late = int(time.time()) - 5
    good, before = signature("/a"), len(envd.requests)
    elsewhere = {
        "another path": ("GET", url("/a", instead={"path": "/b"}), {}),
        "no path": ("GET", "/files?" + urllib.parse.urlencode({"signature": good}), {}),
        "another user": ("GET", url("/a", instead={"username": "root"}), {}),
        "another end": ("GET", url("/a", expires=soon(), instead={"signature_expiration": soon() + 60}), {}),
        "an end that was not signed": ("GET", url("/a", instead={"signature_expiration": soon()}), {}),
        "an end that is none": ("GET", url("/a", expires=soon(), instead={"signature_expiration": "x"}), {}),
        "an end with a zero": ("GET", url("/a", expires=soon(), instead={"signature_expiration": f"0{soon()}"}), {}),
        "to read": ("GET", url("/a", "write"), {}),
        "to write": ("POST", url("/a", "read"), {}),
        "of another sandbox": ("GET", url("/a"), {"host": "49983-iother.e2b.test"}),
        "of none": ("GET", url("/a"), {"host": "49983-inone.e2b.test"}),
        "of one whose envd has no token": ("GET", url("/a", secret=""), {"host": "49983-iopen.e2b.test"}),
        "by nobody": ("GET", url("/a", secret="wrong"), {}),
        "by nothing": ("GET", url("/a", secret=""), {}),
        "by what stands for no secret": ("GET", url("/a", secret="0" * 32), {"host": "49983-inone.e2b.test"}),
        "with a colon in the user": ("GET", url("/a", user="b:read:c"), {}),
    }
    for name, (method, target, more) in elsewhere.items():
        status, error = ask(cell, method, target, **more)
        assert (status, error) in (WRONG, (401, "token_invalid")), name
    spoilt = ["", "v1_", good[:-1], good + "A", good + "=", "v2_" + good[3:], "V1_" + good[3:], good[3:], "v1_" + "-" * 43, "v1_" + "_" * 43, "v1_" + "é" * 43, "v1_" + "A" * 43, good[:-1] + "B", " " + good]
    for text in spoilt:
        status, error = ask(cell, "GET", "/files?" + urllib.parse.urlencode({"path": "/a", "signature": text}))
        assert (status, error) in (WRONG, (401, "token_invalid")), text
    assert ask(cell, "GET", url("/a", expires=late)) == (401, "token_expired")
    assert ask(cell, "GET", url("/a") + "&signature=" + urllib.parse.quote(good)) == (400, "bad_request")
    assert ask(cell, "GET", url("/a") + "&p%61th=/b") == (400, "bad_request")
    assert len(envd.requests) == before


@pytest.mark.parametrize("target", ["/files/", "/Files", "//files", "/x/files", "/files/a", "/%66iles", "/filesystem.Filesystem/ListDir", "/process.Process/Start", "/"])
def test_a_signature_counts_at_no_other_path(cell, envd, target):
    before, query = len(envd.requests), url("/a").partition("?")[2]
    assert ask(cell, "GET", f"{target}?{query}") == MISSING
    assert len(envd.requests) == before


def test_a_signature_counts_by_no_other_method_or_port(cell, envd, application):
    before = len(envd.requests)
    for method in ("PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"):
        with Http1(cell.http) as client:
            assert client.request(method, url("/a"), host="49983-iup.e2b.test").status == 401, method
    assert ask(cell, "GET", url("/a"), host="3000-iup.e2b.test") == MISSING
    assert ask(cell, "GET", url("/a"), [*WEBSOCKET])[0] == 403
    assert len(envd.requests) == before
    # there it is the application's
    assert ask(cell, "GET", url("/a"), [("e2b-traffic-access-token", PREVIEW)], "3000-iup.e2b.test") == GOOD
    assert application.requests[-1].target == url("/a")


def test_no_signature_is_logged(cell):
    made = signature("/a")
    ask(cell, "GET", url("/a"))
    ask(cell, "GET", url("/a"), host="49983-inone.e2b.test")
    text = cell.access_log() + json.dumps(cell.logs())
    assert "sandbox=inone" in text and made not in text and urllib.parse.quote(made, safe="") not in text and ENVD not in text
