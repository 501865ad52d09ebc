# SPDX-License-Identifier: MIT
"""A client of cellgate.mux.v1 that loses its WebSocket goes on with another one: nothing it asked is asked twice, nothing is lost."""

import contextlib
import json
import os
import random
import secrets
import socket
import struct
import threading
import time

import pytest
from browser import Browser
from cell import ROOT, stop_listening, until
from origin import Origin
from test_mux_v1 import CREDIT, DATA, END, REQUEST, RESET, RESPONSE
from tunnels import Tunnels
from worker import BINARY, CLOSE, TEXT, Ws

ROUTES = [
    {"name": "mux", "path": "/v1/mux", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
    {"name": "other", "path": "/v1/other", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
    {"name": "open", "path": "/open/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
    {"name": "web", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "exec"},
]
FILES = {"/page": (b"text/html", b"<!doctype html><title>mux</title>"), "/mux.js": (b"text/javascript", (ROOT / "examples/mux/mux.js").read_bytes())}
BOTH = "cellgate.mux.v1.resume, cellgate.mux.v1"


class Gone(Exception):
    """The leg ended; args are the Close's code and reason, or nothing."""


class Client:
    """Counts each message, and keeps what is not acknowledged. What is heard is in `parts[number]`, in order."""

    def __init__(self, cell, token, path="/v1/mux"):
        self.cell, self.path, self.headers = cell, path, [("Authorization", "Bearer " + token)]
        self.tunnel, self.attempt, self.recv = secrets.token_hex(16), 0, None
        self.sent, self.acknowledged, self.number, self.parts = [], 0, 0, {}
        self.ws, self.end, self.address = None, None, None

    def query(self, **changes):
        values = {"cr_tunnel": self.tunnel, "cr_attempt": self.attempt, "cr_recv": self.recv} | changes
        return "&".join(f"{name}={value}" for name, value in values.items() if value is not None)

    def open(self, headers=None, protocols=BOTH, path=None, **changes):
        path = f"{path or self.path}?{self.query(**changes)}"
        sock = self.address and socket.create_connection(("127.0.0.1", self.cell.http), 10, (self.address, 0))
        return Ws(self.cell.http, path, [("Sec-WebSocket-Protocol", protocols), *(self.headers if headers is None else headers)], sock=sock)

    def dial(self):
        """Behind it the gate has what was sent before. Raises Gone."""
        self.drop()
        self.attempt += 1
        self.ws = self.open()
        assert self.ws.response.get("sec-websocket-protocol") == "cellgate.mux.v1.resume"
        opcode, payload = self.ws.message()
        if opcode == CLOSE:
            raise Gone(struct.unpack(">H", payload[:2])[0])
        said = json.loads(payload)["cell-resume"]
        assert opcode == TEXT and list(said) == ["recv", "next", "buffer"], payload
        assert self.acknowledged <= said["recv"] <= len(self.sent), (said, self.acknowledged, len(self.sent))
        assert said["next"] <= (self.recv or 0) + 1
        self.recv, self.counter, self.acknowledged = self.recv or 0, said["next"], said["recv"]
        for message in self.sent[self.acknowledged :]:
            self.ws.send(BINARY, message)
        return self

    def drop(self):
        if self.ws:
            self.ws.drop()
        self.ws = None

    def put(self, kind, number, payload=b""):
        self.sent.append(bytes([kind]) + struct.pack(">I", number) + payload)
        if self.ws:
            self.ws.send(BINARY, self.sent[-1])

    def ask(self, path, method="GET", **more):
        self.number += 1
        self.put(REQUEST, self.number, json.dumps({"method": method, "path": "/w/sb-1" + path, "window": 1 << 30, **more}).encode())
        return self.number

    def post(self, path, *pieces):
        number = self.ask(path, "POST", body=True)
        for piece in pieces:
            self.put(DATA, number, piece)
        self.put(END, number)
        return number

    def say(self, what, number):
        self.ws.send(TEXT, b'{"cell-resume":{"%s":%d}}' % (what.encode(), number))

    def take(self):
        """One message of the gate's. Raises Gone at the end of the leg."""
        try:
            frame = self.ws.frame()
        except ConnectionError:
            frame = None
        if frame is None:
            raise Gone
        opcode, _, payload = frame
        if opcode == CLOSE:
            raise Gone(struct.unpack(">H", payload[:2])[0], payload[2:].decode())
        if opcode == TEXT:
            (what, number), = json.loads(payload)["cell-resume"].items()
            assert payload == b'{"cell-resume":{"%s":%d}}' % (what.encode(), number)
            if what == "end":
                assert number == self.counter
                self.end = number
            else:
                assert self.acknowledged <= number <= len(self.sent)
                self.acknowledged = number
            return
        self.counter += 1
        if self.counter - 1 <= self.recv:
            return
        self.recv += 1
        self.parts.setdefault(struct.unpack(">I", payload[1:5])[0], []).append((payload[0], payload[5:]))

    def is_answered(self, number):
        return any(kind in (END, RESET) for kind, _ in self.parts.get(number, []))

    def hear(self, number):
        """(status, body), or the error of a RESET."""
        while not self.is_answered(number):
            self.take()
        *parts, (kind, payload) = [part for part in self.parts[number] if part[0] != CREDIT]
        if kind == RESET:
            return json.loads(payload)
        assert parts[0][0] == RESPONSE and all(kind == DATA for kind, _ in parts[1:])
        return json.loads(parts[0][1])["status"], b"".join(payload for _, payload in parts[1:])


class Worker(Origin):
    """Counts each POST by its body."""

    def __init__(self):
        self.posts, self.go, self.lock = [], threading.Event(), threading.Lock()
        super().__init__(answer=self.serve)

    def serve(self, connection, request):
        target, _, query = request.target.partition("?")
        body = connection.read_body(request)
        if request.method == "POST":
            with self.lock:
                self.posts.append(body)
        if target in FILES:
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (FILES[target][0], len(FILES[target][1])) + FILES[target][1])
            return False
        if target == "/seen":
            body = b" ".join(value.encode() for name, value in request.headers if name.lower() == "cf-ray")
        if target == "/hold":
            self.go.wait(30)
        if target == "/big":
            body = bytes(range(256)) * (int(query) // 256)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return False


@pytest.fixture
def worker():
    return Worker()


@pytest.fixture
def cell(cells, worker):
    return cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES, "relay": {"mux_grace": "20s", "threads": 3}})


@pytest.fixture
def client(cell):
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    yield client
    client.drop()


def metric(cell, name):
    return Tunnels(cell).metric(name)


def legs(cell, outcome):
    return metric(cell, f'cellgate_relay_mux_legs_total{{outcome="{outcome}"}}')


def is_left_alone(cell):
    """Whatever was opened is closed, and nothing is held."""
    until(lambda: metric(cell, "cellgate_relay_mux_sockets") == 0, 20, "sockets are left")
    until(lambda: metric(cell, "cellgate_relay_held_bytes") == 0, 20, "bytes are held")
    until(lambda: len(os.listdir(f"/proc/{cell.pid('relay')}/fd")) < 60, 20, "descriptors are left")


def finish(client):
    client.say("end", len(client.sent) + 1)
    client.ws.send(CLOSE, struct.pack(">H", 1000))


def test_a_call_without_a_loss(cell, client, worker):
    assert client.hear(client.post("/echo", b"one", b"two")) == (200, b"onetwo")
    while client.acknowledged < len(client.sent):
        client.take()
    client.say("recv", client.recv)
    finish(client)
    with pytest.raises(Gone, match="1000"):
        client.take()
    is_left_alone(cell)
    assert worker.posts == [b"onetwo"] and not legs(cell, "lost")


@pytest.mark.parametrize("how", ["fin", "reset", "close"])
def test_what_is_on_its_way_outlives_the_leg(cell, client, worker, how):
    numbers = [client.post("/hold", b"%d" % i) for i in range(8)]
    until(lambda: len(worker.posts) == 8, 10, "all asked")
    if how == "close":
        client.ws.send(CLOSE, struct.pack(">H", 1001))
        with pytest.raises(Gone, match="1001"):
            client.take()
    elif how == "reset":
        client.ws.reset()
        client.ws = None
    else:
        client.drop()
    until(lambda: legs(cell, "lost") == 1, 10, "it is lost")
    worker.go.set()
    later = client.ask("/echo")
    client.dial()
    assert [client.hear(number) for number in numbers] == [(200, b"%d" % i) for i in range(8)]
    assert client.hear(later) == (200, b"")
    assert len(worker.posts) == 8 and legs(cell, "resumed") == 1


def test_a_leg_is_taken_over_while_it_lives(cell, client, worker):
    old = client.ws
    number = client.post("/hold", b"x")
    until(lambda: worker.posts, 10, "asked")
    client.ws = None
    client.dial()
    opcode, payload = old.message()
    while opcode != CLOSE:
        opcode, payload = old.message()
    assert payload == struct.pack(">H", 4001) + b"taken over"
    worker.go.set()
    assert client.hear(number) == (200, b"x")
    assert worker.posts == [b"x"]


class Cut:
    """A socket of which so many bytes come, or leave, before it is lost."""

    def __init__(self, sock, receives=None, sends=None):
        self.sock, self.receives, self.sends = sock, receives, sends

    def sendall(self, data):
        if self.sends is not None and len(data) >= self.sends:
            self.sock.sendall(data[: self.sends])
            self.sock.close()
            raise ConnectionError("cut")
        self.sends = None if self.sends is None else self.sends - len(data)
        self.sock.sendall(data)

    def recv(self, size):
        if self.receives == 0:
            self.sock.close()
            raise ConnectionError("cut")
        data = self.sock.recv(size if self.receives is None else min(size, self.receives))
        self.receives = None if self.receives is None else self.receives - len(data)
        return data

    def __getattr__(self, name):
        return getattr(self.sock, name)


def converse(client, tag, cut):
    """Two POSTs and a GET, in one leg that is lost there, and as many more as it takes."""
    client.dial()
    client.ws.http.sock = Cut(client.ws.http.sock, **cut)
    lost = False
    try:
        first = client.post("/echo", tag, b"-one")
        second = client.post("/echo", b"", tag)
        third = client.ask("/echo")
        client.say("recv", client.recv)
        for number in (first, second, third):
            client.hear(number)
    except (Gone, ConnectionError):
        lost, client.ws = True, None
        rest = [(REQUEST, 1), (DATA, 1, tag), (DATA, 1, b"-one"), (END, 1), (REQUEST, 2), (DATA, 2), (DATA, 2, tag), (END, 2), (REQUEST, 3)]
        for kind, number, *payload in rest[len(client.sent) :]:  # what was not said yet is said later
            client.number = number - 1
            client.ask("/echo", *["POST"] if number < 3 else [], **{"body": True} if number < 3 else {}) if kind == REQUEST else client.put(kind, number, *payload)
        client.dial()
    answers = [client.hear(number) for number in (1, 2, 3)]
    assert answers == [(200, tag + b"-one"), (200, tag), (200, b"")], (cut, answers)
    client.ws.http.sock = getattr(client.ws.http.sock, "sock", client.ws.http.sock)
    finish(client)
    client.drop()
    return lost


@pytest.mark.parametrize("way", ["sends", "receives"])
def test_cut_at_every_byte(cell, worker, way):
    token, at, tags = cell.token("sb-1", need=["exec"]), 0, []
    while True:
        tags.append(b"%05d" % at)
        if not converse(Client(cell, token), tags[-1], {way: at}):
            break
        at += 1
    assert at > (200 if way == "receives" else 350), at
    assert sorted(worker.posts) == sorted(tag + more for tag in tags for more in (b"-one", b""))
    is_left_alone(cell)


def test_large_bodies_over_many_losses(cell, worker):
    """Each leg is lost somewhere, uploads and answers go on."""
    rng, size = random.Random(7), 3 << 20
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    client.ws.http.sock = Cut(client.ws.http.sock, receives=100_000)
    up = os.urandom(size)
    first = client.ask("/echo", "POST", body=True)
    down = client.ask(f"/big?{size}")
    may, at, losses = 262144, 0, 0
    while not (client.is_answered(first) and client.is_answered(down)):
        try:
            if client.ws is None:
                client.dial()
                client.ws.http.sock = Cut(client.ws.http.sock, receives=rng.randrange(1, 400_000))
            while at < size and may and len(client.sent) - client.acknowledged < 3:
                piece = up[at : at + min(may, rng.choice([1, 125, 126, 16384, 65535, 65536]))]
                at, may = at + len(piece), may - len(piece)
                client.put(DATA, first, piece)
            if at == size:
                client.put(END, first)
                at += 1
            client.take()
            client.say("recv", client.recv)
        except (Gone, ConnectionError):
            losses += 1
            client.ws = None
        credits = [part for part in client.parts.get(first, []) if part[0] == CREDIT]
        may += sum(struct.unpack(">I", payload)[0] for _, payload in credits)
        if credits:
            client.parts[first] = [part for part in client.parts[first] if part[0] != CREDIT]
    assert client.hear(first) == (200, up)
    assert client.hear(down) == (200, bytes(range(256)) * (size // 256))
    assert losses > 10 and worker.posts == [up]
    finish(client)
    is_left_alone(cell)


def test_many_sockets_over_all_threads(cell, worker):
    clients = [Client(cell, cell.token("sb-1", need=["exec"])) for _ in range(24)]
    for turn in range(6):
        for client in clients:
            client.dial()
        numbers = [(client, client.post("/echo", b"%d" % turn, secrets.token_bytes(3))) for client in clients]
        for client in clients[::2]:
            client.drop()
            client.dial()
        for client, number in numbers:
            assert client.hear(number)[0] == 200
    assert len(worker.posts) == len(set(worker.posts)) == 24 * 6
    assert legs(cell, "resumed") == 24 * 5 + 12 * 6


# ---- examples/mux/mux.js ----


class Wire:
    """A port in front of the cell, whose connections can be cut."""

    def __init__(self, port):
        self.port, self.open, self.lock = port, [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.port))
                with self.lock:
                    self.open.append((near, far))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    @staticmethod
    def carry(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        with self.lock:
            ends, self.open = [end for pair in self.open for end in pair], []
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        stop_listening(self.listener)
        self.cut()


PROGRAM = """(async () => {
    const { Mux } = await import("/open/sb-1/mux.js");
    const mux = new Mux(`ws://${location.host}/v1/mux`, { protocols: ["cellgate", "cellgate.bearer.TOKEN"], resume: RESUME });
    await mux.fetch("/w/sb-1/echo");
    const post = async (n) => (await mux.fetch("/w/sb-1/hold", { method: "POST", body: `post ${n}` })).text();
    const bytes = new Uint8Array(2 << 20).map((_, n) => n * 7);
    const all = Promise.all([...Array.from({ length: 20 }, (_, n) => post(n)), mux.fetch("/w/sb-1/hold", { method: "POST", body: new Blob([bytes]) }).then((a) => a.arrayBuffer())]);
    globalThis.told = all.then((texts) => { const back = new Uint8Array(texts.pop()); return JSON.stringify([texts, back.length === bytes.length && back.every((b, n) => b === bytes[n])]); }, (error) => error.message);
    return "asked";
})()"""


@contextlib.contextmanager
def page(cell, resume):
    wire = Wire(cell.http)
    try:
        with Browser() as browser:
            browser.open(f"http://127.0.0.1:{wire.listener.getsockname()[1]}/open/sb-1/page")
            browser.wait(lambda: browser.evaluate("document.title") == "mux")
            assert browser.ask(PROGRAM.replace("TOKEN", cell.token("sb-1", need=["exec"])).replace("RESUME", resume)) == "asked"
            yield browser, wire
    finally:
        wire.close()


def test_mux_js_goes_on(cell, worker):
    with page(cell, "true") as (browser, wire):
        until(lambda: len(worker.posts) == 21, 20, "all are asked")
        for turn in range(1, 4):
            wire.cut()
            until(lambda: legs(cell, "resumed") == turn, 20, "it comes back")  # noqa: B023
        worker.go.set()
        assert json.loads(browser.ask("globalThis.told")) == [[f"post {n}" for n in range(20)], True]
    assert len(worker.posts) == len(set(worker.posts)) == 21


def test_mux_js_is_told_not_to(cell, worker):
    with page(cell, "false") as (browser, wire):
        until(lambda: len(worker.posts) == 21, 20, "all are asked")
        wire.cut()
        assert browser.ask("globalThis.told").startswith("the WebSocket ended: 1006")
        worker.go.set()
    assert not legs(cell, "resumed")


def test_mux_js_gives_up(cell, worker):
    """The relay that knew it has died: what was on its way fails, and is not asked again."""
    with page(cell, "true") as (browser, wire):
        until(lambda: len(worker.posts) == 21, 20, "all are asked")
        cell.kill("relay")
        assert browser.ask("globalThis.told").startswith("the WebSocket ended: 4410")
        worker.go.set()
    assert len(worker.posts) == 21


# ---- who may not ----


def refused(ws):
    opcode, payload = ws.message()
    assert opcode == CLOSE, (opcode, payload)
    assert ws.frame() is None
    return struct.unpack(">H", payload[:2])[0]


def test_only_who_opened_it_resumes_it(cell, client, worker):
    number = client.post("/hold", b"mine")
    until(lambda: worker.posts, 10, "asked")
    other = [("Authorization", "Bearer " + cell.token("sb-1", need=["exec"], sub="mallory"))]
    assert refused(client.open(headers=other, cr_attempt=9)) == 4410
    assert refused(client.open(headers=[], cr_attempt=9)) == 4410
    assert refused(client.open(headers=client.headers + [("X-Own", "b")], cr_attempt=9)) == 4410
    assert refused(client.open(path="/v1/other", cr_attempt=9)) == 4410
    assert refused(client.open(cr_tunnel="0" * 32, cr_attempt=9)) == 4410
    worker.go.set()
    assert client.hear(number) == (200, b"mine")  # its leg has seen nothing of it
    client.headers.append(("Traceparent", "00-1-2-01"))
    client.drop()
    client.dial()
    assert legs(cell, "refused") == 5


def test_a_client_may_come_back_from_another_address(client, worker):
    """Each request needs a proof of the address from which its client came last."""
    for address in ("127.0.0.2", None, "127.0.0.3"):
        client.drop()
        client.address = address
        assert client.dial().hear(client.post("/echo", b"here")) == (200, b"here"), address


def test_the_way_is_said_anew(cell, client, worker):
    """What each connection says of its way is that of the last one; the other headers are the same."""
    client.headers.append(("Cf-Ray", "second"))
    client.dial()
    assert client.hear(client.ask("/seen"))[1].split() == [b"second"]


def test_numbers_that_cannot_be(cell, client):
    client.hear(client.post("/echo", b"x"))
    assert refused(client.open()) == 4409  # the attempt that there is
    assert refused(client.open(cr_attempt=2, cr_recv=client.recv + 1)) == 4400
    assert refused(client.open(cr_attempt=2)) == 4409  # that one counted
    assert refused(client.open(cr_attempt=3, cr_buffer=65536)) == 4400
    client.attempt = 3
    client.dial()


@pytest.mark.parametrize("query", ["cr_tunnel=1", "cr_tunnel={id}", "cr_tunnel={id}&cr_attempt=0", "cr_tunnel={id}&cr_attempt=1&cr_attempt=2", "cr_tunnel={id}&cr_attempt=1&cr_recv=01", "cr_tunnel={id}&cr_attempt=1&cr_buffer=131071"])
def test_a_query_that_is_none(cell, query):
    ws = Ws(cell.http, "/v1/mux?" + query.format(id="a" * 32), [("Sec-WebSocket-Protocol", BOTH)])
    assert refused(ws) == 4400


def test_what_is_selected(cell):
    def selected(query, protocols):
        with Ws(cell.http, "/v1/mux" + query, [("Sec-WebSocket-Protocol", protocols)]) as ws:
            return ws.response.get("sec-websocket-protocol")

    id = "?cr_attempt=1&cr_tunnel=" + secrets.token_hex(16)
    assert selected("", BOTH) == "cellgate.mux.v1"
    assert selected(id, "cellgate.mux.v1") == "cellgate.mux.v1"
    assert selected(id, BOTH) == "cellgate.mux.v1.resume"
    with Ws(cell.http, "/v1/mux", [("Sec-WebSocket-Protocol", "cellgate.mux.v1.resume")]) as ws:
        assert refused(ws) == 4400


def test_switched_off(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES, "relay": {"mux_grace": "0s"}})
    with Ws(cell.http, "/v1/mux?cr_attempt=1&cr_tunnel=" + "a" * 32, [("Sec-WebSocket-Protocol", BOTH)]) as ws:
        assert ws.response.get("sec-websocket-protocol") == "cellgate.mux.v1"


@pytest.mark.parametrize(
    "opcode, payload, code",
    [
        (TEXT, b"hello", "1003, 'a text message'"),
        (TEXT, b'{"cell-resume":{"recv":1}}', "1002, 'recv is higher than what was sent'"),
        (TEXT, b'{"cell-resume":{"recv":-1}}', "1002, 'not the bytes"),
        (TEXT, b'{"cell-resume":{"recv": 0}}', "1002, 'not the bytes of a cell-resume message'"),
        (TEXT, b'{"cell-resume":{"end":9}}', "1002, 'end is not the next number'"),
        (TEXT, b'{"cell-resume":{}}', "1002, 'not the bytes"),
        (BINARY, b"\1\0", "1002, 'no type or no number'"),
        (BINARY, bytes(65542), "1009, "),
    ],
    ids=["text", "ahead", "negative", "space", "no such end", "empty", "short", "long"],
)
def test_who_breaks_the_protocol_is_over(cell, client, opcode, payload, code):
    client.ws.send(opcode, payload)
    with pytest.raises(Gone, match=code):
        client.take()
    with pytest.raises(Gone, match="4410"):
        client.dial()
    is_left_alone(cell)


# ---- bounds ----


def test_the_grace_is_bounded(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES, "relay": {"mux_grace": "300ms"}})
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    client.post("/hold", b"x")
    until(lambda: worker.posts, 10, "asked")
    client.drop()
    until(lambda: metric(cell, 'cellgate_relay_mux_ended_total{reason="lost"}') == 1, 10, "it is over")
    worker.go.set()
    is_left_alone(cell)
    with pytest.raises(Gone, match="4410"):
        client.dial()


def test_what_nobody_acknowledges_stops_its_workers(cell, worker):
    """And acknowledgements are heard however much waits."""
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    size, most = 4 << 20, 3 << 20
    numbers = [client.ask(f"/big?{size}") for _ in range(4)]
    while client.recv < 3:
        client.take()
    client.drop()
    until(lambda: legs(cell, "lost") == 1, 10, "it is lost")
    held = [metric(cell, "cellgate_relay_held_bytes") for _ in range(5)]
    assert max(held) < most, held
    client.dial()
    waits = [client.post("/echo", b"%d" % i) for i in range(20)]
    while not all(map(client.is_answered, numbers + waits)):
        client.take()
        if client.recv % 2:
            client.say("recv", client.recv)
    assert [client.hear(number)[1] for number in waits] == [b"%d" % i for i in range(20)]
    assert all(len(client.hear(number)[1]) == size for number in numbers)
    assert sorted(worker.posts) == sorted(b"%d" % i for i in range(20))


def test_more_than_the_window_is_too_much(cell, client):
    """While the client acknowledges nothing, what it sends is not taken, and of that no more than a window is held."""
    client.ask("/big?4194304")
    until(lambda: metric(cell, "cellgate_relay_held_bytes") > 512 << 10, 10, "nothing fills")
    number = client.ask("/echo", "POST", body=True)
    with pytest.raises((Gone, ConnectionError)) as why:
        for _ in range(40):
            client.put(DATA, number, bytes(60000))
        while True:
            client.take()
    assert issubclass(why.type, ConnectionError) or why.value.args[:1] in [(1009,), ()]
    assert metric(cell, 'cellgate_relay_mux_ended_total{reason="large"}') == 1
    is_left_alone(cell)


def test_an_end_is_told(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": [ROUTES[0] | {"idle": "1s"}, *ROUTES[1:]]})
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    assert client.hear(client.post("/echo", b"x")) == (200, b"x")
    with pytest.raises(Gone, match="1000"):
        while True:
            client.take()
    assert client.end == client.recv + 1
    is_left_alone(cell)


def test_idle_begins_behind_the_last_answer(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": [ROUTES[0] | {"idle": "2s"}, *ROUTES[1:]]})
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    number = client.post("/hold", b"x")
    time.sleep(2.2)
    answered = time.monotonic()
    worker.go.set()
    assert client.hear(number) == (200, b"x")
    client.say("recv", client.recv)
    with pytest.raises(Gone, match="1000"):
        while True:
            client.take()
    assert time.monotonic() - answered > 1.5  # it is looked at every second


def test_who_is_away_is_not_idle(cells, worker):
    """Its grace counts: the answer came while it was away, longer after the question than a socket may be idle."""
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": [ROUTES[0] | {"idle": "500ms"}, *ROUTES[1:]], "relay": {"mux_grace": "20s"}})
    client = Client(cell, cell.token("sb-1", need=["exec"])).dial()
    number = client.post("/hold", b"x")
    until(lambda: worker.posts, 10, "asked")
    client.drop()
    until(lambda: legs(cell, "lost") == 1, 10, "it is lost")
    threading.Timer(0.6, worker.go.set).start()
    until(lambda: metric(cell, 'cellgate_relay_mux_requests_total{outcome="answered"}') == 1, 10, "answered")
    time.sleep(1)  # several looks, of which none may end it
    client.dial()
    assert client.hear(number) == (200, b"x")


def test_a_relay_that_drains(cell, client, worker):
    number = client.post("/hold", b"x")
    until(lambda: worker.posts, 10, "asked")
    cell.kill("relay", 15)
    worker.go.set()
    assert client.hear(number) == (200, b"x")
    client.say("recv", client.recv)
    with pytest.raises(Gone, match="1012"):
        client.take()
        client.take()
    assert client.end == client.recv + 1


def test_a_relay_that_died_knows_nobody(cell, client, worker):
    client.post("/hold", b"x")
    until(lambda: worker.posts, 10, "asked")
    relay = cell.pid("relay")
    cell.kill("relay")
    client.drop()
    until(lambda: cell.pid("relay") != relay, 20, "it does not come back")

    def comes_back():
        try:
            client.dial()
        except Ws.Refused as refused:
            assert refused.status in (502, 503), refused.status
            return None
        except Gone as gone:
            return gone.args

    assert until(comes_back, 20) == (4410,)
    worker.go.set()
    assert worker.posts == [b"x"]


def test_hostile_legs_beside_an_exact_one(cells, worker):
    """They come with ids of their own, with others' ids, in pieces, and go at any point."""
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES, "relay": {"mux_grace": "2s", "threads": 3}})
    stop, rng = threading.Event(), random.Random(11)
    exact = Client(cell, cell.token("sb-1", need=["exec"])).dial()

    def attack(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            client = Client(cell, cell.token("sb-1", need=["exec"], sub="mallory"))
            if rng.random() < 0.3:
                client.tunnel = exact.tunnel
            try:
                for _ in range(rng.randrange(1, 4)):
                    client.attempt += rng.randrange(0, 1 << rng.randrange(1, 50))
                    client.ws = client.open(cr_recv=rng.choice([None, None, 0, 1, 1 << 40]), cr_attempt=min(client.attempt + 1, (1 << 53) - 1))
                    for _ in range(rng.randrange(6)):
                        kind = rng.randrange(4)
                        if kind == 0:
                            client.ws.send(TEXT, b'{"cell-resume":{"%s":%d}}' % (rng.choice([b"recv", b"end"]), rng.choice([0, 1, 2, 9, 1 << 52])))
                        elif kind == 1:
                            client.ws.send(BINARY, bytes([rng.randrange(8)]) + struct.pack(">I", rng.randrange(4)) + rng.randbytes(rng.choice([0, 4, 125, 126, 65535, 65536])))
                        else:
                            client.ask("/echo")
                            client.ws.send(BINARY, client.sent[-1])
                    if rng.random() < 0.5:
                        client.ws.http.sock.settimeout(0.05)
                        client.ws.frame()
                    (client.ws.reset if rng.random() < 0.5 else client.drop)()
            except (OSError, ConnectionError, Ws.Refused, AssertionError):
                pass
            finally:
                client.drop()

    threads = [threading.Thread(target=attack, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(150):
            number = exact.post("/echo", b"exact %d" % turn)
            if rng.random() < 0.3:
                exact.drop()
                exact.dial()
            assert exact.hear(number) == (200, b"exact %d" % turn)
            exact.say("recv", exact.recv)
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=20)
    assert sorted(p for p in worker.posts if p.startswith(b"exact")) == sorted(b"exact %d" % turn for turn in range(150))
    finish(exact)
    until(lambda: metric(cell, "cellgate_relay_mux_sockets") == 0, 40, "sockets are left")  # after mux_grace
    is_left_alone(cell)
