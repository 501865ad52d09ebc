# SPDX-License-Identifier: MIT
"""The relay in a whole cell with real workers and the built-in routes: OpenComputer's four integration tests in a
stronger form, and what its own relay does wrong."""

import json
import re
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cell import on_worker, until
from client import request
from tunnels import QUICK, Tunnels
from worker import BINARY, CLOSE, TEXT, Ws

OUTPUT, EXIT, REPLAYED = b"\x01", b"\x03", b"\x04"


class Hosts:
    """One sandbox on two workers that share its sessions; it is moved by telling the directory so."""

    def __init__(self, cell, tunnels):
        self.cell, self.tunnels = cell, tunnels
        manager = cell.sandboxd()
        self.urls = [f"http://{cell.worker(manager, name)}" for name in ("one", "two")]
        self.epoch = 0
        self.move()

    def move(self, **record):
        """To the other worker."""
        self.epoch += 1
        self.cell.set_sandboxes(**{"sb-1": on_worker(self.urls[self.epoch % 2], epoch=self.epoch) | record})

    def call(self, method, path, body=None):
        """(status, document or None)"""
        headers = [self.cell.bearer(), ("Content-Type", "application/json")]
        response = request(self.cell.http, method, path, headers, b"" if body is None else json.dumps(body).encode())
        return response.status, json.loads(response.body) if response.body else None

    def post(self, path, **body):
        status, document = self.call("POST", f"/api/sandboxes/sb-1{path}", body)
        assert status == 201, document
        return f"{path}/{document['sessionID']}"

    def pty(self):
        return self.post("/pty", shell="/bin/sh", cols=100, rows=30)

    def exec(self, script):
        return self.post("/exec", cmd="sh", args=["-c", script])

    def open(self, session):
        return Ws(self.cell.http, f"/api/sandboxes/sb-1{session}", [self.cell.bearer()], timeout=20)

    def moved(self, times=1):
        """Moves it, and waits until its tunnels are with the other worker."""
        for _ in range(times):
            before = self.tunnels.redials("moved")
            self.move()
            until(lambda b=before: self.tunnels.redials("moved") >= b + len(self.tunnels.tunnels("sb-1")), 10, "the tunnels do not move")


@pytest.fixture(scope="module")
def hosts(cells):
    cell = cells(config={"relay": QUICK})
    tunnels = Tunnels(cell)
    hosts = Hosts(cell, tunnels)
    tunnels.known()
    return hosts


def rest(ws):
    """All messages up to the Close, which is answered, and the Close's (code, reason)."""
    messages, close = ws.rest()
    ws.send(CLOSE, struct.pack(">H", close[0]))
    assert ws.frame() is None
    return messages, close


def evaluated(ws, expression, pattern=rb"(\d+)"):
    """What the shell makes of it. The shell's echo of what was typed does not look like it."""
    ws.send(BINARY, b"echo val''ue:" + expression + b":\n")
    return ws.find(b"value:" + pattern + b":\r\n")[1]


# ---- 05: two terminals ----


def test_two_terminals_on_a_sandbox_have_nothing_in_common(hosts):
    with hosts.open(hosts.pty()) as one, hosts.open(hosts.pty()) as two:
        pids = evaluated(one, b"$$"), evaluated(two, b"$$")
        assert pids[0] != pids[1]

        def talk(ws, name):
            ws.send(BINARY, b"for i in $(seq 200); do echo %s''_$i; done; echo %s''_end\n" % (name, name))
            return ws.until(name + b"_end\r\n")

        with ThreadPoolExecutor(2) as pool:
            said = list(pool.map(talk, (one, two), (b"ONE", b"TWO")))
        for text, mine, other in ((said[0], b"ONE", b"TWO"), (said[1], b"TWO", b"ONE")):
            assert other not in text
            assert re.findall(mine + rb"_(\d+)\r", text) == [b"%d" % i for i in range(1, 201)]


# ---- 06: exec ends once ----


@pytest.mark.parametrize("code", [0, 7, 255])
def test_exec_ends_once_with_its_code(hosts, code):
    with hosts.open(hosts.exec(f"echo out; echo err >&2; exit {code}")) as ws:
        messages, close = rest(ws)
        assert close == (1000, "exec completed")
    payloads = [payload for opcode, payload in messages if opcode == BINARY]
    assert payloads.count(REPLAYED) == 1
    assert [p for p in payloads if p[:1] == EXIT] == [EXIT + struct.pack(">i", code)]
    assert OUTPUT + b"out\n" in payloads and b"\x02err\n" in payloads
    hosts.tunnels.gone("sb-1")


def test_exec_stdin_reaches_the_command(hosts):
    with hosts.open(hosts.exec("read x; echo got-$x")) as ws:
        ws.send(BINARY, b"\x00line\n")
        messages, close = rest(ws)
    assert (BINARY, OUTPUT + b"got-line\n") in messages and close == (1000, "exec completed")


