# SPDX-License-Identifier: MIT
"""cell-worker and cell-sandboxd themselves, without a cell in front of them: each protocol byte for byte, and what
happens to sessions when clients and workers go."""

import asyncio
import fcntl
import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import websockets
from cell import BIN, SANITIZED, alive, stop, until
from client import connect, exchange
from fault_injection import FAULT_INJECTION
from worker import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, WORKER_BEARER, WORKER_SECRET, Host, Worker, Ws

RING = 1 << 20
A = b"\r\nHost: a\r\nAuthorization: Bearer %s\r\n" % WORKER_SECRET.encode()  # of requests that are written out here


def raw_exchange(port, data):
    return exchange(port, data.replace(b"\r\nHost: a\r\n", A))


@pytest.fixture(scope="module")
def worker(host, tmp_path_factory):
    ui = tmp_path_factory.mktemp("ui")
    (ui / "index.html").write_text("<p>hello")
    (ui / "app.js").write_text("1")
    (ui / "big.map").write_bytes(b"m" * 1_000_000)
    (ui / ".hidden").write_text("no")
    (ui / "link").symlink_to("/etc/passwd")
    (ui / "folder").mkdir()
    return host.worker("--ui", ui, "--name", "worker-a")


def number_after(marker, data):
    return int(re.search(marker.encode() + rb"(\d+)", data)[1])


def pid_of(ws, tag=b""):
    """Of the shell behind a terminal, that echoes what is typed."""
    ws.send(BINARY, tag + b"echo pid=$$.\n")
    return int(ws.find(rb"pid=(\d+)\.\r", tags=(1,) if tag else None)[1])


