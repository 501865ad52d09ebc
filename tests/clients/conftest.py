# SPDX-License-Identifier: MIT
"""Clients of the field, as Debian and npm have them, against real servers or stand-ins, through a whole cell. The means are those of
tests/e2e (cell.py, client.py, browser.py and so on)."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "e2e" / folder) for folder in ("support", "egress")]

import pytest  # noqa: E402
from fixtures import *  # noqa: E402, F403
from npm import FOLDER, Program, certificate, install  # noqa: E402
from servers import Server  # noqa: E402


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Starts node programs (npm.py): node("e2b.mjs", {...})."""
    folder, programs = install(), []
    authority = certificate(tmp_path_factory.mktemp("gate"))

    def start(script, wanted, **environment):
        programs.append(Program(folder, script, wanted, {"NODE_EXTRA_CA_CERTS": str(authority), **environment}))
        return programs[-1]

    start.certificate = {"CELLGATE_CERT": str(authority)}
    yield start
    for program in programs:
        program.end()


@pytest.fixture(scope="module")
def sdk(connect):
    """A step of the program that the module's `connect` starts: sdk(name) gives what it saw."""
    program = connect()

    def step(name):
        program.say(name)
        return program.hear()

    return step


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Starts servers (servers.py): servers(lambda port: [command], name)."""
    folder, started = tmp_path_factory.mktemp("servers"), []

    def make(command, name, **environment):
        started.append(Server(command, folder / f"{name}.log", environment))
        return started[-1]

    make.folder, make.packages = folder, FOLDER
    yield make
    for server in started:
        server.stop()
