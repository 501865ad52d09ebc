# SPDX-License-Identifier: MIT
"""Fixtures and options that tests/e2e and tests/clients share: their conftest.py takes all of it. `--haproxy COMMAND` (or $HAPROXY)
chooses the HAProxy; tests/haproxy-versions makes commands for other versions than the machine's own."""

import os
import tempfile

import network
import pytest
from cell import Cell
from origin import Origin
from worker import Host

living = []


def pytest_addoption(parser):
    parser.addoption("--haproxy", default=os.environ.get("HAPROXY", "haproxy"), help="HAProxy to test with")


def pytest_configure(config):
    os.environ["HAPROXY"] = config.getoption("--haproxy")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):  # not who only starts those that run tests
        network.leave()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        report.sections += [(f"cell in {cell.folder}", cell.logs()) for cell in living]


class Cells:
    """The folder's name is short: it holds Unix sockets. A cell that `stays` is the module's, though a test has asked for it first."""

    def __init__(self):
        self.made, self.of_test = [], False

    def __call__(self, stays=False, **arguments):
        folder = tempfile.TemporaryDirectory(prefix="cg-")
        cell = Cell(folder.name, **arguments)
        self.made.append((cell, folder, self.of_test and not stays))
        living.append(cell)
        return cell.start()

    def end(self, only_of_test=False):
        for made in [made for made in self.made if made[2] or not only_of_test]:
            cell, folder, _ = made
            cell.stop()
            living.remove(cell)
            folder.cleanup()
            self.made.remove(made)


@pytest.fixture(scope="module")
def cells():
    """Makes cells as Cell() does and ends them: cells(sandboxes={...}, config={...})."""
    cells = Cells()
    yield cells
    cells.end()


@pytest.fixture(autouse=True)
def cells_of_the_test(request):
    """A cell that a test has made ends with it: idle ones cost time, too. Those of the module's fixtures are there before."""
    cells = request.getfixturevalue("cells") if "cells" in request.fixturenames else None
    if cells:
        cells.of_test = True
    yield
    if cells:
        cells.of_test = False
        cells.end(only_of_test=True)


@pytest.fixture(scope="module")
def host():
    """A session manager, and what workers it is asked for."""
    host = Host()
    yield host
    host.close()


@pytest.fixture(scope="module")
def origins():
    """Makes origin servers (origin.py) and ends them."""
    made = []

    def make(**arguments):
        made.append(Origin(**arguments))
        return made[-1]

    yield make
    for origin in made:
        origin.close()
