# SPDX-License-Identifier: MIT
"""One request in every log: HAProxy's, the agent's, the relay's and the worker's name it alike, and what the client calls it stands beside that."""

import json
import re
import signal
import socket

import pytest
from cell import Cell, until
from client import Http1, exchange, request
from tunnels import QUICK, Tunnels, route

CONFIG = {"relay": QUICK, "agent": {"audit": "all"}, "routes": [route("plain"), {"name": "api", "path": "/api/{sandbox}/{rest...}", "need": "none"}]}
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def cell(tmp_path, request, origins):
    with Cell(tmp_path, config=CONFIG, environment=getattr(request, "param", None)) as cell:
        cell.origin = origins()
        cell.set_sandboxes(web={"worker": cell.origin.url, "epoch": 1})
        until(lambda: ask(cell) == 200, 10, "the directory is not read")
        yield cell


def ask(cell, *headers, path="/api/web/"):
    return request(cell.http, "GET", path, list(headers)).status


def field(line, name):
    return re.search(rf' {name}=("[^"]*"|\S*)', line)[1]


def line_with(cell, text, where="haproxy.log"):
    """The one that comes last."""
    return until(lambda: next((line for line in reversed((cell.run_dir / where).read_text().splitlines()) if text in line), None), 10, f"{where} has no {text}")


def test_a_request_has_one_id_in_every_log(cell):
    assert ask(cell) == 200
    id = cell.origin.requests[-1].get("x-request-id")
    assert re.fullmatch(UUID, id)
    line = line_with(cell, f" id={id} ")
    assert field(line, "request_id") == "-" and field(line, "trace") == "-"
    assert field(line_with(cell, f" id={id} ", "agent.log"), "verdict") == "direct"


def test_what_the_client_calls_it_stands_beside_that(cell):
    assert ask(cell, ("X-Request-ID", "client.1:a/b"), ("traceparent", TRACE)) == 200
    assert [cell.origin.requests[-1].get(name) for name in ("x-request-id", "traceparent")] == ["client.1:a/b", TRACE]
    line = line_with(cell, " request_id=client.1:a/b ")
    assert field(line, "trace") == TRACE
    assert re.fullmatch(UUID, field(line, "id"))


def test_a_token_in_the_place_of_a_sandbox_is_in_no_log(cell):
    token = cell.token("web")
    assert ask(cell, path=f"/api/{token}/") == 400
    line_with(cell, "error=bad_request")
    assert all(token not in log.read_text(errors="replace") for log in cell.run_dir.glob("*.log"))


def test_one_that_is_refused_is_found_too(cell):
    assert ask(cell, ("X-Request-ID", "refused-1"), path="/api/nobody/") == 404
    assert field(line_with(cell, " request_id=refused-1 "), "error") == "sandbox_not_found"


@pytest.mark.parametrize("name", ["a b", 'x" verdict=direct', "x\\", "\u00e9", "a" * 129, ""])
def test_no_client_forges_a_line(cell, name):
    """The worker gets it as it came; the log does not."""
    assert ask(cell, ("X-Request-ID", name), ("traceparent", TRACE + " x"), ("X-Forwarded-Host", "last")) == 200
    cell.set_sandboxes(gone={"state": "stopped"})
    until(lambda: ask(cell, ("X-Request-ID", "behind"), path="/api/gone/") == 410)
    line_with(cell, " request_id=behind ")
    lines = [line for line in cell.access_log().splitlines() if " id=" in line and " request_id=behind " not in line]
    assert lines and all(" request_id=- trace=- " in line for line in lines)


@pytest.mark.parametrize("cell", [{}, {"CELLGATE_ACCESS_LOG": "json"}], indirect=True, ids=["text", "json"])
def test_method_and_version_are_logged_however_long_the_path_is(cell):
    assert exchange(cell.http, b"PUT /api/web/" + b"a" * 2000 + b" HTTP/1.0\r\n\r\n")[0].startswith(b"HTTP/1.1 200")
    line = until(lambda: re.search(r".*PUT.*", cell.access_log()), 10, "it is not logged")[0]
    assert ' PUT HTTP/1.0 200 ' in line or '"method":"PUT", "version":"HTTP/1.0", ' in line
    assert "aaaa" not in line


def test_who_leaves_before_the_decision_is_found_too(cell):
    assert ask(cell) == 200
    cell.kill("agent", signal.SIGSTOP)
    try:
        with Http1(cell.http) as client:
            client.send(b"GET /api/web/ HTTP/1.1\r\nHost: cell.test\r\nX-Request-ID: left\r\n\r\n")
            client.sock.shutdown(socket.SHUT_RDWR)
        line = line_with(cell, " request_id=left ")
    finally:
        cell.kill("agent", signal.SIGCONT)
    assert field(line, "asked") == "1" and field(line, "client") == "127.0.0.1"


def test_a_tunnel_is_found_by_the_same_id(cell):
    tunnels = Tunnels(cell)
    try:
        worker = tunnels.worker()
        cell.set_sandboxes(shell={"worker": worker.url, "epoch": 1}, last={"state": "stopped"})
        until(lambda: ask(cell, path="/api/last/") == 410, 10, "the directory is not read")
        client, upstream = tunnels.open(worker, "shell", headers=[("X-Request-ID", "my-terminal")])
        opened = line_with(cell, "tunnel opened", "relay.log")
        id = field(opened, "id")
        assert re.fullmatch(UUID, id)
        assert tunnels.tunnels("shell")[0]["request_id"] == id
        assert field(line_with(cell, f" id={id} ", "agent.log"), "verdict") == "relay"
        client.sock.close()
        assert field(line_with(cell, "tunnel ended", "relay.log"), "id") == id
        assert field(line_with(cell, f" id={id} "), "request_id") == "my-terminal"
    finally:
        tunnels.close()


@pytest.mark.parametrize("cell", [{"CELLGATE_ACCESS_LOG": "json"}], indirect=True)
def test_the_access_log_as_json(cell):
    assert ask(cell, ("X-Request-ID", "json-1"), ("traceparent", TRACE)) == 200
    assert ask(cell, ("X-Request-ID", "json-2"), path="/api/nobody/") == 404
    assert ask(cell, ("X-Request-ID", 'x","id":"y'), path="/nowhere") == 404
    line_with(cell, '"request_id":"json-2"')
    lines = until(lambda: len(found := [json.loads(line[line.index("{"):]) for line in cell.access_log().splitlines() if '"verdict"' in line]) >= 4 and found, 10)
    good, refused = ([line for line in lines if line["request_id"] == name] for name in ("json-1", "json-2"))
    wanted = {"trace": TRACE, "status": 200, "route": "api", "sandbox": "web", "verdict": "direct", "method": "GET", "client": "127.0.0.1", "epoch": 1,
              "worker": f"127.0.0.1:{cell.origin.port}"}
    assert {name: good[0][name] for name in wanted} == wanted
    assert {name: refused[0][name] for name in ("status", "error", "epoch")} == {"status": 404, "error": "sandbox_not_found", "epoch": -1}
    for opening in (b'G"T / HTTP/1.1\r\n\r\n', b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"\x16\x03\x01\x00\x02xx"):
        for port in (cell.http, cell.https):
            exchange(port, opening)
    own = until(lambda: len(found := [x for x in cell.access_log().splitlines() if not x.startswith("[")]) >= 10 and found, 10)
    assert all(isinstance(json.loads(line), dict) for line in own)
    assert all(set(line) == set(good[0]) and re.fullmatch(UUID, line["id"]) for line in lines)
