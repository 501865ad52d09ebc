# SPDX-License-Identifier: MIT
"""The sockets of sandbox-sdk's container through the gate, direct and through the relay: many requests on one WebSocket, and its
terminal. The container's side is played here, as its public description has it; what its own tests assert of it has to hold
behind the gate too."""

import contextlib
import itertools
import json
import threading

import pytest
from cell import until
from client import KEY, Http1, request
from direct import BINARY, CLOSE, PING, PONG, TEXT, Peer
from origin import switch
from tunnels import QUICK
from worker import Ws

ROUTES = [
    {"name": "relay", "path": "/r/{sandbox}/{rest...}", "to": "/{rest...}", "upgrade": True, "via": "relay", "need": "mux"},
    {"name": "direct", "path": "/d/{sandbox}/{rest...}", "to": "/{rest...}", "need": "mux"},
]
MISSING = b"sessionId query parameter required"


class Socket:
    """One WebSocket at the container; frames of several threads do not mix."""

    def __init__(self, connection, request):
        switch(connection, request)
        self.peer = Peer(connection.sock, masks=False, seconds=60)
        self.peer.bytes, self.lock, self.open = connection.rest, threading.Lock(), True
        self.cancelled = set()

    def say(self, payload, opcode=TEXT):
        with self.lock, contextlib.suppress(OSError):
            self.peer.say(payload, opcode)

    def tell(self, **message):
        self.say(json.dumps(message).encode())

    def messages(self):
        """(opcode, payload) until the client is gone."""
        try:
            while True:
                opcode, payload, fin = self.peer.hear()
                while not fin:
                    _, more, fin = self.peer.hear()
                    payload += more
                if opcode == PING:
                    self.say(payload, PONG)
                elif opcode == CLOSE:
                    return self.say(payload[:2], CLOSE)
                elif opcode != PONG:
                    yield opcode, payload
        except (EOFError, OSError):
            pass
        finally:
            self.open = False


class Container:
    def __init__(self, origins):
        self.origin = origins(answer=self.answer, upgrade=self.upgrade)
        self.ended = []  # streams that have ended, and why
        self.screens, self.watching, self.lock = {}, {}, threading.Lock()

    def answer(self, connection, request):
        connection.send(b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n")

    def upgrade(self, connection, request):
        path, _, query = request.target.partition("?")
        parameters = dict(x.split("=", 1) for x in query.split("&") if x)
        if path == "/ws":
            return self.multiplexed(Socket(connection, request))
        if "sessionId" not in parameters:
            return connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(MISSING) + MISSING)
        return self.terminal(Socket(connection, request), parameters)

    # ---- requests and streams on one socket ----
    def multiplexed(self, socket):
        for _, payload in socket.messages():
            try:
                message = json.loads(payload)
            except ValueError:
                socket.tell(type="error", code="PARSE_ERROR", message="Invalid JSON message", status=400)
                continue
            if message.get("type") == "cancel":
                socket.cancelled.add(message["id"])
            elif message.get("type") != "request" or "path" not in message:
                socket.tell(type="error", code="INVALID_REQUEST", message="Message must be a valid WSRequest", status=400)
            else:
                threading.Thread(target=self.serve, args=(socket, message), daemon=True).start()

    def serve(self, socket, message):
        number, body = message["id"], message.get("body")
        if message["path"] == "/api/echo":
            socket.tell(type="response", id=number, status=200, body=body, done=True)
        elif message["path"] == "/api/count":
            for n in range(body["to"]):
                socket.tell(type="stream", id=number, event="line", data=f"{n}\n{'x' * body['size']}")
            socket.tell(type="response", id=number, status=200, done=True)
        elif message["path"] == "/api/forever":
            ticks = itertools.count()
            while socket.open and number not in socket.cancelled:
                socket.tell(type="stream", id=number, data=str(next(ticks)))
                threading.Event().wait(0.01)
            self.ended.append((number, "cancelled" if number in socket.cancelled else "closed"))
        else:
            socket.tell(type="response", id=number, status=404, body={"error": "Not found"}, done=True)

    # ---- terminals: one screen a session, for all who watch ----
    def terminal(self, socket, parameters):
        session = parameters["sessionId"]
        if session == "broken":
            socket.tell(type="error", message="Failed to create terminal")
            socket.say((1011).to_bytes(2, "big") + b"Failed to create terminal", CLOSE)
            return
        with self.lock:
            if self.screens.setdefault(session, b""):
                socket.say(self.screens[session], BINARY)
            socket.tell(type="ready")
            self.watching.setdefault(session, []).append(socket)
        for opcode, payload in socket.messages():
            text = payload if opcode == BINARY else b"[%(cols)dx%(rows)d]" % {k.encode(): v for k, v in json.loads(payload).items()}
            with self.lock:
                self.screens[session] += text
                for each in self.watching[session]:
                    each.say(text, BINARY)
        with self.lock:
            self.watching[session].remove(socket)