# ---- 07: a terminal across a migration ----


def test_a_terminal_keeps_shell_files_and_screen_across_a_migration(hosts, tmp_path):
    with hosts.open(hosts.pty()) as ws:
        pid = evaluated(ws, b"$$")
        ws.send(BINARY, f"echo kept > {tmp_path}/file; held=in''memory; echo BEFORE''_\n".encode())
        ws.until(b"BEFORE_\r\n")
        hosts.moved()
        assert evaluated(ws, b"$$") == pid
        assert evaluated(ws, b"$held", rb"(\w+)") == b"inmemory"
        assert evaluated(ws, f"$(cat {tmp_path}/file)".encode(), rb"(\w+)") == b"kept"
        assert evaluated(ws, b"$(stty size)", rb"(\d+ \d+)") == b"30 100"


def test_what_is_typed_during_a_migration_is_typed_once(hosts, tmp_path):
    """Each line numbers itself; a migration comes after every tenth. A worker that is slow to read what it was sent before it was
    left is not waited for, so that the next one's lines may come first (docs/relay.md)."""
    count, log = 60, tmp_path / "typed"
    with hosts.open(hosts.pty()) as ws:
        ws.send(BINARY, b"stty -echo; echo RE''ADY\n")
        ws.until(b"READY\r\n")
        for i in range(1, count + 1):
            ws.send(BINARY, f"echo {i} >> {log}\n".encode())
            if i % 10 == 0:
                hosts.move()
            time.sleep(0.01)  # a typist; so that lines and moves mix
        until(lambda: log.exists() and len(log.read_text().split()) >= count, 20, "not all is typed")
        assert sorted(log.read_text().split(), key=int) == [str(i) for i in range(1, count + 1)]


