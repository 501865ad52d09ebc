# SPDX-License-Identifier: MIT
"""The cell's other door: CONNECTs of programs in sandboxes, through HAProxy, agent and relay, to destinations of the tests."""

import base64
import contextlib
import json
import os
import random
import select
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from cell import AT_ONCE, BIN, SOON, closed_port, listens, stop, stop_listening, until
from client import connect, request
from false_agent import FalseHaproxy, variables
from name_server import SILENT, NameServer

HOST = "origin.example.org"


class Destination:
    """A TCP server whose `serve(socket)` a test gives; it keeps what it accepted."""

    def __init__(self, serve, tls=None):
        self.serve, self.tls, self.accepted = serve, tls, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with contextlib.suppress(OSError), sock:
            self.serve(self.tls.wrap_socket(sock, server_side=True) if self.tls else sock)

    def close(self):
        stop_listening(self.listener)


def echo(sock):
    while data := sock.recv(65536):
        sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


@pytest.fixture
def destinations():
    made = []

    def make(serve=echo, **arguments):
        made.append(Destination(serve, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def names():
    server = NameServer()
    yield server
    server.close()


def config(names=None, hosts=None, **egress):
    return {
        "egress": {"hosts": {HOST: "127.0.0.1"} | (hosts or {}), "private_networks": ["127.0.0.1", "::1"]} | egress,
        "agent": {"name_servers": [names.address]} if names else {},
    }


def rules(*rules, **more):
    return {"worker": "http://127.0.0.1:1", "egress": {"rules": list(rules)} | more}


def allow(port, host=HOST, **more):
    return {"host": host, "ports": [port], "private": True} | more


class Answer:
    def __init__(self, sock, head, rest):
        self.sock, self.rest = sock, rest
        line, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(line.split()[1])
        self.headers = [(n.lower(), v.strip()) for n, _, v in (x.partition(":") for x in lines)]

    def all(self, name):
        return [v for n, v in self.headers if n == name]

    @property
    def body(self):
        """Of a refusal, whose connection is then closed."""
        size = int(self.all("content-length")[0])
        while len(self.rest) < size:
            more = self.sock.recv(65536)
            assert more
            self.rest += more
        assert self.sock.recv(1) == b"" and len(self.rest) == size
        return json.loads(self.rest)

    def read(self, size):
        while len(self.rest) < size:
            more = self.sock.recv(65536)
            assert more, f"the end behind {len(self.rest)} of {size} bytes"
            self.rest += more
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def read_all(self):
        """To the end; a reset is one."""
        taken, self.rest = self.rest, b""
        with contextlib.suppress(ConnectionResetError):
            while more := self.sock.recv(65536):
                taken += more
        return taken


def basic(token, user="sandbox"):
    return "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()


def dial(cell, target, *headers, glued=b"", method="CONNECT", timeout=10):
    sock = connect(cell.egress, timeout=timeout)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {target.removeprefix('http://').rstrip('/')}", *(f"{n}: {v}" for n, v in headers)]
    sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + glued)
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        assert more, f"the end instead of an answer, behind {data}"
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return Answer(sock, head, rest)


def caller(cell, sandbox="sb-1", **claims):
    return ("Proxy-Authorization", "Bearer " + cell.token(sandbox, need=["egress"], **claims))


# ---- bytes ----


def test_what_waits_in_the_relay_goes_on_when_nothing_more_comes(cells, destinations):
    """Many answers whose last bytes come while HAProxy takes nothing: each arrives to its end, though nobody closes."""
    def answers(sock):
        while size := sock.recv(8):
            sock.sendall(bytes(int(size)))

    server, rng = destinations(answers), random.Random(5)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(contextlib.closing(dial(cell, f"{HOST}:{server.port}", caller(cell)).sock)) for _ in range(24)]
        for _ in range(30):
            left = {sock: rng.randrange(1 << 18, 1 << 22) for sock in socks}
            for sock, size in left.items():
                sock.sendall(b"%08d" % size)
            while left:
                sock = rng.choice(list(left))
                sock.settimeout(20)
                left[sock] -= len(sock.recv(rng.choice([1000, 65536, 1 << 20])))
                if not left[sock]:
                    del left[sock]


def test_bytes_pass_both_ways_and_each_side_ends_by_itself(cells, destinations):
    """What is glued to the CONNECT arrives, and what is said last, by either side."""
    def last_words(sock):
        heard = b""
        while data := sock.recv(65536):
            heard += data
        sock.sendall(b"heard %d" % len(heard))  # behind the client's end
        sock.shutdown(socket.SHUT_WR)

    server = destinations(last_words)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    for size in (0, 1, 125, 126, 16384, 65535, 65536, 1 << 20):
        answer = dial(cell, f"{HOST}:{server.port}", caller(cell), glued=b"x" * min(size, 3))
        assert answer.status == 200
        answer.sock.sendall(b"x" * (size - min(size, 3)))
        answer.sock.shutdown(socket.SHUT_WR)
        assert answer.read_all() == b"heard %d" % size


def pattern(size):
    return bytes(range(251)) * (size // 251 + 1)


@pytest.mark.parametrize("ending", ["fin", "reset"])
@pytest.mark.parametrize("slow", [False, True])
def test_much_that_a_destination_sends_arrives_in_order(cells, destinations, ending, slow):
    """At full speed it passes the relay by a pipe; a client that stops now and then makes it wait there, and behind it."""
    size = 24 << 20
    whole = pattern(size)[:size]

    def pours(sock):
        assert sock.recv(5) == b"begin"
        sock.sendall(whole)
        if ending == "reset":  # once the client has it all
            assert sock.recv(1) == b"!"
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    server = destinations(pours)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell), glued=b"begin", timeout=30)
    assert answer.status == 200
    sock, got, rng = answer.sock, bytearray(answer.rest), random.Random(3)
    with contextlib.closing(sock):
        while len(got) < size:
            if slow and rng.random() < 0.02:
                time.sleep(0.02)  # so that what is on its way fills up
            piece = sock.recv(rng.choice([1, 125, 4096, 65536, 1 << 20]) if slow else 1 << 20)
            assert piece, f"the end behind {len(got)}"
            got += piece
        assert got == whole
        if ending == "fin":
            assert sock.recv(1) == b""
        else:
            sock.sendall(b"!")
            with contextlib.suppress(ConnectionError):
                assert sock.recv(1) == b""
    cell.says("relay", f" received={size} ")
    until(lambda: metric(cell, "cellgate_relay_held_bytes") == 0, 10, "bytes are held")


