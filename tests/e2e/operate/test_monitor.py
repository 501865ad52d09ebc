# SPDX-License-Identifier: MIT
"""The listeners for a kubelet and a Prometheus (agent.monitor, relay.monitor), and `cellgate wait`, with which the
containers of a pod end one after the other."""

import contextlib
import http.client
import os
import socket
import subprocess
import time

import pytest
from cell import AT_ONCE, BIN, free_port

TOKEN = "scrape-me"
NAMED = {"Host": "cellgate.cellgate.svc.cluster.local:9103"}


@pytest.fixture(scope="module")
def ports():
    return {"agent": free_port(), "relay": free_port()}


@pytest.fixture(scope="module")
def cell(cells, ports):
    config = {name: {"monitor": f"0.0.0.0:{port}", "monitor_token_file": "monitor.token"} for name, port in ports.items()}
    config["relay"] |= {"drain": "1s"}
    return cells(config=config | {"routes": [{"name": "s", "path": "/s/{sandbox}", "need": "none"}]}, files={"monitor.token": TOKEN.encode() + b"\n"})


def ask(port, path, headers=NAMED, method="GET", address="127.0.0.2"):
    """By another address than loopback's usual one: the listener stands on all."""
    connection = http.client.HTTPConnection(address, port, timeout=5)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_probes_are_answered_by_any_name_and_without_a_token(cell, ports, name):
    assert ask(ports[name], "/livez") == (200, "ok\n")
    assert ask(ports[name], "/readyz") == (200, "ready\n")
    assert ask(ports[name], "/livez", method="HEAD") == (200, "")


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_metrics_want_the_token_as_the_file_has_it_now(cell, ports, name):
    def status(token):
        return ask(ports[name], "/metrics", NAMED | ({"Authorization": "Bearer " + token} if token else {}))[0]

    assert [status(token) for token in (TOKEN, "", "wrong", TOKEN + "x")] == [200, 401, 401, 401]
    assert f"cellgate_{name}_" in ask(ports[name], "/metrics", NAMED | {"Authorization": "Bearer " + TOKEN})[1]
    # as kubectl does it: another file under the same name
    (cell.folder / "new.token").write_text("second\n")
    (cell.folder / "new.token").rename(cell.folder / "monitor.token")
    assert [status(token) for token in ("second", TOKEN)] == [200, 401]
    (cell.folder / "monitor.token").unlink()
    assert status("second") == 401 and ask(ports[name], "/livez")[0] == 200
    (cell.folder / "monitor.token").write_text(TOKEN)


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_nothing_else_is_there(cell, ports, name):
    bearer = NAMED | {"Authorization": "Bearer " + TOKEN}
    for path in ("/", "/status", "/tunnels", "/stats", "/healthz", "/live.js", "/metrics/", "//metrics", "/livez/../tunnels", "/drain"):
        assert ask(ports[name], path, bearer)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(ports[name], "/metrics", bearer, method)[0] == 405
    assert ask(ports[name], "/livez", NAMED | {"Origin": "http://evil.example"})[0] == 403
    # and the pages of operators stay what they were
    assert ask(cell.ports[f"{name}-admin"], "/healthz", {"Host": "localhost"}, address="127.0.0.1")[0] == 200
    assert ask(cell.ports[f"{name}-admin"], "/healthz", address="127.0.0.1")[0] == 421


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_who_holds_connections_open_does_not_fail_the_probe(cell, ports, name):
    """A pod whose liveness probe fails is killed with all its tunnels."""
    with contextlib.ExitStack() as stack:
        for i in range(300):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", ports[name]), 5))
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: a" if i % 2 else b"")
        before = time.monotonic()
        assert ask(ports[name], "/livez") == (200, "ok\n")
        assert time.monotonic() - before < AT_ONCE


@pytest.mark.parametrize("name", ["agent", "relay"])
def test_who_does_not_close_what_was_answered_does_not_fail_the_probe(cell, ports, name):
    """Nor holds descriptors: such connections linger, and go first."""
    def descriptors():
        return len(os.listdir(f"/proc/{cell.pid(name)}/fd"))

    before = descriptors()
    with contextlib.ExitStack() as stack:
        probe = stack.enter_context(socket.create_connection(("127.0.0.1", ports[name]), 5))
        for i in range(400):
            if i == 300:  # a probe that is slow to speak
                probe = stack.enter_context(socket.create_connection(("127.0.0.1", ports[name]), 5))
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", ports[name]), 5))
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 200"
        assert descriptors() - before < 64 + 32
        probe.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
        assert probe.recv(12) == b"HTTP/1.1 200"


def test_a_token_that_cannot_be_read_is_an_error_at_the_start(cell, tmp_path):
    for file, why in (("nowhere.token", "nowhere.token"), ("empty.token", "the first line is empty")):
        (cell.folder / "empty.token").write_text("\n")
        options = ["-o", f"agent.monitor_token_file={cell.folder}/{file}", "-o", f"agent.monitor=127.0.0.1:{free_port()}"]
        for key in ("listen", "relay_listen", "control"):
            options += ["-o", f"agent.{key}=unix@{tmp_path}/{key}"]
        options += ["-o", f"agent.admin=unix@{tmp_path}/admin"]
        done = subprocess.run([BIN / "cellgate-agent", "-c", cell.config_file, *options], capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and why in done.stderr, done.stderr


# ---- cellgate wait ----


def wait(*arguments):
    return subprocess.Popen([BIN / "cellgate", "wait", *arguments], stderr=subprocess.PIPE, text=True)


def ended(process, seconds=10):
    try:
        return process.wait(seconds), process.stderr.read()
    finally:
        process.kill()


def test_wait_ends_after_its_time():
    before = time.monotonic()
    assert ended(wait("--for", "300ms")) == (0, "")
    assert 0.3 <= time.monotonic() - before < 5


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_wait_ends_when_nobody_listens_any_more(tmp_path, family):
    path = tmp_path / "s"
    listener = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET)
    listener.bind(str(path) if family == "unix" else ("127.0.0.1", 0))
    listener.listen(1)  # which the process that waits fills at once: a full backlog is somebody
    address = f"unix@{path}" if family == "unix" else f"127.0.0.1:{listener.getsockname()[1]}"
    waiting = wait("--gone", address, "--gone", f"unix@{tmp_path}/never-there", "--for", "200ms")
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1.5)
    before = time.monotonic()
    listener.close()
    assert ended(waiting) == (0, "")
    assert time.monotonic() - before >= 0.2


def test_wait_says_who_listens_for_too_long():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        code, said = ended(wait("--gone", address, "--at-most", "300ms"))
    assert code == 1 and address in said


@pytest.mark.parametrize("arguments", [(), ("--for",), ("--for", "3"), ("--gone", "nowhere"), ("--for", "1s", "--for", "2s"), ("x",)])
def test_wait_understands_nothing_else(arguments):
    code, said = ended(wait(*arguments))
    assert code == 2 and "usage" in said

