# SPDX-License-Identifier: MIT
"""Tunnels that rest (spoa/relay/tunnel_io/tunnel_rest.c): wherever one was when nothing more came, with the next event it goes on as if it had
never rested. Each test waits until the relay counts all of its tunnels as resting.
CELLGATE_LONG=1 takes more sizes, cuts and heads."""

import contextlib
import os
import random
import selectors
import signal
import ssl

import pytest
from cell import until
from direct import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Direct, frame
from test_relay_frames import ADAPTERS, KINDS
from test_relay_hoard import numbered
from test_relay_unseen import hears, pouring
from tunnels import QUICK, ROUTES, Tunnels

LONG = bool(os.environ.get("CELLGATE_LONG"))
SIZES = [1, 124, 125, 126, 127, 16383, 16384, 16385, 65534, 65535, 65536, 65537, 131072, 1 << 20]
NOT_NOW = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
SETTINGS = {"buffer": "8MiB", "keepalive": "60s", "dead_after": "60s", "stall": "60s", "redial_backoff": ["5ms", "10ms", "20ms"],
            "dial_timeout": "10s", "redial_budget": "30s", "max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0}


def relay(folder, **settings):
    return Direct(folder, relay=SETTINGS | settings)


@pytest.fixture
def direct(tmp_path):
    with relay(tmp_path) as direct:
        yield direct


def rest(relay):
    """Until all of its tunnels do. By the second answer the relay's threads have handled what was there before the first one."""
    until(lambda: relay.metric("cellgate_relay_tunnels{") == relay.metric("cellgate_relay_tunnels_resting"), 20, "they do not rest")


def write(pieces):
    """To each peer its bytes, while what comes to all of these, and to their other ends, is read."""
    with selectors.DefaultSelector() as selector:
        left = {}
        for peer, data, other in pieces:
            left[peer] = memoryview(data)
            for one in (peer, other):
                one.sock.setblocking(False)
                with contextlib.suppress(KeyError):
                    selector.register(one.sock, selectors.EVENT_READ, one)
        while any(left.values()):
            for key, _ in selector.select(0.01):
                with contextlib.suppress(*NOT_NOW):
                    assert key.data.more(), "it has ended"
            for peer, data in left.items():
                with contextlib.suppress(*NOT_NOW):
                    left[peer] = data[peer.sock.send(data) :] if data else data
    for peer, _, other in pieces:
        peer.sock.settimeout(10)
        other.sock.settimeout(10)


def cut(data, places):
    """In pieces, none of which is empty."""
    at = [0, *sorted({min(max(place, 1), len(data) - 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in zip(at, at[1:])]


def message(peer):
    """The payload of the next whole one; control frames may stand anywhere."""
    data, last = b"", False
    while not last:
        opcode, payload, fin = peer.hear()
        assert opcode != CLOSE, payload
        if opcode == PING:
            peer.say(payload, PONG)
        elif opcode != PONG:
            data, last = data + payload, fin
    return data


def each_piece(relay, tunnels):
    """tunnels: of each (peer, its pieces, the other end). One piece of each after the other, with a rest in between."""
    while any(pieces for _, pieces, _ in tunnels):
        write([(peer, pieces.pop(0) if pieces else b"", other) for peer, pieces, other in tunnels])
        rest(relay)


# ---- many ----
def test_all_rest_of_more_than_are_looked_at_at_a_time(tmp_path):
    """LOOKED_AT of tunnel_rest.c is 256. Some end meanwhile, others speak again."""
    with relay(tmp_path, threads=1) as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        ends = [direct.open(worker) for _ in range(600)]
        for at in range(3):
            rest(direct)
            for client, _ in ends:
                client.say(b"word")
            for client, upstream in ends:
                assert upstream.message() == (BINARY, b"word")
            for client, upstream in ends[at::7]:
                client.reset()
                assert upstream.closed()[0] == 1001
            del ends[at::7]
        rest(direct)
        assert direct.metric("cellgate_relay_tunnels_resting") == len(ends)


# ---- within a frame ----
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_frames_are_whole_wherever_their_tunnels_rested_in_them(direct, adapter):
    """On all sizes at once, both ways. Then each worker is lost in its tunnel's rest, and the next one replays with rests in between."""
    chance, talks = random.Random(f"{adapter} 1"), []
    for size in SIZES * (4 if LONG else 1):
        t = KINDS[adapter](direct, adapter)
        typed, said = b"\0" + chance.randbytes(size), chance.randbytes(size)
        t.output, raw = said, {t.client: frame(BINARY, typed, mask=b"wxyz"), t.upstream: frame(BINARY, t.prefix + said)}
        if adapter == "cell":
            t.said.append(said)
        heads = {peer: len(data) - size for peer, data in raw.items()}
        cuts = {peer: cut(data, [chance.randrange(1, heads[peer]), heads[peer], chance.randrange(len(data)), len(data) - 1]) for peer, data in raw.items()}
        talks.append((t, typed, cuts))
    each_piece(direct, [(peer, cuts[peer], other) for t, _, cuts in talks for peer, other in ((t.client, t.upstream), (t.upstream, t.client))])
    for t, typed, _ in talks:
        got = message(t.upstream)
        while len(got) < len(typed):  # input may come in several messages
            got += message(t.upstream)[1:]
        assert got == typed
        t.hears()
        if adapter == "cell":
            t.got += 1
    rest(direct)
    for t, _, _ in talks:
        t.redial()
    rest(direct)
    for t, _, _ in talks:
        t.replay()
    rest(direct)
    for t, _, _ in talks:
        t.say(b"and on")
        t.hears()
        t.types(b"more")
    assert {t.outcomes() for t, _, _ in talks} == {(0, len(talks)) if adapter == "none" else (len(talks), 0)}


def test_frames_are_whole_with_haproxy_in_front(cells):
    tunnels, chance, talks = Tunnels(cells(config={"relay": QUICK, "routes": ROUTES})), random.Random(6), []
    with contextlib.closing(tunnels):
        worker = tunnels.worker()
        for number, size in enumerate(SIZES):
            client, upstream = tunnels.open(worker, tls=number % 2, route="text")
            talks.append((client, upstream, chance.randbytes(size), chance.randbytes(size)))
        for _ in range(2):
            pieces = []
            for client, upstream, typed, said in talks:
                for peer, data, other in ((client, frame(BINARY, typed, mask=b"wxyz"), upstream), (upstream, frame(BINARY, said), client)):
                    pieces.append((peer, cut(data, [chance.randrange(1, 10), chance.randrange(len(data))]), other))
            each_piece(tunnels, pieces)
            for number, (client, upstream, typed, said) in enumerate(talks):
                assert message(upstream) == typed and message(client) == said
                upstream.reset()
                talks[number] = client, worker.serve(), typed, said


def test_a_frame_goes_on_with_the_next_worker_when_its_tunnel_rested_in_it(direct):
    """The worker is lost behind the rest, with most of its frame unsaid."""
    chance, talks = random.Random(2), []
    for adapter in ADAPTERS[1:]:
        for size in (126, 65536, 131072, 600_000):
            t = KINDS[adapter](direct, adapter)
            t.say(os.urandom(1000))
            t.hears()
            t.cut(chance.randbytes(size), chance.randrange(min(size, 100_000)))
            talks.append(t)
    rest(direct)
    for t in talks:
        t.redial()
    rest(direct)
    for t in talks:
        t.replay()
        t.say(b"and on")
    rest(direct)
    for t in talks:
        t.hears()
        t.types(b"more")


def test_fragments_and_control_frames_are_whole_wherever_their_tunnel_rested_in_them(direct):
    client_says = [(TEXT, b"one ", False), (PING, b"p" * 125, True), (CONTINUATION, b"", False), (PONG, b"q" * 124, True), (CONTINUATION, b"two", True)]
    worker_says = [(BINARY, b"", False), (PONG, b"p" * 125, True), (CONTINUATION, b"x" * 126, False), (PING, b"", True), (CONTINUATION, b"y" * 70_000, True)]
    there = b"".join(frame(opcode, payload, fin, b"wxyz") for opcode, payload, fin in client_says)
    back = b"".join(frame(opcode, payload, fin) for opcode, payload, fin in worker_says)
    worker, chance = direct.worker(), random.Random(3)
    direct.set(worker=worker)
    ends, pieces = [direct.open(worker) for _ in range(300 if LONG else 60)], []
    for number, (client, upstream) in enumerate(ends):
        places = [number % len(there), chance.randrange(len(there))], [number, chance.randrange(450), chance.randrange(len(back))]
        pieces += [(client, cut(there, places[0]), upstream), (upstream, cut(back, places[1]), client)]
    each_piece(direct, pieces)
    for client, upstream in ends:
        assert heard(upstream, len(client_says)) == joined(client_says)
        assert heard(client, len(worker_says)) == joined(worker_says)


def joined(frames):
    """What is said in data frames, and the control frames."""
    return b"".join(payload for opcode, payload, _ in frames if opcode < CLOSE), [(opcode, payload) for opcode, payload, _ in frames if opcode >= CLOSE]


def heard(peer, least):
    """The same of what comes, up to the message's end. Large payload may come in more fragments than it was said in."""
    frames, ended = [], False
    while not ended or len(frames) < least:
        frames.append(peer.hear())
        ended = ended or frames[-1][0] < CLOSE and frames[-1][2]
    return joined(frames)


def test_a_ping_is_answered_for_a_worker_that_is_lost_when_its_tunnel_rested_behind_it(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker, stream=1)
    for payload in (b"", b"?", b"p" * 125):
        for sent in (b"older", payload):
            client.say(sent, PING)
            assert upstream.hear() == (PING, sent, True)
        rest(direct)
        upstream.reset()
        upstream = worker.serve()
        assert client.hear() == (PONG, payload, True)  # the newest alone, which stands for all (RFC 6455 section 5.5.3)
        rest(direct)
    client.say(b"word")
    assert upstream.message() == (BINARY, b"word")


# ---- with something held ----
@pytest.mark.parametrize("size", [1000, 16384, 65536, 1 << 20])
def test_what_is_held_for_a_client_that_does_not_read_comes_when_it_reads(direct, size):
    """Large frames wait in a pipe. What nobody takes is no event: the tunnel rests, and its memory still counts."""
    worker, chance = direct.worker(), random.Random(size)
    direct.set(worker=worker)
    ends = [direct.open(worker) for _ in range(4)]
    said = [[chance.randbytes(size) for _ in range((2 << 20) // size)] for _ in ends]
    left = {upstream: memoryview(b"".join(frame(BINARY, one) for one in all_of)) for (_, upstream), all_of in zip(ends, said)}
    while pour(left):
        rest(direct)
    held = [tunnel["held"] for tunnel in direct.tunnels()]
    assert min(held) > 0 and sum(held) == direct.metric("cellgate_relay_held_bytes")
    for (client, upstream), all_of in zip(ends, said):
        pours = pouring(upstream, left[upstream])
        assert all_of == [hears(client) for _ in all_of]
        pours.join()
    rest(direct)
    assert direct.metric("cellgate_relay_held_bytes") == 0


def pour(left):
    """As much as all of them take at once; whether that was something."""
    something = False
    for peer, data in left.items():
        peer.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while data:
                left[peer] = data = data[peer.sock.send(data) :]
                something = True
    return something


def test_where_memory_is_short_those_that_rest_with_most_of_it_give_way(tmp_path):
    """Their clients read nothing; there is no room else for what those of another sandbox have to send whole."""
    with relay(tmp_path, memory="2MiB", buffer="256KiB") as direct:
        worker = direct.worker()
        left = {direct.open(worker)[1]: memoryview(frame(BINARY, b"x" * 1000) * 2000) for _ in range(40)}
        while pour(left):
            rest(direct)
        assert direct.metric("cellgate_relay_held_bytes") > 1 << 20
        others = [numbered(direct, worker, sandbox="sb-other") for _ in range(5)]
        write([(client, frame(BINARY, b"y" * 200_000, mask=b"wxyz"), upstream) for client, upstream in others])
        assert [message(upstream) for _, upstream in others] == [b"y" * 200_000] * len(others)
        assert direct.metric('cellgate_relay_tunnels_closed_total{route="pty",reason="held_too_much"}') > 0
        assert [tunnel["sandbox"] for tunnel in direct.tunnels()].count("sb-other") == len(others)


# ---- what an operator, the agent and the directory do ----
def same(view):
    return {key: value for key, value in view.items() if key not in ("age", "idle")}


def test_the_views_say_the_same_of_a_tunnel_that_rests(direct):
    worker = direct.worker()
    direct.records = {f"sb-{number}": {"worker": worker.url, "org": f"org-{number % 3}"} for number in range(20)}
    direct.write()
    ends = [direct.open(worker, sandbox=f"sb-{number}", org=f"org-{number % 3}", sub="s" * number, session=f"s{number}", id=f"{number}",
                        fields=[f"X-Filler: {'f' * 37 * number}"]) for number in range(20)]
    for number, (client, _) in enumerate(ends):
        client.say(b"x" * number)
    for number, (_, upstream) in enumerate(ends):
        assert upstream.message() == (BINARY, b"x" * number)
    awake = {view["id"]: same(view) for view in direct.tunnels()}
    rest(direct)
    assert {view["id"]: same(view) for view in direct.tunnels()} == awake
    assert [view["sandbox"] for view in direct.control(command="list", sandbox="sb-7")["tunnels"]] == ["sb-7"]
    for sort in ("held", "age", "idle", "bytes", "redials", "gap"):
        shown = direct.control(command="top", sort=sort, rows="20")["shown"]
        assert {view["id"]: view["to_worker"] for view in shown} == {name: view["to_worker"] for name, view in awake.items()}
        assert direct.control(command="top", sort=sort, filter="sss", rows="20")["matching"] == 17
    rest(direct)  # who is only looked at is not woken
    kicked = next(name for name, view in awake.items() if view["sandbox"] == "sb-7")
    assert direct.control(command="kick", id=kicked)["ok"]
    assert ends[7][0].closed() == (1008, "closed by the operator")
    rest(direct)
    direct.relay.send_signal(signal.SIGTERM)
    for number, (client, _) in enumerate(ends):
        assert number == 7 or client.closed() == (1012, "relay restarting")
    assert direct.relay.wait(10) == 0


HEADS = [0, 1, 6, 7, 8, 100, 300, 400, 500, 800, 1000, 1023, 1024, 1025, 2000, 4000, 8000, 12000]


def heads(chance):
    """Fields of which others have all, nothing or some, and those that are mostly the same within themselves."""
    for size in HEADS * (5 if LONG else 1):
        yield "x" * size
        yield "".join(chance.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(size))
        yield ("0123456789" * size)[:size]
        yield "".join(chance.choice("ab") for _ in range(size))


def key(upstream):
    return {"sec-websocket-key": upstream.fields["sec-websocket-key"]}


def test_the_next_worker_gets_the_same_head_behind_a_rest(direct):
    """Whether others sent the same before or not, also when more was sent than is remembered of all."""
    worker, chance = direct.worker(), random.Random(4)
    direct.set(worker=worker)
    fields = [[f"X-Filler: {text}", f"Cookie: c={text[:40]}", f"X-{text[:20]}: 1", "X-Last: 1"] for text in heads(chance)]
    ends = [(lines, *direct.open(worker, stream=1, session=f"s{number}", path=f"/{number}", fields=lines, host=f"127.0.0.1:{worker.port}")) for number, lines in enumerate(fields * 2)]
    for _ in range(2):
        rest(direct)
        for number, (lines, client, upstream) in enumerate(ends):
            upstream.reset()
            again = worker.serve()
            assert again.line == upstream.line and again.fields | key(upstream) == upstream.fields
            ends[number] = lines, client, again
    for _, client, upstream in ends:
        client.say(b"word")
        assert upstream.message() == (BINARY, b"word")


def test_those_that_rest_hear_of_their_moves_from_an_agent_that_was_away(direct):
    one, other = direct.worker(), direct.worker()
    direct.records = {f"sb-{number}": {"epoch": 1, "worker": one.url} for number in range(40)}
    direct.write()
    clients = [direct.open(one, sandbox=f"sb-{number}", stream=1, epoch=1)[0] for number in range(40)]
    rest(direct)
    direct.agent.kill()
    direct.agent.wait()
    (direct.folder / "cellgate-agent.log").unlink()
    direct.start_agent()
    direct.records = {f"sb-{number}": {"epoch": 2, "worker": other.url} for number in range(40)}
    direct.write()
    upstreams = [other.serve() for _ in clients]
    rest(direct)
    for number, client in enumerate(clients):
        client.say(b"%d" % number)
    assert sorted(int(upstream.message()[1]) for upstream in upstreams) == list(range(40))
