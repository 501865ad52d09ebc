# SPDX-License-Identifier: MIT
"""What a client sees through the whole stack when its worker is lost, in each way in which a worker can be lost."""

import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from cell import closed_port, on_worker, stop, until, worker_command
from client import frame
from direct import BINARY, CONTINUATION, PING, PONG, TEXT
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways
from worker import start


@pytest.fixture(scope="module")
def made(cells):
    """Cells by what is changed of the relay's settings."""
    known = {}

    def make(**relay):
        key = tuple(relay.items())
        if key not in known:
            known[key] = Tunnels(cells(stays=True, config={"relay": QUICK | relay, "routes": ROUTES, "worker_networks": ["127.0.0.0/8", "10.0.0.0/8"]}))
        return known[key]

    yield make
    for tunnels in known.values():
        tunnels.close()


@pytest.fixture
def tunnels(made):
    return made()


@pytest.fixture
def alert(made):
    """Notices soon when somebody is silent."""
    return made(keepalive="200ms", dead_after="600ms", dial_timeout="10s")


@pytest.fixture
def brief(made):
    """Gives up soon."""
    return made(connect_budget="200ms", redial_budget="400ms", dial_timeout="1s")


class Echo:
    """A cell-worker, which can be killed, stopped and started again at the same address."""

    def __init__(self, prefix=(), address="127.0.0.1:0"):
        self.prefix = prefix
        self.process, self.address = self._start(address)
        self.url = "http://" + self.address
        self.record = on_worker(self.url)

    def _start(self, address):
        return start(*self.prefix, *worker_command("/nonexistent", "--allow-remote", listen=address))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        stop(self.process.pid)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def again(self):
        self.close()
        self.process, _ = self._start(self.address)

    def close(self):
        self.kill()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def echoes():
    made = []

    def make(*arguments):
        made.append(Echo(*arguments))
        return made[-1]

    yield make
    for echo in made:
        echo.close()


def heard(client):
    """The next message. Empty frames keep a client alive that nobody would answer pings for."""
    while (message := client.message()) == (BINARY, b""):
        pass
    return message


def echoed(client, text):
    client.say(text)
    assert heard(client) == (BINARY, text)


# ---- a worker's process ----


def test_a_worker_that_is_killed_and_started_again(tunnels, echoes):
    echo = echoes()
    sandbox = tunnels.sandbox(echo)
    client = tunnels.accepted(tunnels.ask(sandbox, session="ws-echo"))
    echoed(client, b"before")
    echo.kill()
    tunnels.state(sandbox, "redialling")
    client.say(b"during")
    echo.again()
    assert client.message() == (BINARY, b"during")
    echoed(client, b"after")
    client.close_with(1000, b"bye")
    assert client.closed() == (1000, "")  # the worker's answer


def test_a_worker_that_is_killed_and_replaced(tunnels, echoes):
    one, two = echoes(), echoes()
    sandbox = tunnels.sandbox(one)
    client = tunnels.accepted(tunnels.ask(sandbox, session="ws-echo"))
    echoed(client, b"before")
    one.kill()
    tunnels.state(sandbox, "redialling")
    tunnels.place(sandbox, two)
    echoed(client, b"after")


def test_a_worker_that_is_stopped_is_replaced(alert, echoes):
    """Its kernel still answers for it, so only its silence tells."""
    one, two = echoes(), echoes()
    sandbox = alert.sandbox(one)
    client = alert.accepted(alert.ask(sandbox, "quiet", "ws-echo"))
    echoed(client, b"before")
    one.stop()
    client.say(b"lost with the worker")
    alert.state(sandbox, "redialling")
    client.say(b"held")
    alert.place(sandbox, two)
    assert heard(client) == (BINARY, b"held")
    echoed(client, b"after")
    assert alert.redials("silent") >= 1


def test_a_worker_that_is_stopped_for_a_while_is_dialled_again(alert, echoes):
    echo = echoes()
    sandbox = alert.sandbox(echo)
    client = alert.accepted(alert.ask(sandbox, "quiet", "ws-echo"))
    echo.stop()
    alert.state(sandbox, "redialling")
    client.say(b"held")
    echo.go_on()
    assert heard(client) == (BINARY, b"held")


