# SPDX-License-Identifier: MIT
"""Not one byte lost, not one repeated: real sessions through HAProxy, agent, relay and two cell-workers, on the default
routes, while the sandbox moves and workers are killed. CELLGATE_LONG=1 counts to two million, over 20 moves and 20 kills instead
of 10."""

import hashlib
import json
import os
import random
import struct
import threading
import time

import pytest
from cell import on_worker, until, worker_command
from dialects import Exec, Since, Terminal
from tunnels import QUICK, Tunnels
from worker import BINARY, CLOSE, TEXT, Ws, start

LAST = 2_000_000 if os.environ.get("CELLGATE_LONG") else 200_000
TYPED = 1 << 20
# more than ten moves take more than a minute, see below
MOVES = KILLS = 20 if os.environ.get("CELLGATE_LONG") else 10
MOVES_IN_A_MINUTE = 10  # more, and the relay says that it flaps
MINUTE = 60.5

# Counts to LAST in as many parts as there are gates; the last gate lets it end.
COUNTING = """#!/bin/sh
part=$(({last} / {parts})) i=0
while [ $i -lt {parts} ]; do
    until [ -e {gate}.$i ]; do sleep 0.01; done
    seq $((i * part + 1)) $(((i + 1) * part))
    i=$((i + 1))
done
until [ -e {gate}.$i ]; do sleep 0.01; done
"""
READING = """#!/bin/sh
stty raw -echo
echo ready
head -c {typed} >{file}
stty sane
sha256sum <{file}
"""


def counted(last, newline=b"\n"):
    return b"".join(b"%d%s" % (i, newline) for i in range(1, last + 1))


class Reader:
    """Takes all that comes, in a thread of its own."""

    def __init__(self, cell, dialect, path):
        self.dialect, self.output, self.end, self.problem = dialect, bytearray(), None, None
        self.path = path
        self.ws = Ws(cell.http, path, [cell.bearer(dialect.sandbox)], timeout=90)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while self.end is None:
                frame = self.ws.frame()
                assert frame, "the connection ended"
                self.message(*frame)
        except Exception as e:  # told in the test's own thread
            self.problem = e

    def message(self, opcode, fin, payload):
        while not fin:
            following, fin, more = self.ws.frame()
            assert following == 0, following
            payload += more
        if opcode == CLOSE:
            self.end = (struct.unpack(">H", payload[:2])[0], payload[2:].decode())
        else:
            self.output += self.dialect.take(opcode, payload, len(self.output))

    def wait(self, condition, seconds=60, what="it does not come"):
        until(lambda: self.problem or condition(), seconds, what)
        if self.problem:
            raise AssertionError(f"{self.dialect.adapter}: {len(self.output)} bytes, then {self.problem!r}")

    def say(self, data):
        self.ws.send(BINARY, self.dialect.typed(data))

    def close(self):
        self.ws.drop()


class Workers:
    """Two in front of one session manager."""

    def __init__(self, socket, *options):
        self.options = options
        self.socket, self.running, self.addresses = socket, [None, None], ["127.0.0.1:0"] * 2
        for number in (0, 1):
            self.start(number)

    def start(self, number):
        command = worker_command(self.socket, "--name", f"worker-{'ab'[number]}", *self.options, listen=self.addresses[number])
        self.running[number], self.addresses[number] = start(*command)

    def kill(self, number):
        process = self.running[number]
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def url(self, number):
        return "http://" + self.addresses[number]

    def port(self, number):
        return int(self.addresses[number].rpartition(":")[2])

    def close(self):
        self.kill(0)
        self.kill(1)