def test_a_server_that_speaks_first_and_ends_first(cells, destinations):
    def greet(sock):
        sock.sendall(b"220 ready\r\n")
        sock.shutdown(socket.SHUT_WR)
        heard = b""
        while data := sock.recv(65536):
            heard += data
        seen.append(heard)

    seen = []
    server = destinations(greet)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
    assert answer.read_all() == b"220 ready\r\n"
    answer.sock.sendall(b"QUIT\r\n" * 1000)  # the client still speaks when the server has ended
    answer.sock.close()
    assert until(lambda: seen) == [b"QUIT\r\n" * 1000]


@pytest.mark.parametrize("size", [262_144, 1_000_000])
@pytest.mark.parametrize("reads", ["at once", "late"])
@pytest.mark.parametrize("ends", ["first", "at once"])
@pytest.mark.parametrize("last", ["program", "destination"])
def test_what_one_side_says_after_the_other_has_ended_arrives_whole(cells, destinations, last, ends, reads, size):
    """One side says that it has said all; the other waits for that, or does not, sends the rest and ends, too."""
    runs, heard, said = 30, [], threading.Semaphore(0)

    def hear_all(sock):
        return sum(map(len, iter(lambda: sock.recv(65536), b"")))

    def says_more(sock):
        if ends == "first":
            hear_all(sock)
        sock.sendall(b"x" * size)
        sock.shutdown(socket.SHUT_WR)
        said.release()
        hear_all(sock)  # a socket that is closed with something unread is reset

    def has_said_all(sock):
        sock.sendall(b"that is all")
        sock.shutdown(socket.SHUT_WR)
        if reads == "late":
            said.acquire()
        heard.append(hear_all(sock))

    server = destinations(has_said_all if last == "program" else says_more)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    for run in range(runs):
        answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
        (says_more if last == "program" else has_said_all)(answer.sock)
        until(lambda: len(heard) > run)
        answer.sock.close()
        heard[-1] += len(answer.rest) if last == "destination" else 0  # what came with the 200
    assert heard == [size] * runs


@pytest.mark.parametrize("slow", ["client", "destination"])
def test_a_side_that_does_not_read_costs_its_buffers(cells, destinations, slow):
    """And gets every byte when it reads at last."""
    size, go = 32 << 20, threading.Event()
    block = bytes(range(256)) * 256

    def serve(sock):
        if slow == "client":
            for _ in range(size // len(block)):
                sock.sendall(block)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
        else:
            go.wait(30)
            heard = 0
            while data := sock.recv(1 << 20):
                assert data == (block * 17)[heard % len(block) :][: len(data)] or len(data) > 16 * len(block)
                heard += len(data)
            sock.sendall(b"%d" % heard)
            sock.shutdown(socket.SHUT_WR)

    server = destinations(serve)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell), timeout=30)
    if slow == "client":
        until(lambda: held(cell) > 60000, 10)
        assert held(cell) <= 5 * 65536
        assert len(answer.read_all()) == size
    else:
        def say():
            for _ in range(size // len(block)):
                answer.sock.sendall(block)
            answer.sock.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=say)
        thread.start()
        until(lambda: held(cell) > 60000, 10)
        assert held(cell) <= 5 * 65536
        go.set()
        assert answer.read_all() == b"%d" % size
        thread.join()
    until(lambda: held(cell) == 0, 10, "memory is held when all is over")


def held(cell):
    return int(next(line.split()[1] for line in cell.admin("/metrics", "relay").splitlines() if line.startswith("cellgate_relay_held_bytes ")))


def metric(cell, name, process="relay"):
    return sum(float(line.rsplit(" ", 1)[1]) for line in cell.admin("/metrics", process).splitlines() if line.startswith(name))


# ---- who asks ----


def test_who_may_ask(cells, destinations):
    server = destinations()
    to = f"{HOST}:{server.port}"
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port)), "ns/sb-1": rules()}, egress=True)

    def status(*headers):
        answer = dial(cell, to, *headers)
        return (answer.status, answer.body["error"]) if answer.status != 200 else 200

    good = cell.token("sb-1", need=["egress"])
    assert status(("Proxy-Authorization", f"Bearer {good}")) == 200
    assert status(("proxy-authorization", f"bearer {good}")) == 200
    assert status(("Proxy-Authorization", basic(good))) == 200
    assert status(("Proxy-Authorization", basic(good, user=""))) == 200
    missing = 407, "proxy_auth_required"
    assert status() == missing
    answer = dial(cell, to)
    assert answer.all("proxy-authenticate") == ['Basic realm="cellgate"', "Bearer"]
    assert answer.body["reason"] == "there is no token, and the source address is no sandbox's"
    assert status(("Authorization", f"Bearer {good}")) == missing
    assert status(("Proxy-Authorization", "")) == missing
    assert status(("Proxy-Authorization", "Bearer ")) == missing
    assert status(("Proxy-Authorization", f"Digest {good}")) == missing
    assert status(("Proxy-Authorization", "Basic " + good)) == missing
    assert status(("Proxy-Authorization", "Basic " + base64.b64encode(good.encode()).decode())) == missing
    assert status(("Proxy-Authorization", basic(good + "x"))) == missing
    assert status(("Proxy-Authorization", "Bearer " + cell.token("sb-1", need=["egress"], ttl=-120))) == missing
    assert status(("Proxy-Authorization", "Bearer " + cell.token("sb-1", need=["pty", "http"]))) == (403, "not_granted")
    # a token that names no need is for the ways into a sandbox: who holds its terminal's is not let out in its name
    assert status(("Proxy-Authorization", "Bearer " + cell.token("sb-1", need=None))) == (403, "not_granted")
    made = subprocess.run([BIN / "cellgate", "token", "--config", cell.config_file, "--sandbox", "sb-1"], capture_output=True, text=True, check=True)
    assert status(("Proxy-Authorization", "Bearer " + made.stdout.strip())) == (403, "not_granted")
    assert status(("Proxy-Authorization", "Bearer " + cell.token("*", org="o", need=["egress"]))) == (403, "not_granted")
    assert status(("Proxy-Authorization", "Bearer " + cell.token("sb-2", need=["egress"]))) == (403, "egress_denied")
    assert status(("Proxy-Authorization", "Bearer " + cell.token("ns/sb-1", need=["egress"]))) == (403, "egress_denied")
    assert status(("Proxy-Authorization", f"Bearer {good}"), ("Proxy-Authorization", f"Bearer {good}")) == (400, "bad_request")
    logs = "".join(log.read_text(errors="replace") for log in cell.run_dir.glob("*.log"))
    assert good not in logs and basic(good)[6:] not in logs


