# SPDX-License-Identifier: MIT
"""What the directory says of a sandbox reaches its tunnels: it moves, wakes, stops, is removed; a token is revoked."""

import asyncio
import re
import socket
import time
from types import SimpleNamespace

import pytest
from cell import AT_ONCE, closed_port, on_worker, until, worker_command
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways, route
from worker import start
from websockets.exceptions import ConnectionClosed
from websockets.legacy.client import connect as websocket

HOLD = 0.5  # seconds that `brief` holds an upgrade


@pytest.fixture(scope="module")
def tunnels(cells):
    direct = {"name": "page", "path": "/page/{sandbox}/{rest...}", "upgrade": True, "need": "http", "refuse": "close"}
    tunnels = Tunnels(cells(config={"relay": QUICK | {"dial_timeout": "20s"}, "routes": [*ROUTES, direct, route("brief", hold=f"{int(HOLD * 1000)}ms")]}))
    yield tunnels
    tunnels.close()


@pytest.fixture
def workers(tunnels):
    return tunnels.worker(), tunnels.worker()


# ---- announced moves ----


def test_an_announced_move_goes_to_the_new_worker(tunnels, workers):
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, old = tunnels.open(one, sandbox)
    tunnels.place(sandbox, two)
    new = two.serve()
    assert old.closed() == (1000, "moved")
    pass_both_ways(client, new)
    assert not one.dials(0.05)


# ---- applications whose state lives in the connection: they reconnect by themselves ----


@pytest.mark.parametrize("route", ["own", "application"])
@pytest.mark.parametrize("how", ["lost", "moved"])
def test_a_tunnel_that_is_not_redialled_ends_with_its_worker(tunnels, workers, route, how):
    """The server speaks first: its greeting never comes in the middle of a conversation. `application` says nothing of
    resuming."""
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox, route)
    upstream.say(b"greeting")
    assert client.message() == (2, b"greeting")
    pass_both_ways(client, upstream)
    began = time.monotonic()
    if how == "lost":
        upstream.reset()
    else:
        tunnels.place(sandbox, two)
    assert client.closed() == (1012, "worker lost")
    assert time.monotonic() - began < AT_ONCE
    assert not one.dials(0.05) and not two.dials(0.05)
    tunnels.gone(sandbox)
    assert tunnels.metric(f'cellgate_relay_tunnels_closed_total{{route="{route}",reason="not_redialled"}}') > 0


@pytest.mark.parametrize("until_then", ["away", "refuses"])
def test_the_next_connection_is_held_until_there_is_a_worker(tunnels, workers, until_then):
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox, "own")
    if until_then == "away":
        tunnels.place(sandbox, state="migrating")
    else:
        tunnels.place(sandbox, SimpleNamespace(url=f"http://127.0.0.1:{closed_port()}"))
    upstream.reset()
    assert client.closed() == (1012, "worker lost")
    again = tunnels.ask(sandbox, "own")
    assert again.silent(0.3)
    tunnels.place(sandbox, two)
    upstream = two.serve()
    upstream.say(b"greeting")
    assert tunnels.accepted(again).message() == (2, b"greeting")


def test_with_overlap_the_old_worker_serves_until_the_new_one_is_there(tunnels, workers):
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, old = tunnels.open(one, sandbox, "both")
    tunnels.place(sandbox, two)
    arriving = two.take()
    pass_both_ways(client, old, b"still the old one")
    two.accept(arriving)
    assert old.closed() == (1000, "moved")
    pass_both_ways(client, arriving)


def test_the_old_worker_serves_until_the_new_one_is_connected_to_but_no_longer_than_a_moment(tunnels, workers):
    """The new worker's queue is full: a connection to it is not made."""
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, old = tunnels.open(one, sandbox)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        began = time.monotonic()
        tunnels.place(sandbox, SimpleNamespace(url=f"http://127.0.0.1:{full.getsockname()[1]}"))
        assert old.closed() == (1000, "moved")
        assert time.monotonic() - began >= 0.1
    tunnels.place(sandbox, two)
    pass_both_ways(client, two.serve())


def test_what_is_said_between_two_workers_arrives_in_order(tunnels, workers):
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, old = tunnels.open(one, sandbox)
    said = [b"%d" % i for i in range(400)]
    for word in said[:200]:
        client.say(word)
    tunnels.cell.set_sandboxes(**{sandbox: {"worker": two.url, "epoch": next(tunnels.numbers)}})
    for word in said[200:]:
        client.say(word)
    new, heard = two.serve(), []
    while (frame := old.hear())[0] != 8:
        heard.append(frame[1])
    while len(heard) < len(said):
        heard.append(new.message()[1])
    assert heard == said


