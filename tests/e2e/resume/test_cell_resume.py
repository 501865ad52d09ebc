# SPDX-License-Identifier: MIT
"""Cell-Resume between a caller and cell-workers (docs/resume-protocol.md): nothing is lost and nothing repeated, whatever
happens to legs and workers."""

import hashlib
import json
import random
import re
import signal
import struct
import time

import pytest
from cell import alive, until
from resume import Caller, Refused, terms
from worker import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, WORKER_BEARER, Host, Ws

SH = "?command=/bin/sh"
WINDOW = 262144
PREFIX = b'{"cell-resume":'


@pytest.fixture(scope="module")
def workers(host):
    return [host.worker("--name", name) for name in ("worker-a", "worker-b")]


@pytest.fixture
def caller(workers):
    """On a shell."""
    made = []

    def make(query=SH, **options):
        made.append(Caller(query, **options).dial(workers[0].port))
        return made[-1]

    yield make
    for one in made:
        one.drop()


def status(act, *arguments, **changes):
    with pytest.raises(Refused) as refused:
        act(*arguments, **changes)
    return refused.value.status


def pid_of(caller):
    caller.say(b"echo pid=$$.\n")
    return int(caller.find(rb"pid=(\d+)\.\r")[1])


# ---- nothing lost, nothing repeated ----


@pytest.mark.parametrize("window, last", [(None, 2000000), (4096, 600000)])
@pytest.mark.parametrize("seed", [1, 2])
def test_output_is_exact_however_often_workers_are_killed(host, seed, window, last):
    chance = random.Random(seed)
    caller = Caller(f"?command=/usr/bin/seq+1+{last}", window=window).dial(host.worker().port)
    for _ in range(12):
        caller.pump(chance.uniform(0, 0.015))
        assert caller.end is None, "it was too fast to be disturbed"
        host.workers[-1].process.kill()
        if chance.random() < 0.5:
            caller.wait(lambda: caller.end)  # what was still under way
        host.workers[-1].process.wait()
        caller.dial(host.worker().port)
    assert caller.wait(lambda: caller.end, 60)
    assert caller.output.replace(b"\r", b"") == b"".join(b"%d\n" % i for i in range(1, last + 1))
    assert (caller.texts, caller.end) == ([{"type": "exit", "exit_code": 0}], (1000, "process exited"))


def test_input_is_consumed_once_however_often_legs_are_lost(workers):
    chance, size = random.Random(7), 1 << 20
    data = chance.randbytes(size)
    caller = Caller(SH).dial(workers[0].port)
    caller.say(f"stty raw -echo; echo re''ady; head -c {size} | sha256sum; stty sane\n".encode())
    caller.find(rb"ready\r?\n")
    at, dials = 0, 0
    while not re.search(rb"[0-9a-f]{64}", caller.output):
        while at < size and len(caller.inputs) - caller.acknowledged < 20:
            part = data[at : at + chance.randrange(0, 8000)]
            caller.say(part)
            at += len(part)
            if chance.random() < 0.2:
                break
        # at most what the window takes is under way; a leg is cut wherever it is
        if dials < 25 and chance.random() < 0.4:
            dials += 1
            if chance.random() < 0.5:
                caller.ws.reset()
            caller.dial(workers[dials % 2].port)
        caller.pump(0.005)
    assert dials >= 15
    assert caller.find(rb"([0-9a-f]{64})")[1].decode() == hashlib.sha256(data).hexdigest()
    assert caller.wait(lambda: caller.acknowledged == len(caller.inputs))
    caller.leave()


def test_a_message_that_was_cut_is_consumed_once_and_whole(caller, workers):
    one = caller()
    one.ws.send(BINARY, b"echo $((1+", fin=False)
    one.ws.send(CONTINUATION, b"1))-half", fin=False)
    one.inputs.append((BINARY, b"echo $((1+1))-whole\n"))
    one.pump(0.2)
    one.dial(workers[1].port)
    one.find(rb"2-whole\r\n")
    one.say(b"echo $((2+2))\n")
    one.find(rb"[ \n]4\r\n")  # behind a prompt, if it was typed ahead of that
    assert b"half" not in one.output and one.output.count(b"2-whole") == 1


