# SPDX-License-Identifier: MIT
"""What `make run` starts, used as its reader would: the printed URL in a browser, the printed command in a terminal."""

import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from browser import Browser
from cell import BIN, ROOT, until
from network import outside

ROWS = ".xterm-rows"
PROMPT = re.compile(rb"[$#]")  # a user's, or root's


def processes_below(folder):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.fixture(scope="module", autouse=True)
def packages(tmp_path_factory):
    """What npm fetches, once, is there before programs run that cannot reach it."""
    subprocess.run(outside(ROOT / "examples/quickstart/ui/build", tmp_path_factory.mktemp("ui")), check=True, timeout=120)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("q") / "r n"  # what is printed is to be copied as it is
    environment = os.environ | {"HTTP_PORT": "0", "HTTPS_PORT": "0", "RUN_DIR": str(folder), "HOME": str(folder.parent), "CELLGATE_BIN": str(BIN)}
    # a shell that runs the tests in the background has told them to ignore Ctrl-C
    process = subprocess.Popen(["env", "--default-signal=INT", ROOT / "examples/quickstart/run"], env=environment, stdout=subprocess.PIPE)
    text, deadline = "", time.monotonic() + 120
    while "Ctrl-C" not in text:
        assert process.poll() is None and time.monotonic() < deadline, text
        if select.select([process.stdout], [], [], 0.5)[0]:
            text += os.read(process.stdout.fileno(), 4096).decode()
    yield folder, text
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert until(lambda: not processes_below(folder), 10, "something was left running")


def test_the_printed_url_opens_a_terminal_that_counts_to_42(quickstart):
    _, text = quickstart
    url = re.search(r"http://\S+#\S+", text)[0]
    with Browser() as browser:
        browser.open(url)
        browser.wait(lambda: PROMPT.search(browser.text(ROWS).encode()), "a prompt")
        browser.type("echo $((6*7))\n")
        browser.expect(ROWS, "42")


def test_the_same_page_works_on_tls(quickstart):
    _, text = quickstart
    secure = re.search(r"https://\S+", text)[0]
    with Browser("--ignore-certificate-errors") as browser:
        browser.open(secure)
        browser.wait(lambda: PROMPT.search(browser.text(ROWS).encode()), "a prompt")
        browser.type("echo tls-$((6*7))\n")
        browser.expect(ROWS, "tls-42")


def test_the_printed_command_attaches_a_terminal(quickstart):
    _, text = quickstart
    command = shlex.split(re.search(r"\S+cellgate attach .*", text)[0])
    terminal, other = pty.openpty()
    process = subprocess.Popen(["setsid", "--ctty", *command], stdin=other, stdout=other, stderr=other)
    os.close(other)
    seen = b""

    def read_until(mark):
        nonlocal seen
        deadline = time.monotonic() + 10
        while not re.search(mark, seen):
            assert time.monotonic() < deadline, seen
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 4096)

    read_until(PROMPT)
    os.write(terminal, b"echo $((6*7)); exit 5\r")
    read_until(b"42")
    assert process.wait(10) == 5
    os.close(terminal)


def served_by(folder):
    return re.search(r"http://(127.0.0.1:\d+)", (folder / "plane.json").read_text())[1]


def printed(text, verb):
    return shlex.split(re.search(rf"\S+cell-plane .* {verb} sb-1", text)[0])


def test_the_printed_move_goes_on_in_the_same_terminal(quickstart):
    """The page is open while the sandbox moves there and back: the same shell, without a reload."""
    folder, text = quickstart
    workers = re.search(r"two workers \(([^)]*)\)", text)[1].split()
    with Browser() as browser:
        browser.open(re.search(r"http://\S+#\S+", text)[0])
        browser.wait(lambda: PROMPT.search(browser.text(ROWS).encode()), "a prompt")
        browser.type("mine=$((6*7))\n")
        for number in range(2):
            before = served_by(folder)
            subprocess.run(printed(text, "move"), check=True, timeout=20)
            assert {before, served_by(folder)} == set(workers)
            browser.type(f"echo moved-{number}-$mine\n")
            browser.expect(ROWS, f"moved-{number}-42")
        assert sum("#token=" in url or "/ui/sb-1/" in url and url.endswith("/") for url in browser.requests()) == 1


def test_a_sandbox_that_was_sent_to_sleep_is_woken_by_its_next_visitor(quickstart):
    folder, text = quickstart
    subprocess.run(printed(text, "suspend"), check=True, timeout=20)
    until(lambda: "suspended" in (folder / "plane.json").read_text())
    with Browser() as browser:
        browser.open(re.search(r"http://\S+#\S+", text)[0])
        browser.wait(lambda: PROMPT.search(browser.text(ROWS).encode()), "a prompt")
    assert "running" in (folder / "plane.json").read_text()


def test_the_printed_explanation_asks_the_control_plane(quickstart):
    _, text = quickstart
    command = re.search(r"\S+cellgate explain --config .* '[^']*'", text)[0]
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and re.search(r"worker +127.0.0.1", done.stdout), done


def test_the_worker_is_killed_and_the_browser_counts_on_without_a_gap(quickstart):
    folder, text = quickstart
    name = "ab"[re.search(r"two workers \(([^)]*)\)", text)[1].split().index(served_by(folder))]
    with Browser() as browser:
        browser.open(re.search(r"http://\S+#\S+", text)[0])
        browser.wait(lambda: PROMPT.search(browser.text(ROWS).encode()), "a prompt")
        browser.type("seq 1 300000 >~/all & for i in $(seq 1 60); do echo n$i; sleep 0.05; done; echo over-$((6*7))\n")
        browser.expect(ROWS, "n10")
        os.kill(int((folder / f"worker-{name}.pid").read_text()), signal.SIGKILL)
        browser.expect(ROWS, "over-42")
        lines = re.findall(r"\bn(\d+)\b", browser.text(ROWS))
        last = lines[lines.index("60") - 15 : lines.index("60") + 1]
        assert last == [str(n) for n in range(45, 61)]


def test_a_mistyped_record_is_told_to_who_typed_it(quickstart):
    folder, _ = quickstart
    record = '{"worker": "http://127.0.0.1:9", "sate": "stopped"}'
    done = subprocess.run([BIN / "cell-plane", "--control", folder / "plane.sock", "set", "sb-9", record], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1 and 'a record has no key "sate"' in done.stderr, done


def test_the_printed_page_of_the_relay_is_there(quickstart):
    _, text = quickstart
    with urllib.request.urlopen(re.search(r"Watch the relay +(\S+)", text)[1], timeout=10) as page:
        assert b"cellgate-relay" in page.read()


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        environment = {k: v for k, v in os.environ.items() if k != "RUN_DIR"} | {"HTTP_PORT": port, "HTTPS_PORT": "0", "CELLGATE_BIN": str(BIN)}
        done = subprocess.run([ROOT / "examples/quickstart/run"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert f"port {port} is taken" in done.stderr and "HTTP_PORT" in done.stderr


@pytest.mark.parametrize("name", ["cellgate-agent", "cellgate-relay", "cellgate", "cell-worker", "cell-sandboxd", "cell-plane"])
def test_every_program_explains_itself(name):
    done = subprocess.run([BIN / name, "--help"], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0 and "usage" in done.stdout.lower(), done
    wrong = subprocess.run([BIN / name, "--no-such-flag"], capture_output=True, text=True, timeout=10)
    assert wrong.returncode == 2 and wrong.stderr, wrong
