# SPDX-License-Identifier: MIT
"""The relay's server is killed, or crashes: the tunnels go on in the next one, but those at which it was at work."""

import os
import signal

import pytest
from cell import AT_ONCE, SANITIZED, alive, until
from direct import frame
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers do not know the keeper's clone")


@pytest.fixture
def tunnels(cells):
    made = Tunnels(cells(config={"relay": QUICK | {"max_restarts": 50}, "routes": ROUTES}, environment={"CELLGATE_KEEPER": "on"}))
    yield made
    made.close()


def server(tunnels):
    """The process id of the server that runs now."""
    return int((tunnels.cell.run_dir / "relay.server.pid").read_text())


def kill(tunnels, number=signal.SIGKILL):
    """Kills the server when each of its threads has done what it was at: it answers for its metrics between two events."""
    before = server(tunnels)
    tunnels.metric("cellgate_relay_tunnels{")
    os.kill(before, number)
    return until(lambda: (pid := server(tunnels)) != before and alive(pid) and pid, AT_ONCE, "no other server is started")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=["killed", "crashed"])
@pytest.mark.parametrize("route", ["plain", "text", "exec", "ring"])
def test_tunnels_go_on_after_a_death(tunnels, route, number):
    worker = tunnels.worker()
    pairs = [tunnels.open(worker, route=route) for _ in range(8)]
    until(lambda: tunnels.metric("cellgate_relay_tunnels_resting") == len(pairs), AT_ONCE, "the tunnels do not rest")
    for pair in pairs[:4]:
        pass_both_ways(*pair)
    for death in range(3):
        kill(tunnels, number)
        for index, pair in enumerate(pairs):
            pass_both_ways(*pair, b"%d %d" % (death, index))
    assert tunnels.metric('cellgate_relay_salvaged_tunnels_total{outcome="saved"}') == 24
    assert tunnels.metric("cellgate_relay_tunnels{") == 8
    pass_both_ways(*tunnels.open(worker, route=route))


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 9, 70_000])
def test_a_frame_that_is_cut_by_a_death_is_whole(tunnels, cut):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    word = os.urandom(100_000)
    sent = frame(2, word, mask=b"abcd")
    client.send(sent[:cut])
    back = frame(2, word)
    upstream.send(back[:cut])
    kill(tunnels)
    client.send(sent[cut:])
    upstream.send(back[cut:])
    assert upstream.message() == (2, word)
    assert client.message() == (2, word)
    pass_both_ways(client, upstream)