def test_fragments_pings_and_empty_messages_count_right(caller, workers):
    one = caller()
    one.say(b"")
    one.inputs.append((BINARY, b"echo $((40+2))\n"))
    one.ws.send(BINARY, b"echo $((4", fin=False)
    one.ws.send(PING, b"now")
    one.ws.send(PONG, b"of no meaning")
    one.ws.send(CONTINUATION, b"0+2))\n")
    one.ws.show_control, pong = True, []
    one.pong, ours = lambda payload: pong.append(payload) if payload == b"now" else ours(payload), one.pong
    one.find(rb"# 42\r\n|\r\n42\r\n")
    one.say(b"", TEXT)
    one.say(b'{"type":"resize","cols":99,"rows":33}', TEXT)
    one.say(b"stty size\n")
    one.find(rb"33 99\r\n")
    assert pong == [b"now"]
    assert one.wait(lambda: one.acknowledged == 5)
    one.dial(workers[1].port)
    assert one.acknowledged == 5


def test_both_directions_are_exact_while_legs_are_lost(caller, workers):
    one = caller()
    one.say(b"stty -echo; PS1=; echo st''art\n")
    one.find(rb"start\r\n")
    for i in range(40):
        one.say(b"echo n%d.\n" % i)
        if i % 3 == 0:
            one.dial(workers[i % 2].port)
        one.pump(0.01)
    one.find(rb"n39\.")
    assert [int(x) for x in re.findall(rb"n(\d+)\.", one.output)] == list(range(40))


def test_a_worker_that_is_stopped_ends_the_leg_only(host, workers, caller):
    worker = host.worker()
    one = Caller(SH).dial(worker.port)
    one.say(b"echo $((40+2))\n")
    one.find(rb"42\r\n")
    worker.process.send_signal(signal.SIGTERM)
    assert not one.wait(lambda: one.end) and one.close[0] == 1001
    one.dial(workers[0].port).say(b"echo $((50+2))\n")
    one.find(rb"52\r\n")


def test_output_of_the_time_without_a_leg_is_kept_and_the_terminal_waits(host, caller, workers, tmp_path):
    one = caller()
    one.say(f"PS1=; stty -echo; seq 1 400000; echo done > {tmp_path}/done\n".encode())
    one.pump(0.05)
    one.drop()
    time.sleep(0.5)
    assert not (tmp_path / "done").exists(), "more is put out than the ring keeps"
    one.dial(workers[1].port)
    one.find(rb"\n400000\r\n")
    assert one.output[one.output.index(b"1\r\n2\r\n") :] == b"".join(b"%d\r\n" % i for i in range(1, 400001))


# ---- attempts ----


def test_a_higher_attempt_takes_over_and_the_older_leg_counts_no_more(caller, workers):
    one = caller()
    one.say(b"echo $((40+2))\n")
    one.find(rb"42\r\n")
    old = one.ws
    one.ws = None
    one.dial(workers[1].port)
    for _ in range(5):
        old.send(BINARY, b"echo $((1+1))ghost\n")
    frames = []
    while (frame := old.frame()) is not None:
        frames.append(frame)
    assert frames[-1] == (CLOSE, True, struct.pack(">H", 4001) + b"taken over")
    one.say(b"echo $((50+2))\n")
    one.find(rb"52\r\n")
    assert b"ghost" not in one.output and one.wait(lambda: one.acknowledged == 2)


@pytest.mark.parametrize("attempt", [1, 2, 5])
def test_an_attempt_that_is_not_higher_is_refused_and_changes_nothing(caller, workers, attempt):
    one = caller()
    one.attempt = 4
    one.dial(workers[1].port)
    assert one.attempt == 5
    assert status(one.request, workers[0].port, attempt=attempt) == 409
    one.say(b"echo $((40+2))\n")
    one.find(rb"42\r\n")


def test_a_first_answer_that_was_lost_makes_no_second_session(workers):
    one = Caller(SH)
    one.attempt = 1
    one.request(workers[0].port).drop()
    one.dial(workers[1].port)
    first = pid_of(one)
    one.dial(workers[0].port)
    one.output.clear()
    assert pid_of(one) == first
    one.leave()


