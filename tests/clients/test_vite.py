# SPDX-License-Identifier: MIT
"""Vite's dev server and its client in Chromium: a module is replaced while the page stays, and a server that was lost is waited for."""

import pytest
from browsing import DOMAINS, ROUTES, chromium, enter, held, sockets

PAGE = "<!doctype html><title>vite</title><p id=said></p><script type=module src=/main.js></script>"
MAIN = """import { said } from "./said.js";
const show = (text) => { document.querySelector("#said").textContent = text; };
show(said);
import.meta.hot.accept("./said.js", (fresh) => show(fresh.said));
"""
CONFIG = 'export default { server: { host: "127.0.0.1", strictPort: true, allowedHosts: [".example.com"] }, clearScreen: false };'


@pytest.fixture(scope="module")
def vite(servers, node):
    project = servers.folder / "project"
    project.mkdir()
    for name, text in {"index.html": PAGE, "main.js": MAIN, "vite.config.mjs": CONFIG, "package.json": '{"type": "module"}'}.items():
        (project / name).write_text(text)
    say(project, "first")
    server = servers(lambda port: ["node", servers.packages / "node_modules/vite/bin/vite.js", project, "--port", port, "--config", project / "vite.config.mjs"], "vite")
    server.project = project
    return server


def say(project, text):
    (project / "said.js").write_text(f'export const said = "{text}";\n')


@pytest.fixture(scope="module")
def cell(cells, vite):
    return cells(sandboxes={"sb-1": {"worker": vite.url}}, config={"routes": ROUTES, "domains": DOMAINS})


@pytest.fixture(scope="module")
def page(cell, vite):
    with chromium() as browser:
        enter(browser, cell, vite, "/")
        browser.expect("#said", "first")
        browser.wait(lambda: sockets(browser) and any("[vite] connected" in str(event) for event in browser.events))
        yield browser


def test_a_module_is_replaced_and_the_page_stays(page, vite):
    page.evaluate("window.kept = 1")
    say(vite.project, "second")
    page.expect("#said", "second")
    assert page.evaluate("window.kept") == 1


def test_a_lost_server_is_waited_for(page, cell, vite):
    """Its client asks by a WebSocket of a worker's whether the server is there again: the question is held until it is. Then the page is
    loaded anew."""
    page.evaluate("window.kept = 1")
    before = len(sockets(page))
    vite.kill()
    held(cell)
    say(vite.project, "third")
    vite.start()
    page.expect("#said", "third")
    assert page.evaluate("window.kept") is None
    assert len(sockets(page)) == before + 1  # the new page's own
    say(vite.project, "fourth")
    page.expect("#said", "fourth")
