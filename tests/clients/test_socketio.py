# SPDX-License-Identifier: MIT
"""socket.io's client and server from npm: polling, its own upgrade to a WebSocket, and a WebSocket from the beginning."""

import pytest
from browsing import DOMAINS, held

HOST = {"host": "{port}-{sandbox}.<e2b>", "need": "http"}
PATH = {"path": "/app/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}
ROUTES = [{"name": f"{kind}{name}", **more, **form} for name, form in (("host", HOST), ("path", PATH))
          for kind, more in (("socket-", {"upgrade": True, "via": "relay", "redial": False}), ("", {}))]
WAYS = [("host", ["polling", "websocket"]), ("host", ["websocket"]), ("path", ["polling", "websocket"]), ("path", ["polling"])]


@pytest.fixture(scope="module")
def server(servers, node):
    return servers(lambda port: ["node", servers.packages / "socketio_server.mjs", port], "socketio")


@pytest.fixture(scope="module")
def cell(cells, node, server):
    return cells(sandboxes={"sb-1": {"worker": server.url}}, config={"routes": ROUTES, "domains": DOMAINS}, environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node, server):
    def connect(form, transports, token=None):
        where = {"url": f"https://{server.port}-sb-1.e2b.example.com:{cell.https}"}
        if form == "path":
            where = {"url": f"https://gate.example.com:{cell.https}", "path": "/app/sb-1/socket.io/"}
        return node("socketio.mjs", where | {"transports": transports, "headers": {"Authorization": "Bearer " + (token or cell.token())}})

    return connect


def ready(client, transports, refusals=False):
    """Connected, and by a WebSocket if it may; which comes first is the client's."""
    wanted = {"connected"} | ({"upgraded"} if len(transports) > 1 else set())
    while wanted:
        said = client.hear()
        assert "refused" not in said or refusals, said
        wanted -= set(said)


def does(client, step):
    client.say(step)
    return client.hear()["did"]


@pytest.mark.parametrize("form,transports", WAYS)
def test_messages_acknowledgements_and_bytes(connect, form, transports):
    client = connect(form, transports)
    ready(client, transports)
    assert does(client, "count") == [40, 42]
    assert does(client, "bytes") is True and does(client, "pour") is True


@pytest.mark.parametrize("form,transports", WAYS[:3])
def test_a_lost_server_is_noticed_and_it_connects_again_by_itself(connect, server, form, transports):
    client = connect(form, transports)
    ready(client, transports)
    assert does(client, "count") == [40, 42]
    server.kill()
    lost = client.hear()
    assert lost == {"disconnected": "transport close", "code": 1012}
    server.start()
    ready(client, transports, refusals=True)  # its polls are, while there is no server
    assert does(client, "count") == [40, 42]  # the new connection counts for itself


def test_a_connect_is_held_until_the_server_is_there(cell, connect, server):
    client = connect("host", ["websocket"])
    ready(client, ["websocket"])
    server.kill()
    assert client.hear()["code"] == 1012
    held(cell)
    server.start()
    assert client.hear() == {"connected": True}, "no connect was refused meanwhile"


@pytest.mark.parametrize("form,transports", WAYS[:3])
def test_a_wrong_token_is_reported(connect, form, transports):
    told = connect(form, transports, "x").hear()
    assert told["refused"] == ("xhr poll error" if transports[0] == "polling" else "websocket error")
    assert "401" in str(told["status"]), told