# ---- half-open: no packet tells ----


class Namespace:
    """A network of its own behind a pair of interfaces, which can swallow every packet."""

    def __init__(self):
        self.name = f"cg{os.getpid()}"
        self.net = f"10.{os.getpid() % 200 + 20}.{time.monotonic_ns() % 250}"
        self.here, self.there = self.name + "a", self.name + "b"
        self.run("ip", "netns", "add", self.name)
        try:
            self.run("ip", "link", "add", self.here, "type", "veth", "peer", "name", self.there, "netns", self.name)
            self.run("ip", "address", "add", self.net + ".1/30", "dev", self.here)
            self.run("ip", "link", "set", self.here, "up")
            self.mac = json.loads(self.run("ip", "-n", self.name, "-json", "link", "show", self.there))[0]["address"]
            for command in (["address", "add", self.net + ".2/30", "dev", self.there], ["link", "set", self.there, "up"], ["link", "set", "lo", "up"]):
                self.run("ip", "-n", self.name, *command)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def run(*command):
        return subprocess.run(command, check=True, capture_output=True).stdout

    def inside(self):
        return ["ip", "netns", "exec", self.name]

    def swallow(self):
        """Both ways: in there nobody is known where we are."""
        self.run("ip", "neighbour", "replace", self.net + ".2", "lladdr", self.mac, "nud", "permanent", "dev", self.here)
        self.run("ip", "-n", self.name, "route", "add", "blackhole", self.net + ".1/32")

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)
        subprocess.run(["ip", "link", "delete", self.here], capture_output=True)


@pytest.fixture
def namespace():
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    namespace = Namespace()
    yield namespace
    namespace.close()


def test_a_worker_whose_packets_are_swallowed(alert, echoes, namespace):
    far = echoes(namespace.inside(), namespace.net + ".2:0")
    near = echoes()
    sandbox = alert.sandbox(far)
    client = alert.accepted(alert.ask(sandbox, "quiet", "ws-echo"))
    echoed(client, b"before")
    namespace.swallow()
    alert.place(sandbox, far)  # another epoch, the same worker: no move
    alert.state(sandbox, "redialling")
    client.say(b"held")
    alert.place(sandbox, near)
    assert heard(client) == (BINARY, b"held")
    echoed(client, b"after")


def test_a_worker_that_cannot_be_reached_without_a_packet_is_a_timeout(brief, echoes, namespace):
    far = echoes(namespace.inside(), namespace.net + ".2:0")
    sandbox = brief.sandbox(far)
    namespace.swallow()
    assert brief.refused(sandbox) == (504, "worker_timeout")


# ---- closes and cuts ----


def leave(upstream, how):
    """The worker ends its connection in that way."""
    if how == "reset":
        upstream.reset()
    elif how == "eof":
        upstream.close()
    else:
        upstream.close_with(how)


@pytest.mark.parametrize("how", ["reset", "eof", 1001, 1011, 1012, 1013, 1014])
def test_a_loss_is_redialled(tunnels, how):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    pass_both_ways(client, upstream)
    leave(upstream, how)
    pass_both_ways(client, worker.serve(), b"after")


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1009, 1010, 4001])
def test_what_a_worker_blames_on_the_client_is_passed_on(tunnels, code):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    upstream.close_with(code, "why".encode())
    assert client.closed() == (code, "why")
    assert client.ended() and not worker.dials(0.05)


@pytest.mark.parametrize("code", [1000, None, 3000, 4999])
def test_a_close_without_news_is_the_sessions_end(tunnels, code):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    upstream.close_with(code, b"done" if code else b"")
    assert client.closed() == (code, "done" if code else "")


@pytest.mark.parametrize("code", [1000, None, 3000, 4999])
def test_a_close_before_the_news_of_a_move_is_a_move(tunnels, code):
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    upstream.close_with(code)
    tunnels.cell.set_sandboxes(**{sandbox: {"worker": two.url, "epoch": next(tunnels.numbers)}})
    pass_both_ways(client, two.serve())