def pattern(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


# ---- OpenComputer: terminals ----


def pty(worker, sandbox="sb-0123abcd", **body):
    status, answer = worker.call("POST", f"/sandboxes/{sandbox}/pty", {"shell": "/bin/sh", **body})
    assert status == 201 and answer["sandboxID"] == sandbox and re.fullmatch("[0-9a-f]{8}", answer["sessionID"])
    return f"/sandboxes/{sandbox}/pty/{answer['sessionID']}"


def test_pty_is_raw_bytes_both_ways_and_ends_1000_without_a_reason(worker):
    with worker.open(pty(worker, cols=100, rows=30)) as ws:
        ws.send(BINARY, b"stty size; echo $TERM\n")
        ws.until(b"30 100\r\nxterm-256color\r\n")
        ws.send(TEXT, "echo té$((1+1))xt\n".encode())
        ws.until("té2xt\r\n".encode())
        ws.send(BINARY, b"exit 5\n")
        messages, close = ws.rest()
        assert close == (1000, "") and {op for op, _ in messages} <= {BINARY}
        assert ws.frame() is None


def test_pty_output_frames_have_at_most_4096_bytes(worker):
    with worker.open(pty(worker)) as ws:
        ws.send(BINARY, b"seq 1 20000; exit\n")
        messages, _ = ws.rest()
        assert max(len(m) for _, m in messages) <= 4096
        assert b"".join(m for _, m in messages).count(b"\n") > 20000


def test_pty_input_may_come_in_fragments_with_pings_between(worker):
    with worker.open(pty(worker)) as ws:
        ws.show_control = True
        ws.send(BINARY, b"echo $((1+1))fr", fin=False)
        ws.send(PING, b"now")
        ws.send(CONTINUATION, b"", fin=False)
        ws.send(CONTINUATION, b"agment\n")
        seen, pong = b"", None
        while b"2fragment\r\n" not in seen or not pong:
            opcode, payload = ws.message()
            pong = payload if opcode == PONG else pong
            seen += payload if opcode == BINARY else b""
        assert pong == b"now"


def test_pty_next_client_goes_on_where_the_last_one_stopped(worker):
    path = pty(worker)
    with worker.open(path) as ws:
        ws.send(BINARY, b"echo $((100+1)); read x; echo got-$x\n")
        ws.until(b"101\r\n")
    with worker.open(path) as ws:
        ws.send(BINARY, b"line\n")
        seen = ws.until(b"got-line\r\n")
        assert b"101" not in seen, "nothing is repeated"


def test_pty_output_of_the_time_without_a_client_is_not_lost(worker, tmp_path):
    path, go = pty(worker), tmp_path / "go"
    with worker.open(path) as ws:
        ws.send(BINARY, f"echo ready$((1+1)); until [ -e {go} ]; do sleep 0.01; done; seq -s, 1 500; echo done > {go}.2\n".encode())
        ws.until(b"ready2\r\n")
    go.touch()
    until(lambda: (tmp_path / "go.2").exists() and (tmp_path / "go.2").read_text())
    with worker.open(path) as ws:
        assert b"1,2,3," in ws.until(b",499,500")


def test_pty_resize_works_and_signals_the_program(worker):
    path = pty(worker)
    with worker.open(path) as ws:
        ws.send(BINARY, b"trap 'echo winch $(stty size)' WINCH; echo set$((1+1))\n")
        ws.until(b"set2\r\n")
        assert worker.call("POST", path + "/resize", {"cols": 120, "rows": 40})[0] == 200
        ws.send(BINARY, b"\n")
        ws.until(b"winch 40 120")


def test_pty_delete_kills_the_shell_and_its_jobs(worker):
    path = pty(worker)
    with worker.open(path) as ws:
        ws.send(BINARY, b"trap '' HUP TERM; echo shell=$$; sleep 1000 & echo child=$!; echo all$((1+1))\n")
        seen = ws.until(b"all2\r\n")
        shell_pid, child = number_after("shell=", seen), number_after("child=", seen)
        assert alive(shell_pid) and alive(child)
        assert worker.call("DELETE", path) == (204, None)
        assert worker.call("DELETE", path)[0] == 404
        assert ws.rest()[1] == (1000, "")
    until(lambda: not alive(shell_pid) and not alive(child))


def test_pty_client_that_leaves_leaves_the_shell_running(worker):
    path = pty(worker)
    with worker.open(path) as ws:
        pid = pid_of(ws)
    with worker.open(path) as ws:
        assert pid_of(ws) == pid


def test_last_words_before_a_close_reach_the_session(worker, tmp_path):
    with worker.open(execute(worker, "sh", "-c", f"read x; echo $x >{tmp_path}/said")) as ws:
        assert ws.message() == (BINARY, b"\x04")
        ws.http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        ws.send(BINARY, b"\x00last\n")
        ws.send(CLOSE, struct.pack(">H", 1000))
        ws.http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        until(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text() == "last\n")


def test_two_terminals_of_a_sandbox_do_not_see_each_other(worker):
    with worker.open(pty(worker)) as one, worker.open(pty(worker)) as two:
        one.send(BINARY, b"echo one$((1+1))\n")
        two.send(BINARY, b"echo two$((1+1))\n")
        assert b"two2" not in one.until(b"one2\r\n")
        assert b"one2" not in two.until(b"two2\r\n")


@pytest.mark.parametrize(
    "method,path",
    [
        ("DELETE", "/sandboxes/sb-1/pty/00000000"),
        ("POST", "/sandboxes/sb-1/pty/00000000/resize"),
        ("POST", "/sandboxes/sb-1/exec/00000000/kill"),
    ],
)
def test_unknown_session_is_404_json(worker, method, path):
    assert worker.call(method, path, {"cols": 80, "rows": 24}) == (404, {"error": "session not found"})


@pytest.mark.parametrize("kind", ["pty", "exec"])
def test_unknown_session_is_404_before_the_upgrade(worker, kind):
    with pytest.raises(Ws.Refused) as refused:
        worker.open(f"/sandboxes/sb-1/{kind}/0badcafe")
    assert refused.value.status == 404 and json.loads(refused.value.body) == {"error": "session not found"}


def test_session_is_known_only_in_its_sandbox_and_by_its_kind(worker):
    path = pty(worker)
    for other in (path.replace("sb-0123abcd", "sb-other"), path.replace("/pty/", "/exec/")):
        with pytest.raises(Ws.Refused) as refused:
            worker.open(other)
        assert refused.value.status == 404


@pytest.mark.parametrize("body", [{"cols": 0}, {"rows": 70000}, {"cols": "80"}, {"shell": 5}, {"shell": "/no/such/shell"}, ["a"]])
def test_bad_request_for_a_terminal_is_400(worker, body):
    status, answer = worker.call("POST", "/sandboxes/sb-1/pty", body)
    assert status == 400 and answer["error"]


# ---- OpenComputer: commands ----


def execute(worker, *command, sandbox="sb-0123abcd", **more):
    body = {"cmd": command[0], "args": list(command[1:]), **more}
    status, answer = worker.call("POST", f"/sandboxes/{sandbox}/exec", body)
    assert status == 201, answer
    assert set(answer) == {"sessionID", "sandboxID", "command", "args", "running", "startedAt"}
    assert (answer["command"], answer["args"], answer["running"]) == (command[0], list(command[1:]), True)
    return f"/sandboxes/{sandbox}/exec/{answer['sessionID']}"


def streams(messages):
    """What came on 01 and 02, and the positions of 03 and 04 among the frames."""
    assert {op for op, _ in messages} <= {BINARY}
    frames = [m for _, m in messages]
    out = {tag: b"".join(f[1:] for f in frames if f[0] == tag) for tag in (1, 2)}
    return out[1], out[2], [f for f in frames if f[0] == 3], [i for i, f in enumerate(frames) if f == b"\x04"]


def test_exec_tags_its_streams_and_says_the_exit_code(worker):
    path = execute(worker, "sh", "-c", 'echo out; echo err >&2; echo "$A|$PWD"; exit 7', envs={"A": "ä=b"}, cwd="/tmp")
    with worker.open(path) as ws:
        messages, close = ws.rest()
        out, err, exits, replayed = streams(messages)
        assert out == "out\nä=b|/tmp\n".encode() and err == b"err\n"
        assert exits == [b"\x03" + struct.pack(">i", 7)] and messages[-1][1] == exits[0]
        assert len(replayed) == 1 and close == (1000, "")


def test_exec_takes_stdin_after_00_and_ignores_all_else(worker):
    with worker.open(execute(worker, "sh", "-c", "read a; echo got-$a; read b; echo and-$b")) as ws:
        assert ws.message() == (BINARY, b"\x04")
        ws.send(BINARY, b"")
        ws.send(BINARY, b"\x05nonsense\n")
        ws.send(TEXT, b"\x00text\n")
        ws.send(BINARY, b"\x00one\n")
        assert ws.message() == (BINARY, b"\x01got-one\n")
        ws.send(BINARY, b"", fin=False)
        ws.send(CONTINUATION, b"\x00t", fin=False)
        ws.send(CONTINUATION, b"wo\n")
        assert ws.message() == (BINARY, b"\x01and-two\n")
        assert ws.message() == (BINARY, b"\x03\0\0\0\0")


def test_exec_replays_all_on_each_attach_then_goes_on(worker):
    path = execute(worker, "sh", "-c", "echo 1; echo 2 >&2; read x; echo 3")
    with worker.open(path) as first:
        seen = b""
        while b"\x011\n" not in seen or b"\x022\n" not in seen:
            seen += first.message()[1]
        with worker.open(path) as second:
            assert [second.message()[1] for _ in range(3)] in ([b"\x011\n", b"\x022\n", b"\x04"], [b"\x022\n", b"\x011\n", b"\x04"])
            second.send(BINARY, b"\x00\n")
            assert streams(second.rest()[0])[:3] == (b"3\n", b"", [b"\x03\0\0\0\0"])
        assert streams(first.rest()[0])[2] == [b"\x03\0\0\0\0"]
    with worker.open(path) as third:
        out, err, exits, replayed = streams(third.rest()[0])
        assert (out, err, exits, replayed) == (b"1\n3\n", b"2\n", [b"\x03\0\0\0\0"], [3])


def test_exec_loses_no_tail(worker):
    with worker.open(execute(worker, "sh", "-c", "read x; seq 1 200000; exit 3")) as ws:
        ws.send(BINARY, b"\x00\n")
        out, _, exits, _ = streams(ws.rest()[0])
        assert out == b"".join(b"%d\n" % i for i in range(1, 200001))
        assert exits == [b"\x03\0\0\0\x03"]


def test_exec_ring_drops_its_oldest_whole_chunks(worker, tmp_path):
    done = tmp_path / "done"
    path = execute(worker, "sh", "-c", f"for i in $(seq 400); do printf '%4096s' $i; done; touch {done}; read x")
    until(done.exists)
    with worker.open(path) as ws:
        seen = b""
        while (message := ws.message()[1]) != b"\x04":
            assert message[0] == 1 and len(message) <= 4097
            seen += message[1:]
        assert RING - 8192 <= len(seen) <= RING and seen == b"".join(b"%4096d" % i for i in range(1, 401))[-len(seen) :]


def test_exec_background_child_does_not_delay_the_exit(worker):
    started = time.monotonic()
    with worker.open(execute(worker, "sh", "-c", "sleep 30 & echo pid=$!; exit 4")) as ws:
        out, _, exits, _ = streams(ws.rest()[0])
    os.kill(number_after("pid=", out), signal.SIGKILL)
    assert exits == [b"\x03\0\0\0\x04"] and time.monotonic() - started < 5


@pytest.mark.parametrize("number,code", [(9, 137), (15, 143), (2, 130)])
def test_exec_kill_sends_the_signal_to_the_group(worker, number, code):
    path = execute(worker, "sh", "-c", "echo pid=$$; exec sleep 100")
    with worker.open(path) as ws:
        pid = number_after("pid=", b"".join(ws.message()[1] for _ in range(2)))
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        assert worker.call("POST", path + "/kill", {"signal": number}) == (204, None)
        assert streams(ws.rest()[0])[2] == [b"\x03" + struct.pack(">i", code)]
    until(lambda: not alive(pid))


def test_exec_kill_without_a_body_is_signal_9(worker):
    path = execute(worker, "sleep", "100")
    assert worker.call("POST", path + "/kill") == (204, None)
    with worker.open(path) as ws:
        assert streams(ws.rest()[0])[2] == [b"\x03\0\0\0\x89"]


def test_exec_ends_at_its_timeout(worker):
    with worker.open(execute(worker, "sleep", "100", timeout=1)) as ws:
        assert streams(ws.rest()[0])[2] == [b"\x03" + struct.pack(">i", 128 + signal.SIGHUP)]


def test_exec_ends_some_time_after_its_client_left(worker):
    with worker.open(execute(worker, "sh", "-c", "echo pid=$$; sleep 100", maxRunAfterDisconnect=1)) as ws:
        pid = number_after("pid=", b"".join(ws.message()[1] for _ in range(2)))
        assert alive(pid)
    until(lambda: not alive(pid))


def test_exec_of_a_program_that_is_not_there_is_400(worker):
    status, answer = worker.call("POST", "/sandboxes/sb-1/exec", {"cmd": "/no/such/program"})
    assert status == 400 and "No such file" in answer["error"]


@pytest.mark.parametrize("body", [None, {}, {"cmd": 1}, {"cmd": "ls", "args": [1]}, {"cmd": "ls", "envs": {"a=b": "c"}}, {"cmd": "ls", "envs": ["a"]}, {"cmd": "ls", "timeout": -1}])
def test_bad_request_for_a_command_is_400(worker, body):
    assert worker.call("POST", "/sandboxes/sb-1/exec", body)[0] == 400


# ---- OpenSandbox ----


def shell(worker, **body):
    status, answer = worker.call("POST", "/pty", body or None)
    assert status == 201 and list(answer) == ["session_id"]
    return answer["session_id"]


def connected(ws, session, mode="pty"):
    assert json.loads(ws.message()[1]) == {"type": "connected", "session_id": session, "mode": mode}


def live(ws, marker):
    """Payloads of live frames, joined, up to the marker."""
    return ws.until(marker, tags=(1,))


def attach(worker, session, query="", mode="pty"):
    ws = worker.open(f"/pty/{session}/ws{query}")
    connected(ws, session, mode)
    return ws


def test_opensandbox_shell_starts_at_the_first_connection(worker):
    session = shell(worker)
    assert worker.call("GET", f"/pty/{session}") == (200, {"session_id": session, "running": False, "output_offset": 0})
    with attach(worker, session) as ws:
        ws.send(BINARY, b"\x00echo a$((1+1))\n")
        live(ws, b"a2\r\n")
        status, answer = worker.call("GET", f"/pty/{session}")
        assert answer["running"] is True and answer["output_offset"] > 0


def test_opensandbox_frames_are_those_of_its_clients(worker):
    session = shell(worker, command="stty -echo; echo on; read x; echo got:$x", cwd="/tmp")
    with attach(worker, session) as ws:
        live(ws, b"on\r\n")
        ws.send(BINARY, bytes.fromhex("00 6c 73 0a"))
        messages, close = ws.rest()
        assert messages == [(BINARY, b"\x01got:ls\r\n"), (TEXT, b'{"type":"exit","exit_code":0}')]
        assert close == (1000, "process exited")
        offset = len(b"on\r\ngot:ls\r\n")
    assert worker.call("GET", f"/pty/{session}")[1] == {"session_id": session, "running": False, "output_offset": offset}
    with worker.open(f"/pty/{session}/ws?since=4") as ws:
        assert ws.message() == (BINARY, bytes.fromhex("03 00 00 00 00 00 00 00 04") + b"got:ls\r\n")
        connected(ws, session)
        assert ws.rest() == ([(TEXT, b'{"type":"exit","exit_code":0}')], (1000, "process exited"))


def test_opensandbox_text_messages(worker):
    session = shell(worker)
    with attach(worker, session) as ws:
        ws.say(type="ping")
        ws.say(type="resize", cols=120, rows=40)
        ws.say(type="stdin", data="stty size; echo é\n")
        seen, pong = b"", False
        while "é\r\n".encode() not in seen.split(b"stty size; echo")[-1][6:] or b"40 120" not in seen:
            opcode, payload = ws.message()
            if opcode == TEXT:
                pong = json.loads(payload) == {"type": "pong"}
            else:
                seen += payload[1:]
        assert pong


@pytest.mark.parametrize("message", [b"no json", b"[]", b'{"type":"nonsense"}', b'{"type":"signal","signal":"SIGSEGV"}', b'{"type":"resize","cols":0,"rows":1}', b"{" + b" " * 70000 + b"}"], ids=range(6))
def test_opensandbox_invalid_text_is_answered(worker, message):
    with attach(worker, shell(worker, command="sleep 100")) as ws:
        ws.send(TEXT, message)
        answer = json.loads(ws.message()[1])
        assert (answer["type"], answer["code"]) == ("error", "INVALID_FRAME") and answer["error"]


def test_opensandbox_invalid_binary_is_answered(worker):
    with attach(worker, shell(worker, command="sleep 100")) as ws:
        for payload in (b"", b"\x01x"):
            ws.send(BINARY, payload)
            assert json.loads(ws.message()[1])["code"] == "INVALID_FRAME"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL", "SIGQUIT", "SIGHUP"])
def test_opensandbox_signals(worker, name):
    session = shell(worker, command="echo pid=$$.; exec sleep 100")
    with attach(worker, session) as ws:
        pid = int(ws.find(rb"pid=(\d+)\.", tags=(1,))[1])
        until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
        ws.say(type="signal", signal=name)
        messages, close = ws.rest()
        assert json.loads(messages[-1][1]) == {"type": "exit", "exit_code": 128 + getattr(signal, name)}
        assert close == (1000, "process exited")


def test_opensandbox_pipes_have_two_streams(worker):
    session = shell(worker, command="read x; echo out$x; echo err$x >&2; [ -t 0 ] || exit 9")
    with attach(worker, session, "?pty=0", "pipe") as ws:
        ws.send(BINARY, b"\x001\n")
        messages, close = ws.rest()
        assert sorted(messages[:2]) == [(BINARY, b"\x01out1\n"), (BINARY, b"\x02err1\n")]
        assert messages[2:] == [(TEXT, b'{"type":"exit","exit_code":9}')]
    with worker.open(f"/pty/{session}/ws?pty=0") as ws:
        opcode, replay = ws.message()
        assert replay[:9] == b"\x03" + bytes(8) and sorted(replay[9:].split()) == [b"err1", b"out1"]
        connected(ws, session, "pipe")


def test_opensandbox_replay_since_an_offset_then_live(worker):
    session = shell(worker, command="stty -echo; printf 0123456789; read x; printf live; read y")
    with attach(worker, session) as ws:
        live(ws, b"0123456789")
    with worker.open(f"/pty/{session}/ws?since=7") as ws:
        assert ws.message() == (BINARY, b"\x03" + struct.pack(">Q", 7) + b"789")
        connected(ws, session)
        ws.send(BINARY, b"\x00\n")
        live(ws, b"live")
    with attach(worker, session, "?since=14") as ws:
        pass
    with attach(worker, session, "?since=99999") as ws:
        ws.send(BINARY, b"\x00\n")
        assert ws.rest()[1] == (1000, "process exited")


def test_opensandbox_ring_wraps_and_clamps(worker, tmp_path):
    done = tmp_path / "done"
    session = shell(worker, command=f"seq 1 300000; touch {done}; read x")
    worker.open(f"/pty/{session}/ws").drop()
    until(lambda: done.exists() and worker.call("GET", f"/pty/{session}")[1]["output_offset"] == 2_288_895)
    whole = b"".join(b"%d\r\n" % i for i in range(1, 300001))
    with worker.open(f"/pty/{session}/ws?since=5") as ws:
        opcode, replay = ws.message()
        offset = struct.unpack(">Q", replay[1:9])[0]
        assert replay[0] == 3 and len(replay) == 1_048_585 and offset == len(whole) - RING
        assert replay[9:] == whole[offset:]
        connected(ws, session)


def test_opensandbox_answers_come_behind_the_replay(worker, tmp_path):
    done = tmp_path / "done"
    session = shell(worker, command=f"seq 1 300000; touch {done}; read x")
    worker.open(f"/pty/{session}/ws").drop()
    until(done.exists, 10)
    for _ in range(5):
        with worker.open(f"/pty/{session}/ws?since=0&takeover=1") as ws:
            for _ in range(20):
                ws.say(type="ping")
            opcode, replay = ws.message()
            assert (opcode, replay[0], len(replay)) == (BINARY, 3, 1_048_585) and b"pong" not in replay
            texts = [json.loads(ws.message()[1])["type"] for _ in range(21)]
            assert sorted(texts) == ["connected"] + ["pong"] * 20


def test_opensandbox_second_client_is_refused_409(worker):
    session = shell(worker)
    with attach(worker, session):
        with pytest.raises(Ws.Refused) as refused:
            worker.open(f"/pty/{session}/ws")
        assert refused.value.status == 409 and json.loads(refused.value.body)["code"] == "ALREADY_CONNECTED"
    until(lambda: attach_or_none(worker, session))


def test_nothing_of_an_unfinished_frame_is_taken(worker):
    """Who was cut off in it sends it whole to the next worker."""
    session = shell(worker, command="cat")
    with attach(worker, session) as ws:
        ws.http.sock.sendall(b"\x82\x89\0\0\0\0" + b"\x00unfi")  # five bytes of nine
        ws.http.sock.shutdown(socket.SHUT_WR)
        assert ws.frame() is None
    with attach(worker, session, "?takeover=1") as ws:
        ws.send(BINARY, b"\x00whole\n")
        assert b"unfi" not in live(ws, b"whole\r\nwhole\r\n")


def attach_or_none(worker, session):
    try:
        worker.open(f"/pty/{session}/ws").drop()
        return True
    except Ws.Refused as refused:
        assert refused.status == 409
        return False


def test_opensandbox_takeover_by_another_worker_keeps_the_shell(host, worker):
    other, session = host.worker(), shell(worker)
    with attach(worker, session) as old:
        pid = pid_of(old, b"\x00")
        offset = worker.call("GET", f"/pty/{session}")[1]["output_offset"]
        with other.open(f"/pty/{session}/ws?since={offset}&takeover=1") as new:
            message = new.message()
            if message[0] == BINARY:  # what the shell has said since then, its prompt for example
                assert message[1][:1] == b"\x03"
                message = new.message()
            assert json.loads(message[1])["type"] == "connected"
            assert old.rest()[1] == (4001, "TAKEN_OVER")
            assert pid_of(new, b"\x00") == pid
    other.close()


def test_opensandbox_takeover_comes_behind_what_the_first_client_had_said(host, worker, tmp_path):
    """Its worker has it, the session manager not yet: the program does not read."""
    go, said, data = tmp_path / "go", tmp_path / "said", [os.urandom(1000) for _ in range(200)]
    whole = b"".join(data) + b"behind"
    session = shell(worker, command=f"stty raw -echo; echo; until [ -e {go} ]; do sleep 0.01; done; head -c {len(whole)} >{said}; read x")
    other = host.worker()
    with attach(worker, session) as first:
        until(lambda: worker.call("GET", f"/pty/{session}")[1]["output_offset"], 10, "the terminal is not ready")
        for part in data:
            first.send(BINARY, b"\0" + part)
        first.show_control = True
        first.send(PING)
        while first.message()[0] != PONG:
            pass
        with attach(other, session, "?since=1000000&takeover=1") as second:
            second.send(BINARY, b"\0behind")
            assert first.rest()[1] == (4001, "TAKEN_OVER")
            go.touch()
            until(lambda: said.exists() and said.stat().st_size == len(whole), 10, "some is lost")
    assert said.read_bytes() == whole
    worker.call("DELETE", f"/pty/{session}")
    other.close()


def test_opensandbox_takeover_with_a_bad_handshake_evicts_nobody(worker):
    session = shell(worker)
    with attach(worker, session) as ws:
        answer, closed = raw_exchange(worker.port, f"GET /pty/{session}/ws?takeover=1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 ") and closed
        ws.say(type="ping")
        while ws.message() != (TEXT, b'{"type":"pong"}'):
            pass


def test_opensandbox_six_takeovers_at_once_leave_one_client(worker):
    """Who of them it is, nobody knows: the others are told, and that one is still there."""
    session = shell(worker)
    with ThreadPoolExecutor(6) as pool:
        sockets = list(pool.map(lambda _: worker.open(f"/pty/{session}/ws?takeover=1", timeout=30), range(6)))
        ends = {pool.submit(ws.rest): ws for ws in sockets}
        until(lambda: sum(end.done() for end in ends) == 5, 20, "they are not taken over")
        [(last, ws)] = [(end, ws) for end, ws in ends.items() if not end.done()]
        assert [end.result()[1] for end in ends if end is not last] == [(4001, "TAKEN_OVER")] * 5
        ws.send(BINARY, b"\x00echo still$((1+1)); exit 3\n")
        messages, close = last.result()
    assert b"still2\r\n" in b"".join(payload[1:] for opcode, payload in messages if opcode == BINARY)
    assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":3}') and close == (1000, "process exited")
    for each in sockets:
        each.drop()


def test_opensandbox_delete_kills_the_group(worker):
    session = shell(worker, command="trap '' HUP; echo pid=$$.; sleep 100; sleep 100")
    with attach(worker, session) as ws:
        pid = number_after("pid=", live(ws, b".\r\n"))
        assert worker.call("DELETE", f"/pty/{session}")[0] == 200
        assert worker.call("GET", f"/pty/{session}")[0] == 404
        messages, close = ws.rest()
        assert json.loads(messages[-1][1]) == {"type": "exit", "exit_code": 137} and close == (1000, "process exited")
    assert not alive(pid)


@pytest.mark.parametrize("method,path", [("GET", "/pty/nope"), ("DELETE", "/pty/nope")])
def test_opensandbox_unknown_session_is_404(worker, method, path):
    status, answer = worker.call(method, path)
    assert status == 404 and answer["code"] == "CONTEXT_NOT_FOUND"


def test_opensandbox_unknown_session_is_404_before_the_upgrade(worker):
    with pytest.raises(Ws.Refused) as refused:
        worker.open("/pty/nope/ws")
    assert refused.value.status == 404 and json.loads(refused.value.body)["code"] == "CONTEXT_NOT_FOUND"


def test_opensandbox_folder_that_is_not_there_is_start_failed(worker):
    with worker.open(f"/pty/{shell(worker, cwd='/no/such/folder')}/ws") as ws:
        messages, close = ws.rest()
        assert json.loads(messages[0][1])["code"] == "START_FAILED" and close[0] == 1011


def test_opensandbox_input_nobody_reads_is_stdin_write_failed(worker):
    with attach(worker, shell(worker, command="exec 0<&-; echo closed; sleep 100"), "?pty=0", "pipe") as ws:
        live(ws, b"closed\n")
        while True:
            ws.send(BINARY, b"\x00x")
            if select.select([ws.http.sock], [], [], 0.02)[0]:
                break
        assert json.loads(ws.message()[1])["code"] == "STDIN_WRITE_FAILED"


def test_opensandbox_token(host, tmp_path):
    (tmp_path / "token").write_text("let me in\n")
    guarded = host.worker("--token-file", tmp_path / "token")
    good = [("X-EXECD-ACCESS-TOKEN", "let me in")]
    for headers in ([], [("X-EXECD-ACCESS-TOKEN", "let me out")]):
        assert guarded.call("POST", "/pty", {}, headers)[0] == 401
    session = guarded.call("POST", "/pty", {}, good)[1]["session_id"]
    with pytest.raises(Ws.Refused) as refused:
        guarded.open(f"/pty/{session}/ws")
    assert refused.value.status == 401
    with guarded.open(f"/pty/{session}/ws", good) as ws:
        connected(ws, session)
    guarded.close()


def test_a_slow_client_is_let_go_and_the_shell_goes_on(host, worker, tmp_path):
    """While nobody takes the output it is held back for ten seconds, then the session goes on without that client."""
    done = tmp_path / "done"
    session = shell(worker, command=f"head -c 12000000 /dev/zero | tr '\\0' z; touch {done}; read x")
    ws = worker.open(f"/pty/{session}/ws")
    until(done.exists, 20)
    assert worker.call("GET", f"/pty/{session}")[1]["output_offset"] == 12_000_000
    seen = 0
    while (frame := ws.frame()) is not None and frame[0] != CLOSE:
        seen += len(frame[2])
    assert frame is not None and frame[2][:2] == struct.pack(">H", 1013) and seen < 12_000_000


# ---- /terminal ----


def test_terminal_is_bytes_and_json(worker):
    with worker.open("/terminal?cols=90&rows=25&command=bash%20--norc+-i") as ws:
        ws.send(BINARY, b"stty size; tty; echo $-\n")
        ws.until(b"25 90\r\n/dev/pts/")
        ws.say(type="resize", cols=120, rows=40)
        ws.send(BINARY, b"stty size\n")
        ws.until(b"40 120\r\n")
        ws.send(BINARY, b"exit 42\n")
        messages, close = ws.rest()
        assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":42}') and close == (1000, "process exited")


def test_terminal_passes_every_byte(worker):
    blob = bytes(range(256)) * 400
    with worker.open("/terminal?command=sh") as ws:
        ws.send(BINARY, b"stty raw -echo; echo go$((1+1)); head -c %d | sha256sum; exit\n" % len(blob))
        ws.until(b"go2")
        ws.send(BINARY, blob)
        ws.until(hashlib.sha256(blob).hexdigest().encode())


@pytest.mark.parametrize("leave", [Ws.drop, Ws.reset, lambda ws: ws.send(CLOSE, struct.pack(">H", 1000))])
def test_terminal_is_hung_up_when_its_client_leaves(worker, tmp_path, leave):
    script = tmp_path / "script"
    script.write_text(f"trap 'echo hup >{tmp_path}/hup; exit' HUP\necho pid=$$.\nwhile :; do sleep 0.05; done\n")
    ws = worker.open(f"/terminal?command=sh+{script}")
    pid = int(ws.find(rb"pid=(\d+)\.")[1])
    leave(ws)
    until(lambda: not alive(pid))
    assert (tmp_path / "hup").read_text() == "hup\n"
    ws.drop()


def test_terminal_loses_no_tail(worker):
    with worker.open("/terminal") as ws:
        ws.send(BINARY, b"stty -echo -onlcr; echo go; read x; echo; seq 1 200000; exit 3\n")
        ws.until(b"go\n")
        ws.send(BINARY, b"\n")
        messages, close = ws.rest()
        out = b"".join(m for op, m in messages if op == BINARY)
        assert b"\n" + b"".join(b"%d\n" % i for i in range(1, 200001)) in out
        assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":3}') and close == (1000, "process exited")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has to be the first that is loaded")
