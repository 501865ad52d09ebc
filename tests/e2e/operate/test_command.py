# SPDX-License-Identifier: MIT
"""OpenSandbox's `POST /command` as cell-worker serves it: events one by one, signals, timeouts, clients that leave, and
the second form of a terminal. Each test runs at the worker itself and through a gate, by the built-in routes."""

import fcntl
import json
import os
import re
import signal
import struct
import termios
import time
from pathlib import Path

import pytest
from cell import WORKER_BEARER, alive, on_worker, until
from client import Http1, connect
from client import head as head_of
from tunnels import QUICK
from worker import BINARY, TEXT, Host, Ws

GATE = "/v1/sandboxes/sb-1/proxy/44772"
JSON = ("Content-Type", "application/json")
WAIT = 60  # seconds for one event; the worker's comments meanwhile are none


class Stream:
    """The answer to POST /command, read as it comes."""

    def __init__(self, http):
        self.http, self.left, self.seen = http, b"", []
        self.response = http.response_head()
        assert self.response.status == 200, http.read()
        assert self.response.get("content-type") == "text/event-stream"
        assert self.response.get("transfer-encoding") == "chunked"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.sock.close()

    def chunk(self):
        size = int(self.http.read_until(b"\r\n"), 16)
        return self.http.read_exactly(size + 2)[:-2]

    def event(self):
        """(name, data) of the next, comments left out; None at the end."""
        limit = time.monotonic() + WAIT
        while True:
            assert time.monotonic() < limit, f"nothing but comments behind {self.seen[-3:]}"
            while b"\n\n" not in self.left:
                data = self.chunk()
                if not data:
                    assert not self.left
                    return None
                self.left += data
            block, _, self.left = self.left.partition(b"\n\n")
            if block != b":":
                break
        name, data = re.fullmatch(rb"event: (\w+)\ndata: (.*)", block).groups()
        data = json.loads(data)
        assert data["type"] == name.decode() and abs(data.pop("timestamp") / 1000 - time.time()) < 60
        self.seen.append((name.decode(), data))
        return self.seen[-1]

    def init(self):
        name, data = self.event()
        assert name == "init" and data["text"] == data["id"] and re.fullmatch("[0-9a-f]{8}", data["id"])
        return data["id"]

    def until(self, name, text):
        seen = ""
        while text not in seen:
            event = self.event()
            assert event, self.seen
            seen += event[1]["text"] if event[0] == name else ""
        return seen

    def rest(self):
        """All that comes to the end: (stdout, stderr, exit code)."""
        while self.event():
            pass
        assert self.seen[-1][0] == "exit" and self.seen.count(self.seen[-1]) == 1
        return self.text("stdout"), self.text("stderr"), self.seen[-1][1]["exit_code"]

    def text(self, name):
        return "".join(data["text"] for of, data in self.seen if of == name)


class Commands:
    def __init__(self, port, prefix, headers):
        self.port, self.prefix, self.headers = port, prefix, headers

    def send(self, body, **more):
        http = Http1(self.port, **more)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        http.send(head_of("POST", self.prefix + "/command", [("Host", "cell.test"), *self.headers, JSON, ("Content-Length", len(data))]) + data)
        return http

    def run(self, command, **body):
        return Stream(self.send({"command": command, **body}))

    def call(self, method, path, body=None, headers=()):
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        with Http1(self.port) as http:
            response = http.request(method, self.prefix + path, [*self.headers, JSON, *headers], data)
        return response.status, json.loads(response.body) if response.body else None

    def state(self, id):
        status, answer = self.call("GET", f"/command/{id}")
        assert status == 200, answer
        return answer

    def ended(self, id):
        return until(lambda: (now := self.state(id))["state"] == "ended" and now, 10, "it does not end")


