# SPDX-License-Identifier: MIT
"""MQTT over WebSocket: npm's `mqtt`, and aedes as the broker in the sandbox."""

import pytest
from browsing import DOMAINS, held

HOST = {"host": "{port}-{sandbox}.<e2b>", "need": "http"}
ROUTES = [{"name": "relay", "upgrade": True, "via": "relay", "redial": False} | HOST, {"name": "direct", "path": "/direct/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]
WAYS = ["relay", "direct"]


@pytest.fixture(scope="module")
def server(servers, node):
    return servers(lambda port: ["node", servers.packages / "mqtt_server.mjs", port], "mqtt")


@pytest.fixture(scope="module")
def cell(cells, node, server):
    return cells(sandboxes={"sb-1": {"worker": server.url}}, config={"routes": ROUTES, "domains": DOMAINS}, environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node, server):
    def connect(way, name, token=None):
        url = f"wss://{server.port}-sb-1.e2b.example.com:{cell.https}/" if way == "relay" else f"wss://gate.example.com:{cell.https}/direct/sb-1/"
        return node("mqtt.mjs", {"url": url, "token": token or cell.token(), "client": name, "clean": True})

    return connect


def does(client, step, *more):
    for said in (step, *more):
        client.say(said)
    return client.until(lambda said: "did" in said)["did"]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_published_arrives(connect, way):
    hears, says = connect(way, f"hears-{way}"), connect(way, f"says-{way}")
    for client in (hears, says):
        assert client.hear() == {"connected": False}
    assert does(hears, "subscribe") == [1]
    assert does(says, "publish", "this") == "published"
    assert hears.hear() == {"topic": "things/one", "size": 4, "text": "this"}
    assert does(says, "much") == "published"
    assert hears.hear() == {"topic": "things/much", "size": 1_000_000, "text": "x" * 20}
    for client in (hears, says):
        client.end()


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_broker_is_noticed_and_what_was_queued_is_published(cell, connect, server, way):
    """The client connects and subscribes again by itself. Through the relay its first connect is held until the broker is there."""
    client = connect(way, f"lost-{way}")
    assert client.hear() == {"connected": False}
    assert does(client, "subscribe") == [1]
    server.kill()
    assert client.hear() == {"closed": True}
    client.say("later")
    client.until(lambda said: said == "queued")
    if way == "relay":
        held(cell)
    server.start()
    said = [client.hear(20)]
    while len({"connected", "did"} & {key for one in said for key in one}) < 2:
        said.append(client.hear(20))
    if way == "relay":
        assert not any("closed" in one for one in said), said
    assert {"did": "published"} in said
    for step in ("publish", "again"):
        client.say(step)
    told = [client.hear(20), client.hear(20)]  # in either order
    assert {"topic": "things/one", "size": 5, "text": "again"} in told and {"did": "published"} in told, told
    client.end()


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_token_is_no_connection(cell, connect, way):
    """The client says no more than that it is closed; the log says why."""
    client = connect(way, "wrong", "x")
    assert client.hear(20) == {"closed": True}
    cell.says("haproxy", f"route={way}", "error=token_invalid")
    client.end()
