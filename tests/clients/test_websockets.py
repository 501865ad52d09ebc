# SPDX-License-Identifier: MIT
"""Libraries for WebSockets against each other, through the gate: Python's websockets, aiohttp, websocket-client and Java's HttpClient at
servers of websockets, aiohttp, tornado and node's ws; and each as a terminal under which the worker is lost."""

import asyncio
import json
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
import websocket
import websockets
from browsing import redials
from cell import WORKER_BEARER
from client import request
from jvm import JavaSocket, Jvm, Refused

ECHO = Path(__file__).parent / "echo_server.py"
# websocket-client sends an Origin, and tornado wants its Host to be the same.
COMMON = {"to": "/{rest}", "need": "pty", "host_header": "keep"}
ROUTES = [
    {"name": "relay", "path": "/r/{sandbox}/{rest...}", "upgrade": True, "via": "relay"} | COMMON,
    {"name": "direct", "path": "/d/{sandbox}/{rest...}"} | COMMON,
    "defaults",
]
SERVERS = ["websockets", "aiohttp", "tornado", "ws"]
MESSAGES = ["text \u20ac", bytes(range(256)), "", b"", "x" * 125, b"y" * 126, b"z" * 65535, "\u20ac" * 30000, bytes(1 << 20)]
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


# Each opens with (URL, headers, subprotocols), and has say, hear, ping, and close, which gives the code of the other side's Close.


class Asynchronous:
    """A library for asyncio, step by step."""

    def __init__(self, url, headers, subprotocols=()):
        self.loop = asyncio.new_event_loop()
        try:
            self.run(self.open(url, headers, subprotocols))
        except BaseException:
            self.loop.close()
            raise

    def run(self, step):
        return self.loop.run_until_complete(asyncio.wait_for(step, 60))


class Websockets(Asynchronous):
    async def open(self, url, headers, subprotocols):
        more = {"ssl": TRUSTING} if url.startswith("wss") else {}
        try:
            self.socket = await websockets.connect(url, extra_headers=headers, subprotocols=list(subprotocols) or None, max_size=None, **more)
        except websockets.InvalidStatusCode as refused:
            raise Refused(refused.status_code) from None
        self.subprotocol = self.socket.subprotocol

    def say(self, message):
        self.run(self.socket.send(message))

    def hear(self):
        return self.run(self.socket.recv())

    def ping(self):
        async def both():
            await (await self.socket.ping())

        self.run(both())

    def close(self):
        self.run(self.socket.close(1000, "done"))
        self.loop.close()
        return self.socket.close_code


class Aiohttp(Asynchronous):
    async def open(self, url, headers, subprotocols):
        self.session = aiohttp.ClientSession()
        try:
            self.socket = await self.session.ws_connect(url, headers=headers, protocols=subprotocols, compress=15, max_msg_size=0, ssl=TRUSTING, autoping=False)
        except aiohttp.WSServerHandshakeError as refused:
            await self.session.close()
            raise Refused(refused.status) from None
        self.subprotocol = self.socket.protocol

    def say(self, message):
        self.run(self.socket.send_str(message) if isinstance(message, str) else self.socket.send_bytes(message))

    def hear(self):
        message = self.run(self.socket.receive())
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        return message.data

    def ping(self):
        self.run(self.socket.ping(b"there?"))
        message = self.run(self.socket.receive())
        assert (message.type, bytes(message.data)) == (aiohttp.WSMsgType.PONG, b"there?")

    def close(self):
        self.run(self.socket.close(code=1000, message=b"done"))
        self.run(self.session.close())
        self.loop.close()
        return self.socket.close_code


