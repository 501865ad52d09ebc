# SPDX-License-Identifier: MIT
"""e2b's SDK from npm with the configuration of docs/migrate/e2b.md: over HTTP/2, by the host's name and by headers. Real: the SDK.
Stand-ins: envd (envd.py), the application behind the preview, and the control API, which tells the SDK domain and tokens."""

import sys
from pathlib import Path

import pytest
from cell import end, free_port, until
from migrate import stage
from plane import answer
from worker import start

ENVD = Path(__file__).parent / "envd.py"
FORMS = ["host", "header"]


class Envd:
    """It runs at one port, for as often as it is started. Its commands are login shells, whose home is empty at first: a person's start-up
    files are slow, and a shell that is killed within pyenv's leaves a lock, for which each later one waits a minute."""

    def __init__(self, folder, home):
        self.folder, self.home, self.port = folder, home, free_port()
        self.start()

    def start(self):
        self.process, self.url = start(sys.executable, ENVD, "what-envd-wants", self.folder, self.port, home=str(self.home))

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def envd(tmp_path_factory):
    one = Envd(tmp_path_factory.mktemp("envd"), tmp_path_factory.mktemp("home"))
    yield one
    end(one.process)


@pytest.fixture(scope="module")
def application(origins):
    return origins(answer=lambda connection, request: answer(connection, 200, b"the application"))


@pytest.fixture(scope="module")
def cell(cells, node, envd, application):
    return cells(**stage("e2b", {"http://10.0.0.5:49983": envd.url, "http://10.0.0.5:3000": application.url}), environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node, origins):
    def connect(form="host", token="an-envd-token"):
        domain = f"e2b.example.com:{cell.https}"
        said = {"sandboxID": "i1abc", "templateID": "t", "envdVersion": "0.5.0", "envdAccessToken": token,
                "trafficAccessToken": "a-traffic-token", "domain": domain}
        api = origins(answer=lambda connection, request: connection.read_body(request) is None or answer(connection, 200, said, "Content-Type: application/json"))
        gate = {"sandboxUrl": f"https://gate.example.com:{cell.https}"} if form == "header" else {}
        return node("e2b.mjs", {"apiKey": "e2b_" + "0" * 40, "apiUrl": api.url, "domain": domain} | gate)

    return connect


@pytest.fixture(scope="module", params=FORMS)
def sdk(request, connect):
    program = connect(request.param)

    def step(name):
        program.say(name)
        return program.hear()

    step.form = request.param
    return step


def test_commands(cell, sdk):
    assert sdk("run") == {"stdout": "out\nroot\n", "stderr": "err\n", "exitCode": 0}
    assert sdk("much") == {"count": 1288895, "last": "200000"}
    assert sdk("fails")["error"] == "CommandExitError"
    assert sdk("stdin") == "got this\n"
    killed = sdk("killed")
    assert killed["listed"] and killed["killed"] and killed["error"] == "CommandExitError"
    route = {"host": "e2b-envd", "header": "e2b-envd-header"}[sdk.form]
    lines = until(lambda: [x for x in cell.access_log().splitlines() if f"route={route} " in x], 10, "no line in the access log")
    assert all(" HTTP/2.0 " in line for line in lines), lines


def test_commands_find_nobodys_home(sdk, envd):
    assert sdk("home") == f"{envd.home}\n"


def test_files(sdk):
    seen = sdk("files")
    assert seen["same"] and seen["text"] == "words" and seen["names"] == ["bytes", "text \u20ac"]
    assert seen["missing"]["error"] in ("FileNotFoundError", "NotFoundError")


def test_terminal(sdk):
    assert sdk("terminal") == {"sizes": ["24 80", "40 120"]}


def test_preview(sdk, application):
    opened, closed = sdk("preview")
    assert opened == {"status": 200, "text": "the application"} and closed["status"] == 401
    seen = application.requests[-1]
    assert seen.get("authorization") == "Bearer of-the-application" and seen.get("e2b-traffic-access-token") is None


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_token_is_reported(connect, form):
    """As a sandbox that does not run: nobody learns by a wrong token which ones there are (docs/migrate/e2b.md)."""
    program = connect(form, "a-wrong-token")
    program.say("refused")
    seen = program.hear()
    assert [seen[call]["error"] for call in ("run", "write", "list")] == ["SandboxNotFoundError", "TimeoutError", "TimeoutError"], seen


@pytest.mark.parametrize("form", FORMS)
def test_a_lost_worker_is_told_and_the_next_command_runs(connect, envd, form):
    program = connect(form)
    program.say("lost")
    assert program.hear() == "begun"
    envd.kill()
    assert program.hear()["error"] in ("TimeoutError", "SandboxError"), program.heard
    envd.start()
    program.say("run")
    assert program.hear()["exitCode"] == 0
