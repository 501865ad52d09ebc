# SPDX-License-Identifier: MIT
"""The relay's server is killed, or crashes: the tunnels go on in the next one, but those at which it was at work."""

import contextlib
import os
import random
import re
import shutil
import signal
from pathlib import Path

import pytest
from cell import AT_ONCE, BIN, SANITIZED, alive, stop, until
from direct import frame
from fault_injection import FAULT_INJECTION
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers do not know the keeper's clone")


@pytest.fixture
def tunnels(cells):
    made = Tunnels(cells(config={"relay": QUICK | {"max_restarts": 50}, "routes": ROUTES}, environment={"CELLGATE_KEEPER": "on"}))
    yield made
    made.close()


SCRIPT = """#!/bin/sh
LD_PRELOAD={library} FAULT_CRASH=deadly FAULT_TAKING={folder}/taking exec {folder}/real "$@"
"""


@pytest.fixture
def mortal(cells, tmp_path):
    """A relay that crashes when it reads a certain word."""
    folder = tmp_path / "bin"
    shutil.copytree(BIN, folder)
    (folder / "taking").write_bytes(bytes(8))
    program = folder / "cellgate-relay"
    program.rename(folder / "real")
    program.write_text(SCRIPT.format(library=FAULT_INJECTION, folder=folder))
    program.chmod(0o755)
    made = Tunnels(cells(config={"relay": QUICK | {"max_restarts": 50}, "routes": ROUTES},
                         environment={"CELLGATE_KEEPER": "on", "CELLGATE_BIN": str(folder)}))
    made.taking = folder / "taking"
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


def test_a_tunnel_whose_bytes_crash_the_server_ends_and_no_other(mortal):
    worker = mortal.worker()
    pairs = [mortal.open(worker) for _ in range(12)]
    for count in (1, 2):
        client, upstream = pairs.pop()
        before = server(mortal)
        upstream.say(b"deadly")
        assert client.ended() and upstream.ended()
        until(lambda: server(mortal) != before, AT_ONCE, "no other server is started")
        for index, pair in enumerate(pairs):
            pass_both_ways(*pair, b"%d %d" % (count, index))
        assert mortal.metric('cellgate_relay_salvaged_tunnels_total{outcome="torn"}') == count
    assert mortal.metric('cellgate_relay_server_restarts_total{cause="crashed"}') == 2


@pytest.mark.parametrize("deaths", [1, 3, 4])
def test_servers_that_die_of_what_they_take_over_leave_it_out(mortal, deaths):
    """Each leaves out what the one before was reading, on each of its two threads; the fifth one starts from nothing."""
    worker = mortal.worker()
    pairs = [mortal.open(worker) for _ in range(12)]
    mortal.metric("cellgate_relay_tunnels{")
    with open(mortal.taking, "r+b") as taking:
        taking.write(deaths.to_bytes(8, "little"))
    before = server(mortal)
    os.kill(before, signal.SIGKILL)
    until(lambda: mortal.metric("cellgate_relay_agent_connected") == 1 and mortal.metric("cellgate_relay_server_restarts_total") == deaths + 1, AT_ONCE)
    goes_on = 0
    for index, (client, upstream) in enumerate(pairs):
        with contextlib.suppress(EOFError, OSError):
            client.say(b"%d" % index)
            assert upstream.message() == (2, b"%d" % index)
            goes_on += 1
    assert (goes_on == 0) if deaths == 4 else (12 - 2 * deaths <= goes_on < 12)
    pass_both_ways(*mortal.open(worker))


def memory_of(pid):
    """(from, to) of what a process has written and shares with no file."""
    line = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p [0-9a-f]+ 00:00 0 *(\[heap\])?$")
    found = [line.match(text) for text in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return [(int(match[1], 16), int(match[2], 16)) for match in found if match]


def damage(pid, share, chance):
    """Overwrites this share of the words of a process's memory that are not zero."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for start, end in memory_of(pid):
            for at in range(start, min(end, start + (16 << 20)), 4096):
                memory.seek(at)
                page = memory.read(4096)
                if not any(page):
                    continue
                for word in range(0, 4096, 8):
                    if any(page[word:word + 8]) and chance.random() < share:
                        memory.seek(at + word)
                        memory.write(chance.randbytes(8))


@pytest.mark.parametrize("share", [0, 0.0005, 0.01, 0.3])
@pytest.mark.parametrize("seed", range(2))
def test_damaged_memory_of_a_dead_server_confuses_no_tunnels(tunnels, share, seed):
    """A tunnel whose memory was damaged ends. None gets another's bytes, and there is no crash loop."""
    worker, chance = tunnels.worker(), random.Random(seed)
    pairs = [tunnels.open(worker, route=route) for route in ("plain", "text", "exec", "ring") for _ in range(8)]
    until(lambda: tunnels.metric("cellgate_relay_tunnels_resting") == len(pairs), AT_ONCE, "the tunnels do not rest")
    keeper, before = tunnels.cell.pid("relay"), server(tunnels)
    stop(keeper)
    try:
        os.kill(before, signal.SIGKILL)
        until(lambda: not alive(before), AT_ONCE)
        (salvager,) = {int(child) for child in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()} - {before}
        damage(salvager, share, chance)
    finally:
        os.kill(keeper, signal.SIGCONT)
    until(lambda: server(tunnels) != before, AT_ONCE, "no other server is started")
    alone = 0
    for index, (client, upstream) in enumerate(pairs):
        word = b"%d" % index
        with contextlib.suppress(EOFError, OSError):
            client.say(word)
            got = upstream.message()
            assert got == (2, word)
            upstream.say(word)
            assert client.message() == (2, word)
            alone += 1
    assert alone == len(pairs) or share
    pass_both_ways(*tunnels.open(worker))
    assert alive(keeper) and tunnels.metric("cellgate_relay_server_restarts_total") <= 5
