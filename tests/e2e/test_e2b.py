# SPDX-License-Identifier: MIT
"""What e2b's SDK goes by: statuses and bodies of sandboxes that do not run."""

import hashlib
import json

import pytest
from cell import closed_port, token
from client import Http1, Http2

ENVD, PREVIEW = "an-envd-token", "a-traffic-token"
CONFIG = {
    "systems": ["e2b"],
    "domains": {"e2b": ["e2b.test"]},
    "tokens": [
        {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"},
        {"kind": "static", "sources": ["e2b-traffic-access-token"]},
        {"kind": "static", "sources": ["X-Access-Token"], "routes": ["e2b-envd", "e2b-envd-header"], "need": ["exec"]},
    ],
}


def access(secret):
    return {"access": {"token_sha256": hashlib.sha256(secret.encode()).hexdigest()}}


@pytest.fixture(scope="module")
def cell(cells, origins):
    envd = origins()
    up = {"worker": envd.url, "headers": {"X-Access-Token": ENVD}} | access(ENVD)
    records = {"iup": up, "istopped": up | {"state": "stopped"}, "iwaking": up | {"state": "waking"}, "ideaf": up | {"worker": f"http://127.0.0.1:{closed_port()}"}}
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
