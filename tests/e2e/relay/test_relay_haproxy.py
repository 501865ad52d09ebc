# SPDX-License-Identifier: MIT
"""HAProxy and the relay: the hand-over, a relay that is away, several relays, https workers, HTTP/2, half-close, drain and
reload."""

import json
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error

import pytest
from cell import AT_ONCE, BIN, ROOT, end, free_port, haproxy_version, stop, token, until
from client import Http2
from direct import BINARY, CLOSE, PING, PONG, Peer, Worker, frame
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

LONG = os.environ.get("CELLGATE_LONG")


@pytest.fixture(scope="module")
def make(cells):
    made = []

    def make(relay=(), **more):
        made.append(Tunnels(cells(config={"relay": QUICK | dict(relay), "routes": ROUTES}, **more)))
        return made[-1]

    yield make
    for tunnels in made:
        tunnels.close()


@pytest.fixture(scope="module")
def tunnels(make):
    return make()


# ---- what is handed over ----


def test_a_client_cannot_hand_itself_over(tunnels):
    """Neither the header nor its twin with underscores gets through, alone or beside HAProxy's own."""
    mine, other = tunnels.worker(), tunnels.worker()
    forged = f"route=plain;sandbox=sb-x;addr=127.0.0.1;addr_port={other.port}"
    headers = [("X-Cell-Handover", forged), ("X_Cell_Handover", forged), ("x-cell_handover", forged), ("X-Cell-Other", "x")]
    client, upstream = tunnels.open(mine, headers=headers)
    pass_both_ways(client, upstream)
    assert not any(name.startswith(("x-cell", "x_cell")) for name in upstream.fields)
    assert not other.dials(0.05)


def test_what_does_not_fit_a_decision_is_too_large(tunnels):
    """A handover writes each of these as three."""
    assert tunnels.refused(tunnels.sandbox(tunnels.worker()), session="!" * 5000) == (431, "request_too_large")


def test_a_worker_gets_what_a_direct_one_gets(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker, headers={"X-EXECD-ACCESS-TOKEN": "of the record"})
    headers = [("X-Own", "kept"), ("Cookie", "a=1"), ("Sec-WebSocket-Extensions", "permessage-deflate"), ("X-Forwarded-For", "6.6.6.6"),
               ("X_EXECD_ACCESS_TOKEN", "forged"), tunnels.cell.bearer(sandbox)]
    _, upstream = tunnels.open(worker, sandbox, "secure", headers=headers, query="?a=b%20c&cols=80")
    assert upstream.line == "GET /s1?a=b%20c&cols=80 HTTP/1.1"
    fields = upstream.fields
    assert fields["host"] == f"127.0.0.1:{worker.port}" and fields["x-own"] == "kept" and fields["x-forwarded-for"] == "127.0.0.1"
    assert fields["x-execd-access-token"] == "of the record" and fields["x-request-id"]
    assert not {"authorization", "cookie", "sec-websocket-extensions", "x_execd_access_token"} & set(fields)


def test_a_tunnel_that_is_open_for_a_moment_longer_than_every_http_timeout(make):
    tunnels = make(environment={"CELLGATE_CLIENT_TIMEOUT": "1s", "CELLGATE_WORKER_TIMEOUT": "1s"})
    through, direct = tunnels.open(tunnels.worker()), tunnels.open(tunnels.worker(), route="api/sandboxes")
    assert through[0].silent(1.5) and direct[0].silent(0.1)
    pass_both_ways(*through)
    pass_both_ways(*direct)


# ---- a relay that is away ----


@pytest.mark.parametrize("how", ["missing", "refusing"])
def test_without_a_relay_the_answer_is_503_at_once(tunnels, how):
    path = tunnels.cell.run_dir / "relay.sock"
    away = path.with_name("away.sock")
    sandbox = tunnels.sandbox(tunnels.worker())
    path.rename(away)
    try:
        if how == "refusing":
            with socket.socket(socket.AF_UNIX) as left_behind:
                left_behind.bind(str(path))
        took = []
        for _ in range(3):
            began = time.monotonic()
            status, fields, document = tunnels.answer(tunnels.ask(sandbox))
            took.append(time.monotonic() - began)
        assert min(took) < 0.9, took  # each would take two seconds, if it was waited for
        assert status == 503 and fields["content-type"] == "application/json" and "retry-after" in fields
        assert document["error"] == "relay_unavailable" and document["retryable"] is True
    finally:
        away.rename(path)


