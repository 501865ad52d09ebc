# SPDX-License-Identifier: MIT
"""Without a decision no request goes anywhere: the agent is killed under load, stopped, absent, or talks nonsense."""

import collections
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from cell import ROOT, SOON, end, haproxy_version, listens, stop, stop_listening, until
from client import Http1, request
from false_agent import FalseAgent, actions, frame, set_var, text, typed

CONFIG = {"routes": [{"name": "web", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]}
CLIENTS = 16


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture
def cell(cells, origin):
    return cells(sandboxes={"sb": {"worker": origin.url}}, config=CONFIG)


class Load:
    """Clients with a token and clients without one, until told to stop; what came back is counted."""

    def __init__(self, cell):
        self.cell, self.bearer = cell, cell.bearer("sb")
        self.good, self.bad = collections.Counter(), collections.Counter()
        self.slowest = 0.0
        self.running = True
        self.threads = [threading.Thread(target=self._client, args=(n % 4 == 0,)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _client(self, without_token):
        counts = self.bad if without_token else self.good
        headers = [("Connection", "close")] + ([] if without_token else [self.bearer])
        while self.running:
            started = time.monotonic()
            try:
                counts[request(self.cell.http, "GET", "/s/sb/load", headers).status] += 1
            except OSError as error:
                counts[type(error).__name__] += 1
            self.slowest = max(self.slowest, time.monotonic() - started)

    def stop(self):
        self.running = False
        for thread in self.threads:
            thread.join()


def refused_for_want_of_an_agent(response):
    body = json.loads(response.body)
    assert (response.status, body["error"], body["retryable"]) == (503, "agent_unavailable", True)
    assert response.get("retry-after") == "1"


def test_an_agent_that_is_killed_ten_times_is_not_noticed(cell, origin):
    origin.requests.clear()
    load, away = Load(cell), []
    try:
        for _ in range(10):
            time.sleep(0.5)
            before = cell.pid("agent")
            cell.kill("agent")
            killed = time.monotonic()
            until(lambda: cell.pid("agent") != before and listens(cell.run_dir / "agent.sock"), 20)
            away.append(time.monotonic() - killed)
        time.sleep(0.5)
    finally:
        load.stop()
    print(f"{dict(load.good)} {dict(load.bad)} slowest {load.slowest * 1000:.0f} ms, away for {max(away) * 1000:.0f} ms")
    assert set(load.bad) <= {401, 503} and load.bad[401] > 0, "somebody without a token got in"
    assert set(load.good) <= {200, 503}
    assert load.good[200] == len(origin.requests)
    # A sanitizer's agent takes a second to start, and any does on a machine that is busy: longer than HAProxy waits.
    if haproxy_version() < (3, 1) and max(away) < SOON:
        refused = [line for line in cell.access_log().splitlines() if " 503 " in line]
        # One that is too late is one that a busy machine had no time for; a kill that is noticed would be most of the clients'.
        late = [line for line in refused if "spoe=1" in line]
        assert refused == late and len(late) < 4 * CLIENTS, "\n".join(refused[:10])
    assert load.slowest < 10


def stats(path, command):
    """What HAProxy's own socket says."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(command.encode() + b"\n")
        return b"".join(iter(lambda: sock.recv(65536), b""))


def seen_good(path):
    """By both of HAProxy's backends: until its first check has passed, one that fails is enough."""
    said = stats(path, "show stat")
    return all(re.search(rb"(?m)^%s,agent,.*,L7OK," % backend, said) for backend in (b"cellgate-agent", b"cellgate-agent-again"))


def test_an_agent_that_is_stopped_costs_the_processing_timeout_and_no_more(cell, origin):
    before = len(origin.requests)
    until(lambda: seen_good(cell.run_dir / "haproxy.sock"))
    stop(cell.pid("agent"))
    try:
        for headers in ([cell.bearer("sb")], []):
            started = time.monotonic()
            refused_for_want_of_an_agent(request(cell.http, "GET", "/s/sb/", headers))
            assert 0.9 < time.monotonic() - started < 5
        with Http1(cell.http) as client:
            refused_for_want_of_an_agent(client.upgrade("/s/sb/", [cell.bearer("sb")]))
            assert client.read() == b"", "the connection of a refused upgrade stays open"
    finally:
        cell.kill("agent", signal.SIGCONT)
    assert len(origin.requests) == before
    lines = until(lambda: len(lines := [line for line in cell.access_log().splitlines() if " 503 " in line]) == 3 and lines, 10, "they are not logged")
    assert all(" asked=1 spoe=1" in line for line in lines), lines  # once, and not again
    until(lambda: request(cell.http, "GET", "/s/sb/", [cell.bearer("sb")]).status == 200)


def test_an_agent_that_hangs_is_not_waited_for_once_the_checks_have_found_it(cell):
    for _ in range(3):
        assert request(cell.http, "GET", "/s/sb/", [cell.bearer("sb")]).status == 200  # connections that it leaves open
    stop(cell.pid("agent"))

    def at_once():
        started = time.monotonic()
        refused_for_want_of_an_agent(request(cell.http, "GET", "/s/sb/", [cell.bearer("sb")]))
        return time.monotonic() - started < 0.5

    try:
        until(at_once, 20, "each request waits for an agent that is known to hang")
    finally:
        cell.kill("agent", signal.SIGCONT)
    until(lambda: request(cell.http, "GET", "/s/sb/", [cell.bearer("sb")]).status == 200)


# ---- an agent of our own making ----


class Haproxy:
    """HAProxy alone, with the agent's socket where a test puts one."""

    def __init__(self, folder, cell, files=ROOT / "haproxy", **own):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            self.http, https = one.getsockname()[1], two.getsockname()[1]
        environment = os.environ | {
            "CELLGATE_DIR": str(files),
            "CELLGATE_PLAIN_HTTP": "allow",
            "CELLGATE_CERT": str(cell.run_dir / "cert.pem"),
            "CELLGATE_HTTP": f"127.0.0.1:{self.http}",
            "CELLGATE_HTTPS": f"127.0.0.1:{https}",
            "CELLGATE_STATS": str(folder / "stats.sock"),
            "CELLGATE_AGENT": f"unix@{folder}/agent.sock",
            "CELLGATE_WORKER_TLS": f"unix@{folder}/worker-tls.sock",
        } | own
        command = [*os.environ["HAPROXY"].split(), "-db", "-f", ROOT / "haproxy/haproxy.cfg"]
        with open(folder / "haproxy.log", "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        until(self._listens, 10)

    def _listens(self):
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.http)) == 0

    def sessions(self):
        return stats(self.folder / "stats.sock", "show sess").count(b"fe=cellgate ")


@pytest.fixture(scope="module")
def haproxy(cells):
    cell = cells(config=CONFIG)
    with tempfile.TemporaryDirectory(prefix="cg-") as folder:
        haproxy = Haproxy(Path(folder), cell)
        yield haproxy
        end(haproxy.process)


@pytest.fixture
def false_agent(haproxy):
    agents = []

    def make(answer, hello=None):
        agents.append(FalseAgent(haproxy.folder / "agent.sock", answer, hello))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


LOOPBACK = socket.inet_aton("127.0.0.1")


def direct(port, **changed):
    """A good decision, with variables changed or (None) left out."""
    pairs = {"path": "/", "addr": LOOPBACK, "addr_port": port, "verdict": "direct"}
    last = {"verdict": pairs.pop("verdict")} | {k: v for k, v in changed.items() if k == "verdict"}
    return actions(*[(k, v) for k, v in (pairs | changed | last).items() if v is not None])


NONSENSE = {
    "no verdict": {"verdict": None},
    "a verdict that is unknown": {"verdict": "allow"},
    "a verdict in capitals": {"verdict": "DIRECT"},
    "a verdict that is a number": {"verdict": 1},
    "a verdict that is true": {"verdict": True},
    "no address": {"addr": None},
    "an address that is a name": {"addr": "localhost"},
    "an address that is empty": {"addr": ""},
    "an address outside of the networks": {"addr": socket.inet_aton("192.0.2.1")},
    "the metadata service": {"addr": socket.inet_aton("169.254.169.254")},
    "any address": {"addr": socket.inet_aton("0.0.0.0")},
    "an IPv6 address outside of the networks": {"addr": socket.inet_pton(socket.AF_INET6, "2001:db8::1")},
    "no port": {"addr_port": None},
    "port 0": {"addr_port": 0},
    "a port beyond 65535": {"addr_port": 65536 + 80},
    "a negative port": {"addr_port": -1},
    "a port that is a word": {"addr_port": "http"},
    "no path": {"path": None},
    "a path that is none": {"path": "x"},
    "TLS without a name": {"tls": True},
    "TLS with an empty name": {"tls": True, "sni": ""},
    "TLS with a name that is too long": {"tls": True, "sni": "n" * 254},
    "a refusal without a status": {"verdict": "deny"},
    "a refusal with an odd status": {"verdict": "deny", "status": 200},
    "a redirect to nowhere": {"verdict": "redirect"},
    "a preflight for nobody": {"verdict": "preflight"},
    "a relay outside of the networks": {"verdict": "relay", "addr": socket.inet_aton("192.0.2.1")},
}


def ask(cell, seconds=4.0):
    started = time.monotonic()
    response = request(cell.http, "GET", "/s/sb/")
    assert time.monotonic() - started < seconds
    return response


def refused_until_asked(haproxy, agent, times=3):
    """Each answer is a refusal, the agent's absence before HAProxy has found it included."""
    deadline = time.monotonic() + 15
    while agent.asked < times:
        refused_for_want_of_an_agent(ask(haproxy))
        assert time.monotonic() < deadline, "the false agent is not asked"


def test_the_false_agent_is_believed_when_it_makes_sense(haproxy, false_agent, origin):
    false_agent(direct(origin.port))
    until(lambda: ask(haproxy).status == 200)


@pytest.mark.parametrize("name", NONSENSE)
def test_a_decision_that_makes_no_sense(haproxy, false_agent, origin, name):
    before = len(origin.requests)
    refused_until_asked(haproxy, false_agent(direct(origin.port, **NONSENSE[name])))
    assert len(origin.requests) == before


# Metadata services, and the same within addresses of IPv6.
METADATA = ["169.254.169.254", "169.254.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fe80::1", "fd00:ec2::254", "fd20:ce::254",
            "::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::", "::ffff:100.100.100.200",
            "64:ff9b::192.0.0.192", "2002:a83f:8110::1", "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::"]


@pytest.fixture(scope="module")
def everywhere(cells):
    """HAProxy where workers.lst holds every address."""
    cell = cells(config=CONFIG)
    with tempfile.TemporaryDirectory(prefix="cg-") as folder:
        files = shutil.copytree(ROOT / "haproxy", Path(folder) / "files")
        (files / "workers.lst").write_text("0.0.0.0/0\n::/0\n")
        haproxy = Haproxy(Path(folder), cell, files)
        yield haproxy
        end(haproxy.process)


@pytest.mark.parametrize("address", METADATA)
@pytest.mark.parametrize("verdict", ["direct", "relay"])
def test_metadata_services_are_never_reached(everywhere, origin, address, verdict):
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    agent = FalseAgent(everywhere.folder / "agent.sock", direct(1, verdict=verdict, addr=packed))
    try:
        refused_until_asked(everywhere, agent)
    finally:
        agent.close()


def test_other_addresses_are_where_the_list_holds_all(everywhere, origin):
    agent = FalseAgent(everywhere.folder / "agent.sock", direct(origin.port))
    try:
        until(lambda: ask(everywhere).status == 200)
    finally:
        agent.close()


def garbage_frames(port):
    good = direct(port)
    return {
        "random bytes": lambda s, n: os.urandom(64),
        "zeros": lambda s, n: b"\0" * 64,
        "a huge length": lambda s, n: b"\xff\xff\xff\xff" + b"x" * 64,
        "half a frame": lambda s, n: good(s, n)[:20],
        "an answer of http": lambda s, n: b"HTTP/1.1 200 OK\r\n\r\n",
        "an unknown type": lambda s, n: frame(77, s, n, b""),
        "another stream's answer": lambda s, n: good(s + 1000, n),
        "another frame's answer": lambda s, n: good(s, n + 7),
        "no actions": lambda s, n: frame(103, s, n, b""),
        "an unknown action first": lambda s, n: frame(103, s, n, b"\x09\x01\x02") + good(s, n)[:0],
        "the verdict behind an unknown action": lambda s, n: frame(103, s, n, set_var("path", "/") + b"\x09\x03\x02" + set_var("verdict", "direct")),
        "another scope": lambda s, n: frame(103, s, n, b"".join(set_var(k, v, 1) for k, v in [("path", "/"), ("addr", LOOPBACK), ("addr_port", port), ("verdict", "direct")])),
        "a disconnect": lambda s, n: frame(102, 0, 0, text("status-code") + b"\x03\x00" + text("message") + typed("bye")),
        "the end": lambda s, n: None,
    }


@pytest.mark.parametrize("name", garbage_frames(1))
def test_garbage_on_the_socket(haproxy, false_agent, origin, name):
    before = len(origin.requests)
    refused_until_asked(haproxy, false_agent(garbage_frames(origin.port)[name]))
    assert len(origin.requests) == before


@pytest.mark.parametrize("hello", [b"nonsense", frame(101, 0, 0, b""), frame(103, 0, 0, b"")], ids=["nonsense", "empty", "ack"])
def test_a_handshake_that_is_none(haproxy, false_agent, origin, hello):
    before = len(origin.requests)
    false_agent(direct(origin.port), hello)
    for _ in range(3):
        refused_for_want_of_an_agent(ask(haproxy))
    assert len(origin.requests) == before


@pytest.mark.parametrize("leaves", [True, False], ids=["its socket is gone", "it closes every connection"])
@pytest.mark.parametrize("asks_for", [b"GET", b"POST"])
def test_an_agent_that_goes_while_it_is_asked_and_stays_away(haproxy, false_agent, origin, leaves, asks_for):
    """The question is asked once more, of nobody; the client does not wait for somebody to come."""
    gone = []

    def answer(stream, number):
        if gone:
            if leaves:
                stop_listening(agent.listener)
            agent.hello = b"x"
        return None if gone else direct(origin.port)(stream, number)

    agent = false_agent(answer)
    until(lambda: ask(haproxy).status == 200)
    gone.append(True)
    for _ in range(5):
        started = time.monotonic()
        # a body that does not come: of such a request HAProxy does not know the end
        data = asks_for + b" /s/sb/ HTTP/1.1\r\nHost: cell.test\r\n" + (b"Content-Length: 9\r\n" if asks_for == b"POST" else b"") + b"\r\n"
        with Http1(haproxy.http) as client:
            client.send(data)
            refused_for_want_of_an_agent(client.response())
        assert time.monotonic() - started < 4


def test_an_agent_that_waits_for_a_core_is_waited_for(haproxy, false_agent, origin):
    good = direct(origin.port)
    false_agent(lambda stream, number: time.sleep(0.6) or good(stream, number))
    until(lambda: ask(haproxy).status == 200)


def test_an_agent_that_is_away_for_half_a_second_is_not_noticed(haproxy, false_agent, origin):
    """It goes while it is asked, with its socket, as at a restart."""
    good = direct(origin.port)

    def is_served():
        """Unless it is away for longer than HAProxy asks: on a machine that is busy half a second may be two."""
        goes, back, away = threading.Event(), [], []

        def come_back(since):
            back.append(false_agent(good))
            away.append(time.monotonic() - since)

        def answer(stream, number):
            if not goes.is_set():
                return good(stream, number)
            first.close()
            threading.Timer(0.5, come_back, [time.monotonic()]).start()
            return None

        first = false_agent(answer)
        until(lambda: ask(haproxy).status == 200 and seen_good(haproxy.folder / "stats.sock"))
        goes.set()
        status = ask(haproxy).status
        until(lambda: away, 20)
        back[0].close()
        assert status == 200 or away[0] >= SOON
        return away[0] < SOON

    until(is_served, 60, "the machine is too busy")


def test_how_long_an_answer_may_take_is_the_operators(cells):
    with tempfile.TemporaryDirectory(prefix="cg-") as folder:
        silent = FalseAgent(Path(folder) / "agent.sock", lambda stream, number: b"")
        haproxy = Haproxy(Path(folder), cells(config=CONFIG), CELLGATE_DECISION_TIMEOUT="150")
        try:
            until(lambda: request(haproxy.http, "GET", "/s/sb/").status == 503 and silent.asked and seen_good(haproxy.folder / "stats.sock"), 10, "HAProxy does not find it")
            took = []
            for _ in range(3):
                started = time.monotonic()
                refused_for_want_of_an_agent(request(haproxy.http, "GET", "/s/sb/"))
                took.append(time.monotonic() - started)
            assert 0.14 < min(took) < 0.9, took  # by itself, each would take a second
        finally:
            silent.close()
            end(haproxy.process)


def test_nothing_is_stuck_in_haproxy_afterwards(haproxy):
    """HAProxy 2.6 can forget the timeout of a question; the rules are made so that it does not."""
    until(lambda: haproxy.sessions() == 0, 10, "requests are still there")