@pytest.mark.parametrize(
    "header",
    ["1", "1; tunnel=0", "1; attempt=1", "1; tunnel={id}", "1; tunnel={id}; attempt=0", "1; tunnel={id}; attempt=01"]
    + ["1; tunnel={id}; attempt=9007199254740992", "1; tunnel={id}; attempt=1; attempt=2", "1; tunnel={up}; attempt=1"]
    + ["1; tunnel={id}; attempt=1; recv=", "1; tunnel={id}; attempt=1; buffer=4095", "1; tunnel={id};; attempt=1", "", "1, 1"]
    + ["1; tunnel={id}; attempt=1; a b", "1; tunnel={id}; attempt = 1", "1; tunnel={id}; attempt=1; recv=00"],
)
def test_a_malformed_header_is_refused(workers, header):
    value = header.format(id="ab" * 16, up="AB" * 16)
    assert status(Ws, workers[0].port, "/terminal" + SH, [WORKER_BEARER, ("Cell-Resume", value)]) == 400


def test_two_headers_are_refused(workers):
    one = Caller(SH)
    one.attempt = 1
    headers = [WORKER_BEARER, ("Cell-Resume", one.header()), ("Cell-Resume", one.header())]
    assert status(Ws, workers[0].port, one.path, headers) == 400


@pytest.mark.parametrize("headers", [[], [("Cell-Resume", "2; anything")], [("Sec-WebSocket-Protocol", "cell-resume.1")]])
def test_without_it_everything_is_as_before(workers, headers):
    with workers[0].open("/terminal" + SH, headers) as ws:
        assert ws.response.get("cell-resume") is None and ws.response.get("sec-websocket-protocol") is None
        ws.send(TEXT, b"nonsense")
        assert json.loads(ws.message()[1] if (m := ws.message())[0] == BINARY else m[1])["type"] == "error"
        ws.send(BINARY, b"exit 4\n")
        messages, close = ws.rest()
        assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":4}') and close == (1000, "process exited")


def test_what_is_not_known_is_ignored(workers):
    one = Caller(SH)
    one.attempt = 1
    with one.request(workers[0].port, next="7", later=1) as ws:
        assert terms(ws.response.get("cell-resume")) == {"recv": 0, "next": 1, "buffer": WINDOW}


# ---- expiry ----


def test_an_unknown_tunnel_is_not_made_for_who_has_received(workers):
    one = Caller(SH)
    one.recv = 0
    assert status(one.dial, workers[0].port) == 410


def test_who_has_received_what_was_never_sent_is_refused(caller, workers):
    one = caller()
    one.attempt += 1
    assert status(one.request, workers[0].port, recv=1000) == 400
    one.dial(workers[0].port).say(b"echo $((40+2))\n")
    one.find(rb"42\r\n")


def test_the_grace_ends_tunnel_and_process_and_a_late_ghost_starts_nothing():
    host = Host("--grace", "2")
    try:
        worker = host.worker()
        one = Caller(SH).dial(worker.port)
        pid = pid_of(one)
        one.drop()
        time.sleep(0.3)
        one.dial(worker.port)
        time.sleep(2.1)
        one.say(b"echo $((40+2))\n")
        one.find(rb"42\r\n")
        one.drop()
        until(lambda: not alive(pid), 10)
        assert status(one.dial, worker.port) == 410
        one.attempt -= 1
        assert status(one.dial, worker.port) == 409
        time.sleep(2.3)
        assert status(one.dial, worker.port) == 410, "forgotten, and it has received"
    finally:
        host.close()


def test_a_session_manager_that_is_gone_is_503(host):
    other = Host()
    worker = other.worker()
    one = Caller(SH).dial(worker.port)
    other.kill()
    assert not one.wait(lambda: one.end) and one.close[0] == 1011
    assert status(one.dial, worker.port) == 503
    other.close()


# ---- ends ----