@pytest.fixture(scope="module")
def both(host, cells):
    worker = host.worker()
    cell = cells(config={"relay": QUICK})
    cell.set_sandboxes(**{"sb-1": on_worker(f"http://127.0.0.1:{worker.port}")})
    gate = Commands(cell.http, GATE, [cell.bearer()])
    until(lambda: gate.call("GET", "/health")[0] == 200, 10, "the sandbox is not known")
    return {"direct": Commands(worker.port, "", [WORKER_BEARER]), "gate": gate}


@pytest.fixture(params=["direct", "gate"])
def commands(request, both):
    return both[request.param]


def queued(sock):
    return struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]


def pid_of(stream):
    return int(re.search(r"pid=(\d+)\.", stream.until("stdout", ".\n"))[1])


def test_streams_and_exit_code(commands):
    with commands.run('echo out; echo err >&2; echo "$A|$PWD"; exit 7', cwd="/tmp", envs={"A": "ä=b"}) as stream:
        id = stream.init()
        assert stream.rest() == ("out\nä=b|/tmp\n", "err\n", 7)
        assert [name for name, _ in stream.seen][-2:] == ["error", "exit"]
        assert stream.seen[-2][1]["error"] == {"ename": "CommandExecError", "evalue": "7", "traceback": []}
    assert commands.state(id) == {"id": id, "state": "ended", "running": False, "exit_code": 7}
    assert commands.call("GET", f"/command/status/{id}")[1] == commands.state(id)


def test_a_command_without_output_ends_complete(commands):
    with commands.run("true") as stream:
        stream.init()
        assert stream.rest() == ("", "", 0)
        assert [name for name, _ in stream.seen] == ["init", "execution_complete", "exit"]


def test_output_comes_while_the_command_runs(commands, tmp_path):
    os.mkfifo(tmp_path / "go")
    with commands.run(f"echo one; echo two >&2; read x <{tmp_path}/go; echo $x") as stream:
        id = stream.init()
        stream.until("stdout", "one\n")
        stream.until("stderr", "two\n") if not stream.text("stderr") else None
        assert commands.state(id) == {"id": id, "state": "running", "running": True, "exit_code": None}
        (tmp_path / "go").write_text("three\n")
        assert stream.rest() == ("one\nthree\n", "two\n", 0)


def test_input_is_at_its_end(commands):
    with commands.run("cat; echo $?") as stream:
        assert stream.rest() == ("0\n", "", 0)


def test_a_connection_serves_the_next_request_behind_an_answer(both):
    stream = both["direct"].run("echo 1")
    with stream:
        assert stream.rest() == ("1\n", "", 0)
        assert stream.http.request("GET", "/health", [WORKER_BEARER]).status == 200


def test_large_output_is_whole(commands):
    with commands.run("seq 1 300000; seq 1 50000 >&2; exit 3") as stream:
        out, err, code = stream.rest()
    assert out == "".join(f"{i}\n" for i in range(1, 300001)) and err == "".join(f"{i}\n" for i in range(1, 50001)) and code == 3


def test_a_client_that_reads_slowly_holds_the_command_up_and_loses_nothing(both, host, tmp_path):
    """Neither worker nor session manager holds what it does not read."""
    worker, done = both["direct"], tmp_path / "done"
    data = json.dumps({"command": f"seq 1 4000000; touch {done}"}).encode()
    with connect(worker.port, room=4096) as sock:
        sock.sendall(head_of("POST", "/command", [("Host", "a"), WORKER_BEARER, JSON, ("Content-Length", len(data))]) + data)
        until(lambda: queued(sock), 10, "nothing comes")
        stat = Path(f"/proc/{host.manager.pid}/stat")
        until(lambda: all(stat.read_text().rpartition(") ")[2][0] == "S" for _ in range(100)), 10, "the session manager is always busy")
        assert not done.exists()
        http = Http1.__new__(Http1)
        http.sock, http.rest, http.interim = sock, b"", []
        out, _, code = Stream(http).rest()
    assert code == 0 and out == "".join(f"{i}\n" for i in range(1, 4000001))


