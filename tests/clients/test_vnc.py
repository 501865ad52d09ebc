# SPDX-License-Identifier: MIT
"""noVNC in Chromium at a desktop: websockify and Xtigervnc, all of Debian's, with xev on the screen, which tells what it is typed."""

import re

import pytest
from browsing import DOMAINS, ROUTES, address, chromium, enter, held, sockets
from cell import free_port, until

STATE = "document.documentElement?.className ?? ''"


@pytest.fixture(scope="module")
def desktop(servers):
    number = free_port()
    server = servers(lambda port: ["Xtigervnc", f":{number}", "-rfbport", port, "-localhost", "-SecurityTypes", "None", "-geometry", "640x480", "-nolisten", "tcp"], "vnc")
    server.display = f":{number}"
    return server


@pytest.fixture(scope="module")
def websockify(servers, desktop):
    return servers(lambda port: ["websockify", "--web", "/usr/share/novnc", f"127.0.0.1:{port}", f"127.0.0.1:{desktop.port}"], "websockify")


@pytest.fixture(scope="module")
def cell(cells, websockify):
    return cells(sandboxes={"sb-1": {"worker": websockify.url}}, config={"routes": ROUTES, "domains": DOMAINS})


@pytest.fixture(scope="module")
def page(cell, websockify):
    with chromium() as browser:
        enter(browser, cell, websockify, "/vnc.html?autoconnect=1&reconnect=1&reconnect_delay=100&resize=off")
        yield browser


@pytest.fixture(scope="module")
def typed(cell, desktop):
    """What xev has been typed so far."""
    cell.spawn("xev", "xev", "-display", desktop.display, "-geometry", "600x440+0+0", "-event", "keyboard", "-event", "button")
    log = cell.folder / "xev.log"
    until(lambda: "Outer window" in log.read_text(), 10, "no xev")
    return lambda: "".join(re.findall(r"KeyPress event.*?XLookupString gives 1 bytes: \(\w+\) \"(.)\"", log.read_text(), re.S))


def connected(page):
    page.wait(lambda: "noVNC_connected" in (page.ask(STATE) or ""), lambda: page.ask(STATE))


def test_the_screen_shows_and_keys_arrive(page, typed):
    connected(page)
    page.wait(lambda: page.evaluate("(c => [c.width, c.height])(document.querySelector('#noVNC_container canvas'))") == [640, 480])
    page.wait(lambda: page.evaluate("document.querySelector('#noVNC_container canvas').getContext('2d').getImageData(300, 200, 1, 1).data.join()") == "255,255,255,255")
    page.click("#noVNC_container canvas")
    page.type("hello")
    until(lambda: typed() == "hello", 10, "it was not typed")


def test_a_lost_websockify_is_waited_for(page, cell, websockify, typed):
    """noVNC connects again by itself, and its one connect is held until there is a worker."""
    connected(page)
    before, known = len(sockets(page)), typed()
    websockify.kill()
    page.wait(lambda: "noVNC_connected" not in page.evaluate(STATE))
    held(cell)
    websockify.start()
    connected(page)
    assert len(sockets(page)) == before + 1
    page.click("#noVNC_container canvas")
    page.type("again")
    until(lambda: typed() == known + "again", 10, "it was not typed")


def test_who_has_no_token_sees_nothing(cell, websockify):
    with chromium() as browser:
        browser.open(f"{address(cell, websockify)}/vnc.html")
        browser.wait(lambda: "token_missing" in (browser.ask("document.body?.innerText") or ""))
        assert browser.evaluate(f"new Promise((done) => new WebSocket('{address(cell, websockify).replace('https', 'wss')}/websockify', 'binary').onclose = (e) => done(e.code))") == 1006
