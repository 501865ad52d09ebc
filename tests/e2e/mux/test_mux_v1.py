# SPDX-License-Identifier: MIT
"""cellgate.mux.v1: one WebSocket, many requests, any bytes both ways, and no reader that stops another one."""

import collections
import contextlib
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import threading

import pytest
from cell import SANITIZED, on_worker, until
from client import WEBSOCKET, Http1, frame, head
from origin import Origin
from tunnels import Tunnels
from worker import BINARY, CLOSE, TEXT, Ws

ROUTES = [
    {"name": "mux", "path": "/v1/mux", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
    {"name": "web", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "exec"},
]
REQUEST, RESPONSE, DATA, END, RESET, CREDIT = range(1, 7)
UPLOAD = 262144
BIG = int(os.environ.get("MUX_BIG", 64 << 20))


class Client:
    """What comes for a request is kept in `heard[number]` until somebody asks for it."""

    def __init__(self, cell, token, protocols="cellgate.mux.v1"):
        self.ws = Ws(cell.http, "/v1/mux", [("Sec-WebSocket-Protocol", protocols), *([("Authorization", "Bearer " + token)] if token else [])])
        self.number, self.heard = 0, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ws.http.sock.close()

    def put(self, kind, number, payload=b""):
        self.ws.send(BINARY, bytes([kind]) + struct.pack(">I", number) + payload)

    def ask(self, path, method="GET", **more):
        self.number += 1
        self.put(REQUEST, self.number, json.dumps({"method": method, "path": "/w/sb-1" + path, **more}).encode())
        return self.number

    def credit(self, number, size):
        self.put(CREDIT, number, struct.pack(">I", size))

    def hear(self, number):
        """The next message for that request."""
        while not self.heard.get(number):
            opcode, payload = self.ws.message()
            assert opcode == BINARY and len(payload) >= 5, (opcode, payload[:64])
            kind, whose = payload[0], struct.unpack(">I", payload[1:5])[0]
            self.heard.setdefault(whose, []).append((kind, payload[5:]))
        return self.heard[number].pop(0)

    def response(self, number):
        kind, payload = self.hear(number)
        while kind == CREDIT:
            kind, payload = self.hear(number)
        assert kind == RESPONSE, (kind, payload)
        return json.loads(payload)

    def body(self, number, credit=True):
        """(bytes, trailers), or the error."""
        parts = []
        while True:
            kind, payload = self.hear(number)
            if kind == DATA:
                parts.append(payload)
                if credit:
                    self.credit(number, len(payload))
            elif kind == END:
                return b"".join(parts), json.loads(payload)["trailers"] if payload else {}
            elif kind == RESET:
                return b"".join(parts), json.loads(payload)

    def call(self, path, method="GET", **more):
        number = self.ask(path, method, **more)
        return self.response(number), *self.body(number)

    def upload(self, number, data):
        """As much as there is credit for, and then as more is given."""
        may = UPLOAD
        while data:
            while not may:
                kind, payload = self.hear(number)
                assert kind == CREDIT, (kind, payload)
                may += struct.unpack(">I", payload)[0]
            piece, data = data[: min(may, 65536)], data[min(may, 65536) :]
            self.put(DATA, number, piece)
            may -= len(piece)

    def closed(self):
        *_, (code, reason) = self.ws.rest()
        return code, reason


class Worker(Origin):
    def __init__(self):
        self.go, self.sent, self.ended = threading.Event(), 0, threading.Event()
        super().__init__(answer=self.serve)

    def serve(self, connection, request):
        target = request.target.partition("?")[0]
        if target == "/echo":
            request.body = connection.read_body(request)
            connection.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Bytes: \xe9\r\nContent-Length: %d\r\n\r\n" % len(request.body) + request.body)
        elif target == "/big":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
            self.pour(connection, BIG)
        elif target == "/trailers":
            connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n")
        elif target == "/cut":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return True
        elif target == "/early":
            connection.send(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return True
        elif target == "/hold":
            self.go.wait(30)
            request.body = connection.read_body(request)
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d" % (len(str(len(request.body))), len(request.body)))
        elif target == "/head":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
        else:
            text = json.dumps({"method": request.method, "target": request.target, "headers": request.headers}).encode()
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        return False

    def pour(self, connection, size):
        piece = bytes(range(256)) * 256
        with contextlib.suppress(OSError):
            while size:
                connection.send(piece[:size])
                self.sent += min(size, len(piece))
                size -= min(size, len(piece))
        self.ended.set()


@pytest.fixture
def worker():
    return Worker()


@pytest.fixture
def cell(cells, worker):
    return cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES})