def test_gaps_of_announced_moves_are_short(tunnels, workers, record_property):
    """20 tunnels that move five times. The bound leaves room for a busy machine; the figures go into the report."""
    one, two = workers
    before, gaps = tunnels.metric("cellgate_relay_gap_seconds_sum"), tunnels.metric("cellgate_relay_gap_seconds_count")
    sandbox = tunnels.sandbox(one)
    clients = [tunnels.open(one, sandbox)[0] for _ in range(20)]
    for target in (two, one, two, one, two):
        tunnels.cell.set_sandboxes(**{sandbox: {"worker": target.url, "epoch": next(tunnels.numbers)}})
        upstreams = [target.serve() for _ in clients]
        until(lambda: {t["state"] for t in tunnels.tunnels(sandbox)} == {"serving"}, 10)
    assert tunnels.metric("cellgate_relay_gap_seconds_count") - gaps == 100
    mean = (tunnels.metric("cellgate_relay_gap_seconds_sum") - before) / 100
    record_property("mean_gap_seconds", mean)
    assert mean < 0.2
    for number, upstream in enumerate(upstreams):
        upstream.say(b"%d" % number)
    assert {client.message()[1] for client in clients} == {b"%d" % n for n in range(20)}


# ---- many moves at once: a few at a time, the others are served by the old worker until then ----


def told_to_move(tunnels, **records):
    """Of several sandboxes in one change of the directory."""
    epoch = next(tunnels.numbers)
    tunnels.cell.set_sandboxes(**{sandbox: record | {"epoch": epoch} for sandbox, record in records.items()})


def test_a_worker_that_hangs_holds_up_nobody_elses_move(tunnels, workers):
    """Its dials take all of dial_timeout; there are more of them than may be under way."""
    one, hangs = workers
    good = tunnels.worker()
    stuck, free = f"sb-{next(tunnels.numbers)}", f"sb-{next(tunnels.numbers)}"
    for sandbox in (stuck, free):
        tunnels.place(sandbox, one)
    stuck_clients = [tunnels.open(one, stuck)[0] for _ in range(100)]
    clients = [tunnels.open(one, free)[0] for _ in range(40)]
    began = time.monotonic()
    told_to_move(tunnels, **{stuck: {"worker": hangs.url}, free: {"worker": good.url}})
    upstreams = [good.serve() for _ in clients]
    assert time.monotonic() - began < AT_ONCE
    for number, upstream in enumerate(upstreams):
        upstream.say(b"%d" % number)
    assert {client.message()[1] for client in clients} == {b"%d" % n for n in range(40)}
    tunnels.place(stuck, state="stopped")
    assert {client.closed() for client in stuck_clients} == {(1000, "sandbox stopped")}


def test_who_is_told_something_else_meanwhile_heeds_that(tunnels, workers):
    """The sandbox stops, or the client goes, while most tunnels wait for their turn."""
    one, two = workers
    sandbox = tunnels.sandbox(one)
    clients = [tunnels.open(one, sandbox)[0] for _ in range(120)]
    told_to_move(tunnels, **{sandbox: {"worker": two.url}})
    for client in clients[::3]:
        client.close()
    tunnels.cell.set_sandboxes(**{sandbox: {"state": "stopped", "epoch": next(tunnels.numbers)}})
    for number, client in enumerate(clients):
        assert number % 3 == 0 or client.closed() == (1000, "sandbox stopped")
    until(lambda: not tunnels.tunnels(sandbox), 10)


def test_who_is_told_of_many_workers_in_turn_ends_up_with_the_last_one(tunnels, workers):
    """Faster than a hundred tunnels can go. All workers but the first are cell-workers, which echo."""
    one, _ = workers
    sandbox = tunnels.sandbox(one)
    clients = [tunnels.open(one, sandbox, session="ws-echo")[0] for _ in range(100)]
    started = [start(*worker_command("/nonexistent")) for _ in range(4)]
    try:
        for _, address in started:
            told_to_move(tunnels, **{sandbox: on_worker(f"http://{address}")})
        until(lambda: {(t["state"], t["worker"]) for t in tunnels.tunnels(sandbox)} == {("serving", started[-1][1])}, 20)
        for number, client in enumerate(clients):
            client.say(b"%d" % number)
            assert client.message()[1] == b"%d" % number
    finally:
        for process, _ in started:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()


