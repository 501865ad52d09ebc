# SPDX-License-Identifier: MIT
"""What lets nobody in any more ends the requests of a mux that it let in, and only those: in both forms, whatever they were doing."""

import contextlib
import itertools
import json
import socket
import threading
import time

import pytest
import test_mux
import test_mux_v1
from cell import AT_ONCE, Cell, until
from origin import Origin
from test_mux_v1 import CREDIT, DATA, END, REQUEST, RESET, RESPONSE
from tunnels import QUICK, Tunnels

ROUTES = [
    {"name": "mux", "path": "/v1/mux", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
    {"name": "web", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "exec"},
    {"name": "api", "path": "/api/sandboxes/{sandbox}/{rest...}", "need": "none"},
    {"name": "open", "path": "/open/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
]
TOKENS = [{"kind": "jwt", "alg": "HS256", "leeway": "0s", "secret_file": "k1.secret"}]
FORGED = b"HTTP/1.1 103 Early Hints\r\nX-Cell-Handover: route=web;sandbox=sb-2;exp=9999999999\r\n\r\n"


def with_token(token):
    return {"headers": {"Authorization": "Bearer " + token}} if token else {}


class Sdk(test_mux.Client):
    """In the form of sandbox-sdk. The socket has no token, each message brings its own."""

    def begin(self, path, token, route="w"):
        return self.ask(f"/{route}/sb-1{path}", **with_token(token))

    def mine(self, id):
        while True:
            for message in self.kept:
                if message.get("id") == id:
                    self.kept.remove(message)
                    return message
            self.kept.append(self.hear())

    def goes_on(self, id):
        assert self.mine(id)["type"] == "stream"

    def denied(self, id):
        message = self.mine(id)
        while message["type"] == "stream":
            message = self.mine(id)
        assert message["type"] == "error", message
        return message["code"], message["status"], message["message"]

    def status(self, token, path="/x"):
        return self.answers(self.begin(path, token))[0]["status"]


class V1(test_mux_v1.Client):
    """In cellgate.mux.v1, alike."""

    def __init__(self, cell):
        super().__init__(cell, None)

    def begin(self, path, token, route="w"):
        self.number += 1
        self.put(REQUEST, self.number, json.dumps({"method": "GET", "path": f"/{route}/sb-1{path}", **with_token(token)}).encode())
        return self.number

    def goes_on(self, number):
        kind, payload = self.hear(number)
        assert kind in (RESPONSE, DATA), (kind, payload)
        if kind == DATA:
            self.credit(number, len(payload))

    def denied(self, number):
        kind, payload = self.hear(number)
        while kind in (RESPONSE, DATA, CREDIT):
            kind, payload = self.hear(number)
        assert kind == RESET, (kind, payload)
        error = json.loads(payload)
        return error["code"], error["status"], error["message"]

    def status(self, token, path="/x"):
        number = self.begin(path, token)
        status = self.response(number)["status"]
        self.body(number)
        return status


class Worker(Origin):
    """Counts what was asked of it and what ended before its time."""

    def __init__(self):
        self.begun, self.cut = [], []
        self.stopped = threading.Event()
        super().__init__(answer=self.serve)

    def serve(self, connection, request):
        kind, _, name = request.target.strip("/").partition("/")
        self.begun.append(name)
        if kind == "stream":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.events(connection)
        elif kind in ("silent", "forged"):
            with contextlib.suppress(OSError):
                connection.send(FORGED if kind == "forged" else b"")
                connection.sock.settimeout(30)
                assert connection.sock.recv(1) == b""
        elif kind == "upload":
            with contextlib.suppress(OSError, EOFError, ValueError, AssertionError):
                connection.read_body(request)
        else:
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            return False
        self.cut.append(name)
        return True

    def events(self, connection):
        with contextlib.suppress(OSError):
            for number in itertools.count():
                piece = b"data: %d\n\n" % number
                connection.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
                if self.stopped.wait(0.02):
                    return


REVOKED = ("DENIED", 401)


class Watched:
    """A cell with a worker, a client of one form, and the ways to take away what let its requests in."""

    def __init__(self, folder, form):
        self.form, self.worker = form, Worker()
        self.cell = Cell(folder, config={"routes": ROUTES, "relay": QUICK, "tokens": TOKENS}).start()
        self.tunnels = Tunnels(self.cell)
        try:
            self.tunnels.place("sb-1", self.worker)
        except BaseException:
            self.close()
            raise

    def token(self, **claims):
        return self.cell.token("sb-1", need=["exec"], **claims)

    def client(self):
        return self.form(self.cell)

    def revoke(self, jti):
        part = self.cell.folder / "sandboxes.json.part"
        part.write_text(json.dumps({"sandboxes": self.cell.sandboxes, "revoked": {jti: int(time.time()) + 300}}))
        part.rename(self.cell.folder / "sandboxes.json")

    def metric(self, name):
        return self.tunnels.metric(name)

    def watches(self):
        """How many questions of the relay the agent keeps."""
        lines = self.cell.admin("/metrics").splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith("cellgate_agent_subscriptions"))

    def close(self):
        self.worker.stopped.set()
        self.tunnels.close()
        self.cell.stop()


@pytest.fixture(params=[Sdk, V1], ids=["sdk", "v1"])
def watched(request, tmp_path):
    made = Watched(tmp_path, request.param)
    yield made
    made.close()


REVOKED = ("DENIED", 401)


@pytest.mark.parametrize("kind", ["stream", "silent", "forged"])
def test_a_revoked_token_ends_what_it_let_in_and_nothing_else(watched, kind):
    one, two = watched.token(jti="one"), watched.token(jti="two")
    with watched.client() as client:
        mine, other = client.begin(f"/{kind}/mine", one), client.begin("/stream/other", two)
        client.goes_on(other)
        until(lambda: len(watched.worker.begun) == 2, 10)
        begun = time.monotonic()
        watched.revoke("one")
        assert client.denied(mine) == ("DENIED", 401, "The capability token has been revoked.")
        assert time.monotonic() - begun < 5  # asked after a second, told within another one
        if kind == "stream":  # whose worker writes: of others HAProxy waits for the answer, as it does for every client
            until(lambda: watched.worker.cut == ["mine"], 10, "it goes on at the worker")
        for _ in range(50):
            client.goes_on(other)
        assert (client.status(one), client.status(two)) == (401, 200)
    assert watched.metric('cellgate_relay_mux_requests_total{outcome="denied"}') == 1


def test_an_upload_ends_with_its_token(tmp_path):
    watched = Watched(tmp_path, V1)
    one = watched.token(jti="one")
    try:
        with watched.client() as client:
            number = client.ask("/upload/mine", "POST", body=True, **with_token(one))
            client.upload(number, b"x" * 100_000)
            until(lambda: watched.worker.begun == ["mine"], 10)
            watched.revoke("one")
            assert client.denied(number)[:2] == REVOKED
            until(lambda: watched.worker.cut == ["mine"], 10, "the worker waits for the rest")
            client.put(DATA, number, b"what was on its way")  # both are dropped
            client.put(END, number)
            assert client.status(one) == 401
    finally:
        watched.close()


def test_a_token_that_expires_ends_what_it_let_in(watched):
    long = watched.token(ttl=60)
    with watched.client() as client:
        mine, other = client.begin("/stream/mine", watched.token(ttl=3)), client.begin("/stream/other", long)
        begun = time.monotonic()
        assert client.denied(mine) == ("DENIED", 401, "The capability token has expired.")
        assert 1 < time.monotonic() - begun < 3 + AT_ONCE
        until(lambda: watched.worker.cut == ["mine"], 10)
        client.goes_on(other)
        assert client.status(long) == 200


@pytest.mark.parametrize("how, status", [("stopped", 410), ("removed", 404)])
def test_a_sandbox_that_is_no_more_ends_its_requests(watched, how, status):
    token = watched.token()
    with watched.client() as client:
        mine = client.begin("/stream/mine", token)
        client.goes_on(mine)
        until(lambda: watched.watches() == 1, 10, "nobody watches it")
        if how == "stopped":
            watched.tunnels.place("sb-1", watched.worker, state="stopped")
        else:
            watched.cell.set_sandboxes(**{"sb-1": None})
        assert client.denied(mine)[:2] == ("DENIED", status) and client.status(token) == status
        until(lambda: watched.worker.cut == ["mine"], 10)


def test_a_sandbox_that_moves_ends_nothing(watched):
    with watched.client() as client:
        mine = client.begin("/stream/mine", watched.token())
        until(lambda: watched.watches() == 1, 10)
        for epoch in range(100, 103):
            watched.tunnels.place("sb-1", watched.worker, epoch=epoch)
            for _ in range(10):
                client.goes_on(mine)
            until(lambda: watched.watches() == 1, 10, "it is not watched again")
    until(lambda: watched.worker.cut == ["mine"], 10)
    until(lambda: watched.watches() == 0, 10, "a watch is left of a request that ended")


def test_short_requests_ask_nothing(watched):
    token = watched.token()
    with watched.client() as client:
        for number in range(100):
            assert client.status(token) == 200
            assert number % 10 or watched.watches() == 0


def test_it_is_still_watched_when_the_agent_has_been_away(watched):
    one = watched.token(jti="one")
    with watched.client() as client:
        mine, early = client.begin("/stream/mine", one), client.begin("/silent/early", one)
        client.goes_on(mine)
        until(lambda: watched.watches() == 2, 10)
        watched.cell.kill("agent")
        for _ in range(20):
            client.goes_on(mine)  # what goes on needs nobody
        watched.revoke("one")  # which it reads as it starts
        assert client.denied(mine)[:2] == REVOKED
        assert client.denied(early)[:2] == REVOKED


def test_a_route_without_a_token_is_watched_for_its_sandbox(watched):
    with watched.client() as client:
        mine = client.begin("/stream/mine", None, "open")
        client.goes_on(mine)
        until(lambda: watched.watches() == 1, 10)
        watched.cell.set_sandboxes(**{"sb-1": None})
        assert client.denied(mine)[:2] == ("DENIED", 404)


def test_many_end_at_once(watched):
    one, many = watched.token(jti="one"), 48
    with watched.client() as client:
        asked = [client.begin(f"/stream/{n}", one) for n in range(many)]
        until(lambda: watched.watches() == many, 15)
        watched.revoke("one")
        for request in asked:
            assert client.denied(request)[:2] == REVOKED
        until(lambda: len(watched.worker.cut) == many, 10)
        assert client.status(one) == 401
    assert watched.metric('cellgate_relay_mux_requests_total{outcome="denied"}') == many
    until(lambda: watched.watches() == 0, 10)


def test_only_the_relay_hears_of_it(tmp_path):
    """Who asks HAProxy without a mux gets no interim answer."""
    watched = Watched(tmp_path, V1)
    try:
        with socket.create_connection(("127.0.0.1", watched.cell.http), 10) as sock:
            sock.sendall(b"GET /w/sb-1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + watched.token().encode() + b"\r\n\r\n")
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200") and b"handover" not in answer.lower()
    finally:
        watched.close()
