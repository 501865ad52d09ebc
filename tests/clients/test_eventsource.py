# SPDX-License-Identifier: MIT
"""EventSource over a worker's restart: Chromium's own, let in by its cookie, and npm's. No event is missing and none comes twice."""

import sys
from pathlib import Path

import pytest
from browsing import DOMAINS, ROUTES, address, chromium, enter

SERVER = Path(__file__).parent / "events_server.py"
LISTEN = """window.seen = []; window.errors = [];
window.source = new EventSource("/events");
source.onmessage = (event) => seen.push(Number(event.data));
source.onerror = () => errors.push(source.readyState); 1"""


@pytest.fixture(scope="module")
def server(servers):
    return servers(lambda port: [sys.executable, SERVER, port], "events")


@pytest.fixture(scope="module")
def cell(cells, node, server):
    return cells(sandboxes={"sb-1": {"worker": server.url}}, config={"routes": ROUTES, "domains": DOMAINS}, environment=node.certificate)


def in_order(seen):
    return seen == list(range(1, len(seen) + 1))


def test_chromiums_goes_on_at_the_restarted_worker(cell, server):
    with chromium() as page:
        enter(page, cell, server, "/")
        page.wait(lambda: page.ask("document.title") == "events")
        page.evaluate(LISTEN)
        page.wait(lambda: page.evaluate("seen.length") > 3)
        server.kill()
        page.wait(lambda: page.evaluate("errors.length"))
        before = page.evaluate("seen.length")
        server.start()
        page.wait(lambda: page.evaluate("seen.length") > before + 3)
        assert in_order(page.evaluate("seen")) and set(page.evaluate("errors")) == {0}


def test_npms_goes_on_at_the_restarted_worker(cell, server, node):
    program = node("eventsource.mjs", {"url": f"{address(cell, server)}/events", "token": cell.token()})
    seen = [program.hear(20)["event"] for _ in range(3)]
    server.kill()
    seen += until_it_ends(program)
    before = len(seen)
    server.start()
    while len(seen) < before + 3:
        seen.append(program.hear(20)["event"])
    assert in_order(seen)


def until_it_ends(program):
    """Those that come before it says that its stream has ended."""
    seen = []
    while "error" not in (said := program.hear(20)):
        seen.append(said["event"])
    assert not said["closed"], said
    return seen


def test_a_wrong_token_ends_it_with_its_status(cell, server, node):
    assert node("eventsource.mjs", {"url": f"{address(cell, server)}/events", "token": "x"}).hear(20) == {"error": 401, "closed": True}