class Stage:
    def __init__(self, cell, folder, *options):
        self.cell, self.folder, self.tunnels = cell, folder, Tunnels(cell)
        self.workers = Workers(cell.sandboxd(), *options)
        self.gate, self.readers = folder / "gate", []

    def script(self, name, text, **values):
        path = self.folder / name
        path.write_text(text.format(gate=self.gate, **values))
        path.chmod(0o755)
        return path

    def open(self, dialect, script):
        self.readers.append(Reader(self.cell, dialect, dialect.create(self.workers.port(0), script)))
        return self.readers[-1]

    def all_back(self, condition, what):
        try:
            until(condition, 20)
        except AssertionError:
            problems = [(r.dialect.adapter, len(r.output), r.problem, r.end) for r in self.readers]
            raise AssertionError(f"{what} does not come to an end: {self.tunnels.tunnels('sb-1')} {problems}") from None

    def open_gate(self, number):
        (self.folder / f"gate.{number}").touch()

    def close(self):
        for reader in self.readers:
            reader.close()
        self.tunnels.close()
        self.workers.close()


@pytest.fixture
def worker_options():
    return ()


@pytest.fixture
def stage(cells, tmp_path, worker_options):
    relay = QUICK | {"flap_limit": 8, "flap_window": "1s", "redial_backoff": ["5ms", "10ms", "20ms", "50ms"]}
    stage = Stage(cells(config={"relay": relay}), tmp_path, *worker_options)
    stage.cell.set_sandboxes(**{"sb-1": on_worker(stage.workers.url(0), epoch=1)})
    stage.tunnels.known()
    yield stage
    stage.close()


def resumed(stage):
    return stage.tunnels.metric("cellgate_relay_gap_seconds_count")


def outcomes(stage, outcome):
    return stage.tunnels.metric("cellgate_relay_resume_total{") and {
        adapter: stage.tunnels.metric(f'cellgate_relay_resume_total{{adapter="{adapter}",outcome="{outcome}"}}')
        for adapter in ("none", "scrollback", "since", "cell")
    }


def ends_well(stage, reader, newline):
    reader.wait(lambda: reader.end, what="it does not end")
    wrong = difference(reader.output, counted(LAST, newline))
    assert not wrong, f"{reader.dialect.adapter}: {wrong}"
    said = {"since": [{"type": "connected"}, {"type": "exit", "exit_code": 0}], "cell": [{"type": "exit", "exit_code": 0}],
            "scrollback": [b"\x04", b"\x03\0\0\0\0"]}[reader.dialect.adapter]
    heard = [{k: v for k, v in text.items() if k in ("type", "exit_code")} if isinstance(text, dict) else text for text in reader.dialect.said]
    assert heard == said
    assert reader.end[0] == 1000


