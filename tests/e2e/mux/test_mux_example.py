# SPDX-License-Identifier: MIT
"""examples/mux as somebody starts it: the line that it prints does what docs/mux.md says."""

import os
import re
import signal
import subprocess

import pytest
from cell import BIN, ROOT, end, until


@pytest.fixture
def printed(tmp_path):
    environment = os.environ | {"HTTP_PORT": "0", "HTTPS_PORT": "0", "RUN_DIR": str(tmp_path / "run"), "CELLGATE_BIN": str(BIN)}
    log = tmp_path / "out"
    with open(log, "wb") as out:
        process = subprocess.Popen([ROOT / "examples/mux/run"], stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        yield dict(re.findall(r"^  (\w[\w ]*?) {2,}(\S.*?)(?: {6}\(.*)?$", log.read_text(), re.M))
    finally:
        process.send_signal(signal.SIGTERM)
        end(process)


def has_websocket():
    """Of node 20 and later."""
    try:
        return subprocess.run(["node", "--experimental-websocket", "-e", "WebSocket"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not has_websocket(), reason="no node that has a WebSocket")
def test_two_requests_over_one_websocket(printed):
    asked = printed["Two requests"].replace("node ", "node --experimental-websocket ", 1)
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=30)
    whole = len((ROOT / "examples/mux/mux.js").read_text())
    assert re.fullmatch(rf"200 {whole}\n404 \d+\n", done.stdout), done