@pytest.mark.parametrize("code", [1000, None])
def test_without_an_exit_an_exec_has_not_ended(tunnels, code):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker, route="exec")
    upstream.close_with(code)
    upstream = worker.serve()
    upstream.say(b"\x03\0\0\0\x07")
    upstream.close_with(1000)
    assert client.message() == (BINARY, b"\x03\0\0\0\x07")
    assert client.closed() == (1000, "exec completed")


def test_a_frame_that_is_cut_never_begins(tunnels):
    """Up to 16 KiB a frame goes on whole or not at all."""
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    upstream.send(frame(BINARY, b"x" * 16000)[:9000])
    upstream.close()
    pass_both_ways(client, worker.serve(), b"whole")


@pytest.mark.parametrize("route,sees", [("text", "end"), ("plain", (1012, "message cut"))])
def test_a_message_that_is_cut(tunnels, route, sees):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker, route=route)
    upstream.say(b"first", TEXT, fin=False)
    assert client.hear() == (TEXT, b"first", False)
    upstream.reset()
    if sees != "end":
        assert client.closed() == sees
        return
    assert client.hear() == (CONTINUATION, b"", True)
    pass_both_ways(client, worker.serve())


def test_a_long_message_that_is_cut_within_a_frame(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker, route="text")
    upstream.send(frame(BINARY, b"x" * 100_000)[:60_010])
    got, fin = 0, False
    while got < 60_000:
        opcode, payload, fin = client.hear()
        assert opcode == (CONTINUATION if got else BINARY) and not fin
        got += len(payload)
    upstream.reset()
    assert client.hear() == (CONTINUATION, b"", True)
    pass_both_ways(client, worker.serve())


