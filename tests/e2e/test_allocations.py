# SPDX-License-Identifier: MIT
"""Each allocation of agent and relay, and each descriptor, fails in turn, alone and with all after it (tests/soak/shim.c), while
they do one thing: start, reload, decide, look up, open and move a tunnel, answer an operator. Whatever fails, the process lives,
nothing passes or is refused for a wrong reason, nothing is leaked, and it goes on by itself. CELLGATE_LONG=1 leaves none out."""

import itertools
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.parse

import pytest
from cell import BIN, SANITIZED, end, free_port, until
from client import request
from dialects import Exec, Since, Terminal
from plane import FakePlane
from redis_server import Redis
from resume import Caller
from test_directory_http import event
from tunnels import QUICK
from worker import BINARY, CLOSE, Host, Ws, start

SHIM = BIN.parent / "soak/shim.so"
pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer has an allocator of its own")
EVERY = 1 if os.environ.get("CELLGATE_LONG") else 40
ALL = 1 << 40
numbers = itertools.count(1)


class Counted:
    """What one daemon allocates, or opens."""

    LAYOUT = struct.Struct("=QQqQQ")  # struct counted of the shim
    LIMITS = struct.Struct("=QQ")

    def __init__(self, file):
        file.write_bytes(bytes(self.LAYOUT.size))
        with open(file, "r+b") as opened:
            self.map = mmap.mmap(opened.fileno(), self.LAYOUT.size)

    def counts(self):
        """(asked for so far, failed of these, there now)"""
        return self.LAYOUT.unpack_from(self.map)[:3]

    def fail(self, first, count):
        """Of those that come, `count` from the first-th on (0 is the next)."""
        first += self.counts()[0]
        self.LIMITS.pack_into(self.map, self.LAYOUT.size - self.LIMITS.size, first, first + count)

    def suffices(self):
        self.fail(0, 0)


class Starved:
    """Daemons whose allocations and descriptors may fail. `starving` tells operations whether they do at the moment."""

    def __init__(self, folder, *names):
        self.folder, self.names = folder, names
        self.memory = {name: Counted(folder / f"{name}.allocations") for name in names}
        self.descriptors = {name: Counted(folder / f"{name}.descriptors") for name in names}
        self.starving, self.calls = False, 0

    def environment(self, name):
        # what was freed has other bytes then
        files = (f"SHIM_ALLOC={self.folder}/{name}.allocations", f"SHIM_FILES={self.folder}/{name}.descriptors")
        return f"LD_PRELOAD={SHIM}", *files, "MALLOC_PERTURB_=165"

    def alone_and_together(self, name, operation, opens=False):
        """With each allocation failing; with each descriptor, too, if it opens any."""
        for count in (1, ALL):
            self.sweep(name, operation, count, self.memory[name], EVERY)
            if opens:
                self.sweep(name, operation, count, self.descriptors[name], 1)

    def sweep(self, name, operation, count, counted_ones, every):
        """operation() with each of these failing (and the next count - 1), until it needs no more of them, and again with
        enough after each: it tells whether it was served, which it has to be then, at the latest when HAProxy has looked
        whether the daemon is there again."""
        memory, pid, at, rounds, failed = self.memory[name], self.pid(name), 0, 0, 1

        def counted():
            self.calls += 1
            return operation()

        for _ in range(8):
            assert counted()  # what is made once is there
        began, self.calls = memory.counts()[2], 0
        while failed:
            had = counted_ones.counts()[1]
            counted_ones.fail(at, count)
            self.starving = True
            try:
                counted()
            finally:
                self.starving = False
                counted_ones.suffices()
            failed = counted_ones.counts()[1] - had
            why = f"after number {at} of {name} had failed"
            until(counted, 10, f"not served {why}\n{self.logs()}")
            assert self.pid(name) == pid, f"{name} ended {why}\n{self.logs()}"
            at, rounds = at + every, rounds + 1
        assert rounds > 1, "it needs none at all"
        kept, calls = memory.counts()[2] - began, self.calls
        while self.calls < 2 * calls:
            until(counted, 10)
        usual = memory.counts()[2] - began - kept
        assert kept <= max(usual, 0) + 50 + rounds // 10, f"{kept} allocations are there still, where {usual} are usual"


