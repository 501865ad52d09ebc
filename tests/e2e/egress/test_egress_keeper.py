# SPDX-License-Identifier: MIT
"""Connections of sandboxes go on when the relay's program is replaced."""

import contextlib
import os
import random
import socket
import ssl
import subprocess
import threading
import time

import pytest
from cell import AT_ONCE, BIN, SANITIZED, until
from test_egress import HOST, allow, caller, config, destinations, dial, echo, metric, rules  # noqa: F401

pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers do not know the keeper's clone")


@pytest.fixture
def gate(cells):
    return lambda port, **more: cells(config=config(), sandboxes={"sb-1": rules(allow(port, **more))}, egress=True, environment={"CELLGATE_KEEPER": "on"})


def upgrade(cell):
    command = [BIN / "cellgate", "upgrade", "--relay", f"unix@{cell.run_dir}/relay.control.sock"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done


def test_a_connection_goes_on_and_each_side_ends_by_itself(gate, destinations):  # noqa: F811
    server = destinations(echo)
    cell = gate(server.port)
    opened = [dial(cell, f"{HOST}:{server.port}", caller(cell)) for _ in range(8)]
    for number in range(3):
        for answer in opened:
            answer.sock.sendall(b"%d" % number)
            assert answer.read(1) == b"%d" % number
        upgrade(cell)
    cell.says("relay", "tunnels taken over", "tunnels=8 lost=0")
    for answer in opened:
        answer.sock.sendall(b"last")
        answer.sock.shutdown(socket.SHUT_WR)
        assert answer.read_all() == b"last"
    assert server.accepted == 8
    cell.says("relay", "egress ended", 'why="both sides are through"')


def test_a_side_that_has_ended_before_is_still_ended(gate, destinations):  # noqa: F811
    go = threading.Event()

    def late(sock):
        while sock.recv(65536):
            pass
        go.wait(30)
        sock.sendall(b"after the end")

    server = destinations(late)
    cell = gate(server.port)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
    answer.sock.sendall(b"all")
    answer.sock.shutdown(socket.SHUT_WR)
    upgrade(cell)
    go.set()
    assert answer.read_all() == b"after the end"


def test_no_byte_is_lost_or_repeated_under_load(gate, destinations):  # noqa: F811
    """Both ways at once, the client slow, so that all buffers are full when the program is replaced."""
    rng = random.Random(7)
    down, up = rng.randbytes(8 << 20), rng.randbytes(4 << 20)
    got = []

    def serve(sock):
        sender = threading.Thread(target=sock.sendall, args=(down,))
        sender.start()
        data = bytearray()
        while len(data) < len(up) and (more := sock.recv(65536)):
            data += more
            time.sleep(0.0005)  # slower than the client
        got.append(bytes(data))
        sender.join()

    server = destinations(serve)
    cell = gate(server.port)
    answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
    sender = threading.Thread(target=answer.sock.sendall, args=(up,))
    sender.start()
    data = answer.read(1 << 16)
    for _ in range(4):
        upgrade(cell)
        data += answer.read(1 << 20)
    data += answer.read(len(down) - len(data))
    sender.join(30)
    assert data == down
    until(lambda: got == [up], AT_ONCE, "the destination got other bytes")


def test_the_host_of_a_client_hello_that_is_cut_is_checked(gate, destinations):  # noqa: F811
    server = destinations(lambda sock: sock.recv(65536))
    cell = gate(server.port)
    for name, passes in ((HOST, True), ("other.example.org", False)):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
        hello = outgoing.read()
        answer = dial(cell, f"{HOST}:{server.port}", caller(cell))
        answer.sock.sendall(hello[:100])
        upgrade(cell)
        answer.sock.sendall(hello[100:])
        assert (answer.read_all() == b"") == passes  # otherwise it is an alert
        answer.sock.close()


def test_a_connect_that_waits_is_answered_so_that_the_client_comes_again(gate):
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(2):  # the kernel then answers no SYN
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        cell = gate(port)
        waits = []
        client = threading.Thread(target=lambda: waits.append(dial(cell, f"{HOST}:{port}", caller(cell), timeout=30)))
        client.start()
        until(lambda: metric(cell, "cellgate_relay_egress_connections") == 1, AT_ONCE)
        upgrade(cell)
        client.join(30)
        assert waits[0].status == 503 and waits[0].all("retry-after"), waits[0].headers
        assert os.path.exists(cell.run_dir)
