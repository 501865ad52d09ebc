# SPDX-License-Identifier: MIT
"""Names: the directory kind `dns`, and workers that records call by name, with a name server that changes its mind, is
slow, or does not answer."""

import json
import signal
import socket
import time
from types import SimpleNamespace

import pytest
from cell import until
from client import Http1
from name_server import NXDOMAIN, SERVFAIL, SILENT, NameServer
from plane import FakePlane
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

PROXY = {"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"}
INSIDE = {"name": "inside", "path": "/n/{namespace}/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"}
GONE = (503, "directory_unavailable")
ABSENT = (404, "sandbox_not_found")
SUFFIX = ".default.svc.test"


def answer(cell, path):
    with Http1(cell.http) as client:
        response = client.request("GET", path)
    return response.status if response.status == 200 else (response.status, json.loads(response.body)["error"])


def becomes(cell, expected, path, seconds=10):
    until(lambda: answer(cell, path) == expected, seconds, f"{path} does not become {expected}")


def up(cell):
    return json.loads(cell.admin("/status"))["directory"]["up"]


@pytest.fixture(scope="module")
def name_servers():
    made = []

    def make(**arguments):
        made.append(NameServer(**arguments))
        return made[-1]

    yield make
    for server in made:
        server.close()


class World:
    def __init__(self, cells, name_servers, origins):
        self.names = name_servers()
        self.origin = origins()
        keys = {"kind": "dns", "name": "{sandbox}.{namespace}.svc.test", "port": self.origin.port, "timeout": "2s", "ttl": "1s"}
        # A machine that is busy needs more than the 200 ms that a decision waits for a look-up.
        config = {"directory": keys | {"servers": [self.names.address]}, "routes": [PROXY, INSIDE], "agent": {"lookup": "9s"}}
        self.cell = cells(config=config, environment={"CELLGATE_DECISION_TIMEOUT": "10000"})


@pytest.fixture(scope="module")
def world(cells, name_servers, origins):
    return World(cells, name_servers, origins)


# ---- the kind dns ----


def test_a_sandbox_is_where_its_name_says(world):
    world.names.names["sb-1" + SUFFIX] = ["127.0.0.1"]
    world.names.names["sb-1.team.svc.test"] = ["127.0.0.1"]
    assert answer(world.cell, "/s/sb-1/x") == 200
    assert world.origin.requests[-1].get("host") == f"sb-1{SUFFIX}:{world.origin.port}"
    assert answer(world.cell, "/n/team/sb-1/x") == 200
    assert answer(world.cell, "/n/other/sb-1/x") == ABSENT
    assert answer(world.cell, "/s/sb-2/x") == ABSENT


def test_a_name_with_ipv6_only_or_with_several_addresses(world):
    # nobody listens on the second: the lowest is chosen, by all agents alike
    world.names.names["sb-many" + SUFFIX] = ["127.0.0.77", "127.0.0.1"]
    assert answer(world.cell, "/s/sb-many/x") == 200
    world.names.names["sb-six" + SUFFIX] = ["::1"]
    assert answer(world.cell, "/s/sb-six/x")[1] == "worker_unreachable"
    world.names.names["sb-none" + SUFFIX] = []
    assert answer(world.cell, "/s/sb-none/x") == ABSENT


@pytest.mark.parametrize("name", ["a.kube-system", "a.", "-a", "a-", "x" * 64, "a%00b", "a%20b", "a%2eb", "*"])
def test_an_id_that_is_no_label_leads_nowhere(world, name):
    asked = len(world.names.asked)
    assert answer(world.cell, f"/s/{name}/x")[0] in (400, 404)
    assert len([x for x in world.names.asked[asked:] if not x[0].startswith(("sb-", "known"))]) == 0


