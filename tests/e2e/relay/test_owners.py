# SPDX-License-Identifier: MIT
"""Whoever holds something in the relay has an owner who answers for it: tunnels, mux sockets, egress connections. One who takes all that there
is takes it from nobody else. The test is HAProxy, and the sandboxes."""

import contextlib
import hashlib
import json
import multiprocessing
import socket
import struct
import threading
import time

import pytest
from cell import AT_ONCE, until
from direct import PING, PONG, TEXT, Direct, frame, handover
from test_relay_hoard import WINDOW, fill, numbered

UNLIMITED = {"max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0, "max_tunnels_per_token": 0, "keepalive": "60s", "dead_after": "60s", "max_tunnels": 4000}
BODIES = {"/small": b'{"a":1}', "/some": b'"' + b"s" * 20_000 + b'"', "/page": b"<p>" + b"p" * 100_000}
FORK = multiprocessing.get_context("fork")  # what is measured does not wait for the interpreter of the test


class Gate:
    """HAProxy's listener for requests out of a mux: answers them itself."""

    def __init__(self, path, handed, bodies):
        self.bodies, self.handed = BODIES | bodies, handed
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1024)
        self.process = FORK.Process(target=self.run, daemon=True)
        self.process.start()

    def run(self):
        while True:
            sock, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as lines:
            (length,) = struct.unpack(">H", lines.read(16)[14:])  # a PROXY header
            lines.read(length)
            _, target, _ = lines.readline().decode().split()
            fields = dict(line.decode().rstrip("\r\n").lower().split(": ", 1) for line in iter(lines.readline, b"\r\n"))
            body = lines.read(int(fields.get("content-length", 0)))
            if self.handed and "authorization" in fields:
                sock.sendall(f"HTTP/1.1 103 Early Hints\r\nX-Cell-Handover: {handover(**self.handed)}\r\n\r\n".encode())
            kind = b"text/event-stream" if target.startswith("/events") else b"application/json"
            answer = json.dumps(hashlib.sha256(body).hexdigest()).encode() if target == "/digest" else self.bodies[target]
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)

    def close(self):
        self.listener.close()
        self.process.kill()
        self.process.join()


@contextlib.contextmanager
def relay(folder, handed=None, bodies=None, **settings):
    gate = Gate(folder / "mux.sock", handed, bodies or {})
    try:
        with Direct(folder, relay=UNLIMITED | {"mux": f"unix@{folder}/mux.sock"} | settings, agent=False) as direct:
            direct.held = lambda: direct.metric("cellgate_relay_held_bytes")
            yield direct
    finally:
        gate.close()


def mux(direct, source="192.0.2.1", org=None, **handed):
    """A socket in the form of sandbox-sdk; with an organisation: its token was shown with the upgrade."""
    shown = {"org": org, "needs": 2, "token": "t-" + org} if org else {}
    client = direct.ask(path="/v1/mux", fields=["X-Forwarded-For: " + source], mux="sandbox-sdk", sandbox=None, session=None, **shown | handed)
    assert "101" in client.head()[0]
    client.number = 0
    return client


def call(client, path="/small", **more):
    """The messages of one request, and the seconds that it took."""
    client.number += 1
    began, said = time.monotonic(), []
    client.say(json.dumps({"type": "request", "id": str(client.number), "method": "POST" if more else "GET", "path": path} | more).encode(), TEXT)
    while not said or not (said[-1].get("done") or said[-1]["type"] == "error"):
        opcode, payload, fin = client.hear()
        if opcode == PING:
            client.say(payload, PONG)
            continue
        assert opcode == TEXT and fin, (opcode, payload[:100])
        said.append(json.loads(payload))
    return said, time.monotonic() - began


def calls(client, count=30, path="/some"):
    """How long the slowest took; all are answered."""
    slowest = 0
    for _ in range(count):
        said, seconds = call(client, path)
        assert said[-1]["status"] == 200, said
        slowest = max(slowest, seconds)
    return slowest


def begun(size):
    """A message that does not end."""
    return frame(TEXT, b'{"type":"request","body":"' + b"x" * size, fin=False, mask=b"wxyz")


class Hoard:
    """Sockets that are written to as long as the relay takes it, and not read."""

    def __init__(self, pairs):
        self.left = {client: memoryview(data) for client, data in pairs}
        for client in self.left:
            client.sock.setblocking(False)

    def write(self):
        moved = False
        for client, data in list(self.left.items()):
            try:
                sent = client.sock.send(data)
                self.left[client] = data[sent:]
                moved = moved or sent > 0
            except BlockingIOError:
                pass
            except OSError:
                del self.left[client]
        return moved

    def run(self, seconds=5):
        end, quiet = time.monotonic() + seconds, time.monotonic() + 0.3
        while time.monotonic() < min(end, quiet):
            if self.write():
                quiet = time.monotonic() + 0.3
            time.sleep(0.005)
        return self


# ---- memory ----