def test_wrong_tokens_lock_nobody_out(cells, destinations):
    """Programs of many sandboxes come from one address: what one of them guesses is answered with 429, and 25 tokens of others that
    nobody has seen yet pass in the same second."""
    server = destinations()
    to = f"{HOST}:{server.port}"
    settings = config()
    settings["agent"] = {"auth_failures": 1, "threads": 1}
    cell = cells(config=settings, sandboxes={"sb-1": rules(allow(server.port)), "sb-2": rules(allow(server.port))}, egress=True)
    wrong = "Proxy-Authorization", "Bearer eyJ.x.x"

    def said():  # the second is over between two of them now and then
        dial(cell, to, wrong)
        good = [dial(cell, to, caller(cell, "sb-2", jti=f"{i}-{time.monotonic()}")).status for i in range(25)]
        assert good == [200] * 25
        return dial(cell, to, wrong).status == 429

    until(said)


def test_a_source_address_names_a_sandbox(cells, destinations):
    server = destinations()
    sandboxes = {"sb-1": rules(allow(server.port)), "addr:127.0.0.1": {"sandbox": "sb-1"}}
    cell = cells(config=config(), sandboxes=sandboxes, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", glued=b"hello")
    assert answer.status == 200 and answer.read(5) == b"hello"
    # a token says more than an address
    assert dial(cell, f"{HOST}:{server.port}", ("Proxy-Authorization", "Bearer x")).status == 407
    cell.set_sandboxes(**{"addr:127.0.0.1": {"sandbox": "sb-9"}})
    until(lambda: dial(cell, f"{HOST}:{server.port}").status == 403)


def test_a_record_of_an_address_is_no_sandbox(cells, destinations):
    """Nobody comes in by it, whatever name it has."""
    server = destinations()
    cell = cells(config=config(), sandboxes={"sb-1": {"sandbox": "sb-2"}, "sb-2": rules(allow(server.port))}, egress=True)
    assert request(cell.http, "GET", "/api/sandboxes/sb-1/pty/x", [cell.bearer("sb-1", need=["pty"])]).status == 404
    assert dial(cell, f"{HOST}:{server.port}", caller(cell)).status == 403


# ---- where to ----

ODD = [
    ("", 400), ("origin.example.org", 400), ("origin.example.org:", 400), ("origin.example.org:0", 400), ("origin.example.org:65536", 400),
    ("origin.example.org:0443", 400), ("origin.example.org:+443", 400), ("user@origin.example.org:443", 400), ("user:pass@origin.example.org:443", 400),
    ("origin%2eexample.org:443", 400), ("origin.example..org:443", 400), (".origin.example.org:443", 400), ("origin.example.org/:443", 400),
    ("http://origin.example.org:443", 400), ("http://origin.example.org/", 400), ("/", 400), ("*", 400), ("origin.example.org:443:443", 400),
    ("origin.example.org\\:443", 400), ("origin.example.org;x:443", 400), ("-a.example.org:443", 400), ("*.example.org:443", 400),
    ("127.1:443", 400), ("127.0.1:443", 400), ("2130706433:443", 400), ("0x7f000001:443", 400), ("0x7f.1:443", 400), ("017700000001:443", 400),
    ("0177.0.0.1:443", 400), ("127.0.0.1.:443", 400), ("127.0.0.01:443", 400), ("1.2.3.4.5:443", 400), ("256.1.1.1:443", 400),
    ("::1:443", 400), ("[::1:443", 400), ("[::1]", 400), ("[::1]443", 400), ("[fe80::1%25lo]:443", 400), ("[fe80::1%lo]:443", 400), ("[127.0.0.1]:443", 400),
    ("127.0.0.1:443", 403), ("[::1]:443", 403), ("[::ffff:127.0.0.1]:443", 403), ("[::127.0.0.1]:443", 403), ("[::ffff:7f00:1]:443", 403),
    ("0.0.0.0:443", 403), ("[::]:443", 403), ("169.254.169.254:443", 403), ("[::ffff:169.254.169.254]:443", 403), ("[64:ff9b::a9fe:a9fe]:443", 403),
    ("[2002:a9fe:a9fe::]:443", 403), ("[fd00:ec2::254]:443", 403), ("[fe80::1]:443", 403), ("10.0.0.1:443", 403), ("192.168.1.1:443", 403),
    ("224.0.0.1:443", 403), ("255.255.255.255:443", 403), ("localhost:443", 403), ("origin.example.org.evil.example:443", 403),
]  # fmt: skip


def test_odd_targets_are_refused_and_none_is_dialled(cells, destinations):
    """All rules that there could be are there, but those of addresses: what names nothing of them is refused, however it is written."""
    server = destinations()
    every = [allow(443), {"cidr": "0.0.0.0/0", "ports": [443]}, {"cidr": "::/0", "ports": [443]}]
    cell = cells(config=config(hosts={HOST: "203.0.113.1"}), sandboxes={"sb-1": rules(*every)}, egress=True)
    wrong = []
    for target, status in ODD:
        sock = connect(cell.egress)
        head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{': '.join(caller(cell))}\r\n\r\n"
        sock.sendall(head.encode("latin-1"))
        data = b""
        while more := sock.recv(65536):
            data += more
        said = int(data.split()[1]) if data else None
        error = json.loads(data.partition(b"\r\n\r\n")[2])["error"] if said == 403 else None
        if said != status or (status == 403 and error not in ("address_refused", "egress_denied")):
            wrong.append((target, said, error))
    assert not wrong and server.accepted == 0
    assert metric(cell, "cellgate_relay_egress_ended_total") == 0


def test_other_methods_are_refused(cells, destinations):
    server = destinations()
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"http://{HOST}:{server.port}/", caller(cell), method="TRACE")
    assert (answer.status, answer.body["error"], answer.all("allow")) == (405, "method_not_allowed", ["CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"])
    # from 3.0 on HAProxy takes it for a request to an origin, whose target this is none of
    assert dial(cell, f"{HOST}:{server.port}", caller(cell), method="connect").status in (400, 405)
    for framing in (("Content-Length", "5"), ("Transfer-Encoding", "chunked")):
        assert dial(cell, f"{HOST}:{server.port}", caller(cell), framing, glued=b"0\r\n\r\n").status == 400
    assert server.accepted == 0


@pytest.mark.parametrize("length", ["0", "00"])
def test_a_connect_may_say_that_it_has_no_body(cells, destinations, length):
    """Some clients do. What follows it is the tunnel's to every reader."""
    server = destinations()
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell), ("Content-Length", length), glued=b"glued")
    assert answer.status == 200 and answer.read(5) == b"glued"
    answer.sock.sendall(b"more")
    assert answer.read(4) == b"more"