def test_terminal_that_says_too_early_that_it_has_ended_is_read_on():
    """Linux says EIO to who has read all when the last was written and the other side closed just behind that."""
    host = Host(before=("env", f"LD_PRELOAD={FAULT_INJECTION}", "FAULT_EIO=1"))
    with host.worker().open("/terminal?command=seq+1+20000") as ws:
        messages, close = ws.rest()
    out = b"".join(m for op, m in messages if op == BINARY)
    assert out == b"".join(b"%d\r\n" % i for i in range(1, 20001)) and close == (1000, "process exited")
    host.close()


LETS_GO = """
import ctypes, os, pathlib, signal, sys, time
_, heard, gone, go, *how = sys.argv

def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)

print("before", flush=True)
wait(heard)  # vhangup throws away what was not read
name = os.ttyname(0)
signal.signal(signal.SIGHUP, signal.SIG_IGN if "vhangup" in how else signal.SIG_DFL)
os.closerange(0, 3)
if "vhangup" in how:
    ctypes.CDLL(None).vhangup()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
pathlib.Path(gone).touch()
wait(go)
if "open" in how:
    os.open(name, os.O_RDWR)
    os.dup2(0, 1)
    print("after", flush=True)
    print("got", input(), flush=True)
os._exit(7)
"""
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.parametrize("how", ["", "open", pytest.param("vhangup+open", marks=NEEDS_ROOT)], ids=["close", "close+open", "vhangup+open"])
def test_terminal_that_its_program_lets_go_of_is_kept(host, worker, tmp_path, how):
    """As of one that goes to the background, or of login(1): meanwhile nobody has it open."""
    script, heard, gone, go = (tmp_path / word for word in ("script", "heard", "gone", "go"))
    script.write_text(LETS_GO)
    with worker.open(f"/terminal?command=/usr/bin/python3+{script}+{heard}+{gone}+{go}+{how}") as ws:
        ws.until(b"before\r\n")
        heard.touch()
        until(gone.exists, 10)
        for _ in range(2):  # so that the session manager has looked at what there is by now
            assert not knows(host, "0badcafe")
        go.touch()
        if "open" in how:
            ws.until(b"after\r\n")
            ws.send(BINARY, b"line\n")
        messages, close = ws.rest()
    said = b"".join(m for op, m in messages if op == BINARY)
    assert said == (b"line\r\ngot line\r\n" if "open" in how else b"")
    assert messages[-1] == (TEXT, b'{"type":"exit","exit_code":7}') and close == (1000, "process exited")


