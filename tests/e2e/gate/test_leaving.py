# SPDX-License-Identifier: MIT
"""A client that leaves is reported: the worker or the destination of its request sees the end of its connection within two seconds,
also while it says nothing, and what the request counted against is free again."""

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from cell import haproxy_version, until
from client import WEBSOCKET, Http1, Http2, head
from origin import Connection, respond
from test_egress import HOST, allow, caller, certificate, config, destinations, dial, metric, rules  # noqa: F401 fixtures
from test_egress_requests import inspected
from test_mux import Client as Mux
from test_mux_v1 import RESET
from test_mux_v1 import Client as MuxV1
from worker import CLOSE

TOLD = 2  # seconds
LIMIT = 5  # requests of a sandbox at a time
ROUTES = [
    {"name": "mux", "path": "/v1/mux", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
    {"name": "web", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
]


class Silent:
    """Answers `/begun` with a head and a first piece, everything else with nothing; knows who is still there."""

    def __init__(self):
        self.here, self.ends, self.lock = 0, [], threading.Lock()

    def count(self, more):
        with self.lock:
            self.here += more
            if more < 0:
                self.ends.append(time.monotonic())

    def __call__(self, connection, request):
        if request.target.endswith("/good"):
            return respond(connection, request)
        self.count(1)
        with contextlib.suppress(OSError):
            if request.target.endswith("/begun"):
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000000\r\n\r\ndata: begun\n\n")
            while connection.read():
                pass
        self.count(-1)
        return True

    def came(self, number=1):
        until(lambda: self.here == number, 10, f"{self.here} of {number} requests arrive")

    def told(self, since):
        until(lambda: self.here == 0, 10, f"{self.here} connections are still there", pause=0.005)
        assert all(end - since < TOLD for end in self.ends), [round(end - since, 2) for end in self.ends]


def reset(sock):
    """The close of it is a reset. TLS is left without its close_notify, as by a process that is killed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


LEAVES = {"fin": lambda sock: sock.close(), "reset": reset}


def leave(client, how):
    LEAVES[how](client.sock)


# ---- the ingress ----


@pytest.fixture(scope="module")
def cell(cells, origins, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=worker -addext subjectAltName=DNS:localhost"
    subprocess.run([*command.split(), "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    plain, secure = origins(), origins(tls=context)
    records = {"sb-1": {"worker": plain.url}, "sb-tls": {"worker": secure.url.replace("127.0.0.1", "localhost")}}
    cell = cells(sandboxes=records, config={"routes": ROUTES}, environment={"CELLGATE_WORKER_CA": str(folder / "cert"), "CELLGATE_SANDBOX_REQUESTS": str(LIMIT)})
    cell.workers = [plain, secure]
    return cell


@pytest.fixture
def silent(cell):
    """What the workers are in this test."""
    silent = Silent()
    for worker in cell.workers:
        worker.answer = worker.upgrade = silent
    return silent


def open_client(cell, kind):
    return Http1(cell.http) if kind == "http" else Http1(cell.https, tls=True) if kind == "https" else Http2(cell.https)


def start(client, target, headers=(("Host", "cell.test"),)):
    """Sends a whole request."""
    if isinstance(client, Http2):
        (_, host), *headers = headers
        client._open([(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", target)], headers, end=True)
    else:
        client.send(head("GET", target, headers))


def begun(client):
    if isinstance(client, Http2):
        assert client._response().status == 200 and client.read()
    else:
        assert client.response_head().status == 200 and client.read()


def reset_stream(client, how):
    client.h2.reset_stream(client.stream, 8)
    client._flush()


WAYS = [("http", "fin"), ("http", "reset"), ("https", "fin"), ("https", "reset"), ("h2", "fin"), ("h2", "reset"), ("h2", "stream")]


@pytest.mark.parametrize("sandbox", ["sb-1", "sb-tls"])
@pytest.mark.parametrize("target", ["silent", "begun"])
@pytest.mark.parametrize(("kind", "how"), WAYS)
def test_a_worker_is_told_that_its_client_left(cell, silent, kind, how, target, sandbox):
    """Five clients are as many as the sandbox may have: what they leave is free for everybody else."""
    if haproxy_version() == (2, 8) and kind != "http":
        pytest.skip("2.8 overlooks a client with TLS")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(open_client(cell, kind)) for _ in range(LIMIT)]
        for client in clients:
            start(client, f"/w/{sandbox}/{target}")
        silent.came(LIMIT)
        if target == "begun":
            for client in clients:
                begun(client)
        with open_client(cell, kind) as other:
            assert other.request("GET", f"/w/{sandbox}/good").status == 429
        since = time.monotonic()
        for client in clients:
            (reset_stream if how == "stream" else leave)(client, how)
        silent.told(since)
        with open_client(cell, kind) as other:
            assert until(lambda: other.request("GET", f"/w/{sandbox}/good").status != 429, TOLD, "its place is taken still")


@pytest.mark.parametrize(("kind", "how"), WAYS)
def test_a_worker_is_told_that_a_client_left_before_its_101(cell, silent, kind, how):
    with open_client(cell, kind) as client:
        if kind == "h2":
            while not client.extended:
                client._pump()
            client._open([(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":authority", "cell.test"), (":path", "/w/sb-1/silent")],
                         [("sec-websocket-version", "13")], end=False)
        else:
            start(client, "/w/sb-1/silent", [("Host", "cell.test"), *WEBSOCKET])
        silent.came()
        since = time.monotonic()
        (reset_stream if how == "stream" else leave)(client, how)
        silent.told(since)


@pytest.mark.parametrize("kind", ["http", "https"])
def test_a_client_that_ends_its_side_has_left(cell, silent, kind):
    """What HTTP/1 says by it is the same, whether somebody still reads or not."""
    if haproxy_version() == (2, 8) and kind != "http":
        pytest.skip("2.8 overlooks a client with TLS")
    with open_client(cell, kind) as client:
        start(client, "/w/sb-1/silent")
        silent.came()
        since = time.monotonic()
        if kind == "https":
            client.sock.settimeout(0.01)
            with contextlib.suppress(OSError):
                client.sock.unwrap()
        else:
            client.sock.shutdown(socket.SHUT_WR)
        silent.told(since)


def test_a_client_of_http2_that_has_said_all_has_not_left(cell, silent):
    """The end of its stream is that of its request."""
    with Http2(cell.https) as client:
        start(client, "/w/sb-1/begun")
        begun(client)
        time.sleep(0.3)
        assert silent.here == 1
    until(lambda: silent.here == 0)


# ---- many requests over one WebSocket ----


@pytest.mark.parametrize("how", ["cancel", "close", "fin", "reset"])
def test_a_worker_is_told_that_a_mux_request_is_over(cell, silent, how):
    with Mux(cell) as client:
        asked = [client.ask("/w/sb-1/silent") for _ in range(LIMIT)]
        silent.came(LIMIT)
        since = time.monotonic()
        if how == "cancel":
            for id in asked:
                client.say(type="cancel", id=id)
        elif how == "close":
            client.ws.send(CLOSE, b"\x03\xe8")
        else:
            LEAVES[how](client.ws.http.sock)
        silent.told(since)


@pytest.mark.parametrize("how", ["RESET", "close", "fin", "reset"])
@pytest.mark.parametrize("target", ["/silent", "/begun"])
def test_a_worker_is_told_that_a_mux_v1_request_is_over(cell, silent, how, target):
    with MuxV1(cell, None) as client:
        asked = [client.ask(target) for _ in range(LIMIT)]
        silent.came(LIMIT)
        since = time.monotonic()
        if how == "RESET":
            for number in asked:
                client.put(RESET, number)
        elif how == "close":
            client.ws.send(CLOSE, b"\x03\xe8")
        else:
            LEAVES[how](client.ws.http.sock)
        silent.told(since)


def haproxy_connections(cell, frontend):
    """How many HAProxy has there at the moment."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(cell.run_dir / "haproxy.sock"))
        sock.sendall(b"show stat\n")
        text = b"".join(iter(lambda: sock.recv(65536), b"")).decode()
    rows = [line.split(",") for line in text.splitlines()]
    return sum(int(row[4]) for row in rows if row[:2] == [frontend, "FRONTEND"])


def test_requests_that_are_cancelled_hold_no_connections(cells, origins):
    """However many: each place that is given back has left nothing in HAProxy."""
    silent = Silent()
    worker = origins(answer=silent)
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": ROUTES})
    with MuxV1(cell, None) as client:
        for _ in range(10):
            asked = [client.ask("/silent") for _ in range(25)]
            silent.came(25)
            for number in asked:
                client.put(RESET, number)
            until(lambda: silent.here == 0, 5, f"{silent.here} connections are still there")
        assert until(lambda: haproxy_connections(cell, "cellgate") <= 1, TOLD), "connections of requests that are over"


# ---- egress ----


@pytest.fixture(params=["plain", "inspected", "inspected https", "inspected h2"])
def program(request, cells, destinations, certificate):  # noqa: F811
    """(silent, a maker of connections in which a request may be sent, what it is sent for)"""
    ca, context = certificate
    silent, secure = Silent(), request.param.endswith(("https", "h2"))

    def serve(sock):
        connection = Connection(sock)
        while (asked := connection.read_request()) is not None and not silent(connection, asked):
            pass

    server = destinations(serve, tls=context if secure else None)
    rule = allow(server.port, inspect=request.param != "plain")
    cell = cells(config=config(ca_file=str(ca)), sandboxes={"sb-1": rules(rule)}, egress=True, environment={"CELLGATE_EGRESS_REQUESTS": str(LIMIT)})
    place = f"{HOST}:{server.port}"

    def make():
        if request.param == "plain":
            return Http1(cell.egress), f"http://{place}", [("Host", place), caller(cell)]
        if secure:
            client = inspected(cell, server.port)
            return (Http2(None, sock=client.sock) if request.param.endswith("h2") else client), "", [("Host", place)]
        return Http1(None, sock=dial(cell, place, caller(cell)).sock), "", [("Host", place)]

    return silent, make


@pytest.mark.parametrize("target", ["silent", "begun"])
@pytest.mark.parametrize("how", ["fin", "reset"])
def test_a_destination_is_told_that_the_program_left(program, how, target):
    silent, make = program
    made = [make() for _ in range(LIMIT)]
    for client, prefix, headers in made:
        start(client, f"{prefix}/{target}", headers=headers)
    silent.came(LIMIT)
    if target == "begun":
        for client, _, _ in made:
            begun(client)
    since = time.monotonic()
    for client, _, _ in made:
        leave(client, how)
    silent.told(since)
    client, prefix, headers = make()
    start(client, f"{prefix}/good", headers=headers)
    answer = client._response() if isinstance(client, Http2) else client.response()
    client.sock.close()
    assert answer.status == 200


@pytest.mark.parametrize("via", ["direct", "relay"])
@pytest.mark.parametrize("how", ["fin", "reset"])
def test_a_destination_is_told_that_a_program_left_before_its_101(cells, destinations, certificate, how, via):  # noqa: F811
    ca, context = certificate
    silent = Silent()

    def serve(sock):
        connection = Connection(sock)
        silent(connection, connection.read_request())

    server = destinations(serve, tls=context)
    cell = cells(config=config(ca_file=str(ca)) | {"relay": {"dial_timeout": "1m"}}, egress=True,
                 sandboxes={"sb-1": rules(allow(server.port, inspect=True, **({"via": "relay"} if via == "relay" else {})))})
    client = inspected(cell, server.port)
    start(client, "/silent", headers=[("Host", f"{HOST}:{server.port}"), *WEBSOCKET])
    silent.came()
    since = time.monotonic()
    leave(client, how)
    silent.told(since)
    until(lambda: metric(cell, "cellgate_relay_egress_connections") == metric(cell, "cellgate_relay_tunnels{") == 0, TOLD, "its place is taken still")


@pytest.mark.parametrize("how", ["fin", "reset", "half"])
def test_a_connect_whose_program_left_is_not_waited_for(cells, how):
    """Nor whose program says that it will say no more, before it may say anything."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):  # nobody accepts: later ones get no answer to their SYN
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        cell = cells(config=config() | {"relay": {"dial_timeout": "1m"}}, sandboxes={"sb-1": rules(allow(port))}, egress=True)
        client = stack.enter_context(Http1(cell.egress))
        client.send(head("CONNECT", f"{HOST}:{port}", [caller(cell)]))
        until(lambda: metric(cell, "cellgate_relay_egress_connections") == 1, 10, "it is not dialled")
        if how == "half":
            client.sock.shutdown(socket.SHUT_WR)
        else:
            leave(client, how)
        until(lambda: metric(cell, "cellgate_relay_egress_connections") == 0, TOLD, "its place is taken still")