def test_a_change_that_is_no_move_is_not_noticed(tunnels, workers):
    one, _ = workers
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    tunnels.place(sandbox, one)
    tunnels.place(sandbox, one, state="migrating")
    tunnels.place(sandbox, state="migrating")
    pass_both_ways(client, upstream)
    assert not one.dials(0.05)


def test_an_older_epoch_is_ignored(tunnels, workers):
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    tunnels.cell.set_sandboxes(**{sandbox: {"worker": two.url, "epoch": 1}})
    tunnels.known()
    pass_both_ways(client, upstream)
    assert not two.dials(0.05)


def test_a_tunnel_of_a_direct_route_stays_with_its_worker(tunnels, workers):
    """HAProxy asks when it opens and not again; what is opened later goes where the directory says then."""
    one, two = workers
    sandbox = tunnels.sandbox(one)
    bearer = [tunnels.cell.bearer(sandbox)]
    client, upstream = tunnels.open(one, sandbox, "page", headers=bearer)
    tunnels.place(sandbox, two)
    pass_both_ways(client, upstream, b"moved")
    later = tunnels.open(two, sandbox, "page", headers=bearer)
    tunnels.place(sandbox, state="stopped", not_before=int(time.time()) + 60)
    for pair in ((client, upstream), later):
        pass_both_ways(*pair, b"stopped and revoked")
    refused = tunnels.accepted(tunnels.ask(sandbox, "page", headers=bearer))
    assert refused.closed() == (4401, "token_revoked")
    upstream.reset()
    assert client.ended() and not one.dials(0.05)


# ---- without a worker ----


@pytest.mark.parametrize("state", ["migrating", "waking", "suspended"])
def test_a_tunnel_waits_for_a_sandbox_without_a_worker(tunnels, workers, state):
    one, two = workers
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    tunnels.place(sandbox, state=state)
    upstream.reset()
    tunnels.state(sandbox, "redialling")
    client.say(b"meanwhile")
    tunnels.place(sandbox, two)
    new = two.serve()
    assert new.message() == (2, b"meanwhile")
    pass_both_ways(client, new)


def test_a_migrating_sandbox_with_a_worker_is_served_by_it(tunnels, workers):
    one, two = workers
    sandbox = tunnels.sandbox(one, state="migrating")
    client, upstream = tunnels.open(one, sandbox)
    upstream.reset()
    pass_both_ways(client, one.serve())
    tunnels.place(sandbox, two)
    pass_both_ways(client, two.serve())


@pytest.mark.parametrize("state", ["waking", "migrating"])
def test_an_upgrade_is_held_until_the_sandbox_has_a_worker(tunnels, workers, state):
    one, _ = workers
    sandbox = tunnels.sandbox(state=state)
    client = tunnels.ask(sandbox)
    assert client.silent(0.2)
    tunnels.place(sandbox, one)
    upstream = one.serve()
    pass_both_ways(tunnels.accepted(client), upstream)


@pytest.mark.parametrize("state,error", [("waking", "sandbox_waking"), ("migrating", "sandbox_migrating")])
def test_an_upgrade_is_held_no_longer_than_hold(tunnels, state, error):
    sandbox = tunnels.sandbox(state=state)
    began = time.monotonic()
    status, fields, document = tunnels.answer(tunnels.ask(sandbox, "brief"))
    assert HOLD * 0.9 <= time.monotonic() - began < HOLD + 10
    assert (status, document["error"], document["retryable"]) == (503, error, True) and "retry-after" in fields


def test_a_held_upgrade_learns_that_the_sandbox_has_stopped(tunnels):
    sandbox = tunnels.sandbox(state="waking")
    client = tunnels.ask(sandbox)
    until(lambda: tunnels.tunnels(sandbox))
    tunnels.place(sandbox, state="stopped")
    status, _, document = tunnels.answer(client)
    assert (status, document["error"]) == (410, "sandbox_stopped")


# ---- the end ----