def test_terminal_waits_for_a_slow_client(worker):
    """Nothing is dropped however slow the client is: the terminal is not read meanwhile."""
    with worker.open("/terminal?command=seq+1+1500000", timeout=30) as ws:
        time.sleep(1.0)
        out = b"".join(m for op, m in ws.rest()[0] if op == BINARY)
    assert hashlib.sha256(out).digest() == hashlib.sha256(b"".join(b"%d\r\n" % i for i in range(1, 1500001))).digest()


@pytest.mark.parametrize("query", ["cols=x", "rows=99999", "command=%zz", "command=%00", "command=/no/such/program", "command=%20"])
def test_terminal_that_cannot_be_is_400(worker, query):
    with pytest.raises(Ws.Refused) as refused:
        worker.open("/terminal?" + query)
    assert refused.value.status == 400


def test_terminal_whose_program_does_not_listen_leaves_no_job_behind(worker, tmp_path):
    """Its job has a group of its own."""
    script = tmp_path / "script"
    script.write_text("trap '' HUP TERM; set -m; sleep 1000 &\necho pids=$$-$!.; while :; do sleep 1; done\n")
    with worker.open(f"/terminal?command=bash+{script}") as ws:
        pids = [int(pid) for pid in ws.find(rb"pids=(\d+-\d+)\.")[1].split(b"-")]
        assert all(alive(pid) for pid in pids)
    until(lambda: not any(alive(pid) for pid in pids), 20, "some live on")


STRANGER = """
import os, signal, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)

def group():
    if not (pid := os.fork()):
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        os._exit(0)
    os.waitpid(pid, 0)
    return pid

def stranger(number):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(number - 1))
    if not (pid := os.fork()):
        os.setsid()
        time.sleep(1000)
    if pid != number:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return pid

while (number := group()) != stranger(number):
    pass
while os.getsid(number) != number:
    time.sleep(0.01)
print(f"pids={os.getpid()}-{number}.", flush=True)
signal.pause()
"""


@pytest.mark.skipif(os.geteuid() != 0 or not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), reason="chooses a process's number")
def test_terminal_hangs_up_nobody_else(worker, tmp_path):
    """The group that was in its foreground has ended, and its number is a stranger's by now."""
    script = tmp_path / "script"
    script.write_text(STRANGER)
    with worker.open(f"/terminal?command=/usr/bin/python3+{script}") as ws:
        leader, stranger = map(int, ws.find(rb"pids=(\d+-\d+)\.")[1].split(b"-"))
    until(lambda: not alive(leader))
    assert alive(stranger)
    os.kill(stranger, signal.SIGKILL)


def test_terminal_text_that_is_no_message_is_answered(worker):
    with worker.open("/terminal?command=sleep+100") as ws:
        ws.send(TEXT, b"hello")
        assert json.loads(ws.message()[1])["type"] == "error"


def test_terminal_answers_pings_while_its_input_is_blocked(worker):
    with worker.open("/terminal?command=sleep+100") as ws:
        ws.show_control = True
        ws.send(PING, b"1")
        assert ws.message() == (PONG, b"1")


# ---- session manager and workers ----


