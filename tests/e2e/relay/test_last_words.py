# SPDX-License-Identifier: MIT
"""A Close that a client is owed while it is in the middle of a long frame: it sends the whole frame, and reads its Close then."""

import select
import struct
import subprocess
import time

import pytest
from cell import BIN
from direct import Peer
from tunnels import QUICK, ROUTES, Tunnels, route
from worker import Ws

MUX = {"name": "mux", "path": "/v1/mux", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk", "max_message": "64KiB"}
LONG = 70 << 20
PIECE = bytes(1 << 20)


@pytest.fixture(scope="module")
def tunnels(cells):
    made = Tunnels(cells(config={"relay": QUICK | {"dead_after": "3m"}, "routes": [*ROUTES, route("small", max_message="100B"), MUX]}))
    yield made
    made.close()


def begin(client, size, bits=2):
    """The head of a frame, and a first piece of it."""
    client.send(bytes([0x80 | bits, 0xFF]) + struct.pack(">Q", size) + b"\0\0\0\0" + PIECE[:10])
    return size - 10


def go_on(client, left, pause=0.0):
    while left:
        client.send(PIECE[:left])
        left -= min(left, len(PIECE))
        time.sleep(pause)


def told(client):
    """The code of the Close, behind whatever came before it."""
    opcode, payload = 0, b""
    while opcode != 8:
        opcode, payload, _ = client.hear()
    return struct.unpack(">H", payload[:2])[0]


@pytest.mark.parametrize("pause", [0, 0.06], ids=["fast", "slow"])
def test_who_sends_a_message_that_is_too_long_gets_1009(tunnels, pause):
    """70 MiB in four seconds take longer than a peer that says nothing may."""
    client, _ = tunnels.open(tunnels.worker(), route="small")
    go_on(client, begin(client, LONG), pause)
    assert told(client) == 1009


def test_a_worker_whose_message_is_too_long_gets_1009(tunnels):
    _, upstream = tunnels.open(tunnels.worker(), route="small")
    upstream.send(b"\x82\x7f" + struct.pack(">Q", LONG))
    go_on(upstream, LONG)
    assert told(upstream) == 1009


ILLEGAL = {"a reserved bit": 0xC2, "a reserved opcode": 0x83, "a continuation of nothing": 0x80, "a long Ping": 0x89, "a cut Close": 0x08}


def begin_illegal(peer, first, masked, cut):
    """The head of a frame of LONG bytes. If it is cut, the peer goes on when its Close is there, and has not read it."""
    head = bytes([first, 0xFF if masked else 0x7F]) + struct.pack(">Q", LONG) + (b"\0\0\0\0" if masked else b"")
    peer.send(head[:2] if cut else head)
    if cut:
        assert select.select([peer.sock], [], [], 10)[0]
        peer.send(head[2:])


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("fault", [*ILLEGAL, "the wrong mask"])
@pytest.mark.parametrize("side", ["client", "worker", "mux", "mux v1"])
def test_who_breaks_the_protocol_in_a_long_frame_gets_1002(tunnels, side, fault, cut):
    if side.startswith("mux"):
        ws = Ws(tunnels.cell.http, "/v1/mux", [("Sec-WebSocket-Protocol", "cellgate.mux.v1")] if side == "mux v1" else [])
        peer = Peer(ws.http.sock, masks=True)
    else:
        peer = tunnels.open(tunnels.worker())[side == "worker"]
    begin_illegal(peer, ILLEGAL.get(fault, 0x82), (side != "worker") != (fault == "the wrong mask"), cut)
    go_on(peer, LONG)
    assert told(peer) == 1002


@pytest.mark.parametrize(("reason", "code", "pause"), [("kick", 1008, 0), ("kick", 1008, 0.1), ("stop", 1000, 0)])
def test_a_client_that_has_to_go_gets_its_close(tunnels, reason, code, pause):
    """Also if it takes longer than the five seconds in which it is to answer."""
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, _ = tunnels.open(worker, sandbox)
    left = begin(client, LONG - (10 << 20))
    if reason == "stop":
        tunnels.place(sandbox, worker, state="stopped")
    else:
        (tunnel,) = tunnels.tunnels(sandbox)
        subprocess.run([BIN / "cellgate", "kick", tunnel["id"], "--relay", f"unix@{tunnels.cell.run_dir}/relay.control.sock"], check=True, timeout=10)
    go_on(client, left, pause)
    assert told(client) == code


@pytest.mark.parametrize(("protocols", "bits", "code"), [(None, 1, 1009), ("cellgate.mux.v1", 2, 1009)])
@pytest.mark.parametrize("pause", [0, 0.06], ids=["fast", "slow"])
def test_a_mux_socket_that_breaks_a_rule_gets_its_close(tunnels, protocols, bits, code, pause):
    ws = Ws(tunnels.cell.http, "/v1/mux", [("Sec-WebSocket-Protocol", protocols)] if protocols else [])
    peer = Peer(ws.http.sock, masks=True)
    go_on(peer, begin(peer, LONG, bits), pause)
    assert told(peer) == code