def test_texts_are_utf8_whatever_the_command_writes(commands, tmp_path):
    """A character that comes in two pieces is one; what is none becomes U+FFFD, byte for byte."""
    os.mkfifo(tmp_path / "go")
    script = f"printf 'a\\342'; echo e >&2; read x <{tmp_path}/go; printf '\\202\\254b\\377\\342\\202'; printf '\\001\"\\\\'; printf '\\360\\237'"
    with commands.run(script) as stream:
        stream.init()
        while stream.text("stdout") != "a" or stream.text("stderr") != "e\n":
            assert stream.event()
        (tmp_path / "go").write_text("\n")
        assert stream.rest() == ('a€b\ufffd\ufffd\ufffd\x01"\\\ufffd\ufffd', "e\n", 0)


def test_characters_at_every_cut_stay_whole(commands):
    with commands.run("printf x; yes é | head -n 30000 | tr -d '\\n'; printf y; yes 😀 | head -n 30000 | tr -d '\\n'") as stream:
        out, _, _ = stream.rest()
    assert out == "x" + "é" * 30000 + "y" + "😀" * 30000


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 65536, 1 << 20])
def test_bytes_that_are_no_text_become_as_many_marks(commands, size):
    with commands.run(f"head -c {size} /dev/zero | tr '\\0' '\\377'") as stream:
        assert stream.rest()[0] == "\ufffd" * size


def test_zeros_are_told_too(commands):
    with commands.run("head -c 100000 /dev/zero") as stream:
        assert stream.rest()[0] == "\0" * 100000


def test_a_timeout_ends_the_command(commands):
    started = time.monotonic()
    with commands.run("echo pid=$$.; exec sleep 100", timeout=1000) as stream:
        id, pid = stream.init(), pid_of(stream)
        assert stream.rest()[2] == 128 + signal.SIGHUP
    assert 0.95 < time.monotonic() - started < 20 and not alive(pid)
    assert commands.state(id)["exit_code"] == 128 + signal.SIGHUP


def test_a_timeout_ends_a_command_that_does_not_listen(commands):
    with commands.run("trap '' HUP TERM INT; echo pid=$$.; while :; do sleep 0.1; done", timeout=1000) as stream:
        stream.init()
        pid = pid_of(stream)
        assert stream.rest()[2] == 128 + signal.SIGKILL
    assert not alive(pid)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL", "SIGQUIT", "SIGHUP"])
def test_signals(commands, name):
    with commands.run("echo pid=$$.; exec sleep 100") as stream:
        id, pid = stream.init(), pid_of(stream)
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        assert commands.call("POST", f"/command/{id}/signal", {"signal": name}) == (200, {})
        assert stream.rest()[2] == 128 + getattr(signal, name)


def test_a_signal_may_be_caught(commands):
    """By a shell that starts nothing: bash 5.2 sends SIGINT to itself for ever where it comes between fork and wait."""
    with commands.run("trap 'echo caught; exit 5' INT; echo pid=$$.; while :; do :; done") as stream:
        id = stream.init()
        pid_of(stream)
        assert commands.call("POST", f"/command/{id}/signal", {"signal": "SIGINT"})[0] == 200
        out, _, code = stream.rest()
    assert out.endswith("caught\n") and code == 5


@pytest.mark.parametrize("path", ["/command?id={}", "/command/{}"])
def test_delete_interrupts_and_forgets(commands, path):
    with commands.run("sleep 1000 & echo pid=$!.; wait") as stream:
        id, pid = stream.init(), pid_of(stream)
        assert commands.call("DELETE", path.format(id)) == (200, {})
        assert stream.rest()[2] == 128 + signal.SIGHUP
    until(lambda: not alive(pid))
    assert commands.call("DELETE", path.format(id))[0] == 404


def test_a_foreground_command_whose_client_leaves_is_killed(commands):
    with commands.run("trap '' HUP; sleep 1000 & echo pid=$!.; wait; echo never") as stream:
        id, pid = stream.init(), pid_of(stream)
        assert commands.state(id)["running"] is True
    assert commands.ended(id)["exit_code"] == 128 + signal.SIGKILL
    until(lambda: not alive(pid))


