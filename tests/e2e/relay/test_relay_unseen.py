# SPDX-License-Identifier: MIT
"""Large frames from a worker, whose payload goes through the relay by a pipe (docs/relay.md, Frames): every byte arrives, in
order, whatever is slow, lost, said in between or not to be had. CELLGATE_LONG=1 takes more rounds."""

import contextlib
import os
import random
import resource
import socket
import threading

import pytest
from cell import until
from direct import BINARY, CONTINUATION, PING, PONG, TEXT, Direct, frame

ROUNDS = 20 if os.environ.get("CELLGATE_LONG") else 3
PIPES = 32  # of a thread (spoa/relay/thread/pipes.h)
PATIENT = {"keepalive": "60s", "dead_after": "60s", "stall": "60s", "dial_timeout": "10s", "redial_budget": "30s",
           "max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0, "threads": 1}


@contextlib.contextmanager
def relay(folder, **settings):
    with Direct(folder, relay=PATIENT | settings) as direct:
        direct.held = lambda: direct.metric("cellgate_relay_held_bytes")
        yield direct


def pipes(direct):
    """Descriptors of pipes that the relay has."""
    count = 0
    for name in os.listdir(f"/proc/{direct.relay.pid}/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/{direct.relay.pid}/fd/{name}").startswith("pipe:")
    return count


def hears(client):
    """The next whole message; Pings are answered wherever they stand."""
    heard, fin = bytearray(), False
    while not fin:
        opcode, payload, fin = client.hear()
        if opcode == PING:
            client.say(payload, PONG)
            fin = False
            continue
        assert opcode == (CONTINUATION if heard else BINARY)
        heard += payload
    return bytes(heard)


def pouring(upstream, data, cuts=None):
    """Says it from another thread; with a random number, in pieces of any size."""
    upstream.sock.settimeout(60)

    def run():
        left = memoryview(data)
        while left:
            part = left[: cuts.choice((1, 9, 10, 11, 1000, 65536, 300_000)) if cuts else len(left)]
            upstream.send(part)
            left = left[len(part) :]

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def settled(number, seconds=20):
    """What it is when it has stayed the same for a while."""
    seen = []

    def same():
        seen.append(number())
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    until(same, seconds, "it does not settle")
    return seen[-1]


def test_large_messages_arrive_wherever_they_are_cut(tmp_path):
    chance = random.Random(11)
    with relay(tmp_path) as direct:
        before = pipes(direct)
        for _ in range(ROUNDS):
            client, upstream = direct.open(direct.worker(), stream=1)
            sizes = [65535, 65536, 1, 200_000, 50_000, 126, 3 << 20, *[60_000] * 12, *(chance.randrange(1 << 20) for _ in range(8))]
            said = [os.urandom(size) for size in sizes]
            thread = pouring(upstream, b"".join(frame(BINARY, message) for message in said), chance)
            for message in said:
                assert hears(client) == message
            thread.join()
            client.close()
        assert pipes(direct) > before, "none of it has gone by a pipe"


def test_a_message_in_fragments_with_pings_between_them(tmp_path):
    with relay(tmp_path) as direct:
        client, upstream = direct.open(direct.worker())
        parts = [os.urandom(400_000) for _ in range(4)]
        data = b"".join(frame(TEXT if not i else CONTINUATION, part, fin=i == 3) + frame(PING, b"p%d" % i) for i, part in enumerate(parts))
        thread = pouring(upstream, data)
        heard, pings = b"", []
        while len(heard) < 1_600_000 or len(pings) < 4:
            opcode, payload, fin = client.hear()
            if opcode == PING:
                pings.append((payload, len(heard)))
                continue
            assert opcode == (CONTINUATION if heard else TEXT)
            heard += payload
            assert fin == (len(heard) == 1_600_000)
        thread.join()
        assert heard == b"".join(parts)
        assert pings == [(b"p%d" % i, 400_000 * (i + 1)) for i in range(4)]
        client.say(b"pong", PONG)
        assert upstream.hear() == (PONG, b"pong", True)


def test_a_slow_client_stops_the_worker_and_little_is_held(tmp_path):
    """The rest of what is in the pipe is held, and no more; a client that goes on gets all."""
    with relay(tmp_path) as direct:
        client, upstream = direct.open(direct.worker())
        message = os.urandom(24 << 20)
        thread = pouring(upstream, frame(BINARY, message))
        until(lambda: direct.held() > 0, 20, "nothing is held")
        assert settled(direct.held) <= (256 << 10) + 1024  # and a head
        assert thread.is_alive(), "the worker was not stopped"
        assert pipes(direct) >= 2
        assert hears(client) == message
        thread.join()
        until(lambda: direct.held() == 0, 10, "something is still held")


def test_the_relays_own_pings_stand_between_fragments(tmp_path):
    """It pings a client that does not read, in the middle of a large frame whose rest is in the pipe."""
    with relay(tmp_path, keepalive="100ms", dead_after="60s") as direct:
        client, upstream = direct.open(direct.worker())
        message = os.urandom(8 << 20)
        thread = pouring(upstream, frame(BINARY, message))
        until(lambda: direct.held() > 0, 20, "nothing is held")
        assert settled(direct.held) > 0
        assert hears(client) == message
        thread.join()
        assert "client_silent" not in direct.log()


def loses(worker, upstream, data):
    """It says that, and ends; the next one goes on."""
    upstream.send(data)
    upstream.sock.shutdown(socket.SHUT_WR)
    worker.serve().say(b"and on")


@pytest.mark.parametrize("size", [70_000, 300_000, 2 << 20])
def test_a_worker_that_is_lost_in_the_middle_leaves_what_it_has_said(tmp_path, size):
    chance = random.Random(size)
    with relay(tmp_path, redial_backoff=["5ms"]) as direct:
        worker = direct.worker()
        for _ in range(ROUNDS):
            client, upstream = direct.open(worker, stream=1)
            message = os.urandom(size)
            cut = chance.randrange(66_000, size)
            thread = threading.Thread(target=loses, args=(worker, upstream, frame(BINARY, message)[:cut]))
            thread.start()
            assert hears(client) == message[: cut - 10]
            assert hears(client) == b"and on"
            thread.join()
            client.close()


def test_more_tunnels_than_pipes(tmp_path):
    """All stand still at once; who has no pipe is read."""
    with relay(tmp_path) as direct:
        worker = direct.worker()
        before = pipes(direct)
        pairs = [direct.open(worker) for _ in range(PIPES + 8)]
        messages = [os.urandom(1 << 20) for _ in pairs]
        threads = [pouring(upstream, frame(BINARY, message)) for (_, upstream), message in zip(pairs, messages)]
        settled(direct.held)
        assert pipes(direct) - before == 2 * PIPES
        for (client, _), message in zip(pairs, messages):
            assert hears(client) == message
        for thread in threads:
            thread.join()


def test_no_descriptors_for_pipes(tmp_path):
    with relay(tmp_path) as direct:
        client, upstream = direct.open(direct.worker())
        before = pipes(direct)
        hard = resource.prlimit(direct.relay.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(direct.relay.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{direct.relay.pid}/fd")), hard))
        message = os.urandom(5 << 20)
        thread = pouring(upstream, frame(BINARY, message))
        assert hears(client) == message
        thread.join()
        assert pipes(direct) == before


def test_a_client_that_goes_takes_its_pipe_along(tmp_path):
    """What is left in it is nobody's: the next tunnel gets none of that."""
    with relay(tmp_path) as direct:
        worker = direct.worker()
        before = pipes(direct)
        for i in range(ROUNDS):
            client, upstream = direct.open(worker)
            thread = pouring(upstream, frame(BINARY, bytes([i]) * (4 << 20)))
            until(lambda: direct.held() > 0, 20, "nothing is held")
            settled(direct.held)
            client.reset()
            with contextlib.suppress(OSError):
                thread.join()
            until(lambda: not direct.tunnels() and direct.held() == 0, 10, "the tunnel is still there")
            assert pipes(direct) == before + 2, "a pipe with somebody's bytes is kept"  # beside the thread's own, which is empty
        client, upstream = direct.open(worker)
        message = os.urandom(1 << 20)
        thread = pouring(upstream, frame(BINARY, message))
        assert hears(client) == message
        thread.join()
