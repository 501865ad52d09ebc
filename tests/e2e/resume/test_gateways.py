# SPDX-License-Identifier: MIT
"""Two gateways in front of the same workers (docs/high-availability.md): a client of Cell-Resume goes on through the other
one, and a balancer (examples/gateways) gives nobody to one without a relay."""

import json
import os
import signal
import socket
import subprocess

import pytest
from cell import ROOT, end, free_port, on_worker, until
from client import request
from resume import Caller
from worker import Ws

EXAMPLES = ROOT / "examples/gateways"
HAPROXY = os.environ.get("HAPROXY", "haproxy")
BALANCER = "127.0.0.2"  # `up` asks from 127.0.0.1, without a PROXY header
LAST = 600000
ROUTE = {"name": "terminal", "path": "/t/{sandbox}", "upgrade": True, "via": "relay", "to": "/terminal", "need": "pty", "resume": "cell", "stream": True}


class Gateway:
    def __init__(self, cells, worker, balancers):
        self.probes = free_port()
        self.cell = cells(
            sandboxes={"sb-1": on_worker(worker, epoch=1)},
            config={"routes": [ROUTE], "relay": {"drain": "500ms"}},
            haproxy=f"{HAPROXY} -f {EXAMPLES}/probes.cfg",
            environment={"CELLGATE_ACCEPT_PROXY": str(balancers), "CELLGATE_PROBES": f"127.0.0.1:{self.probes}"},
        )

    def probe(self):
        return request(self.probes, "GET", "/").status

    def tunnels(self):
        return len(json.loads(self.cell.admin("/tunnels", "relay"))["tunnels"])


@pytest.fixture(scope="module")
def gateways(cells, host, tmp_path_factory):
    balancers = tmp_path_factory.mktemp("lists") / "balancers.lst"
    balancers.write_text(BALANCER)
    worker = f"http://127.0.0.1:{host.worker().port}"
    return [Gateway(cells, worker, balancers) for _ in range(2)]


class Balancer:
    def __init__(self, gateways, folder):
        self.port = free_port()
        self.stats = f"{gateways[0].cell.folder}/b.sock"  # short enough for a socket
        text = (EXAMPLES / "balancer.cfg").read_text()
        changes = {"/run/haproxy/balancer.sock": self.stats, "bind :443": f"bind 127.0.0.1:{self.port}", "inter 2s": f"source {BALANCER} inter 50ms"}
        for number, gateway in enumerate(gateways, 1):
            changes[f"10.0.0.1{number}:443 port 8404"] = f"127.0.0.1:{gateway.cell.http} port {gateway.probes}"
        for what, instead in changes.items():
            assert what in text
            text = text.replace(what, instead)
        (folder / "balancer.cfg").write_text(text)
        self.process = subprocess.Popen([*HAPROXY.split(), "-db", "-f", folder / "balancer.cfg"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_down(self, server):
        """Whether it has taken it out; it may not listen yet."""
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(self.stats)
                sock.sendall(b"show stat gateways 4 -1\n")
                lines = sock.makefile().readlines()
        except OSError:
            return None
        return next("DOWN" in line for line in lines if line.startswith(f"gateways,{server},"))


@pytest.fixture
def balancer(gateways, tmp_path):
    balancer = Balancer(gateways, tmp_path)
    yield balancer
    end(balancer.process)


class Client(Caller):
    """Of a gateway, with a token."""

    def __init__(self, gateway, query="?command=/bin/sh"):
        super().__init__(query)
        self.path, self.bearer = "/t/sb-1" + query, gateway.cell.bearer(need=["pty"])

    def request(self, port, **changes):
        return Ws(port, self.path, [self.bearer, ("Cell-Resume", self.header(**changes))], self.patience, show_control=True)


@pytest.fixture
def begin(tmp_path):
    """A session that counts to LAST, and waits on its way for a line."""
    script = tmp_path / "count"
    script.write_text(f"stty -echo; seq 1 1000; read line; seq 1001 {LAST}\n")

    def make(gateway):
        client = Client(gateway, f"?command=/bin/sh+{script}").dial(gateway.cell.http)
        assert client.wait(lambda: b"\n1000\r" in client.output)
        return client

    return make


def count_on(client, gateway):
    """Through that one each number comes once."""
    client.dial(gateway.cell.http)
    client.say(b"\n")
    assert client.wait(lambda: client.end, 60)
    assert client.output.replace(b"\r", b"") == b"".join(b"%d\n" % i for i in range(1, LAST + 1))
    assert client.end == (1000, "process exited")


def test_it_goes_on_through_another_gateway_when_one_is_killed(gateways, begin):
    client = begin(gateways[0])
    gateways[0].cell.kill("relay")
    count_on(client, gateways[1])


def test_it_goes_on_through_another_gateway_when_one_drains(gateways, begin):
    client = begin(gateways[1])
    gateways[1].cell.kill("relay", signal.SIGTERM)
    assert client.wait(lambda: client.close)
    assert client.close == (1012, "relay restarting")
    until(lambda: gateways[0].probe() == 200, 10)
    count_on(client, gateways[0])


def test_a_balancer_gives_nobody_to_a_gateway_without_a_relay(gateways, balancer):
    until(lambda: [balancer.is_down(server) for server in ("gate1", "gate2")] == [False, False], 10)
    clients = [Client(gateways[0]).dial(balancer.port) for _ in range(2)]
    assert [gateway.tunnels() for gateway in gateways] == [1, 1]
    gateways[0].cell.kill("relay", signal.SIGSTOP)
    until(lambda: gateways[0].probe() == 503, 15, "the probe does not say that the relay hangs")
    until(lambda: balancer.is_down("gate1"), 10, "the balancer does not take it out")
    clients += [Client(gateways[1]).dial(balancer.port) for _ in range(3)]
    assert gateways[1].tunnels() == 4
    gateways[0].cell.kill("relay", signal.SIGCONT)
    until(lambda: gateways[0].tunnels() == 0, 10, "its client was not told")
    until(lambda: not balancer.is_down("gate1"), 10, "it does not come back")
    for client in clients:
        client.drop()
