# SPDX-License-Identifier: MIT
"""Tunnels that keep what they hold: of clients that went away, of workers that acknowledge nothing, of an application that
writes before it reads. Others must not pay for it."""
import struct
import threading

import pytest
from cell import until
from direct import BINARY, CLOSE, CONTINUATION, PING, PONG, Direct, frame

UNLIMITED = {"max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0, "keepalive": "60s", "dead_after": "60s", "dial_timeout": "5s"}
WINDOW = 32 << 10


def numbered(direct, worker, buffer=262144, **handed):
    """A tunnel whose worker takes that much before it acknowledges."""
    client = direct.ask(worker, resume="cell", **handed)
    upstream = worker.serve(f"Cell-Resume: 1; recv=0; next=1; buffer={buffer}")
    client.head()
    return client, upstream


def fill(client):
    """Two messages, of which the second does not fit into the window: its end is not read."""
    client.send(frame(BINARY, b"a" * 10, mask=b"wxyz"))
    client.send(frame(BINARY, b"x" * (WINDOW - 16), mask=b"wxyz"))


def acknowledge(upstream, number):
    upstream.say(b"cr" + struct.pack(">Q", number), PONG)


def message(upstream):
    """The next one, between whose fragments the relay may acknowledge."""
    data, last = b"", False
    while not last:
        opcode, payload, fin = upstream.hear()
        if opcode == CLOSE:
            raise EOFError(payload)
        if opcode < 8:
            data, last = data + payload, fin
    return data


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_client_that_goes_while_it_is_not_read_is_noticed(tmp_path, how):
    with Direct(tmp_path, relay={"stall": "2s", "keepalive": "500ms"}, agent=False) as direct:
        client, upstream = numbered(direct, direct.worker(), WINDOW, sandbox="sb-1")
        fill(client)
        until(lambda: direct.tunnels()[0]["held"] >= WINDOW - 4096, 10, "it does not hold its window")
        over = threading.Event()

        def answer_pings():
            while not over.is_set():
                try:
                    opcode, payload, _ = upstream.hear()
                    if opcode == PING:
                        upstream.say(payload, PONG)
                except TimeoutError:
                    continue
                except (OSError, EOFError):
                    return

        upstream.sock.settimeout(0.2)
        thread = threading.Thread(target=answer_pings)
        thread.start()
        try:
            getattr(client, how)()
            until(lambda: not direct.tunnels(), 10, "its tunnel stays")
            until(lambda: direct.metric("cellgate_relay_held_bytes") == 0, 10, "something is held for nobody")
        finally:
            over.set()
            thread.join()


def test_a_tunnel_whose_worker_is_not_read_for_want_of_memory_still_hears_acknowledgements(tmp_path):
    """They stand behind output that the client does not read yet: what it writes meanwhile would never be given back."""
    total, size = 300, 4000
    with Direct(tmp_path, relay=UNLIMITED | {"memory": "1MiB", "stall": "60s"}, agent=False) as direct:
        client, upstream = numbered(direct, direct.worker(), sandbox="good")
        upstream.sock.settimeout(1)
        one, sent = frame(BINARY, b"o" * 8000), 0
        try:
            while sent < 29 * len(one):
                sent += upstream.sock.send((one * 29)[sent:])
        except TimeoutError:
            pass
        for peer in (client, upstream):
            peer.sock.settimeout(20)
        rest = one[sent % len(one):] if sent % len(one) else b""  # of the frame that has begun

        def write():
            for _ in range(total):
                client.say(b"i" * size)

        writing = threading.Thread(target=write)
        writing.start()
        heard = 0
        while heard < total:
            opcode, _, fin = upstream.hear()
            if opcode == BINARY and fin:
                heard += 1
                upstream.send(rest)
                rest = b""
                acknowledge(upstream, heard)
        writing.join()


MEMORY, HOARDERS = 2 << 20, 80
SHORT = 'cellgate_relay_tunnels_closed_total{route="pty",reason="held_too_much"}'
OWNERS = {  # of hoarder i; of the others
    "one organisation": (lambda i: {"sandbox": f"bad-{i % 8}", "org": "hoard"}, lambda i: {"sandbox": f"good-{i}"}),
    "organisations": (lambda i: {"sandbox": "bad", "org": "hoard"}, lambda i: {"sandbox": f"good-{i}", "org": f"good-{i % 2}"}),
    "sandboxes": (lambda i: {"sandbox": f"bad-{i % 4}"}, lambda i: {"sandbox": f"good-{i}"}),
}


def begin(client):
    """Of a message as much as fits; its end does not come."""
    client.sock.setblocking(False)
    try:
        client.send(frame(BINARY, b"x" * 200_000, fin=False, mask=b"wxyz"))
    except BlockingIOError:
        pass


HOARDING = {"full windows": (WINDOW, fill), "messages without end": (262144, begin)}


def through(pairs, data):
    """How many of these tunnels bring a message to their worker, which acknowledges it."""
    done = []

    def talk(client, upstream):
        client.sock.settimeout(30)
        upstream.sock.settimeout(30)
        saying = threading.Thread(target=client.say, args=(data,))
        saying.start()
        try:
            whole = message(upstream) == data
        except (OSError, EOFError):  # closed: its client hears why
            whole = False
        if whole:
            acknowledge(upstream, 1)
            done.append(client)
        try:
            saying.join()
        except OSError:
            pass

    threads = [threading.Thread(target=talk, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done)


@pytest.mark.parametrize("clients", ["stay", "go"])
@pytest.mark.parametrize("how", HOARDING)
@pytest.mark.parametrize("owners", OWNERS)
def test_who_holds_all_memory_gives_way_to_others(tmp_path, owners, how, clients):
    """Eighty tunnels together hold more than any other owner, though each of the others' tunnels is larger than any of these."""
    whose, others = OWNERS[owners]
    window, hoard = HOARDING[how]
    with Direct(tmp_path, relay=UNLIMITED | {"memory": f"{MEMORY >> 10}KiB"}, agent=False) as direct:
        worker = direct.worker()
        bad = [numbered(direct, worker, window, **whose(i)) for i in range(HOARDERS)]
        for client, _ in bad:
            hoard(client)
        until(lambda: direct.metric("cellgate_relay_held_bytes") > MEMORY * 3 // 4, 10, "memory is not full")
        if clients == "go":
            for client, _ in bad:
                client.reset()
        good = [numbered(direct, worker, **others(i)) for i in range(8)]
        assert through(good, b"y" * 100_000) == len(good)


def test_of_equals_that_all_lack_memory_some_give_way(tmp_path):
    """Neither all at once nor none: those that stay come to their end."""
    count, first, rest = 24, b"y" * 150_000, b"z" * 50_000
    with Direct(tmp_path, relay=UNLIMITED | {"memory": f"{MEMORY >> 10}KiB"}, agent=False) as direct:
        worker = direct.worker()
        pairs = [numbered(direct, worker, sandbox=f"sb-{i}") for i in range(count)]
        going, done, closed = threading.Event(), [], []

        def write(client):
            try:
                client.say(first, fin=False)
                going.wait(20)
                client.say(rest, CONTINUATION)
            except OSError:
                pass

        def read(client, upstream):
            try:
                assert message(upstream) == first + rest
                acknowledge(upstream, 1)
                done.append(client)
            except (OSError, EOFError):
                closed.append(client)

        threads = []
        for client, upstream in pairs:
            client.sock.settimeout(30)
            upstream.sock.settimeout(30)
            threads += [threading.Thread(target=write, args=(client,)), threading.Thread(target=read, args=(client, upstream))]
        for thread in threads:
            thread.start()
        try:
            until(lambda: direct.metric(SHORT) > 0, 15, "nobody makes room")
        finally:
            going.set()
            for thread in threads:
                thread.join()
        assert len(done) + len(closed) == count
        assert len(done) >= 5 and closed, (len(done), len(closed))  # of eight that memory has room for at a time
        for client in closed:
            assert client.closed() == (1013, "relay memory short")


def test_what_is_closing_gives_way_too(tmp_path):
    """Sessions that have ended, whose clients do not take the last words: that may go on for `stall`."""
    with Direct(tmp_path, relay=UNLIMITED | {"memory": f"{MEMORY >> 10}KiB"}, agent=False) as direct:
        worker = direct.worker()
        bad = [numbered(direct, worker, sandbox=f"bad-{i % 8}", org="hoard") for i in range(30)]
        for client, upstream in bad:
            client.say(b"kept")
            message(upstream)
            upstream.sock.settimeout(0.3)
            upstream.send(b"".join(frame(BINARY, b"o" * 8000) for _ in range(34)) + b"\xf3\x00")  # and a mistake
        until(lambda: {t["state"] for t in direct.tunnels()} == {"closing"}, 10, "not all are closing")
        good = [numbered(direct, worker, sandbox=f"good-{i}", org=f"good-{i % 4}") for i in range(8)]
        assert through(good, b"y" * 100_000) == len(good)