def test_a_command_whose_client_does_not_wait_for_its_first_word_is_killed(commands, tmp_path):
    said = tmp_path / "pid"
    with commands.send({"command": f"echo $$ >{said}.1; mv {said}.1 {said}; exec sleep 1000"}):
        until(said.exists, 10)
    until(lambda: not alive(int(said.read_text())), 10, "it lives on")


def test_a_background_command_goes_on(commands, tmp_path):
    os.mkfifo(tmp_path / "go")
    with commands.run(f"echo $$ >{tmp_path}/pid; echo lost; read x <{tmp_path}/go; exit $x", background=True) as stream:
        id = stream.init()
        assert stream.event()[0] == "execution_complete" and stream.event() is None
    assert commands.state(id) == {"id": id, "state": "running", "running": True, "exit_code": None}
    (tmp_path / "go").write_text("9\n")
    assert commands.ended(id) == {"id": id, "state": "ended", "running": False, "exit_code": 9}


def test_a_background_command_is_interrupted_and_has_a_timeout(commands):
    for body, end in (({}, lambda id: commands.call("POST", f"/command/{id}/signal", {"signal": "SIGTERM"})), ({"timeout": 100}, lambda id: None)):
        with commands.run("exec sleep 1000", background=True, **body) as stream:
            id = stream.init()
        end(id)
        assert commands.ended(id)["exit_code"] in (128 + signal.SIGTERM, 128 + signal.SIGHUP)


def test_the_output_of_a_background_command_is_there_for_a_terminals_client(commands):
    with commands.run("echo out; echo err >&2", background=True) as stream:
        id = stream.init()
    commands.ended(id)
    with Ws(commands.port, f"{commands.prefix}/pty/{id}/ws?pty=0", commands.headers) as ws:
        opcode, replay = ws.message()
        assert opcode == BINARY and sorted(replay[9:].split()) == [b"err", b"out"]
        assert json.loads(ws.message()[1])["mode"] == "pipe"
        assert ws.rest() == ([(TEXT, b'{"type":"exit","exit_code":0}')], (1000, "process exited"))


def test_second_form_of_a_terminal(commands):
    body = {"command": "stty -echo; stty size; echo pid=$$.; read x; exit $x", "tty": True, "cols": 100, "rows": 30}
    status, answer = commands.call("POST", "/command", body)
    assert status == 201 and set(answer) == {"session_id", "path"}
    id = answer["session_id"]
    assert answer["path"] == f"/pty/{id}/ws"
    assert commands.state(id) == {"id": id, "state": "new", "running": False, "exit_code": None}
    with Ws(commands.port, commands.prefix + answer["path"], commands.headers) as ws:
        assert json.loads(ws.message()[1]) == {"type": "connected", "session_id": id, "mode": "pty"}
        pid = int(ws.find(rb"30 100\r\npid=(\d+)\.\r\n", tags=(1,))[1])
    assert alive(pid) and commands.state(id)["running"] is True, "a terminal outlives its client"
    with Ws(commands.port, commands.prefix + answer["path"] + "?takeover=1", commands.headers) as ws:
        assert ws.message()[1][9:].startswith(b"30 100\r\n")
        assert json.loads(ws.message()[1])["type"] == "connected"
        ws.send(BINARY, b"\x006\n")
        messages, close = ws.rest()
        assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":6}') and close == (1000, "process exited")
    assert commands.state(id)["exit_code"] == 6


