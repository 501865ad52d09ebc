# SPDX-License-Identifier: MIT
"""Jupyter's notebook in Chromium, with a login of its own beside the gate's cookie and a kernel on its WebSocket, through the relay."""

import json

import pytest
from browsing import DOMAINS, ROUTES, chromium, enter, states
from cell import until

EMPTY = {"cells": [{"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": []}], "nbformat": 4, "nbformat_minor": 2,
         "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}}
OUTPUT = "(window.Jupyter?.notebook?.get_cell(0)?.output_area.outputs ?? []).map((one) => one.text ?? one.evalue).join('')"
CONNECTED = "!!window.Jupyter?.notebook?.kernel?.is_connected()"


@pytest.fixture(scope="module")
def jupyter(servers):
    home = servers.folder / "jupyter"
    home.mkdir()
    (home / "book.ipynb").write_text(json.dumps(EMPTY))
    options = ["--no-browser", "--ip=127.0.0.1", "--allow-root", "--NotebookApp.token=of-the-notebook", "--NotebookApp.allow_remote_access=True", f"--notebook-dir={home}"]
    return servers(lambda port: ["jupyter-notebook", f"--port={port}", "--NotebookApp.port_retries=0", *options], "jupyter", HOME=str(home), JUPYTER_DATA_DIR=str(home / "data"))


@pytest.fixture(scope="module")
def cell(cells, jupyter):
    return cells(sandboxes={"sb-1": {"worker": jupyter.url}}, config={"routes": ROUTES, "domains": DOMAINS})


@pytest.fixture(scope="module")
def page(cell, jupyter):
    with chromium() as browser:
        enter(browser, cell, jupyter, "/notebooks/book.ipynb?token=of-the-notebook")
        yield browser


def runs(page, source, output):
    page.wait(lambda: page.ask(CONNECTED), lambda: page.ask("document.title"))
    page.evaluate(f"(cell => {{ cell.set_text({json.dumps(source)}); cell.execute(); }})(Jupyter.notebook.get_cell(0))")
    page.wait(lambda: page.evaluate(OUTPUT) == output, lambda: page.evaluate(OUTPUT)[-200:])


def test_a_kernel_answers(page, cell):
    runs(page, "print(6 * 7)", "42\n")
    runs(page, "print('x' * 300000)", "x" * 300000 + "\n")
    runs(page, "1 / 0", "division by zero")
    assert states(cell) == ["serving"]


def test_a_lost_server_is_noticed_and_its_page_works_when_it_is_back(page, cell, jupyter):
    runs(page, "kept = 1; print(kept)", "1\n")
    jupyter.kill()
    page.wait(lambda: not page.evaluate(CONNECTED))
    until(lambda: "serving" not in states(cell), 10, "the tunnel does not end")
    jupyter.start()
    enter(page, cell, jupyter, "/notebooks/book.ipynb?token=of-the-notebook")
    runs(page, "print('kept' in globals())", "False\n")


def test_its_own_login_is_still_asked_for(cell, jupyter):
    with chromium() as browser:
        enter(browser, cell, jupyter, "/tree")
        browser.wait(lambda: "/login" in (browser.ask("location.pathname") or ""))
