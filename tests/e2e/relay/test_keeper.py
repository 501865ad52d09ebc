# SPDX-License-Identifier: MIT
"""The relay's keeper: its server is killed, crashes, drains and is reloaded, and the sockets on which the relay listens stay open."""

import os
import signal
import socket
from pathlib import Path

import pytest
from cell import AT_ONCE, SANITIZED, alive, stop, until
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers do not know the keeper's clone")


@pytest.fixture
def tunnels(cells):
    made = Tunnels(cells(config={"relay": QUICK | {"max_restarts": 2}, "routes": ROUTES}, environment={"CELLGATE_KEEPER": "on"}))
    yield made
    made.close()


def server(tunnels):
    """The process id of the server that runs now."""
    return int((tunnels.cell.run_dir / "relay.server.pid").read_text())


def next_server(tunnels, before):
    return until(lambda: (pid := server(tunnels)) != before and alive(pid) and pid, AT_ONCE, "no other server is started")


def kill(tunnels, number=signal.SIGKILL):
    before = server(tunnels)
    os.kill(before, number)
    return next_server(tunnels, before)


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGKILL, "killed"), (signal.SIGSEGV, "crashed")])
def test_a_server_that_dies_is_replaced(tunnels, number, cause):
    keeper, worker = tunnels.cell.pid("relay"), tunnels.worker()
    client, _ = tunnels.open(worker)
    kill(tunnels, number)
    assert client.ended()
    pass_both_ways(*tunnels.open(worker))
    assert tunnels.cell.pid("relay") == keeper and alive(keeper)
    assert tunnels.metric(f'cellgate_relay_server_restarts_total{{cause="{cause}"}}') == 1
    assert tunnels.metric("cellgate_relay_server_restarts_total") == 1


def test_a_client_that_comes_while_there_is_no_server_waits(tunnels):
    keeper, before = tunnels.cell.pid("relay"), server(tunnels)
    stop(keeper)
    try:
        os.kill(before, signal.SIGKILL)
        until(lambda: not alive(before), AT_ONCE)
        client = tunnels.ask(tunnels.sandbox(worker := tunnels.worker()))
    finally:
        os.kill(keeper, signal.SIGCONT)
    upstream = worker.serve()
    pass_both_ways(tunnels.accepted(client), upstream)


def test_nothing_of_a_dead_server_stays_open(tunnels):
    """In the table that the keeper and all servers share."""
    worker, keeper = tunnels.worker(), Path(f"/proc/{tunnels.cell.pid('relay')}/fd")
    kill(tunnels)
    until(lambda: tunnels.metric("cellgate_relay_agent_connected") == 1, AT_ONCE)
    before = len(list(keeper.iterdir()))
    opened = [tunnels.open(worker) for _ in range(20)]
    kill(tunnels)
    for client, upstream in opened:
        assert client.ended() and upstream.ended()
    until(lambda: tunnels.metric("cellgate_relay_agent_connected") == 1, AT_ONCE)
    # beside them there may be a check of HAProxy's for a moment
    until(lambda: len(list(keeper.iterdir())) <= before, AT_ONCE, "descriptors of a dead server are left")


def test_a_keeper_whose_servers_die_over_and_over_gives_up(tunnels):
    keeper = tunnels.cell.pid("relay")
    kill(tunnels)
    kill(tunnels)
    last = server(tunnels)
    os.kill(last, signal.SIGKILL)
    until(lambda: not alive(keeper), AT_ONCE, "the keeper goes on")
    tunnels.cell.says("relay", "level=error", "giving up")


def test_the_server_ends_with_its_keeper(tunnels):
    keeper, running = tunnels.cell.pid("relay"), server(tunnels)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not alive(running), AT_ONCE, "the server goes on without its keeper")


def test_signals_reach_the_server(tunnels):
    keeper = tunnels.cell.pid("relay")
    os.kill(keeper, signal.SIGUSR1)
    tunnels.cell.says("relay", "msg=summary")
    os.kill(keeper, signal.SIGHUP)
    tunnels.cell.says("relay", "configuration reloaded")
    client, _ = tunnels.open(tunnels.worker())
    os.kill(keeper, signal.SIGTERM)
    assert client.closed()[0] == 1012
    until(lambda: not alive(keeper), AT_ONCE, "the keeper does not end behind its server")


def test_a_server_reads_what_a_reload_has_changed(tunnels):
    """And goes on with the configuration of the start if the file is not good."""
    file = tunnels.cell.config_file
    good = file.read_text()
    file.write_text(good.replace('"max_restarts": 2', '"max_restarts": 2, "max_tunnels": 77'))
    kill(tunnels)
    assert until(lambda: tunnels.metric("cellgate_relay_max_tunnels"), AT_ONCE) == 77
    file.write_text("{")
    kill(tunnels)
    tunnels.cell.says("relay", "the configuration of the start is used")
    assert until(lambda: tunnels.metric("cellgate_relay_max_tunnels"), AT_ONCE) != 77


def test_the_admin_listener_is_kept_too(tunnels):
    with socket.create_connection(("127.0.0.1", tunnels.cell.ports["relay-admin"])):
        kill(tunnels)
    assert tunnels.cell.admin("/healthz", "relay")
