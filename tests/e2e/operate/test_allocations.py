# SPDX-License-Identifier: MIT
"""Each allocation of a daemon fails in turn, alone and with all after it (fault_injection.py), while it does one thing: starts,
reloads, decides, looks up, opens and moves a tunnel, answers an operator; and each descriptor, where it opens some for that.
Whatever fails, the process lives, nothing passes or is refused for a wrong reason, nothing is leaked, and it goes on by itself.
CELLGATE_LONG=1 leaves no allocation out."""

import itertools
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse

import pytest
from cell import BIN, COVERED, SANITIZED, WORKER_SECRET_FILE, free_port, on_worker, until, worker_command
from client import request
from dialects import Exec, Since, Terminal
from name_server import NameServer
from plane import FakePlane, Plane, answer
from redis_server import Redis
from resume import Caller
from fault_injection import ALL, EVERY, FAULT_INJECTION, FaultyCell, FaultyExamples, Supply
from test_directory_http import event
from tunnels import QUICK
from worker import BINARY, CLOSE, Host, Ws

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer has an allocator of its own")
numbers = itertools.count(1)


@pytest.fixture
def faulty(cells, tmp_path):
    return lambda **arguments: FaultyCell(cells, tmp_path, **arguments)


def config(**more):
    return {"relay": QUICK, "routes": [{"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]} | more


def status(cell, sandbox, token=None):
    """Of a request with that token, or one that was never seen."""
    return request(cell.http, "GET", f"/s/{sandbox}/x", [token or cell.bearer(sandbox, jti=str(next(numbers)))]).status


def served(cell, sandbox, token=None):
    """Other than what the directory says, only what may be tried again."""
    said = status(cell, sandbox, token)
    assert said in (200, 503), said
    return said == 200


def becomes(faulty, sandbox, answer, before):
    """What the directory says now is not forgotten because there was no memory when it said so."""
    token = faulty.cell.bearer(sandbox, jti=str(next(numbers)))  # one, as the agent keeps each that it has verified

    def there():
        said = status(faulty.cell, sandbox, token)
        assert said in (answer, before, 503), said
        return said == answer

    if faulty.failing:
        return there()
    until(there, 10, f"{answer} is not known of {sandbox}")
    return True


# ---- requests ----


def test_a_request(faulty, origins):
    faulty = faulty(config=config(), sandboxes={"sb-1": {"worker": f"http://127.0.0.1:{origins().port}"}})
    faulty.alone_and_together("agent", lambda: served(faulty.cell, "sb-1"))


def test_a_file_that_changes(faulty):
    faulty = faulty(config=config())

    def change():
        name = f"sb-{next(numbers)}"
        faulty.cell.set_sandboxes(**{name: {"state": "stopped"}})
        del faulty.cell.sandboxes[name]
        return becomes(faulty, name, 410, 404)

    faulty.alone_and_together("agent", change, opens=True)


@pytest.fixture
def plane():
    plane = FakePlane()
    yield plane
    plane.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_control_plane(faulty, plane, origins, closes):
    """Which may end the connection behind each answer."""
    port = origins().port
    faulty = faulty(config=config(directory={"kind": "http", "url": plane.url, "timeout": "500ms"}))

    def look_up():
        name = f"sb-{next(numbers)}"
        record = {"worker": f"http://127.0.0.1:{port}", "epoch": 1}
        plane.ways[name] = lambda connection, _: answer(connection, 200, record) or closes
        return served(faulty.cell, name)

    faulty.alone_and_together("agent", look_up, opens=closes)


def test_what_a_control_plane_announces(faulty, plane, origins):
    port = origins().port
    faulty = faulty(config=config(directory={"kind": "http", "url": plane.url, "timeout": "500ms", "ttl": "1h"}))

    def announced():
        name = f"sb-{next(numbers)}"
        plane.records[name] = {"worker": f"http://127.0.0.1:{port}", "epoch": 1}
        if not served(faulty.cell, name):
            return False
        plane.records[name] = {"state": "stopped", "epoch": 2}
        plane.push(event("update", {"sandbox": name, "record": plane.records[name]}))
        return becomes(faulty, name, 410, 200)

    faulty.alone_and_together("agent", announced)


@pytest.fixture
def redis(tmp_path):
    redis = Redis(tmp_path)
    yield redis
    redis.stop()


@pytest.fixture
def by_redis(faulty, redis):
    return faulty(config=config(directory={"kind": "redis", "server": f"127.0.0.1:{redis.port}", "timeout": "500ms", "ttl": "1h"}))


def test_a_redis(by_redis, redis, origins):
    port = origins().port

    def announced():
        name = f"sb-{next(numbers)}"
        redis.put(**{name: {"worker": f"http://127.0.0.1:{port}", "epoch": 1}})
        if not served(by_redis.cell, name):
            return False
        redis.put(**{name: {"state": "stopped", "epoch": 2}})
        return becomes(by_redis, name, 410, 200)

    by_redis.alone_and_together("agent", announced)


def test_a_redis_that_ends_all_connections(by_redis, redis, origins):
    port = origins().port

    def look_up():
        name = f"sb-{next(numbers)}"
        redis.put(**{name: {"worker": f"http://127.0.0.1:{port}", "epoch": 1}})
        for kind in ("pubsub", "normal"):
            redis.ask("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        token, end = by_redis.cell.bearer(name), time.monotonic() + 0.5
        while not (there := served(by_redis.cell, name, token)) and time.monotonic() < end:
            time.sleep(0.02)
        return there

    for count in (1, ALL):
        by_redis.sweep("agent", look_up, count, by_redis.descriptors["agent"], 1)
        if EVERY == 1:  # each takes half a second
            by_redis.sweep("agent", look_up, count, by_redis.memory["agent"], 10)


@pytest.fixture
def names():
    server = NameServer()
    yield server
    server.close()


def test_names_of_sandboxes(faulty, names, origins):
    directory = {"kind": "dns", "name": "{sandbox}.{namespace}.svc.test", "port": origins().port, "servers": [names.address],
                 "timeout": "500ms", "ttl": "1h"}
    faulty = faulty(config=config(directory=directory))

    def look_up():
        name = f"sb-{next(numbers)}"
        names.names[f"{name}.default.svc.test"] = ["127.0.0.1"]
        return served(faulty.cell, name)

    faulty.alone_and_together("agent", look_up, every=max(EVERY // 8, 1), opens=True)


def test_names_of_workers(faulty, names, origins):
    port = origins().port
    faulty = faulty(config=config(agent={"name_servers": [names.address]}))

    def look_up():
        name = f"sb-{next(numbers)}"
        names.names[f"{name}.test"] = ["127.0.0.1"]
        faulty.cell.set_sandboxes(**{name: {"worker": f"http://{name}.test:{port}"}})
        del faulty.cell.sandboxes[name]
        return becomes(faulty, name, 200, 404)

    # a name that is asked for before its address is known stays for ten minutes
    faulty.alone_and_together("agent", look_up, opens=True, keeps=3)


# ---- tunnels ----

ECHO = """#!/bin/sh
[ ! -t 0 ] || stty raw -echo
echo -n ready
exec dd bs=1 count={} 2>/dev/null
"""
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
    yield [on_worker(f"http://127.0.0.1:{worker.port}") for worker in workers]
    host.close()


@pytest.mark.parametrize("process, dialect", [("agent", Terminal), ("relay", Terminal), ("relay", Since), ("relay", Exec)])
def test_a_tunnel(faulty, records, echo, process, dialect):
    """Each byte once and in order, or the tunnel ends; with Cell-Resume, which loses no input, while the sandbox moves."""
    faulty = faulty(config={"relay": QUICK}, sandboxes={"sb-1": records[0]})
    cell, at, port = faulty.cell, 0, int(records[0]["worker"].rpartition(":")[2])

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
                    assert faulty.failing, (frame, client.said, len(heard), len(said))
                    return False
                heard += client.take(frame[0], frame[2], len(heard))
                assert said.startswith(heard)
        while (frame := ws.frame()) is not None and frame[0] != CLOSE:
            pass
        return True

    def talk():
        client = dialect("sb-1")
        try:
            ws = Ws(cell.http, client.create(port, echo), [cell.bearer(jti=str(next(numbers)))], 2 if faulty.failing else 10)
        except Ws.Refused as refused:
            assert refused.status == 503, (refused.status, refused.body)
            return False
        except TimeoutError:
            assert faulty.failing
            return False
        with ws:
            try:
                return converse(ws, client)
            except TimeoutError:  # it waits for a worker, as long as redial_budget
                assert faulty.failing
                return False

    faulty.alone_and_together(process, talk, opens=process == "relay")


@pytest.fixture
def faulty_host(tmp_path):
    host = FaultyExamples(tmp_path, "cell-sandboxd", "cell-worker")
    host.start("cell-sandboxd", "--socket", tmp_path / "s", "--grace", 3)
    host.port = int(host.start("cell-worker", *worker_command(tmp_path / "s")[1:]).rpartition(":")[2])
    yield host
    host.close()


@pytest.mark.parametrize("process", ["cell-worker", "cell-sandboxd"])
def test_a_terminal(faulty_host, echo, process):
    """Of a caller that numbers, on two connections one after the other."""
    words = [os.urandom(size) for size in WORDS]

    def talk():
        caller = Caller(f"?command={urllib.parse.quote_plus(str(echo))}")
        caller.patience = 1 if faulty_host.failing else 10
        said = b"ready"
        try:
            for word in words:
                caller.dial(faulty_host.port)
                caller.say(word)
                said += word
                caller.wait(lambda: len(caller.output) >= len(said) or caller.close)
                assert said.startswith(caller.output), bytes(caller.output[:100])
                if caller.output != said:
                    return False
            return bool(caller.wait(lambda: caller.end)) and caller.end == (1000, "process exited")
        except Ws.Refused as refused:
            assert refused.status in (410, 500, 503), (refused.status, refused.body)
            return False
        except (ConnectionError, TimeoutError, AssertionError) as error:
            assert faulty_host.failing and (isinstance(error, OSError) or "before an answer" in str(error)), error
            return False
        finally:
            caller.drop()

    faulty_host.alone_and_together(process, talk, opens=True)


# ---- the control plane of examples/ ----

WORKERS = "http://127.0.0.1:1", "http://127.0.0.1:2"


@pytest.fixture
def faulty_plane(tmp_path):
    plane = FaultyExamples(tmp_path, "cell-plane")
    plane.state, plane.control = tmp_path / "plane.json", tmp_path / "plane.sock"
    (tmp_path / "secret").write_text(Plane.SECRET)
    arguments = ["--control", plane.control, "--state", plane.state, "--secret-file", tmp_path / "secret"]
    arguments += ["--worker", WORKERS[0], "--worker-secret-file", WORKER_SECRET_FILE]
    plane.port = int(plane.start("cell-plane", "serve", "--listen", "127.0.0.1:0", *arguments).rpartition(":")[2])
    yield plane
    plane.close()


class Operator:
    """Of a control plane. What he was told is done is in its file, is said to who asks, and was told to who follows, or that one
    was let go; what he was told failed for want of memory has not happened."""

    def __init__(self, plane):
        self.plane, self.follower, self.revoked, self.left = plane, None, False, []

    def command(self, *words):
        """True, False, or None: it may be done or not."""
        done = subprocess.run([BIN / "cell-plane", "--control", self.plane.control, *words], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0 or self.plane.failing, (words, done.stderr)
        return done.returncode == 0 or (False if "out of memory" in done.stderr else None)

    def follow(self):
        try:
            self.follower = socket.create_connection(("127.0.0.1", self.plane.port), 5)
            self.follower.sendall(Plane.FOLLOW)
            heard = self.hear(b": cell-plane\n\n")
            assert not self.revoked or not self.follower or b"not_before" in heard
        except OSError:
            assert self.plane.failing

    def hear(self, *words):
        """What comes up to where all of these are in it, or to the end."""
        heard = b""
        while self.follower and not all(word in heard for word in words):
            try:
                more = self.follower.recv(4096)
            except ConnectionResetError:
                more = b""
            except TimeoutError:
                raise AssertionError(f"{words} was not told to who follows, who heard {heard}") from None
            heard += more
            if not more:
                self.leave()
        return heard

    def leave(self):
        if self.follower:
            self.follower.close()
        self.follower = None

    def look(self, name):
        """Its worker, None if there is no such sandbox, False if that cannot be told now."""
        try:
            answer = request(self.plane.port, "GET", f"/v1/sandboxes/{name}", [Plane.BEARER])
        except (OSError, AssertionError):  # no connection, or no answer
            assert self.plane.failing
            return False
        if answer.status == 500:
            assert self.plane.failing
            return False
        assert answer.status in (200, 404)
        return json.loads(answer.body)["worker"] if answer.status == 200 else None

    def change(self, name, was, verb, *words, to=None):
        done = self.command(verb, name, *words)
        if done:
            self.hear(f'"{name}"'.encode(), to.encode() if to else b"event: remove")
        said = self.look(name)
        assert said is False or said in {True: (to,), False: (was,), None: (was, to)}[done], (verb, done, said)
        kept = json.loads(self.plane.state.read_text())["sandboxes"] if self.plane.state.exists() else {}
        assert said is False or kept.get(name, {}).get("worker") == said, "the file says something else"
        return bool(done) and said is not False

    def work(self):
        while self.left and not self.plane.failing:
            if self.look(name := self.left.pop()):
                self.command("remove", name)
        name = f"sb-{next(numbers)}"
        if not self.follower:
            self.follow()
        if not self.change(name, None, "set", json.dumps({"worker": WORKERS[0]}), to=WORKERS[0]):
            return self.cannot(name)
        if not self.change(name, WORKERS[0], "move", WORKERS[1], to=WORKERS[1]):
            return self.cannot(name)
        if self.command("revoke", str(next(numbers))):
            self.hear(b"not_before")
            self.revoked = True
        if not self.change(name, WORKERS[1], "remove"):
            return self.cannot(name)
        return self.follower is not None  # who was let go comes again next time

    def cannot(self, name):
        assert self.plane.failing
        self.left.append(name)
        return False


def test_a_plane(faulty_plane):
    operator = Operator(faulty_plane)
    operator.command("set", "sb-0", json.dumps({"worker": WORKERS[0]}))
    for _ in range(1024 if EVERY == 1 else 0):
        operator.command("stop", "sb-0")  # it keeps so many events: then it has them all
    faulty_plane.alone_and_together("cell-plane", operator.work, every=max(EVERY // 8, 1))
    if EVERY == 1:  # who has to be let in waits a second
        faulty_plane.sweep("cell-plane", operator.work, 1, faulty_plane.descriptors["cell-plane"], 1)
    operator.leave()


# ---- operators ----


@pytest.mark.parametrize("process", ["agent", "relay"])
def test_a_reload(faulty, process):
    faulty = faulty(config=config())
    log = faulty.cell.run_dir / f"{process}.log"

    def reload():
        had = len(log.read_bytes())
        faulty.cell.kill(process, signal.SIGHUP)
        until(lambda: b"reloaded" in log.read_bytes()[had:], 10, "it says nothing")
        said = log.read_bytes()[had:]
        assert b"not reloaded" not in said or b"memory" in said or b"Too many open files" in said, said
        return b"not reloaded" not in said

    faulty.alone_and_together(process, reload, opens=True)


PAGES = {"agent": ("/status", "/metrics", "/readyz", "/healthz"), "relay": ("/metrics", "/tunnels", "/readyz", "/healthz")}


@pytest.mark.parametrize("process", ["agent", "relay"])
def test_pages(faulty, process):
    faulty = faulty(config=config())

    def look():
        whole = 0
        for page in PAGES[process]:
            try:
                faulty.cell.admin(page, process)
                whole += 1
            except urllib.error.HTTPError as error:
                assert error.code == 500
            except OSError:
                pass  # closed without an answer
        return whole == len(PAGES[process])

    faulty.alone_and_together(process, look, opens=EVERY == 1)  # each of them has to wait a second


@pytest.mark.parametrize("process", ["agent", "relay"])
def test_commands(faulty, process, tmp_path):
    faulty = faulty(config=config())
    sockets = {name: {"control": f"unix@{faulty.cell.run_dir}/{name}.control.sock"} for name in ("agent", "relay")}
    (tmp_path / "operator.json").write_text(json.dumps(faulty.cell.config | sockets))

    def ask():
        command = [BIN / "cellgate", "status", "--config", tmp_path / "operator.json"]
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0

    faulty.alone_and_together(process, ask, opens=EVERY == 1)


@pytest.mark.parametrize("process", ["agent", "relay"])
@pytest.mark.parametrize("count", [1, ALL])
@pytest.mark.parametrize("variable, every", [("FAULT_ALLOC", 10 * EVERY), ("FAULT_FILES", 1)])
def test_a_start(tmp_path, process, count, variable, every):
    """It starts, or says why not."""
    if COVERED and variable == "FAULT_ALLOC":
        pytest.skip("gcov does not bear it when it has no memory to write its counts")
    (tmp_path / "k1.secret").write_bytes(b"a secret of the tests, 32 bytes or more")
    (tmp_path / "sandboxes.json").write_text('{"sandboxes":{"sb-1":{"worker":"http://127.0.0.1:1"}}}')
    addresses = {name: {key: f"unix@{tmp_path}/{name}.{key}" for key in ("listen", "control")} | {"admin": f"127.0.0.1:{free_port()}"} for name in ("agent", "relay")}
    addresses["agent"]["relay_listen"] = addresses["relay"]["agent"] = f"unix@{tmp_path}/agent.relay"
    document = config(worker_networks=["127.0.0.0/8"], directory={"kind": "file", "path": "sandboxes.json"}, tokens=[{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}])
    (tmp_path / "cellgate.json").write_text(json.dumps(document | addresses))
    supply, at, failed = Supply(tmp_path / "supply"), 0, 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0.02)
        environment = os.environ | {"LD_PRELOAD": str(FAULT_INJECTION), variable: str(tmp_path / "supply"), "NOTIFY_SOCKET": str(tmp_path / "notify")}
        while failed:
            had, why = supply.counts()[1], f"with number {at} failing"
            supply.fail(at, count)
            daemon = subprocess.Popen([BIN / f"cellgate-{process}", "-c", tmp_path / "cellgate.json"], env=environment, stderr=subprocess.PIPE)
            end = time.monotonic() + 10
            ready = False
            while not ready and daemon.poll() is None:
                assert time.monotonic() < end, f"it neither starts nor ends {why}"
                try:
                    ready = b"READY=1" in manager.recv(4096)
                except TimeoutError:
                    pass
            failed = supply.counts()[1] - had
            supply.suffices()
            if ready:
                daemon.terminate()
                daemon.terminate()
            said = daemon.communicate(timeout=10)[1]
            assert daemon.returncode == (0 if ready else 1) and said, (why, daemon.returncode, said)
            at += every
    assert ready, "with all that it asks for"
