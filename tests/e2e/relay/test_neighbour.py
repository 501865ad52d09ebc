# SPDX-License-Identifier: MIT
"""A relay that is not what it should be, on the agent's socket for relays: what it is told, and what it can do to others."""

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from cell import AT_ONCE, SANITIZED, until
from false_agent import FalseHaproxy, FalseRelay
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

KEPT = {"worker": "http://127.0.0.1:9", "epoch": 7, "org": "org-1", "headers": {"Authorization": "Bearer of-the-record"}}


QUESTION = {"method": "GET", "version": "1.1", "path": "/api/sandboxes/kept/x", "headers": "host: h\r\n\r\n"}
SUBSCRIPTIONS = 10_000  # that the agent is told to keep
AGENT = {"threads": 1, "max_subscriptions": SUBSCRIPTIONS}


@pytest.fixture
def tunnels(cells):
    tunnels = Tunnels(cells(sandboxes={"kept": KEPT}, config={"agent": AGENT, "relay": QUICK, "routes": ROUTES}))
    yield tunnels
    tunnels.close()


@pytest.fixture
def relays(tunnels):
    made = []

    def make():
        made.append(FalseRelay(tunnels.cell.run_dir / "agent-relay.sock"))
        return made[-1]

    yield make
    for relay in made:
        relay.close()


class Decisions:
    """One after the other on HAProxy's socket, until told to stop: how many there were, and how long the longest took."""

    def __init__(self, cell):
        self.haproxy = FalseHaproxy(cell.run_dir / "agent.sock")
        self.count, self.longest, self.running = 0, 0.0, True
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self):
        while self.running:
            self.count += 1
            begun = time.monotonic()
            self.haproxy.ask({self.count: QUESTION})
            assert self.haproxy.receive()[:2] == (103, self.count)
            self.longest = max(self.longest, time.monotonic() - begun)

    def __enter__(self):
        until(lambda: self.count > 10)
        return self

    def __exit__(self, *_):
        before = self.count
        until(lambda: self.count > before + 10, 20, "nobody decides any more")
        self.running = False
        self.thread.join()
        self.haproxy.close()


def admitted(cell, sandbox="kept", route="plain", **more):
    """The arguments of a question that the agent admits: a relay that was taken over has them of tunnels that it carried."""
    key = (cell.run_dir / "agent-relay.sock.key").read_bytes()
    identity = "".join(f";{name}={value}" for name, value in {"route": route, "sandbox": sandbox, **more}.items())
    mac = hmac.new(key, f"cellgate ticket 2{identity}".encode(), hashlib.sha256).digest()
    ticket = base64.urlsafe_b64encode(mac[:16]).rstrip(b"=")
    return {"route": route, "sandbox": sandbox, "ticket": ticket.decode(), "epoch": 7, "addr": bytes([127, 0, 0, 1])} | more


def throw_away(relay, seen=None):
    """Reads what the agent says, until it says no more."""

    def read():
        try:
            while data := relay.socket.recv(1 << 20):
                if seen is not None:
                    seen.append(len(data))
        except OSError:
            pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def series(cell, name):
    found = re.search(rf"^{re.escape(name)} (\d+)$", cell.admin("/metrics"), re.M)
    return int(found[1])


def resident(cell):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{cell.pid('agent')}/status").read_text())[1])