def test_rules_decide_in_their_order(cells, destinations, names):
    server = destinations()
    port = server.port
    names.names |= {"a.example.org": ["127.0.0.1"], "b.a.example.org": ["127.0.0.1"], "secret.a.example.org": ["127.0.0.1"]}
    record = rules(
        {"host": "secret.a.example.org", "deny": True},
        allow(port, "*.a.example.org"),
        {"cidr": "127.0.0.2", "ports": [port], "private": True},
        {"host": "public.example.org", "ports": [port]},
    )
    cell = cells(config=config(names, hosts={"public.example.org": "127.0.0.1"}), sandboxes={"sb-1": record}, egress=True)

    def said(target):
        answer = dial(cell, target, caller(cell))
        body = answer.body if answer.status != 200 else {}
        return answer.status, body.get("error"), body.get("rule")

    assert said(f"b.a.example.org:{port}") == (200, None, None)
    assert said(f"B.A.Example.ORG.:{port}") == (200, None, None)
    assert said(f"secret.a.example.org:{port}") == (403, "egress_denied", 0)
    assert said(f"a.example.org:{port}") == (403, "egress_denied", None)
    assert said(f"b.a.example.org:{port + 1}") == (403, "egress_denied", None)
    assert said(f"public.example.org:{port}") == (403, "address_refused", 3)  # without `private`
    assert said(f"127.0.0.2:{port}") == (403, "address_refused", 2)  # not in egress.private_networks
    assert until(lambda: server.accepted == 2)
    # what no rule names is not looked up: that would carry the name to the outside
    assert {name for name, _ in names.asked} == {"b.a.example.org"}


def test_one_bad_address_among_many_refuses_all(cells, destinations, names):
    server = destinations()
    names.names |= {
        "mixed.example.org": ["127.0.0.1", "169.254.169.254"],
        "denied.example.org": ["127.0.0.1", "10.9.9.9"],
        "none.example.org": [],
        "six.example.org": ["::ffff:169.254.169.254"],
    }
    record = rules({"cidr": "10.9.0.0/16", "deny": True}, allow(server.port, "*.example.org"))
    cell = cells(config=config(names, hosts={HOST: "127.0.0.1"}), sandboxes={"sb-1": record}, egress=True)

    def said(name):
        answer = dial(cell, f"{name}.example.org:{server.port}", caller(cell))
        return (answer.status, answer.body["error"]) if answer.status != 200 else 200

    assert said("mixed") == (403, "address_refused")
    assert said("denied") == (403, "egress_denied")
    assert said("six") == (403, "address_refused")
    assert said("none") == (502, "destination_unreachable")
    assert said("unknown") == (502, "destination_unreachable")
    assert server.accepted == 0


@pytest.mark.parametrize("delay", [0.15, 0.45])
def test_a_name_server_that_takes_its_time(cells, destinations, names, delay):
    server = destinations()
    names.otherwise, names.delay = ["127.0.0.1"], delay
    patient = {"CELLGATE_DECISION_TIMEOUT": "10000"}  # of those 700 ms, a busy machine takes some
    cell = cells(config=config(names, lookup="9s"), sandboxes={"sb-1": rules(allow(server.port, "*.example.org"))}, egress=True, environment=patient)
    assert [dial(cell, f"{name}.example.org:{server.port}", caller(cell)).status for name in "ab"] == [200] * 2


def test_an_answer_that_is_late_serves_the_next_try(cells, destinations, names):
    server = destinations()
    late = threading.Event()
    names.otherwise = lambda: late.wait(20) and ["127.0.0.1"]
    cell = cells(config=config(names), sandboxes={"sb-1": rules(allow(server.port, "a.example.org"))}, egress=True)
    answer = dial(cell, f"a.example.org:{server.port}", caller(cell))
    assert (answer.status, answer.body["error"]) == (504, "destination_timeout")
    late.set()
    assert dial(cell, f"a.example.org:{server.port}", caller(cell)).status == 200


def test_a_question_that_is_lost_is_asked_again(cells, destinations, names):
    server = destinations()
    names.names["a.example.org"] = lambda: SILENT if names.count("a.example.org") == 1 else ["127.0.0.1"]
    cell = cells(config=config(names), sandboxes={"sb-1": rules(allow(server.port, "a.example.org"))}, egress=True)
    assert dial(cell, f"a.example.org:{server.port}", caller(cell)).status == 200
    assert names.count("a.example.org") == 2


def test_names_that_nobody_answers_take_no_look_ups_of_others(cells, destinations, names):
    """One sandbox asks for very many; another one's are looked up all the while, and it comes to no harm."""
    server = destinations()
    names.otherwise = SILENT
    names.names |= {f"{i}.example.org": ["127.0.0.1"] for i in range(20)}
    sandboxes = {"sb-1": rules(allow(443, "*.silent.example.net")), "sb-2": rules(allow(server.port, "*.example.org"))}
    cell = cells(config=config(names), sandboxes=sandboxes, egress=True)
    me, other = caller(cell), caller(cell, "sb-2")
    head = "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n{1}: {2}\r\n\r\n"
    asked = [connect(cell.egress) for _ in range(700)]
    for i, sock in enumerate(asked):
        sock.sendall(head.format(f"x{i}.silent.example.net:443", *me).encode())
    until(lambda: len({name for name, _ in names.asked}) >= 32)
    assert [dial(cell, f"{i}.example.org:{server.port}", other).status for i in range(20)] == [200] * 20
    assert len({name for name, _ in names.asked if "silent" in name}) <= 2 * 32
    answers = [sock.recv(65536).split()[1] for sock in asked]
    assert set(answers) == {b"504"}


def connect_question(cell, host, sandbox, **claims):
    lines = f"host: x\r\nproxy-authorization: Bearer {cell.token(sandbox, need=['egress'], **claims)}\r\n\r\n"
    return {"method": "CONNECT", "version": "1.1", "target": f"{host}:443", "headers": lines, "source": bytes([127, 0, 0, 1])}


@pytest.mark.parametrize("org", ["greedy", None], ids=["one-organisation", "no-organisation"])
def test_sandboxes_that_ask_for_silent_names_leave_names_to_others(cells, names, org):
    """70 sandboxes of one tenant ask for 32 names each of a zone that is silent: 30 of 30 new names of others are found."""
    names.otherwise = SILENT
    names.names |= {f"n{i}.example.net": ["203.0.113.1"] for i in range(30)}
    sandboxes = {f"greedy-{i}": rules(allow(443, "*.silent.example.org")) | ({"org": org} if org else {}) for i in range(70)}
    sandboxes |= {f"sb-{i}": rules(allow(443, "*.example.net")) | {"org": f"org-{i}"} for i in range(30)}
    settings = config(names, lookup="3s")
    settings["agent"]["threads"] = 1
    cell = cells(config=settings, sandboxes=sandboxes, egress=True)
    haproxy, greedy = [FalseHaproxy(cell.run_dir / "agent.sock") for _ in range(2)]
    reader = threading.Thread(target=lambda: [greedy.receive() for _ in range(70 * 32)])
    reader.start()
    for i in range(70):
        greedy.ask({i * 32 + n + 1: connect_question(cell, f"x{i}-{n}.silent.example.org", f"greedy-{i}") for n in range(32)}, "cell-egress")
    until(lambda: len({name for name, _ in names.asked if "silent" in name}) > 200, 5)
    haproxy.ask({i + 1: connect_question(cell, f"n{i}.example.net", f"sb-{i}", org=f"org-{i}") for i in range(30)}, "cell-egress")
    answers = [variables(haproxy.receive()[2]) for _ in range(30)]
    assert [answer.get("reason", answer["verdict"]) for answer in answers] == [b"raw"] * 30
    reader.join()
    greedy.close()
    haproxy.close()


