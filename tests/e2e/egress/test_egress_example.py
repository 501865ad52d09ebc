# SPDX-License-Identifier: MIT
"""examples/egress as somebody starts it: each line that it prints does what it says."""

import os
import re
import signal
import subprocess
import time

import pytest
from cell import BIN, ROOT, end, until


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("egress")
    environment = os.environ | {"HTTP_PORT": "0", "HTTPS_PORT": "0", "EGRESS_PORT": "0", "RUN_DIR": str(folder / "run"), "CELLGATE_BIN": str(BIN)}
    log = folder / "out"
    with open(log, "wb") as out:
        process = subprocess.Popen([ROOT / "examples/egress/run"], stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        lines = dict(re.findall(r"^  (\w[\w ,]*?) {2,}(\S.*?)(?: {6}\(.*)?$", log.read_text(), re.M))
        yield folder / "run", lines
    finally:
        process.send_signal(signal.SIGTERM)
        end(process)


def run(line):
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def test_what_is_allowed(printed):
    _, lines = printed
    answer = run(lines["Allowed, raw"])[1].splitlines()
    assert answer[0].endswith("(HTTP/2.0)") and answer[1] == "Authorization: "  # curl's own
    answer = run(lines["Allowed, read"])[1].splitlines()
    assert answer[0].startswith("GET https://api.example.org:") and answer[0].endswith("(HTTP/2.0)")  # HAProxy's
    assert answer[1] == "Authorization: Bearer of-the-cell-and-no-sandbox's"


def test_what_is_refused(printed):
    folder, lines = printed
    for name in ("Refused, path", "Refused, method"):
        assert '"error":"egress_denied"' in run(lines[name])[1]
    assert "response 403" in run(lines["Refused, host"])[2]
    assert "response 407" in run(lines["Nobody asks"])[2]
    code, text, _ = run(lines["Why"])
    assert code == 1 and "its rule does not allow this method" in text


def test_a_change_of_the_file_counts_at_once(printed):
    folder, lines = printed
    path = folder / "sandboxes.json"
    path.write_text(path.read_text().replace('"read-only"', '"full"'))
    until(lambda: run(lines["Refused, method"])[1].startswith("DELETE "), 10)


def test_nothing_is_left_when_it_ends(printed, tmp_path):
    environment = os.environ | {"HTTP_PORT": "0", "HTTPS_PORT": "0", "EGRESS_PORT": "0", "RUN_DIR": str(tmp_path / "run"), "CELLGATE_BIN": str(BIN)}
    with open(tmp_path / "out", "wb") as out:
        # a shell that runs the tests in the background has taken the signal away
        process = subprocess.Popen(["env", "--default-signal=INT", ROOT / "examples/egress/run"], stdout=out, stderr=subprocess.STDOUT, env=environment)
    until(lambda: "Ctrl-C" in (tmp_path / "out").read_text() or process.poll() is not None, 60)
    pids = [int((tmp_path / "run" / f"{name}.pid").read_text()) for name in ("haproxy", "agent", "relay")]
    process.send_signal(signal.SIGINT)
    process.wait(20)
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
