# SPDX-License-Identifier: MIT
"""The table of bad tokens (tests/data) through HAProxy and the agent, in every source: the exact answer of each."""

import json
import re
import sys
import time
import urllib.parse
from itertools import groupby

import pytest
from cell import ROOT, until
from client import WEBSOCKET, Http1

sys.path.insert(0, str(ROOT / "tests/data"))
import make_bad_tokens  # noqa: E402

STATUS = {"": 200, "token_missing": 401, "token_invalid": 401, "token_expired": 401, "token_revoked": 401, "wrong_cell": 403}
STATUS |= {"wrong_sandbox": 403, "not_granted": 403, "sandbox_not_found": 404}


@pytest.fixture(scope="module")
def cell(cells, origins):
    table = make_bad_tokens.table()
    routes = [
        {"name": "port", "path": "/p/{sandbox}/{port}/{rest...}", "to": "/{rest}", "need": table["need"]},
        {"name": "none", "path": "/n/{sandbox}/{rest...}", "to": "/{rest}", "need": table["need"]},
    ]
    config = {"cell": table["cell"], "tokens": table["tokens"], "routes": routes, "management_ports": "1-65535",
              "agent": {"auth_failures": 0}}  # more wrong ones than one address may bring

    files = {name: bytes.fromhex(content) for name, content in table["files"].items()}
    origin = origins()
    made = cells(sandboxes={"other": {"worker": origin.url}}, config=config, files=files)
    made.origin = origin
    return made


def record_of(case):
    return case.get("org") or "", case.get("not_before") or 0


def loads(cell):
    return int(re.search(r'directory_loads_total\{outcome="good"\} (\d+)', cell.admin("/metrics"))[1])


def put_record(cell, org, not_before):
    before = loads(cell)
    record = {"worker": cell.origin.url} | ({"org": org} if org else {}) | ({"not_before": not_before} if not_before else {})
    cell.set_sandboxes(**{"sb-1": record})
    until(lambda: loads(cell) > before)


def fits_header(token):
    return token and re.fullmatch(r"[!-~]+", token)


def ask(cell, case, source):
    path = f"/p/sb-1/{case['port']}/x" if "port" in case else "/n/sb-1/x"
    headers, token = [], case["token"]
    if source == "authorization":
        headers = [("Authorization", f"Bearer {token}")]
    elif source == "query":
        path += "?a=1&cellgate_token=" + urllib.parse.quote(token.encode("utf-8", "surrogateescape"), safe="") + "&b=2"
    else:
        headers = [*WEBSOCKET, ("Sec-WebSocket-Protocol", f"cellgate, cellgate.bearer.{token}")]
    with Http1(cell.http) as client:
        response = client.request("GET", path, headers)
        status = 200 if response.status == 101 else response.status
        return status, "" if status == 200 else json.loads(response.body)["error"]


@pytest.mark.parametrize("source", ["authorization", "query", "subprotocol"])
def test_every_token_of_the_table_gets_its_answer(cell, source):
    cases = sorted(make_bad_tokens.table(int(time.time()))["cases"], key=record_of)
    tried = 0
    for (org, not_before), group in groupby(cases, key=record_of):
        names = {case["name"] for case in group}
        now = int(time.time())
        fresh = [case for case in make_bad_tokens.table(now)["cases"] if case["name"] in names]
        told = None  # the record's not_before, which follows the clock as the tokens do
        for case in fresh:
            if source != "query" and not fits_header(case["token"]) or len(case["token"]) > 12000:
                continue
            if source == "subprotocol" and not re.fullmatch(r"[\w.~!#$%&'*+^`|-]+", case["token"]):
                continue  # no subprotocol could hold it
            for _ in range(5):  # some differ from a good one by a second, which may pass meanwhile
                latest = next(c for c in make_bad_tokens.table(int(time.time()))["cases"] if c["name"] == case["name"])
                if latest.get("not_before", 0) != told:
                    told = latest.get("not_before", 0)
                    put_record(cell, org, told)
                expected = STATUS[latest["refusal"]], latest["refusal"]
                answer = ask(cell, latest, source)
                if answer == expected:
                    break
            assert answer == expected, f"{case['name']} in {source}"
            tried += 1
    assert tried > 120
    log = cell.access_log() + (cell.run_dir / "agent.log").read_text()
    assert "eyJ" not in log


def test_no_worker_saw_a_token(cell):
    assert cell.origin.requests
    for request in cell.origin.requests:
        assert b"eyJ" not in request.head and b"cellgate" not in request.head, request.head