@pytest.mark.parametrize("org", ["greedy", None], ids=["one-organisation", "no-organisation"])
def test_connects_that_wait_leave_room_to_others(cells, names, org):
    """80 sandboxes of one tenant, one after the other, wait 256 times each for one silent name: 30 of 30 of others are answered."""
    names.otherwise = SILENT
    names.names |= {f"n{i}.example.net": ["203.0.113.1"] for i in range(30)}
    sandboxes = {f"greedy-{i}": rules(allow(443, "*.example.org")) | ({"org": org} if org else {}) for i in range(80)}
    sandboxes |= {f"sb-{i}": rules(allow(443, "*.example.net")) | {"org": f"org-{i}"} for i in range(30)}
    settings = config(names, lookup="5s")
    settings["agent"]["threads"] = 1
    cell = cells(config=settings, sandboxes=sandboxes, egress=True)
    haproxy, greedy = [FalseHaproxy(cell.run_dir / "agent.sock") for _ in range(2)]
    question = [connect_question(cell, "silent.example.org", f"greedy-{i}") for i in range(80)]
    others = {i + 1: connect_question(cell, f"n{i}.example.net", f"sb-{i}", org=f"org-{i}") for i in range(30)}
    seen = []

    def read():
        with contextlib.suppress(OSError, ValueError, struct.error):
            while True:
                seen.append(greedy.receive())

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(80):
        greedy.ask({i * 256 + n + 1: question[i] for n in range(256)}, "cell-egress")
    until(lambda: len(seen) >= 80 * 256 - 8192, 5)  # the others wait
    haproxy.ask(others, "cell-egress")
    answers = [variables(haproxy.receive()[2]) for _ in range(30)]
    assert [answer.get("reason", answer["verdict"]) for answer in answers] == [b"raw"] * 30
    greedy.socket.shutdown(socket.SHUT_RDWR)
    reader.join()
    greedy.close()
    haproxy.close()


def test_how_many_of_a_sandbox_wait_for_a_look_up(cells, destinations, names):
    """256 at each thread of the agent; more are told so at once, and another sandbox's wait as before."""
    server = destinations()
    names.otherwise = SILENT
    names.names["a.example.net"] = ["127.0.0.1"]
    sandboxes = {"sb-1": rules(allow(443, "*.example.org")), "sb-2": rules(allow(server.port, "*.example.net"), allow(443, "*.example.org"))}
    settings = config(names, lookup="3s")
    settings["agent"]["threads"] = 1
    cell = cells(config=settings, sandboxes=sandboxes, egress=True, environment={"CELLGATE_DECISION_TIMEOUT": "5000"})
    head = "CONNECT silent.example.org:443 HTTP/1.1\r\nHost: silent.example.org:443\r\n{0}: {1}\r\n\r\n".format(*caller(cell)).encode()
    asked = [connect(cell.egress) for _ in range(300)]
    for sock in asked:
        sock.sendall(head)
    until(lambda: len(select.select(asked, [], [], 0)[0]) == 44, 2.5, "44 have no answer")
    assert dial(cell, f"a.example.net:{server.port}", caller(cell, "sb-2")).status == 200
    other = connect(cell.egress)
    other.sendall("CONNECT silent.example.org:443 HTTP/1.1\r\nHost: silent.example.org:443\r\n{0}: {1}\r\n\r\n".format(*caller(cell, "sb-2")).encode())
    answers = [Answer(sock, *sock.recv(65536).split(b"\r\n\r\n", 1)) for sock in asked]
    assert sorted({(x.status, x.body["error"]) for x in answers}) == [(429, "too_many_connections"), (504, "destination_timeout")]
    assert [x.status for x in answers].count(429) == 44
    assert other.recv(65536).split()[1] == b"504"
    assert dial(cell, "silent.example.org:443", caller(cell)).status == 504  # room came back


def test_an_address_is_used_on_while_it_is_asked_for_again(cells, destinations, names):
    """For a while: its time to live and some seconds."""
    server = destinations()
    names.names["a.example.org"] = ["127.0.0.1"]
    cell = cells(config=config(names), sandboxes={"sb-1": rules(allow(server.port, "a.example.org"))}, egress=True)

    def status():
        answer = dial(cell, f"a.example.org:{server.port}", caller(cell))
        answer.sock.close()
        return answer.status

    assert status() == 200
    names.silent, before = True, len(names.asked)
    while len(names.asked) == before:  # its time to live is over
        assert status() == 200
        time.sleep(0.02)
    assert status() == 200
    until(lambda: status() == 504, 12)


def test_a_name_has_no_more_addresses_than_are_checked(cells, destinations, names):
    server = destinations()
    many = [f"127.0.{i // 250}.{1 + i % 250}" for i in range(65)]
    names.names |= {"many.example.org": many, "some.example.org": many[:64], "bad.example.org": [*many[:63], "169.254.169.254"]}
    record = rules(allow(server.port, "*.example.org"))
    networks = {"private_networks": ["127.0.0.0/8"]}
    cell = cells(config=config(names, **networks), sandboxes={"sb-1": record}, egress=True)
    said = [dial(cell, f"{name}.example.org:{server.port}", caller(cell)) for name in ("some", "many", "bad")]
    assert [answer.status for answer in said] in ([200, 403, 403], [502, 403, 403])  # 127.0.0.1 need not be the first
    assert said[1].body["reason"] == "it has more addresses than are checked"


def test_a_name_that_leads_elsewhere_the_next_time(cells, destinations, names):
    """Rebinding: the address that was checked is the one that is dialled; a later answer is checked anew."""
    server = destinations()
    names.ttl = 0
    names.names["a.example.org"] = ["127.0.0.1"]
    cell = cells(config=config(names), sandboxes={"sb-1": rules(allow(server.port, "a.example.org"))}, egress=True)
    assert dial(cell, f"a.example.org:{server.port}", caller(cell)).status == 200
    names.names["a.example.org"] = ["169.254.169.254"]
    until(lambda: dial(cell, f"a.example.org:{server.port}", caller(cell)).status == 403, 10)


