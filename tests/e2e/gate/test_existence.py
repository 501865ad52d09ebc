# SPDX-License-Identifier: MIT
"""Who has no valid credential does not learn which sandboxes there are: the directory is asked as often, and the answer takes as
long, for one that is there and one that is not. The stand-in directory counts its questions, which tells more than a clock."""

import hashlib
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

import pytest
from cell import token, until
from client import Http1
from name_server import NameServer
from plane import FakePlane, answer
from redis_server import PREFIX, Gate, Redis

ROUTES = [{"name": "web", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]
DELAY = 0.1  # of each answer of a directory
# Nobody is refused because a busy machine has held up an answer of the directory.
PATIENT, HAPROXY = {"threads": 1, "lookup": "9s"}, {"CELLGATE_DECISION_TIMEOUT": "10000"}


class OverHttp:
    def __init__(self):
        self.plane = FakePlane()
        self.plane.events = lambda connection, _: answer(connection, 404, {})  # changes that are pushed would let records serve longer
        for name in ("here", "none"):
            self.plane.ways[name] = self._slow
        self.config = {"kind": "http", "url": self.plane.url, "ttl": "1s", "timeout": "9s"}

    def _slow(self, connection, request):
        name = request.target.rpartition("/")[2]
        time.sleep(DELAY)
        record = {"worker": "http://127.0.0.1:9", "access": {"token_sha256": hashlib.sha256(b"right").hexdigest()}}
        body = json.dumps(record if name == "here" else {"error": "sandbox_not_found"}).encode()
        status = b"200 OK" if name == "here" else b"404 Not Found"
        connection.send(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    def count(self, name):
        return sum(request.target.endswith("/" + name) for request in self.plane.requests)

    def close(self):
        self.plane.close()


class OverDns:
    def __init__(self):
        self.names = NameServer()
        self.names.names["here.default.svc.test"] = ["127.0.0.1"]
        self.names.delay = DELAY
        self.config = {"kind": "dns", "name": "{sandbox}.{namespace}.svc.test", "port": 9, "ttl": "1s", "timeout": "9s", "servers": [self.names.address]}

    def count(self, name):
        return sum(asked.startswith(name + ".") and kind == 1 for asked, kind, _ in list(self.names.look_ups))

    def close(self):
        self.names.close()


class OverRedis:
    """A real server behind a gate that holds up its answers."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cg-")
        self.redis = Redis(Path(self.folder.name))
        self.redis.put(here={"worker": "http://127.0.0.1:9", "access": {"token_sha256": hashlib.sha256(b"right").hexdigest()}})
        self.gate = Gate(self.redis.port)
        self.gate.delay = DELAY
        self.config = {"kind": "redis", "server": f"127.0.0.1:{self.gate.port}", "ttl": "100ms", "timeout": "9s"}  # ten times that, as changes are pushed

    def count(self, name):
        return sum(f"{PREFIX}{name}".encode() in asked for asked in self.gate.asked)

    def close(self):
        self.gate.close()
        self.redis.stop()
        self.folder.cleanup()


class Turns:
    """For six seconds, with pauses in which records get too old. A turn in which the machine paused may make one record older than the
    other: `held_up` counts these."""

    def __init__(self):
        self.end, self.count, self.held_up = time.monotonic() + 6, 0, 0

    def __iter__(self):
        while (begun := time.monotonic()) < self.end:
            self.count += 1
            yield ("here", "none") if self.count % 2 else ("none", "here")
            pause = 0.05 if self.count % 12 else 0.7
            time.sleep(pause)
            self.held_up += time.monotonic() - begun > pause + 2 * DELAY + 0.3


def waited(directory, name, before, took):
    """Whether who asked waited for the directory: a machine that is busy holds up an answer without asking it."""
    return took > DELAY * 0.8 and directory.count(name) > before


@pytest.mark.parametrize("kind", [OverHttp, OverDns, OverRedis], ids=["http", "dns", "redis"])
def test_nothing_tells_whether_a_sandbox_is_there(cells, kind):
    directory = kind()
    try:
        config = {"directory": directory.config, "routes": ROUTES, "tokens": [{"kind": "static", "everywhere": True}], "agent": PATIENT | {"auth_failures": 0}}
        cell = cells(config=config, environment=HAPROXY)
        took, slow, asked, turns = {"here": [], "none": []}, {"here": 0, "none": 0}, [], Turns()
        with Http1(cell.http) as client:
            for names in turns:
                for name in names:
                    before, begun = directory.count(name), time.monotonic()
                    response = client.request("GET", f"/s/{name}/", [("X-OC-Preview-Token", "wrong")])
                    took[name].append(time.monotonic() - begun)
                    slow[name] += waited(directory, name, before, took[name][-1])
                    assert (response.status, json.loads(response.body)["error"]) == (401, "token_invalid")
                asked.append((directory.count("here"), directory.count("none")))
        here, none = asked[-1]
        # a background look-up may be on its way on either side
        assert here > 3 and abs(here - none) <= 1 + turns.held_up, asked
        assert abs(slow["here"] - slow["none"]) <= 2 + turns.held_up, (slow, took)
        assert abs(statistics.median(took["here"]) - statistics.median(took["none"])) < DELAY / 3
    finally:
        directory.close()


def test_an_organisation_does_not_learn_of_sandboxes_of_others(cells):
    """The record of "here" is of nobody the token is for."""
    directory = OverHttp()
    try:
        cell = cells(config={"directory": directory.config, "routes": ROUTES, "agent": PATIENT}, environment=HAPROXY)
        bearer = ("Authorization", "Bearer " + token("test", org="another"))
        slow, turns = {"here": 0, "none": 0}, Turns()
        with Http1(cell.http) as client:
            for names in turns:
                for name in names:
                    before, begun = directory.count(name), time.monotonic()
                    assert client.request("GET", f"/s/{name}/", [bearer]).status == 404
                    slow[name] += waited(directory, name, before, time.monotonic() - begun)
        asked = directory.count("here"), directory.count("none")
        assert asked[0] > 3 and abs(asked[0] - asked[1]) <= 1 + turns.held_up, asked
        assert abs(slow["here"] - slow["none"]) <= 2 + turns.held_up, slow
        directory.plane.ways = {name: lambda connection, _: answer(connection, 500, {}) for name in ("here", "none")}
        time.sleep(1.5)
        with Http1(cell.http) as client:
            assert client.request("GET", "/s/here/", [bearer]).status == client.request("GET", "/s/none/", [bearer]).status
    finally:
        directory.close()


def test_who_may_not_know_of_a_sandbox_does_not_learn_that_it_is_in_use(cells):
    """Its owner's requests keep the record of "here" in the agent's memory."""
    directory = OverHttp()
    over = threading.Event()
    try:
        config = {"directory": directory.config, "routes": ROUTES, "tokens": [{"kind": "static", "everywhere": True}, {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}], "agent": PATIENT}
        cell = cells(config=config, environment=HAPROXY)
        bearer, done = ("Authorization", "Bearer " + token("test", sandbox="here")), []

        def owner():
            while not over.wait(0.05):
                with Http1(cell.http) as client:
                    done.append(client.request("GET", "/s/here/", [bearer]).status)

        using = threading.Thread(target=owner)
        using.start()
        until(lambda: len(done) > 3)
        took = {}
        with Http1(cell.http) as client:
            for name in ("here", "none"):
                begun = time.monotonic()
                response = client.request("GET", f"/s/{name}/", [("X-OC-Preview-Token", "wrong")])
                took[name] = time.monotonic() - begun
                assert (response.status, json.loads(response.body)["error"]) == (401, "token_invalid")
        over.set()
        using.join()
        assert set(done) == {502}, done  # there is no worker
        assert all(t > DELAY * 0.8 for t in took.values()), took
    finally:
        over.set()
        directory.close()