class StarvedCell(Starved):
    def __init__(self, cells, folder, **arguments):
        super().__init__(folder, "agent", "relay")
        programs = folder / "bin"
        programs.mkdir()
        for name in self.names:
            script = programs / f"cellgate-{name}"
            script.write_text(f'#!/bin/sh\nexec env {" ".join(self.environment(name))} {BIN}/cellgate-{name} "$@"\n')
            script.chmod(0o755)
        self.cell = cells(environment={"CELLGATE_BIN": str(programs)}, **arguments)
        self.pid, self.logs = self.cell.pid, self.cell.logs


class StarvedHost(Starved):
    """A host of terminals, and its worker."""

    def __init__(self, folder):
        super().__init__(folder, "cell-sandboxd", "cell-worker")
        self.processes = {}
        keeper = folder / "s"
        self.start("cell-sandboxd", "--socket", keeper)
        self.port = int(self.start("cell-worker", "--listen", "127.0.0.1:0", "--sandboxd", keeper).rpartition(":")[2])

    def start(self, name, *arguments):
        self.processes[name], address = start("env", *self.environment(name), BIN / name, *arguments)
        return address

    def pid(self, name):
        return self.processes[name].pid if self.processes[name].poll() is None else None

    def logs(self):
        return ""

    def close(self):
        for process in reversed(self.processes.values()):
            end(process)


@pytest.fixture
def starved(cells, tmp_path):
    return lambda **arguments: StarvedCell(cells, tmp_path, **arguments)