@pytest.fixture
def client(cell):
    with Client(cell, cell.token("sb-1", need=["exec"])) as client:
        yield client


def test_the_protocol_is_selected_where_it_is_offered(cell):
    token = cell.token("sb-1", need=["exec"])
    with Client(cell, token, "cellgate, cellgate.mux.v1") as client:
        assert client.ws.response.get("sec-websocket-protocol") == "cellgate.mux.v1"
        assert client.call("/x")[0]["status"] == 200
    with Ws(cell.http, "/v1/mux", [("Authorization", "Bearer " + token)]) as ws:
        ws.send(TEXT, b'{"type":"request","id":"1","method":"GET","path":"/w/sb-1/x"}')
        assert json.loads(ws.message()[1])["status"] == 200


def test_who_does_not_wait_for_the_101_is_answered_too(cell):
    """The first request comes in one piece with the upgrade, and others behind it before there is an answer."""
    request = json.dumps({"path": "/w/sb-1/x", "method": "GET"}).encode()
    frames = b"".join(frame(BINARY, bytes([REQUEST]) + struct.pack(">I", number) + request, mask=b"mask") for number in range(1, 21))
    fields = [("Host", "cell.test"), *WEBSOCKET, ("Sec-WebSocket-Protocol", "cellgate.mux.v1"), cell.bearer("sb-1", need=["exec"])]
    with Client(cell, None) as client, Http1(cell.http) as client.ws.http:
        client.ws.http.sock.sendall(head("GET", "/v1/mux", fields) + frames)
        assert client.ws.http.response().status == 101
        for number in range(1, 21):
            assert client.response(number)["status"] == 200
            assert json.loads(client.body(number)[0])["target"] == "/x"


@pytest.mark.parametrize("size", [0, 1, 125, 126, 16384, 65535, 65536, 65537, 1 << 20])
@pytest.mark.parametrize("known", [False, True])
def test_any_bytes_go_both_ways(client, worker, size, known):
    data = os.urandom(size)
    number = client.ask("/echo", "POST", body=True, headers={"Content-Type": "x/y"}, **({"length": size} if known else {}))
    client.upload(number, data)
    client.put(END, number)
    answer = client.response(number)
    assert answer["status"] == 200 and answer["headers"]["set-cookie"] == ["a=1", "b=2"] and answer["headers"]["content-length"] == str(size)
    assert client.body(number) == (data, {})
    (request,) = worker.requests
    assert request.get("content-type") == "x/y" and (request.get("content-length") == str(size)) == known


def test_methods_and_their_bodies(client):
    answer, body, _ = client.call("/x?y=1", "OPTIONS")
    assert (answer["status"], json.loads(body)["method"], json.loads(body)["target"]) == (200, "OPTIONS", "/x?y=1")
    answer, body, _ = client.call("/head", "HEAD")
    assert (answer["status"], answer["headers"]["content-length"], body) == (200, "12345", b"")
    number = client.ask("/x", "POST")
    assert client.response(number)["status"] == 200


def test_trailers_of_both(client, worker, cell):
    answer, body, trailers = client.call("/trailers")
    assert (answer["status"], body, trailers) == (200, b"abc", {"x-sum": "9"})
    number = client.ask("/echo", "POST", body=True)
    client.put(DATA, number, b"abc")
    client.put(END, number, json.dumps({"trailers": {"X-Sum": "7", "Authorization": "Bearer no", "Content-Length": "9"}}).encode())
    client.response(number)
    assert client.body(number)[0] == b"abc"


def test_a_slow_reader_stops_its_own_stream_alone(client, worker):
    slow = client.ask("/big", window=100_000)
    assert client.response(slow)["status"] == 200
    got = 0
    while got < 100_000:
        kind, payload = client.hear(slow)
        assert kind == DATA
        got += len(payload)
    assert got == 100_000
    for _ in range(50): # what is between the worker and the relay is full by now, and this goes on
        assert client.call("/x")[0]["status"] == 200
    assert worker.sent < BIG and not client.heard.get(slow)
    client.credit(slow, 1)
    assert client.hear(slow) == (DATA, bytes([100_000 % 256]))
    client.put(RESET, slow)
    assert worker.ended.wait(20)
    assert client.call("/x")[0]["status"] == 200