@pytest.fixture(scope="module")
def container(origins):
    return Container(origins)


@pytest.fixture(scope="module")
def cell(cells, container):
    return cells(sandboxes={"sb-1": {"worker": container.origin.url}}, config={"routes": ROUTES, "relay": QUICK})


@pytest.fixture(params=["d", "r"], ids=["direct", "relay"])
def dial(request, cell):
    """dial(path): a WebSocket to the container."""
    with contextlib.ExitStack() as stack:
        made = lambda path: stack.enter_context(Ws(cell.http, f"/{request.param}/sb-1{path}", [cell.bearer(need=["mux"])]))
        made.way = request.param
        yield made


def heard(ws):
    """A text message; the relay sends a long one on in fragments."""
    opcode, fin, payload = ws.frame()
    while not fin:
        _, fin, more = ws.frame()
        payload += more
    assert opcode == TEXT
    return json.loads(payload)


def test_requests_on_one_socket_are_answered_apart_and_mistakes_by_their_codes(dial):
    ws = dial("/ws")
    for number in range(50):
        ws.say(type="request", id=f"ws_{number}", method="POST", path="/api/echo", body={"n": number, "text": "\u20ac" * number})
    answers = [heard(ws) for _ in range(50)]
    assert {a["id"]: a["body"]["n"] for a in answers} == {f"ws_{n}": n for n in range(50)}
    assert all(a["status"] == 200 and a["done"] and a["body"]["text"] == "\u20ac" * a["body"]["n"] for a in answers)
    ws.send(TEXT, b"{no json")
    assert heard(ws) == {"type": "error", "code": "PARSE_ERROR", "message": "Invalid JSON message", "status": 400}
    ws.say(type="request", id="a")
    assert heard(ws)["code"] == "INVALID_REQUEST"
    ws.say(type="request", id="b", method="GET", path="/api/nowhere")
    assert (answer := heard(ws))["status"] == 404 and answer["id"] == "b"
    ws.send(BINARY, json.dumps({"type": "request", "id": "c", "method": "GET", "path": "/api/echo"}).encode())
    assert heard(ws)["id"] == "c"


def test_events_of_several_streams_come_whole_and_in_order(dial):
    ws, other = dial("/ws"), dial("/ws")
    sizes = {"small": 1, "large": 70_000}
    for each in (ws, other):
        for name, size in sizes.items():
            each.say(type="request", id=name, method="POST", path="/api/count", body={"to": 40, "size": size})
    for each in (ws, other):
        streams, done = {name: [] for name in sizes}, set()
        while done != set(sizes):
            message = heard(each)
            if message["type"] == "stream":
                streams[message["id"]].append(message["data"])
            else:
                assert message == {"type": "response", "id": message["id"], "status": 200, "done": True}
                done.add(message["id"])
        for name, size in sizes.items():
            assert streams[name] == [f"{n}\n{'x' * size}" for n in range(40)]


