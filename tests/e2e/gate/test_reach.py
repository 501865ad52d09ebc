# SPDX-License-Identifier: MIT
"""Who reaches what: a token for an application never reaches what manages the sandbox, whatever form of address it tries, and an
application never gets the credentials of what manages it. docs/security.md has the table, of which this is a sample through HAProxy."""

import hashlib
import json

import pytest
from cell import ALL_SYSTEMS, until
from client import WEBSOCKET, Http1, Http2
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways, route

DOMAINS = {"opencomputer": ["oc.test"], "e2b": ["e2b.test"]}
SECRET = "an-access-secret"
PORT = {"name": "port", "path": "/port/{port}/{sandbox}/{session}", "upgrade": True, "via": "relay", "need": "pty", "resume": "scrollback", "to": "/{session}"}


def answer(connection, request):
    connection.read_body(request)
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def digest(secret):
    return {"token_sha256": hashlib.sha256(secret.encode()).hexdigest()}


@pytest.fixture(scope="module")
def worker(origins):
    return origins(answer=answer)


@pytest.fixture(scope="module")
def application(origins):
    return origins(answer=answer)


@pytest.fixture(scope="module")
def cell(cells, worker, application):
    own, headers = {"token_sha256": hashlib.sha256(b"of-port-5000").hexdigest()}, {"Authorization": "Bearer of-the-record", "X-EXECD-ACCESS-TOKEN": "of-the-record"}
    record = {"worker": worker.url, "headers": headers, "access": digest(SECRET)}
    sandboxes = {
        "sb-1": record | {"ports": {"5173": application.url, "4000": {"url": application.url, "headers": {"X-EXECD-ACCESS-TOKEN": "of-the-port"}},
                                    "5000": {"url": application.url, "access": own}, "6000": worker.url}},
        "sb-2": record,
        "app": {"worker": worker.url, "serves": "application"},
    }
    tokens = [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}, {"kind": "static", "sources": ["X-OC-Preview-Token"], "everywhere": True}]
    return cells(sandboxes=sandboxes, config={"systems": ALL_SYSTEMS, "domains": DOMAINS, "tokens": tokens})


def ask(cell, method, target, *headers, host="cell.test"):
    with Http1(cell.http) as client:
        response = client.request(method, target, list(headers), host=host)
    body = response.body or b"{}"
    return response.status, json.loads(body).get("error")