def test_killed_worker_loses_nothing_in_the_session_manager(host, worker, tmp_path):
    doomed, go = host.worker(), tmp_path / "go"
    path, session = pty(doomed), shell(doomed)
    with doomed.open(path) as ws, attach(doomed, session) as sandbox_ws:
        pid, shell_pid = pid_of(ws), pid_of(sandbox_ws, b"\x00")
        ws.send(BINARY, f"echo set$((1+1)); until [ -e {go} ]; do sleep 0.01; done; echo after$((1+1))\n".encode())
        ws.until(b"set2\r\n")
        doomed.kill()
    go.touch()
    with worker.open(path) as ws:
        ws.until(b"after2\r\n")
        assert pid_of(ws) == pid
    until(lambda: worker.call("GET", f"/pty/{session}")[1]["running"])
    with worker.open(f"/pty/{session}/ws?takeover=1") as ws:
        assert b"pid=%d." % shell_pid in ws.message()[1]


def test_killed_worker_hangs_up_its_terminals(host):
    doomed = host.worker()
    with doomed.open("/terminal") as ws:
        pid = pid_of(ws)
        doomed.kill()
    until(lambda: not alive(pid))


def test_no_zombies_are_left(host, worker):
    for _ in range(20):
        execute(worker, "true")
    with worker.open(execute(worker, "sh", "-c", "(sleep 0.1 &) ; exit 0")) as ws:
        ws.rest()

    def zombies():
        children = Path(f"/proc/{host.manager.pid}/task/{host.manager.pid}/children").read_text().split()
        return [c for c in children if not alive(c) and Path(f"/proc/{c}").exists()]

    until(lambda: not zombies())


def test_session_manager_that_is_gone_is_503(worker, host):
    lonely = Host()
    front = lonely.worker()
    with front.open("/terminal") as ws:
        lonely.kill()
        assert ws.rest()[1] == (1011, "session manager lost")
    assert front.call("POST", "/pty")[0] == 503
    assert front.call("POST", "/sandboxes/sb-1/exec", {"cmd": "ls"})[0] == 503
    with pytest.raises(Ws.Refused) as refused:
        front.open("/terminal")
    assert refused.value.status == 503
    lonely.close()


def test_session_manager_that_is_stopped_ends_its_sessions_and_removes_its_socket():
    host = Host()
    front = host.worker()
    with front.open(pty(front)) as ws, front.open("/terminal") as stubborn:
        pid = pid_of(ws)
        stubborn.send(BINARY, b"trap '' HUP TERM; echo set$((1+1))\n")
        stubborn.until(b"set2\r\n")
        host.manager.terminate()
        assert ws.rest()[1] == (1000, "")
        assert stubborn.rest()[0][-1] == (TEXT, b'{"type":"exit","exit_code":137}')
    assert host.manager.wait(10) == 0 and not alive(pid) and not os.path.exists(host.socket)
    host.close()


def test_session_manager_whose_parent_ignores_its_children_does_not():
    """What is ignored is so behind exec, too."""
    host = Host(before=("env", "--ignore-signal=CHLD"))
    with host.worker().open("/terminal?command=true") as ws:
        assert ws.rest()[1] == (1000, "process exited")
    host.close()


def test_sessions_that_end_together_leave_nobody_behind(tmp_path):
    """More than are looked after at a time, each with a job in a group of its own that hears no signal but the last."""
    many, script = 70, "trap '' HUP TERM; set -m; sleep 1000 & echo $$ $! >part && mv part pids; wait; wait"
    host = Host("--memory", "128")
    worker, folders = host.worker(), [tmp_path / str(number) for number in range(many)]
    for folder in folders:
        folder.mkdir()
        execute(worker, "sh", "-c", f"cd {folder}; {script}")
    until(lambda: all((folder / "pids").exists() for folder in folders), 30, "not all sessions run")
    pids = [int(pid) for folder in folders for pid in (folder / "pids").read_text().split()]
    assert len(pids) == 2 * many and all(alive(pid) for pid in pids)
    host.close()
    until(lambda: not any(alive(pid) for pid in pids), 20, "some live on")


@pytest.mark.parametrize("most", [("--sessions", "3"), ("--memory", "3")])
def test_session_manager_refuses_more_sessions_than_it_may_have(most):
    """The one that has ended makes room."""
    host = Host(*most)
    front = host.worker()
    paths = [execute(front, "sleep", "100") for _ in range(3)]
    assert front.call("POST", "/sandboxes/sb-1/exec", {"cmd": "ls"})[0] == 503
    front.call("POST", paths[1] + "/kill", {"signal": 9})
    with front.open(paths[1]) as ws:
        ws.rest()
    until(lambda: front.call("POST", "/sandboxes/sb-1/exec", {"cmd": "sleep", "args": ["100"]})[0] == 201)
    host.close()


def test_a_shell_that_nobody_attaches_is_forgotten():
    """One that somebody had, and left, is not. Until then they take the places that there are."""
    host = Host("--sessions", "3", "--wait", "3")
    front = host.worker()
    session = shell(front)
    with attach(front, session):
        pass
    waiting = [shell(front), shell(front, cwd="/no/such/folder")]
    with front.open(f"/pty/{waiting[1]}/ws") as ws:  # it is not started by that, and waits on
        assert ws.rest()[1][0] == 1011
    status, answer = front.call("POST", "/pty")
    assert status == 503 and answer == {"code": "UNAVAILABLE", "message": "no room for another session"}
    until(lambda: all(front.call("GET", f"/pty/{name}")[0] == 404 for name in waiting), 20, "they wait for ever")
    assert front.call("GET", f"/pty/{session}")[1]["running"]
    with attach(front, shell(front)) as ws:
        ws.send(BINARY, b"\x00echo a$((1+1))\n")
        live(ws, b"a2\r\n")
    host.close()


def test_terminals_that_cannot_be_started_take_no_place():
    host = Host("--sessions", "3")
    front = host.worker()
    for _ in range(5):
        with pytest.raises(Ws.Refused) as refused:
            front.open("/terminal?command=/no/such/program")
        assert refused.value.status == 400
    with front.open("/terminal?command=sleep+100"):
        pass
    host.close()


def test_session_manager_socket_is_for_its_user_only_and_taken_once():
    host = Host()
    assert os.stat(host.socket).st_mode & 0o777 == 0o600
    second = subprocess.run([BIN / "cell-sandboxd", "--socket", host.socket], capture_output=True, text=True, timeout=10)
    assert second.returncode == 1 and host.socket in second.stderr
    host.kill()
    third = subprocess.Popen([BIN / "cell-sandboxd", "--socket", host.socket], stdout=subprocess.PIPE, text=True)
    assert third.stdout.readline() == f"listening {host.socket}\n", "what a killed one left is replaced"
    third.terminate()
    assert third.wait(10) == 0
    third.stdout.close()
    host.close()


HELLO, CREATE, ATTACH, INPUT, RESIZE, SIGNAL, QUERY, RESUME, ACKNOWLEDGE, END = 1, 2, 3, 4, 5, 6, 7, 10, 96, 97


def name(text):
    return struct.pack(">H", len(text)) + text.encode()


def message(kind, *fields):
    """Of the session manager's language (examples/worker/protocol/manager_protocol.h)."""
    body = bytes([kind]) + b"".join(fields)
    return struct.pack(">I", len(body)) + body


def plan(session, *command, flags=0, linger=0):
    """Of a terminal: what CREATE and RESUME say."""
    arguments = "".join(f"{word}\0" for word in command).encode()
    numbers = struct.pack(">BBHHIIII", 1, flags, 80, 24, 0, 0xFFFFFFFF, linger, 0)
    return name("terminal") + name(session) + numbers + name("") + struct.pack(">I", len(arguments)) + arguments + bytes(4)


def queued(sock):
    """Bytes that have come and were not read."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))[0]


def knows(host, session):
    return ask(host, message(HELLO, b"\1") + message(QUERY, name("terminal") + name(session)), 1)[0][0] == 66


def converse(host):
    """A conversation with the session manager, of which the first words are said."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    sock.connect(host.socket)
    sock.sendall(message(HELLO, b"\1"))
    return sock


