# SPDX-License-Identifier: MIT
"""How long a change that the directory announces takes to reach a live tunnel, through each kind: from the announcement to the dial
of the new worker. Prints the distribution; with CELLGATE_LONG=1."""

import json
import os
import time

import pytest
from plane import FakePlane
from redis_server import Redis
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

pytestmark = pytest.mark.skipif(not os.environ.get("CELLGATE_LONG"), reason="a measurement")
AIM = {"file": 0.150, "http": 0.050, "redis": 0.050}  # seconds
MOVES = 100


class ByFile:
    def __init__(self, _):
        pass

    def options(self):
        return {"kind": "file", "path": "sandboxes.json"}

    def tell(self, cell, sandbox, record):
        cell.set_sandboxes(**{sandbox: record})

    def close(self):
        pass


class ByPlane:
    def __init__(self, _):
        self.plane = FakePlane()
        self.close = self.plane.close

    def options(self):
        return {"kind": "http", "url": self.plane.url, "ttl": "1h"}

    def tell(self, _, sandbox, record):
        self.plane.records[sandbox] = record
        self.plane.push(b"event: update\ndata: " + json.dumps({"sandbox": sandbox, "record": record}).encode() + b"\n\n")


class ByRedis:
    def __init__(self, folder):
        self.redis = Redis(folder)
        self.close = self.redis.stop

    def options(self):
        return {"kind": "redis", "server": f"127.0.0.1:{self.redis.port}", "ttl": "1h"}

    def tell(self, _, sandbox, record):
        self.redis.put(**{sandbox: record})


@pytest.mark.parametrize("kind", AIM)
def test_an_announced_change_reaches_a_live_tunnel(cells, tmp_path, kind, record_property):
    way = {"file": ByFile, "http": ByPlane, "redis": ByRedis}[kind](tmp_path)
    try:
        tunnels = Tunnels(cells(config={"directory": way.options(), "relay": QUICK, "routes": ROUTES}))
        try:
            took = moves(tunnels, way)
        finally:
            tunnels.close()
    finally:
        way.close()
    took.sort()
    median, p99 = took[len(took) // 2], took[(len(took) * 99 - 1) // 100]
    record_property("seconds", took)
    print(f"{kind}: {len(took)} moves, median {median * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, longest {took[-1] * 1000:.1f} ms")
    assert median < AIM[kind]


def moves(tunnels, way):
    """Of several tunnels in turn: one that is moved more than ten times in a minute flaps, and ends."""
    workers = [tunnels.worker(), tunnels.worker()]
    took = []
    while len(took) < MOVES:
        sandbox = f"moved-{len(took)}"
        way.tell(tunnels.cell, sandbox, {"worker": workers[0].url, "epoch": 1})
        if isinstance(way, ByFile):
            tunnels.known()
        client, _ = tunnels.open(workers[0], sandbox)
        for number in range(1, 11):
            target = workers[number % 2]
            begun = time.monotonic()
            way.tell(tunnels.cell, sandbox, {"worker": target.url, "epoch": 1 + number})
            upstream = target.take()
            took.append(time.monotonic() - begun)
            target.accept(upstream)
            pass_both_ways(client, upstream)
        client.close()
    return took