@pytest.mark.parametrize("record,sees", [({"state": "stopped"}, (1000, "sandbox stopped")), ({}, (1000, "sandbox not found"))])
@pytest.mark.parametrize("there", ["serving", "redialling"])
def test_the_end_of_a_sandbox_is_told_at_once(tunnels, workers, record, sees, there):
    one, _ = workers
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    if there == "redialling":
        one.listener.close()
        upstream.reset()
        tunnels.state(sandbox, "redialling")
    began = time.monotonic()
    tunnels.place(sandbox, **record)
    assert client.closed() == sees
    assert client.ended() and time.monotonic() - began < 10  # a redial would go on for 30 s
    if there == "serving":
        assert upstream.closed() == (1001, sees[1])


def test_a_revoked_token_closes_its_tunnel_and_no_other(tunnels, workers):
    one, _ = workers
    sandbox, now = tunnels.sandbox(one), int(time.time())
    old = tunnels.open(one, sandbox, "secure", headers=[tunnels.cell.bearer(sandbox, iat=now - 60)])
    new = tunnels.open(one, sandbox, "secure", headers=[tunnels.cell.bearer(sandbox, iat=now)])
    tunnels.place(sandbox, one, not_before=now - 30)
    assert old[0].closed() == (1008, "token revoked")
    assert old[1].closed() == (1001, "token revoked")
    pass_both_ways(*new)
    assert tunnels.refused(sandbox, "secure", headers=[tunnels.cell.bearer(sandbox, iat=now - 60)]) == (401, "token_revoked")


def test_a_revoked_token_is_not_redialled_with(tunnels, workers):
    """The news comes while there is no worker."""
    one, _ = workers
    sandbox, now = tunnels.sandbox(one), int(time.time())
    client, upstream = tunnels.open(one, sandbox, "secure", headers=[tunnels.cell.bearer(sandbox, iat=now - 60)])
    tunnels.place(sandbox, state="migrating")
    upstream.reset()
    tunnels.state(sandbox, "redialling")
    tunnels.place(sandbox, one, not_before=now - 30)
    assert client.closed() == (1008, "token revoked")
    assert not one.dials(0.05)


# ---- refusals that a browser can read ----


@pytest.mark.parametrize("route", ["closing", "page"])
@pytest.mark.parametrize(
    "code,reason,record,claims",
    [
        (4401, "token_missing", None, None),
        (4401, "token_expired", None, {"ttl": -100}),
        (4403, "wrong_sandbox", None, {"sandbox": "another"}),
        (4404, "sandbox_not_found", None, {}),
        (4410, "sandbox_stopped", {"state": "stopped"}, {}),
    ],
)
def test_a_refusal_is_a_close_where_the_route_says_so(tunnels, route, code, reason, record, claims):
    sandbox = tunnels.sandbox(**record) if record else "nobody"
    headers = [] if claims is None else [tunnels.cell.bearer(**({"sandbox": sandbox} | claims))]

    async def visit():
        async with websocket(f"ws://127.0.0.1:{tunnels.cell.http}/{route}/{sandbox}/s1", extra_headers=headers) as ws:
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(ws.recv(), 10)
        return closed.value.rcvd

    close = asyncio.run(visit())
    assert (close.code, close.reason) == (code, reason)


def lines_of(tunnels, sandbox):
    log = (tunnels.cell.run_dir / "relay.log").read_text()
    return [line for line in log.splitlines() if re.search(rf"sandbox={sandbox}\b", line)]


def test_the_log_tells_each_end_and_nothing_secret(tunnels, workers):
    one, _ = workers
    sandbox = tunnels.sandbox(one, org="acme")
    bearer = tunnels.cell.bearer(sandbox, sub="alice", jti="j-1", org="acme")
    client, upstream = tunnels.open(one, sandbox, "secure", headers=[bearer], query="?secret=hidden")
    pass_both_ways(client, upstream)
    tunnels.place(sandbox, state="stopped")
    client.closed()
    tunnels.gone(sandbox)
    until(lambda: any("tunnel ended" in line for line in lines_of(tunnels, sandbox)), 10, "the log has a thread of its own")
    log, lines = (tunnels.cell.run_dir / "relay.log").read_text(), lines_of(tunnels, sandbox)
    assert "tunnel opened" in lines[0] and "sub=alice" in lines[0] and "jti=j-1" in lines[0] and "org=acme" in lines[0]
    assert "tunnel ended" in lines[-1] and "reason=sandbox_stopped" in lines[-1] and "redials=0" in lines[-1]
    assert "hidden" not in log and bearer[1].split()[1] not in log
