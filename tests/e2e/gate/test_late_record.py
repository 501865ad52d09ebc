# SPDX-License-Identifier: MIT
"""A tunnel whose record comes later than its client, or changes: it reaches what a request that finds the record at hand would, belongs
to the record's organisation, and gives its worker no credential of the gate's."""

import hashlib
import json
import threading

import pytest
from cell import token, until
from client import Http1
from plane import FakePlane, answer
from tunnels import QUICK, Tunnels, pass_both_ways, route

SECRET = "the-access-secret"
ACCESS = {"access": {"token_sha256": hashlib.sha256(SECRET.encode()).hexdigest()}}
ROUTES = [
    route("app", "http", auth="keep"),
    route("pty", "pty"),
    {"name": "page", "host": "{sandbox}.page.test", "cookie": True},
]
ORG_MOST = 3


class Late(FakePlane):
    """A control plane that keeps who asks for a sandbox waiting until the test says what it is."""

    def hold(self, name):
        gate = threading.Event()

        def way(connection, request):
            gate.wait(20)
            return answer(connection, 200, self.records[name])

        def say(**record):
            self.records[name] = record
            gate.set()
            self.ways.pop(name, None)

        self.ways[name] = way
        return say


@pytest.fixture(scope="module")
def plane():
    plane = Late()
    yield plane
    plane.close()


@pytest.fixture(scope="module")
def tunnels(cells, plane):
    directory = {"kind": "http", "url": plane.url, "timeout": "20s"}
    made = Tunnels(cells(config={"directory": directory, "relay": QUICK | {"max_tunnels_per_org": ORG_MOST}, "routes": ROUTES}))
    yield made
    made.close()


def change(plane, name, **record):
    """The control plane says by an event that it knows better."""
    plane.records[name] = record
    plane.push(b"event: update\ndata: " + json.dumps({"sandbox": name, "record": record}).encode() + b"\n\n")


def comes_late(tunnels, plane, name, route="app", query="", headers=(), **claims):
    """A client whose tunnel waits for its record, and the function that says what that is."""
    say = plane.hold(name)
    client = tunnels.ask(name, route, query=f"?cellgate_token={token(sandbox=name, **claims)}{query}", headers=headers)
    tunnels.state(name, "opening")
    return client, say


@pytest.mark.parametrize("how", ["late", "waking"])
def test_a_token_for_one_port_reaches_no_other_behind_a_late_record(tunnels, plane, how):
    worker, name = tunnels.worker(), f"port-{how}"
    client, say = comes_late(tunnels, plane, name, need=["http"], ports=[8080])
    record = {"worker": worker.url, "serves": "application", "epoch": 2}
    say(**({"state": "waking", "epoch": 1} if how == "waking" else record))
    if how == "waking":
        tunnels.state(name, "opening")
        change(plane, name, **record)
    assert tunnels.answer(client)[0] == 403
    assert not worker.dials(0.05)
    assert tunnels.refused(name, "app", headers=[("Authorization", "Bearer " + token(sandbox=name, need=["http"], ports=[8080]))]) == (403, "not_granted")


def test_a_token_for_one_port_does_not_follow_its_sandbox_to_another(tunnels, plane):
    first, second = tunnels.worker(), tunnels.worker()
    port = int(first.url.rpartition(":")[2])
    client, say = comes_late(tunnels, plane, "moves", need=["http"], ports=[port])
    say(worker=first.url, serves="application", epoch=1)
    upstream = first.serve()
    pass_both_ways(tunnels.accepted(client), upstream)
    change(plane, "moves", worker=second.url, serves="application", epoch=2)
    assert client.closed() == (1008, "not granted")
    assert not second.dials(0.05)


def test_a_tunnel_belongs_to_the_organisation_of_its_late_record(tunnels, plane):
    worker, there = tunnels.worker(), []
    for i in range(ORG_MOST):
        client, say = comes_late(tunnels, plane, f"owned-{i}", "pty", need=["pty"])
        say(worker=worker.url, org="acme", epoch=1)
        upstream = worker.serve()
        pass_both_ways(tunnels.accepted(client), upstream)
        there.append(client)
        assert [t["org"] for t in tunnels.tunnels(f"owned-{i}")] == ["acme"]
    client, say = comes_late(tunnels, plane, "owned-more", "pty", need=["pty"])
    say(worker=worker.url, org="acme", epoch=1)
    status, _, document = tunnels.answer(client)
    assert (status, document["error"]) == (503, "too_many_tunnels")
    assert not worker.dials(0.05)
    tunnels.gone("owned-more")
    there[0].close()
    tunnels.gone("owned-0")
    client, say = comes_late(tunnels, plane, "owned-again", "pty", need=["pty"])
    say(worker=worker.url, org="acme", epoch=1)
    upstream = worker.serve()
    pass_both_ways(tunnels.accepted(client), upstream)
    # each of them ends with its owner
    change(plane, "owned-1", worker=worker.url, org="other", epoch=1)
    assert there[1].closed() == (1000, "sandbox not found")
    for peer in (client, *there[2:]):
        peer.close()
    for name in ("owned-again", "owned-1", "owned-2"):
        tunnels.gone(name)


def test_a_tunnel_to_nobodys_sandbox_belongs_to_its_first_owner(tunnels, plane):
    worker = tunnels.worker()
    client, say = comes_late(tunnels, plane, "nobodys", "pty", need=["pty"])
    say(worker=worker.url, epoch=1)
    upstream = worker.serve()
    pass_both_ways(tunnels.accepted(client), upstream)
    assert "org" not in tunnels.tunnels("nobodys")[0]
    change(plane, "nobodys", worker=worker.url, org="acme", epoch=1)
    until(lambda: tunnels.tunnels("nobodys")[0].get("org") == "acme", 10, "it belongs to nobody")
    pass_both_ways(client, upstream)
    change(plane, "nobodys", worker=worker.url, org="other", epoch=1)
    assert client.closed() == (1000, "sandbox not found")


@pytest.mark.parametrize("bearer, passes", [(SECRET, False), ("of-the-application", True)])
def test_the_access_secret_reaches_no_worker_behind_a_late_record(tunnels, plane, bearer, passes):
    worker, name = tunnels.worker(), f"bearer-{passes}".lower()
    client, say = comes_late(tunnels, plane, name, need=["http"], headers=[("Authorization", f"Bearer {bearer}")])
    say(worker=worker.url, serves="application", **ACCESS)
    upstream = worker.serve()
    assert upstream.fields.get("authorization") == (f"Bearer {bearer}" if passes else None)
    tunnels.accepted(client).close()


def test_an_organisations_token_becomes_no_cookie_of_anothers_sandbox(tunnels, plane):
    worker = tunnels.worker()
    plane.records["sb-of-acme"] = {"worker": worker.url, "serves": "application", "org": "acme"}

    def ask(name, **claims):
        with Http1(tunnels.cell.https, tls=True) as client:
            return client.request("GET", f"/?cellgate_token={token(**claims)}", host=f"{name}.page.test")

    own = ask("sb-of-acme", sandbox="*", org="acme")
    assert own.status == 302 and own.get("set-cookie").startswith("__Host-cellgate=")
    for name in ("sb-of-acme", "sb-of-nobody"):
        for claims in ({"sandbox": "*"}, {"sandbox": name}):
            foreign = ask(name, org="other", **claims)
            assert (foreign.status, foreign.get("set-cookie")) == (404, None), (name, claims)
