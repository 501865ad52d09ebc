# SPDX-License-Identifier: MIT
"""examples/quickstart/up: what it says when it cannot, and that it leaves nothing behind."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from cell import BIN, ROOT, until
from client import Http1

UP = ROOT / "examples/quickstart/up"


def up(*arguments):
    environment = os.environ | {"CELLGATE_BIN": str(BIN)}
    return subprocess.run([UP, *arguments], env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "cellgate.json"
    path.write_text('{"worker_networks": ["127.0.0.0/8"], "directory": {"kind": "file", "path": "sandboxes.json"}, "tokens": [], "open": true, "systems": ["opensandbox"]}')
    (tmp_path / "sandboxes.json").write_text('{"sandboxes": {}}')
    return path


@pytest.mark.parametrize("flag", ["--http-port", "--https-port"])
def test_a_port_that_is_taken_is_named(config, tmp_path, flag):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        other = "--https-port" if flag == "--http-port" else "--http-port"
        done = up("--config", config, "--run-dir", tmp_path / "run", flag, str(port), other, "0")
    assert done.returncode != 0 and f"port {port} is taken" in done.stderr
    assert done.stdout == ""


def test_a_port_that_only_root_may_have_is_named(config, tmp_path):
    haproxy = tmp_path / "haproxy"
    haproxy.write_text("#!/bin/sh\necho '[ALERT] (1) : Starting frontend cellgate: cannot bind socket (Permission denied) [127.0.0.1:1]' >&2; exit 1\n")
    haproxy.chmod(0o755)
    done = up("--config", config, "--run-dir", tmp_path / "run", "--http-port", "1", "--https-port", "0", "--haproxy", str(haproxy))
    assert done.returncode != 0 and "port 1 is not for this user (--http-port)" in done.stderr


@pytest.mark.parametrize(
    "arguments,what",
    [
        ([], "--config and --run-dir are needed"),
        (["--config"], "--config needs a value"),
        (["--nonsense", "x"], "unknown argument --nonsense"),
        (["--config", "/nonexistent", "--run-dir", "/tmp/x"], "cannot read /nonexistent"),
    ],
)
def test_wrong_arguments(arguments, what):
    done = up(*arguments)
    assert done.returncode != 0 and what in done.stderr


@pytest.mark.parametrize("port", ["65536", "-1", "http", ""])
def test_what_is_no_port(config, tmp_path, port):
    done = up("--config", config, "--run-dir", tmp_path / "run", "--http-port", port)
    assert done.returncode != 0 and "is not a port" in done.stderr


def test_a_bad_configuration_is_shown(config, tmp_path):
    config.write_text('{\n  "cell": 7\n}')
    done = up("--config", config, "--run-dir", tmp_path / "run", "--http-port", "0", "--https-port", "0")
    assert done.returncode != 0 and "cellgate.json:2:" in done.stderr


def test_a_haproxy_that_does_not_start_ends_everything(config, tmp_path):
    done = up("--config", config, "--run-dir", tmp_path / "run", "--http-port", "0", "--https-port", "0", "--haproxy", "false")
    assert done.returncode != 0 and "haproxy ended at start" in done.stderr
    assert not list((tmp_path / "run").glob("*.pid"))


def test_a_folder_in_which_another_one_runs_is_named_and_left_alone(cells):
    cell = cells()
    before = {path.name: path.read_text() for path in cell.run_dir.glob("*.pid")}
    done = up("--config", cell.config_file, "--run-dir", cell.run_dir, "--http-port", "0", "--https-port", "0")
    assert done.returncode != 0 and f"another up runs in {cell.run_dir}" in done.stderr
    assert before and before == {path.name: path.read_text() for path in cell.run_dir.glob("*.pid")}


def test_it_leaves_nothing_running(cells):
    cell = cells()
    pids = [int(path.read_text()) for path in cell.run_dir.glob("*.pid")]
    assert len(pids) >= 2
    cell.up.send_signal(signal.SIGTERM)
    assert cell.up.wait(20) == 0
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_what_it_started_ends_when_it_is_killed(cells):
    cell = cells()
    pids = [int(path.read_text()) for path in cell.run_dir.glob("*.pid")]
    cell.up.kill()
    until(lambda: not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], 20)


def test_a_haproxy_with_a_master_is_one_too(cells):
    """Its worker has the sockets, and everything ends with the master."""
    cell = cells(haproxy=os.environ.get("HAPROXY", "haproxy") + " -W")
    master = int((cell.run_dir / "haproxy.pid").read_text())
    workers = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    assert len(workers) == 1
    with Http1(cell.http) as client:
        assert client.request("GET", "/").status == 404
    cell.up.send_signal(signal.SIGTERM)
    assert cell.up.wait(20) == 0
    assert not [pid for pid in [master, *workers] if os.path.exists(f"/proc/{pid}")]
