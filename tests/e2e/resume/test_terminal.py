# SPDX-License-Identifier: MIT
"""The quickstart's terminals, in a browser and in a terminal, through HAProxy and the agent to a real shell."""

import json
import os
import re
import subprocess
import time

import pytest
from browser import Browser
from cell import BIN, ROOT, on_worker, token, until
from network import outside

QUICKSTART = ROOT / "examples/quickstart"
ROWS = ".xterm-rows"


@pytest.fixture(scope="module")
def cell(cells, tmp_path_factory):
    pages = tmp_path_factory.mktemp("ui")
    subprocess.run(outside(QUICKSTART / "ui/build", pages), check=True, timeout=120)
    text = re.sub(r"^\s*//.*$", "", (QUICKSTART / "cellgate.json").read_text(), flags=re.M)
    cell = cells(config={"routes": json.loads(text)["routes"], "worker_networks": ["127.0.0.0/8"]})
    address = cell.worker(cell.sandboxd(), "worker", "--ui", pages)
    cell.worker_port = int(address.rpartition(":")[2])
    cell.set_sandboxes(**{"sb-1": on_worker(f"http://{address}", epoch=1)})
    # the file is read a moment after it was written
    until(lambda: attach(terminal_url(cell), token=cell.token()).returncode == 7, 15)
    return cell


@pytest.fixture(scope="module")
def browser():
    with Browser("--ignore-certificate-errors") as browser:
        yield browser


def terminal_url(cell, scheme="ws"):
    port = cell.https if scheme == "wss" else cell.http
    return f"{scheme}://127.0.0.1:{port}/v1/sandboxes/sb-1/proxy/{cell.worker_port}/terminal"


def attach(*arguments, token="", input=b"exit 7\n"):
    environment = {**os.environ, "CELLGATE_TOKEN": token}
    if not token:
        del environment["CELLGATE_TOKEN"]
    command = [BIN / "cellgate", "attach", *arguments]
    return subprocess.run(command, input=input, capture_output=True, timeout=60, env=environment)


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_a_shell_in_a_terminal(cell, scheme):
    done = attach("--insecure", terminal_url(cell, scheme), token=cell.token(), input=b"echo $((6*7)); exit 5\n")
    assert done.returncode == 5, done.stderr
    assert b"\r42\r\n" in done.stdout


def test_the_end_of_a_pipe_ends_the_shell(cell):
    done = attach(terminal_url(cell), token=cell.token(), input=b"sleep 1; echo $((6*7))")
    assert done.returncode == 0, done.stderr
    assert b"\r42\r\n" in done.stdout


def expired():
    return {"iat": int(time.time()) - 120, "exp": int(time.time()) - 60}


@pytest.mark.parametrize(
    "credential, told",
    [
        (lambda cell: "", b"closed with 4401 token_missing"),
        (lambda cell: "no.token.atall", b"closed with 4401 token_invalid"),
        (lambda cell: cell.token(**expired()), b"closed with 4401 token_expired"),
        (lambda cell: cell.token("sb-2"), b"closed with 4403 wrong_sandbox"),
        (lambda cell: cell.token(need=["http"]), b"closed with 4403 not_granted"),
        (lambda cell: token("other", sandbox="sb-1"), b"closed with 4403 wrong_cell"),
    ],
)
def test_a_refusal_is_told_in_words(cell, credential, told):
    done = attach(terminal_url(cell), token=credential(cell))
    assert done.returncode == 255
    assert told in done.stderr


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_shell_in_a_browser(cell, browser, scheme):
    port = cell.https if scheme == "https" else cell.http
    browser.start_over()
    browser.open(f"{scheme}://127.0.0.1:{port}/ui/sb-1/#port={cell.worker_port}&token={cell.token()}")
    browser.expect("#state", "Connected")
    cols, rows = browser.text("#size").split("×")
    browser.type("stty size; echo $((6*7)); tty\r")
    browser.expect(ROWS, f"{rows} {cols}\n42\n/dev/pts/")
    browser.resize(700, 400)
    browser.wait(lambda: browser.text("#size") != f"{cols}×{rows}")
    cols, rows = browser.text("#size").split("×")
    browser.type("clear; stty size\r")
    browser.expect(ROWS, f"{rows} {cols}\n")
    browser.type("exit 4\r")
    browser.expect("#notice-title", "The session has ended with exit code 4.")
    browser.click("#again .primary")
    browser.expect("#state", "Connected")
    browser.resize(1000, 640)
    assert browser.complaints() == []


def test_a_browser_with_a_token_that_has_expired_says_so_much(cell, browser):
    browser.open("about:blank")
    browser.open(f"http://127.0.0.1:{cell.http}/ui/sb-1/#port={cell.worker_port}&token={cell.token(**expired())}")
    browser.expect("#state", "Disconnected (4401)")
    browser.expect("body", "The token is missing, invalid or expired.")
    browser.evaluate(f"location.hash = 'port={cell.worker_port}&token={cell.token()}'")
    browser.expect("#state", "Connected")