def ask(host, data, answers):
    """Messages that the session manager answers with, as (type, fields)."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(host.socket)
        sock.sendall(data)
        stream, got = sock.makefile("rb"), []
        while len(got) < answers:
            size, kind = struct.unpack(">IB", stream.read(5))
            got.append((kind, stream.read(size - 1)))
        return got


def described(host, who):
    """kind state pid cols rows readers first end input exit_code of a session."""
    ((_, fields),) = ask(host, message(HELLO, b"\1") + message(QUERY, who), 1)
    return struct.unpack(">BBIHHBQQQI", fields[len(who) :])


def test_session_manager_lists_the_sessions_of_a_scope(host, worker):
    paths = [execute(worker, "sleep", "100", sandbox="sb-list") for _ in range(2)]
    hello, scope = b"\0\0\0\2\1\1", b"sb-list/exec"
    got = ask(host, hello + struct.pack(">IBH", 3 + len(scope), 8, len(scope)) + scope, 3)
    assert [kind for kind, _ in got] == [66, 66, 64]
    for path, (_, fields) in zip(paths, got):
        assert fields.startswith(b"\0\x0csb-list/exec\0\x08" + path[-8:].encode())


def test_session_manager_refuses_another_version(host):
    ((kind, fields),) = ask(host, b"\0\0\0\2\1\2", 1)
    assert kind == 65 and fields[0] == 2


def test_who_was_taken_over_has_no_say_any_more(host, worker):
    """As a worker that was stopped meanwhile, with what its client had sent before."""
    session = shell(worker)
    who = name("execd") + name(session)
    old, new = converse(host), converse(host)
    for sock, flags in ((old, 2), (new, 4)):
        sock.sendall(message(ATTACH, who, struct.pack(">QBB", 0, flags, 1)))
        assert sock.recv(5)[4] == 66
    assert ask(host, message(HELLO, b"\1") + message(RESIZE, who, struct.pack(">HH", 120, 40)), 1)[0][0] == 64
    old.sendall(message(RESIZE, who, struct.pack(">HH", 100, 30)) + message(SIGNAL, who, b"\x09"))
    old.shutdown(socket.SHUT_WR)
    while old.recv(4096):
        pass
    ((_, fields),) = ask(host, message(HELLO, b"\1") + message(QUERY, who), 1)
    _, state, _, cols, rows = struct.unpack(">BBIHH", fields[len(who) :][:10])
    assert (state, cols, rows) == (2, 120, 40)
    assert worker.call("GET", f"/pty/{session}")[1]["running"]
    old.close()
    new.close()


def test_who_was_taken_over_and_stays_holds_nobody_up(host, worker):
    """As a worker that was stopped for good: whoever comes is not heard before it has had time to say what it had taken."""
    session = shell(worker, command="stty -echo; read line; echo got=$line.; read line")
    who = name("execd") + name(session)
    with converse(host) as old:
        old.sendall(message(ATTACH, who, struct.pack(">QBB", 0, 2, 1)))
        assert old.recv(5)[4] == 66
        with attach(worker, session, "?takeover=1") as ws:
            ws.send(BINARY, b"\0mine\n")
            assert ws.find(rb"got=(\w+)\.", tags=(1, 3))[1] == b"mine"


def test_a_terminal_whose_client_left_before_it_was_attached_takes_no_place(host):
    """The worker ended the conversation between the two messages, as the session manager saw it."""
    with converse(host) as sock:
        sock.sendall(message(CREATE, plan("0badcafe", "sleep", "100", flags=1)))
        assert sock.recv(5)[4] == 66
    until(lambda: not knows(host, "0badcafe"), 20, "it waits for ever")


def test_a_job_that_writes_on_does_not_hold_up_the_end(host):
    """It writes faster than the client reads: whenever the session manager looks, the ring is full."""
    who = name("terminal") + name("f100d000")
    command = "/bin/sh", "-c", "trap '' HUP; echo first; yes & read line; exit 3"
    got, kind, ends = b"", 67, [0]

    def is_full_or_over():
        ((_, fields),) = ask(host, message(HELLO, b"\1") + message(QUERY, who), 1)
        _, state, _, _, _, _, _, end, _, _ = struct.unpack(">BBIHHBQQQI", fields[len(who) :])
        ends.append(end)
        return state == 3 or end - len(got) >= RING and end == ends[-2]

    with converse(host) as sock, sock.makefile("rb") as stream:
        sock.sendall(message(CREATE, plan("f100d000", *command, flags=1)) + message(ATTACH, who, struct.pack(">QBB", 0, 2, 0)))
        for _ in range(2):
            size, kind = struct.unpack(">IB", stream.read(5))
            said = stream.read(size - 1)
            assert kind == 66
        pid = struct.unpack(">I", said[len(who) + 2 :][:4])[0]
        until(is_full_or_over, 20, "it does not write")
        sock.sendall(message(INPUT, b"\r"))
        until(lambda: not alive(pid), 10, "the shell does not end")
        while kind != 68:
            until(is_full_or_over, 10, "it writes no more")
            enough = len(got) + 65536
            while kind != 68 and len(got) < enough:
                size, kind = struct.unpack(">IB", stream.read(5))
                got += stream.read(size - 1)[9 if kind == 67 else 0 :]
            assert len(got) < 4 * RING, "there is no end to it"
        assert got.startswith(b"first\r\ny\r\n") and got[-4:] == struct.pack(">I", 3)


@pytest.mark.parametrize("output,size,taken", [("yes &", RING, 0), ("echo", 1, 4)], ids=["nobody hears it", "it does not read yet"])
def test_the_last_input_of_who_leaves_is_read_to_its_end(host, tmp_path, output, size, taken):
    """More than the session manager takes while it has something to say, or while the process is busy."""
    session, go, said = f"1a57000{taken}", tmp_path / "go", tmp_path / "said"
    parts, who = [os.urandom(32768) for _ in range(taken + 5)], name("terminal") + name(session)
    data, inputs = b"".join(parts), [message(INPUT, part) for part in parts]
    command = f"stty raw -echo; {output}\nuntil [ -e {go} ]; do sleep 0.01; done; head -c {len(data)} >{said}"

    with converse(host) as sock:
        create = plan(session, "/bin/sh", "-c", command, flags=1, linger=0xFFFFFFFF)
        sock.sendall(message(CREATE, create) + message(ATTACH, who, struct.pack(">QBB", 0, 2, 0)))
        until(lambda: described(host, who)[7] >= size, 20, "it says less")
        sock.sendall(b"".join(inputs[:taken]))
        until(lambda: fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)) == bytes(4), 10, "it is not read")
        sock.setblocking(False)
        rest = b"".join(inputs[taken:])
        assert sock.send(rest) == len(rest), "the socket does not take that much"
    until(lambda: described(host, who)[5] == 0, 10, "it has not left")
    go.touch()
    until(lambda: said.exists() and said.stat().st_size == len(data), 10, "some is lost")
    assert said.read_bytes() == data


@pytest.mark.parametrize("stopped", [False, True], ids=["", "worker is stopped"])
def test_what_a_client_said_before_its_close_reaches_a_session_manager_that_is_busy(tmp_path, stopped):
    """More than its socket takes: the worker has the rest when it answers the Close."""
    who, part, sent, got = name("execd") + name("0b51e500"), os.urandom(8192), 0, b""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(10)
        worker = Worker(str(tmp_path / "s"))
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(worker.open, "/pty/0b51e500/ws")
            sock, _ = listener.accept()
            sock.settimeout(10)
            for expected in (1, 3):  # HELLO, ATTACH
                size, kind = struct.unpack(">IB", sock.recv(5, socket.MSG_WAITALL))
                assert kind == expected and len(sock.recv(size - 1, socket.MSG_WAITALL)) == size - 1
            sock.sendall(message(66, who, struct.pack(">BBIHHBQQQI", 1, 2, 1, 80, 24, 1, 0, 0, 0, 0)))
            ws = opening.result()
        ws.show_control = True
        assert ws.message()[0] == TEXT
        for turn in range(2):  # behind the first its socket takes all of what is there, which fills it
            got += sock.recv(sent, socket.MSG_DONTWAIT) if turn else b""
            until(lambda: sent - len(got) == queued(sock) or not turn, 10, "it is not sent on")
            while sent - len(got) - queued(sock) < 110000:
                ws.send(BINARY, b"\0" + part)
                ws.send(PING)
                assert ws.message() == (PONG, b"")
                sent += len(message(INPUT, part))
        ws.send(CLOSE, struct.pack(">H", 1000))
        assert ws.rest() == ([], (1000, ""))
        ws.drop()
        if stopped:
            worker.process.terminate()
        with sock, sock.makefile("rb") as stream:
            got += stream.read()
        assert got == message(INPUT, part) * (sent // len(message(INPUT, part)))
        worker.close()


def test_the_last_inputs_of_many_who_leave_are_read_in_their_order(host, tmp_path):
    """More than the manager holds for a program that does not read: none of it is lost, and nobody is in the way."""
    session, go, said = "1a570f00", tmp_path / "go", tmp_path / "said"
    who, parts = name("terminal") + name(session), [os.urandom(32768) for _ in range(50)]
    command = f"stty raw -echo; echo; until [ -e {go} ]; do sleep 0.01; done; head -c {sum(map(len, parts))} >{said}"
    for turn in range(10):
        with converse(host) as sock:
            create = message(CREATE, plan(session, "/bin/sh", "-c", command, flags=1, linger=0xFFFFFFFF))
            sock.sendall((b"" if turn else create) + message(ATTACH, who, struct.pack(">QBB", 0, 2, 0)))
            until(lambda: described(host, who)[7] and described(host, who)[5], 20, "it is not attached")
            sock.setblocking(False)
            inputs = b"".join(message(INPUT, part) for part in parts[5 * turn :][:5])
            assert sock.send(inputs) == len(inputs), "the socket does not take that much"
        until(lambda: described(host, who)[5] == 0, 10, "it has not left")
    go.touch()
    until(lambda: said.exists() and said.stat().st_size == sum(map(len, parts)), 10, "some is lost")
    assert said.read_bytes() == b"".join(parts)


@pytest.mark.parametrize("how", ["let go", "ended"])
def test_input_that_nobody_can_take_keeps_nobody_busy(tmp_path, how):
    """Its program has let go of its terminal, or has ended and said more than its reader has taken: the manager sleeps."""
    who, host, ends = name("terminal") + name("1d1e0000"), Host(), [0]
    script, heard, gone, go = (tmp_path / word for word in ("script", "heard", "gone", "go"))
    script.write_text(LETS_GO)
    heard.touch()
    programs = {"let go": ("/usr/bin/python3", *map(str, (script, heard, gone, go))), "ended": ("/bin/sh", "-c", f"stty raw -echo; touch {gone}; until [ -e {go} ]; do sleep 0.01; done; exec yes")}

    def holds_back():
        ends.append(described(host, who)[7])
        return ends[-1] >= RING and ends[-1] == ends[-2]

    with converse(host) as sock, sock.makefile("rb") as stream:
        create = plan("1d1e0000", *programs[how], flags=1)
        sock.sendall(message(CREATE, create) + message(ATTACH, who, struct.pack(">QBB", 0, 2, 0)))
        until(gone.exists, 20)
        sock.sendall(message(INPUT, (b"x" * 99 + b"\n") * 300) * 3)
        until(lambda: fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)) == bytes(4), 10, "it is not read")
        until(lambda: described(host, who)[8], 10, "nothing of it is written")
        if how == "ended":
            go.touch()
            until(holds_back, 20, "it does not write")
            pid = described(host, who)[2]
            os.kill(pid, signal.SIGKILL)
            until(lambda: not Path(f"/proc/{pid}").exists(), 10, "it is not waited for")
        stat = Path(f"/proc/{host.manager.pid}/stat")
        until(lambda: all(stat.read_text().rpartition(") ")[2][0] == "S" for _ in range(100)), 10, "it is always busy")
        assert described(host, who)[8] < 90000, "the terminal takes all of it"
        go.touch()
        kind = said = 0
        while kind != 68:
            size, kind = struct.unpack(">IB", stream.read(5))
            said = stream.read(size - 1)
        assert said == struct.pack(">I", 7 if how == "let go" else 137)
    host.close()


def test_a_session_that_has_ended_says_so_though_its_session_manager_has_gone(tmp_path):
    """Its client types on: that this cannot be written any more hides nothing that can still be read."""
    host, script, go = Host(), tmp_path / "script", tmp_path / "go"
    front = host.worker()
    script.write_text(f"echo pid=$$.; until [ -e {go} ]; do sleep 0.01; done; echo last words; exit 3\n")
    with front.open(f"/terminal?command=sh+{script}") as ws:
        pid = int(ws.find(rb"pid=(\d+)\.\r\n")[1])
        until(lambda: Path(f"/proc/{front.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
        stop(front.process.pid)
        go.touch()
        until(lambda: not alive(pid))
        host.manager.terminate()
        assert host.manager.wait(10) == 0
        ws.send(BINARY, b"too late\n")
        front.process.send_signal(signal.SIGCONT)
        messages, close = ws.rest()
    assert messages == [(BINARY, b"last words\r\n"), (TEXT, b'{"type":"exit","exit_code":3}')]
    assert close == (1000, "process exited")
    host.close()


def test_a_callers_end_counts_though_nobody_hears_that_it_does(host):
    session = "e0" * 16
    leg = converse(host)
    command = "/bin/sh", "-c", "stty raw; head -c 10000000 /dev/zero"
    leg.sendall(message(RESUME, plan(session, *command), struct.pack(">QQI", 1, 0, 0)))
    assert leg.recv(5)[4] == 70
    sizes = [-2, -1]
    while sizes[-1] != sizes[-2]:  # the manager says more whenever it hears something, until the socket takes no more
        leg.sendall(message(ACKNOWLEDGE, bytes(8)))
        time.sleep(0.1)
        sizes.append(queued(leg))
    leg.sendall(message(END, struct.pack(">Q", 1)))
    leg.close()
    until(lambda: not knows(host, session), 10, "it is not hung up")


def test_who_is_taken_over_in_its_replay_gets_the_rest_of_it_and_is_told(host, worker):
    """The frame of the replay has been begun: who is only cut off takes the session back."""
    session = shell(worker, command="head -c 900000 /dev/zero | tr '\\0' x; echo; read line")
    with attach(worker, session) as ws:
        until(lambda: worker.call("GET", f"/pty/{session}")[1]["output_offset"] == 900002, 10, "the shell says less")
        who = name("execd") + name(session)
    until(lambda: ask(host, message(HELLO, b"\1") + message(QUERY, who), 1)[0][1][len(who) + 10] == 0, 10, "it still reads")
    old, new = converse(host), converse(host)
    old.sendall(message(ATTACH, who, struct.pack(">QBB", 0, 2, 1)))
    stream, got = old.makefile("rb"), b""
    assert stream.read(5)[4] == 66
    new.sendall(message(ATTACH, who, struct.pack(">QBB", 900002, 4, 1)))
    assert new.recv(5)[4] == 66
    old.sendall(message(INPUT, b"not from here\r"))
    stream.read(struct.calcsize(">BBIHHBQQQI") + len(who))
    while (head := struct.unpack(">IB", stream.read(5)))[1] == 67:
        got += stream.read(head[0] - 1)[9:]
    assert (head[1], stream.read(1)) == (69, b"\x20") and got == b"x" * 900000 + b"\r\n"
    assert worker.call("GET", f"/pty/{session}")[1] == {"session_id": session, "running": True, "output_offset": 900002}
    old.close()
    new.close()


@pytest.mark.parametrize("junk", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\1\x07", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2\1\x63"])
def test_session_manager_ends_a_conversation_it_does_not_understand(host, worker, junk):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(host.socket)
        sock.sendall(junk)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
    assert worker.call("POST", "/pty")[0] == 201


# ---- plain HTTP ----


def plain(worker, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    connection.request(method, path, body, dict([WORKER_BEARER]) | (headers or {}))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def test_echo_shows_the_request_as_it_came(worker):
    head = f"PATCH /echo?a=1&a=%2F HTTP/1.1\r\nHost: x.example\r\nAuthorization: Bearer {WORKER_SECRET}\r\nX-Two: 1\r\nx-two:  2 \r\nX-Latin: \xe9\"\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    answer, _ = raw_exchange(worker.port, head.encode("latin-1") + b"abc")
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert document == {
        "worker": "worker-a",
        "method": "PATCH",
        "target": "/echo?a=1&a=%2F",
        "version": "HTTP/1.1",
        "headers": [["Host", "x.example"], ["Authorization", "***"], ["X-Two", "1"], ["x-two", "2"], ["X-Latin", '\xe9"'], ["Content-Length", "3"], ["Connection", "close"]],
        "body_length": 3,
        "body_sha256": hashlib.sha256(b"abc").hexdigest(),
    }
    answer, _ = raw_exchange(worker.port, b"GET /echo?format=text HTTP/1.0\r\nHost: a\r\n\r\n")
    assert answer.partition(b"\r\n\r\n")[2].startswith(b"GET /echo?format=text HTTP/1.0\nHost: a\nAuthorization: ***\n\n0 ")


@pytest.mark.parametrize("chunked", ["", "&chunked=1"])
def test_bytes_are_a_hundred_mebibytes(worker, chunked):
    response, body = plain(worker, "GET", f"/bytes?n={100 << 20}{chunked}")
    assert (response.getheader("Transfer-Encoding") == "chunked") == bool(chunked)
    assert len(body) == 100 << 20 and body == pattern(100 << 20)


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("chunked", [False, True])
def test_upload_of_a_hundred_mebibytes(worker, method, chunked):
    data = pattern(100 << 20)
    body = (data[i : i + 99_999] for i in range(0, len(data), 99_999)) if chunked else data
    response, answer = plain(worker, method, "/upload", body)
    assert json.loads(answer) == {"length": 100 << 20, "sha256": hashlib.sha256(data).hexdigest()}


def test_upload_with_expect_gets_a_100_first(worker):
    with connect(worker.port) as sock:
        sock.sendall(b"PUT /upload HTTP/1.1" + A + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert sock.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"ok")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_nobody_reads_is_not_held_in_memory(worker):
    """The server stops producing when the client does not read."""

    def resident():
        return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{worker.process.pid}/status").read_text())[1])

    before = resident()
    with connect(worker.port) as sock:
        sock.sendall(b"GET /bytes?n=1000000000000 HTTP/1.1" + A + b"\r\n")
        sock.recv(1000)
        time.sleep(0.3)
        assert resident() - before < 16384


def test_events_come_one_by_one(worker):
    with connect(worker.port) as sock:
        sock.sendall(b"GET /events?n=12&interval=100ms HTTP/1.1" + A + b"\r\n")
        times, seen = [], b""
        while b"0\r\n\r\n" not in seen:
            seen += sock.recv(4096)
            while len(times) < seen.count(b"data: "):
                times.append(time.monotonic())
    assert b"Content-Type: text/event-stream\r\n" in seen and seen.count(b'data: {"n":12}\n\n') == 1
    assert times[11] - times[0] > 0.25  # of 1.1 s: a machine that is busy may have held up the first ones


def test_events_wait_for_a_client_that_does_not_read_them(host):
    """The worker sleeps meanwhile, however short the time between two of them."""
    front = host.worker()
    with connect(front.port) as slow:
        slow.sendall(b"GET /events?n=1000000&interval=0 HTTP/1.1" + A + b"\r\n")
        stat = Path(f"/proc/{front.process.pid}/stat")
        until(lambda: queued(slow), 10, "no event comes")
        until(lambda: all(stat.read_text().rpartition(") ")[2][0] == "S" for _ in range(100)), 10, "it is always busy")
        seen = last = b""
        while b"data: {\"n\":1000000}" not in seen:
            last = slow.recv(1 << 20)
            assert last
            seen = seen[-100:] + last
    front.close()


def test_repeated_headers(worker):
    response, _ = plain(worker, "GET", "/headers")
    assert response.headers.get_all("Set-Cookie") == ["one=1; Path=/", "two=2; Path=/; HttpOnly"]
    assert response.headers.get_all("X-Repeated") == ["first", "second"] and response.getheader("X-Empty") == ""


def test_requests_in_a_row_are_answered_in_order(worker):
    request = b"GET /echo?i=%d HTTP/1.1\r\nHost: a\r\n\r\n"
    data = b"".join(request % i for i in range(50)) + b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer, closed = raw_exchange(worker.port, data)
    assert closed and [int(x) for x in re.findall(rb'"/echo\?i=(\d+)"', answer)] == list(range(50))
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 52 and answer.endswith(b'{"status":"ok"}')


def test_head_has_no_body(worker):
    answer, _ = raw_exchange(worker.port, b"HEAD /bytes?n=5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"Content-Length: 5\r\n" in answer and answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "name,type_,content",
    [("index.html", "text/html; charset=utf-8", b"<p>hello"), ("", "text/html; charset=utf-8", b"<p>hello"), ("app.js", "text/javascript; charset=utf-8", b"1"), ("big.map", "application/json", b"m" * 1_000_000)],
)
def test_ui_serves_files(worker, name, type_, content):
    response, body = plain(worker, "GET", f"/ui/{name}")
    assert (response.status, response.getheader("Content-Type"), body) == (200, type_, content)


@pytest.mark.parametrize("name", ["nope", ".hidden", "..", "../x", "%2e%2e", "link", "folder", "a/b", "x" * 300, "index.html%00"])
def test_ui_serves_nothing_else(worker, name):
    assert plain(worker, "GET", f"/ui/{name}")[0].status == 404


@pytest.mark.parametrize("method,path,status", [("GET", "/nope", 404), ("PUT", "/health", 405), ("GET", "/terminal", 426), ("GET", "/bytes?n=x", 400), ("GET", "/events?n=0", 400), ("GET", "/echo/", 404)])
def test_what_is_not_served(worker, method, path, status):
    assert plain(worker, method, path)[0].status == status


@pytest.mark.parametrize(
    "data,status",
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 17000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /pty HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n" + b" " * 70000, 413),
    ],
)
def test_bad_requests_are_refused_and_the_connection_closed(worker, data, status):
    answer, closed = raw_exchange(worker.port, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status) and closed


# ---- /ws-echo ----


def test_ws_echo_returns_frames_as_they_came(worker):
    with worker.open("/ws-echo") as ws:
        ws.show_control = True
        ws.send(TEXT, b"a")
        ws.send(BINARY, b"", fin=False)
        ws.send(PING, b"mid")
        ws.send(CONTINUATION, b"bc", fin=False)
        ws.send(CONTINUATION, b"")
        got = [ws.frame() for _ in range(5)]
        assert got == [(TEXT, True, b"a"), (BINARY, False, b""), (PONG, True, b"mid"), (CONTINUATION, False, b"bc"), (CONTINUATION, True, b"")]
        ws.send(CLOSE, struct.pack(">H", 3456) + b"bye")
        assert ws.frame() == (CLOSE, True, struct.pack(">H", 3456)) and ws.frame() is None


def test_ws_echo_takes_16_mebibytes_and_no_more(worker):
    blob = pattern(16 << 20)
    with worker.open("/ws-echo", timeout=30) as ws:
        sender = threading.Thread(target=ws.send, args=(BINARY, blob))
        sender.start()
        assert ws.frame() == (BINARY, True, blob)
        sender.join()
        ws.http.sock.sendall(bytes([0x82, 0x80 | 127]) + struct.pack(">Q", (16 << 20) + 1) + bytes(4))
        assert ws.rest() == ([], (1009, "message too big"))


def test_ws_echo_selects_the_first_protocol_when_asked(worker):
    offered = [("Sec-WebSocket-Protocol", "one, two")]
    with worker.open("/ws-echo?protocol=", offered) as ws:
        assert ws.response.all("Sec-WebSocket-Protocol") == ["one"]
    with worker.open("/ws-echo", offered) as ws:
        assert ws.response.all("Sec-WebSocket-Protocol") == []


@pytest.mark.parametrize("bad", [b"\x82\x01x", b"\xc2\x80\0\0\0\0", b"\x83\x80\0\0\0\0", b"\x80\x80\0\0\0\0", b"\x09\x80\0\0\0\0"])
def test_ws_protocol_errors_are_closed_1002(worker, bad):
    with worker.open("/ws-echo") as ws:
        ws.http.sock.sendall(bad)
        assert ws.rest()[1][0] == 1002


def test_frames_in_the_same_packet_as_the_upgrade_are_not_lost(worker):
    head = f"GET /ws-echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode()
    answer, closed = raw_exchange(worker.port, head + b"\x82\x82\0\0\0\0hi" + b"\x88\x80\0\0\0\0")
    assert closed and answer.endswith(b"\r\n\r\n\x82\x02hi\x88\x00")


def test_another_implementation_of_websockets_agrees(worker):
    async def talk():
        async with websockets.connect(f"ws://127.0.0.1:{worker.port}/terminal?command=sh", compression=None, extra_headers=[WORKER_BEARER]) as ws:
            await ws.send(b"echo $((6*7)); exit 1\n")
            messages = [m async for m in ws]
            assert b"42\r\n" in b"".join(m for m in messages if isinstance(m, bytes))
            assert json.loads(messages[-1]) == {"type": "exit", "exit_code": 1}
            assert (ws.close_code, ws.close_reason) == (1000, "process exited")
        async with websockets.connect(f"ws://127.0.0.1:{worker.port}/ws-echo", max_size=None, extra_headers=[WORKER_BEARER]) as ws:
            for blob in ("text", b"", pattern(200_000)):
                await ws.send(blob)
                assert await ws.recv() == blob
            await asyncio.wait_for(await ws.ping(), 5)

    asyncio.run(talk())


# ---- stopping, starting ----


def held_connections(pid):
    """Sockets of a process; the first one listens."""
    return sum(os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:") for fd in os.listdir(f"/proc/{pid}/fd")) - 1


def test_worker_that_is_stopped_drains(host):
    front = host.worker("--drain", "20")
    path = pty(front)
    ws, slow = front.open(path), connect(front.port)
    ws.send(BINARY, b"echo up$((1+1))\n")
    ws.until(b"up2\r\n")
    slow.sendall(b"GET /bytes?n=50000000 HTTP/1.1" + A + b"\r\n")
    got = len(slow.recv(1000))
    front.process.terminate()
    messages, close = ws.rest()
    assert close == (1001, "worker is stopping")
    assert front.call("GET", "/readyz") == (503, {"status": "draining"})
    assert front.call("GET", "/health")[0] == 200
    with pytest.raises(Ws.Refused) as refused:
        front.open("/ws-echo")
    assert refused.value.status == 503
    while data := slow.recv(1 << 20):
        got += len(data)
    assert got > 50_000_000, "what was begun is finished"
    assert front.process.wait(10) == 0
    successor = host.worker()
    with successor.open(path) as ws:
        ws.send(BINARY, b"echo on$((1+1))\n")
        ws.until(b"on2\r\n")
    slow.close()


def by_default(path):
    return lambda front: front.open(path).rest()[1]


def by_header(front):
    with pytest.raises(Ws.Refused) as refused:
        front.open("/terminal", [("Cell-Resume", f"1; tunnel={'0d' * 16}; attempt=1")])
    return refused.value.status


def by_page(front):
    return front.open(f"/terminal?cr_tunnel={'0e' * 16}&cr_attempt=1", [("Sec-WebSocket-Protocol", "cell-resume.1")]).rest()[1][0]


@pytest.mark.parametrize("ask, told", [(by_default("/terminal"), (1001, "worker is stopping")), (by_header, 503), (by_page, 4503)])
def test_a_websocket_that_opens_as_its_worker_is_stopped_is_told_so(ask, told):
    """The session manager's answer was still on its way."""
    host = Host()
    front = host.worker("--drain", "60")
    idle = connect(front.port)
    until(lambda: held_connections(front.process.pid) > 0)
    host.manager.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(ask, front)
        until(lambda: held_connections(front.process.pid) > 2)
        front.process.terminate()
        assert idle.recv(1) == b"", "it has begun to stop"
        idle.close()
        host.manager.send_signal(signal.SIGCONT)
        assert opening.result() == told
    assert front.process.wait(10) == 0
    host.close()


