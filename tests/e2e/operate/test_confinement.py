# SPDX-License-Identifier: MIT
"""What agent and relay may do once they run: their system calls, and who may speak to whom where they have accounts of their
own. That the tables of system calls are enough is what all other tests show: they run with `seccomp: kill`."""
import json
import os
import pwd
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from cell import BIN, until

SANITIZED = any(word in str(BIN) for word in ("/san-", "/cov/"))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run the daemons as others")
AGENT, RELAY, STRANGER, HAPROXY = "daemon", "games", "nobody", "haproxy"  # accounts that Debian and its HAProxy have


def threads_of(pid):
    """What the kernel says of each thread: {field: value}."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield dict(line.split(":\t", 1) for line in (thread / "status").read_text().splitlines() if ":\t" in line)


@pytest.mark.skipif(SANITIZED, reason="a build that needs more system calls does without")
@pytest.mark.parametrize("mode", ["on", "kill", "off"])
def test_all_threads_are_confined_unless_the_operator_says_otherwise(cells, mode):
    cell = cells(config={"seccomp": mode})
    for name in ("agent", "relay"):
        threads = list(threads_of(cell.pid(name)))
        assert len(threads) > 2
        assert {thread["Seccomp"] for thread in threads} == {"0" if mode == "off" else "2"}
        assert {thread["NoNewPrivs"] for thread in threads} == {"0" if mode == "off" else "1"}


# ---- accounts ----


def as_user(name, *command, groups=()):
    """The command line that runs as that account, a name or a number, in no group but its own and these."""
    uid, gid = (name, name) if name.isdigit() else pwd.getpwnam(name)[2:4]
    others = ["--groups", ",".join(str(pwd.getpwnam(group).pw_gid) for group in groups)] if groups else ["--clear-groups"]
    return ["setpriv", "--reuid", str(uid), "--regid", str(gid), *others, *[str(c) for c in command]]


class Agent:
    """An agent with an account of its own, in a folder that everybody may enter and it may write."""

    def __init__(self, folder, groups=(), **settings):
        self.folder = Path(folder)
        self.folder.chmod(0o755)
        os.chown(folder, pwd.getpwnam(AGENT).pw_uid, -1)
        (self.folder / "sandboxes.json").write_text('{"sandboxes": {}}')
        sockets = {key: f"unix@{folder}/{key}" for key in ("listen", "relay_listen", "admin", "control")}
        config = {"cell": "test", "seccomp": "kill", "open": True, "tokens": [], "worker_networks": ["127.0.0.0/8"], "directory": {"kind": "file", "path": "sandboxes.json"},
                  "routes": [{"name": "all", "path": "/{sandbox}", "need": "none"}], "agent": sockets | settings}
        (self.folder / "cellgate.json").write_text(json.dumps(config))
        self.log = self.folder / "agent.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(as_user(AGENT, BIN / "cellgate-agent", "-c", self.folder / "cellgate.json", groups=groups),
                                            stderr=log, start_new_session=True)

    def started(self):
        """Whether it stands; its exit tells that it will not."""
        return until(lambda: self.process.poll() is not None or (self.folder / "control").exists() and "directory" in self.log.read_text(), 20) \
            and self.process.poll() is None

    def answers(self, user, listener, groups=()):
        """Whether somebody of that account gets an answer."""
        script = ("import struct, sys; sys.path.insert(0, sys.argv[1])\nfrom false_agent import FalseHaproxy\n"
                  "try: FalseHaproxy(sys.argv[2]); print('answered')\nexcept (OSError, struct.error): print('refused')")
        command = as_user(user, "/usr/bin/python3", "-B", "-c", script, Path(__file__).parents[1] / "support", self.folder / listener, groups=groups)
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip() == "answered"

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def agent():
    agents = []
    with tempfile.TemporaryDirectory(prefix="cg-") as folder:

        def make(**arguments):
            agents.append(Agent(folder, **arguments))
            return agents[-1]

        yield make
        for each in agents:
            each.stop()


@as_root
def test_only_the_relays_account_may_ask_for_what_records_hold(agent):
    it = agent(groups=[RELAY], relay_user=RELAY)
    assert it.started(), it.log.read_text()
    socket = it.folder / "relay_listen"
    assert socket.stat().st_gid == pwd.getpwnam(RELAY).pw_gid and socket.stat().st_mode & 0o777 == 0o660
    assert it.answers(RELAY, "relay_listen") and it.answers(AGENT, "relay_listen") and it.answers("root", "relay_listen")
    assert not it.answers(STRANGER, "relay_listen")
    # whom the file's mode lets in is refused all the same: HAProxy shares the agent's group, others may have got it
    assert not it.answers(STRANGER, "relay_listen", groups=[RELAY])
    socket.chmod(0o666)
    assert not it.answers(STRANGER, "relay_listen", groups=[AGENT, RELAY])
    assert it.answers(RELAY, "relay_listen")


@as_root
@pytest.mark.parametrize("says", [{}, {"haproxy_user": HAPROXY}, {"haproxy_user": "number"}], ids=["by default", "by name", "by number"])
def test_each_account_gets_an_answer_on_its_own_socket_alone(agent, says):
    """All share the agent's group, as those of a pod do, so the socket's file lets each of them in."""
    number = str(pwd.getpwnam(HAPROXY).pw_uid)
    it = agent(groups=[RELAY], relay_user=RELAY, **{key: number if value == "number" else value for key, value in says.items()})
    assert it.started(), it.log.read_text()
    may = {"listen": {"root", AGENT, HAPROXY}, "relay_listen": {"root", AGENT, RELAY}}
    for listener, accounts in may.items():
        (it.folder / listener).chmod(0o666)
        answered = {user for user in ("root", AGENT, HAPROXY, RELAY, STRANGER) if it.answers(user, listener, groups=[AGENT, RELAY])}
        assert answered == accounts, listener
    uid = pwd.getpwnam(RELAY).pw_uid
    said = [line for line in it.log.read_text().splitlines() if "may not connect" in line]
    assert any("agent.listen" in line and f"uid={uid}" in line for line in said), said
    assert len(said) <= 2 * 2 * os.cpu_count()  # once in a while, of each thread and socket


@as_root
def test_the_groups_of_a_pod_do_not_let_its_relay_ask_as_haproxy(agent):
    """An account without a line in /etc/passwd, as HAProxy's and the relay's are in an agent's container."""
    it = agent(haproxy_user="10003")
    assert it.started(), it.log.read_text()
    (it.folder / "listen").chmod(0o660)
    assert it.answers("10003", "listen", groups=[AGENT])
    assert not it.answers("10002", "listen", groups=[AGENT])


