# SPDX-License-Identifier: MIT
"""Daytona's SDK from npm with the configuration of docs/migrate/daytona.md. Real: the SDK. Stand-ins: the toolbox (toolbox.py), the
application behind the preview, and the API, which tells the SDK where both are."""

import sys
from pathlib import Path

import pytest
from migrate import stage
from plane import answer

TOOLBOX = Path(__file__).parent / "toolbox.py"


@pytest.fixture(scope="module")
def toolbox(servers):
    return servers(lambda port: [sys.executable, TOOLBOX, port], "toolbox")


@pytest.fixture(scope="module")
def application(origins):
    return origins(answer=lambda connection, request: answer(connection, 200, b"the application"))


@pytest.fixture(scope="module")
def cell(cells, node, toolbox, application):
    return cells(**stage("daytona", {"http://10.0.0.5:2280": toolbox.url, "http://10.0.0.5:3000": application.url}), environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node, origins):
    said = {"id": "sb-1", "name": "sb-1", "state": "started", "toolboxProxyUrl": f"https://gate.example.com:{cell.https}/toolbox", "labels": {}, "env": {}}
    link = {"url": f"https://3000-sb-1.proxy.example.com:{cell.https}/", "token": "a-preview-token"}
    api = origins(answer=lambda connection, request: answer(connection, 200, link if "/ports/" in request.target else said, "Content-Type: application/json"))
    return lambda key="dtn_example_key": node("daytona.mjs", {"apiKey": key, "apiUrl": api.url + "/api"})


def test_commands(sdk):
    assert sdk("run") == [3, "out\n"]
    assert sdk("logs") == [20001, "20000\n", "err\n"]


def test_files(sdk):
    seen = sdk("files")
    assert seen["same"] and seen["names"] == ["bytes"] and "not found" in seen["missing"]["message"]


def test_terminal(sdk):
    assert sdk("terminal") == [["25 90", "40 120"], "2 first", 7]


def test_preview(sdk, application):
    assert sdk("preview") == [[200, "the application"], 401]
    seen = application.requests[-1]
    assert seen.get("authorization") == "Bearer of-the-application" and seen.get("x-daytona-preview-token") is None


def test_a_wrong_key_is_reported(connect):
    program = connect("dtn_another_key")
    program.say("refused")
    seen = program.hear()
    assert [seen[call]["error"] for call in ("run", "list")] == ["DaytonaAuthenticationError"] * 2, seen
    assert seen["terminal"]["error"] == "DaytonaConnectionError", seen


def test_a_lost_worker_is_told_and_the_next_command_runs(connect, toolbox):
    program = connect()
    program.say("lost")
    assert program.hear() == "begun"
    toolbox.kill()
    assert program.hear() == {"exitCode": None, "connected": False}
    toolbox.start()
    program.say("run")
    assert program.hear() == [3, "out\n"]
