# SPDX-License-Identifier: MIT
"""A relay that is not what it should be, on the agent's socket for relays: what it is told, and what it can do to others."""

import json

import pytest
from cell import until
from false_agent import FalseRelay
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

KEPT = {"worker": "http://127.0.0.1:9", "epoch": 7, "org": "org-1", "headers": {"Authorization": "Bearer of-the-record"}}


@pytest.fixture
def tunnels(cells):
    tunnels = Tunnels(cells(sandboxes={"kept": KEPT}, config={"relay": QUICK, "routes": ROUTES}))
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
    log = (tunnels.cell.run_dir / "agent.log").read_text()
    assert 1 <= log.count("questions of a relay are refused") <= 8  # once in a while of each thread


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