def test_defaults_and_the_audit_mode(cells, destinations):
    server = destinations()
    port = server.port
    sandboxes = {
        "sb-1": {"worker": "http://127.0.0.1:1"},
        "sb-2": rules(),
        "sb-3": rules({"host": HOST, "deny": True}, enforcement="audit"),
        "sb-5": rules({"cidr": "127.0.0.0/8", "deny": True}, allow(port, "near.example.org"), enforcement="audit"),
        "sb-4": {"state": "stopped", "egress": {"rules": [allow(port)]}},
    }
    cell = cells(config=config(default={"rules": [allow(port)]}, hosts={"public.example.org": "203.0.113.1", "near.example.org": "127.0.0.1"}), sandboxes=sandboxes, egress=True)
    assert dial(cell, f"{HOST}:{port}", caller(cell)).status == 200
    assert dial(cell, f"{HOST}:{port}", caller(cell, "sb-2")).body["error"] == "egress_denied"
    # what a name leads to is told, too, and the other addresses are checked all the same
    assert dial(cell, f"near.example.org:{port}", caller(cell, "sb-5")).status == 200
    line = cell.says("agent", "near.example.org", "enforcement=audit")
    assert "rule=0" in line and "a rule denies an address that the name leads to" in line
    assert metric(cell, "cellgate_agent_egress_audited_total", "agent") == 1
    # addresses are checked in the audit mode, too
    assert dial(cell, f"{HOST}:{port}", caller(cell, "sb-3")).body["error"] == "address_refused"
    assert dial(cell, f"{HOST}:{port}", caller(cell, "sb-4")).body["reason"] == "the sandbox has been stopped"
    # what is refused in that mode has not passed by it
    cell.says("agent", "the sandbox has been stopped")  # the last one
    assert (cell.run_dir / "agent.log").read_text().count("enforcement=audit") == 1
    assert metric(cell, "cellgate_agent_egress_audited_total", "agent") == 1


def test_explain_says_what_the_agent_would(cells, destinations):
    server = destinations()
    record = rules({"host": "secret.example.org", "deny": True}, allow(server.port))
    cell = cells(config=config(), sandboxes={"sb-1": record, "addr:127.0.0.1": {"sandbox": "sb-1"}}, egress=True)

    def explain(*arguments):
        done = subprocess.run([BIN / "cellgate", "explain", "--config", cell.config_file, *arguments], capture_output=True, text=True)
        assert not done.stderr
        return done.returncode, done.stdout

    code, said = explain("--json", "--sandbox", "sb-1", f"CONNECT {HOST.upper()}.:{server.port}")
    verdict = json.loads(said)["verdict"]
    assert (code, verdict["verdict"], verdict["rule"], verdict["host"], verdict["address"]) == (0, "raw", 1, HOST, "127.0.0.1")
    for target, error in (("secret.example.org:443", "egress_denied"), ("127.1:443", "bad_request"), (f"{HOST}:1", "egress_denied")):
        code, said = explain("--json", "--sandbox", "sb-1", f"CONNECT {target}")
        verdict = json.loads(said)["verdict"]
        assert (code, verdict["error"]) == (1, error)
        answer = dial(cell, target, caller(cell))
        assert answer.body["reason"] == verdict["reason"]
    token = cell.token("sb-1", need=["egress"])
    code, said = explain("-H", f"Proxy-Authorization: {basic(token)}", f"CONNECT {HOST}:{server.port}")
    assert code == 0 and "it is valid and grants egress for: sb-1" in said and token not in said
    code, said = explain(f"CONNECT {HOST}:{server.port}")  # no source address either
    assert code == 1 and "proxy_auth_required" in said


# ---- TLS ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x".split()
    subprocess.run([*command, "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return folder / "cert", context


def handshake(answer, name, ca):
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    return context.wrap_socket(answer.sock, server_hostname=name)


def test_who_speaks_tls_asks_for_the_host_that_was_allowed(cells, destinations, certificate):
    ca, context = certificate
    server = destinations(tls=context)
    to = f"{HOST}:{server.port}"
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port)), "sb-2": rules(allow(server.port, sni="any"))}, egress=True)
    for name in (HOST, HOST.upper()):
        with handshake(dial(cell, to, caller(cell)), name, ca) as sock:
            sock.sendall(b"hello")
            assert sock.recv(5) == b"hello"
    accepted = server.accepted
    for sandbox, name in (("sb-1", "other.example.org"), ("sb-1", None), ("sb-2", "other.example.org")):
        with pytest.raises(ssl.SSLError, match="unrecognized name|UNRECOGNIZED_NAME"):
            handshake(dial(cell, to, caller(cell, sandbox)), name, ca)
    with handshake(dial(cell, to, caller(cell, "sb-2")), None, ca) as sock:
        sock.sendall(b"hello")
        assert sock.recv(5) == b"hello"
    assert until(lambda: server.accepted == accepted + 4)  # connected before the client has spoken, and told nothing
    assert metric(cell, 'cellgate_relay_egress_ended_total{reason="name"}') == 3


def client_hello(name):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("name, passes", [(HOST, True), ("other.example.org", False)])
def test_a_client_hello_in_pieces(cells, destinations, name, passes):
    """Byte by byte, glued to the CONNECT, in records of a byte each: nothing of it leaves before it is whole and good."""
    server = destinations()
    to = f"{HOST}:{server.port}"
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    hello = client_hello(name)
    records = b"".join(hello[:3] + struct.pack(">H", 1) + hello[i : i + 1] for i in range(5, len(hello)))
    for bytes_, glued in ((hello, hello), (hello, b""), (records, b""), (records, records[:1000])):
        answer = dial(cell, to, caller(cell), glued=glued)
        rest = bytes_[len(glued) :]
        with contextlib.suppress(OSError):
            for i in range(0, len(rest), 1 if rest is hello else 7):
                answer.sock.sendall(rest[i : i + (1 if rest is hello else 7)])
        if passes:
            assert answer.read(len(bytes_)) == bytes_
        else:
            assert answer.read_all() == NAME_ALERT
        answer.sock.close()


RETRY = bytes.fromhex("160303002a" "02000026" "0303" "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c" "00130100")
NAME_ALERT = bytes([21, 3, 3, 0, 2, 2, 112])


