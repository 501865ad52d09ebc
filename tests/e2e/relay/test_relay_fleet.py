# SPDX-License-Identifier: MIT
"""50 workers that are restarted in turn under 2,000 tunnels. Part of `make check` (CELLGATE_LONG=1), and prints what it measured."""

import asyncio
import base64
import os
import re
import resource
import struct

import pytest
from cell import on_worker, until, worker_command
from client import WEBSOCKET, frame, head
from tunnels import QUICK, ROUTES, Tunnels
from worker import start

WORKERS = int(os.environ.get("FLEET_WORKERS", "50"))
TUNNELS = int(os.environ.get("FLEET_TUNNELS", "2000"))
OPENING = 50  # at a time


class Echo:
    def __init__(self):
        self.process, self.address = None, "127.0.0.1:0"
        self.start()
        self.url = "http://" + self.address

    def start(self):
        self.process, self.address = start(*worker_command("/nonexistent", listen=self.address))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def restart(self):
        self.kill()
        self.start()


class Client(asyncio.Protocol):
    """Says numbers; knows the last one that came back, and how it ended if it did."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.bytes, self.open, self.end = b"", asyncio.get_running_loop().create_future(), None
        self.heard, self.news = 0, asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        fields = [(n, key if n == "Sec-WebSocket-Key" else v) for n, v in WEBSOCKET]
        transport.write(head("GET", f"/plain/{self.sandbox}/ws-echo", [("Host", "cell.test"), *fields]))

    def data_received(self, data):
        self.bytes += data
        if not self.open.done():
            if b"\r\n\r\n" not in self.bytes:
                return
            answer, _, self.bytes = self.bytes.partition(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 101 "):
                return self.open.set_exception(ConnectionError(answer.split(b"\r\n")[0]))
            self.open.set_result(self)
        while len(self.bytes) >= 2 and len(self.bytes) >= 2 + self.bytes[1]:
            opcode, payload = self.bytes[0] & 15, self.bytes[2 : 2 + self.bytes[1]]
            self.bytes = self.bytes[2 + self.bytes[1] :]
            if opcode == 8:
                self.end = payload
            elif opcode == 9:
                self.transport.write(frame(10, payload, mask=b"mask"))
            elif opcode == 2:
                number = int.from_bytes(payload, "big")
                assert number > self.heard, "out of order, or twice"
                self.heard = number
                self.news.set()

    def connection_lost(self, _):
        self.end = self.end or b"lost"
        if not self.open.done():
            self.open.set_exception(ConnectionError("lost"))

    def say(self, number):
        self.transport.write(frame(2, struct.pack(">Q", number), mask=b"mask"))

    async def answered(self, number):
        while self.heard < number:
            assert not self.end, self.end
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 30)


def quantile(metrics, name, share):
    """The bound below which that share of the observations lies."""
    buckets = [(float(b), float(n)) for b, n in re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\S+)', metrics, re.M)]
    assert buckets, f"there is no {name}"
    return next(bound for bound, count in buckets if count >= share * buckets[-1][1])


@pytest.fixture
def fleet(cells):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    workers = [Echo() for _ in range(WORKERS)]
    relay = QUICK | {"redial_backoff": ["5ms", "10ms", "20ms", "50ms", "100ms"]}
    tunnels = Tunnels(cells(config={"relay": relay, "routes": ROUTES}))
    tunnels.cell.set_sandboxes(**{f"w-{i}": on_worker(worker.url, epoch=1) for i, worker in enumerate(workers)})
    tunnels.known()
    yield tunnels, workers
    for worker in workers:
        worker.kill()


async def opened(tunnels):
    clients = []
    for first in range(0, TUNNELS, OPENING):
        made = [asyncio.get_running_loop().create_connection(lambda n=n: Client(f"w-{n % WORKERS}"), "127.0.0.1", tunnels.cell.http)
                for n in range(first, min(first + OPENING, TUNNELS))]
        clients += [client for _, client in await asyncio.gather(*made)]
        await asyncio.gather(*(client.open for client in clients[first:]))
    return clients


async def everybody(clients, number):
    for client in clients:
        client.say(number)
    await asyncio.gather(*(client.answered(number) for client in clients))


async def restarts(tunnels, workers):
    clients = await opened(tunnels)
    await everybody(clients, 1)
    loop = asyncio.get_running_loop()
    for number, worker in enumerate(workers):
        await loop.run_in_executor(None, worker.restart)
        for client in clients[number::WORKERS]:
            client.say(2 + number)  # held while there is no worker
    back = loop.run_in_executor(None, until, lambda: tunnels.metric("cellgate_relay_gap_seconds_count") >= TUNNELS, 60, "not all are back")
    await back
    await everybody(clients, 1000)
    lost = tunnels.cell.admin("/metrics", "relay")
    # and now announced: each sandbox moves to the worker of its neighbour
    for number in range(WORKERS):
        tunnels.cell.set_sandboxes(**{f"w-{number}": on_worker(workers[(number + 1) % WORKERS].url, epoch=2)})
    await loop.run_in_executor(None, until, lambda: tunnels.redials("moved") >= TUNNELS, 60, "not all have moved")
    await everybody(clients, 2000)
    assert [client.end for client in clients if client.end] == []
    for client in clients:
        client.transport.abort()
    return lost


def test_50_workers_restarted_under_2000_tunnels(fleet, capsys):
    tunnels, workers = fleet
    lost = asyncio.run(restarts(tunnels, workers))
    both = tunnels.cell.admin("/metrics", "relay")
    with capsys.disabled():
        print(f"\n{WORKERS} workers killed and started again under {TUNNELS} tunnels: no client closed;", end=" ")
        print("; ".join(f"gap p{share * 100:g} <= {quantile(lost, 'cellgate_relay_gap_seconds', share) * 1e3:g} ms" for share in (0.5, 0.99)), end="")
        moved = difference(lost, both)
        print("\nannounced moves of all: " + "; ".join(f"gap p{share * 100:g} <= {quantile(moved, 'cellgate_relay_gap_seconds', share) * 1e3:g} ms" for share in (0.5, 0.99)))
    assert quantile(lost, "cellgate_relay_gap_seconds", 0.99) < 10


def difference(before, after):
    """The histogram's buckets of what came between."""
    old = dict(re.findall(r"^(\S+_bucket\S+) (\S+)", before, re.M))
    return "\n".join(f"{name} {float(count) - float(old.get(name, 0))}" for name, count in re.findall(r"^(\S+_bucket\S+) (\S+)", after, re.M))