def test_second_form_has_signals_and_a_timeout(commands):
    for body, end, code in (({}, "SIGKILL", signal.SIGKILL), ({"timeout": 1000}, None, signal.SIGHUP)):
        _, answer = commands.call("POST", "/command", {"command": "echo pid=$$.; exec sleep 1000", "tty": True, **body})
        with Ws(commands.port, commands.prefix + answer["path"], commands.headers) as ws:
            ws.message()
            ws.find(rb"pid=(\d+)\.", tags=(1,))
            if end:
                assert commands.call("POST", f"/command/{answer['session_id']}/signal", {"signal": end})[0] == 200
            messages, _ = ws.rest()
            assert json.loads(messages[-1][1]) == {"type": "exit", "exit_code": 128 + code}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"command":"ls"',
        b'{"command":"\xff"}',
        {},
        {"command": ""},
        {"command": 5},
        {"command": "ls", "cwd": 5},
        {"command": "ls", "cwd": "/no/such/folder"},
        {"command": "ls", "cwd": "/" * 5000},
        {"command": "ls", "background": 1},
        {"command": "ls", "background": True, "cwd": "/no/such/folder"},
        {"command": "ls", "tty": "true"},
        {"command": "ls", "timeout": -1},
        {"command": "ls", "timeout": 1.5},
        {"command": "ls", "timeout": 1 << 32},
        {"command": "ls", "tty": True, "cols": 0},
        {"command": "ls", "tty": True, "rows": 65536},
        {"command": "ls", "envs": ["A"]},
        {"command": "ls", "envs": "A"},
        {"command": "ls", "envs": {"A=B": "C"}},
        {"command": "ls", "uid": 0},
        {"command": "ls " * 8000},
    ],
    ids=range(24),
)
def test_bad_requests_are_400(commands, body):
    status, answer = commands.call("POST", "/command", body)
    assert status == 400 and answer["message"] and answer["code"] in ("INVALID_REQUEST", "START_FAILED")


def test_a_body_that_is_too_large_is_413(commands):
    assert commands.call("POST", "/command", {"command": "x" * 70000})[0] == 413


def test_what_is_not_known(commands):
    for method, path, body in (("GET", "/command/00000000", None), ("DELETE", "/command/00000000", None), ("DELETE", "/command?id=00000000", None), ("POST", "/command/00000000/signal", {"signal": "SIGINT"})):
        status, answer = commands.call(method, path, body)
        assert (status, answer["code"]) == (404, "CONTEXT_NOT_FOUND")
    assert commands.call("DELETE", "/command")[0] == 400
    for body in (None, {}, {"signal": "SIGSEGV"}, {"signal": 2}):
        assert commands.call("POST", "/command/00000000/signal", body)[0] == 400


def test_access_token(host, tmp_path):
    (tmp_path / "token").write_text("let me in\n")
    worker = host.worker("--token-file", tmp_path / "token")
    commands = Commands(worker.port, "", [WORKER_BEARER])
    for method, path, body in (("POST", "/command", {"command": "true"}), ("GET", "/command/a", None), ("DELETE", "/command/a", None), ("DELETE", "/command?id=a", None), ("POST", "/command/a/signal", {"signal": "SIGINT"})):
        for headers in ([], [("X-EXECD-ACCESS-TOKEN", "let me out")]):
            assert commands.call(method, path, body, headers)[0] == 401
    commands.headers.append(("X-EXECD-ACCESS-TOKEN", "let me in"))
    with commands.run("true") as stream:
        assert stream.rest() == ("", "", 0)
    worker.close()


def test_a_session_manager_that_is_lost_is_told(tmp_path):
    host = Host()
    worker = host.worker()
    commands = Commands(worker.port, "", [WORKER_BEARER])
    with commands.run("echo pid=$$.; exec sleep 1000") as stream:
        stream.init()
        pid = pid_of(stream)
        host.kill()
        name, data = stream.event()
        assert name == "error" and data["error"]["ename"] == "SessionLost" and stream.event() is None
    os.kill(pid, signal.SIGKILL)
    assert commands.call("POST", "/command", {"command": "true"})[0] == 503
    host.close()


def test_a_killed_worker_leaves_no_foreground_command(host):
    worker = host.worker()
    with Commands(worker.port, "", [WORKER_BEARER]).run("echo pid=$$.; exec sleep 1000") as stream:
        stream.init()
        pid = pid_of(stream)
        worker.kill()
        until(lambda: not alive(pid), 10, "it lives on")
    worker.close()