def test_the_end_is_kept_until_it_is_acknowledged(caller, workers):
    one = caller()
    one.say(b"exit 3\n")
    one.closed = lambda payload: setattr(one, "close", "unread")
    for i in range(4):
        assert not one.wait(lambda: False) and one.mark == one.counter == one.recv + 1, "told again"
        one.mark = None
        one.dial(workers[i % 2].port)
    del one.closed
    one.wait(lambda: one.end)
    assert one.end == (1000, "process exited") and one.texts == [{"type": "exit", "exit_code": 3}]
    assert one.ws.frame() is None
    assert status(one.dial, workers[0].port) == 410
    one.attempt -= 1
    assert status(one.dial, workers[0].port) == 409


def test_an_end_that_came_while_nobody_was_there_is_told_later(caller, workers):
    one = caller()
    pid = pid_of(one)
    one.say(b"sleep 0.5; exit 3\n")
    one.wait(lambda: one.acknowledged == 2)
    one.drop()
    until(lambda: not alive(pid))
    time.sleep(0.2)
    one.dial(workers[1].port)
    assert one.wait(lambda: one.end) and one.texts[-1]["exit_code"] == 3


def test_the_callers_end_comes_after_its_input_and_hangs_up(caller, workers, tmp_path):
    one = caller()
    one.say(b"trap '' HUP\n")  # a shell may otherwise be gone before it has read what it was told last
    pid = pid_of(one)
    one.say(f"echo last words > {tmp_path}/words\n".encode())
    one.leave()
    assert not one.wait(lambda: one.end)
    assert one.close == (1001, "") and one.acknowledged == 4
    until(lambda: not alive(pid))
    assert (tmp_path / "words").read_text() == "last words\n"
    with pytest.raises(Refused) as refused:
        one.dial(workers[0].port)
    assert refused.value.status == 410 and terms(refused.value.response.get("cell-resume")) == {"recv": 4}


def test_both_ends_may_cross(caller, workers):
    """The caller's is on its way before the session's is read: nothing is left of either."""
    one = caller()
    one.say(b"exit 3\n")
    while one.ws.frame()[0] != CLOSE:
        pass
    one.leave()
    assert one.ws.frame() is None
    assert status(one.dial, workers[0].port) == 410


def test_a_close_without_a_mark_ends_the_leg_only(caller, workers):
    one = caller()
    pid = pid_of(one)
    one.ws.send(CLOSE, struct.pack(">H", 1000))
    assert not one.wait(lambda: one.end) and one.close[0] == 1000
    one.dial(workers[1].port)
    one.output.clear()
    assert pid_of(one) == pid


def test_a_mark_is_void_when_a_message_follows(caller, workers):
    one = caller()
    one.ws.send(PONG, b"cr" + (1).to_bytes(8, "big") + b"end")
    pid = pid_of(one)
    one.ws.send(CLOSE, struct.pack(">H", 1000))
    assert not one.wait(lambda: one.end)
    one.dial(workers[1].port)
    one.output.clear()
    assert pid_of(one) == pid


def test_a_full_table_is_503_and_what_is_over_makes_room():
    host = Host("--sessions", "1")
    try:
        worker = host.worker()
        one, other = Caller(SH).dial(worker.port), Caller(SH)
        assert status(other.dial, worker.port) == 503
        for _ in range(6):  # more than are remembered
            one.say(b"exit\n")
            assert one.wait(lambda: one.end)
            one = Caller(SH).dial(worker.port)
        pid_of(one)
        one.leave()
    finally:
        host.close()


# ---- the window, and what breaks the protocol ----


@pytest.mark.parametrize("window", [4096, None])
def test_no_more_than_the_window_is_sent_unacknowledged(caller, window):
    one = caller("?command=/usr/bin/seq+1+200000", window=window)
    one.acknowledges, most = False, window or WINDOW
    sent = lambda: len(one.output) + 16 * one.recv  # noqa: E731
    assert one.wait(lambda: sent() > most / 2)
    one.pump(0.3)
    assert sent() <= most
    one.acknowledges = True
    one.acknowledge()
    assert one.wait(lambda: one.end, 60) and one.output.endswith(b"200000\r\n")