def config(**more):
    return {"relay": QUICK, "routes": [{"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]} | more


def status(cell, sandbox):
    """Of a request with a token that was never seen. Other than what the directory says, only what may be tried again."""
    return request(cell.http, "GET", f"/s/{sandbox}/x", [cell.bearer(sandbox, jti=str(next(numbers)))]).status


def served(cell, sandbox):
    answer = status(cell, sandbox)
    assert answer in (200, 503), answer
    return answer == 200


def becomes(starved, sandbox, answer, before):
    """What the directory says now is not forgotten because there was no memory when it said so."""
    def there():
        said = status(starved.cell, sandbox)
        assert said in (answer, before, 503), said
        return said == answer

    if starved.starving:
        return there()
    until(there, 5, f"{answer} is not known of {sandbox}")
    return True


# ---- requests ----


def test_a_request(starved, origins):
    starved = starved(config=config(), sandboxes={"sb-1": {"worker": f"http://127.0.0.1:{origins().port}"}})
    starved.alone_and_together("agent", lambda: served(starved.cell, "sb-1"))


def test_a_file_that_changes(starved):
    starved = starved(config=config())

    def change():
        name = f"sb-{next(numbers)}"
        starved.cell.set_sandboxes(**{name: {"state": "stopped"}})
        del starved.cell.sandboxes[name]
        return becomes(starved, name, 410, 404)

    starved.alone_and_together("agent", change)


@pytest.fixture
def plane():
    plane = FakePlane()
    yield plane
    plane.close()


def test_a_control_plane(starved, plane, origins):
    port = origins().port
    starved = starved(config=config(directory={"kind": "http", "url": plane.url, "timeout": "500ms"}))

    def look_up():
        name = f"sb-{next(numbers)}"
        plane.records[name] = {"worker": f"http://127.0.0.1:{port}", "epoch": 1}
        return served(starved.cell, name)

    starved.alone_and_together("agent", look_up)


def test_what_a_control_plane_announces(starved, plane, origins):
    port = origins().port
    starved = starved(config=config(directory={"kind": "http", "url": plane.url, "timeout": "500ms", "ttl": "1h"}))

    def announced():
        name = f"sb-{next(numbers)}"
        plane.records[name] = {"worker": f"http://127.0.0.1:{port}", "epoch": 1}
        if not served(starved.cell, name):
            return False
        plane.records[name] = {"state": "stopped", "epoch": 2}
        plane.push(event("update", {"sandbox": name, "record": plane.records[name]}))
        return becomes(starved, name, 410, 200)

    starved.alone_and_together("agent", announced)


@pytest.fixture
def redis(tmp_path):
    redis = Redis(tmp_path)
    yield redis
    redis.stop()


def test_a_redis(starved, redis, origins):
    port = origins().port
    starved = starved(config=config(directory={"kind": "redis", "server": f"127.0.0.1:{redis.port}", "timeout": "500ms", "ttl": "1h"}))

    def announced():
        name = f"sb-{next(numbers)}"
        redis.put(**{name: {"worker": f"http://127.0.0.1:{port}", "epoch": 1}})
        if not served(starved.cell, name):
            return False
        redis.put(**{name: {"state": "stopped", "epoch": 2}})
        return becomes(starved, name, 410, 200)

    starved.alone_and_together("agent", announced)


# ---- tunnels ----

ECHO = """#!/bin/sh
[ ! -t 0 ] || stty raw -echo
echo -n ready
dd bs=1 count={} 2>/dev/null
exec dd bs=1 count=1 >/dev/null 2>&1
"""
BYE = b"."  # it ends when all that it said was heard: what is in a terminal when its last process exits may be lost
WORDS = (0, 10, 1000)


@pytest.fixture
def echo(tmp_path):
    script = tmp_path / "echo"
    script.write_text(ECHO.format(sum(WORDS)))
    script.chmod(0o755)
    return script


@pytest.fixture
def records():
    """Of one sandbox at its two workers."""
    host = Host()
    workers = [host.worker("--name", name) for name in ("worker-a", "worker-b")]
    yield [{"worker": f"http://127.0.0.1:{worker.port}"} for worker in workers]
    host.close()


@pytest.mark.parametrize("process, dialect", [("agent", Terminal), ("relay", Terminal), ("relay", Since), ("relay", Exec)])
def test_a_tunnel(starved, records, echo, process, dialect):
    """Each byte once and in order, or the tunnel ends; with Cell-Resume, which loses no input, while the sandbox moves."""
    starved = starved(config={"relay": QUICK}, sandboxes={"sb-1": records[0]})
    cell, at, port = starved.cell, 0, int(records[0]["worker"].rpartition(":")[2])

    def converse(ws, client):
        nonlocal at
        heard, said = b"", b"ready"
        for size in WORDS:
            if size and dialect is Terminal:
                at += 1
                cell.set_sandboxes(**{"sb-1": records[at % 2] | {"epoch": at}})
            if size:
                word = os.urandom(size)
                ws.send(BINARY, client.typed(word))
                said += word
            while heard != said:
                frame = ws.frame()
                if frame is None or frame[0] == CLOSE:
                    assert starved.starving, (frame, client.said, len(heard), len(said))
                    return False
                heard += client.take(frame[0], frame[2], len(heard))
                assert said.startswith(heard)
        ws.send(BINARY, client.typed(BYE))
        while (frame := ws.frame()) is not None and frame[0] != CLOSE:
            pass
        return True

    def talk():
        client = dialect("sb-1")
        try:
            ws = Ws(cell.http, client.create(port, echo), [cell.bearer(jti=str(next(numbers)))], 2 if starved.starving else 10)
        except Ws.Refused as refused:
            assert refused.status == 503, (refused.status, refused.body)
            return False
        except TimeoutError:
            assert starved.starving
            return False
        with ws:
            try:
                return converse(ws, client)
            except TimeoutError:  # it waits for a worker, as long as redial_budget
                assert starved.starving
                return False

    starved.alone_and_together(process, talk, opens=process == "relay")


@pytest.fixture
def starved_host(tmp_path):
    host = StarvedHost(tmp_path)
    yield host
    host.close()


@pytest.mark.parametrize("process", ["cell-worker", "cell-sandboxd"])
def test_a_terminal(starved_host, echo, process):
    """Of a caller that numbers, on two connections one after the other."""
    words = [os.urandom(size) for size in WORDS]

    def talk():
        caller = Caller(f"?command={urllib.parse.quote_plus(str(echo))}")
        caller.patience = 1 if starved_host.starving else 10
        said = b"ready"
        try:
            for word in words:
                caller.dial(starved_host.port)
                caller.say(word)
                said += word
                caller.wait(lambda: len(caller.output) >= len(said) or caller.close)
                assert said.startswith(caller.output), bytes(caller.output[:100])
                if caller.output != said:
                    return False
            caller.say(BYE)
            return bool(caller.wait(lambda: caller.end)) and caller.end == (1000, "process exited")
        except Ws.Refused as refused:
            assert refused.status in (410, 500, 503), (refused.status, refused.body)
            return False
        except (ConnectionError, TimeoutError, AssertionError) as error:
            assert starved_host.starving and (isinstance(error, OSError) or "before an answer" in str(error)), error
            return False
        finally:
            caller.drop()

    starved_host.alone_and_together(process, talk, opens=process == "cell-worker")


# ---- operators ----


@pytest.mark.parametrize("process", ["agent", "relay"])
def test_a_reload(starved, process):
    starved = starved(config=config())
    log = starved.cell.run_dir / f"{process}.log"

    def reload():
        had = len(log.read_bytes())
        starved.cell.kill(process, signal.SIGHUP)
        until(lambda: b"reloaded" in log.read_bytes()[had:], 5, "it says nothing")
        said = log.read_bytes()[had:]
        assert b"not reloaded" not in said or b"memory" in said or b"Too many open files" in said, said
        return b"not reloaded" not in said

    starved.alone_and_together(process, reload)


PAGES = {"agent": ("/status", "/metrics", "/readyz", "/healthz"), "relay": ("/metrics", "/tunnels", "/readyz", "/healthz")}


@pytest.mark.parametrize("process", ["agent", "relay"])
def test_pages(starved, process):
    starved = starved(config=config())

    def look():
        whole = 0
        for page in PAGES[process]:
            try:
                starved.cell.admin(page, process)
                whole += 1
            except urllib.error.HTTPError as error:
                assert error.code == 500
            except OSError:
                pass  # closed without an answer
        return whole == len(PAGES[process])

    starved.alone_and_together(process, look)


@pytest.mark.parametrize("process", ["agent", "relay"])
def test_commands(starved, process, tmp_path):
    starved = starved(config=config())
    sockets = {name: {"control": f"unix@{starved.cell.run_dir}/{name}.control.sock"} for name in ("agent", "relay")}
    (tmp_path / "operator.json").write_text(json.dumps(starved.cell.config | sockets))

    def ask():
        command = [BIN / "cellgate", "status", "--config", tmp_path / "operator.json"]
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0

    starved.alone_and_together(process, ask)


@pytest.mark.parametrize("process", ["agent", "relay"])
@pytest.mark.parametrize("count", [1, ALL])
def test_a_start(tmp_path, process, count):
    """It starts, or says why not."""
    (tmp_path / "k1.secret").write_bytes(b"a secret of the tests, 32 bytes or more")
    (tmp_path / "sandboxes.json").write_text('{"sandboxes":{"sb-1":{"worker":"http://127.0.0.1:1"}}}')
    addresses = {"agent": {"listen": f"unix@{tmp_path}/a.sock", "admin": f"127.0.0.1:{free_port()}"},
                 "relay": {"listen": f"unix@{tmp_path}/r.sock", "admin": f"127.0.0.1:{free_port()}"}}
    document = config(directory={"kind": "file", "path": "sandboxes.json"}, tokens=[{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}])
    (tmp_path / "cellgate.json").write_text(json.dumps(document | addresses))
    memory, at, failed = Counted(tmp_path / "allocations"), 0, 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0.02)
        environment = os.environ | {"LD_PRELOAD": str(SHIM), "SHIM_ALLOC": str(tmp_path / "allocations"), "NOTIFY_SOCKET": str(tmp_path / "notify")}
        while failed:
            had, why = memory.counts()[1], f"with allocation {at} failing"
            memory.fail(at, count)
            daemon = subprocess.Popen([BIN / f"cellgate-{process}", "-c", tmp_path / "cellgate.json"], env=environment, stderr=subprocess.PIPE)
            end = time.monotonic() + 10
            ready = False
            while not ready and daemon.poll() is None:
                assert time.monotonic() < end, f"it neither starts nor ends {why}"
                try:
                    ready = b"READY=1" in manager.recv(4096)
                except TimeoutError:
                    pass
            failed = memory.counts()[1] - had
            memory.suffices()
            if ready:
                daemon.terminate()
                daemon.terminate()
            said = daemon.communicate(timeout=10)[1]
            assert daemon.returncode == (0 if ready else 1) and said, (why, daemon.returncode, said)
            at += EVERY * 10
