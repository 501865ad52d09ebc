# SPDX-License-Identifier: MIT
"""What a client of each kind of session says and hears, on the default routes: one of these per tunnel. Kept apart from
sockets, so that threads and event loops can use them."""

import json
import secrets
import urllib.parse
import urllib.request

from worker import BINARY, TEXT, WORKER_BEARER


def post(port, path, body):
    made = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), dict([WORKER_BEARER, ("Content-Type", "application/json")]))
    with urllib.request.urlopen(made, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


class Dialect:
    """`take` returns the output in a message; `said` holds the other messages, `position` is where the output should be
    by what the worker says."""

    adapter, token = "none", "pty"

    def __init__(self, sandbox):
        self.sandbox, self.said, self.skipped = sandbox, [], 0

    def create(self, port, script):
        """The path of a new session that runs this program, which is asked for at a worker."""
        raise NotImplementedError

    def typed(self, data):
        return data

    def take(self, opcode, payload, had):
        """`had`: bytes of output taken so far, gaps included."""
        if opcode == BINARY:
            return payload
        self.said.append(json.loads(payload))
        return b""


class Plain(Dialect):
    """OpenComputer's terminal."""

    def create(self, port, script):
        session = post(port, f"/sandboxes/{self.sandbox}/pty", {"shell": str(script)})["sessionID"]
        return f"/api/sandboxes/{self.sandbox}/pty/{session}"


class Exec(Dialect):
    """OpenComputer's command."""

    adapter, token = "scrollback", "exec"

    def create(self, port, script):
        session = post(port, f"/sandboxes/{self.sandbox}/exec", {"cmd": str(script), "args": []})["sessionID"]
        return f"/api/sandboxes/{self.sandbox}/exec/{session}"

    def typed(self, data):
        return b"\x00" + data

    def take(self, opcode, payload, had):
        if payload == b"":
            return b""  # keeps the tunnel alive
        assert opcode == BINARY and payload[0] in (1, 3, 4), (opcode, payload[:40])
        if payload[0] == 1:
            return payload[1:]
        self.said.append(payload)
        return b""


class Since(Dialect):
    """OpenSandbox's terminal."""

    adapter = "since"

    def create(self, port, script):
        session = post(port, "/pty", {"command": str(script)})["session_id"]
        return f"/v1/sandboxes/{self.sandbox}/proxy/44772/pty/{session}/ws"

    def typed(self, data):
        return b"\x00" + data

    def take(self, opcode, payload, had):
        if opcode == TEXT:
            return super().take(opcode, payload, had)
        assert payload[0] in (1, 3), payload[:40]
        if payload[0] == 1:
            return payload[1:]
        offset = int.from_bytes(payload[1:9], "big")
        assert offset >= had, f"a replay from {offset}, but {had} were delivered"
        self.skipped += offset - had
        return payload[9:]


class Terminal(Dialect):
    """A terminal of the reference worker's, which speaks Cell-Resume."""

    adapter = "cell"

    def create(self, port, script):
        command = urllib.parse.quote_plus(str(script))
        return f"/v1/sandboxes/{self.sandbox}/proxy/44772/terminal?command={command}&n={secrets.token_hex(2)}"


DIALECTS = {dialect.adapter: dialect for dialect in (Plain, Exec, Since, Terminal)}
