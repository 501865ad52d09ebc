# SPDX-License-Identifier: MIT
"""MCP's SDK from npm, client and server, over streamable HTTP: each call is a POST that a stream of events may answer, and one GET stays
open for what the server says by itself."""

import pytest
from browsing import DOMAINS

ROUTES = [{"name": "host", "host": "{port}-{sandbox}.<e2b>", "need": "http"}, {"name": "path", "path": "/app/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]
FORMS = ["host", "path"]


@pytest.fixture(scope="module")
def server(servers, node):
    return servers(lambda port: ["node", servers.packages / "mcp_server.mjs", port], "mcp")


@pytest.fixture(scope="module")
def cell(cells, node, server):
    return cells(sandboxes={"sb-1": {"worker": server.url}}, config={"routes": ROUTES, "domains": DOMAINS}, environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node, server):
    def connect(form, token=None):
        url = f"https://{server.port}-sb-1.e2b.example.com:{cell.https}/mcp" if form == "host" else f"https://gate.example.com:{cell.https}/app/sb-1/mcp"
        return node("mcp.mjs", {"url": url, "token": token or cell.token()})

    return connect


def does(client, step):
    client.say(step)
    return client.until(lambda said: "did" in said)["did"]


@pytest.mark.parametrize("form", FORMS)
def test_tools_progress_and_a_session(connect, form):
    client = connect(form)
    assert does(client, "connect") == {"value": "tools"}
    assert sorted(does(client, "tools")) == ["add", "count", "much", "stuck"]
    assert does(client, "add") == {"value": "42"}
    assert does(client, "much") == 3_000_000
    assert does(client, "count") == ["counted", [1, 2, 3, 4, 5]]
    assert does(client, "close") == "closed"


@pytest.mark.parametrize("form", FORMS)
def test_a_lost_server_is_told_and_the_next_session_works(connect, server, form):
    client = connect(form)
    assert does(client, "connect") == {"value": "tools"}
    client.say("stuck")
    client.until(lambda said: said == "begun")
    server.kill()
    assert "disconnected" in client.until(lambda said: "trouble" in said)["trouble"]
    assert "timed out" in client.until(lambda said: "did" in said)["did"]["message"]  # the SDK waits for what nobody will answer
    told = does(client, "add")
    assert "worker_unreachable" in told["message"], told
    server.start()
    assert does(client, "connect") == {"value": "tools"}
    assert does(client, "add") == {"value": "42"}


def test_a_wrong_token_is_reported(connect):
    told = does(connect("host", "x"), "connect")
    assert "token_invalid" in told["message"], told