class WebsocketClient:
    def __init__(self, url, headers, subprotocols=()):
        try:
            self.socket = websocket.create_connection(url, header=headers, subprotocols=list(subprotocols) or None, timeout=60, sslopt={"context": TRUSTING})
        except websocket.WebSocketBadStatusException as refused:
            raise Refused(refused.status_code) from None
        self.subprotocol = self.socket.subprotocol

    def say(self, message):
        self.socket.send(message, websocket.ABNF.OPCODE_TEXT if isinstance(message, str) else websocket.ABNF.OPCODE_BINARY)

    def hear(self):
        opcode, data = self.socket.recv_data()
        return data.decode() if opcode == websocket.ABNF.OPCODE_TEXT else data

    def ping(self):
        self.socket.ping("there?")
        opcode, frame = self.socket.recv_data_frame(True)
        assert (opcode, frame.data) == (websocket.ABNF.OPCODE_PONG, b"there?")

    def close(self):
        self.socket.send_close(1000, b"done")
        opcode = None
        while opcode != websocket.ABNF.OPCODE_CLOSE:
            opcode, data = self.socket.recv_data(True)
        self.socket.shutdown()
        return int.from_bytes(data[:2], "big")


CLIENTS = {"websockets": Websockets, "aiohttp": Aiohttp, "websocket-client": WebsocketClient, "java": JavaSocket}


@pytest.fixture(scope="module")
def cell(cells, servers, node, host):
    def command(name):
        return lambda port: ["node", servers.packages / "echo_server.mjs", port] if name == "ws" else [sys.executable, ECHO, name, port]

    sandboxes = {"sb-" + name: {"worker": servers(command(name), name).url} for name in SERVERS}
    return cells(sandboxes=sandboxes, config={"routes": ROUTES, "systems": ["opensandbox"]}, environment=node.certificate)


@pytest.fixture(scope="module", autouse=True)
def jvm(node, tmp_path_factory):
    JavaSocket.jvm = Jvm(tmp_path_factory.mktemp("java"), node.certificate.values())
    yield
    JavaSocket.jvm.end()


@pytest.mark.parametrize("way", ["r", "d"])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_echo(cell, client, server, way):
    for scheme, port in (("ws", cell.http), ("wss", cell.https)):
        headers = dict([cell.bearer("sb-" + server)])
        socket = CLIENTS[client](f"{scheme}://127.0.0.1:{port}/{way}/sb-{server}/ws", headers, ["other", "chat"])
        assert socket.subprotocol == "chat"
        for message in MESSAGES:
            socket.say(message)
            assert socket.hear() == message
        socket.ping()
        assert socket.close() == 1000


@pytest.mark.parametrize("way", ["r", "d"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_token_is_reported(cell, client, way):
    for token, status in (("x", 401), (cell.token("sb-other"), 403)):
        with pytest.raises(Refused) as refused:
            CLIENTS[client](f"ws://127.0.0.1:{cell.http}/{way}/sb-ws/ws", {"Authorization": "Bearer " + token})
        assert refused.value.args == (status,)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_terminal_goes_on_at_the_next_worker(cell, host, client):
    """cell-worker in the place of OpenSandbox's execd; the client notices nothing when it is killed."""
    name, workers = "terminal-" + client, [host.worker(), host.worker()]

    def place(number):
        record = {"worker": f"http://127.0.0.1:{workers[number].port}", "headers": dict([WORKER_BEARER]), "epoch": number + 1}
        cell.set_sandboxes(**{name: record})

    place(0)
    below, bearer = f"/v1/sandboxes/{name}/proxy/44772/pty", cell.bearer(name)
    made = None
    while not made or made.status == 404:  # until the agent has read its directory
        made = request(cell.http, "POST", below, [bearer, ("Content-Type", "application/json")], b"{}")
    assert made.status == 201, (made.status, made.headers, made.body)
    socket = CLIENTS[client](f"ws://127.0.0.1:{cell.http}{below}/{json.loads(made.body)['session_id']}/ws", dict([bearer]))

    def shows(text):
        seen = b""
        while text not in seen:
            message = socket.hear()
            seen += message if isinstance(message, bytes) else b""
        return seen

    socket.say(b"\0kept=this; echo re''ady\n")
    shows(b"ready\r\n")
    workers[0].process.kill()
    redials(cell, name)
    socket.say(b"\0echo still $kept\n")
    place(1)
    assert b"ready" not in shows(b"still this")
    assert socket.close() == 1000
