# SPDX-License-Identifier: MIT
"""What all tunnels hold together stays within relay.memory, whatever they do, and a small one beside them does not notice.
CELLGATE_LONG=1 takes 600 tunnels."""

import contextlib
import os
import re
import select
import selectors
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from cell import AT_ONCE, SANITIZED, until
from direct import BINARY, CONTINUATION, PONG, TEXT, Direct, frame

LEAST = 32 << 10  # of a tunnel, however short memory is (docs/relay.md)
THREADS, BUFFER = 2, 256 << 10
COUNT, MEMORY = (600, 16 << 20) if os.environ.get("CELLGATE_LONG") else (100, 2 << 20)
ALLOCATOR = 12 << 20  # what malloc keeps of memory that was given back
UNLIMITED = {"max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0, "keepalive": "60s", "dead_after": "60s", "dial_timeout": "5s"}


@contextlib.contextmanager
def relay(folder, memory=MEMORY, **settings):
    with Direct(folder, relay=UNLIMITED | {"memory": f"{memory >> 10}KiB"} | settings, agent=False) as direct:
        direct.held = lambda: direct.metric("cellgate_relay_held_bytes")
        direct.short = lambda: direct.metric('cellgate_relay_tunnels_closed_total{route="pty",reason="held_too_much"}')
        yield direct


def small_sockets(worker):
    """What workers' kernels take is not what is measured."""
    worker.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return worker


def resident(direct):
    """Bytes of memory of the relay."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{direct.relay.pid}/status").read_text())[1]) << 10


class Filling:
    """Writes to many peers as much as they take, each the same bytes, until nobody takes any for a while; keeps watch of a number."""

    def __init__(self, peers, watch):
        self.left = {peer: memoryview(data) for peer, data in peers}
        self.most, self.watch = 0, watch
        for peer in self.left:
            peer.sock.setblocking(False)

    def write(self, peer):
        try:
            self.left[peer] = self.left[peer][peer.sock.send(self.left[peer]) :]
        except OSError:  # full, or closed by the relay
            return False
        return True

    def run(self, quiet=0.5, seconds=60):
        since, end = time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < min(since + quiet, end):
            if any([self.write(peer) for peer in self.left if self.left[peer]]):
                since = time.monotonic()
            self.most = max(self.most, self.watch())
        return self


def round_trip(client, upstream, word):
    began = time.monotonic()
    client.say(word)
    assert upstream.message() == (BINARY, word)
    upstream.say(word)
    assert client.message() == (BINARY, word)
    assert time.monotonic() - began < AT_ONCE


@pytest.mark.parametrize("size", [100, 16_000, 60_000, 1 << 20])
def test_tunnels_full_both_ways_hold_no_more_than_memory(tmp_path, size):
    if COUNT > 100 and size != 60_000:
        pytest.skip("the full number with one size of frames")
    with relay(tmp_path) as direct:
        worker = small_sockets(direct.worker())
        neighbour = direct.open(worker, sandbox="sb-small")
        pairs = [direct.open(worker) for _ in range(COUNT)]
        before = resident(direct)
        enough = (4 << 20) // size + 1
        clients = frame(BINARY, b"x" * size, mask=b"wxyz") * enough
        workers = frame(BINARY, b"y" * size) * enough
        stop, failed = threading.Event(), []

        def talk():
            try:
                while not stop.is_set():
                    round_trip(*neighbour, b"%d" % time.monotonic_ns())
            except BaseException as e:
                failed.append(e)

        talking = threading.Thread(target=talk)
        talking.start()
        filling = Filling([(client, clients) for client, _ in pairs] + [(upstream, workers) for _, upstream in pairs], direct.held)
        try:
            filling.run()
        finally:
            stop.set()
            talking.join()
        grown = resident(direct) - before
        print(f"{COUNT} tunnels, {size}: held {filling.most / 1e6:.1f} MB, resident {grown / 1e6:.1f} MB more, of {MEMORY / 1e6:.1f} MB")
        assert not failed, failed
        assert any(filling.left.values()), "nothing pushes back"
        assert filling.most <= MEMORY + COUNT * LEAST + THREADS * BUFFER
        assert SANITIZED or grown <= MEMORY + COUNT * LEAST + ALLOCATOR
        # they were only slow: all that was taken comes, and more passes
        client, upstream = pairs[0]
        for peer, other in [(client, upstream), (upstream, client)]:
            peer.sock.settimeout(60)
            other.sock.settimeout(60)
            writing = threading.Thread(target=peer.sock.sendall, args=(filling.left[peer],))
            writing.start()
            for _ in range(enough):
                assert other.message() == (BINARY, (b"x" if peer is client else b"y") * size)
            writing.join()
        round_trip(client, upstream, b"again")
        assert direct.short() == 0
        for client, upstream in pairs:
            client.reset()
            upstream.reset()
        until(lambda: direct.held() == 0, 10)


class Readers:
    """Workers that read all the time, and acknowledge nothing."""

    def __init__(self, peers):
        self.got = {peer: 0 for peer in peers}
        self.selector, self.stop = selectors.DefaultSelector(), threading.Event()
        for peer in peers:
            peer.sock.setblocking(False)
            self.selector.register(peer.sock, selectors.EVENT_READ, peer)
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop.is_set():
            for key, _ in self.selector.select(0.05):
                try:
                    got = len(key.fileobj.recv(1 << 16))
                except OSError:
                    got = 0
                self.got[key.data] += got
                if not got:
                    self.selector.unregister(key.fileobj)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def numbered(direct, worker, **handed):
    client = direct.ask(worker, resume="cell", **handed)
    upstream = worker.serve("Cell-Resume: 1; recv=0; next=1; buffer=262144")
    client.head()
    return client, upstream


def stay(pairs):
    """Those whose client was not told to go."""
    told = select.select([client.sock for client, _ in pairs], [], [], 0)[0]
    return [(client, upstream) for client, upstream in pairs if client.sock not in told]


def test_messages_that_do_not_end_make_room_for_those_that_do(tmp_path):
    """Kept input is given back when its message is whole and acknowledged. Nobody can be waited for who never ends it."""
    count, memory, size = 30, 2 << 20, 200_000
    with relay(tmp_path, memory=memory, buffer=f"{BUFFER >> 10}KiB") as direct:
        worker = direct.worker()
        small = numbered(direct, worker, sandbox="sb-small")
        pairs = [numbered(direct, worker) for _ in range(count)]
        with Readers([upstream for _, upstream in pairs]) as readers:
            begun = frame(BINARY, b"x" * size, fin=False, mask=b"wxyz")
            filling = Filling([(client, begun) for client, _ in pairs], direct.held).run()
            assert min(readers.got.values()) < size, "nothing pushes back"
            small[0].say(b"word", TEXT)
            assert small[1].message() == (TEXT, b"word")
            until(lambda: direct.short() > 0, 10, "nobody makes room")
            until(lambda: min(readers.got[upstream] for _, upstream in stay(pairs)) >= size, 20, "nobody comes to an end")
            filling.run(quiet=0.1)
            assert filling.most <= memory + count * LEAST + THREADS * BUFFER
            left = stay(pairs)
            assert len(left) >= 4
            gone = next(client for client, upstream in pairs if (client, upstream) not in left)
            gone.sock.setblocking(True)
            assert gone.closed() == (1013, "relay memory short")
        for client, upstream in left:
            client.sock.setblocking(True)
            client.say(b"end", CONTINUATION)
            upstream.sock.setblocking(True)
            assert upstream.hear() == (CONTINUATION, b"end", True)
            upstream.say(b"cr" + struct.pack(">Q", 1), PONG)
        until(lambda: direct.held() <= count * 16384, 10, "what was acknowledged is not given back")
        assert small[0].silent(0.05)