def test_ids_that_dns_does_not_tell_apart_are_not_one_sandbox(world):
    """Tokens and limits do: they would be two sandboxes on one worker."""
    world.names.names["sb-case" + SUFFIX] = world.names.names["SB-CASE" + SUFFIX] = ["127.0.0.1"]
    assert answer(world.cell, "/s/sb-case/x") == 200
    assert answer(world.cell, "/s/SB-CASE/x") == ABSENT
    assert answer(world.cell, "/n/Default/sb-case/x") == ABSENT


def test_servers_that_fail_do_not_make_a_sandbox_absent(world):
    world.names.names["sb-fail" + SUFFIX] = SERVFAIL
    assert answer(world.cell, "/s/sb-fail/x") == GONE
    world.names.names["sb-silent" + SUFFIX] = SILENT
    assert answer(world.cell, "/s/sb-silent/x") == GONE
    world.names.names["sb-fail" + SUFFIX] = world.names.names["sb-silent" + SUFFIX] = ["127.0.0.1"]
    becomes(world.cell, 200, "/s/sb-fail/x")
    becomes(world.cell, 200, "/s/sb-silent/x")


def test_silent_servers_do_not_stop_what_is_known(world):
    world.names.names["known" + SUFFIX] = ["127.0.0.1"]
    becomes(world.cell, 200, "/s/known/x")
    world.names.silent = True

    def notices():
        assert answer(world.cell, "/s/known/x") == 200
        return not up(world.cell)

    until(notices, 10, "nobody notices")
    for _ in range(20):
        assert answer(world.cell, "/s/known/x") == 200
    world.names.silent = False
    becomes(world.cell, ABSENT, "/s/never-seen/x")
    assert up(world.cell)


def test_a_name_that_goes_is_in_doubt(world):
    world.names.names["going" + SUFFIX] = ["127.0.0.1"]
    becomes(world.cell, 200, "/s/going/x")
    world.names.names["going" + SUFFIX] = NXDOMAIN
    before = world.names.count("going" + SUFFIX)
    until(lambda: answer(world.cell, "/s/going/x") == 200 and world.names.count("going" + SUFFIX) > before, 10)
    assert answer(world.cell, "/s/going/x") == 200


def test_slow_answers_are_waited_for_and_many_at_once_do_not_wait_for_each_other(world):
    world.names.delay = 0.1
    clients = [Http1(world.cell.http) for _ in range(50)]
    for number, client in enumerate(clients):
        world.names.names[f"slow-{number}{SUFFIX}"] = ["127.0.0.1"]
        client.send(f"GET /s/slow-{number}/x HTTP/1.1\r\nHost: cell.test\r\n\r\n".encode())
    statuses = [client.response().status for client in clients]
    # one after the other, two would wait at once (A and AAAA)
    assert world.names.most_waiting >= 10
    assert statuses == [200] * 50
    world.names.delay = 0
    for client in clients:
        client.__exit__(None, None, None)


# ---- workers by name, and tunnels ----


def named(name, port):
    return SimpleNamespace(url=f"http://{name}:{port}")


class Named(Tunnels):
    """Records that name their worker, of which the name server knows the address."""

    def __init__(self, cell, names):
        super().__init__(cell)
        self.names = names


@pytest.fixture(scope="module")
def tunnels(cells, name_servers):
    names = name_servers()
    made = Named(cells(config={"agent": {"name_servers": [names.address]}, "relay": QUICK, "routes": [*ROUTES, PROXY]}), names)
    yield made
    made.close()


