# SPDX-License-Identifier: MIT
"""sandbox-sdk's clients from npm (@cloudflare/sandbox) with the configuration of docs/migrate/sandbox-sdk.md and its route for a
backend. Real: SandboxClient over HTTP and over WebSocket, SandboxAddon with @xterm/headless, capnweb on both sides. Stand-ins: the
container's server (container.py), the application behind the preview, the names of the Workers platform (platform.mjs).
Of the preview of 1.0: SandboxAddon real, /ws/terminal a stand-in."""

import os
import signal
import sys
from pathlib import Path

import pytest
from cell import until
from migrate import stage
from plane import answer

CONTAINER = Path(__file__).parent / "container.py"
BELOW = {"path": "/sandbox/{sandbox}/{rest...}", "to": "/{rest}", "need": "exec"}
# The same client, in front of the same server over plain HTTP alone.
MUX = {"name": "sdk-mux", "path": "/sandbox/{sandbox}/ws", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk", "to": "/sandbox/{sandbox}"}
TERMINAL = {"name": "sdk-terminal", "path": "/sandbox/{sandbox}/ws/terminal", "to": "/ws/terminal", "need": "pty", "upgrade": True, "via": "relay",
            "resume": "cursor", "end": "exit-json"}
ROUTES = [TERMINAL, {"name": "sdk-socket", "upgrade": True, "via": "relay", "redial": False} | BELOW, {"name": "sdk"} | BELOW, "defaults"]
MODES = ["http", "websocket"]


@pytest.fixture(scope="module")
def container(servers):
    return servers(lambda port: [sys.executable, CONTAINER, port], "container")


@pytest.fixture(scope="module")
def rpc(servers, node):
    return servers(lambda port: ["node", servers.packages / "rpc_server.mjs", port], "rpc")


@pytest.fixture(scope="module")
def make(cells, node, origins, container, rpc):
    return lambda *more: cell_of(cells, node, origins, container, rpc, more)


def cell_of(cells, node, origins, container, rpc, more):
    application = origins(answer=lambda connection, request: answer(connection, 200, b"the application"))
    said = stage("sandbox-sdk", {"http://10.0.0.5:3000": container.url, "http://10.0.0.5:8080": application.url})
    said["sandboxes"]["sb-2"] = {"worker": rpc.url}
    said["config"]["routes"] = [*more, *ROUTES]
    said["config"]["tokens"].append({"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"})
    return cells(**said, environment=node.certificate)


@pytest.fixture(scope="module")
def cell(make):
    return make()


@pytest.fixture(scope="module")
def muxed(make):
    return make(MUX)


@pytest.fixture(scope="module")
def client(cell, node):
    return client_of(cell, node)


def client_of(cell, node):
    def client(mode="http", token=None, sandbox="sb-1"):
        return node("sandbox_sdk.mjs", {"mode": mode, "token": cell.token(sandbox) if token is None else token, "host": f"gate.example.com:{cell.https}",
                                        "preview": f"https://8080-sb-1-a1b2c3d4e5f60718.preview.example.com:{cell.https}/"})

    return client


@pytest.fixture(scope="module", params=[*MODES, "mux"])
def sdk(request, client, muxed, node):
    program = client_of(muxed, node)("websocket") if request.param == "mux" else client(request.param)

    def step(name):
        program.say(name)
        return program.hear()

    return step


def test_commands(sdk):
    done = sdk("run")["value"]
    assert (done["stdout"], done["stderr"], done["exitCode"]) == ("out\n", "err\n", 3)
    assert sdk("stream") == ["start", "one\n", "two\n", "complete"]
    assert sdk("much") == [20002, "20000\n"]
    assert sdk("many") is True


def test_files(sdk):
    seen = sdk("files")
    assert seen["same"] and seen["missing"]["error"] == "FileNotFoundError"


def test_preview(sdk):
    assert sdk("preview") == [200, "the application"]


def test_a_wrong_token_is_reported(client):
    told = {}
    for mode in MODES:
        program = client(mode, "a-wrong-token")
        program.say("run")
        told[mode] = program.hear()
    assert "token" in told["http"]["message"] and "connection failed" in told["websocket"]["message"], told


def test_through_the_mux_the_container_has_no_websocket(muxed, node, container):
    program = client_of(muxed, node)("websocket")
    program.say("run")
    assert program.hear()["value"]["exitCode"] == 3
    log = muxed.access_log()
    assert "verdict=direct route=sdk sandbox=sb-1" in log and "route=sdk-socket" not in log
    program.say("lost")
    assert program.hear() == "begun"
    container.kill()
    told = program.hear()
    assert "error" in told, told
    container.start()
    program.say("run")
    assert program.hear()["value"]["exitCode"] == 3
    refused = client_of(muxed, node)("websocket", "a-wrong-token")
    refused.say("run")
    assert "token" in refused.hear()["message"]


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_worker_is_told_and_the_next_call_waits_for_one(client, container, mode):
    """Over the WebSocket the loss has a code, and the next connect is held until the container is back; over HTTP it ends the stream."""
    program = client(mode)
    program.say("lost")
    assert program.hear() == "begun"
    container.kill()
    told = program.hear()
    assert "1012" in told["message"] if mode == "websocket" else "error" in told, told
    if mode == "websocket":
        program.say("run")  # before there is a container
    container.start()
    if mode == "http":
        program.say("run")
    assert program.hear()["value"]["exitCode"] == 3


def test_the_terminal_reconnects_by_itself(client, container):
    """Its state is the container's: a new one starts afresh, and the addon knows by the end of its socket."""
    program = client()
    program.say("terminal")
    program.until(lambda said: said.get("state") == "connected")
    program.say("type")
    program.say("stty size; echo fi''rst\r")
    assert "30 100" in program.until(lambda said: "first" in said.get("screen", ""))["screen"]
    container.kill()
    program.until(lambda said: said.get("state") == "disconnected")
    program.until(lambda said: said.get("state") == "connecting")
    container.start()
    program.until(lambda said: said.get("state") == "connected")
    program.say("type")
    program.say("stty size; echo sec''ond\r")
    shown = program.until(lambda said: "second" in said.get("screen", ""))["screen"]
    assert "30 100" in shown and "first" not in shown


def test_a_terminal_of_1_0_goes_on_over_cut_connections(client, cell, container):
    """Its connection is cut within a chunk, and between two, and the client notices nothing: each line comes once, and the size stays."""
    program = client()
    program.say("next")
    program.until(lambda said: said.get("state") == "connected")

    def resumed():
        said = [line for line in cell.admin("/metrics", "relay").splitlines() if line.startswith('cellgate_relay_resume_total{adapter="cursor"')]
        return {line.split('outcome="')[1].split('"')[0]: float(line.rpartition(" ")[2]) for line in said}

    def lines(last):
        program.say("lines")
        said = program.hear()
        assert isinstance(said, list), (said, program.heard[-5:])
        return said if last in said else None

    for turn in range(6):
        os.kill(container.process.pid, signal.SIGUSR1)
        program.say("type")
        program.say(f"seq -f 'LINE %g' {turn * 500 + 1} {turn * 500 + 500}\r")
        until(lambda: resumed() == {"exact": turn + 1, "gap": 0}, 30, "the tunnel was not resumed")
        until(lambda: lines(f"LINE {turn * 500 + 500}"), 30, "the output does not come")
    program.say("type")
    program.say("echo SIZE $(stty size)\r")
    shown = until(lambda: lines("SIZE 30 100"), 30, "the terminal has another size")
    assert [line for line in shown if line.startswith("LINE")] == [f"LINE {i}" for i in range(1, 3001)]
    program.say("type")
    program.say("exit\r")
    assert "exited with code 0" in program.hear()["error"]
    assert program.hear()["state"] == "disconnected"
    states = [said["state"] for said in program.heard if isinstance(said, dict) and "state" in said]
    assert states == ["connecting", "connected", "connected", "disconnected"], program.heard[-9:]


def test_rpc_ends_with_its_worker_and_begins_again(client, cell, rpc):
    program = client(sandbox="sb-2")
    program.say("rpc")
    assert program.hear() == {"count": 42, "done": "done", "told": 200}
    rpc.kill()
    assert "1012" in program.hear()["broken"], program.heard
    program.say("rpc")
    rpc.start()
    assert program.hear() == {"count": 42, "done": "done", "told": 200}
