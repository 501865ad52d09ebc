# SPDX-License-Identifier: MIT
"""WebSockets inside of connections that are inspected, whose rule hands them to the relay: `"via": "relay"`."""

import contextlib
import json
import socket
import struct
import subprocess
import time

import pytest
from cell import AT_ONCE, BIN, closed_port, until
from client import Http1, Http2, frame
from origin import accept_of
from test_egress import HOST, caller, certificate, config, destinations, dial, metric, rules  # noqa: F401 fixtures
from test_egress_requests import SECRET, Origin, inspected, plain, refused, site  # noqa: F401 fixtures

BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
MASK = b"\x01\x02\x03\x04"
SIZES = (0, 1, 125, 126, 16384, 65535, 65536, 1 << 20)


def read_frame(connection):
    """(opcode, payload) of a whole frame; of its pieces each."""
    first, second = connection.read_exactly(2)
    size = second & 127
    if size > 125:
        size = int.from_bytes(connection.read_exactly(2 if size == 126 else 8), "big")
    mask = connection.read_exactly(4) if second & 128 else None
    payload = connection.read_exactly(size) if size else b""
    return first & 15, bytes(b ^ mask[i & 3] for i, b in enumerate(payload)) if mask and size < 1 << 17 else payload


def read_message(connection):
    """Control frames in between are not looked at; the relay may cut a long message into pieces."""
    data, size = b"", 0
    while True:
        first, second = connection.read_exactly(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(connection.read_exactly(2 if size == 126 else 8), "big")
        mask = connection.read_exactly(4) if second & 128 else None
        payload = connection.read_exactly(size) if size else b""
        if mask:
            pattern = (mask * (size // 4 + 1))[:size]
            payload = (int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")).to_bytes(size, "big") if size else b""
        if first & 15 >= CLOSE:
            continue
        data += payload
        if first & 128:
            return data


def closed(connection):
    """The Close that comes: its code and its words."""
    while True:
        opcode, payload = read_frame(connection)
        if opcode == CLOSE:
            return struct.unpack(">H", payload[:2])[0], payload[2:]


class Sockets(Origin):
    """`serve(connection)` talks behind the 101, which `glued` follows at once."""

    def __init__(self, serve=None, glued=b""):
        super().__init__(self.switch)
        self.serve, self.glued, self.opened = serve or self.echo, glued, 0

    def switch(self, connection, request):
        self.opened += 1
        accept = accept_of(request.get("sec-websocket-key").encode())
        connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nAlt-Svc: h3\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n" + self.glued)
        self.serve(connection)
        connection.sock.close()

    @staticmethod
    def echo(connection):
        with contextlib.suppress(ConnectionError):
            while True:
                connection.send(frame(BINARY, read_message(connection)))


@pytest.fixture
def sockets(cells, destinations, certificate):  # noqa: F811
    """A cell whose one sandbox may open WebSockets to `origin` through the relay."""
    ca, context = certificate

    def make(serve=None, glued=b"", tls=True, relay=None, secrets=None, policy=None, environment=None, **rule):
        origin = Sockets(serve, glued)
        server = destinations(origin, tls=context if tls else None)
        egress = {"ca_file": str(ca)} | ({"secrets": {"token": "token"}} if secrets else {})
        record = rules({"host": HOST, "ports": [server.port], "private": True, "inspect": True, "via": "relay"} | rule, **(policy or {}))
        cell = cells(config=config(**egress) | ({"relay": relay} if relay else {}), sandboxes={"sb-1": record}, egress=True, files={"token": secrets} if secrets else None, environment=environment)
        return cell, server.port, origin

    return make


def opened(cell, port, tls=True, headers=(), target="/socket?q=1"):
    """A client in a WebSocket, and the answer that opened it."""
    client = inspected(cell, port) if tls else Http1(None, sock=dial(cell, f"{HOST}:{port}", caller(cell)).sock)
    got = client.upgrade(target, headers, host=f"{HOST}:{port}")
    return client, got


def tunnels(cell):
    return json.loads(cell.admin("/tunnels", "relay"))


@pytest.mark.parametrize("tls", [True, False])
def test_frames_pass_both_ways(sockets, tls):
    """Of each size; what is glued to the 101 arrives. The relay knows the tunnel as any other."""
    cell, port, origin = sockets(glued=frame(BINARY, b"glued"), tls=tls)
    client, got = opened(cell, port, tls, [("X-Kept", "1"), ("Proxy-Authorization", "x"), ("x-cell-org", "forged"), ("X-Cell-Handover", "forged")])
    assert got.status == 101 and got.get("alt-svc") is None and read_message(client) == b"glued"
    for size in SIZES:
        client.send(frame(BINARY, b"m" * size, mask=MASK))
        assert read_message(client) == b"m" * size
    seen = origin.seen[-1]
    assert (seen.line, seen.get("host"), seen.get("x-kept"), seen.get("upgrade")) == ("GET /socket?q=1 HTTP/1.1", f"{HOST}:{port}", "1", "websocket")
    assert not {"proxy-authorization", "x-cell-org", "x-cell-handover"} & {n.lower() for n, _ in seen.headers}
    assert metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 1
    cell.says("agent", "msg=egress verdict=relay")
    client.send(frame(CLOSE, struct.pack(">H", 1000), mask=MASK))
    assert closed(client)[0] == 1000
    until(lambda: metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 0)


def test_over_http_2_inside(sockets):
    cell, port, origin = sockets()
    client = Http2(None, sock=inspected(cell, port).sock)
    assert client.upgrade("/socket", host=f"{HOST}:{port}").status == 200
    client.send(frame(BINARY, b"hello", mask=MASK))
    assert client.read_exactly(7) == frame(BINARY, b"hello")


def test_requests_beside_them_go_straight(sockets):
    cell, port, origin = sockets()
    origin.answer = None
    client = inspected(cell, port)
    assert client.request("POST", "/x", body=b"body", host=f"{HOST}:{port}").status == 200
    assert origin.seen[-1].body == b"body" and metric(cell, 'cellgate_relay_tunnels_opened_total{route="egress"}') == 0


def test_an_upgrade_by_a_plain_request(sockets):
    """Which its rule hands to the relay, too."""
    cell, port, origin = sockets(tls=False)
    with Http1(cell.egress) as client:
        assert client.upgrade(f"http://{HOST}:{port}/x", [caller(cell)], host=f"{HOST}:{port}").status == 101
        client.send(frame(BINARY, b"word", mask=MASK))
        assert read_message(client) == b"word" and metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 1
    assert not {"proxy-authorization"} & {n.lower() for n, _ in origin.seen[-1].headers}


# ---- what the relay adds ----


def test_a_message_over_the_bound_is_refused(sockets):
    cell, port, origin = sockets(relay={"max_message": "64KiB"})
    client, _ = opened(cell, port)
    client.send(frame(BINARY, b"x" * 65536, mask=MASK))
    assert len(read_message(client)) == 65536
    client.send(frame(BINARY, b"x" * 65537, mask=MASK))
    assert closed(client) == (1009, b"message too big")


@pytest.mark.parametrize("bad, code", [(frame(BINARY, b"x"), 1002), (frame(3, b"", mask=MASK), 1002), (frame(BINARY, b"x", mask=MASK, bits=0x40), 1002)])
def test_frames_that_are_none_end_it(sockets, bad, code):
    """Without a mask, of no known kind, with a bit of an extension that nobody has agreed on."""
    cell, port, origin = sockets()
    client, _ = opened(cell, port)
    client.send(bad)
    assert closed(client)[0] == code


def test_a_destination_that_breaks_the_protocol(sockets):
    cell, port, origin = sockets(serve=lambda connection: (connection.send(frame(BINARY, b"masked", mask=MASK)), connection.read()))
    client, _ = opened(cell, port)
    assert closed(client) == (1011, b"worker protocol error")


def test_the_relay_keeps_both_sides_alive(sockets):
    """A destination that answers no ping is given up, and the client told."""
    heard = []
    cell, port, origin = sockets(serve=lambda connection: [heard.append(read_frame(connection)[0]) for _ in range(1)] and connection.sock.recv(0) or time.sleep(10), relay={"keepalive": "100ms", "dead_after": "2s"})
    client, _ = opened(cell, port)
    opcode, payload = read_frame(client)
    assert opcode == PING
    client.send(frame(PONG, payload, mask=MASK))
    until(lambda: heard == [PING])
    while (got := read_frame(client))[0] != CLOSE:
        client.send(frame(PONG, got[1], mask=MASK))
    assert got[1][:2] == struct.pack(">H", 1012)


# ---- how it ends ----


@pytest.mark.parametrize("code, words", [(1000, b"done"), (1001, b"going"), (1011, b"oops"), (1012, b""), (1013, b"later"), (4001, b"taken"), (4999, b"own")])
def test_the_close_of_the_destination_is_the_clients(sockets, code, words):
    """Word by word, and the answer is the client's own: no other destination is looked for."""
    def serve(connection):
        connection.send(frame(CLOSE, struct.pack(">H", code) + words))
        answers.append(closed(connection))

    answers = []
    cell, port, origin = sockets(serve=serve)
    client, _ = opened(cell, port)
    assert closed(client) == (code, words)
    client.send(frame(CLOSE, struct.pack(">H", 3000) + b"mine", mask=MASK))
    until(lambda: answers == [(3000, b"mine")])
    until(lambda: metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 0)
    assert origin.opened == 1


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_destination_that_is_lost(sockets, end):
    """What it said before arrives. It is not dialled again."""
    def serve(connection):
        connection.send(frame(BINARY, b"last words"))
        if end == "reset":
            connection.read()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    cell, port, origin = sockets(serve=serve, tls=end == "close")
    client, _ = opened(cell, port, tls=end == "close")
    assert read_message(client) == b"last words"
    client.send(frame(BINARY, b"word", mask=MASK))
    assert closed(client)[0] == 1012
    assert origin.opened == 1


def test_a_client_that_leaves_leaves_the_destination(sockets):
    ends = []
    cell, port, origin = sockets(serve=lambda connection: ends.append(closed(connection)[0]))
    client, _ = opened(cell, port)
    client.sock.close()
    assert until(lambda: ends) == [1001]
    until(lambda: metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 0)


def test_a_change_of_its_rule_ends_it(sockets):
    """With a Close; a change of another rule ends nothing."""
    cell, port, origin = sockets()
    client, _ = opened(cell, port)
    record = json.loads(json.dumps(cell.sandboxes["sb-1"]))
    record["egress"]["rules"].append({"host": "else.example.org", "ports": [443]})
    cell.set_sandboxes(**{"sb-1": record})
    until(lambda: (cell.run_dir / "agent.log").read_text().count("directory loaded") == 2)
    client.send(frame(BINARY, b"still", mask=MASK))
    assert read_message(client) == b"still"
    record["egress"]["rules"][0]["paths"] = ["/other"]
    began = time.monotonic()
    cell.set_sandboxes(**{"sb-1": record})
    assert closed(client) == (1008, b"not granted")
    with contextlib.suppress(OSError):
        assert client.read() == b""
    assert time.monotonic() - began < AT_ONCE
    until(lambda: metric(cell, 'cellgate_relay_tunnels{route="egress"}') == 0)
    assert refused(plain(cell, f"http://{HOST}:{port}/socket"))[:2] == (403, "egress_denied")


def test_a_sandbox_that_ends_ends_it(sockets):
    cell, port, origin = sockets()
    client, _ = opened(cell, port)
    cell.set_sandboxes(**{"sb-1": cell.sandboxes["sb-1"] | {"state": "stopped"}})
    assert closed(client)[0] in (1000, 1008)


def test_the_agents_restart_ends_nothing(sockets):
    cell, port, origin = sockets()
    client, _ = opened(cell, port)
    cell.kill("agent")
    until(lambda: dial(cell, f"{HOST}:{port}", caller(cell)).status == 200)
    client.send(frame(BINARY, b"still", mask=MASK))
    assert read_message(client) == b"still"


# ---- what is refused ----


def test_what_the_rule_refuses(sockets):
    cell, port, origin = sockets(paths=["/good"])
    client, got = opened(cell, port, target="/bad")
    assert refused(got)[:2] == (403, "egress_denied")
    client, got = opened(cell, port, target="/good")
    assert got.status == 101
    client, got = opened(cell, port, target="/good", headers=[("Sec-WebSocket-Version", "12")])
    assert got.status in (400, 426) and origin.opened == 1


def test_a_refusal_of_the_destination_is_the_clients(sockets):
    cell, port, origin = sockets()
    for status, seen in ((b"401 Unauthorized", 401), (b"404 Not Found", 404), (b"302 Found", 302), (b"407 Proxy Authentication Required", 502), (b"200 OK", 200)):
        origin.answer = lambda connection, request, status=status: connection.send(b"HTTP/1.1 " + status + b"\r\nX-A: b\r\nContent-Length: 5\r\n\r\nwords")
        _, got = opened(cell, port)
        assert got.status == seen and (seen == 502 or (got.body, got.get("x-a")) == (b"words", "b"))


def test_a_101_that_answers_nothing_opens_no_tunnel(sockets):
    cell, port, origin = sockets()
    origin.answer = lambda connection, request: connection.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\nsecret")
    _, got = opened(cell, port)
    assert refused(got)[:2] == (502, "destination_unreachable") and b"secret" not in got.body


@pytest.mark.parametrize("tls", [True, False])
def test_a_destination_that_is_dead(sockets, destinations, tls):  # noqa: F811
    """Nothing listens: one attempt."""
    closed = closed_port()
    cell, port, origin = sockets(tls=tls, ports=[closed])
    began = time.monotonic()
    _, got = opened(cell, closed, tls)
    assert refused(got)[:2] == (502, "destination_unreachable") and time.monotonic() - began < AT_ONCE
    assert metric(cell, "cellgate_relay_dials_failed_total") == 1


def test_a_destination_that_is_slow(sockets):
    cell, port, origin = sockets(relay={"dial_timeout": "500ms"})
    origin.answer = lambda connection, request: connection.read()
    _, got = opened(cell, port)
    assert refused(got)[:2] == (504, "destination_timeout")


def test_a_certificate_for_another_name(sockets, cells, destinations, certificate):  # noqa: F811
    """Of somebody who is trusted. The log says why."""
    ca, context = certificate
    origin = Sockets()
    server = destinations(origin, tls=context)
    record = rules({"host": "*.example.org", "ports": [server.port], "private": True, "inspect": True, "via": "relay"})
    cell = cells(config=config(hosts={"other.example.org": "127.0.0.1"}, ca_file=str(ca)), sandboxes={"sb-1": record}, egress=True)
    client = inspected(cell, server.port, name="other.example.org", to="other.example.org")
    assert refused(client.upgrade("/", host=f"other.example.org:{server.port}"))[:2] == (502, "destination_unreachable")
    assert origin.seen == []
    line = until(lambda: next((x for x in cell.access_log().splitlines() if x.startswith("destination")), None), 10, "no line")
    assert "host=other.example.org connect_error=S" in line and "certificate" in line


def test_without_the_listener_for_destinations(sockets):
    cell, port, origin = sockets()
    (cell.run_dir / "egress-out.sock").unlink()
    _, got = opened(cell, port)
    assert refused(got)[:2] == (502, "destination_unreachable") and origin.seen == []


# ---- credentials ----


def test_a_credential_goes_to_the_destination_alone(sockets):
    cell, port, origin = sockets(secrets=SECRET.encode() + b"\n", set={"Authorization": {"secret": "token"}, "X-Api-Key": {"secret": "token"}})
    client, got = opened(cell, port, headers=[("authorization", "mine"), ("X_API_Key", "mine")])
    seen = [(n.lower().replace("_", "-"), v) for n, v in origin.seen[-1].headers]
    assert got.status == 101 and [v for n, v in seen if n == "authorization"] == [SECRET] and [v for n, v in seen if n == "x-api-key"] == [SECRET]
    said = str(tunnels(cell)) + cell.admin("/metrics") + cell.admin("/metrics", "relay") + "".join(p.read_text(errors="replace") for p in cell.run_dir.glob("*.log"))
    assert "never-has-this" not in said + str(got.headers)


def test_a_credential_goes_over_tls_alone(sockets):
    cell, port, origin = sockets(tls=False, relay={"dial_timeout": "500ms"}, secrets=SECRET.encode(), set={"Authorization": {"secret": "token"}})
    _, got = opened(cell, port, tls=False)
    assert refused(got)[:2] == (403, "egress_denied")
    _, got = opened(cell, port)  # TLS towards a destination that speaks none
    assert refused(got)[:2] == (504, "destination_timeout") and origin.seen == []


# ---- how many ----


def test_how_many_a_sandbox_may_have(sockets):
    """As many again as it may have connections: its CONNECTs are counted apart."""
    cell, port, origin = sockets(policy={"max_connections": 2})
    held = [opened(cell, port) for _ in range(2)]
    assert [got.status for _, got in held] == [101, 101]
    assert dial(cell, f"{HOST}:{port}", caller(cell)).status == 429
    held[0][0].sock.close()
    until(lambda: [metric(cell, name) for name in ('cellgate_relay_tunnels{route="egress"}', "cellgate_relay_egress_connections")] == [1, 1])
    client, got = opened(cell, port)
    assert got.status == 101


def test_too_many_for_the_relay(sockets):
    cell, port, origin = sockets(relay={"max_egress": 3})
    held, got = opened(cell, port)
    assert got.status == 101
    _, got = opened(cell, port)
    assert (got.status, json.loads(got.body)["error"]) == (503, "too_many_tunnels")


def test_a_rule_that_says_so_and_lets_none_pass(cells):
    """Is a mistake, told at load."""
    cell = cells(config=config(), sandboxes={}, egress=True)
    written = json.loads(cell.config_file.read_text())
    for rule, said in (({"via": "relay", "websocket": False}, "none may pass"), ({"via": "nobody"}, "relay")):
        file = cell.config_file.with_name("other.json")
        rule = {"host": HOST, "ports": [443], "inspect": True} | rule
        file.write_text(json.dumps(written | {"egress": written["egress"] | {"default": {"rules": [rule]}}}))
        done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", file], capture_output=True, text=True)
        assert done.returncode == 1 and said in done.stderr, done.stderr
