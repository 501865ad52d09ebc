# SPDX-License-Identifier: MIT
"""One tunnel that misbehaves, a process without file descriptors, an agent that is away: what the other tunnels notice."""

import contextlib
import os
import signal
import subprocess
import threading
import time

import pytest
from cell import SANITIZED, stop, until
from direct import BINARY, PING, PONG
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways


def grown(tunnels, before, kib):
    return tunnels.resident() - before > (kib if not SANITIZED else 256 << 10)


@pytest.fixture(scope="module")
def made(cells):
    known = []

    def make(**relay):
        known.append(Tunnels(cells(config={"relay": QUICK | relay, "routes": ROUTES})))
        return known[-1]

    yield make
    for tunnels in known:
        tunnels.close()


@pytest.fixture(scope="module")
def tunnels(made):
    return made()


def settled(number, seconds=0.3):
    """What number() says once it has not changed for a while."""
    last, since = number(), time.monotonic()
    end = since + 20
    while time.monotonic() - since < seconds and time.monotonic() < end:
        time.sleep(0.02)
        if (now := number()) != last:
            last, since = now, time.monotonic()
    return last


# ---- tunnels that come and go ----


def test_tunnels_that_have_ended_leave_no_watch_with_the_agent(made):
    tunnels = made()
    worker = tunnels.worker()
    lines = lambda: tunnels.cell.admin("/metrics", "agent").splitlines()  # noqa: E731
    waiting = lambda: int(next(line for line in lines() if line.startswith("cellgate_agent_spop_waiting ")).split()[1])  # noqa: E731
    stays = tunnels.open(worker)
    opened = [tunnels.open(worker) for _ in range(20)]
    until(lambda: waiting() == 21, 10, "a tunnel is not watched")
    for client, upstream in opened:
        client.close()
        upstream.close()
    until(lambda: waiting() == 1, 10, "watches are left over")
    pass_both_ways(*stays)


# ---- replays ----


def rings(tunnels, worker, sandboxes):
    """Tunnels of `scrollback` whose client has all that was said: `before`."""
    pairs = [tunnels.open(worker, name, "ring") for name in sandboxes]
    for client, upstream in pairs:
        for message in (b"\x04", b"\x01before"):
            upstream.say(message)
            assert client.message() == (BINARY, message)
    return pairs


def lost(pair, worker):
    """(client, upstream) with the next worker."""
    pair[1].reset()
    return pair[0], worker.serve()


def replays(client, upstream):
    upstream.say(b"\x01before")
    upstream.say(b"\x04")
    pass_both_ways(client, upstream, b"\0word")