NOT_GRANTED = (403, "not_granted")
MANAGED = [
    # the two of which all the others are siblings
    ("POST", "/v1/sandboxes/sb-1/proxy/3001/sandboxes/sb-1/exec", [], "cell.test"),
    ("GET", "/terminal?command=id", [("X-Sandbox-ID", "sb-1"), *WEBSOCKET], "cell.test"),
    ("GET", "/terminal?command=id", [("X-Sandbox-ID", "sb-1")], "cell.test"),
    ("POST", "/v1/sandboxes/sb-1/proxy/44772/command", [], "cell.test"),
    ("POST", "/v1/sandboxes/sb-1/proxy/6000/sandboxes/sb-1/exec", [], "cell.test"),
    ("POST", "/sandboxes/sb-1/exec", [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", "44772")], "cell.test"),
    ("POST", "/sandboxes/sb-1/exec", [("OpenSandbox-Ingress-To", "sb-1-44772")], "cell.test"),
    ("POST", "/sandboxes/sb-1/exec", [], "sb-1-p49983.oc.test"),
    ("POST", "/sandboxes/sb-1/exec", [], "49983-sb-1.e2b.test"),
    ("POST", "/api/sandboxes/sb-1/files/write", [], "cell.test"),
    ("POST", "/api/sandboxes/sb-1/exec/run", [], "cell.test"),
    ("POST", "/api/sandboxes/sb-1//exec", [], "cell.test"),
    ("POST", "/api/sandboxes/sb-1/%65xec/run", [], "cell.test"),
]


@pytest.mark.parametrize("method, target, headers, host", MANAGED)
def test_a_token_for_applications_gets_no_shell(cell, worker, method, target, headers, host):
    before = len(worker.requests)
    assert ask(cell, method, target, cell.bearer(need=["http"]), *headers, host=host) == NOT_GRANTED
    assert ask(cell, method, target, cell.bearer(need=["http"], ports=[3001, 6000, 44772, 49983, 8888]), *headers, host=host) == NOT_GRANTED
    assert ask(cell, method, target, ("X-OC-Preview-Token", SECRET), *headers, host=host) == NOT_GRANTED
    assert ask(cell, method, target, *headers, host=host) == (401, "token_missing")
    assert len(worker.requests) == before


@pytest.mark.parametrize("path", ["pty/../exec/run", "pty/%2e%2e/exec/run", "pty/..%2fexec%2frun", "pty/x/..%2f..%2fexec", "pty/..;/exec", "pty/..%5cexec", "pty/%2e%2e%2fexec"])
def test_a_path_for_one_need_does_not_climb_to_another(cell, worker, path):
    before = len(worker.requests)
    for headers in [], WEBSOCKET:
        assert ask(cell, "GET", f"/api/sandboxes/sb-1/{path}", cell.bearer(need=["pty"]), *headers)[0] in (400, 403, 404)
    assert len(worker.requests) == before


def test_who_may_manage_does(cell, worker):
    for target, need in ("/v1/sandboxes/sb-1/proxy/44772/command", "exec"), ("/api/sandboxes/sb-1/files/write", "exec"), ("/api/sandboxes/sb-1/pty", "pty"):
        assert ask(cell, "POST", target, cell.bearer(need=[need]))[0] == 200
        assert worker.requests[-1].get("authorization") == "Bearer of-the-record"
    # a port of the sandbox is the application's alone
    assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/5173/", cell.bearer(need=["exec"])) == NOT_GRANTED


def test_a_port_that_is_not_there_is_refused_after_the_token(cell):
    everything = cell.bearer("sb-2")
    assert ask(cell, "GET", "/v1/sandboxes/sb-2/proxy/5173/", everything) == NOT_GRANTED
    assert ask(cell, "GET", "/v1/sandboxes/sb-2/proxy/5173/") == ask(cell, "GET", "/v1/sandboxes/none/proxy/5173/") == (401, "token_missing")
    assert ask(cell, "GET", "/v1/sandboxes/none/proxy/5173/", cell.bearer("none")) == (404, "sandbox_not_found")
    assert ask(cell, "GET", f"/v1/sandboxes/sb-2/proxy/{cell.sandboxes['sb-2']['worker'].rpartition(':')[2]}/", everything)[0] == 200


def test_an_application_gets_no_credentials_of_the_management(cell, application):
    for credential in cell.bearer(need=["http"]), ("X-OC-Preview-Token", SECRET):
        assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/5173/", credential)[0] == 200
        got = application.requests[-1]
        assert got.get("authorization") is None and got.get("x-execd-access-token") is None
    assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/4000/", cell.bearer(need=["http"]))[0] == 200
    got = application.requests[-1]
    assert got.get("authorization") is None and got.get("x-execd-access-token") == "of-the-port"


def test_a_port_with_a_secret_of_its_own_is_opened_by_that_alone(cell):
    def status(port, secret):
        return ask(cell, "GET", f"/v1/sandboxes/sb-1/proxy/{port}/", ("X-OC-Preview-Token", secret))[0]

    assert [status(port, secret) for port in (5173, 5000) for secret in (SECRET, "of-port-5000")] == [200, 401, 401, 200]


def test_a_worker_that_serves_an_application_is_one(cell):
    port = cell.sandboxes["app"]["worker"].rpartition(":")[2]
    assert ask(cell, "GET", f"/v1/sandboxes/app/proxy/{port}/", cell.bearer("app", need=["http"]))[0] == 200
    assert ask(cell, "GET", "/v1/sandboxes/app/proxy/44772/", cell.bearer("app", need=["http"])) == NOT_GRANTED


@pytest.fixture(scope="module")
def tunnels(cells):
    made = Tunnels(cells(config={"relay": QUICK, "routes": [route("app", "http"), PORT, *ROUTES]}))
    yield made
    made.close()


@pytest.mark.parametrize("moves", [False, True])
def test_a_tunnel_does_not_follow_its_sandbox_to_where_its_token_does_not_reach(tunnels, moves):
    """What the record says of the worker changes under an open tunnel: it ends, and nobody is dialled."""
    first, second = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(first, serves="application")
    client, upstream = tunnels.open(first, sandbox, route="app", headers=[tunnels.cell.bearer(sandbox, need=["http"])])
    pass_both_ways(client, upstream)
    tunnels.place(sandbox, second if moves else first)
    assert client.closed() == (1008, "not granted")
    tunnels.gone(sandbox)
    assert tunnels.refused(sandbox, "app", headers=[tunnels.cell.bearer(sandbox, need=["http"])]) == NOT_GRANTED


def test_a_tunnel_that_named_the_workers_own_port_follows_the_sandbox(tunnels):
    first, second = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(first)
    client, upstream = tunnels.open(first, sandbox, route=f"port/{first.url.rpartition(':')[2]}", headers=[tunnels.cell.bearer(sandbox)])
    pass_both_ways(client, upstream)
    before = tunnels.redials("moved")
    tunnels.place(sandbox, second)
    upstream = second.serve()
    until(lambda: tunnels.redials("moved") > before)  # until then what the client says goes to the first, which still serves
    pass_both_ways(client, upstream)


# ---- what a system keeps for the sandbox's host, and what is never public ----

WITHHELD = ["init", "freeze", "unfreeze", "fsfreeze", "fsthaw", "collapse", "upgrade"]
SPELLINGS = ["//init", "/./init", "/x/../init", "/%69nit", "/init/", "/init;x=1", "/x%2f..%2finit", "/init?a=b"]
NO_ROUTE = (404, "no_route")


@pytest.mark.parametrize("kind", [Http1, Http2])
def test_what_is_the_hosts_is_served_to_nobody(cell, worker, kind):
    before = len(worker.requests)
    with kind(cell.http if kind is Http1 else cell.https) as client:

        def status(method, path, headers, host):
            response = client.request(method, path, [cell.bearer(), *headers], host=host)
            return response.status, json.loads(response.body or b"{}").get("error")

        for path in [f"/{word}" for word in WITHHELD] + SPELLINGS:
            for method in "POST", "GET":
                assert status(method, path, [], "49983-sb-1.e2b.test") == NO_ROUTE, path
                assert status(method, path, [("E2b-Sandbox-Id", "sb-1")], "cell.test") == NO_ROUTE, path
                assert status(method, f"/v1/sandboxes/sb-1/proxy/49983{path}", [], "cell.test") == NO_ROUTE, path
        assert len(worker.requests) == before
        assert status("POST", "/initial", [], "49983-sb-1.e2b.test")[0] == status("POST", "/upgrade", [], "5173-sb-1.e2b.test")[0] == 200


def test_a_terminal_is_never_public(cells, origins):
    """Daytona's proxy wants a token at these ports, whatever the sandbox is."""
    app, secret = origins(answer=answer), "of-the-preview"
    record = {"ports": {port: app.url for port in ("2280", "22222", "33333", "3000")}}
    tokens = [{"kind": "static", "sources": ["X-Daytona-Preview-Token"], "public": True}]
    cell = cells(sandboxes={"sb-1": record, "sb-2": record | {"access": digest(secret)}}, config={"systems": ["daytona"], "domains": {"daytona": ["day.test"]}, "tokens": tokens})
    assert ask(cell, "GET", "/", host="3000-sb-1.day.test")[0] == 200
    assert ask(cell, "GET", "/", ("X-Daytona-Preview-Token", secret), host="3000-sb-2.day.test")[0] == 200
    before = len(app.requests)
    for port in "2280", "22222", "33333":
        assert ask(cell, "GET", "/", host=f"{port}-sb-1.day.test") == NOT_GRANTED
        assert ask(cell, "GET", "/", ("X-Daytona-Preview-Token", secret), host=f"{port}-sb-2.day.test") == NOT_GRANTED
    assert len(app.requests) == before


def test_what_runs_commands_in_a_pod_of_agent_sandbox_is_never_public(cells, origins):
    """The runtime, and sandboxd's REST and gRPC: `public` opens applications, and no file or command."""
    app = origins(answer=answer)
    record = {"ports": {port: app.url for port in ("8080", "8888", "9090", "3000")}}
    tokens = [{"kind": "static", "public": True, "systems": ["agent-sandbox"], "sources": ["label"]}]
    cell = cells(sandboxes={"sb-1": record}, config={"systems": ["agent-sandbox"], "tokens": tokens})

    def status(port):
        with Http1(cell.http) as client:
            response = client.request("GET", "/", [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", port)])
        return response.status, json.loads(response.body or b"{}").get("error")

    assert status("3000")[0] == 200
    before = len(app.requests)
    for port in "8080", "8888", "9090":
        assert status(port) == NOT_GRANTED, port
    assert len(app.requests) == before