@pytest.mark.parametrize("addresses", [1, 229])
def test_clients_without_a_token_take_nothing_from_others(tmp_path, addresses):
    """229 sockets with messages that do not end, of one client or of as many."""
    with relay(tmp_path, memory="8MiB") as direct:
        good = mux(direct, "198.51.100.1", org="acme")
        stranger = mux(direct, "203.0.113.9")
        bad = [mux(direct, f"192.0.2.{1 + i % addresses}") for i in range(229)]
        Hoard((client, begun(120_000)) for client in bad).run()
        until(lambda: direct.held() > 500_000, 10, "nothing is held")
        assert direct.held() <= 2.2 * (1 << 20) + 229 * (32 << 10)
        assert calls(good) < AT_ONCE
        assert calls(mux(direct, "198.51.100.2", org="acme"), path="/page") < AT_ONCE
        if addresses == 1:
            assert calls(stranger) < AT_ONCE  # half of their slice is for others
            assert calls(mux(direct, "203.0.113.10")) < AT_ONCE


def test_an_organisations_tunnels_close_nobodys_mux_sockets(tmp_path):
    with relay(tmp_path, memory="2MiB") as direct:
        worker = direct.worker()
        good = mux(direct, org="acme")
        bad = [numbered(direct, worker, WINDOW, sandbox=f"bad-{i % 8}", org="hoard") for i in range(80)]
        for client, _ in bad:
            fill(client)
        until(lambda: direct.held() > (2 << 20) * 3 // 4, 10, "memory is not full")
        assert calls(good) < AT_ONCE
        assert calls(mux(direct, org="acme"), path="/page") < AT_ONCE
        assert calls(mux(direct, "203.0.113.9")) < AT_ONCE
        assert good.silent(0.05)


def pouring(direct, at, **handed):
    """A connection of a program to the outside: CONNECT, as HAProxy hands it on."""
    client = direct.connect()
    handed = {"route": None, "sandbox": "sb-1", "egress": f"origin.example.org:{at}", "addr": "127.0.0.1", "addr_port": at} | handed
    client.send(f"CONNECT origin.example.org:{at} HTTP/1.1\r\nHost: origin.example.org:{at}\r\nX-Cell-Handover: {handover(**handed)}\r\n\r\n".encode())
    return client


class Outside:
    """Destinations: one that pours for as long as it is taken, one that answers with what it hears."""

    def __init__(self):
        self.ports = {}
        for name, serve in (("pours", self.pour), ("echoes", self.echo)):
            listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
            self.ports[name] = listener.getsockname()[1]
            threading.Thread(target=self.run, args=(listener, serve), daemon=True).start()

    @staticmethod
    def run(listener, serve):
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    @staticmethod
    def pour(sock):
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(b"p" * 65536)

    @staticmethod
    def echo(sock):
        with contextlib.suppress(OSError):
            while data := sock.recv(65536):
                sock.sendall(data)


def echoed(client, count=20, size=50_000):
    """How long the slowest of so many echoes took."""
    slowest = 0
    assert b"200" in client.head()[0].encode()
    for _ in range(count):
        began = time.monotonic()
        client.send(b"e" * size)
        assert client.take(size) == b"e" * size
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_egress_connections_hold_no_more_than_memory_and_leave_others_theirs(tmp_path):
    """260 of one organisation, whose destinations pour for who does not read."""
    memory, outside = 4 << 20, Outside()
    with relay(tmp_path, memory=f"{memory >> 10}KiB") as direct:
        good = mux(direct, org="acme")
        other = pouring(direct, outside.ports["echoes"], sandbox="sb-good", org="acme")
        bad = [pouring(direct, outside.ports["pours"], sandbox=f"bad-{i % 8}", org="hoard") for i in range(260)]
        most, end = 0, time.monotonic() + 2
        while time.monotonic() < end:
            most = max(most, direct.held())
        assert memory // 4 < most <= memory, most
        assert calls(good) < AT_ONCE
        assert echoed(other) < AT_ONCE
        assert calls(mux(direct, org="acme"), path="/page") < AT_ONCE
        slow = bad[0]  # was only slow: what it has not read yet comes
        slow.sock.settimeout(10)
        assert b"200" in slow.head()[0].encode() and len(slow.take(1 << 20)) == 1 << 20


HANDED = {"route": "web", "sandbox": "sb-1", "org": "acme", "needs": 2, "epoch": 1}


def test_what_everybody_may_do_is_nobodys(tmp_path):
    """A request that is admitted without a token is not its organisation's: others could fill that."""
    with relay(tmp_path, handed=HANDED, memory="8MiB", max_tunnels_per_org=4) as direct:
        for i in range(8):
            said, _ = call(mux(direct, f"192.0.2.{i}"), headers={"Authorization": "Bearer x"})
            assert said[-1]["status"] == 200
        assert direct.metric("cellgate_relay_limited_total") == 0 and calls(mux(direct, org="acme")) < AT_ONCE


def test_a_socket_is_whose_its_first_admitted_request_is(tmp_path):
    """Of a client that shows its token with each request, and not with the upgrade."""
    with relay(tmp_path, handed=HANDED | {"token": "t-acme"}, memory="8MiB", max_tunnels_per_org=4) as direct:
        first = mux(direct, "192.0.2.1")
        said, _ = call(first, headers={"Authorization": "Bearer x"})
        assert said[-1]["status"] == 200
        bad = [mux(direct, "192.0.2.1") for _ in range(60)]
        Hoard((client, begun(120_000)) for client in bad).run()
        assert call(first, "/digest", body="u" * 500_000)[0][-1]["status"] == 200  # more than is left for its address
        others = [mux(direct, org="acme") for _ in range(3)]
        (many,), _ = call(first)
        assert (many["code"], many["status"]) == ("TOO_MANY_REQUESTS", 429)
        assert len(others) == 3 and direct.metric('cellgate_relay_limited_total{limit="org"}') == 1


# ---- JSON of a peer's size ----


def call_all_the_while(client, over, result):
    try:
        slowest = 0
        while not over.is_set():
            slowest = max(slowest, calls(client, 1))
        result.put(slowest)
    except BaseException as e:
        result.put(repr(e))


@contextlib.contextmanager
def somebody_calls(direct):
    """Another one calls all the while, and waits for none of it longer than usual."""
    client, over, result = mux(direct, "198.51.100.7", org="good"), FORK.Event(), FORK.Queue()
    process = FORK.Process(target=call_all_the_while, args=(client, over, result), daemon=True)
    process.start()
    try:
        yield
    finally:
        over.set()
        slowest = result.get(timeout=30)
        process.join()
    assert isinstance(slowest, float) and slowest < AT_ONCE, slowest


def keys(size):
    return b",".join(b'"k%x":0' % i for i in range(size // 12))


MESSAGES = {  # what is sent, and what is said to it
    "members": (lambda size: b'{"type":"request","id":"x",' + keys(size) + b"}", "INVALID_REQUEST"),
    "members, cut": (lambda size: b'{"type":"request","id":"x",' + keys(size), "INVALID_REQUEST"),
    "headers": (lambda size: b'{"type":"request","id":"x","headers":{' + keys(size) + b"}}", "INVALID_REQUEST"),
    "path": (lambda size: b'{"type":"request","id":"x","path":"/' + b"p" * size + b'"}', "INVALID_REQUEST"),
    "space": (lambda size: b" " * size + b"{}", "INVALID_REQUEST"),
    "body, cut": (lambda size: b'{"type":"request","id":"x","method":"POST","path":"/small","body":{' + keys(size) + b"}", "PARSE_ERROR"),
    "no JSON": (lambda size: b"\x00" * size, "PARSE_ERROR"),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_any_size_costs_others_nothing(tmp_path, message):
    make, code = MESSAGES[message]
    with relay(tmp_path, threads=1, max_message="32MiB") as direct, somebody_calls(direct):
        clients = [mux(direct, f"192.0.2.{i}", org="bad") for i in range(3)]
        data = frame(TEXT, make(12 << 20), mask=b"wxyz")
        most = 0
        sending = [threading.Thread(target=client.sock.sendall, args=(data,)) for client in clients]
        for client, thread in zip(clients, sending):
            client.sock.settimeout(60)
            thread.start()
        while any(thread.is_alive() for thread in sending):
            most = max(most, direct.held())
        assert [json.loads(client.message()[1])["code"] for client in clients] == [code] * 3
        assert most < 2 << 20 or message == "body, cut"


def test_bodies_of_many_mebibytes_go_both_ways(tmp_path):
    """A file in JSON, as sandbox-sdk's form carries it; and of millions of keys."""
    large, bodies = {"a": "u" * (16 << 20)}, {"/keys": b"{" + keys(18 << 20) + b"}", "/cut": b"{" + keys(6 << 20)}
    with relay(tmp_path, bodies=bodies, threads=1, max_message="32MiB") as direct, somebody_calls(direct):
        client = mux(direct, org="acme")
        client.sock.settimeout(60)
        said, _ = call(client, "/digest", body=large)
        assert said[-1]["status"] == 200 and said[-1]["body"] == hashlib.sha256(json.dumps(large).encode()).hexdigest()
        said, _ = call(client, "/keys")
        assert said[-1]["status"] == 200 and said[-1]["body"]["k1"] == 0 and len(said[-1]["body"]) == (18 << 20) // 12
        said, _ = call(client, "/cut")
        assert said[-1]["status"] == 200 and "body" not in said[-1]
        until(lambda: direct.held() < 1 << 20, 10, "something is held for nobody")


def test_events_of_control_bytes_are_written_at_once_up_to_a_bound(tmp_path):
    event = b"data: " + b"\x01" * (1_000_000) + b"\n\n"
    bodies = {"/events": event * 3, "/events/large": b"data: " + b"\x01" * (2 << 20) + b"\n\n"}
    with relay(tmp_path, bodies=bodies, threads=1) as direct, somebody_calls(direct):
        client = mux(direct, org="acme")
        client.sock.settimeout(60)
        said, _ = call(client, "/events")
        assert [m.get("data") for m in said] == ["\x01" * 1_000_000] * 3 + [None]
        said, _ = call(client, "/events/large")
        assert (said[-1]["code"], said[-1]["status"]) == ("STREAM_ERROR", 500)