def test_replays_are_collected_as_many_at_once_as_memory_has_room_for(made):
    """A relay that loses a host with many full rings at once: with 8 MiB, two; and one sandbox is not both of them."""
    tunnels = made(memory="8MiB", buffer="64KiB", dial_timeout="60s")
    worker, ring = tunnels.worker(), bytes(range(256)) * 4096
    held = lambda: tunnels.metric("cellgate_relay_held_bytes")  # noqa: E731
    first, second, third = [tunnels.sandbox(worker) for _ in range(3)]
    pairs = rings(tunnels, worker, [first, second, first, third])
    pairs = [lost(pair, worker) for pair in pairs]
    for _, upstream in pairs:
        for at in range(0, len(ring), 4096):
            upstream.say(b"\x01" + ring[at : at + 4096])
    until(lambda: held() > 2 * len(ring), 10, "the replays are not held")
    two = settled(held)
    assert two < 5 * len(ring)  # memory is doubled when it is full
    for client, upstream in pairs[2:]:  # input does not wait
        client.say(b"\0word")
        assert upstream.message() == (BINARY, b"\0word")
    assert held() < two + len(ring)
    for _, upstream in pairs:  # all of them: which two were the first is for the relay's threads to say
        upstream.say(b"\x04")
    for client, upstream in pairs:
        assert b"".join(client.message()[1][1:] for _ in range(len(ring) // 4096)) == ring
        pass_both_ways(client, upstream, b"\0word")


def test_a_replay_that_does_not_end_is_not_waited_for(made):
    tunnels = made(memory="1MiB", buffer="64KiB", dial_timeout="1s")
    worker = tunnels.worker()
    stuck, other = rings(tunnels, worker, [tunnels.sandbox(worker) for _ in range(2)])
    stuck = lost(stuck, worker)
    stuck[1].say(b"\x01be")
    replays(*lost(other, worker))
    stuck[1].say(b"\x01fore")
    stuck[1].say(b"\x04")
    pass_both_ways(*stuck, b"\0word")


def test_a_worker_that_does_not_answer_is_not_waited_for_by_those_of_others(made):
    tunnels = made(memory="1MiB", buffer="64KiB", dial_timeout="30s")
    hangs, answers = tunnels.worker(), tunnels.worker()
    (late, upstream), other = [rings(tunnels, worker, [tunnels.sandbox(worker)])[0] for worker in (hangs, answers)]
    upstream.reset()
    hanging = hangs.take()
    replays(*lost(other, answers))
    replays(late, hangs.accept(hanging))


# ---- readers that stop ----


@pytest.mark.parametrize("stopped", ["client", "worker"])
def test_a_reader_that_stops_costs_its_own_tunnel_and_little_memory(tunnels, stopped):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    neighbour = tunnels.open(worker)
    client, upstream = tunnels.open(worker, sandbox)
    sender, reader = (upstream, client) if stopped == "client" else (client, upstream)
    pass_both_ways(client, upstream)
    before, sent = tunnels.resident(), [0]
    piece = b"x" * 60_000
    total = (64 << 20) // len(piece)

    def flood():
        for number in range(total):
            sender.say(piece)
            sent[0] = number + 1

    flooding = threading.Thread(target=flood, daemon=True)
    flooding.start()
    assert settled(lambda: sent[0]) < total, "nothing pushes back"
    assert tunnels.tunnels(sandbox)[0]["held"] < 512 << 10
    assert not grown(tunnels, before, 2048)
    for number in range(50):
        pass_both_ways(*neighbour, b"%d" % number)
    # it was only slow: all of it comes
    for _ in range(total):
        assert reader.message() == (BINARY, piece)
    flooding.join(20)
    pass_both_ways(client, upstream)


def test_memory_is_flat_over_many_tunnels_and_redials(tunnels):
    worker = tunnels.worker()

    def round_of(count):
        sandbox = tunnels.sandbox(worker)
        pairs = [tunnels.open(worker, sandbox) for _ in range(count)]
        for client, upstream in pairs:
            pass_both_ways(client, upstream)
            upstream.reset()
            pass_both_ways(client, worker.serve(), b"y" * 20_000)
            client.reset()
        tunnels.gone(sandbox)

    round_of(100)
    before = tunnels.resident()
    for _ in range(3):
        round_of(100)
    assert not grown(tunnels, before, 1024)


def test_a_client_that_takes_nothing_is_let_go(made):
    tunnels = made(stall="500ms")
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    with pytest.raises(OSError):
        for _ in range(2000):
            upstream.say(b"x" * 60_000)
    tunnels.state(sandbox, "closing")
    client.reset()
    tunnels.gone(sandbox)
    assert tunnels.metric('cellgate_relay_tunnels_closed_total{route="plain",reason="client_too_slow"}') == 1


# ---- file descriptors ----


def test_without_descriptors_tunnels_live_on_and_accepting_resumes(made):
    tunnels = made()
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    living = [tunnels.open(worker, sandbox) for _ in range(5)]
    pid = tunnels.cell.pid("relay")
    files = lambda: len(os.listdir(f"/proc/{pid}/fd"))
    usual = files()
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={usual + 3}:20000"], check=True)
    waiting = [tunnels.ask(sandbox) for _ in range(6)]
    until(lambda: files() >= usual + 3, 10, "it has descriptors left")
    for client, upstream in living:
        pass_both_ways(client, upstream)
    subprocess.run(["prlimit", f"--pid={pid}", "--nofile=20000:20000"], check=True)
    upstreams = [worker.serve() for _ in waiting]
    for number, client in enumerate(waiting):
        tunnels.accepted(client).say(b"%d" % number)
    assert {upstream.message()[1] for upstream in upstreams} == {b"%d" % n for n in range(6)}
    for client, upstream in living:
        pass_both_ways(client, upstream)
    assert tunnels.cell.pid("relay") == pid


# ---- the agent ----


class Absence:
    """The agent is stopped: it holds its sockets and answers nobody. Or it is dead, and who would start it again is
    stopped."""

    def __init__(self, cell, dead=False):
        self.cell, self.dead = cell, dead

    def __enter__(self):
        self.pid = self.cell.up.pid if self.dead else self.cell.pid("agent")
        stop(self.pid)
        if self.dead:
            self.cell.kill("agent")

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def test_while_the_agent_is_stopped_tunnels_live_and_a_redial_waits_for_it(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    pairs = [tunnels.open(worker, sandbox) for _ in range(3)]
    with Absence(tunnels.cell):
        for client, upstream in pairs:
            pass_both_ways(client, upstream)
        client, upstream = pairs.pop()
        upstream.reset()
        client.say(b"held")
        client.say(b"alive?", PING)
        assert client.hear() == (PONG, b"alive?", True)
        assert not worker.dials(0.5), "it has not asked"
    upstream = worker.serve()
    assert upstream.message() == (BINARY, b"held")
    for client, upstream in [*pairs, (client, upstream)]:
        pass_both_ways(client, upstream)


@pytest.mark.parametrize("dead", [False, True])
def test_an_agent_that_is_away_for_longer_than_the_budget_does_not_spend_it(made, dead):
    """The budget is one of workers: while nobody can say where to go, the tunnel waits."""
    tunnels = made(redial_budget="400ms")
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    with Absence(tunnels.cell, dead):
        upstream.reset()
        client.say(b"held")
        assert client.silent(3.5)  # longer than the relay waits for an answer
        assert not worker.dials(0.05)
    upstream = worker.serve()
    assert upstream.message() == (BINARY, b"held")
    pass_both_ways(client, upstream)
    worker.listener.close()
    upstream.reset()
    assert client.closed() == (1011, "upstream unrecoverable")


def test_an_agent_that_is_killed_is_asked_again(tunnels):
    """Its successor learns of a move in between, and the watches stand again."""
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    old = tunnels.cell.pid("agent")
    tunnels.cell.kill("agent")
    pass_both_ways(client, upstream)
    tunnels.cell.set_sandboxes(**{sandbox: {"worker": two.url, "epoch": next(tunnels.numbers)}})
    pass_both_ways(client, two.serve())
    until(lambda: tunnels.cell.pid("agent") != old)
    tunnels.place(sandbox, one)
    pass_both_ways(client, one.serve())


def test_an_agent_that_keeps_dying_does_not_end_a_redial(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    for number in range(3):
        pid = tunnels.cell.pid("agent")
        tunnels.cell.kill("agent")
        if not number:
            upstream.reset()
        until(lambda p=pid: tunnels.cell.pid("agent") != p, 10)
    pass_both_ways(client, worker.serve())


# ---- a relay that stands still ----


class Stillness:
    """The relay is stopped, for longer than it waits for anybody. What comes meanwhile comes in time."""

    def __init__(self, tunnels, seconds=2.5):
        self.pid, self.seconds = tunnels.cell.pid("relay"), seconds

    def __enter__(self):
        stop(self.pid)
        self.since = time.monotonic()

    def __exit__(self, *_):
        time.sleep(max(0, self.since + self.seconds - time.monotonic()))
        os.kill(self.pid, signal.SIGCONT)


def data(peer):
    """The payload of the next message; pings in front of it are answered."""
    while (frame := peer.hear())[0] == PING:
        peer.say(frame[1], PONG)
    assert frame[0] == BINARY
    return frame[1]


def test_who_answers_while_the_relay_is_stopped_is_not_silent(made):
    tunnels = made(keepalive="1s", dead_after="2s")
    peers = client, upstream = tunnels.open(tunnels.worker())
    pings = [peer.hear() for peer in peers]
    with Stillness(tunnels):
        for peer, (opcode, payload, _) in zip(peers, pings):
            assert opcode == PING
            peer.say(payload, PONG)
    client.say(b"word")
    assert data(upstream) == b"word"
    upstream.say(b"answer")
    assert data(client) == b"answer"


def test_who_stood_still_with_the_relay_is_not_silent(made):
    tunnels = made(keepalive="1s", dead_after="1s")
    worker = tunnels.worker()
    peers = tunnels.open(worker)
    pings = [peer.hear() for peer in peers]
    with Stillness(tunnels, 3.5):  # more than a second after the time to answer is over, however late it is stopped
        pass
    tunnels.open(worker)  # all timers that were late have fired
    for peer, (opcode, payload, _) in zip(peers, pings):
        assert opcode == PING
        peer.say(payload, PONG)
    client, upstream = peers
    client.say(b"word")
    assert data(upstream) == b"word"
    upstream.say(b"answer")
    assert data(client) == b"answer"


@pytest.mark.parametrize("limit", ["max_age", "idle"])
def test_a_tunnel_is_not_open_beyond_its_limit_because_the_relay_was_late(made, limit):
    tunnels = made(**{limit: "1s"})
    client, upstream = tunnels.open(tunnels.worker())
    with Stillness(tunnels, 3.5):  # more than a second after the limit
        if limit == "max_age":
            client.say(b"too late")
    since = time.monotonic()
    assert client.closed()[1] == limit.replace("_", " ")
    assert time.monotonic() - since < 0.9  # a peer that is silent gets a second more
    upstream.closed()  # without a message in front


def test_a_move_that_is_told_while_the_relay_is_stopped_is_no_end(made):
    tunnels = made(grace_period="2s")
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    with contextlib.ExitStack() as stillness:
        with Absence(tunnels.cell):
            upstream.close_with(1000, b"released")
            tunnels.state(sandbox, "grace")
            stillness.enter_context(Stillness(tunnels))
        tunnels.place(sandbox, two)
    pass_both_ways(client, two.serve())


def test_a_worker_that_answers_while_the_relay_is_stopped_has_answered(tunnels):
    worker = tunnels.worker()
    client = tunnels.ask(tunnels.sandbox(worker))
    upstream = worker.take()
    with Stillness(tunnels):
        worker.accept(upstream)
    pass_both_ways(tunnels.accepted(client), upstream)


# ---- limits ----


def test_too_many_tunnels_of_a_sandbox_or_an_organisation(made):
    tunnels = made(max_tunnels_per_sandbox=2, max_tunnels_per_org=3)
    worker = tunnels.worker()
    one, two = (tunnels.sandbox(worker, org="acme") for _ in range(2))

    def bearer(sandbox):
        return {"route": "secure", "headers": [tunnels.cell.bearer(sandbox, org="acme")]}

    first = tunnels.open(worker, one, **bearer(one))
    tunnels.open(worker, one, **bearer(one))
    assert tunnels.refused(one, **bearer(one)) == (503, "too_many_tunnels")
    tunnels.open(worker, two, **bearer(two))
    assert tunnels.refused(two, **bearer(two)) == (503, "too_many_tunnels")
    first[0].close_with(1000)
    first[1].closed()
    until(lambda: len(tunnels.tunnels(one)) == 1)
    tunnels.open(worker, two, **bearer(two))


def limited(tunnels, limit):
    return tunnels.metric(f'cellgate_relay_limited_total{{limit="{limit}"}}')


def test_too_many_tunnels_of_a_token(made):
    """Whatever sandboxes it opens them to, and before their workers answer."""
    tunnels = made(max_tunnels_per_token=2)
    worker = tunnels.worker()
    sandboxes = [tunnels.sandbox(worker, org="acme") for _ in range(3)]
    bearers = [{"route": "secure", "headers": [tunnels.cell.bearer("*", org="acme", jti=name)]} for name in ("one", "two")]
    first = tunnels.open(worker, sandboxes[0], **bearers[0])
    client = tunnels.ask(sandboxes[1], **bearers[0])
    upstream = worker.take()
    assert tunnels.refused(sandboxes[2], **bearers[0]) == (503, "too_many_tunnels")
    assert limited(tunnels, "token") == 1
    pass_both_ways(*tunnels.open(worker, sandboxes[2], **bearers[1]))
    worker.accept(upstream)
    pass_both_ways(tunnels.accepted(client), upstream)
    first[0].close_with(1000)
    first[1].closed()
    until(lambda: not tunnels.tunnels(sandboxes[0]))
    pass_both_ways(*tunnels.open(worker, sandboxes[0], **bearers[0]))


def test_by_default_nobody_takes_all_places(made):
    """Of 16: a sandbox two, a token two, an organisation four, and all that are only told why not two."""
    tunnels = made(max_tunnels=16)
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    for _ in range(2):
        tunnels.open(worker, sandbox)
    assert tunnels.refused(sandbox) == (503, "too_many_tunnels")
    assert limited(tunnels, "sandbox") == 1
    sandboxes = [tunnels.sandbox(worker, org="acme") for _ in range(3)]
    bearer = {"route": "secure", "headers": [tunnels.cell.bearer("*", org="acme", jti="all")]}
    for name in sandboxes[:2]:
        tunnels.open(worker, name, **bearer)
    assert tunnels.refused(sandboxes[2], **bearer) == (503, "too_many_tunnels")
    assert limited(tunnels, "token") == 1
    own = [{"route": "secure", "headers": [tunnels.cell.bearer(name, org="acme")]} for name in sandboxes]
    for name, one in list(zip(sandboxes, own))[1:]:
        tunnels.open(worker, name, **one)
    assert tunnels.refused(sandboxes[0], **own[0]) == (503, "too_many_tunnels")
    assert limited(tunnels, "org") == 1
    refused = [tunnels.accepted(tunnels.ask(sandboxes[0], "closing")) for _ in range(2)]  # their Closes are not answered
    assert tunnels.answer(tunnels.ask(sandboxes[0], "closing"))[0] in (101, 503)
    assert limited(tunnels, "refused") == 1
    assert [client.closed()[0] for client in refused] == [4401, 4401]


def test_idle_old_and_long(made):
    tunnels = made(idle="1s", max_message="64KiB")
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    pass_both_ways(client, upstream, b"x" * 65532)
    client.say(b"x" * 65537)
    assert client.closed() == (1009, "message too big")
    client, upstream = tunnels.open(worker)
    client.say(b"", PING)  # is no use of it
    assert client.closed() == (1001, "idle")