def test_pings_are_answered_and_input_is_held_while_nobody_reads_it(caller, workers):
    one = caller("?command=/bin/sleep+1000")
    for _ in range(15):
        one.say((b"x" * 99 + b"\n") * 160)
    one.ws.send(PING, b"alive?")
    answered = []
    one.pong, ours = lambda payload: answered.append(payload) if payload == b"alive?" else ours(payload), one.pong
    assert one.wait(lambda: answered and one.acknowledged)
    one.pump(0.3)
    assert one.acknowledged < 15, "what has no room is not acknowledged"
    one.dial(workers[1].port)
    one.pump(0.2)
    assert 0 < one.acknowledged < 15
    one.leave()


def test_input_is_taken_while_the_caller_reads_nothing(caller, tmp_path):
    one = caller()
    one.say(f"yes & sleep 1; touch {tmp_path}/in-time; read x; touch {tmp_path}/$x; kill $!\n".encode())
    until(lambda: (tmp_path / "in-time").exists())
    one.ws.send(BINARY, b"typed\n")
    until(lambda: (tmp_path / "typed").exists())


def test_more_than_the_window_is_too_big(caller, workers):
    one = caller("?command=/bin/sleep+1000")
    one.ws.send(BINARY, b"x" * (WINDOW - 15))
    assert not one.wait(lambda: one.end) and one.close == (1009, "message too big")
    assert status(one.dial, workers[0].port) == 410


def test_a_message_of_the_whole_window_is_fine(caller, workers):
    one = caller()
    one.say(b"stty raw -echo; echo re''ady; head -c 262128 | wc -c; stty sane\n")
    one.find(rb"ready\r?\n")
    assert one.wait(lambda: one.acknowledged == 1)
    one.say(b"x" * (WINDOW - 16))
    one.find(rb"262128")


@pytest.mark.parametrize(
    "frame",
    [(PONG, b"cr" + (99).to_bytes(8, "big")), (PING, b"cr?"), (None, b"cr" + (7).to_bytes(8, "big") + b"end")],
    ids=["acknowledges what was never sent", "a ping of ours", "an end that is not next"],
)
def test_nonsense_ends_the_leg_1002(caller, frame):
    one = caller()
    opcode, payload = frame
    one.ws.send(PONG if opcode is None else opcode, payload)
    if opcode is None:
        one.ws.send(CLOSE, struct.pack(">H", 1000))
    assert not one.wait(lambda: one.end) and one.close == (1002, "protocol error")


@pytest.mark.parametrize("payload", [b"cr", b"cr1234567", b"cr12345678?", b"crash", b""])
def test_other_pongs_are_ignored(caller, payload):
    one = caller()
    one.ws.send(PONG, payload)
    one.say(b"echo $((40+2))\n")
    one.find(rb"42\r\n")


# ---- the browser's way ----


class Page:
    """The same by subprotocol and query; numbers are checked by position."""

    def __init__(self, port, tunnel, attempt=1, recv=None, more="", protocols="cellgate, cell-resume.1"):
        query = f"{SH}&cr_tunnel={tunnel}&cr_attempt={attempt}" + ("" if recv is None else f"&cr_recv={recv}") + more
        self.ws = Ws(port, "/terminal" + query, [WORKER_BEARER, ("Sec-WebSocket-Protocol", protocols)])
        assert self.ws.response.get("sec-websocket-protocol") == "cell-resume.1"
        assert self.ws.response.get("cell-resume") is None
        self.said, self.output, self.recv, self.close = [], b"", recv or 0, None

    def greeting(self):
        opcode, payload = self.ws.message()
        assert opcode == TEXT
        return json.loads(payload)["cell-resume"]

    def wait(self, condition):
        while not condition() and self.close is None:
            opcode, payload = self.ws.message()
            if opcode == CLOSE:
                self.close = struct.unpack(">H", payload[:2])[0], payload[2:].decode()
            elif opcode == TEXT and payload.startswith(PREFIX):
                self.said.append(payload)
            else:
                self.recv += 1
                self.output += payload
        return condition()

    def acknowledge(self):
        self.ws.send(TEXT, b'{"cell-resume":{"recv":%d}}' % self.recv)