def test_a_relay_that_is_killed_ends_its_tunnels_and_the_next_one_serves(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    old = tunnels.cell.pid("relay")
    tunnels.cell.kill("relay")
    assert client.ended() and upstream.ended()
    until(lambda: tunnels.cell.pid("relay") != old, 10)
    until(lambda: relay_answers(tunnels), 10, "no new relay")
    up(tunnels, 1)
    pass_both_ways(*tunnels.open(worker, sandbox))


def relay_answers(tunnels, path="/readyz"):
    try:
        return tunnels.cell.admin(path, "relay") == "ready\n"
    except OSError:
        return False


def up(tunnels, count):
    """HAProxy knows that so many relays are there."""
    def seen():
        with socket.socket(socket.AF_UNIX) as stats:
            stats.connect(str(tunnels.cell.run_dir / "haproxy.sock"))
            stats.sendall(b"show servers state relay\n")
            rows = stats.makefile().read().splitlines()[2:]
        return sum(row.split()[5] == "2" for row in rows if row)

    until(lambda: seen() == count, 20, f"{count} relays are not up")


@pytest.mark.skipif(not LONG, reason="its discovery takes five seconds")
def test_a_relay_that_hangs_is_found_out_and_its_tunnels_live_on(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    relay = tunnels.cell.pid("relay")
    stop(relay)
    try:
        up(tunnels, 0)
        client.say(b"meanwhile")
        began = time.monotonic()
        status, fields, document = tunnels.answer(tunnels.ask(sandbox))
        assert time.monotonic() - began < AT_ONCE
        assert (status, document["error"]) == (503, "relay_unavailable") and "retry-after" in fields
    finally:
        os.kill(relay, signal.SIGCONT)
    assert upstream.message() == (BINARY, b"meanwhile")
    up(tunnels, 1)
    pass_both_ways(client, upstream)
    pass_both_ways(*tunnels.open(worker, sandbox))


class TwoRelays:
    """A cell whose haproxy.cfg has the second server of the example in it, and the relay behind that."""

    def __init__(self, make, folder):
        self.socket = folder / "two.sock"
        config = (ROOT / "haproxy/haproxy.cfg").read_text()
        lines = [line for line in config.splitlines() if line.startswith("    # server relay")]
        assert len(lines) == 2, "the example of a second relay"
        for line in lines:
            config = config.replace(line, line.replace("# ", "", 1).replace("/run/cellgate/relay2.sock", str(self.socket)))
        [own] = [line for line in config.splitlines() if line.startswith("    server relay ")]
        (folder / "haproxy.cfg").write_text(config.replace(own + "\n", ""))
        command = os.environ["HAPROXY"]
        wrapper = folder / "haproxy"
        wrapper.write_text(f'#!/bin/sh\nfor last; do :; done\ncase $last in\n*.cfg) exec {command} -db -f {folder}/haproxy.cfg ;;\n*) exec {command} "$@" ;;\nesac\n')
        wrapper.chmod(0o755)
        self.tunnels = make(haproxy=str(wrapper))
        self.start()

    def start(self, **options):
        cell = self.tunnels.cell
        port = free_port()
        overrides = {"listen": f"unix@{self.socket}", "agent": f"unix@{cell.run_dir}/agent-relay.sock", "admin": f"127.0.0.1:{port}",
                     "control": f"unix@{cell.run_dir}/two.control.sock"} | options
        options = [x for key, value in overrides.items() for x in ("-o", f"relay.{key}={value}")]
        self.second = cell.spawn("relay-two", BIN / "cellgate-relay", "-c", cell.config_file, *options)
        cell.ports["two-admin"] = port
        until(lambda: self.answers(), 10, "no second relay")
        up(self.tunnels, 2)

    def answers(self):
        try:
            return self.tunnels.cell.admin("/readyz", "two") == "ready\n"
        except OSError:
            return False

    def where(self, sandbox):
        """In which relay the tunnels of a sandbox are: (first, second)."""
        return tuple(len(json.loads(self.tunnels.cell.admin(f"/tunnels?sandbox={sandbox}", name))["tunnels"]) for name in ("relay", "two"))


@pytest.fixture(scope="module")
def two(make, tmp_path_factory):
    return TwoRelays(make, tmp_path_factory.mktemp("two"))


def test_two_relays_share_the_sandboxes(two):
    tunnels, worker = two.tunnels, two.tunnels.worker()
    places = set()
    for _ in range(12):
        sandbox = tunnels.sandbox(worker)
        for _ in range(2):
            pass_both_ways(*tunnels.open(worker, sandbox))
        where = two.where(sandbox)
        assert where in ((2, 0), (0, 2)), "all tunnels of a sandbox are in one relay"
        places.add(where)
    assert len(places) == 2


def test_when_one_of_two_relays_dies_the_other_serves_its_sandboxes(two):
    tunnels, worker = two.tunnels, two.tunnels.worker()
    kept, lost = [], []
    while len(kept) < 2 or len(lost) < 2:
        sandbox = tunnels.sandbox(worker)
        pair = tunnels.open(worker, sandbox)
        (kept if two.where(sandbox)[0] else lost).append((sandbox, pair))
    two.second.kill()
    two.second.wait()
    for sandbox, (client, _) in lost:
        assert client.ended()
    up(tunnels, 1)
    for sandbox, _ in lost:
        pass_both_ways(*tunnels.open(worker, sandbox))
        assert json.loads(tunnels.cell.admin(f"/tunnels?sandbox={sandbox}", "relay"))["tunnels"]
    for _, pair in kept:
        pass_both_ways(*pair)
    two.start()
    for sandbox, _ in lost:
        pass_both_ways(*tunnels.open(worker, sandbox))
        assert two.where(sandbox)[1] == 1, "its place is where it was"


def test_while_one_of_two_relays_drains_the_other_serves_its_sandboxes(two):
    tunnels, worker = two.tunnels, two.tunnels.worker()
    end(two.second)
    up(tunnels, 1)
    two.start(drain="1h")
    while True:
        sandbox = tunnels.sandbox(worker)
        old = tunnels.open(worker, sandbox)
        if two.where(sandbox) == (0, 1):
            break
    two.second.send_signal(signal.SIGTERM)
    up(tunnels, 1)
    new = tunnels.open(worker, sandbox)
    assert two.where(sandbox) == (1, 1)
    pass_both_ways(*old)
    two.second.send_signal(signal.SIGTERM)
    assert old[0].closed() == (1012, "relay restarting")
    pass_both_ways(*new)
    two.start()
    pass_both_ways(*tunnels.open(worker, sandbox))
    assert two.where(sandbox) == (1, 1), "its place is where it was"


# ---- workers behind TLS ----


class TlsWorker(Worker):
    def __init__(self, context):
        super().__init__()
        self.context = context
        # its name may be resolved to an address of either family
        if socket.has_dualstack_ipv6():
            self.listener.close()
            self.listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
            self.listener.settimeout(10)
            self.port = self.listener.getsockname()[1]
        self.url = f"https://localhost:{self.port}"
        self.names = []
        context.sni_callback = lambda sock, name, _: self.names.append(name)

    def take(self):
        sock, _ = self.listener.accept()
        sock.settimeout(10)
        peer = Peer(self.context.wrap_socket(sock, server_side=True), masks=False)
        peer.line, peer.fields = peer.head()
        self.peers.append(peer)
        return peer


@pytest.fixture(scope="module")
def tls(make, tmp_path_factory):
    """(tunnels, a maker of workers with a certificate for a name)."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for ca in ("ca", "foreign"):
        openssl("req", "-x509", *key, "-subj", f"/CN={ca}", "-keyout", f"{ca}.key", "-out", f"{ca}.pem")
    tunnels = make(environment={"CELLGATE_WORKER_CA": str(folder / "ca.pem")})

    def worker(name="localhost", ca="ca"):
        openssl("req", *key, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", "w.key", "-out", "w.csr")
        openssl("x509", "-req", "-in", "w.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-copy_extensions", "copy", "-out", "w.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "w.pem", folder / "w.key")
        tunnels.workers.append(TlsWorker(context))
        return tunnels.workers[-1]

    return tunnels, worker


def test_an_https_worker_is_reached_through_haproxy(tls):
    tunnels, worker = tls
    one, two = worker(), worker()
    sandbox = tunnels.sandbox(one)
    client, upstream = tunnels.open(one, sandbox)
    assert one.names == ["localhost"] and upstream.fields["host"] == f"localhost:{one.port}"
    pass_both_ways(client, upstream)
    upstream.reset()
    upstream = one.serve()
    pass_both_ways(client, upstream, b"y" * 100_000)
    tunnels.place(sandbox, two)
    pass_both_ways(client, two.serve())


@pytest.mark.parametrize("name,ca", [("other.test", "ca"), ("localhost", "foreign")])
def test_an_https_worker_that_is_not_the_one_is_refused(tls, name, ca):
    tunnels, worker = tls
    wrong = worker(name, ca)
    client = tunnels.ask(tunnels.sandbox(wrong))
    with pytest.raises(ssl.SSLError, match="ALERT"):
        wrong.take()
    status, _, document = tunnels.answer(client)
    assert (status, document["error"]) == (502, "worker_unreachable")


def test_a_plain_worker_where_https_is_said_is_refused(tls):
    tunnels, worker = tls
    plain = worker()
    client = tunnels.ask(tunnels.sandbox(plain))
    sock, _ = plain.listener.accept()
    assert sock.recv(1) == b"\x16", "not the beginning of TLS"
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    sock.close()
    status, _, document = tunnels.answer(client)
    assert (status, document["error"]) == (502, "worker_unreachable")


# ---- HTTP/2, TLS, half-close ----


class Stream(Peer):
    """A WebSocket over HTTP/2."""

    def __init__(self, http2):
        super().__init__(http2.sock, masks=True)
        self.http2 = http2

    def send(self, data):
        self.http2.send(data)

    def more(self):
        got = self.http2.read()
        self.bytes += got
        return len(got)


def test_http_2_clients_have_tunnels_too(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    with Http2(tunnels.cell.https) as http2:
        # the answer comes only when the worker's does
        served = []
        serving = threading.Thread(target=lambda: served.append(worker.serve()))
        serving.start()
        assert http2.upgrade(f"/plain/{sandbox}/s1").status == 200
        serving.join()
        client, upstream = Stream(http2), served[0]
        pass_both_ways(client, upstream)
        pass_both_ways(client, upstream, os.urandom(300_000))
        upstream.reset()
        upstream = worker.serve()
        pass_both_ways(client, upstream)
        client.close_with(1000, b"bye")
        assert upstream.closed() == (1000, "bye")
        assert client.closed() == (1000, "")
        assert client.ended()


def test_tls_clients_have_tunnels_too(tunnels):
    client, upstream = tunnels.open(tunnels.worker(), tls=True)
    pass_both_ways(client, upstream, b"z" * 100_000)


def test_what_a_client_said_before_its_half_close_arrives(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    client.say(b"x" * 200_000)
    client.say(b"last")
    client.sock.shutdown(socket.SHUT_WR)
    assert upstream.message() == (BINARY, b"x" * 200_000)
    assert upstream.message() == (BINARY, b"last")
    assert upstream.closed() == (1001, "client lost")
    assert client.ended()


def test_what_a_worker_said_before_its_half_close_arrives_and_it_is_redialled(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    upstream.say(b"x" * 200_000)
    upstream.sock.shutdown(socket.SHUT_WR)
    assert client.message() == (BINARY, b"x" * 200_000)
    pass_both_ways(client, worker.serve())


def test_a_slow_client_that_types_gets_all_that_its_session_said_last(tunnels):
    """On its way through HAProxy and two kernels is what a relay that leaves would take with it: HAProxy cannot pass on what
    the client types then, and resets it."""
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client = tunnels.ask(sandbox, room=8192)
    upstream = worker.serve()
    tunnels.accepted(client)
    for _ in range(50):
        upstream.say(b"x" * 10_000)
    upstream.close_with(1000, b"done")
    tunnels.state(sandbox, "closing")
    slow = time.monotonic() + 8  # more than the five seconds that others have for their answer, and the two for leaving
    while time.monotonic() < slow:
        assert [t["state"] for t in tunnels.tunnels(sandbox)] == ["closing"]
        client.say(b"y")
        time.sleep(0.5)
    for _ in range(50):
        assert client.message() == (BINARY, b"x" * 10_000)
    assert client.closed() == (1000, "done")
    tunnels.gone(sandbox)


def test_each_side_gets_the_others_close_and_then_the_end(tunnels):
    worker = tunnels.worker()
    client, upstream = tunnels.open(worker)
    client.close_with(4321, "mine".encode())
    assert upstream.hear() == (CLOSE, b"\x10\xe1mine", True)
    upstream.close_with(1000, b"thine")
    assert client.hear() == (CLOSE, b"\x03\xe8thine", True)
    assert client.ended() and upstream.ended()


# ---- a client that leaves before it is answered ----


@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_does_not_wait_for_its_worker_takes_no_place(make, tls):
    tunnels = make(relay={"max_tunnels_per_sandbox": 1, "dial_timeout": "1m"})
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client = tunnels.ask(sandbox, tls=tls)
    silent = worker.take()
    assert tunnels.refused(sandbox) == (503, "too_many_tunnels")
    client.close()
    if tls and haproxy_version() == (2, 8):
        silent.close()  # 2.8 sees no TLS client leave while a filter looks on: the place is free when the worker has spoken
    tunnels.gone(sandbox)
    assert tls and haproxy_version() == (2, 8) or silent.ended()
    tunnels.open(worker, sandbox)


# ---- a client that is lost while nothing moves either way ----


def asked(cell, command):
    """The answer of HAProxy's own socket."""
    with socket.socket(socket.AF_UNIX) as stats:
        stats.connect(str(cell.run_dir / "haproxy.sock"))
        stats.sendall(command.encode() + b"\n")
        return stats.makefile().read()


@pytest.mark.parametrize("route", ["plain", "api/sandboxes"])
def test_an_idle_tunnel_leaves_little_in_haproxy(make, route):
    """What was decided is dropped with the 101: it was 8,400 bytes and more (docs/evidence/benchmarks.md)."""
    many = make(relay={"max_tunnels_per_sandbox": 0})
    worker = many.worker()

    def held(count):
        opened = [many.open(worker, route=route) for _ in range(count)]
        return opened, sum(int(size) * int(used) for size, used in re.findall(r"\((\d+) bytes\) *:.*?, (\d+) used", asked(many.cell, "show pools")))

    first, before = held(50)
    more, after = held(100)
    assert 1000 < (after - before) / len(more) < 6500


def fills(peer):
    """Says as much as is taken; what is left when no more is."""
    message = frame(BINARY, bytes(16000), mask=bytes(4) if peer.masks else None)
    rest, moved = message, time.monotonic()
    peer.sock.settimeout(0)
    while time.monotonic() - moved < 0.5:
        if select.select([], [peer.sock], [], 0.05)[1]:
            rest, moved = rest[peer.sock.send(rest) :] or message, time.monotonic()


@pytest.mark.parametrize("route,timeout", [("plain", "CELLGATE_RELAY_TUNNEL_TIMEOUT"), ("api/sandboxes", "CELLGATE_TUNNEL_TIMEOUT")])
def test_a_client_that_is_lost_while_nothing_moves_is_forgotten_in_time(make, route, timeout):
    """As long as HAProxy holds data for both sides it does not see that one is lost, nor that both are."""
    forgetful = make(environment={timeout: "2s"})
    client, upstream = forgetful.open(forgetful.worker(), route=route)
    name = f"src=127.0.0.1:{client.sock.getsockname()[1]} "
    assert name in asked(forgetful.cell, "show sess")
    for peer in (upstream, client, upstream):
        fills(peer)
    client.reset()
    until(lambda: name not in asked(forgetful.cell, "show sess"), 20, "HAProxy keeps the tunnel")


@pytest.mark.parametrize("route", ["plain", "api/sandboxes"])
def test_by_default_a_tunnel_on_which_nothing_moves_ends_in_minutes(tunnels, route):
    """Nothing else ends one that is lost while it is full both ways, and HAProxy 2.6 takes a core for it."""
    client, _ = tunnels.open(tunnels.worker(), route=route)
    name = f"src=127.0.0.1:{client.sock.getsockname()[1]} "

    def ends_in():
        """Once its task has looked, in minutes."""
        (session,) = (line for line in asked(tunnels.cell, "show sess").splitlines() if name in line)
        return re.search(r" exp=(\d+)([mhd])", session)

    minutes, unit = until(ends_in, 10, "it never ends").groups()
    assert unit == "m" and 5 <= int(minutes) <= 15


def test_a_silent_tunnel_is_kept_by_the_relays_pings(make):
    tunnels = make(relay={"keepalive": "250ms"}, environment={"CELLGATE_RELAY_TUNNEL_TIMEOUT": "2s"})
    client, upstream = tunnels.open(tunnels.worker())
    for _ in range(12):  # at 250 ms
        for peer in (client, upstream):
            opcode, payload, _ = peer.hear()
            assert opcode == PING
            peer.say(payload, PONG)
    client.say(b"there")
    while (heard := upstream.hear())[0] == PING:
        pass
    assert heard[:2] == (BINARY, b"there")


# ---- stopping and reloading ----


def test_a_reload_leaves_tunnels_alone(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, upstream = tunnels.open(worker, sandbox)
    cell, log = tunnels.cell, tunnels.cell.run_dir / "relay.log"
    good, relay = cell.config_file.read_text(), cell.pid("relay")
    try:
        for text, says in ((good.replace('"grace_period": "300ms"', '"grace_period": "200ms"'), "configuration reloaded"), ('{"cell": 1}', "not reloaded"), (good, "configuration reloaded")):
            before = log.read_text().count(says)
            cell.config_file.write_text(text)
            cell.kill("relay", signal.SIGHUP)
            until(lambda b=before, s=says: log.read_text().count(s) > b, 10, "no reload")
            cell.kill("agent", signal.SIGHUP)
            pass_both_ways(client, upstream)
    finally:
        cell.config_file.write_text(good)
        cell.kill("agent", signal.SIGHUP)
    upstream.reset()
    pass_both_ways(client, worker.serve())
    assert cell.pid("relay") == relay


def test_a_reload_without_a_key_ends_the_tunnels_that_it_opened(tunnels):
    cell, worker = tunnels.cell, tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    log, good = cell.run_dir / "agent.log", cell.config_file.read_text()
    secret = b"the key that is going to be gone, 32 bytes or more"
    (cell.folder / "k2.secret").write_bytes(secret)

    def reload(config):
        before = log.read_text().count("msg=reloaded what=configuration")
        cell.config_file.write_text(config)
        cell.kill("agent", signal.SIGHUP)
        until(lambda: log.read_text().count("msg=reloaded what=configuration") > before, 10, "no reload")

    def opened(made):
        return tunnels.open(worker, sandbox, "secure", headers=[("Authorization", "Bearer " + made)])

    config = json.loads(good)
    config["tokens"] = [*config["tokens"], config["tokens"][0] | {"kid": "k2", "secret_file": "k2.secret"}]
    try:
        reload(json.dumps(config))
        stays, goes = opened(cell.token(sandbox)), opened(token(sandbox=sandbox, secret=secret, header={"kid": "k2"}))
    finally:
        reload(good)
    assert goes[0].closed() == (1008, "token revoked")
    pass_both_ways(*stays)


def test_a_drain_ends_tunnels_one_after_the_other(make):
    tunnels = make(relay={"drain": "3s"})
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    pairs = [tunnels.open(worker, sandbox) for _ in range(15)]
    old = tunnels.cell.pid("relay")
    began = time.monotonic()
    tunnels.cell.kill("relay", signal.SIGTERM)
    until(lambda: readiness(tunnels) == 503, 10, "it is still ready")
    status, fields, document = tunnels.answer(tunnels.ask(sandbox))
    assert (status, document["error"], document["retryable"]) == (503, "draining", True) and "retry-after" in fields
    ends, waiting = [], {client.sock: (client, upstream) for client, upstream in pairs}
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], 10)
        assert ready, f"{len(waiting)} live on"
        for sock in ready:
            ends.append(time.monotonic() - began)
            client, upstream = waiting.pop(sock)
            assert client.closed() == (1012, "relay restarting")
            assert upstream.closed() == (1001, "relay restarting")
            if len(ends) == 5:
                assert "serving" in [tunnel["state"] for tunnel in tunnels.tunnels(sandbox)], ends
    assert ends[-1] > 2.0, ends
    until(lambda: tunnels.cell.pid("relay") != old, 10, "it does not end")
    until(lambda: relay_answers(tunnels), 10)
    up(tunnels, 1)
    pass_both_ways(*tunnels.open(worker, sandbox))


def readiness(tunnels):
    try:
        tunnels.cell.admin("/readyz", "relay")
        return 200
    except urllib.error.HTTPError as error:
        return error.code


def test_a_second_signal_ends_it_now(make):
    tunnels = make(relay={"drain": "1h"})
    client, upstream = tunnels.open(tunnels.worker())
    old = tunnels.cell.pid("relay")
    tunnels.cell.kill("relay", signal.SIGTERM)
    until(lambda: readiness(tunnels) == 503, 10)
    pass_both_ways(client, upstream)
    tunnels.cell.kill("relay", signal.SIGTERM)
    assert client.closed() == (1012, "relay restarting")
    until(lambda: tunnels.cell.pid("relay") != old, 10, "it does not end")
