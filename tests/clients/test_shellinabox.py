# SPDX-License-Identifier: MIT
"""shellinabox: a terminal over plain requests that wait, in Chromium, on a direct route."""

import os
import pwd

import pytest
from browsing import DOMAINS, ROUTES, chromium, enter

SCREEN = "(document.querySelector('#console')?.innerText ?? '').replaceAll('\\u00a0', ' ').replace(/ +$/gm, '')"
PROMPT = "$" if os.getuid() else "#"


@pytest.fixture(scope="module")
def box(servers):
    who = pwd.getpwuid(os.getuid()).pw_name
    service = f"/:{os.getuid()}:{os.getgid()}:{servers.folder}:bash --norc"
    return servers(lambda port: ["shellinaboxd", "--port", port, "--localhost-only", "--disable-ssl", "--no-beep", "--user", who, "--service", service], "shellinabox")


@pytest.fixture(scope="module")
def cell(cells, box):
    return cells(sandboxes={"sb-1": {"worker": box.url}}, config={"routes": ROUTES, "domains": DOMAINS})


@pytest.fixture(scope="module")
def page(cell, box):
    with chromium() as browser:
        enter(browser, cell, box, "/")
        yield browser


def shows(page, text):
    page.wait(lambda: text in (page.ask(SCREEN) or ""), lambda: page.ask(SCREEN))


def test_what_is_typed_runs(page):
    shows(page, PROMPT)
    page.click("#console")
    page.type("echo $((6 * 7)); seq 3000 | tail -n 1\r")
    shows(page, "42\n3000")


def test_a_lost_server_is_noticed_and_a_new_shell_is_had(page, box):
    box.kill()
    shows(page, "Session closed.")
    box.start()
    page.wait(lambda: page.evaluate("!!document.querySelector('#reconnect input')"))
    page.click("#reconnect input")
    page.wait(lambda: "Session closed." not in page.evaluate(SCREEN) and page.evaluate(SCREEN).endswith(PROMPT))
    page.click("#console")
    page.type("echo new $((2 * 21))\r")
    shows(page, "new 42")