def test_an_address_that_changes_moves_the_tunnel(tunnels):
    """The record, and its epoch, stay as they are."""
    one, two = tunnels.worker(), tunnels.worker()
    two.listener.close()
    two.listener = socket.create_server(("127.0.0.2", one.port))
    two.listener.settimeout(10)
    tunnels.names.names["w1.test"] = ["127.0.0.1"]
    tunnels.place("by-name", named("w1.test", one.port))
    client, upstream = tunnels.open(one, "by-name")
    tunnels.names.names["w1.test"] = ["127.0.0.2"]
    arriving = two.serve()
    assert upstream.closed() == (1000, "moved")
    pass_both_ways(client, arriving)
    # a round robin that still has the address moves nobody, nor does a name that cannot be resolved any more
    rotation = iter(range(1000))
    tunnels.names.names["w1.test"] = lambda: ["127.0.0.3", "127.0.0.2"][:: 1 if next(rotation) % 2 else -1]
    asked = tunnels.names.count("w1.test")
    until(lambda: tunnels.names.count("w1.test") > asked + 2, 10)
    tunnels.names.names["w1.test"] = NXDOMAIN
    asked = tunnels.names.count("w1.test")
    until(lambda: tunnels.names.count("w1.test") > asked, 10)
    assert client.silent(0.2)
    pass_both_ways(client, arriving)


def test_a_tunnel_waits_for_a_name_and_opens_when_it_is_known(tunnels):
    worker = tunnels.worker()
    tunnels.names.names["late.test"] = ["127.0.0.1"]
    tunnels.names.delay = 0.5
    tunnels.place("late", named("late.test", worker.port))
    begun = time.monotonic()
    client, upstream = tunnels.open(worker, "late")
    assert time.monotonic() - begun < 4
    tunnels.names.delay = 0
    pass_both_ways(client, upstream)


def test_names_that_nobody_answers_for_delay_no_other(tunnels):
    stuck = {f"stuck-{i}": {"worker": f"http://stuck-{i}.test:1"} for i in range(300)}
    for i in range(300):
        tunnels.names.names[f"stuck-{i}.test"] = SILENT
    tunnels.cell.set_sandboxes(**stuck)
    tunnels.known()
    begun = time.monotonic()
    worker = tunnels.worker()
    tunnels.names.names["quick.test"] = ["127.0.0.1"]
    tunnels.place("quick", named("quick.test", worker.port))
    client, upstream = tunnels.open(worker, "quick")
    pass_both_ways(client, upstream)
    assert time.monotonic() - begun < 4  # each of them is given up after 5 s
    tunnels.cell.set_sandboxes(**{name: None for name in stuck})


def test_a_thousand_names_at_once(tunnels):
    numbers = range(1000)
    for i in numbers:
        tunnels.names.names[f"many-{i}.test"] = ["127.0.0.1"]
    tunnels.cell.set_sandboxes(**{f"many-{i}": {"worker": f"http://many-{i}.test:1"} for i in numbers})
    asked = len(tunnels.names.asked)
    until(lambda: len({name for name, _ in tunnels.names.asked[asked:] if name.startswith("many-")}) == 1000, 10)
    # known: nobody listens there
    until(lambda: answer(tunnels.cell, "/s/many-999/x")[1] == "worker_unreachable", 10)
    tunnels.cell.set_sandboxes(**{f"many-{i}": None for i in numbers})


def test_names_of_a_file_that_is_no_longer_the_directory_are_let_go(cells, name_servers, origins):
    names, plane, origin = name_servers(), FakePlane(), origins()
    names.names["old.test"] = names.names["new.test"] = ["127.0.0.1"]
    plane.records["new"] = {"worker": f"http://new.test:{origin.port}"}
    old = {"worker": f"http://old.test:{origin.port}"}
    cell = cells(sandboxes={"old": old}, config={"agent": {"name_servers": [names.address]}, "routes": [PROXY]})
    until(lambda: names.count("old.test"), 10)  # nobody asks for the sandbox: the name would be kept for ten minutes
    cell.config_file.write_text(json.dumps(cell.config | {"directory": {"kind": "http", "url": plane.url}}))
    cell.kill("agent", signal.SIGHUP)
    becomes(cell, 200, "/s/new/x")
    until(lambda: names.count("new.test") > 2, 10)
    asked = names.count("old.test")
    until(lambda: names.count("new.test") > 5, 10)
    assert names.count("old.test") == asked
    plane.close()
