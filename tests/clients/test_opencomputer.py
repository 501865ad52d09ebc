# SPDX-License-Identifier: MIT
"""OpenComputer's SDK from npm with the configuration of docs/migrate/opencomputer.md, without its edge: an API key as header, and in the
query of its WebSockets. Real: the SDK. Stand-ins: the worker by cell-worker, and the control plane, to which a route leads."""

import os

import pytest
from browsing import redials
from cell import WORKER_BEARER, until
from migrate import stage
from plane import answer

SANDBOX, ASLEEP = "sb-0123abcd", "sb-asleep"


@pytest.fixture(scope="module")
def cell(cells, node, origins, host):
    def tell(connection, request):
        answer(connection, 200, {"sandboxID": request.target.rpartition("/")[2], "status": "running"}, "Content-Type: application/json")

    plane, files = origins(answer=tell), origins(answer=lambda connection, request: answer(connection, 200, b"its content"))
    said = stage("opencomputer", {"http://10.0.0.5:8081": f"http://127.0.0.1:{host.worker().port}"})
    said["sandboxes"][SANDBOX]["headers"] = dict([WORKER_BEARER])
    said["sandboxes"][ASLEEP] = said["sandboxes"][SANDBOX] | {"worker": files.url, "state": "waking"}
    said["config"] |= {
        "services": {"plane": {"url": plane.url}},
        "routes": [{"name": "sandbox", "path": "/api/sandboxes/{id}", "to_service": "plane", "need": "none"}, "defaults"],
    }
    return cells(**said, environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node):
    return lambda key="osb_example_key", sandbox=SANDBOX: node("opencomputer.mjs", {"sandbox": sandbox, "apiKey": key, "apiUrl": f"https://gate.example.com:{cell.https}",
                                                                                    "prompt": "$" if os.getuid() else "#"})


def test_commands(sdk):
    assert sdk("run") == {"exitCode": 3, "stdout": "out this\n", "stderr": "err\n"}
    assert sdk("much") == [0, 5000050000]
    assert sdk("killed") == 137


def lose(cell, host):
    """Kills the worker, and gives what is done once the relay has noticed: to have another one with the same sessions."""
    next(worker for worker in host.workers if worker.process.poll() is None).process.kill()
    redials(cell, SANDBOX)
    record, worker = cell.sandboxes[SANDBOX], host.worker()
    return lambda: cell.set_sandboxes(**{SANDBOX: record | {"worker": f"http://127.0.0.1:{worker.port}", "epoch": record.get("epoch", 0) + 1}})


def test_a_command_goes_on_at_the_next_worker_and_each_line_comes_once(connect, cell, host):
    program = connect()
    program.say("moved")
    assert program.hear() == "half"
    comes_back = lose(cell, host)
    program.say("go")
    assert program.hear() == "said"
    comes_back()
    assert program.hear() == [7, True]


def test_a_terminal_goes_on_at_the_next_worker(connect, cell, host):
    program = connect()
    program.say("terminal")
    assert program.hear() == "first"
    comes_back = lose(cell, host)
    program.say("go")
    assert program.hear() == "said"
    comes_back()
    assert program.hear() == [["25 90"], 1, 1]


def test_a_file_of_a_sandbox_that_is_waking_is_asked_for_until_it_is_awake(connect, cell):
    """The SDK does so by itself where a 503 says that the sandbox is waking."""
    program = connect(sandbox=ASLEEP)
    program.say("read")
    until(lambda: "error=sandbox_waking" in cell.access_log(), 10, "it was not asked for")
    cell.set_sandboxes(**{ASLEEP: cell.sandboxes[ASLEEP] | {"state": "running", "epoch": 1}})
    assert program.hear() == {"value": "its content"}


def test_a_wrong_key_is_reported(connect):
    program = connect("osb_another_key")
    program.say("refused")
    assert [told["message"].split(": ", 1)[1][:3] for told in program.hear()] == ["401", "401"]