def test_a_page_resumes_by_query_and_messages(workers):
    tunnel = "c0" * 16
    page = Page(workers[0].port, tunnel)
    assert page.greeting() == {"recv": 0, "next": 1, "buffer": WINDOW}
    page.ws.send(BINARY, b"echo pid=$$.\n")
    assert page.wait(lambda: re.search(rb"pid=\d+\.\r\n", page.output) and page.said)
    assert page.said == [b'{"cell-resume":{"recv":1}}']
    page.acknowledge()
    page.ws.send(BINARY, b"exit 3\n")
    shell = int(re.search(rb"pid=(\d+)", page.output)[1])
    until(lambda: not alive(shell), 10, "the shell has not read it")
    page.ws.reset()
    again = Page(workers[1].port, tunnel, 2, page.recv)
    assert again.greeting() == {"recv": 2, "next": page.recv + 1, "buffer": WINDOW}
    again.wait(lambda: False)
    assert again.said == [b'{"cell-resume":{"end":%d}}' % (again.recv + 1)]
    assert again.close == (1000, "process exited") and b'"exit_code":3' in again.output
    again.ws.send(CLOSE, struct.pack(">H", 1000))
    assert again.ws.frame() is None
    late = Page(workers[1].port, tunnel, 3, again.recv)
    assert late.ws.message() == (CLOSE, struct.pack(">H", 4410))


@pytest.mark.parametrize("body", [struct.pack(">H", 1001), struct.pack(">H", 4000), b""])
def test_a_page_that_leaves_as_its_session_ends_is_told_of_the_end(workers, body):
    """Its Close crosses the session's: it is no answer to it."""
    tunnel = hashlib.md5(b"leaves" + body).hexdigest()
    page = Page(workers[0].port, tunnel)
    page.greeting()
    page.ws.send(BINARY, b"exit 3\n")
    while page.ws.frame()[0] != CLOSE:
        pass
    page.ws.send(CLOSE, body)
    assert page.ws.frame() is None
    again = Page(workers[1].port, tunnel, 2, 0)
    assert again.greeting() == {"recv": 1, "next": 1, "buffer": WINDOW}
    again.wait(lambda: False)
    assert again.close == (1000, "process exited") and b'"exit_code":3' in again.output
    again.ws.drop()


def test_a_page_ends_its_session(workers):
    page = Page(workers[0].port, "c1" * 16)
    page.greeting()
    page.ws.send(BINARY, b"echo $((40+2))\n")
    page.wait(lambda: b"42\r\n" in page.output)
    page.ws.send(TEXT, b'{"cell-resume":{"end":2}}')
    page.ws.send(CLOSE, struct.pack(">H", 1000))
    page.wait(lambda: False)
    assert page.close == (1000, "") and page.said[-1] == b'{"cell-resume":{"recv":2}}'


@pytest.mark.parametrize(
    "arguments, code",
    [(dict(attempt=0), 4400), (dict(attempt=1, more="&cr_attempt=2"), 4400), (dict(recv=3), 4410), (dict(more="&cr_buffer=1"), 4400)],
)
def test_a_page_is_refused_by_codes(workers, arguments, code):
    page = Page(workers[0].port, "c2" * 16, **arguments)
    assert page.ws.message() == (CLOSE, struct.pack(">H", code))


def test_a_page_that_comes_late_is_told_so(workers):
    page = Page(workers[0].port, "c3" * 16, 2)
    page.greeting()
    assert Page(workers[1].port, "c3" * 16, 2).ws.message() == (CLOSE, struct.pack(">H", 4409))
    other = Page(workers[1].port, "c3" * 16, 3)
    other.greeting()
    page.wait(lambda: False)
    assert page.close == (4001, "taken over") and page.said == []


@pytest.mark.parametrize("text", [b'{"cell-resume":{}}', b'{"cell-resume":{"recv":01}}', b'{"cell-resume":{"recv":1} }'])
def test_a_page_that_spells_it_wrong_is_closed(workers, text):
    page = Page(workers[0].port, hashlib.md5(text).hexdigest())
    page.greeting()
    page.ws.send(TEXT, text)
    page.wait(lambda: False)
    assert page.close == (1002, "protocol error")