def test_output_goes_on_across_a_migration(hosts, tmp_path):
    """A shell that is waiting for a word while its tunnel moves says what it has to say afterwards."""
    with hosts.open(hosts.pty()) as ws:
        ws.send(BINARY, f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; seq -s, 1 2000; echo EN''D\n".encode())
        until(lambda: hosts.tunnels.tunnels("sb-1"))
        hosts.moved()
        (tmp_path / "go").touch()
        assert b"1,2,3,4," in ws.until(b"END\r\n")


# ---- 08: an exec across a migration ----


def test_thirty_lines_of_an_exec_across_a_migration_all_come(hosts, tmp_path):
    """Once each and in order: 15 before it, while the command waits, and 15 behind it, with an end of all that comes once too."""
    script = f"for i in $(seq 30); do echo OUT_$i; until [ $i != 15 -o -e {tmp_path}/go ]; do sleep 0.02; done; done; exit 3"
    with hosts.open(hosts.exec(script)) as ws:
        payloads = []
        while b"OUT_15\n" not in b"".join(payload[1:] for payload in payloads):
            opcode, payload = ws.message()
            assert opcode == BINARY, (opcode, payload)
            payloads.append(payload)
        hosts.moved()
        (tmp_path / "go").touch()
        messages, close = rest(ws)
    payloads += [payload for opcode, payload in messages if opcode == BINARY and payload]
    assert close == (1000, "exec completed")
    assert b"".join(p[1:] for p in payloads if p[:1] == OUTPUT) == b"".join(b"OUT_%d\n" % i for i in range(1, 31))
    assert [p for p in payloads if p[:1] != OUTPUT] == [REPLAYED, EXIT + struct.pack(">i", 3)]
    hosts.tunnels.gone("sb-1")


def test_an_exec_that_ended_during_a_migration_tells_its_end(hosts, tmp_path):
    with hosts.open(hosts.exec(f"echo started; until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 9")) as ws:
        while OUTPUT + b"started\n" != ws.message()[1]:
            pass
        hosts.epoch += 1
        hosts.cell.set_sandboxes(**{"sb-1": {"state": "migrating", "epoch": hosts.epoch}})
        (tmp_path / "go").touch()
        hosts.move()
        messages, close = rest(ws)
        assert messages[-1] == (BINARY, EXIT + struct.pack(">i", 9)) and close == (1000, "exec completed")


# ---- what its relay does wrong ----


@pytest.mark.parametrize("kind", ["pty", "exec"])
def test_an_unknown_session_is_a_404(hosts, kind):
    with pytest.raises(Ws.Refused) as refused:
        hosts.open(f"/{kind}/00000000")
    assert refused.value.status == 404
    assert json.loads(refused.value.body) == {"error": "session not found"}


def test_a_shell_that_exits_closes_its_terminal_promptly(hosts):
    with hosts.open(hosts.pty()) as ws:
        evaluated(ws, b"$$")
        began = time.monotonic()
        ws.send(BINARY, b"exit 5\n")
        _, close = rest(ws)
        assert close == (1000, "")
        assert time.monotonic() - began < 10  # a redial would go on for 30 s
    hosts.tunnels.gone("sb-1")


def test_a_terminal_is_resized_and_deleted_through_the_api(hosts):
    session = hosts.pty()
    with hosts.open(session) as ws:
        assert evaluated(ws, b"$(stty size)", rb"(\d+ \d+)") == b"30 100"
        assert hosts.call("POST", f"/api/sandboxes/sb-1{session}/resize", {"cols": 120, "rows": 40})[0] == 200
        assert evaluated(ws, b"$(stty size)", rb"(\d+ \d+)") == b"40 120"
        pid = int(evaluated(ws, b"$$"))
        assert hosts.call("DELETE", f"/api/sandboxes/sb-1{session}")[0] == 204
        assert rest(ws)[1] == (1000, "")
    until(lambda: not Path(f"/proc/{pid}").exists(), 10, "the shell lives on")
    with pytest.raises(Ws.Refused) as refused:
        hosts.open(session)
    assert refused.value.status == 404


def test_four_migrations_within_a_minute_do_not_flap(hosts):
    with hosts.open(hosts.pty()) as ws:
        pid = evaluated(ws, b"$$")
        for _ in range(4):
            hosts.moved()
            assert evaluated(ws, b"$$") == pid


def test_opensandboxs_terminal_behind_its_proxy(hosts):
    """What its own tests ask of it, through the built-in routes."""
    proxy = "/v1/sandboxes/sb-1/proxy/44772/pty"

    def open(path):
        return Ws(hosts.cell.http, proxy + path, [hosts.cell.bearer()], timeout=20)

    def connected(ws):
        assert json.loads(ws.message()[1]) == {"type": "connected", "session_id": session, "mode": "pty"}

    status, document = hosts.call("POST", proxy, {"command": "/bin/sh"})
    assert status == 201
    session = document["session_id"]
    with pytest.raises(Ws.Refused) as refused:
        open("/00000000/ws")
    assert refused.value.status == 404 and json.loads(refused.value.body)["code"] == "CONTEXT_NOT_FOUND"
    with open(f"/{session}/ws") as old:
        connected(old)
        with pytest.raises(Ws.Refused) as refused:
            open(f"/{session}/ws")
        assert refused.value.status == 409 and json.loads(refused.value.body)["code"] == "ALREADY_CONNECTED"
        old.say(type="resize", cols=120, rows=40)
        old.send(BINARY, b"\x00PS1=; stty -echo; stty size; echo pid=$$.\n")
        pid = old.find(rb"40 120\r\npid=(\d+)\.\r\n", tags=(1,))[1]
        status, document = hosts.call("GET", f"{proxy}/{session}")
        assert status == 200 and document["running"] is True
        with open(f"/{session}/ws?since={document['output_offset']}&takeover=1") as new:
            connected(new)
            assert old.rest()[1] == (4001, "TAKEN_OVER")
            new.send(BINARY, b"\x00echo pid=$$.; exit 7\n")
            messages, close = new.rest()
    assert b"pid=%s." % pid in b"".join(payload[1:] for opcode, payload in messages if opcode == BINARY)
    assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":7}') and close == (1000, "process exited")
    with open(f"/{session}/ws?since=0") as ws:
        opcode, replay = ws.message()
        assert (opcode, replay[:9]) == (BINARY, b"\x03" + bytes(8)) and replay.count(b"pid=%s." % pid) == 2
        connected(ws)
        assert ws.rest() == ([(TEXT, b'{"type":"exit","exit_code":7}')], (1000, "process exited"))  # and no new shell


def test_a_client_that_leaves_leaves_the_shell_and_loses_nothing(hosts):
    session = hosts.pty()
    with hosts.open(session) as ws:
        pid = evaluated(ws, b"$$")
    hosts.tunnels.gone("sb-1")
    with hosts.open(session) as ws:
        assert evaluated(ws, b"$$") == pid


def test_an_idle_client_is_kept_alive_with_empty_frames(cells):
    """As OpenComputer's clients expect; and the worker, which answers pings, is not taken for dead."""
    cell = cells(config={"relay": QUICK | {"keepalive": "200ms", "dead_after": "3s"}})
    hosts = Hosts(cell, Tunnels(cell))
    hosts.tunnels.known()
    with hosts.open(hosts.pty()) as ws:
        pid = evaluated(ws, b"$$")
        ws.show_control = True
        empty = 0
        while empty < 3:
            opcode, payload = ws.message()
            assert opcode == BINARY
            empty += payload == b""
        assert evaluated(ws, b"$$") == pid
