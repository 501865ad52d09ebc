# SPDX-License-Identifier: MIT
"""Tunnels through a whole cell: a client, HAProxy and the relay, in front of workers that the test drives step by step
(direct.py)."""

import base64
import itertools
import json
import os
import re
from pathlib import Path

from cell import until
from client import WEBSOCKET, connect, head, request
from direct import Peer, Worker, accept_key

# Quick where waiting is what a test would do, slow where it would disturb: a machine that is busy pauses for seconds.
QUICK = {"connect_budget": "2s", "dial_timeout": "2s", "grace_period": "300ms", "keepalive": "60s", "dead_after": "60s",
         "redial_backoff": ["20ms", "50ms", "100ms", "200ms"], "redial_budget": "30s", "drain": "300ms"}


def route(name, need="none", **keys):
    return {"name": name, "path": f"/{name}/{{sandbox}}/{{session}}", "to": "/{session}", "upgrade": True, "via": "relay",
            "need": need} | keys


ROUTES = [
    route("plain"),
    route("text", stream=True),
    route("both", overlap=True),
    route("exec", end="exit-frame"),
    route("ring", end="exit-frame", resume="scrollback"),
    route("own", redial=False),
    {"name": "application", "path": "/application/{sandbox}/{rest...}", "to": "/{rest...}", "upgrade": True, "via": "relay", "need": "none"},
    route("quiet", keepalive="empty-frame"),
    route("secure", "pty"),
    route("closing", "pty", refuse="close"),
    {"name": "api", "path": "/api/sandboxes/{sandbox}/{rest...}", "need": "none"},
]


class Tunnels:
    """`cell` is running and has ROUTES, or the built-in ones."""

    def __init__(self, cell):
        self.cell = cell
        self.workers, self.clients = [], []
        self.numbers = itertools.count(1)

    def close(self):
        for peer in [*self.clients, *self.workers]:
            peer.close()

    def worker(self):
        self.workers.append(Worker())
        return self.workers[-1]

    def sandbox(self, worker=None, **record):
        """The name of a new sandbox on that worker."""
        name = f"sb-{next(self.numbers)}"
        self.place(name, worker, **record)
        return name

    def place(self, sandbox, worker=None, **record):
        """The directory says so, and the agent knows it; with nothing but a name the sandbox is removed."""
        number = next(self.numbers)
        record = {"worker": worker.url} | getattr(worker, "record", {}) | record if worker else record
        self.cell.set_sandboxes(**{sandbox: {"epoch": number} | record if record else None})
        self.known()

    def known(self):
        """The directory is applied whole: when the agent knows what is written now, it knows all before it."""
        probe = f"probe-{next(self.numbers)}"
        target, bearer = f"/api/sandboxes/{probe}/", self.cell.bearer(probe)
        self.cell.set_sandboxes(**{probe: {"state": "stopped"}})
        until(lambda: request(self.cell.http, "GET", target, [bearer]).status == 410, 10, "the agent does not read its directory")
        del self.cell.sandboxes[probe]

    def ask(self, sandbox, route="plain", session="s1", headers=(), tls=False, query="", port=None, room=None):
        """Sends the upgrade; the answer is not awaited."""
        client = Peer(connect(port or (self.cell.https if tls else self.cell.http), tls, room=room), masks=True)
        self.clients.append(client)
        client.key = base64.b64encode(os.urandom(16)).decode()
        fields = [("Sec-WebSocket-Key", client.key) if name == "Sec-WebSocket-Key" else (name, value) for name, value in WEBSOCKET]
        client.send(head("GET", f"/{route}/{sandbox}/{session}{query}", [("Host", "cell.test"), *fields, *headers]))
        return client

    def answer(self, client):
        """(status, fields, document) of a refusal."""
        line, fields = client.head()
        body = client.take(int(fields.get("content-length", 0)))
        return int(line.split()[1]), fields, json.loads(body) if body else None

    def refused(self, sandbox, *arguments, **more):
        """(status, code) of an upgrade that is refused."""
        status, _, document = self.answer(self.ask(sandbox, *arguments, **more))
        return status, document["error"]

    def accepted(self, client):
        line, fields = client.head()
        assert line.split()[1] == "101", line
        assert fields["sec-websocket-accept"] == accept_key(client.key)
        return client

    def open(self, worker, sandbox=None, route="plain", **more):
        """(client, upstream): both ends of a tunnel to the worker."""
        client = self.ask(sandbox or self.sandbox(worker), route, **more)
        upstream = worker.serve()
        return self.accepted(client), upstream

    # ---- the relay ----
    def metric(self, name):
        """The sum of all series that begin with the text."""
        lines = [line for line in self.cell.admin("/metrics", "relay").splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def redials(self, cause):
        return self.metric(f'cellgate_relay_redials_total{{cause="{cause}",outcome="resumed"}}')

    def tunnels(self, sandbox):
        return json.loads(self.cell.admin(f"/tunnels?sandbox={sandbox}", "relay"))["tunnels"]

    def gone(self, sandbox):
        until(lambda: not self.tunnels(sandbox), 10, "the tunnel does not end")

    def state(self, sandbox, *states):
        """Waits until its one tunnel is in one of the states."""
        until(lambda: [t["state"] for t in self.tunnels(sandbox)] in [[s] for s in states], 10, f"no tunnel in {states}")

    def resident(self):
        """KiB of memory of the relay."""
        status = Path(f"/proc/{self.cell.pid('relay')}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def pass_both_ways(client, upstream, word=b"word"):
    """What the client says reaches this worker, and the answer the client."""
    client.say(word)
    assert upstream.message() == (2, word)
    upstream.say(b"re: " + word)
    assert client.message() == (2, b"re: " + word)
