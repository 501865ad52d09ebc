# SPDX-License-Identifier: MIT
"""What an operator sees and does: cellgate status, tunnels, kick, drain, and cellgate-agent -t."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cell import BIN, stop, stop_listening, until
from tunnels import QUICK, ROUTES, Tunnels


@pytest.fixture(scope="module")
def tunnels(cells):
    tunnels = Tunnels(cells(config={"relay": QUICK, "routes": ROUTES}))
    yield tunnels
    tunnels.close()


@pytest.fixture
def operator(tunnels, tmp_path):
    """operator(ARGUMENT...): (exit code, output, errors) of cellgate, which knows the sockets from a configuration."""
    sockets = {name: {"control": f"unix@{tunnels.cell.run_dir}/{name}.control.sock"} for name in ("agent", "relay")}
    config = tmp_path / "cellgate.json"
    config.write_text(json.dumps(tunnels.cell.config | sockets))
    return lambda *arguments: cellgate(*arguments, "--config", config)


def cellgate(*arguments):
    done = subprocess.run([BIN / "cellgate", *arguments], capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout, done.stderr


def table(text):
    head, *rows = [line.split() for line in text.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def names(status, within=""):
    for key, value in status.items():
        if isinstance(value, dict):
            yield from names(value, f"{within}{key}.")
        elif not isinstance(value, list):
            yield within + key


def test_status_tells_of_both_daemons(tunnels, operator):
    worker = tunnels.worker()
    tunnels.open(worker)
    code, text, errors = operator("status")
    assert (code, errors) == (0, "")
    agent, relay = text.split("relay\n")
    assert agent.startswith("agent\n  ") and relay.startswith("  ")
    code, text, errors = operator("status", "--json")
    told = [json.loads(line) for line in text.splitlines()]
    assert (code, errors) == (0, "") and all(answer["ok"] for answer in told) and len(told) == 2
    for answer, lines in zip(told, (agent, relay)):
        shown = dict(line.split() for line in lines.splitlines() if line.startswith("  "))
        assert set(shown) == set(names(answer["status"]))
    assert "directory.kind" in agent


def test_status_is_3_while_a_daemon_is_not_ready(tunnels, tmp_path):
    """An agent whose directory is not there yet, beside a relay that serves."""
    config = tunnels.cell.config | {"directory": {"kind": "file", "path": str(tmp_path / "later.json")}}
    file = tunnels.cell.config_file.with_name("later.json")
    file.write_text(json.dumps(config))
    sockets = {name: f"unix@{tmp_path}/{name}.sock" for name in ("listen", "relay_listen", "control")}
    agent = tunnels.cell.spawn("waiting-agent", BIN / "cellgate-agent", "-c", file, *[x for key, at in sockets.items() for x in ("-o", f"agent.{key}={at}")], "-o", "agent.admin=127.0.0.1:0")
    command = ("status", "--agent", sockets["control"], "--relay", f"unix@{tunnels.cell.run_dir}/relay.control.sock")
    until(lambda: (tmp_path / "control.sock").exists() or agent.poll() is not None, 20)
    code, text, errors = cellgate(*command)
    assert (code, errors) == (3, "") and "the directory is not loaded" in text
    (tmp_path / "later.json").write_text('{"sandboxes": {}}')
    until(lambda: cellgate(*command)[0] == 0, 10, "it does not become ready")


def test_tunnels_are_listed_and_kicked(tunnels, operator):
    worker = tunnels.worker()
    long = "a-sandbox-whose-name-is-longer-than-its-column"
    tunnels.place(long, worker)
    pairs = {sandbox: tunnels.open(worker, sandbox) for sandbox in (tunnels.sandbox(worker), long)}
    code, text, errors = operator("tunnels")
    assert (code, errors) == (0, "")
    rows = {row["sandbox"]: row for row in table(text)}
    relay = ("--relay", f"unix@{tunnels.cell.run_dir}/relay.control.sock")  # instead of a configuration
    for sandbox, (client, _) in pairs.items():
        row = rows[sandbox]
        assert (row["state"], row["route"], row["redials"]) == ("serving", "plain", "0")
        assert [r["id"] for r in table(operator("tunnels", "--sandbox", sandbox)[1])] == [row["id"]]
        (listed,) = json.loads(cellgate("tunnels", "--json", "--sandbox", sandbox, *relay)[1])["tunnels"]
        assert (listed["id"], listed["sandbox"], listed["state"]) == (row["id"], sandbox, "serving")
        assert cellgate("kick", row["id"], *relay) == (0, "closed\n", "")
        assert client.closed() == (1008, "closed by the operator")
    for no_id in ("t-9-999", "nonsense"):
        code, text, errors = operator("kick", no_id)
        assert (code, text) == (1, "") and errors.startswith("cellgate: the relay: ")
    assert table(operator("tunnels", "--sandbox", "nobody")[1]) == []


def test_status_says_what_to_do_about_a_daemon_that_is_not_there_or_hangs(tunnels, operator, tmp_path):
    agent = ("--agent", f"unix@{tunnels.cell.run_dir}/agent.control.sock")
    code, text, errors = cellgate("status", *agent, "--relay", f"unix@{tmp_path}/nobody")
    assert code == 1 and text.startswith("agent\n") and "No such file or directory; it does not run" in errors and "systemctl status cellgate-relay" in errors
    gone = socket.socket(socket.AF_UNIX)
    gone.bind(str(tmp_path / "gone"))
    code, _, errors = cellgate("status", *agent, "--relay", f"unix@{tmp_path}/gone")
    assert code == 1 and "Connection refused; it does not run" in errors
    pid = tunnels.cell.pid("relay")
    stop(pid)
    try:
        begin = time.monotonic()
        code, text, errors = operator("status")
        took = time.monotonic() - begin
    finally:
        os.kill(pid, signal.SIGCONT)
    assert code == 1 and text.startswith("agent\n") and "there is no answer; it hangs or is stopped: systemctl restart cellgate-relay" in errors
    assert 1.9 < took < 8


class FalseRelay:
    """Answers whoever asks on its control socket with the same line."""

    def __init__(self, path, answer):
        self.address, self.answer = f"unix@{path}", answer
        self.listener = socket.create_server(str(path), family=socket.AF_UNIX)
        path.chmod(0o600)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client, client.makefile("rb") as asked:
                asked.readline()  # the whole of it: who closes before that breaks the asker's pipe
                client.sendall(self.answer + b"\n")

    def close(self):
        stop_listening(self.listener)
        self.thread.join(5)


@pytest.fixture
def false_relay(tmp_path):
    relays = []

    def start(**answer):
        relays.append(FalseRelay(tmp_path / "false.sock", json.dumps(answer, ensure_ascii=False).encode()))
        return relays[-1].address

    yield start
    for relay in relays:
        relay.close()


# What a terminal obeys: colours, its title, a bell, another line, and the same in one character of C1.
OBEYED = "\x1b[31m \x1b]0;owned\x07 \r\n \x7f \x80 \x9b2J \x9d".split(" ")


def seen(text):
    return re.sub("[\x00-\x1f\x7f-\x9f]", "?", text)


@pytest.mark.parametrize("obeyed", OBEYED)
def test_a_terminal_obeys_nothing_of_what_a_relay_says(false_relay, obeyed):
    relay = false_relay(ok=True, tunnels=[{"id": "t-1", "sandbox": f"é-{obeyed}-x", "worker": obeyed, "age": 1.5}])
    code, text, _ = cellgate("tunnels", "--relay", relay)
    assert code == 0 and f" é-{seen(obeyed)}-x " in text and f" {seen(obeyed)} " in text
    assert seen(text.replace("\n", "")) == text.replace("\n", "") and text.count("\n") == 2


@pytest.mark.parametrize("obeyed", OBEYED)
def test_a_document_is_the_same_and_obeyed_no_more(false_relay, obeyed):
    answer = {"ok": True, "tunnels": [{"id": "t-1", "sandbox": f"é\\{obeyed}x", "worker": obeyed}]}
    code, text, _ = cellgate("tunnels", "--json", "--relay", false_relay(**answer))
    assert code == 0 and json.loads(text) == answer and seen(text) == text[:-1] + "?"


@pytest.mark.parametrize("obeyed", OBEYED)
def test_nor_of_refusals(false_relay, obeyed):
    relay = false_relay(ok=False, error=f"no{obeyed}", status={})
    assert cellgate("kick", "t-1", "--relay", relay) == (1, "", f"cellgate: the relay: no{seen(obeyed)}\n")


@pytest.mark.parametrize("obeyed", OBEYED)
def test_nor_of_a_status(false_relay, obeyed):
    relay = false_relay(ok=True, status={"state" + obeyed: obeyed + "x"})
    _, text, _ = cellgate("status", "--relay", relay, "--agent", relay)
    assert text.count(f"  state{seen(obeyed)}") == text.count(f"{seen(obeyed)}x\n") == 2 and text.count("\n") == 4


def test_a_drain_ends_the_relay(tunnels, operator):
    client, _ = tunnels.open(tunnels.worker())
    before = tunnels.cell.pid("relay")
    assert operator("drain") == (0, "draining\n", "")
    assert client.closed()[0] in (1001, 1012)
    until(lambda: tunnels.cell.pid("relay") != before, 10, "it is not started again")


@pytest.mark.parametrize("command", [("status",), ("tunnels",), ("kick", "t-0-1"), ("drain",)])
def test_a_daemon_that_does_not_answer_is_told(command, tmp_path):
    nowhere = f"unix@{tmp_path}/nobody.sock"
    code, text, errors = cellgate(*command, "--relay", nowhere, *(["--agent", nowhere] if command == ("status",) else []))
    assert (code, text) == (1, "")
    assert errors.count("cellgate: the ") == len(errors.splitlines()) and nowhere in errors
    missing = tmp_path / "missing.json"
    code, text, errors = cellgate(*command, "--config", missing)
    assert (code, text) == (1, "") and str(missing) in errors


@pytest.mark.parametrize("arguments", [("status", "--sandbox"), ("tunnels", "extra"), ("kick",), ("kick", "a", "b"), ("drain", "--now")])
def test_wrong_usage_is_2_and_help_is_0(arguments):
    code, text, errors = cellgate(*arguments)
    assert (code, text) == (2, "") and "usage: cellgate status" in errors
    code, text, errors = cellgate(arguments[0], "--help")
    assert (code, errors) == (0, "") and "usage: cellgate status" in text


def test_a_configuration_is_checked_with_its_directory(tunnels, tmp_path):
    config = json.loads(tunnels.cell.config_file.read_text())
    (tunnels.cell.folder / "k1.secret").chmod(0o600)  # else it is told, too
    directory = tmp_path / "sandboxes.json"
    config["directory"] = {"kind": "file", "path": str(directory)}
    file = tunnels.cell.config_file.with_name("checked.json")
    file.write_text(json.dumps(config))

    def check():
        done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", file], capture_output=True, text=True, timeout=20)
        return done.returncode, done.stderr

    assert check() == (0, f"{directory}: not there yet; the configuration is valid\n")
    directory.write_text('{"sandboxes": {"sb": {"worker": "http://127.0.0.1:1"}}}')
    assert check() == (0, "the configuration is valid, the directory has 1 sandboxes\n")
    directory.write_text('{"sandboxes": {"sb": {\n"worker": 1}}}')
    code, errors = check()
    assert code == 1 and errors.startswith(f"{directory}:2:")
    file.write_text(json.dumps(config | {"routes": 1}))
    code, errors = check()
    assert code == 1 and errors.startswith(f"{file}:1:")


@pytest.mark.parametrize(
    "key, keys",
    [
        ("directory.token_file", {"directory": {"kind": "http", "url": "http://127.0.0.1:1"}}),
        ("directory.ca_file", {"directory": {"kind": "http", "url": "https://127.0.0.1:1"}}),
        ("directory.password_file", {"directory": {"kind": "redis", "server": "127.0.0.1:1"}}),
        ("renew.password_file", {"renew": {"redis": "127.0.0.1:1"}}),
    ],
)
def test_a_file_that_is_not_there_is_an_error(tunnels, tmp_path, key, keys):
    section, name = key.split(".")
    file = tunnels.cell.config_file.with_name("files.json")

    def check(path):
        keys[section][name] = str(path)
        file.write_text(json.dumps(tunnels.cell.config | keys, indent=1))
        done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", file], capture_output=True, text=True, timeout=20)
        return done.returncode, done.stderr

    secret = tmp_path / "secret"
    code, errors = check(secret)
    assert code == 1 and f"{key}: {secret}: No such file" in errors and errors.startswith(f"{file}:")
    assert f"{key}: {tmp_path}: Is a directory" in check(tmp_path)[1]
    secret.write_text("secret\n")
    secret.chmod(0o600)
    assert check(secret)[0] == 0


def test_keys_by_their_old_names_are_read_and_warned_of(tunnels):
    good = json.loads(tunnels.cell.config_file.read_text())
    old = good | {"agent": {"guesses": 7, "max_watches": 2000}, "relay": {k: v for k, v in good["relay"].items() if k != "grace_period"} | {"settle": "1s"}}
    renamed = {"agent.guesses": "agent.auth_failures", "agent.max_watches": "agent.max_subscriptions", "relay.settle": "relay.grace_period"}
    file = tunnels.cell.config_file.with_name("old.json")

    def check(config, *more):
        file.write_text(json.dumps(config, indent=1))
        return [subprocess.run([BIN / f"cellgate-{who}", "-t", "-c", file, *more], capture_output=True, text=True, timeout=20) for who in ("agent", "relay")]

    def place(key):
        name = '"' + key.split(".")[-1] + '"'
        return next(f"{n}:{line.index(name) + 1}" for n, line in enumerate(file.read_text().splitlines(), 1) if name in line)

    for done in check(old):
        assert done.returncode == 0, done.stderr
        warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
        warnings = [line for line in warnings if "k1.secret" not in line]  # which is everybody's in these tests
    assert sorted(warnings) == sorted(f"warning: {file}:{place(k)}: {k} is now called {new}" for k, new in renamed.items())
    entry = {"kind": "static", "carriers": ["X-Old-Key"], "everywhere": True}
    done = check(good | {"tokens": [entry]})[0]
    assert done.returncode == 0 and f"warning: {file}:{place('carriers')}: carriers is now called sources\n" in done.stderr
    headers = [subprocess.check_output([BIN / "cellgate", "headers", "--config", file], text=True)]
    entry["sources"] = entry.pop("carriers")
    assert check(good | {"tokens": [entry]})[0].stderr.count("warning") == 0
    headers.append(subprocess.check_output([BIN / "cellgate", "headers", "--config", file], text=True))
    assert headers[0] == headers[1] and "old[-_]key" in headers[0]
    for done in check(good, "-o", "agent.guesses=3"):
        assert done.returncode == 0 and "warning: -o agent.guesses is now called agent.auth_failures\n" in done.stderr
    for done in check(good, "-o", "agent.guesses=3", "-o", "agent.auth_failures=4"):
        assert done.returncode == 2 and "given twice" in done.stderr
    for done in check(good | {"relay": good["relay"] | {"grace_period": "1s", "settle": "1s"}}):
        assert done.returncode == 1
        assert done.stderr == f"{file}:{place('relay.settle')}: relay.settle is the old name of relay.grace_period, which is given at {place('relay.grace_period')} too\n"


def test_daemons_log_the_old_names_of_keys(tunnels):
    cell = tunnels.cell
    good = cell.config_file.read_text()
    says = "agent.guesses is now called agent.auth_failures"
    logs = {who: cell.run_dir / f"{who}.log" for who in ("agent", "relay")}
    config = json.loads(good)
    try:
        cell.config_file.write_text(json.dumps(config | {"agent": {"guesses": 7}}))
        for who, log in logs.items():
            cell.kill(who, signal.SIGHUP)
            until(lambda log=log: [line for line in log.read_text().splitlines() if says in line and "level=warn" in line], 10, f"{who} does not warn")
    finally:
        cell.config_file.write_text(good)
        for who, log in logs.items():
            reloads = log.read_text().count("reloaded")
            cell.kill(who, signal.SIGHUP)
            until(lambda log=log, reloads=reloads: log.read_text().count("reloaded") > reloads, 10, "no reload")


# A value other than the default and than the tests' own, for each key that a reload does not change; {} is a folder.
OTHERWISE = {
    "log_level": "warn",
    "seccomp": "on",
    "agent.listen": "unix@{}/agent",
    "agent.haproxy_user": "daemon",
    "agent.relay_listen": "unix@{}/agent-relay",
    "agent.relay_user": "daemon",
    "agent.admin": "unix@{}/admin",
    "agent.monitor": "127.0.0.1:1",
    "agent.monitor_token_file": "k1.secret",
    "agent.control": "unix@{}/control",
    "agent.threads": 63,
    "agent.lookup": "201ms",
    "agent.max_subscriptions": 1001,
    "agent.name_servers": ["192.0.2.1"],
    "agent.ticket_secret_file": "other.secret",
    "relay.listen": "unix@{}/relay",
    "relay.agent": "unix@{}/agent-relay",
    "relay.admin": "unix@{}/admin",
    "relay.monitor": "127.0.0.1:1",
    "relay.monitor_token_file": "k1.secret",
    "relay.control": "unix@{}/control",
    "relay.threads": 63,
    "relay.buffer": "17KiB",
    "relay.max_restarts": 6,
    "relay.upgrade_timeout": "11s",
    "renew.redis": "127.0.0.1:1",
    "renew.user": "another",
    "renew.password_file": "k1.secret",
    "renew.database": 1,
    "renew.key": "another",
    "renew.every": "61s",
    "renew.max_length": 1,
    "egress.lookup": "699ms",
}


def test_a_reload_names_the_keys_that_it_does_not_change(cells, tmp_path):
    cell = cells(config={"relay": {"threads": 1}})
    options = subprocess.check_output([BIN / "cellgate", "options"], text=True)
    assert set(re.findall(r"^ *([a-z0-9_.]+)(?: .*)?\n.*; a change needs a restart\)$", options, re.M)) == set(OTHERWISE)
    config = cell.config | {"relay": {"threads": 1}}
    for key, value in OTHERWISE.items():
        *section, name = key.split(".")
        to = config.setdefault(*section, {}) if section else config
        to[name] = value.format(tmp_path) if isinstance(value, str) else value

    def reload(who):
        """The keys that the daemon names at a reload."""
        file = cell.run_dir / f"{who}.log"
        before = len(file.read_text())
        cell.kill(who, signal.SIGHUP)
        until(lambda: re.search("msg=.*reloaded", file.read_text()[before:]), 10, f"{who} does not reload")
        # the agent's warnings follow the line of the reload
        return lambda: set(re.findall(r'msg="a change of this key needs a restart" key=(\S+)', file.read_text()[before:]))

    assert reload("agent")() == reload("relay")() == set()
    cell.config_file.write_text(json.dumps(config))
    for who in ("agent", "relay"):
        mine = {key for key in OTHERWISE if "." not in key or key.startswith("relay.") == (who == "relay")}
        overridden = set(re.findall("-o\0([a-z_.]+)=", Path(f"/proc/{cell.pid(who)}/cmdline").read_text()))
        named, wanted = reload(who), mine - overridden
        until(lambda named=named, wanted=wanted: named() == wanted, 10, f"{who} does not name {wanted}, and no other")


def test_a_daemon_that_is_stopped_is_waited_for_and_told(tunnels, operator):
    if not os.environ.get("CELLGATE_LONG"):
        pytest.skip("takes the 10 s that an operator's command waits; CELLGATE_LONG=1")
    pid = tunnels.cell.pid("relay")
    stop(pid)
    try:
        code, _, errors = operator("tunnels")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert code == 1 and errors.startswith("cellgate: the relay: ")
