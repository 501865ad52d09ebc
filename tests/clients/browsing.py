# SPDX-License-Identifier: MIT
"""Chromium at a preview host of the gate, where the page is let in by its cookie, and so are the WebSockets that it opens; and what the
relay says of tunnels."""

import json

from browser import Browser
from cell import until

DOMAINS = {"e2b": ["e2b.example.com"]}
HOST = {"host": "{port}-{sandbox}.<e2b>", "cookie": True}
# As docs/routing.md has it: a page's sockets are relayed, and end with their worker; the next one waits for a worker.
ROUTES = [{"name": "socket", "upgrade": True, "via": "relay", "redial": False} | HOST, {"name": "page"} | HOST]


def chromium():
    return Browser("--ignore-certificate-errors", "--host-resolver-rules=MAP *.example.com 127.0.0.1")


def address(cell, server, sandbox="sb-1"):
    return f"https://{server.port}-{sandbox}.e2b.example.com:{cell.https}"


def enter(browser, cell, server, path, **claims):
    """Opens a page with a token in its query, which becomes a cookie."""
    mark = "&" if "?" in path else "?"
    browser.open(f"{address(cell, server)}{path}{mark}cellgate_token={cell.token(**claims)}")


def sockets(browser):
    """Those that its pages have opened so far."""
    return [url for url in browser.requests() if url.startswith("wss:")]


def states(cell, sandbox="sb-1"):
    """Of the sandbox's tunnels at the relay."""
    return [tunnel["state"] for tunnel in json.loads(cell.admin(f"/tunnels?sandbox={sandbox}", "relay"))["tunnels"]]


def held(cell, sandbox="sb-1"):
    """Waits until somebody's upgrade waits for the sandbox's worker."""
    until(lambda: "opening" in states(cell, sandbox), 30, "nobody waits")


def redials(cell, sandbox):
    """Waits until the sandbox's tunnels have no worker: what is said now is kept for the next one."""
    until(lambda: set(states(cell, sandbox)) == {"redialling"}, 30, "the loss is not noticed")