def test_second_signal_ends_a_worker_now(host):
    front = host.worker("--drain", "60")
    slow = connect(front.port)
    slow.sendall(b"GET /bytes?n=5000000000 HTTP/1.1" + A + b"\r\n")
    slow.recv(100)
    ws = front.open("/ws-echo")
    front.process.terminate()
    assert ws.rest()[1] == (1001, "worker is stopping")
    front.process.terminate()
    assert front.process.wait(5) == 0
    slow.close()


def run(program, *arguments):
    return subprocess.run([BIN / program, *arguments], capture_output=True, text=True, timeout=10)


def test_address_that_is_not_loopback_needs_a_flag():
    refused = run("cell-worker", "--listen", "0.0.0.0:0", "--sandboxd", "/nowhere")
    assert refused.returncode == 2 and "--allow-remote" in refused.stderr and "0.0.0.0:0" in refused.stderr


def test_port_that_is_taken_is_named(worker):
    refused = run("cell-worker", "--listen", f"127.0.0.1:{worker.port}", "--sandboxd", "/nowhere", "--open")
    assert refused.returncode == 1 and f"127.0.0.1:{worker.port}" in refused.stderr


@pytest.mark.parametrize("arguments", [(), ("--listen", "127.0.0.1:0"), ("--nonsense",), ("--listen", "nowhere", "--sandboxd", "x"), ("--listen", "127.0.0.1:0", "--sandboxd", "x", "y")])
def test_wrong_arguments_exit_2(arguments):
    refused = run("cell-worker", *arguments)
    assert refused.returncode == 2 and refused.stderr


@pytest.mark.parametrize("program", ["cell-worker", "cell-sandboxd"])
def test_help_warns(program):
    shown = run(program, "--help")
    assert shown.returncode == 0 and "runs commands" in shown.stdout.lower() and "usage: " in shown.stdout