def test_a_large_answer_beside_small_ones(client, worker):
    fast = client.ask("/big", window=1 << 20)
    slow = client.ask("/big")
    client.response(fast), client.response(slow)
    done, calls, expected = 0, 0, bytes(range(256)) * 257
    while done < BIG:
        kind, payload = client.hear(fast)
        assert kind == DATA and payload == expected[done % 256 : done % 256 + len(payload)]
        done += len(payload)
        client.credit(fast, len(payload))
        if done >= calls * BIG // 20:
            calls += 1
            assert client.call("/x")[0]["status"] == 200
    assert client.hear(fast) == (END, b"")
    assert sum(len(p) for k, p in client.heard[slow] if k == DATA) == 65536


def test_the_end_needs_no_credit(client):
    number = client.ask("/trailers", window=3)
    client.response(number)
    assert client.body(number, credit=False) == (b"abc", {"x-sum": "9"})
    number = client.ask("/trailers", window=0)
    client.response(number)
    client.credit(number, 2)
    assert client.hear(number) == (DATA, b"ab")
    client.credit(number, 1)
    assert client.body(number, credit=False) == (b"c", {"x-sum": "9"})


def test_a_worker_that_does_not_read_stops_its_upload(client, worker):
    number = client.ask("/hold", "POST", body=True)
    may, sent = UPLOAD, 0
    while True: # until no more credit comes while another request is answered
        while may:
            size = min(may, 65536)
            client.put(DATA, number, bytes(size))
            may, sent = may - size, sent + size
        for _ in range(20):
            assert client.call("/x")[0]["status"] == 200
        grants = [p for _, p in client.heard.pop(number, [])]
        if not grants:
            break
        may = sum(struct.unpack(">I", p)[0] for p in grants)
        assert sent < 64 << 20
    worker.go.set()
    client.put(END, number)
    assert client.response(number)["status"] == 200
    assert client.body(number)[0] == str(sent).encode()


def test_an_answer_before_the_body(client):
    number = client.ask("/early", "POST", body=True)
    client.put(DATA, number, b"x" * 1000)
    assert client.response(number)["status"] == 413
    assert client.body(number) == (b"", {})
    client.put(DATA, number, b"late")
    client.put(END, number)
    client.put(RESET, number)
    client.credit(number, 5)
    assert client.call("/x")[0]["status"] == 200


def test_what_is_broken_is_reset(client):
    number = client.ask("/cut")
    assert client.response(number)["status"] == 200
    body, error = client.body(number)
    assert (body, error["code"], error["status"]) == (b"half", "STREAM_ERROR", 502)
    assert client.response(client.ask("/../../etc"))["status"] in (400, 403, 404)
    wrong = {
        "more than the length": ({"length": 3}, [(DATA, b"abcd")]),
        "less than the length": ({"length": 3}, [(DATA, b"ab"), (END, b"")]),
        "behind the end": ({}, [(END, b""), (DATA, b"x")]),
        "twice": ({}, [(END, b""), (END, b"")]),
        "trailers": ({}, [(END, b'{"trailers":{"a b":"c"}}')]),
    }
    for name, (more, messages) in wrong.items():
        number = client.ask("/hold", "POST", body=True, **more)
        for kind, payload in messages:
            client.put(kind, number, payload)
        kind, payload = client.hear(number)
        assert (kind, json.loads(payload)["code"]) == (RESET, "INVALID_REQUEST"), name
    number = client.ask("/hold", "POST", body=True)
    for _ in range(1000): # the worker does not read: at some point there is no credit for it
        client.put(DATA, number, bytes(65536))
    while (heard := client.hear(number))[0] == CREDIT:
        pass
    assert heard[0] == RESET and json.loads(heard[1])["message"] == "More DATA than there was credit for."
    assert client.call("/x")[0]["status"] == 200


@pytest.mark.parametrize(
    "payload, why",
    [(payload, why) for why, payloads in {
        "The payload is no JSON object.": [b"", b"{", b"[]"],
        "`method` is missing or not allowed.": [b"{}", b'{"method":"CONNECT","path":"/"}', b'{"method":"G\\r\\n","path":"/"}'],
        "`path` is missing or malformed.": [
            b'{"method":"GET"}', b'{"method":"GET","path":"x"}', b'{"method":"GET","path":"/ x"}', b'{"method":"GET","path":"/\\r\\nX: y"}'],
        "`headers` is no object of names and strings.": [b'{"method":"GET","path":"/","headers":{"a":["b"]}}', b'{"method":"GET","path":"/","headers":{"a b":"c"}}'],
        "`body` is neither true nor false.": [b'{"method":"POST","path":"/","body":"x"}'],
        "GET and HEAD have no body.": [b'{"method":"GET","path":"/","body":true}', b'{"method":"HEAD","path":"/","body":true}'],
        "`window` is no number of bytes up to 1073741824.": [b'{"method":"GET","path":"/","window":-1}', b'{"method":"GET","path":"/","window":1073741825}'],
        "`length` is no number of bytes.": [b'{"method":"POST","path":"/","body":true,"length":-1}'],
    }.items() for payload in payloads],
)
def test_a_request_that_is_none(cell, client, worker, payload, why):
    client.number += 1
    client.put(REQUEST, client.number, payload)
    kind, text = client.hear(client.number)
    assert (kind, json.loads(text)) == (RESET, {"code": "INVALID_REQUEST", "message": why, "status": 400})
    assert Tunnels(cell).metric('cellgate_relay_mux_requests_total{outcome="refused"}') == 1
    assert not worker.requests and client.call("/x")[0]["status"] == 200