@as_root
def test_without_it_the_group_that_haproxy_shares_is_not_enough(agent):
    it = agent()
    assert it.started(), it.log.read_text()
    assert it.answers(HAPROXY, "listen", groups=[AGENT])
    assert not it.answers(HAPROXY, "relay_listen", groups=[AGENT])
    assert it.answers(AGENT, "relay_listen")


@as_root
@pytest.mark.parametrize(
    "user,says",
    [({"relay_user": "cellgate-no-such"}, "agent.relay_user: there is no account cellgate-no-such"), ({"relay_user": RELAY}, "cannot give"),
     ({"haproxy_user": "cellgate-no-such"}, "agent.haproxy_user: there is no account cellgate-no-such"),
     ({"haproxy_user": "nobody"}, "agent.haproxy_user: the kernel uses nobody for accounts"),
     ({"haproxy_user": HAPROXY, "listen": "127.0.0.1:0", "trust_tcp": True}, "agent.haproxy_user cannot be checked on TCP")],
)
def test_an_account_that_cannot_be_served_is_told_at_the_start(agent, user, says):
    it = agent(**user)  # not in the relay's group
    assert not it.started()
    assert it.process.wait() == 1 and says in it.log.read_text()


@as_root
def test_a_relay_that_cannot_see_the_new_configuration_says_so(tmp_path):
    """As the unit shows it the file: by a mount, which a file that takes its place does not change."""
    real, shown = tmp_path / "real.json", tmp_path / "shown.json"
    sockets = {key: f"unix@{tmp_path}/{key}" for key in ("listen", "admin", "control")}
    text = json.dumps({"cell": "test", "open": True, "tokens": [], "worker_networks": ["127.0.0.0/8"], "directory": {"kind": "file", "path": "x"},
                       "routes": [{"name": "all", "path": "/{sandbox}", "need": "none"}], "relay": sockets})
    real.write_text(text)
    shown.touch()
    command = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" "$2" && exec "$3" -c "$2"', "sh", real, shown, BIN / "cellgate-relay"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    said = lambda: (tmp_path / "log").read_text()
    try:
        until(lambda: "relay started" in said(), 10, "it does not start")
        real.write_text(text)  # over it: seen
        process.send_signal(signal.SIGHUP)
        until(lambda: "configuration reloaded" in said(), 10, "it does not reload")
        (tmp_path / "new.json").write_text(text)
        (tmp_path / "new.json").rename(real)
        process.send_signal(signal.SIGHUP)
        until(lambda: "another file replaced it" in said(), 10, "it does not say so")
    finally:
        process.terminate()
        process.wait(10)


DIRECTORIES = [{"kind": "redis", "server": "127.0.0.1:1", "password_file": "directory.secret"}, {"kind": "http", "url": "http://127.0.0.1:1", "token_file": "directory.secret"}]


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory["kind"])
def test_a_secret_that_everybody_can_read_is_told(tmp_path, directory):
    names = ["key.secret", "directory.secret", "renew.secret", "ticket.secret"]
    for name in names:
        (tmp_path / name).write_text("k" * 48)
        (tmp_path / name).chmod(0o600 if name == "ticket.secret" else 0o644)
    sockets = {key: f"unix@{tmp_path}/{key}" for key in ("listen", "relay_listen", "admin", "control")}
    config = {"cell": "test", "worker_networks": ["127.0.0.0/8"], "directory": directory, "tokens": [{"kind": "jwt", "alg": "HS256", "kid": "k", "secret_file": "key.secret"}],
              "renew": {"redis": "127.0.0.1:1", "password_file": "renew.secret"}, "routes": [{"name": "all", "path": "/{sandbox}"}],
              "agent": sockets | {"ticket_secret_file": "ticket.secret"}}
    (tmp_path / "cellgate.json").write_text(json.dumps(config))
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([BIN / "cellgate-agent", "-c", tmp_path / "cellgate.json"], stderr=log)
    said = lambda: [line for line in (tmp_path / "log").read_text().splitlines() if "everybody can read" in line and "should be 600" in line]
    told = lambda: sorted(name for name in names for line in said() if f"/{name}" in line)
    try:
        until(lambda: process.poll() is not None or len(told()) >= 3, 20, "it does not say so")
        assert told() == sorted(names[:3]), (tmp_path / "log").read_text()
        (tmp_path / "key.secret").chmod(0o600)
        (tmp_path / "ticket.secret").chmod(0o640)
        process.send_signal(signal.SIGHUP)
        # more often, if it has seen for itself before that a file has changed
        until(lambda: all(told().count(name) >= 2 for name in names[1:3]), 10, "it does not say so again")
        assert (told().count("key.secret"), told().count("ticket.secret")) == (1, 0)
    finally:
        process.terminate()
        process.wait(10)