def spent(cell):
    """Seconds of CPU of the agent."""
    fields = Path(f"/proc/{cell.pid('agent')}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- what it is told ----


@pytest.mark.parametrize("message", ["cell-resolve", "cell-watch"])
def test_without_a_ticket_nothing_is_said_of_any_sandbox(relays, message):
    relay = relays()
    for sandbox in ("kept", "nobody-knows"):
        for more in ({}, {"ticket": ""}, {"ticket": "A" * 22}, {"org": "org-1", "epoch": 7}, {"epoch": -1}):
            assert relay.one(message, route="secure", sandbox=sandbox, **more) == {"state": b"not_admitted"}


def test_refused_questions_are_counted_and_told(tunnels, relays):
    relay = relays()
    relay.ask({n: {"route": "secure", "sandbox": "kept"} for n in range(500)})
    for _ in range(500):
        relay.receive()
    assert 'cellgate_agent_relay_refused_total{why="not_admitted"} 500' in tunnels.cell.admin("/metrics")
    log = tunnels.cell.run_dir / "agent.log"
    until(lambda: "questions of a relay are refused" in log.read_text())  # by a thread of its own
    assert log.read_text().count("questions of a relay are refused") <= 8  # once in a while of each thread


# ---- what a tunnel keeps ----


def test_a_ticket_outlives_the_agent_and_a_change_of_keys(tunnels):
    cell = tunnels.cell
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, _ = tunnels.open(one, sandbox, "secure", headers=[cell.bearer(sandbox, need=["pty"])])
    (cell.folder / "k2.secret").write_bytes(b"another secret of the tests, 32 bytes")
    config = cell.config | {"tokens": [*cell.config["tokens"], {"kind": "jwt", "alg": "HS256", "kid": "k2", "secret_file": "k2.secret"}]}
    cell.config_file.write_text(json.dumps(config))
    old = cell.pid("agent")
    cell.kill("agent")
    until(lambda: cell.pid("agent") != old, 10, "no agent is started again")
    tunnels.place(sandbox, two)
    pass_both_ways(client, two.serve())


def test_a_tunnel_that_no_agent_of_this_key_has_admitted_is_closed(tunnels):
    cell = tunnels.cell
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, _ = tunnels.open(one, sandbox)
    old = cell.pid("agent")
    (cell.run_dir / "agent-relay.sock.key").unlink()
    cell.kill("agent")
    until(lambda: cell.pid("agent") != old, 10, "no agent is started again")
    tunnels.place(sandbox, two)
    assert client.closed() == (1011, "not admitted")
    assert not two.dials(0.05)


def test_the_key_is_for_the_agent_alone(tunnels):
    key = tunnels.cell.run_dir / "agent-relay.sock.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.stat().st_size == 32


# ---- what it can do to others ----


def test_subscriptions_are_bounded_whatever_their_size_and_given_back(tunnels, relays):
    """100,000 of 16 KB in a few seconds: 1.5 GB, were they kept as they are."""
    cell, relay = tunnels.cell, relays()
    relay.socket.settimeout(60)
    before = resident(cell)
    question = admitted(cell) | {"epoch": 7, "more": "x" * 16000}
    some = relay.frames({n: question for n in range(1, 41)}, "cell-watch")
    reader = throw_away(relay)
    with Decisions(cell) as decisions:
        for _ in range(250 if SANITIZED else 2500):
            relay.socket.sendall(some)
        until(lambda: series(cell, 'cellgate_agent_relay_refused_total{why="too_many"}'), 10)
        assert series(cell, "cellgate_agent_subscriptions") <= SUBSCRIPTIONS // 2  # the other half is for others
        assert SANITIZED or resident(cell) < before + 32 * 1024
        relay.socket.shutdown(socket.SHUT_RDWR)
        reader.join()
        until(lambda: series(cell, "cellgate_agent_subscriptions") == 0, 10, "subscriptions are kept though their connection is gone")
    assert SANITIZED or resident(cell) < before + 16 * 1024
    assert decisions.longest < AT_ONCE


def test_a_watch_beyond_the_bound_is_answered_at_once(tunnels, relays):
    cell, relay = tunnels.cell, relays()
    arguments = admitted(cell)
    for first in range(1, SUBSCRIPTIONS // 2 + 1, 1000):
        relay.ask({n: arguments for n in range(first, first + 1000)}, "cell-watch")
    answer = relay.one("cell-watch", SUBSCRIPTIONS, **arguments)
    assert (answer["state"], answer["epoch"], answer["unwatched"]) == (b"running", 7, True)
    other = relays()  # gets a place for the rest of it
    other.ask({1: arguments}, "cell-watch")
    assert "unwatched" not in other.one("cell-resolve", 2, **arguments)
    other.ask({3: {"watch": 1}}, "cell-unwatch")
    assert {other.receive()[1], other.receive()[1]} == {1, 3}


def test_what_is_too_long_to_be_kept_is_answered_at_once(tunnels, relays):
    cell, relay = tunnels.cell, relays()
    sandbox = "s" * 1500
    answer = relay.one("cell-watch", **admitted(cell, sandbox) | {"org": "o" * 1500, "epoch": 0})
    assert answer == {"state": b"not_admitted"}
    kept = admitted(cell, jti="j" * 9000)
    assert relay.one("cell-watch", **kept)["unwatched"] is True
    assert series(cell, 'cellgate_agent_relay_refused_total{why="too_long"}') == 1


def test_unwatching_finds_its_watch_among_many(cells):
    """Stream-ids that a table of 4096 buckets would put into one of them: 1,000 took more than two seconds of the thread."""
    tunnels = Tunnels(cells(sandboxes={"kept": KEPT}, config={"agent": {"threads": 1}, "relay": QUICK, "routes": ROUTES}))
    cell, many = tunnels.cell, 20_000 if SANITIZED else 90_000
    relay = FalseRelay(cell.run_dir / "agent-relay.sock")
    arguments = admitted(cell)
    for first in range(1, many, 1000):
        relay.ask({n * 4096: arguments for n in range(first, first + 1000)}, "cell-watch")
    until(lambda: series(cell, "cellgate_agent_subscriptions") >= many - 1000, 20)
    ends = relay.frames({5 + n: {"watch": n * 4096} for n in range(1, 1001)}, "cell-unwatch")
    before = spent(cell)
    with Decisions(cell):
        relay.socket.sendall(ends)
        for _ in range(2000):
            assert relay.receive()[0] == 103
    took = spent(cell) - before
    assert took < 1, took
    relay.close()
    tunnels.close()


def test_a_relay_that_reads_nothing_holds_up_itself(tunnels, relays):
    cell, deaf, other = tunnels.cell, relays(), relays()
    before = resident(cell)
    some = deaf.frames({n: admitted(cell) for n in range(1, 1001)}, "cell-resolve")
    deaf.socket.settimeout(1)
    with Decisions(cell) as decisions:
        with pytest.raises(TimeoutError):
            for _ in range(10000):
                deaf.socket.sendall(some)
        assert other.one(**admitted(cell))["epoch"] == 7
        assert SANITIZED or resident(cell) < before + 8 * 1024
    assert decisions.longest < AT_ONCE


def test_one_process_gets_so_many_connections(tunnels):
    """The tunnels of a relay beside it go on: it can connect and ask."""
    cell = tunnels.cell
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, _ = tunnels.open(one, sandbox)
    hostile, refused = [], 0
    for _ in range(200):
        try:
            hostile.append(FalseRelay(cell.run_dir / "agent-relay.sock"))
        except (OSError, struct.error):
            refused += 1
    assert (len(hostile), refused) == (80, 120)
    tunnels.place(sandbox, two)
    pass_both_ways(client, two.serve())
    for relay in hostile:
        relay.close()


def test_floods_of_news_hold_up_nobody(tunnels, relays):
    """The directory is replaced as fast as that can be done, while there are watches of all of it."""
    cell, relay = tunnels.cell, relays()
    relay.socket.settimeout(60)
    cell.set_sandboxes(**{f"w-{n}": KEPT for n in range(1000)})
    tunnels.known()
    for n in range(4):
        relay.ask({1 + n * 1000 + i: admitted(cell, f"w-{i}") for i in range(1000)}, "cell-watch")
    until(lambda: series(cell, "cellgate_agent_subscriptions") >= 4000, 10)
    seen = []
    throw_away(relay, seen)
    with Decisions(cell) as decisions:
        for n in range(200):
            cell.set_sandboxes(turn={"worker": "http://127.0.0.1:9", "epoch": n})
        assert not seen  # none of that was about them
        cell.set_sandboxes(**{f"w-{n}": KEPT | {"epoch": 8} for n in range(1000)})
        until(lambda: series(cell, "cellgate_agent_subscriptions") == 0, 20, "subscriptions are not answered")
    assert decisions.longest < AT_ONCE