@pytest.mark.parametrize(
    "message, code",
    [(b"", 1002), (b"\1\0\0\0", 1002), (b"\1\0\0\0\0{}", 1002), (b"\3\0\0\0\7x", 1002), (b"\1\0\0\0\1{}", 1002), (b"\6\0\0\0\2\0\0\0\0", 1002),
     (b"\6\0\0\0\2\x40\0\0\0", 1002), (b"\6\0\0\0\2\0\0\0", 1002), (b"\3\0\0\0\2" + b"x" * 65537, 1009), (None, 1003)],
)
def test_who_breaks_the_protocol_is_closed(client, worker, message, code):
    client.call("/x")
    client.ask("/hold", "POST", body=True)
    if message is None:
        client.ws.send(TEXT, b'{"type":"cancel","id":"1"}')
    else:
        client.ws.send(BINARY, message)
    while (said := client.ws.message())[0] != CLOSE:
        pass
    assert struct.unpack(">H", said[1][:2])[0] == code


@pytest.mark.parametrize("message", [b"\0\0\0\0\1", b"\7\0\0\0\1later", b"\7\0\0\0\x09", b"\xff\xff\xff\xff\xff"])
def test_types_of_later_versions_are_ignored(client, message):
    client.call("/x")
    client.ws.send(BINARY, message)
    assert client.call("/x")[0]["status"] == 200


def test_limits_and_refusals(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}, "sb-2": {"worker": worker.url}}, config={"routes": ROUTES, "relay": {"mux_requests": 2}})
    with Client(cell, cell.token("sb-1", need=["exec"])) as client:
        held = [client.ask("/hold", "POST") for _ in range(2)]
        kind, payload = client.hear(client.ask("/x"))
        assert (kind, json.loads(payload)["status"]) == (RESET, 429)
        worker.go.set()
        assert all(client.response(n)["status"] == 200 for n in held)
        client.number += 1
        client.put(REQUEST, client.number, b'{"method":"GET","path":"/w/sb-2/x"}')
        assert client.response(client.number)["status"] == 403


def test_a_cell_worker_answers(cells):
    """The worker of examples/, whose answers nobody wrote for the mux."""
    cell = cells(sandboxes={}, config={"routes": ROUTES})
    address = cell.worker(cell.sandboxd())
    process = cell.processes[-1]
    cell.set_sandboxes(**{"sb-1": on_worker(f"http://{address}")})
    with Client(cell, cell.token("sb-1", need=["exec"])) as client:
        until(lambda: client.call("/healthz")[0]["status"] == 200, 10)
        numbers = [client.ask(f"/bytes?n={n}&chunked={n % 2}", window=65536) for n in (0, 65535, 65536, 1 << 20)]
        events = client.ask("/events?n=5&interval=10ms")
        for number, n in zip(numbers, (0, 65535, 65536, 1 << 20), strict=True):
            assert client.response(number)["status"] == 200
            assert client.body(number) == (bytes(i % 251 for i in range(n)), {})
        assert client.response(events)["status"] == 200 and client.body(events)[0].count(b"data:") == 5
        data = os.urandom(1 << 20)
        upload = client.ask("/upload", "PUT", body=True)
        client.upload(upload, data)
        client.put(END, upload)
        assert client.response(upload)["status"] == 200
        assert hashlib.sha256(data).hexdigest().encode() in client.body(upload)[0]
        command = client.ask("/command", "POST", body=True, headers={"Content-Type": "application/json"})
        client.put(DATA, command, json.dumps({"command": "seq 1 3; exit 7"}).encode())
        client.put(END, command)
        assert client.response(command)["status"] == 200
        said = client.body(command)[0]
        assert b"3" in said and b"7" in said, said
        endless = client.ask("/events?n=1000000&interval=10ms")
        assert client.response(endless)["status"] == 200
        client.put(RESET, endless)
        assert client.call("/healthz")[0]["status"] == 200
        process.kill()
        process.wait()
        assert client.call("/healthz")[0]["status"] in (502, 503)


