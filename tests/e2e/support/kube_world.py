# SPDX-License-Identifier: MIT
"""A cell whose directory is an API server, a real one (kube.py) or one that says what a test wants (fake_kube.py), and workers at addresses
of loopback for its sandboxes."""

import json
import re
from pathlib import Path

from cell import until
from client import Http1
from origin import Origin
from tunnels import QUICK

ROUTES = [
    {"name": "proxy", "path": "/s/{sandbox}/{port}/{rest...}", "to": "/{rest}", "need": "none"},
    {"name": "inside", "path": "/n/{namespace}/{sandbox}/{port}/{rest...}", "to": "/{rest}", "need": "none"},
    {"name": "plain", "path": "/plain/{sandbox}/{port}/{session}", "to": "/{session}", "upgrade": True, "via": "relay", "need": "none"},
]
ABSENT, UNKNOWN, WAKING, STOPPED = (404, "sandbox_not_found"), (503, "directory_unavailable"), (503, "sandbox_waking"), (410, "sandbox_stopped")


class Hosts:
    """A worker at each of these addresses of loopback, all at one port, which says its address."""

    def __init__(self, *addresses):
        self.made, self.port = [], 0
        for address in addresses:
            def say(connection, request, text=address.encode()):
                connection.read_body(request)
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

            self.made.append(Origin(say, host=address, port=self.port))
            self.port = self.made[0].port

    def close(self):
        for origin in self.made:
            origin.close()


class World:
    """`start` makes the cell by `cells`; options are the directory's."""

    def __init__(self, kube, cells, hosts, resources=("agent-sandbox",), cell=None, **options):
        self.kube, self.hosts, self.make = kube, hosts, cells
        self.directory = {"kind": "kubernetes", "url": kube.url, "resources": list(resources)} | options
        self.config = {"directory": self.directory, "routes": ROUTES, "relay": QUICK} | (cell or {})
        self.cell = None

    def start(self, **more):
        self.cell = self.make(config=self.config, **more)
        return self

    def until_ready(self, seconds=10):
        until(self.ready, seconds, "it does not become ready")
        return self

    def ready(self):
        try:
            return self.cell.admin("/readyz") == "ready\n"
        except OSError:
            return False

    def metric(self, name):
        lines = [line for line in self.cell.admin("/metrics").splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def counts(self, name, value):
        """Waits until it is that much: what has happened is counted a moment later, at the end of the loop's turn."""
        until(lambda: self.metric(name) == value, 10, f"{name} does not become {value}")

    def resident(self):
        """MiB of the agent."""
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.cell.pid('agent')}/status").read_text())[1]) / 1024

    def ask(self, name, space=None):
        """The address that answers, or (status, code)."""
        path = f"/n/{space}/{name}/{self.hosts.port}/" if space else f"/s/{name}/{self.hosts.port}/"
        with Http1(self.cell.http) as client:
            response = client.request("GET", path)
        return response.body.decode() if response.status == 200 else (response.status, json.loads(response.body)["error"])

    def becomes(self, name, expected, seconds=10, space=None):
        until(lambda: self.ask(name, space) == expected, seconds, f"{name} does not become {expected}, but {self.ask(name, space)}")