def test_a_client_that_is_lost_is_told_to_its_worker(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    client.reset()
    assert upstream.closed() == (1001, "client lost")


# ---- redials that do not succeed ----


def test_a_worker_that_refuses_is_unreachable(brief):
    sandbox = brief.sandbox(worker=None)
    brief.cell.set_sandboxes(**{sandbox: {"worker": f"http://127.0.0.1:{closed_port()}"}})
    brief.known()
    assert brief.refused(sandbox) == (502, "worker_unreachable")


def test_a_lost_worker_that_refuses_is_given_up(brief):
    worker = brief.worker()
    client, upstream = brief.open(worker)
    worker.listener.close()
    upstream.reset()
    assert client.closed() == (1011, "upstream unrecoverable")


@pytest.mark.parametrize("status,sees", [("404 Not Found", (1000, "session not found")), ("410 Gone", (1000, "session not found")),
                                         ("401 Unauthorized", (1011, "worker refused")), ("403 Forbidden", (1011, "worker refused"))])
def test_a_redial_that_is_refused_for_good(tunnels, status, sees):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    upstream.reset()
    worker.refuse(status)
    assert client.closed() == sees


@pytest.mark.parametrize("status", ["409 Conflict", "503 Service Unavailable", "200 OK", "302 Found", "101 Switching Protocols"])
def test_a_redial_that_is_refused_for_now_is_repeated(tunnels, status):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    upstream.reset()
    worker.refuse(status)
    pass_both_ways(client, worker.serve())


def test_a_404_right_after_a_move_is_asked_once_more(tunnels):
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, _ = tunnels.open(one, sandbox)
    tunnels.place(sandbox, two)
    two.refuse("404 Not Found")
    pass_both_ways(client, two.serve())


def test_a_second_404_after_a_move_is_believed(tunnels):
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, _ = tunnels.open(one, sandbox)
    tunnels.place(sandbox, two)
    two.refuse("404 Not Found")
    two.refuse("404 Not Found")
    assert client.closed() == (1000, "session not found")


def test_a_worker_that_dies_at_once_each_time_flaps(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    for _ in range(3):
        upstream.reset()
        upstream = worker.serve()
        pass_both_ways(client, upstream)
    upstream.reset()
    assert client.closed() == (1011, "upstream flapping")
    assert not worker.dials(0.05)


# ---- while there is no worker ----


def lost(tunnels):
    """(client, worker, its listener stopped): a tunnel without a worker."""
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    worker.listener.close()
    upstream.reset()
    tunnels.state(sandbox, "redialling")
    return client, worker, sandbox


def back(worker):
    worker.listener = socket.create_server(("127.0.0.1", worker.port))
    worker.listener.settimeout(10)
    return worker.serve()


def test_pings_are_answered_during_a_redial(tunnels):
    client, worker, _ = lost(tunnels)
    for i in range(3):
        client.say(b"ping %d" % i, PING)
        assert client.hear() == (PONG, b"ping %d" % i, True)
    pass_both_ways(client, back(worker))


def test_the_newest_ping_is_answered_if_its_worker_is_lost(tunnels):
    """RFC 6455 section 5.5.3: the Pong of the newest Ping answers the older ones, too."""
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    for i in range(3):
        client.say(b"open %d" % i, PING)
        assert upstream.hear() == (PING, b"open %d" % i, True)
    upstream.say(b"open 0", PONG)
    assert client.hear() == (PONG, b"open 0", True)
    upstream.reset()
    assert client.hear() == (PONG, b"open 2", True)
    pass_both_ways(client, worker.serve())


def test_a_paste_while_there_is_no_worker_arrives_whole_and_in_order(tunnels):
    """1 MiB against a buffer of 256 KiB: the relay stops reading, and TCP does the rest."""
    client, worker, sandbox = lost(tunnels)
    pieces = [struct.pack(">I", i) * 1024 for i in range(256)]

    def paste():
        for piece in pieces:
            client.say(piece)
        client.say(b"end")

    typist = threading.Thread(target=paste)
    typist.start()
    until(lambda: tunnels.tunnels(sandbox)[0]["held"] >= 128 << 10, 10, "nothing is held")
    assert tunnels.tunnels(sandbox)[0]["held"] <= 520 << 10, "memory of a buffer that doubles"
    upstream = back(worker)
    got = [upstream.message()[1] for _ in range(257)]
    typist.join(10)
    assert got == [*pieces, b"end"]
    upstream.say(b"taken")
    assert client.message() == (BINARY, b"taken")


def test_a_paste_in_one_message_arrives_whole(tunnels):
    client, worker, sandbox = lost(tunnels)
    text = os.urandom(1 << 20)
    typist = threading.Thread(target=client.say, args=(text,))
    typist.start()
    until(lambda: tunnels.tunnels(sandbox)[0]["held"] >= 128 << 10, 10, "nothing is held")
    upstream = back(worker)
    assert upstream.message() == (BINARY, text)
    typist.join(10)


def test_a_client_that_closes_during_a_redial_gets_its_answer(tunnels):
    client, _, sandbox = lost(tunnels)
    client.close_with(1000, b"enough")
    assert client.closed() == (1000, "enough")
    tunnels.gone(sandbox)


# ---- a client that is held because its worker is not there ----


def held(tunnels, sandbox):
    """A client whose first dial has failed, on a relay that dials an open tunnel's worker again after a minute."""
    log = tunnels.cell.run_dir / "relay.log"
    client = tunnels.ask(sandbox, "own")
    until(lambda: any("dial failed" in line and f"sandbox={sandbox} " in line for line in log.read_text().splitlines()), 10, "it is not dialled")
    return client


def test_a_client_that_is_held_is_served_within_a_second_of_its_workers_return(made):
    tunnels = made(redial_backoff=("60s",))
    worker = tunnels.worker()
    worker.listener.close()
    client = held(tunnels, tunnels.sandbox(worker))
    worker.listener = socket.create_server(("127.0.0.1", worker.port))
    worker.listener.settimeout(10)
    upstream = worker.serve()
    pass_both_ways(tunnels.accepted(client), upstream)


def test_a_client_that_is_held_is_dialled_at_once_where_the_directory_names_another_worker(made):
    tunnels = made(redial_backoff=("60s",))
    sandbox = tunnels.sandbox()
    tunnels.cell.set_sandboxes(**{sandbox: {"worker": f"http://127.0.0.1:{closed_port()}", "epoch": 1}})
    tunnels.known()
    client = held(tunnels, sandbox)
    worker = tunnels.worker()
    tunnels.place(sandbox, worker)
    upstream = worker.serve()
    pass_both_ways(tunnels.accepted(client), upstream)
