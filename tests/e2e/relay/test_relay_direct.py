# SPDX-License-Identifier: MIT
"""The relay with real sockets: each row of the tables in docs/relay.md."""

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import pytest
from cell import SANITIZED, stop, until
from direct import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Direct, Peer, Worker, accept_key, frame
from false_agent import FalseAgent, actions
from fault_injection import ALL, FAULT_INJECTION, Supply

SWITCH = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.fixture
def direct(tmp_path):
    with Direct(tmp_path) as d:
        yield d


def quick(tmp_path, **relay):
    return Direct(tmp_path, relay=relay)


# ---- opening ----
def test_bytes_types_and_boundaries_pass(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    assert upstream.line == "GET /sandboxes/sb-1/pty/s1?cols=80 HTTP/1.1"
    assert upstream.fields["host"] == "app.example"
    assert not [name for name in upstream.fields if name.startswith("x-cell")]
    client.say(b"in", TEXT)
    client.say(b"a", BINARY, fin=False)
    client.say(b"?", PING)
    client.say(b"b", CONTINUATION)
    assert [upstream.hear() for _ in range(4)] == [(TEXT, b"in", True), (BINARY, b"a", False), (PING, b"?", True), (CONTINUATION, b"b", True)]
    upstream.say(b"?", PONG)
    upstream.say(b"", TEXT)
    big = os.urandom(300000)
    upstream.say(big)
    assert client.hear() == (PONG, b"?", True)
    assert client.hear() == (TEXT, b"", True)
    assert client.message() == (BINARY, big)
    client.say(big)
    assert upstream.message() == (BINARY, big)
    assert direct.metric("cellgate_relay_tunnels{") == 1
    client.close_with(3001, b"bye")
    assert upstream.closed() == (3001, "bye")
    assert client.closed() == (3001, "")
    until(lambda: direct.metric('cellgate_relay_tunnels_closed_total{route="pty",reason="client_closed"}') == 1)
    until(lambda: "tunnel opened" in direct.log() and "reason=client_closed" in direct.log())


def test_a_worker_without_tcp_nodelay_is_acknowledged_at_once(direct):
    """Its second word waits until the first is acknowledged: for 40 ms each time if the relay leaves that to its next packet."""
    worker = direct.worker()
    direct.set(worker=worker)

    def seconds_to_the_second_word():
        client, upstream = direct.open(worker)
        begun = time.monotonic()
        upstream.say(b"first")
        upstream.say(b"second")
        assert [client.message() for _ in range(2)] == [(BINARY, b"first"), (BINARY, b"second")]
        return time.monotonic() - begun

    assert min(seconds_to_the_second_word() for _ in range(10)) < 0.03


def test_what_follows_a_head_in_the_same_packet_is_not_lost(direct):
    worker = direct.worker()
    client = direct.ask(worker, behind=frame(BINARY, b"early", mask=b"abcd"))
    upstream = worker.serve(behind=frame(TEXT, b"hello") + frame(BINARY, b"x" * 70000)[:30000])
    assert direct.answer(client)[0] == 101
    assert client.hear() == (TEXT, b"hello", True)
    assert upstream.hear() == (BINARY, b"early", True)
    upstream.send(frame(BINARY, b"x" * 70000)[30000:])
    assert client.message() == (BINARY, b"x" * 70000)


def test_subprotocols_pass_and_extensions_do_not(direct):
    worker = direct.worker()
    client = direct.ask(worker, fields=["Sec-WebSocket-Protocol: a, b", "Sec-WebSocket-Extensions: permessage-deflate", "X-Mine: 1"])
    upstream = worker.serve("Sec-WebSocket-Protocol: b", "Set-Cookie: s=1")
    assert upstream.fields["sec-websocket-protocol"] == "a, b"
    assert "sec-websocket-extensions" not in upstream.fields and upstream.fields["x-mine"] == "1"
    fields = direct.answer(client)[1]
    assert fields["sec-websocket-protocol"] == "b" and fields["set-cookie"] == "s=1"
    client = direct.ask(worker, select_cellgate=1)
    worker.serve()
    assert direct.answer(client)[1]["sec-websocket-protocol"] == "cellgate"


def test_a_refusal_of_the_worker_is_passed_on(direct):
    worker = direct.worker()
    client = direct.ask(worker)
    worker.refuse("404 Not Found", b'{"code":"CONTEXT_NOT_FOUND"}', "Content-Type: application/json", "X-Cell-Secret: no", "Keep-Alive: 5")
    status, fields, body = direct.answer(client)
    assert (status, body, fields["content-type"]) == (404, b'{"code":"CONTEXT_NOT_FOUND"}', "application/json")
    assert "x-cell-secret" not in fields and "keep-alive" not in fields
    client = direct.ask(worker)
    peer = worker.take()
    peer.send(b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    status, fields, body = direct.answer(client)
    assert (status, body) == (302, b"hello") and "transfer-encoding" not in fields
    assert not worker.dials()
    client = direct.ask(worker)
    peer = worker.take()
    peer.send(b"HTTP/1.0 500 Oops\r\n\r\n" + b"z" * 100000)
    peer.close()
    assert direct.answer(client)[2] == b"z" * 65536


WRONG = {
    "wrong accept": SWITCH + "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
    "no accept": SWITCH + "\r\n",
    "no upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n",
    "h2c": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n",
    "two accepts": SWITCH + "Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Accept: {accept}\r\n\r\n",
    "protocol": SWITCH + "Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: x\r\n\r\n",
    "extension": SWITCH + "Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    "content length": SWITCH + "Sec-WebSocket-Accept: {accept}\r\nContent-Length: 3\r\n\r\n",
    "transfer encoding": SWITCH + "Sec-WebSocket-Accept: {accept}\r\nTransfer-Encoding: chunked\r\n\r\n",
    "http 1.0": SWITCH.replace("1.1", "1.0", 1) + "Sec-WebSocket-Accept: {accept}\r\n\r\n",
    "interims": "HTTP/1.1 103 Early Hints\r\n\r\n" * 5 + SWITCH + "Sec-WebSocket-Accept: {accept}\r\n\r\n",
    "nonsense": "SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "cut": "HTTP/1.1 101 Switch",
    "huge": "HTTP/1.1 101 Switching Protocols\r\nX: " + "y" * 20000 + "\r\n\r\n",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_101_opens_nothing(direct, what):
    worker = direct.worker()
    client = direct.ask(worker)
    peer = worker.take()
    peer.send(WRONG[what].replace("{accept}", accept_key(peer.fields["sec-websocket-key"])).encode())
    if what == "cut":
        peer.close()
    status, _, body = direct.answer(client)
    assert status == 502 and b'"worker_unreachable"' in body


def test_interim_answers_are_skipped(direct):
    worker = direct.worker()
    client = direct.ask(worker)
    peer = worker.take()
    peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 4)
    peer.send((SWITCH + f"Sec-WebSocket-Accept: {accept_key(peer.fields['sec-websocket-key'])}\r\n\r\n").encode())
    assert direct.answer(client)[0] == 101


def test_a_worker_that_does_not_answer_is_a_timeout(tmp_path):
    with quick(tmp_path, dial_timeout="1s") as direct:
        worker = direct.worker()
        client = direct.ask(worker)
        worker.take()
        status, _, body = direct.answer(client)
        assert status == 504 and b'"worker_timeout"' in body


def test_a_worker_that_refuses_connections_is_retried_then_unreachable(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    worker.listener.close()
    began = time.monotonic()
    client = direct.ask(worker)
    status, _, body = direct.answer(client)
    assert status == 502 and b'"worker_unreachable"' in body
    assert 0.3 < time.monotonic() - began < 5


def test_a_worker_that_comes_late_is_reached(direct):
    worker, dead = direct.worker(), direct.worker()
    direct.set(worker=worker)
    dead.listener.close()
    client = direct.ask(dead)
    worker.serve()
    assert direct.answer(client)[0] == 101


def test_a_worker_outside_of_the_networks_is_not_dialled(direct):
    client = direct.ask(addr="192.0.2.1", addr_port=80)
    status, _, body = direct.answer(client)
    assert status == 502 and b'"worker_unreachable"' in body
    until(lambda: "worker_networks" in direct.log())


def test_sockets_of_workers_are_where_the_operator_says_only(tmp_path):
    """The record may name any path: also one outside, or a link that leads out."""
    folder = tmp_path / "sockets"
    folder.mkdir()
    inside, outside = Worker(folder / "w.sock"), Worker(tmp_path / "docker.sock")
    (folder / "link.sock").symlink_to(tmp_path / "docker.sock")
    for top, path, reached in [({}, folder / "w.sock", False), ({"worker_sockets": [f"{folder}/"]}, folder / "w.sock", True),
                               ({"worker_sockets": [f"{folder}/"]}, folder / "link.sock", False),
                               ({"worker_sockets": [f"{folder}/"]}, tmp_path / "docker.sock", False),
                               ({"worker_sockets": [f"{folder}/"]}, f"{folder}/../docker.sock", False)]:
        with Direct(tmp_path, top=top, agent=False) as direct:
            client = direct.ask(unix=path)
            if reached:
                inside.serve()
            assert (direct.answer(client)[0] == 101) == reached, path
    assert not outside.dials()
    inside.close()
    outside.close()


def test_a_sandbox_that_wakes_is_waited_for(direct):
    worker = direct.worker()
    direct.set(state="waking")
    client = direct.ask(hold=5000)
    assert client.silent(0.4)
    direct.set(worker=worker)
    worker.serve()
    assert direct.answer(client)[0] == 101


@pytest.mark.parametrize("record,status,code", [
    ({"state": "waking"}, 503, b'"sandbox_waking"'), ({"state": "migrating"}, 503, b'"sandbox_migrating"'),
    ({"state": "stopped"}, 410, b'"sandbox_stopped"'), ({}, 404, b'"sandbox_not_found"')])
def test_a_sandbox_without_a_worker_is_refused(direct, record, status, code):
    direct.set(**record)
    client = direct.ask(hold=200)
    got, fields, body = direct.answer(client)
    assert got == status and code in body and (status != 503 or fields["retry-after"] == "1")


def test_a_refusal_is_told_by_a_close(direct):
    client = direct.ask(refuse=410, error="sandbox_stopped")
    assert direct.answer(client)[0] == 101
    assert client.closed() == (4410, "sandbox_stopped")
    assert client.ended()


BAD_HEADS = {
    "no handover": b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    "no upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nX-Cell-Handover: route=a;sandbox=b\r\n\r\n",
    "nonsense": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "too large": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20000,
    "post": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-Cell-Handover: route=a;sandbox=b\r\n\r\n",
    "bad handover": b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nX-Cell-Handover: route=%;sandbox=b\r\n\r\n",
}


@pytest.mark.parametrize("what", BAD_HEADS)
def test_what_is_no_upgrade_is_refused(direct, what):
    client = direct.ask(head=BAD_HEADS[what])
    assert direct.answer(client)[0] in (400, 405, 426)
    assert client.ended()


def test_a_health_check_is_answered_and_nothing_that_was_handed_over_is_one(direct):
    check = direct.ask(head=b"GET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n")
    assert direct.answer(check)[0] == 204
    assert check.ended()
    assert direct.metric("cellgate_relay_refused_total") == 0
    worker = direct.worker()
    client = direct.ask(worker, path="/healthz")
    assert worker.serve().line == "GET /healthz HTTP/1.1"
    assert direct.answer(client)[0] == 101


def test_a_client_that_leaves_while_it_is_opened_ends_the_dial(direct):
    worker = direct.worker()
    client = direct.ask(worker)
    peer = worker.take()
    client.close()
    assert peer.ended()


OUT_OF_RANGE = [{"addr_port": 0}, {"addr_port": 65536 + 80}, {"addr_port": None}, {"refuse": 399, "error": "x"}, {"refuse": 1000, "error": "x"},
                {"refuse": 65536 + 404, "error": "x"}]


@pytest.mark.parametrize("handed", OUT_OF_RANGE)
def test_a_number_that_does_not_fit_is_refused_and_not_cut(direct, handed):
    client = direct.ask(addr="127.0.0.1", **{"addr_port": 80} | handed)
    status, _, body = direct.answer(client)
    assert (status, json.loads(body)["error"]) == (400, "bad_request")
    assert client.ended()


def test_an_agent_that_names_no_port_has_not_answered(tmp_path):
    with Direct(tmp_path, agent=False, relay={"connect_budget": "10s", "redial_backoff": ["10ms"]}) as direct:
        worker = direct.worker()
        wrong = [0, -1, "http", None, 65536 + worker.port]
        ports = iter(wrong)

        def answer(stream, number):
            port = next(ports, worker.port)
            named = [] if port is None else [("addr_port", port)]
            return actions(("addr", socket.inet_aton("127.0.0.1")), *named, ("state", "running"), ("epoch", 1))(stream, number)

        agent = FalseAgent(tmp_path / "agent-relay.sock", answer)
        client = direct.ask()
        upstream = worker.take()
        assert agent.asked == len(wrong) + 1
        worker.accept(upstream)
        assert direct.answer(client)[0] == 101
        agent.close()


# ---- losing the worker ----
def lost_and_found(direct, lose, **handed):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker, **handed)
    lose(upstream)
    again = worker.serve()
    client.say(b"after")
    assert again.hear() == (BINARY, b"after", True)
    again.say(b"here", TEXT)
    assert client.hear() == (TEXT, b"here", True)
    assert direct.metric("cellgate_relay_redials_total") == 1
    return client, again


def closing_with(code):
    def lose(upstream):
        upstream.close_with(code)
        assert upstream.closed()[0] == code

    return lose


@pytest.mark.parametrize("code", [1001, 1011, 1012, 1013, 1014])
def test_a_close_that_stands_for_a_loss_is_redialled(direct, code):
    lost_and_found(direct, closing_with(code))


def test_a_worker_that_ends_is_redialled(direct):
    lost_and_found(direct, lambda upstream: upstream.close())


def test_a_worker_that_resets_is_redialled(direct):
    lost_and_found(direct, lambda upstream: upstream.reset())
    assert direct.metric('cellgate_relay_redials_total{cause="reset",outcome="resumed"}') == 1


def test_a_worker_that_is_stopped_is_redialled(tmp_path):
    with quick(tmp_path, keepalive="200ms", dead_after="2s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        until(lambda: answer_pings(client, 0.1) or waits(worker), 10)
        assert upstream.hear()[0] == PING  # which nobody has answered
        worker.serve().say(b"here")
        assert next_but_pings(client) == (BINARY, b"here", True)
        assert direct.metric('cellgate_relay_redials_total{cause="silent",outcome="resumed"}') == 1


def waits(worker):
    """Somebody has dialled."""
    return select.select([worker.listener], [], [], 0)[0]


def answer_pings(client, seconds):
    """Answers what pings come in this time."""
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at:
        if not client.silent(0.02):
            opcode, payload, _ = client.hear()
            assert opcode == PING
            client.say(payload, PONG)


def next_but_pings(peer):
    while (got := peer.hear())[0] == PING:
        peer.say(got[1], PONG)
    return got


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1009, 1010, 4001])
def test_a_close_that_is_final_is_passed_on(direct, code):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    upstream.close_with(code, b"no")
    assert client.closed() == (code, "no")
    assert upstream.closed()[0] == code
    assert not worker.dials()


@pytest.mark.parametrize("code", [None, 1000, 3000, 4999])
def test_a_close_without_news_is_the_end_of_the_session(direct, code):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    began = time.monotonic()
    upstream.close_with(code, b"done" if code else b"")
    assert client.closed() == (code, "done" if code else "")
    assert 0.25 < time.monotonic() - began < 4


def test_a_close_before_the_news_of_a_move_is_a_move(direct):
    old, new = direct.worker(), direct.worker()
    direct.set(worker=old)
    client, upstream = direct.open(old)
    upstream.close_with(1000)
    time.sleep(0.1)
    direct.set(worker=new)
    again = new.serve()
    again.say(b"moved")
    assert client.hear() == (BINARY, b"moved", True)


def test_a_client_that_ends_its_side_behind_its_close_gets_the_answer(direct):
    """As Chromium does on HTTP/2."""
    client, upstream = direct.open(direct.worker())
    client.close_with(1000, b"done")
    client.sock.shutdown(socket.SHUT_WR)
    assert upstream.hear() == (CLOSE, b"\x03\xe8done", True) and upstream.silent()
    upstream.close_with(1000, b"bye")
    assert client.hear() == (CLOSE, b"\x03\xe8bye", True)
    assert client.ended()


def taken(peer):
    """All that was sent is in the other side's kernel."""
    until(lambda: struct.unpack("i", fcntl.ioctl(peer.sock, termios.TIOCOUTQ, bytes(4)))[0] == 0)


def test_the_last_words_of_a_worker_pass_though_it_takes_no_more_input(tmp_path):
    with quick(tmp_path, keepalive="60s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        count = 0
        while direct.tunnels()[0]["held"] <= 65536:  # until it is not read any more
            upstream.say(b"x" * 8000)
            taken(upstream)
            count += 1
        upstream.say(b"last words")
        upstream.close_with(1000, b"done")
        taken(upstream)
        upstream.close()
        before = direct.tunnels()[0]["to_worker"]
        client.say(b"1")  # is answered by a reset
        until(lambda: direct.tunnels()[0]["to_worker"] > before)
        client.say(b"2")
        until(lambda: direct.tunnels()[0]["held"] > 131072 or direct.tunnels()[0]["state"] != "serving")
        assert [client.message()[1] for _ in range(count + 1)] == [b"x" * 8000] * count + [b"last words"]
        assert client.closed() == (1000, "done")
        assert direct.metric("cellgate_relay_redials_total") == 0


def test_a_worker_that_reads_nothing_for_a_long_time_is_left_alone_while_it_speaks(tmp_path):
    """Its kernel has no room for input that long: TCP asks for it and is answered. That its process may do something else
    than read is for its session to judge."""
    with quick(tmp_path, keepalive="500ms", dead_after="2s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        count = 0
        busy = time.monotonic() + 8  # more than three times that after which silence would be a loss
        while time.monotonic() < busy:
            if direct.tunnels()[0]["held"] <= 65536:  # until the client is not read any more
                client.say(b"x" * 16_000)
                taken(client)
                count += 1
            else:
                time.sleep(0.1)
            upstream.say(b"output")
            assert next_but_pings(client) == (BINARY, b"output", True)
        assert [next_but_pings(upstream) for _ in range(count)] == [(BINARY, b"x" * 16_000, True)] * count
        assert direct.metric("cellgate_relay_redials_total") == 0


@pytest.mark.parametrize("first", ["client", "worker"])
def test_the_last_words_of_a_client_pass_though_it_takes_no_more_output(direct, first):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    stop(direct.relay.pid)
    if first == "worker":
        upstream.say(b"output")
    client.say(b"last words")
    client.close()
    if first == "client":
        upstream.say(b"output")
    os.kill(direct.relay.pid, signal.SIGCONT)
    assert next_but_pings(upstream) == (BINARY, b"last words", True)
    assert upstream.closed() == (1001, "client lost")


def test_an_exit_frame_ends_the_tunnel(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker, end="exit-frame")
    upstream.say(b"\x03\0\0\0\x07")
    upstream.close_with(1000)
    assert client.hear() == (BINARY, b"\x03\0\0\0\x07", True)
    assert client.closed() == (1000, "exec completed")
    client, upstream = direct.open(worker, end="exit-frame")
    upstream.close_with(1000)  # without an exit: a release
    worker.serve().say(b"again")
    assert next_but_pings(client)[1] == b"again"


def test_an_exit_message_passes_the_workers_close(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker, end="exit-json")
    upstream.say(b'{"type": "exit", "exit_code": 3}', TEXT)
    upstream.close_with(1000, b"process exited")
    client.hear()
    assert client.closed() == (1000, "process exited")


@pytest.mark.parametrize("status,close", [("404 Not Found", (1000, "session not found")), ("410 Gone", (1000, "session not found")),
                                          ("401 Unauthorized", (1011, "worker refused")), ("403 Forbidden", (1011, "worker refused"))])
def test_a_redial_that_is_refused_for_good(direct, status, close):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    upstream.reset()
    worker.refuse(status)
    assert client.closed() == close


def test_a_redial_that_is_refused_for_now_is_repeated(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    upstream.reset()
    worker.refuse("503 Service Unavailable")
    worker.refuse("409 Conflict")
    worker.serve().say(b"x")
    assert next_but_pings(client)[1] == b"x"


def test_a_worker_that_does_not_come_back_is_given_up(tmp_path):
    with quick(tmp_path, redial_budget="800ms") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        worker.listener.close()
        upstream.reset()
        got = next_but_pings(client)
        assert got[0] == CLOSE and got[1][2:] == b"upstream unrecoverable"
        client.close()
        until(lambda: direct.metric('cellgate_relay_redials_total{cause="reset",outcome="failed"}') == 1)


def test_a_worker_that_flaps_ends_the_tunnel(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    for _ in range(3):
        upstream.reset()
        upstream = worker.serve()
    upstream.reset()
    assert client.closed() == (1011, "upstream flapping")


def test_a_move_closes_the_old_worker_and_dials_the_new_one(direct):
    old, new = direct.worker(), direct.worker()
    direct.set(worker=old)
    client, upstream = direct.open(old)
    began = time.monotonic()
    direct.set(worker=new)
    assert upstream.closed() == (1000, "moved")
    again = new.serve()
    assert time.monotonic() - began < 4
    client.say(b"x")
    assert next_but_pings(again)[1] == b"x"
    assert client.silent()


def test_input_that_a_worker_has_not_read_when_it_is_left_is_counted(tmp_path):
    with quick(tmp_path, keepalive="60s") as direct:
        old, new = direct.worker(), direct.worker()
        direct.set(worker=old)
        client, upstream = direct.open(old)
        client.say(b"word")
        until(lambda: direct.metric('cellgate_relay_bytes_total{direction="to_worker"}') > 4)
        direct.set(worker=new)
        new.serve()
        upstream.reset()
        until(lambda: direct.metric("cellgate_relay_unconfirmed_input_bytes_total") == 4)


def test_with_overlap_the_old_worker_serves_until_the_new_one_is_there(direct):
    old, new = direct.worker(), direct.worker()
    direct.set(worker=old)
    client, upstream = direct.open(old, overlap=1)
    direct.set(worker=new)
    peer = new.take()
    upstream.say(b"still here")
    assert next_but_pings(client)[1] == b"still here"
    peer.send((SWITCH + f"Sec-WebSocket-Accept: {accept_key(peer.fields['sec-websocket-key'])}\r\n\r\n").encode())
    assert upstream.closed() == (1000, "moved")
    client.say(b"x")
    assert next_but_pings(peer)[1] == b"x"


def test_eleven_moves_in_a_minute_are_too_many(direct):
    workers = [direct.worker(), direct.worker()]
    direct.set(worker=workers[0])
    client, upstream = direct.open(workers[0])
    for i in range(1, 11):
        direct.set(worker=workers[i % 2])
        workers[i % 2].serve()
    direct.set(worker=workers[1])
    got = next_but_pings(client)
    assert got[1][2:] == b"upstream flapping"


def test_an_absent_session_is_asked_for_once_more_after_a_move(direct):
    old, new = direct.worker(), direct.worker()
    direct.set(worker=old)
    client, _ = direct.open(old)
    direct.set(worker=new)
    new.refuse("404 Not Found")
    new.serve().say(b"there")
    assert next_but_pings(client)[1] == b"there"


@pytest.mark.parametrize("record,reason", [({"state": "stopped"}, "sandbox stopped"), ({}, "sandbox not found")])
def test_the_end_of_a_sandbox_ends_its_tunnels_at_once(direct, record, reason):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    direct.set(**record)
    assert client.closed() == (1000, reason)
    assert upstream.closed() == (1001, reason)


def test_a_migration_without_a_worker_is_waited_for(tmp_path):
    with quick(tmp_path, redial_budget="300ms", keepalive="10s") as direct:
        old, new = direct.worker(), direct.worker()
        direct.set(worker=old)
        client, upstream = direct.open(old)
        direct.set(state="migrating")
        time.sleep(0.3)
        upstream.say(b"still served")
        assert next_but_pings(client)[1] == b"still served"
        upstream.close()
        assert client.silent(1)
        direct.set(worker=new)
        new.serve().say(b"there")
        assert next_but_pings(client)[1] == b"there"


def test_a_message_that_was_cut(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker, stream=1)
    upstream.say(b"half", TEXT, fin=False)
    assert client.hear() == (TEXT, b"half", False)
    upstream.reset()
    assert client.hear() == (CONTINUATION, b"", True)
    worker.serve().say(b"next", TEXT)
    assert client.hear() == (TEXT, b"next", True)
    client, upstream = direct.open(worker)
    upstream.send(frame(BINARY, b"z" * 50000)[:30000])
    assert client.hear()[2] is False
    upstream.reset()
    while (got := client.hear())[0] == CONTINUATION:
        pass
    assert got[0] == CLOSE and got[1][2:] == b"message cut"


def test_an_agent_that_restarts_is_asked_again(direct):
    old, new = direct.worker(), direct.worker()
    direct.set(worker=old)
    client, upstream = direct.open(old)
    direct.agent.kill()
    direct.agent.wait()
    direct.set(worker=new)
    old.listener.close()  # who is known is dialled while there is no agent
    upstream.reset()

    def come_back():
        time.sleep(0.3)
        direct.start_agent()
        new.serve().say(b"there")

    back = threading.Thread(target=come_back)
    back.start()
    got = next_but_pings(client)  # a client that answers no pings is given up meanwhile
    back.join()
    assert got[1] == b"there"


def test_without_an_agent_a_known_worker_is_dialled_and_an_unknown_one_refused(tmp_path):
    with Direct(tmp_path, agent=False) as direct:
        worker = direct.worker()
        direct.open(worker)
        status, _, body = direct.answer(direct.ask())
        assert status == 503 and b'"agent_unavailable"' in body


# ---- while there is no worker ----
def test_pings_are_answered_during_a_redial(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    client.say(b"open", PING)
    assert upstream.hear() == (PING, b"open", True)
    upstream.reset()
    assert client.hear() == (PONG, b"open", True)
    client.say(b"now", PING)
    assert client.hear() == (PONG, b"now", True)
    again = worker.serve()
    assert again.silent()


def test_a_paste_is_held_and_delivered(direct):
    paste = os.urandom(1 << 20)
    worker = direct.worker()
    direct.set(worker=worker)
    client, upstream = direct.open(worker)
    direct.set(state="migrating")
    upstream.reset()
    time.sleep(0.1)
    client.sock.setblocking(False)
    rest, sent = frame(BINARY, paste, mask=b"wxyz"), 0
    while True:
        try:
            sent += client.sock.send(rest[sent : sent + 65536])
        except BlockingIOError:
            if direct.metric("cellgate_relay_held_bytes") > 200000:
                break
            time.sleep(0.02)
    held = direct.metric("cellgate_relay_held_bytes")
    assert held <= 2 * 262144 + 65536
    direct.set(worker=worker)
    again = worker.serve()
    client.sock.setblocking(True)
    got = b""
    sender = threading.Thread(target=lambda: client.sock.sendall(rest[sent:]))
    sender.start()
    fin = False
    while not fin:
        opcode, payload, fin = again.hear()
        if opcode != PING:
            got += payload
    sender.join()
    assert got == paste
    until(lambda: direct.metric("cellgate_relay_held_bytes") == 0)


# ---- keepalive ----
def test_the_relays_own_pings_and_pongs_are_its_own(tmp_path):
    with quick(tmp_path, keepalive="500ms") as direct:
        client, upstream = direct.open(direct.worker())
        for _ in range(3):
            for peer in (client, upstream):
                opcode, payload, _ = peer.hear()
                assert opcode == PING
                peer.say(payload, PONG)
        client.say(b"x")
        assert next_but_pings(upstream) == (BINARY, b"x", True)


def test_what_keeps_a_tunnel_alive_is_no_use_of_it(tmp_path):
    """By `idle` the agent knows whom to tell of as in use."""
    with quick(tmp_path, keepalive="300ms") as direct:
        client, upstream = direct.open(direct.worker())
        for _ in range(4):
            for peer in (client, upstream):
                opcode, payload, _ = peer.hear()
                assert opcode == PING
                peer.say(payload, PONG)
        client.say(b"its own", PING)
        while upstream.hear() != (PING, b"its own", True):
            pass
        idle = direct.tunnels()[0]["idle"]
        assert idle > 1
        client.say(b"x")
        until(lambda: direct.tunnels()[0]["idle"] < idle, 10, "data is no use of it either")


def test_a_client_that_is_silent_is_torn_down(tmp_path):
    with quick(tmp_path, keepalive="200ms", dead_after="2s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        got = next_but_pings(upstream)
        assert got[0] == CLOSE and got[1][2:] == b"client lost"


def test_empty_frames_keep_other_clients_alive(tmp_path):
    with quick(tmp_path, keepalive="500ms") as direct:
        client, _ = direct.open(direct.worker(), keepalive="empty-frame")
        assert client.hear() == (BINARY, b"", True)


# ---- bounds ----
def test_protocol_errors(direct):
    worker = direct.worker()
    client, upstream = direct.open(worker)
    client.send(frame(BINARY, b"not masked"))
    assert client.closed()[0] == 1002
    assert upstream.closed()[0] == 1001
    client, upstream = direct.open(worker)
    upstream.send(b"\xf2\x00")
    assert client.closed() == (1011, "worker protocol error")
    assert upstream.closed()[0] == 1002


def test_idle_age_and_size(direct):
    worker = direct.worker()
    for handed, close in (({"idle": 300}, (1001, "idle")), ({"max_age": 300}, (1001, "max age"))):
        client, _ = direct.open(worker, **handed)
        assert client.closed() == close
    client, _ = direct.open(worker, max_message=1000)
    client.say(b"x" * 1001)
    assert client.closed() == (1009, "message too big")


def test_a_reader_that_stops_is_too_slow(tmp_path):
    with quick(tmp_path, stall="500ms", keepalive="10s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        upstream.sock.setblocking(False)
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 10:
                try:
                    upstream.sock.send(frame(BINARY, b"x" * 60000))
                except BlockingIOError:
                    time.sleep(0.02)
                    if 'reason=client_too_slow' in direct.log():
                        raise OSError from None
        assert direct.metric('cellgate_relay_tunnels_closed_total{route="pty",reason="client_too_slow"}') + ("closing" in direct.get("/tunnels")) >= 1


def test_tunnels_are_limited(tmp_path):
    with quick(tmp_path, max_tunnels=3, max_tunnels_per_sandbox=2, max_tunnels_per_org=1) as direct:
        worker = direct.worker()
        first, _ = direct.open(worker, org="o1")
        assert direct.answer(direct.ask(worker, org="o1"))[0] == 503
        direct.open(worker, org="o2")
        status, fields, body = direct.answer(direct.ask(worker, org="o3"))
        assert status == 503 and b'"too_many_tunnels"' in body and fields["retry-after"]
        direct.open(worker, sandbox="sb-2", org="o3")
        assert direct.answer(direct.ask(worker, sandbox="sb-3", org="o4"))[0] == 503
        first.reset()
        until(lambda: len(direct.tunnels()) == 2)
        direct.open(worker, org="o1")


def test_descriptors_that_run_out_pause_accepting_and_nothing_else(tmp_path):
    with Direct(tmp_path, relay={"keepalive": "60s", "head_time": "1s", "max_tunnels": 20}, limits=304) as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        idle = [direct.connect() for _ in range(330)]
        until(lambda: len(os.listdir(f"/proc/{direct.relay.pid}/fd")) == 304, 10, "it has descriptors left")
        client.say(b"lives")
        assert next_but_pings(upstream)[1] == b"lives"
        for peer in idle:
            peer.close()
        until(lambda: direct.metric("cellgate_relay_accept_pauses_total") > 0, 10)
        client, upstream = direct.open(worker)
        client.say(b"again")
        assert next_but_pings(upstream)[1] == b"again"


def test_of_too_many_that_say_nothing_the_oldest_are_closed(tmp_path):
    """A neighbour that opens connections and says nothing holds up nobody, and not without bound."""
    most, more = 1024, 40
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    try:
        with Direct(tmp_path, relay={"threads": 1, "head_time": "60s", "max_tunnels": 2000}) as direct:
            worker = direct.worker()
            direct.set(worker=worker)
            cut = 'cellgate_relay_cut_short_total{what="handshake"}'
            idle = [direct.connect() for _ in range(most)]
            until(lambda: direct.metric("cellgate_relay_handshakes") == most, 10, "not all have arrived")
            assert direct.metric(cut) == 0
            idle += [direct.connect() for _ in range(more)]
            until(lambda: direct.metric(cut) == more, 10, "they are more and more")
            assert all(peer.ended() for peer in idle[:more])
            client, upstream = direct.open(worker)
            client.say(b"lives")
            assert next_but_pings(upstream)[1] == b"lives"
            idle[-1].send(b"GET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n")
            assert direct.answer(idle[-1])[0] == 204
            for peer in idle:
                peer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has to be the first that is loaded")
def test_a_listener_that_cannot_be_watched_for_a_while_is_accepted_from_again(tmp_path):
    descriptors, watches = Supply(tmp_path / "descriptors"), Supply(tmp_path / "watches")
    environment = {"LD_PRELOAD": FAULT_INJECTION, "FAULT_FILES": tmp_path / "descriptors", "FAULT_WATCHES": tmp_path / "watches"}
    with Direct(tmp_path, relay={"threads": 1}, environment=environment) as direct:
        watches.fail(0, ALL)
        descriptors.fail(0, 1)  # accepting pauses, and cannot go on
        check = direct.ask(head=b"GET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n")
        until(lambda: watches.counts()[1], 10, "nothing was to be watched")
        watches.suffices()
        assert direct.answer(check)[0] == 204
        check = direct.ask(head=b"GET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n")
        assert direct.answer(check)[0] == 204
        assert descriptors.counts()[1] == 1


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has to be the first that is loaded")
def test_tunnels_that_rest_go_on_while_there_is_no_memory_for_new_ones(tmp_path):
    """All of them rest, and all are heard of at once: no more memory can be had, of the kernel or of malloc."""
    maps, allocations = Supply(tmp_path / "maps"), Supply(tmp_path / "allocations")
    environment = {"LD_PRELOAD": FAULT_INJECTION, "FAULT_MAPS": tmp_path / "maps", "FAULT_ALLOC": tmp_path / "allocations"}
    with Direct(tmp_path, relay={"threads": 1, "keepalive": "60s", "dead_after": "60s"}, environment=environment) as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        ends = [direct.open(worker) for _ in range(200)]
        until(lambda: direct.metric("cellgate_relay_tunnels_resting") == len(ends), 10, "they do not rest")
        maps.fail(0, ALL)
        allocations.fail(0, ALL)
        for client, _ in ends:
            client.say(b"word")
        for client, upstream in ends:
            assert upstream.message() == (BINARY, b"word")
            upstream.say(b"answer")
            assert client.message() == (BINARY, b"answer")
        allocations.suffices()
        maps.suffices()
        assert direct.metric("cellgate_relay_tunnels_closed_total{") == 0 and len(direct.tunnels()) == len(ends)
        client, upstream = direct.open(worker)
        client.say(b"word")
        assert upstream.message() == (BINARY, b"word")


def test_too_few_descriptors_are_named_at_the_start(tmp_path):
    with pytest.raises(AssertionError, match="relay.max_tunnels 1000 needs 2256 open files"):
        with Direct(tmp_path, relay={"max_tunnels": 1000}, limits=500, agent=False):
            pass


# ---- operating ----
def test_the_views(direct):
    worker = direct.worker()
    direct.set(worker=worker, org="o1")
    client, _ = direct.open(worker, org="o1", sub="me")
    (tunnel,) = direct.tunnels()
    assert (tunnel["sandbox"], tunnel["route"], tunnel["org"], tunnel["state"]) == ("sb-1", "pty", "o1", "serving")
    assert tunnel["worker"] == f"127.0.0.1:{worker.port}"
    assert direct.get("/tunnels?sandbox=other").strip() == '{"tunnels":[]}'
    assert "<svg" in direct.get("/") and direct.get("/healthz") == "ok\n"
    assert direct.control(command="list")["tunnels"][0]["id"] == tunnel["id"]
    assert not direct.control(command="kick", id="t-9-9")["ok"]
    assert direct.control(command="kick", id=tunnel["id"])["ok"]
    assert client.closed() == (1008, "closed by the operator")


def test_a_drain(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    clients = [direct.open(worker)[0] for _ in range(6)]
    waiting = direct.connect()
    time.sleep(0.1)
    direct.relay.send_signal(signal.SIGTERM)
    for client in clients:
        assert client.closed() == (1012, "relay restarting")
    waiting.close()
    assert direct.relay.wait(10) == 0


def test_a_drain_leaves_workers_in_good_order(tmp_path):
    with quick(tmp_path, keepalive="60s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        while direct.tunnels()[0]["held"] <= 65536:
            client.say(b"x" * 60000)
        direct.relay.send_signal(signal.SIGTERM)
        assert client.closed() == (1012, "relay restarting")
        until(lambda: "reason=restarting" in direct.log())
        with pytest.raises(subprocess.TimeoutExpired):
            direct.relay.wait(0.3)
        while (got := upstream.hear())[0] != CLOSE:
            assert got[1]
        assert got[1][2:] == b"relay restarting"
        upstream.close()
        assert direct.relay.wait(10) == 0


def test_upgrades_during_a_drain_are_refused(tmp_path):
    with quick(tmp_path, drain="8s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        clients = [direct.open(worker)[0] for _ in range(4)]
        assert direct.control(command="drain")["ok"]
        assert not direct.ready()
        status, fields, body = direct.answer(direct.ask(worker))
        assert status == 503 and b'"draining"' in body and fields["retry-after"]
        began = time.monotonic()
        direct.relay.send_signal(signal.SIGTERM)
        until(lambda: "msg=draining" in direct.log(), 10, "it has not noticed the first")  # two at once are one
        direct.relay.send_signal(signal.SIGTERM)
        assert direct.relay.wait(10) == 0 and time.monotonic() - began < 6
        assert clients


def test_a_reload_changes_what_can_change_and_refuses_what_is_wrong(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    direct.open(worker)
    file = direct.folder / "cellgate.json"
    good = file.read_text()
    file.write_text(good.replace('"keepalive"', '"keepalife"'))
    direct.relay.send_signal(signal.SIGHUP)
    until(lambda: "not reloaded" in direct.log())
    file.write_text(good.replace('"threads": 2', '"threads": 2, "max_tunnels": 1'))
    direct.relay.send_signal(signal.SIGHUP)
    until(lambda: "configuration reloaded" in direct.log())
    assert direct.answer(direct.ask(worker))[0] == 503
    direct.relay.send_signal(signal.SIGUSR1)
    until(lambda: "msg=summary" in direct.log())


def test_a_reload_allows_more_tunnels_and_each_of_them_is_redialled(tmp_path):
    with quick(tmp_path, max_tunnels=1, max_tunnels_per_sandbox=0, threads=1, keepalive="60s") as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        file = direct.folder / "cellgate.json"
        file.write_text(file.read_text().replace('"max_tunnels": 1', '"max_tunnels": 100'))
        direct.relay.send_signal(signal.SIGHUP)
        until(lambda: "configuration reloaded" in direct.log())
        for _ in range(30):
            client, upstream = direct.open(worker)
        upstream.reset()
        worker.serve().say(b"again")
        assert next_but_pings(client)[1] == b"again"


def test_tunnels_that_come_and_go_leave_room_for_the_questions_of_others(tmp_path):
    """The watch of one that has ended stays with the agent for up to a minute."""
    with Direct(tmp_path, limits=256, relay={"threads": 1, "keepalive": "60s"}) as direct:
        worker = direct.worker()
        direct.set(worker=worker)
        client, upstream = direct.open(worker)
        for _ in range(150):
            gone, left = direct.open(worker)
            gone.close()
            left.ended()  # a worker that goes while its client may still be there would be dialled again
            left.close()
        upstream.reset()
        worker.serve().say(b"again")
        assert next_but_pings(client)[1] == b"again"


def test_the_listener_is_for_haproxy_alone(direct):
    assert os.stat(direct.folder / "relay.sock").st_mode & 0o777 == 0o660
    assert os.stat(direct.folder / "relay.control.sock").st_mode & 0o777 == 0o600


def test_a_worker_over_tls_is_dialled_through_haproxy(tmp_path):
    with Direct(tmp_path, relay={"worker_tls": f"unix@{tmp_path}/tls.sock"}, top={"worker_networks": ["10.0.0.0/8"]}) as direct:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "tls.sock"))
        listener.listen()
        listener.settimeout(10)
        direct.set(state="migrating")
        client = direct.ask(addr="10.1.2.3", addr_port=8443, tls=1, sni="worker.example")
        peer = Peer(listener.accept()[0], masks=False)
        head = peer.take(16)
        assert head[:12] == b"\r\n\r\n\0\r\nQUIT\n" and head[12:14] == b"\x21\x11"
        rest = peer.take(int.from_bytes(head[14:16], "big"))
        assert rest[4:8] == bytes([10, 1, 2, 3]) and int.from_bytes(rest[10:12], "big") == 8443
        assert rest[12:] == b"\x02\x00\x0eworker.example"
        peer.line, peer.fields = peer.head()
        peer.send((SWITCH + f"Sec-WebSocket-Accept: {accept_key(peer.fields['sec-websocket-key'])}\r\n\r\n").encode())
        assert direct.answer(client)[0] == 101
        listener.close()