@pytest.mark.parametrize("waits", [True, False], ids=["behind the answer", "at once"])
@pytest.mark.parametrize("between", [b"", bytes([20, 3, 3, 0, 1, 1]), bytes([23, 3, 3, 0, 1, 0])], ids=["nothing", "ccs", "early data"])
def test_a_second_client_hello_asks_for_the_same_host(cells, destinations, waits, between):
    """A server that asks for another ClientHello gets none with another name, not even one that came before it had asked."""
    def retry(sock):
        heard.append(sock.recv(65536))
        sock.sendall(RETRY)
        while data := sock.recv(65536):
            heard.append(data)

    server, heard = destinations(retry), []
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    first, same, other = client_hello(HOST), client_hello(HOST), client_hello("other.example.org")
    for second in (same, other):
        heard.clear()
        answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
        answer.sock.sendall(first + (b"" if waits else between + second))
        if waits:
            assert answer.read(len(RETRY)) == RETRY
            answer.sock.sendall(between + second)
        if second is same:
            encrypted = b"\x16\x03\x03\x00\x00 whatever follows passes"
            if not waits:
                assert answer.read(len(RETRY)) == RETRY
                encrypted = b""
            answer.sock.sendall(encrypted)
            until(lambda: b"".join(heard) == first + between + second + encrypted)
        else:
            assert answer.read_all().removeprefix(RETRY) == NAME_ALERT
            until(lambda: metric(cell, "cellgate_relay_egress_connections") == 0)
            assert second not in b"".join(heard) and b"other" not in b"".join(heard)
        answer.sock.close()


@pytest.mark.parametrize("change", [lambda b: b[:1] + b"\3\5" + b[3:], lambda b: bytes([21, 3, 1, 0, 2, 1, 90]) + b, lambda b: b"\x80\x1c\1\3\3" + bytes(32)],
                         ids=["another version", "an alert in front", "SSL 2.0"])
def test_forms_of_tls_hide_no_name(cells, destinations, change):
    server = destinations()
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
    answer.sock.sendall(change(client_hello("other.example.org")))
    assert answer.read_all() == NAME_ALERT


# ---- what goes wrong ----


def test_destinations_that_cannot_be_reached(cells, destinations, names):
    """Each has its answer to the CONNECT, and none takes longer than it may."""
    names.names["silent.example.org"] = SILENT
    port = closed_port()
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(8)]
    for sock in waiting:  # nobody accepts: later ones get no answer to their SYN
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
    hung = full.getsockname()[1]
    record = rules(allow(port), allow(hung), allow(port, "silent.example.org"))
    cell = cells(config=config(names) | {"relay": {"dial_timeout": "1s"}}, sandboxes={"sb-1": record}, egress=True)
    answer = dial(cell, f"{HOST}:{port}", caller(cell))
    assert (answer.status, answer.body["error"]) == (502, "destination_unreachable")
    began = time.monotonic()
    answer = dial(cell, f"{HOST}:{hung}", caller(cell))
    assert (answer.status, answer.body["error"]) == (504, "destination_timeout")
    assert 0.9 < time.monotonic() - began < 5
    began = time.monotonic()
    answer = dial(cell, f"silent.example.org:{port}", caller(cell))
    assert (answer.status, answer.body["error"]) == (504, "destination_timeout")
    assert time.monotonic() - began < 3
    for sock in [*waiting, full]:
        sock.close()


def test_nobody_passes_without_an_agent_or_a_relay(cells, destinations):
    server = destinations()
    to = f"{HOST}:{server.port}"
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    open_one = dial(cell, to, caller(cell), glued=b"1")
    assert open_one.read(1) == b"1"
    agent = cell.pid("agent")
    stop(agent)
    answer = dial(cell, to, caller(cell))
    assert (answer.status, answer.body["error"], answer.all("retry-after")) == (503, "agent_unavailable", ["1"])
    os.kill(agent, signal.SIGCONT)
    until(lambda: dial(cell, to, caller(cell)).status == 200, 10)
    cell.kill("agent")
    until(lambda: dial(cell, to, caller(cell)).status == 200, 10)
    open_one.sock.sendall(b"2")  # what is open goes on without an agent
    assert open_one.read(1) == b"2"
    cell.kill("relay")
    assert open_one.read_all() == b""
    until(lambda: dial(cell, to, caller(cell)).status == 200, 10)


