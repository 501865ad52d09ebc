# SPDX-License-Identifier: MIT
"""A line for every decision that lets somebody in, which nobody can forge."""

import re
import select

import pytest
from cell import Cell, until
from client import request
from tunnels import QUICK, Tunnels, route

ROUTES = [route("secure", "pty"), {"name": "api", "path": "/api/{sandbox}/{rest...}", "need": "http"}]
TOKENS = [{"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": "k1.secret"}]
FORGED = "evil\" sub=admin org=root ts=now level=info msg=audit \u2028 \\ x=1"


@pytest.fixture
def audited(tmp_path, request):
    config = {"relay": QUICK, "routes": ROUTES, "tokens": TOKENS} | getattr(request, "param", {})
    with Cell(tmp_path, config=config) as cell:
        tunnels = Tunnels(cell)
        yield tunnels
        tunnels.close()


def lines(cell):
    """Each as a dictionary; the values as they stand there."""
    text = (cell.run_dir / "agent.log").read_text()
    return [dict(field.split("=", 1) for field in re.findall(r'[a-z_]+=(?:"(?:[^"\\]|\\.)*"|[^ "]*)', line))
            for line in text.splitlines() if " msg=audit " in line]


def opened(tunnels, **claims):
    worker = tunnels.worker()
    tunnels.cell.set_sandboxes(sb={"worker": worker.url, "epoch": 1, "org": "acme"})
    bearer = tunnels.cell.bearer("sb", header={"kid": "k1"}, org="acme", **claims)

    def let_in():
        client = tunnels.ask("sb", "secure", headers=[bearer])
        return client if worker.listener in select.select([worker.listener, client.sock], [], [], 5)[0] else None

    tunnels.client = until(let_in, 10, "the directory is not read")
    worker.serve()
    tunnels.accepted(tunnels.client)
    return worker, bearer


def test_a_tunnel_has_a_line_with_who_and_what(audited):
    worker, bearer = opened(audited, sub="user-7", jti="j-1")
    (line,) = until(lambda: lines(audited.cell), 10)
    wanted = {"level": "info", "verdict": "relay", "source": "127.0.0.1", "route": "secure", "need": "pty", "sandbox": "sb", "token": "jwt",
              "worker": f"127.0.0.1:{worker.port}", "org": "acme", "kid": "k1", "jti": "j-1", "sub": "user-7"}
    assert {name: line.get(name) for name in wanted} == wanted
    assert re.fullmatch(r"[0-9a-f-]{36}", line["id"])
    audited.client.close()  # it has its line in the access log then
    until(lambda: line["id"] in audited.cell.access_log(), 10)
    assert bearer[1].split()[1] not in (audited.cell.run_dir / "agent.log").read_text()


def test_what_a_token_says_forges_nothing(audited):
    opened(audited, sub=FORGED, jti="x" * 256)  # a longer one is no token
    (line,) = until(lambda: lines(audited.cell), 10)
    assert line["sub"].startswith('"evil\\" sub=admin') and line["org"] == "acme"
    assert len(line["jti"]) == 256


@pytest.mark.parametrize("audited", [{"agent": {"audit": "all"}}], indirect=True)
def test_all_of_them_are_plain_requests_too_and_no_refusals(audited):
    worker, bearer = opened(audited, sub="user-7")
    request(audited.cell.http, "GET", "/api/sb/x", [])
    request(audited.cell.http, "GET", "/api/sb/x", [("Authorization", "Bearer x.y.z")])
    count = len(until(lambda: lines(audited.cell), 10))  # that of the tunnel may come late
    worker.listener.close()
    request(audited.cell.http, "GET", "/api/sb/x", [bearer])
    new = until(lambda: lines(audited.cell)[count:], 10)
    assert [(line["verdict"], line["route"], line["need"], line["sub"]) for line in new] == [("direct", "api", "http", "user-7")]


@pytest.mark.parametrize("audited", [{"agent": {"audit": "off"}}], indirect=True)
def test_none_of_them_where_it_is_off(audited):
    opened(audited)
    assert lines(audited.cell) == []
    assert "cellgate_agent_audit_lines_dropped_total 0" in audited.cell.admin("/metrics")