def test_a_stream_is_cancelled_by_its_own_socket_only_and_ends_with_it(dial, container):
    mine, other = dial("/ws"), dial("/ws")
    first, second, third = (f"{dial.way}-{n}" for n in range(3))
    mine.say(type="request", id=first, method="GET", path="/api/forever")
    mine.say(type="request", id=second, method="GET", path="/api/forever")
    other.say(type="request", id=third, method="GET", path="/api/forever")
    seen = set()
    while seen != {first, second}:
        seen.add(heard(mine)["id"])
    other.say(type="cancel", id=first)
    assert heard(other)["id"] == third
    for _ in range(20):  # it goes on, behind that cancel
        heard(mine)
    assert not [end for end in container.ended if end[0] in (first, second, third)]
    mine.say(type="cancel", id=second)
    until(lambda: (second, "cancelled") in container.ended, 10, "it is not cancelled")
    mine.drop()
    until(lambda: (first, "closed") in container.ended, 10, "it outlives its socket")
    assert heard(other)["id"] == third and third not in dict(container.ended)


def test_a_terminal_tells_what_it_has_shown_then_goes_on_for_all_who_watch(dial, container):
    path = f"/ws/pty?sessionId={dial.way}&cols=80&rows=24"
    one = dial(path)
    assert heard(one) == {"type": "ready"}
    one.send(BINARY, b"\x1b[1mtyped \xff\x00\r\n")
    assert one.message() == (BINARY, b"\x1b[1mtyped \xff\x00\r\n")
    one.say(type="resize", cols=120, rows=40)
    assert one.message() == (BINARY, b"[120x40]")
    two, apart = dial(path), dial("/ws/pty?sessionId=apart-" + dial.way)
    assert two.message() == (BINARY, b"\x1b[1mtyped \xff\x00\r\n[120x40]") and heard(two) == heard(apart) == {"type": "ready"}
    two.send(BINARY, b"for both")
    assert one.message() == two.message() == (BINARY, b"for both")
    one.drop()
    until(lambda: len(container.watching[dial.way]) == 1, 10, "the container is not told")
    again = dial(path)
    assert again.message() == (BINARY, b"\x1b[1mtyped \xff\x00\r\n[120x40]for both") and heard(again) == {"type": "ready"}
    apart.send(BINARY, b"its own")
    assert apart.message() == (BINARY, b"its own")


def test_what_is_typed_before_ready_is_not_lost(cell, container, dial):
    """Behind the upgrade in the same packet."""
    session, mask = "early-" + dial.way, bytes(4)
    head = [f"GET /{dial.way}/sb-1/ws/pty?sessionId={session} HTTP/1.1", "Host: cell.test", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}", "%s: %s" % cell.bearer(need=["mux"])]
    with Http1(cell.http) as client:
        client.send("\r\n".join(head).encode() + b"\r\n\r\n\x82\x85" + mask + b"early")
        assert client.response_head().status == 101
        until(lambda: container.screens.get(session) == b"early", 10, "it is lost")


def test_a_terminal_that_cannot_be_made_says_why(dial):
    """Once, on both ways: a route that says nothing of resuming is not redialled."""
    messages, close = dial("/ws/pty?sessionId=broken").rest()
    assert [json.loads(payload)["message"] for _, payload in messages] == ["Failed to create terminal"]
    assert close == (1011, "Failed to create terminal")


def test_who_asks_in_the_wrong_way_gets_the_containers_answer(cell, dial):
    with pytest.raises(Ws.Refused) as refused:
        dial("/ws/pty?cols=80")
    assert refused.value.status == 400 and refused.value.body == MISSING
    plain = request(cell.http, "GET", "/d/sb-1/ws/pty?sessionId=s", [cell.bearer(need=["mux"])])
    assert plain.status == 426 and plain.all("upgrade") == ["websocket"]