def stat(cell, proxy):
    """What HAProxy says of the servers of a backend."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(cell.run_dir / "haproxy.sock"))
        sock.sendall(f"show stat {proxy} 4 -1\n".encode())
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode()


class Restart:
    """The agent is killed, and back at the end, after `away` seconds."""

    def __init__(self, cell):
        self.cell, self.watcher = cell, threading.Thread(target=self._watch)

    def __enter__(self):
        # one that was not seen yet is down at once
        until(lambda: all("L7OK" in stat(self.cell, proxy) for proxy in ("egress-agent", "egress-agent-again")))
        self.before, self.since = self.cell.pid("agent"), time.monotonic()
        self.cell.kill("agent")
        self.watcher.start()
        return self

    def _watch(self):
        until(lambda: self.cell.pid("agent") != self.before and listens(self.cell.run_dir / "agent.sock"), 20)
        self.away = time.monotonic() - self.since

    def __exit__(self, *_):
        self.watcher.join()


def test_a_restart_of_the_agent_refuses_nobody(cells, destinations):
    """Who asks meanwhile waits for it: a CONNECT, and a request that HAProxy sends on itself."""
    def serve(sock):
        sock.recv(65536)
        sock.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    server = destinations(serve)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    to, me = f"{HOST}:{server.port}", caller(cell)
    assert dial(cell, to, me).status == 200
    for target, method, status in ((to, "CONNECT", 200), (f"http://{to}/", "GET", 204)):
        def is_served(target=target, method=method, status=status):
            """Unless the agent is away for longer than HAProxy asks: a machine that is busy starts nothing sooner."""
            with Restart(cell) as restart:
                got = dial(cell, target, me, method=method).status
            assert got == status or restart.away >= SOON
            return restart.away < SOON

        until(is_served, 60, "the agent takes too long to start")


def test_a_destination_that_resets(cells, destinations):
    def reset(sock):
        sock.recv(1)
        sock.sendall(b"last words")
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    server = destinations(reset)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell), glued=b"1")
    assert answer.read(10) == b"last words"
    answer.sock.sendall(b"2")
    assert answer.read_all() == b""
    until(lambda: metric(cell, "cellgate_relay_egress_connections") == 0)


# ---- while it is open ----


def test_a_change_of_the_rules_reaches_what_is_open(cells, destinations):
    """Five hundred connections to each of two hosts: those that are allowed no longer end at once, the others see nothing."""
    each = 500
    server = destinations()
    hosts = {"a.example.org": "127.0.0.1", "b.example.org": "127.0.0.1"}
    both = [allow(server.port, host) for host in hosts]
    cell = cells(config=config(hosts=hosts) | {"relay": {"max_tunnels_per_sandbox": 0}}, sandboxes={"sb-1": rules(*both)}, egress=True)
    token = caller(cell)
    opened = {host: [dial(cell, f"{host}:{server.port}", token) for _ in range(each)] for host in hosts}
    assert all(answer.status == 200 for answers in opened.values() for answer in answers)
    began = time.monotonic()
    cell.set_sandboxes(**{"sb-1": rules(both[1])})
    for answer in opened["a.example.org"]:
        assert answer.read_all() == b""
    assert time.monotonic() - began < AT_ONCE
    for answer in opened["b.example.org"]:
        answer.sock.sendall(b"x")
        assert answer.read(1) == b"x"
    assert metric(cell, 'cellgate_relay_egress_ended_total{reason="denied"}') == each
    cell.set_sandboxes(**{"sb-1": {"state": "stopped"}})
    for answer in opened["b.example.org"]:
        assert answer.read_all() == b""
    for answer in (*opened["a.example.org"], *opened["b.example.org"]):
        answer.sock.close()


def test_the_rules_change_while_it_is_dialled(cells):
    """A CONNECT that waits for its destination is answered at once, as one that comes then."""
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(8)]
    for sock in waiting:  # nobody accepts: later ones get no answer to their SYN
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
    port = full.getsockname()[1]
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(port))}, egress=True)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(dial(cell, f"{HOST}:{port}", caller(cell))))
    asking.start()
    until(lambda: metric(cell, "cellgate_relay_egress_connections") == 1)
    began = time.monotonic()
    cell.set_sandboxes(**{"sb-1": rules()})
    asking.join(10)
    assert time.monotonic() - began < AT_ONCE
    assert (answers[0].status, answers[0].body["error"]) == (403, "egress_denied")
    for sock in [*waiting, full]:
        sock.close()


def test_a_route_of_the_same_name_ends_nothing(cells, destinations):
    """Who comes by an address needs no token, whatever a route `egress` needs."""
    server = destinations()
    route = {"name": "egress", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}
    sandboxes = {"sb-1": rules(allow(server.port)), "addr:127.0.0.1": {"sandbox": "sb-1"}}
    cell = cells(config=config() | {"routes": [route]}, sandboxes=sandboxes, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", glued=b"x")
    assert answer.status == 200 and answer.read(1) == b"x"
    # a change of the record makes the agent judge it anew: the second one is judged behind the first one
    cell.set_sandboxes(**{"sb-1": rules(allow(server.port), allow(1))})
    until(lambda: dial(cell, f"{HOST}:1").status == 502)
    cell.set_sandboxes(**{"sb-1": rules(allow(server.port))})
    until(lambda: dial(cell, f"{HOST}:1").status == 403)
    answer.sock.sendall(b"y")
    assert answer.read(1) == b"y"
    assert metric(cell, 'cellgate_relay_egress_ended_total{reason="denied"}') == 0


def test_a_token_that_expires_ends_what_it_opened(cells, destinations):
    """As of a tunnel; the agent's leeway is 5 s."""
    server = destinations(echo)
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port)), "addr:127.0.0.1": {"sandbox": "sb-1"}}, egress=True)
    now = time.time()
    short = dial(cell, f"{HOST}:{server.port}", caller(cell, iat=int(now) - 60, exp=int(now) - 2))
    longer, unbound = dial(cell, f"{HOST}:{server.port}", caller(cell)), dial(cell, f"{HOST}:{server.port}")
    assert (short.status, longer.status, unbound.status) == (200, 200, 200)
    assert short.sock.recv(1) == b"" and 2 < time.time() - now < 3 + AT_ONCE
    for answer in (longer, unbound):
        answer.sock.sendall(b"still")
        assert answer.sock.recv(5) == b"still"
    assert metric(cell, 'cellgate_relay_egress_ended_total{reason="expired"}') == 1


def test_a_token_that_is_revoked_ends_what_it_opened(cells, destinations):
    server = destinations()
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    old, fresh = (dial(cell, f"{HOST}:{server.port}", caller(cell, iat=int(time.time()) - age)) for age in (100, 0))
    cell.set_sandboxes(**{"sb-1": rules(allow(server.port)) | {"not_before": int(time.time()) - 50}})
    assert old.read_all() == b""
    fresh.sock.sendall(b"x")
    assert fresh.read(1) == b"x"


def test_a_sandbox_has_as_many_connections_as_its_record_says(cells, destinations):
    server = destinations()
    to = f"{HOST}:{server.port}"
    cell = cells(config=config(), sandboxes={"sb-1": rules(allow(server.port), max_connections=3), "sb-2": rules(allow(server.port))}, egress=True)
    first, *_ = opened = [dial(cell, to, caller(cell)) for _ in range(3)]
    assert [answer.status for answer in opened] == [200] * 3
    answer = dial(cell, to, caller(cell))
    assert (answer.status, answer.body["error"], answer.all("retry-after")) == (429, "too_many_connections", ["1"])
    assert dial(cell, to, caller(cell, "sb-2")).status == 200
    first.sock.close()
    until(lambda: dial(cell, to, caller(cell)).status == 200)


def test_an_organisation_leaves_room_for_others(cells, destinations):
    """And what programs open to the outside leaves room for people on their way in, whoever's they are."""
    server = destinations()
    to = f"{HOST}:{server.port}"
    sandboxes = {f"sb-{i}": rules(allow(server.port)) | {"org": "o" if i < 8 else f"p{i}"} for i in range(24)}
    sandboxes["addr:127.0.0.1"] = {"sandbox": "sb-0"}
    cell = cells(config=config() | {"relay": {"max_tunnels": 40}}, sandboxes=sandboxes, egress=True)

    def open_all(sandboxes, **claims):
        answers = [dial(cell, to, caller(cell, f"sb-{i}", **claims)) for i in sandboxes for _ in range(5)]
        opened.extend(answers)
        return [answer.status for answer in answers]

    opened = []
    assert sorted(open_all(range(8), org="o")) == [200] * 10 + [429] * 30  # a quarter
    answer = dial(cell, to)  # by its address it is of the organisation, too
    assert (answer.status, answer.body["error"]) == (429, "too_many_connections")
    assert sorted(open_all(range(8, 24))) == [200] * 10 + [429] * 70  # with those a half
    assert metric(cell, 'cellgate_relay_limited_total{limit="egress"}') == 70
    upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13")]
    for org, sandbox in (("o", "sb-1"), ("p9", "sb-9")):  # there is no worker, but a place
        answer = request(cell.http, "GET", f"/api/sandboxes/{sandbox}/pty/x", [cell.bearer(sandbox, org=org, need=["pty"]), *upgrade])
        assert b"too_many_tunnels" not in answer.body


def test_a_relay_that_drains_ends_them_in_time(cells, destinations):
    server = destinations()
    cell = cells(config=config() | {"relay": {"drain": "1s"}}, sandboxes={"sb-1": rules(allow(server.port))}, egress=True)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell), glued=b"x")
    assert answer.read(1) == b"x"
    began = time.monotonic()
    cell.kill("relay", signal.SIGTERM)
    answer.sock.sendall(b"y")  # it has its time
    assert answer.read(1) == b"y"
    assert answer.read_all() == b""
    assert 0.8 < time.monotonic() - began < 5