def test_clients_that_go(cell, worker):
    client = Client(cell, cell.token("sb-1", need=["exec"]))
    number = client.ask("/big", window=1 << 30)
    client.response(number)
    client.ws.http.sock.close()
    assert worker.ended.wait(20) and worker.sent < BIG
    until(lambda: "cellgate_relay_mux_sockets 0" in cell.admin("/metrics", "relay").splitlines(), 10)


# ---- ten thousand, with everything that goes wrong ----

SERVER = """
import http.server, socketserver, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.path.encode() * int(self.path.rpartition("=")[2])
        self.send_response(200)
        if b"chunked" in body:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(body), 4096):
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(body[at:at + 4096]), body[at:at + 4096]))
            self.wfile.write(b"0\\r\\n\\r\\n")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 128
server = Server(("127.0.0.1", int(sys.argv[1])), Answer)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Killed:
    """A server that is not ours, killed and started again on its port."""

    def __init__(self):
        self.port = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(self.port)], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()


class Crowd:
    """Requests in flight, of which each is read at its own pace, or cancelled."""

    def __init__(self, client, seed):
        self.client, self.random = client, random.Random(seed)
        self.flying, self.over, self.outcomes = {}, set(), collections.Counter()

    def ask(self):
        times = self.random.choice([0, 1, 1, 1, 10, 100, 2000])
        path = f"/{self.random.choice(['plain', 'chunked'])}?n={self.client.number + 1}&times={times}"
        window = self.random.choice([1000, 65536])
        number = self.client.ask(path, window=window)
        self.flying[number] = {"expected": path.encode() * times, "got": 0, "owed": 0, "window": window, "status": None, "patience": self.random.choice([0, 0, 5, 50]), "cancel": self.random.random() < 0.1}

    def hear(self):
        opcode, payload = self.client.ws.message()
        assert opcode == BINARY
        kind, number, payload = payload[0], struct.unpack(">I", payload[1:5])[0], payload[5:]
        if number in self.over:
            return  # it was cancelled: what was on its way still comes
        call = self.flying[number]
        if kind == RESPONSE:
            assert call["status"] is None
            call["status"] = json.loads(payload)["status"]
        elif kind == DATA:
            if call["status"] == 200:
                assert call["expected"][call["got"] : call["got"] + len(payload)] == payload, number
                call["got"] += len(payload)
            call["owed"] += len(payload)
        else:
            assert kind in (END, RESET)
            if kind == END and call["status"] == 200:
                assert call["got"] == len(call["expected"]), number
            self.outcomes[call["status"] if kind == END else "reset"] += 1
            del self.flying[number]
            return
        if call["cancel"]:
            self.client.put(RESET, number)
            self.outcomes["cancelled"] += 1
            self.over.add(number)
            del self.flying[number]

    def credit(self):
        all_wait = all(call["owed"] == call["window"] for call in self.flying.values())
        for number, call in self.flying.items():
            call["patience"] -= 1
            if call["owed"] and (call["patience"] < 0 or all_wait):
                self.client.credit(number, call["owed"])
                call["owed"], call["patience"] = 0, self.random.choice([0, 0, 5, 50])


def resident(pid):
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))


COUNT = 10_000 if os.environ.get("CELLGATE_LONG") else 2_000


def test_thousands_of_requests_of_one_socket(cells):
    server = Killed()
    try:
        cell = cells(sandboxes={"sb-1": {"worker": f"http://127.0.0.1:{server.port}"}}, config={"routes": ROUTES})
        with Client(cell, cell.token("sb-1", need=["exec"])) as client:
            crowd, warm = Crowd(client, 26), 0
            while client.number < COUNT or crowd.flying:
                while client.number < COUNT and len(crowd.flying) < 40:
                    crowd.ask()
                    if client.number % 1000 == 500:
                        server.kill()
                    if client.number % 1000 == 520:
                        server.start()
                    if client.number == COUNT // 5:
                        warm = resident(cell.pid("relay"))
                crowd.hear()
                crowd.credit()
            assert sum(crowd.outcomes.values()) == COUNT
            assert crowd.outcomes[200] > COUNT // 2 and crowd.outcomes["cancelled"] > COUNT // 20 and len(crowd.outcomes) > 2, crowd.outcomes
            assert client.call("/plain?times=1")[0]["status"] == 200
            assert SANITIZED or resident(cell.pid("relay")) < warm + 1024
    finally:
        server.kill()
