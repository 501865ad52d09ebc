# SPDX-License-Identifier: MIT
"""OpenSandbox's SDK from npm with the configuration of docs/migrate/opensandbox.md, through the server's proxy routes; its terminal by
npm's `ws`. Real: the SDK and `ws`. Stand-ins: execd by cell-worker (POST /command, /pty) behind execd.py (/ping, /files), the
application behind the preview, and the lifecycle server, to which a route leads."""

import json
import subprocess

import pytest
from browsing import redials
from cell import BIN, WORKER_BEARER
from client import request
from execd import Execd
from migrate import stage
from plane import answer

KEY = ("OPEN-SANDBOX-API-KEY", "an-api-key")
PROXY = "/v1/sandboxes/sb-1/proxy/44772"


class Server:
    """GET /v1/sandboxes/{id}/endpoints/{port}: where a port is, and what opens it."""

    def __init__(self, origins):
        self.gate = self.label = None
        self.url = origins(answer=self.tell).url

    def tell(self, connection, request):
        proxied = {"endpoint": f"gate.example.com:{self.gate}" + request.target.split("?")[0].replace("endpoints", "proxy")}
        if "/8080" in request.target:
            by_secret = {"endpoint": f"sb-1-8080.sandboxes.example.com:{self.gate}", "headers": {"OpenSandbox-Secure-Access": "the-secret-of-this-endpoint"}}
            proxied = {"endpoint": f"{self.label}.sandboxes.example.com:{self.gate}"} if "expires=" in request.target else by_secret
        answer(connection, 200, proxied, "Content-Type: application/json")


@pytest.fixture(scope="module")
def execd(host):
    one = Execd()
    one.worker = host.worker()
    one.behind = one.worker.port
    yield one
    one.close()


@pytest.fixture(scope="module")
def cell(cells, node, origins, execd):
    application, server = origins(answer=lambda connection, request: answer(connection, 200, b"the application")), Server(origins)
    said = stage("opensandbox", {"http://10.0.0.5:44772": execd.url, "http://10.0.0.5:8080": application.url})
    said["sandboxes"]["sb-1"]["headers"] = dict([WORKER_BEARER])
    said["config"] |= {
        "services": {"server": {"url": server.url}},
        "routes": [{"name": "lifecycle", "path": "/v1/sandboxes/{id}/endpoints/{port}", "to_service": "server", "need": "none"}, "defaults"],
    }
    one = cells(**said, environment=node.certificate)
    command = [BIN / "cellgate", "token", "--config", one.config_file, "--kind", "opensandbox-route", "--sandbox", "sb-1", "--port", "8080"]
    server.label = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    server.gate = one.https
    return one


@pytest.fixture(scope="module")
def connect(cell, node):
    def connect(key="an-api-key", **more):
        connection = {"domain": f"gate.example.com:{cell.https}", "protocol": "https", "apiKey": key, "useServerProxy": True}
        return node("opensandbox.mjs", {"connection": connection} | more)

    return connect


def test_commands(sdk):
    assert sdk("run") == {"stdout": "out\n", "stderr": "err\n", "exitCode": 3, "first": "init", "order": ["stderr", "stdout"]}
    assert sdk("much") == {"exitCode": 0, "sum": 5000050000}


def test_files(sdk):
    seen = sdk("files")
    assert seen["whole"] and seen["streamed"] and seen["text"] == "words"
    assert (seen["missing"]["error"], seen["missing"]["status"]) == ("SandboxApiException", 404)


def test_preview_by_secret_and_by_signature(sdk):
    assert sdk("preview") == [[200, "the application"]] * 2


def test_a_wrong_key_is_reported(connect):
    program = connect("another-key", refused=True, ready=1)
    program.say("connect")
    told = program.hear()
    assert told["error"] == "SandboxReadyTimeoutException" and "token is not valid" in told["message"], told


def test_a_lost_worker_is_told_and_the_next_command_runs(connect, host, execd):
    program = connect()
    program.say("lost")
    assert program.hear() == "begun"
    execd.worker.process.kill()
    assert "error" in program.hear(), program.heard
    execd.worker = host.worker()
    execd.behind = execd.worker.port
    program.say("run")
    assert program.hear()["exitCode"] == 3


def test_a_terminal_goes_on_at_the_next_worker(cell, node, host, execd):
    """Its client is `ws`; the worker under it is killed, and another one has the same sessions."""
    there, then = host.worker(), host.worker()
    cell.set_sandboxes(**{"sb-1": cell.sandboxes["sb-1"] | {"epoch": 1, "worker": f"http://127.0.0.1:{there.port}"}})
    session = json.loads(request(cell.http, "POST", PROXY + "/pty", [KEY, ("Content-Type", "application/json")], b"{}").body)["session_id"]
    terminal = node("terminal.mjs", {"url": f"wss://gate.example.com:{cell.https}{PROXY}/pty/{session}/ws", "headers": dict([KEY])})
    assert "open" in terminal.hear()

    def shows(text):
        seen = ""
        while text not in seen:
            seen += terminal.hear().get("bytes", "")
        return seen

    terminal.say({"bytes": "\0kept=this; echo re''ady\n"})
    shows("ready")
    there.process.kill()
    redials(cell, "sb-1")
    terminal.say({"bytes": "\0echo still $kept\n"})
    cell.set_sandboxes(**{"sb-1": cell.sandboxes["sb-1"] | {"epoch": 2, "worker": f"http://127.0.0.1:{then.port}"}})
    assert "ready" not in shows("still this")
    cell.set_sandboxes(**{"sb-1": cell.sandboxes["sb-1"] | {"epoch": 3, "worker": execd.url}})