def arrived(readers, number, parts):
    """A client that is further behind than the ring is long, 1 MiB, gets a gap; a part is shorter than that."""
    last = (number + 1) * (LAST // parts)
    for reader in readers:
        reader.wait(lambda r=reader: r.output.endswith((b"\n%d\n" % last, b"\n%d\r\n" % last)), what=f"part {number} does not come")


def difference(got, wanted):
    """None, or where it begins: pytest's own comparison of megabytes takes minutes."""
    if got == wanted:
        return None
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    return f"{len(got)} bytes instead of {len(wanted)}, from {at} on {bytes(got[at - 20 : at + 40])!r} instead of {wanted[at - 20 : at + 40]!r}"


def test_output_and_input_are_exact_across_announced_migrations(stage):
    counting = stage.script("counting", COUNTING, last=LAST, parts=MOVES)
    file = stage.folder / "typed"
    readers = [stage.open(dialect("sb-1"), counting) for dialect in (Since, Exec, Terminal)]
    typing = stage.open(Terminal("sb-1"), stage.script("reading", READING, typed=TYPED, file=file))
    typing.wait(lambda: b"ready" in typing.output)
    data, part = random.Random(1).randbytes(TYPED), -(-TYPED // MOVES)
    began = 0
    for number in range(MOVES):
        if number == MOVES_IN_A_MINUTE:
            time.sleep(max(0, began + MINUTE - time.monotonic()))
        began = began or time.monotonic()
        before = resumed(stage)
        stage.open_gate(number)
        stage.cell.set_sandboxes(**{"sb-1": on_worker(stage.workers.url((number + 1) % 2), epoch=number + 2)})
        for at in range(number * part, min(number * part + part, TYPED), 5000):
            typing.say(data[at : min(at + 5000, number * part + part)])
        stage.all_back(lambda b=before: resumed(stage) >= b + 4, f"move {number}")
        arrived(readers, number, MOVES)
    stage.open_gate(MOVES)
    for reader, newline in zip(readers, (b"\r\n", b"\n", b"\r\n")):
        ends_well(stage, reader, newline)
    typing.wait(lambda: typing.end)
    assert file.stat().st_size == TYPED
    assert hashlib.sha256(data).hexdigest().encode() in typing.output
    # one more if the exec's last output was not confirmed when its worker closed: the relay asks once again
    assert resumed(stage) - 4 * MOVES in (0, 1)
    assert not any(outcomes(stage, "gap").values()), outcomes(stage, "gap")


def test_output_is_exact_across_workers_that_are_killed(stage):
    chance = random.Random(2)
    counting = stage.script("counting", COUNTING, last=LAST, parts=KILLS)
    readers = [stage.open(dialect("sb-1"), counting) for dialect in (Since, Terminal)]
    for number in range(KILLS):
        before = resumed(stage)
        stage.open_gate(number)
        time.sleep(chance.uniform(0.1, 0.2))  # faster is flapping
        stage.workers.kill(0)
        stage.workers.start(0)
        stage.all_back(lambda b=before: resumed(stage) >= b + 2, f"kill {number}")
        arrived(readers, number, KILLS)
    stage.open_gate(KILLS)
    for reader in readers:
        ends_well(stage, reader, b"\r\n")
    assert not any(outcomes(stage, "gap").values()), outcomes(stage, "gap")


# ---- OpenComputer's own worker: the replay comes behind its 04, as if it were live output ----
unkind = pytest.mark.parametrize("worker_options", [("--replay-late",)], ids=["late"])

SAME = """#!/bin/sh
i=0
while [ $i -lt {parts} ]; do
    until [ -e {gate}.$i ]; do sleep 0.01; done
    yes 'the same line again and again' | head -n {lines}
    i=$((i + 1))
done
until [ -e {gate}.$i ]; do sleep 0.01; done
"""


def leaves_the_worker(stage, how, number):
    """The relay has to go on with a worker that replays all of it."""
    if how == "move":
        stage.cell.set_sandboxes(**{"sb-1": on_worker(stage.workers.url((number + 1) % 2), epoch=number + 2)})
    else:
        stage.workers.kill(0)
        stage.workers.start(0)


@unkind
@pytest.mark.parametrize("how", ["move", "kill"])
def test_a_replay_that_comes_late_is_not_repeated(stage, how):
    """Also when the ring has become full, and with output right behind the replay."""
    reader = stage.open(Exec("sb-1"), stage.script("counting", COUNTING, last=LAST, parts=MOVES))
    for number in range(MOVES):
        before = resumed(stage)
        stage.open_gate(number)
        if how == "kill":
            time.sleep(0.15)  # faster is flapping
        leaves_the_worker(stage, how, number)
        stage.all_back(lambda b=before: resumed(stage) >= b + 1, f"{how} {number}")
        arrived([reader], number, MOVES)
    stage.open_gate(MOVES)
    ends_well(stage, reader, b"\n")
    assert outcomes(stage, "gap")["scrollback"] == 0
    assert outcomes(stage, "exact")["scrollback"] > 0


@unkind
@pytest.mark.parametrize("lines", [1, 300, 5000])
def test_the_same_line_again_and_again_comes_once(stage, lines):
    reader = stage.open(Exec("sb-1"), stage.script("same", SAME, lines=lines, parts=4))
    line = b"the same line again and again\n"
    for number in range(4):
        before = resumed(stage)
        stage.open_gate(number)
        if number % 2:
            reader.wait(lambda n=number: len(reader.output) == (n + 1) * lines * len(line))
        leaves_the_worker(stage, "move", number)
        stage.all_back(lambda b=before: resumed(stage) >= b + 1, f"move {number}")
        reader.wait(lambda n=number: len(reader.output) == (n + 1) * lines * len(line), what=f"part {number} does not come")
    stage.open_gate(4)
    reader.wait(lambda: reader.end, what="it does not end")
    assert bytes(reader.output) == 4 * lines * line and reader.end == (1000, "exec completed")
    assert outcomes(stage, "gap")["scrollback"] == 0


@unkind
@pytest.mark.parametrize("kind", ["exec", "pty"])
def test_a_session_that_its_worker_does_not_have_ends_at_once(stage, kind):
    with Ws(stage.cell.http, f"/api/sandboxes/sb-1/{kind}/0123abcd", [stage.cell.bearer("sb-1")]) as ws:
        heard = [ws.frame() for _ in range(2 if kind == "exec" else 1)]
    assert heard[:-1] == [(BINARY, True, b"\x04")] * (kind == "exec")
    opcode, _, payload = heard[-1]
    assert opcode == CLOSE and payload == struct.pack(">H", 1000) + (b"session not found" if kind == "exec" else b"")


# ---- OpenComputer's own worker fills its ring while its first client is attached already, and live output can be dropped ----
lossy = pytest.mark.parametrize("worker_options", [("--lossy-attach",)], ids=["lossy"])

TALKING = """#!/bin/sh
i=0
while [ $i -lt {lines} ]; do
    i=$((i + 1))
    echo L$i
    [ $((i % {burst})) = 0 ] && sleep 0.03
done
exit 6
"""


def hears_all(stage, reader, lines):
    reader.wait(lambda: reader.end, 90, what="it does not end")
    wrong = difference(bytes(reader.output), b"".join(b"L%d\n" % i for i in range(1, lines + 1)))
    assert not wrong, wrong
    assert reader.dialect.said == [b"\x04", b"\x03\0\0\0\6"] and reader.end == (1000, "exec completed")
    assert outcomes(stage, "gap")["scrollback"] == 0


@lossy
@pytest.mark.parametrize("lines,burst,times", [(300, 1, 4), (3000, 30, 1), (10000, 100, 3), (30000, 150, 10)])
def test_output_that_the_worker_has_is_not_given_up(stage, lines, burst, times):
    """Kills and moves in the middle of it: each line comes once, and no gap is declared."""
    chance = random.Random(lines)
    reader = stage.open(Exec("sb-1"), stage.script("talking", TALKING, lines=lines, burst=burst))
    where = 0
    for number in range(times):
        before = resumed(stage)
        part = lines * (number + 1) // (times + 1)
        reader.wait(lambda p=part: reader.output.count(b"\n") >= p or reader.end, what=f"line {part} does not come")
        if number % 2:
            where = 1 - where
            stage.cell.set_sandboxes(**{"sb-1": on_worker(stage.workers.url(where), epoch=number + 2)})
        else:
            stage.workers.kill(where)
            stage.workers.start(where)
        stage.all_back(lambda b=before: resumed(stage) >= b + 1, f"disturbance {number}")
        time.sleep(chance.uniform(0, 0.1))
    hears_all(stage, reader, lines)


# ---- workers that have forgotten: the gap is declared, and the stream goes on ----


@pytest.fixture(scope="module")
def scripted(cells):
    tunnels = Tunnels(cells(config={"relay": QUICK}))
    yield tunnels
    tunnels.close()


def declared(tunnels, adapter):
    """(gaps, missing bytes) by the metrics."""
    return (tunnels.metric(f'cellgate_relay_resume_total{{adapter="{adapter}",outcome="gap"}}'),
            tunnels.metric(f'cellgate_relay_resume_missing_bytes_total{{adapter="{adapter}"}}'))


def opened(tunnels, worker, family, session):
    sandbox = tunnels.sandbox(worker)
    return sandbox, *tunnels.open(worker, sandbox, family, session=session, headers=[tunnels.cell.bearer(sandbox)])


def log_line(tunnels, sandbox):
    def written():
        lines = (tunnels.cell.run_dir / "relay.log").read_text().splitlines()
        return next((line for line in lines if f"sandbox={sandbox} " in line and "resumed with a gap" in line), None)

    return until(written)


def test_a_clamped_offset_is_declared_to_the_byte(scripted):
    worker, connected = scripted.worker(), json.dumps({"type": "connected", "session_id": "s1", "mode": "pty"}).encode()
    sandbox, client, upstream = opened(scripted, worker, "v1/sandboxes", "proxy/44772/pty/s1/ws")
    gaps, missing = declared(scripted, "since")
    upstream.say(connected, TEXT)
    upstream.say(b"\x01" + b"a" * 1000)
    assert client.message() == (TEXT, connected) and client.message() == (BINARY, b"\x01" + b"a" * 1000)
    upstream.reset()
    worker.refuse("200 OK", json.dumps({"session_id": "s1", "running": True, "output_offset": 3200}).encode())
    upstream = worker.serve()
    assert upstream.line.split()[1] == "/pty/s1/ws?since=1000&takeover=1"
    replay = b"\x03" + struct.pack(">Q", 3000) + b"b" * 200
    upstream.say(replay)
    upstream.say(connected, TEXT)
    upstream.say(b"\x01and on")
    assert client.message() == (BINARY, replay) and client.message() == (BINARY, b"\x01and on")
    client.say(b"\0word")
    assert upstream.message() == (BINARY, b"\0word")
    assert declared(scripted, "since") == (gaps + 1, missing + 2000)
    assert "adapter=since missing=2000" in log_line(scripted, sandbox)


def test_a_viewer_of_a_terminal_resumes_beside_the_one_who_types(scripted):
    """OpenSandbox's `mode=viewer`: it goes on where it was, and takes nobody's place."""
    worker, connected = scripted.worker(), json.dumps({"type": "connected", "session_id": "s1", "mode": "pty"}).encode()
    sandbox = scripted.sandbox(worker)
    headers = [scripted.cell.bearer(sandbox)]
    client, upstream = scripted.open(worker, sandbox, "v1/sandboxes", session="proxy/44772/pty/s1/ws", headers=headers, query="?mode=viewer&since=40")
    assert upstream.line.split()[1] == "/pty/s1/ws?mode=viewer&since=40"
    upstream.say(connected, TEXT)
    upstream.say(b"\x01" + b"a" * 1000)
    assert client.message() == (TEXT, connected) and client.message() == (BINARY, b"\x01" + b"a" * 1000)
    client.say(b"\0typed")
    assert upstream.message() == (BINARY, b"\0typed")
    upstream.say(b'{"type":"error","error":"read only","code":"READ_ONLY"}', TEXT)
    assert client.message() == (TEXT, b'{"type":"error","error":"read only","code":"READ_ONLY"}')
    upstream.reset()
    worker.refuse("200 OK", json.dumps({"session_id": "s1", "running": True, "output_offset": 1042}).encode())
    upstream = worker.serve()
    assert upstream.line.split()[1] == "/pty/s1/ws?mode=viewer&since=1040"
    upstream.say(b"\x03" + struct.pack(">Q", 1040) + b"bb")
    upstream.say(connected, TEXT)
    assert client.message() == (BINARY, b"\x03" + struct.pack(">Q", 1040) + b"bb")


def test_a_ring_that_was_evicted_is_declared(scripted):
    """How much is missing, a replay without offsets does not tell: it says so."""
    worker = scripted.worker()
    sandbox, client, upstream = opened(scripted, worker, "api/sandboxes", "exec/s1")
    gaps, missing = declared(scripted, "scrollback")
    for message in (b"\x04", b"\x01the beginning\n"):
        upstream.say(message)
        assert client.message() == (BINARY, message)
    upstream.reset()
    upstream = worker.serve()
    ring = random.Random(3).randbytes(1 << 20)
    for at in range(0, len(ring), 4096):
        upstream.say(b"\x01" + ring[at : at + 4096])
    upstream.say(b"\x04")
    upstream.say(b"\x01and on")
    heard = b""
    while not heard.endswith(b"and on"):
        opcode, payload = client.message()
        assert payload[:1] == b"\x01", "the second 04"
        heard += payload[1:]
    assert heard == ring + b"and on"
    client.say(b"\0word")
    assert upstream.message() == (BINARY, b"\0word")
    assert declared(scripted, "scrollback") == (gaps + 1, missing)
    assert "adapter=scrollback missing=unknown" in log_line(scripted, sandbox)


def test_input_that_a_lost_worker_has_not_read_is_counted(scripted):
    """At most once, and what may be lost is counted: it is in the worker's kernel, and the worker dies."""
    worker, name = scripted.worker(), "cellgate_relay_unconfirmed_input_bytes_total"
    sandbox, client, upstream = opened(scripted, worker, "api/sandboxes", "pty/s1")
    before = scripted.metric(name)
    client.say(b"x" * 10_000)
    until(lambda: [t["to_worker"] > 10_000 and t["held"] == 0 for t in scripted.tunnels(sandbox)] == [True], 10)
    time.sleep(0.3)  # its kernel acknowledges what nobody reads
    upstream.reset()
    worker.serve()
    assert scripted.metric(name) - before == 10_000


def test_input_that_is_held_for_a_worker_when_its_client_leaves_is_counted(scripted):
    worker, name = scripted.worker(), "cellgate_relay_unconfirmed_input_bytes_total"
    sandbox, client, upstream = opened(scripted, worker, "api/sandboxes", "pty/s1")
    before = scripted.metric(name)
    scripted.place(sandbox, state="migrating")
    upstream.reset()
    scripted.state(sandbox, "redialling")
    client.say(b"held")
    until(lambda: [t["held"] > 0 for t in scripted.tunnels(sandbox)] == [True], 10)
    client.close()
    scripted.gone(sandbox)
    assert scripted.metric(name) - before == 4


def test_input_that_a_worker_reads_before_it_is_left_is_not_counted(scripted):
    worker, other, name = scripted.worker(), scripted.worker(), "cellgate_relay_unconfirmed_input_bytes_total"
    sandbox, client, upstream = opened(scripted, worker, "api/sandboxes", "pty/s1")
    before = scripted.metric(name)
    client.say(b"word")
    assert upstream.message() == (BINARY, b"word")
    scripted.place(sandbox, other)
    assert upstream.closed() == (1000, "moved")
    upstream.close()
    other.serve()
    until(lambda: scripted.metric("cellgate_relay_lingering_closes") == 0, 10)
    assert scripted.metric(name) == before


@pytest.mark.parametrize("family, session", [("api/sandboxes", "exec/s1"), ("v1/sandboxes", "proxy/44772/pty/s1/ws")])
def test_the_rest_of_cut_input_is_still_input(scripted, family, session):
    """Without its tag it would be something else: an error, or one with the byte that happens to stand there. Each part is
    a message of its own."""
    worker = scripted.worker()
    _, client, upstream = opened(scripted, worker, family, session)
    client.say(b"\0one", fin=False)
    assert upstream.message() == (BINARY, b"\0one")
    client.say(b"", 0, fin=False)
    client.say(b"and", 0, fin=False)
    assert upstream.message() == (BINARY, b"\0and")
    upstream.reset()
    if "pty" in session:
        worker.refuse("200 OK", json.dumps({"session_id": "s1", "running": True, "output_offset": 0}).encode())
    upstream = worker.serve()
    client.say(b"two", 0)
    client.say(b"\0next")
    assert [upstream.message() for _ in range(2)] == [(BINARY, b"\0two"), (BINARY, b"\0next")]
