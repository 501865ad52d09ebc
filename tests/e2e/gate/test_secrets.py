# SPDX-License-Identifier: MIT
"""Secrets in every source, header, record and key, each a mark of its own; then all that goes wrong: refusals, worker
failures, garbage, killed daemons, explain, admin pages. None of the marks is in a log, an error, a metric, an admin page, an
answer of the operator's commands, or what the kernel shows about a process."""

import contextlib
import hashlib
import os
import re
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
from pathlib import Path

import pytest
from cell import BIN, closed_port, stop, token, until
from client import WEBSOCKET, Http1, Http2, connect, head
from raw import RawOrigin, h2_headers, h2_talk

MARKS = {}


def mark(name):
    """A secret that stands nowhere else; the test says by its name where it was planted."""
    return MARKS.setdefault(name, "mk" + secrets.token_hex(12))


KEY = ("key " + mark("key") + " of the tests, long enough").encode()
ROUTES = [
    {"name": "preview", "host": "{port}-{sandbox}-{token}.preview.test", "cookie": True},
    {"name": "signed-preview", "host": "{port}-{token}.signed.test"},
    {"name": "relay", "path": "/r/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "pty", "hold": "50ms"},
    {"name": "closing", "path": "/c/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "pty", "refuse": "close", "hold": "50ms"},
    {"name": "open", "path": "/o/{sandbox}/{rest...}", "to": "/{rest}", "need": "none", "auth": "keep", "cookies": "keep"},
    {"name": "signed", "path": "/p/{sandbox}/{port}/{expires}/{signature}/{rest...}", "to": "/{rest}"},
    {"name": "direct", "path": "/d/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"},
]


def records(origin):
    headers = {"Authorization": "Bearer " + mark("record authorization"), "X-EXECD-ACCESS-TOKEN": mark("record execd"), "OPENSANDBOX-EGRESS-AUTH": mark("record egress")}
    digest = MARKS.setdefault("record access", hashlib.sha256(mark("access token").encode()).hexdigest())
    up = {"worker": origin.url, "headers": headers, "access": {"token_sha256": digest}}
    return {
        "up": up,
        "gone": {"worker": f"http://127.0.0.1:{closed_port()}", "headers": headers},
        "stopped": {"state": "stopped", "headers": headers},
        "waking": {"state": "waking", "headers": headers},
        "outside": {"worker": "http://192.0.2.1:80", "headers": headers},
    }


def sources():
    """name of the credential's place -> header, each with a mark that is no valid credential."""
    return {
        "bearer": ("Authorization", "Bearer " + mark("bearer")),
        "basic": ("Authorization", "Basic " + mark("basic")),
        "no scheme": ("Authorization", mark("no scheme")),
        "jwt-like": ("Authorization", f"Bearer eyJhbGciOiJIUzI1NiJ9.{mark('payload')}.{mark('signature')}"),
        "agent-sandbox-like": ("Authorization", f"Bearer v1.{mark('scoped claims')}.{mark('scoped signature')}"),
        "agent-sandbox v2-like": ("Authorization", f"Bearer v2.key-1.{mark('scoped v2 claims')}.{mark('scoped v2 signature')}"),
        "subprotocol": ("Sec-WebSocket-Protocol", "cellgate, cellgate.bearer." + mark("subprotocol")),
        "other subprotocol": ("Sec-WebSocket-Protocol", "base64url.bearer." + mark("other subprotocol")),
        "cookie": ("Cookie", "__Host-cellgate=" + mark("cookie")),
        "application's cookie": ("Cookie", "session=" + mark("application's cookie")),
        "CF cookie": ("Cookie", "CF_Authorization=" + mark("CF cookie")),
        "secure access": ("OpenSandbox-Secure-Access", mark("secure access")),
        "oc preview": ("X-OC-Preview-Token", mark("oc preview")),
        "daytona preview": ("X-Daytona-Preview-Token", mark("daytona preview")),
        "api key": ("OPEN-SANDBOX-API-KEY", mark("api key")),
        "x api key": ("X-API-Key", mark("x api key")),
        "execd": ("X-EXECD-ACCESS-TOKEN", mark("execd")),
        "egress": ("OPENSANDBOX-EGRESS-AUTH", mark("egress")),
        "e2b": ("e2b-traffic-access-token", mark("e2b")),
        "proxy": ("Proxy-Authorization", "Basic " + mark("proxy")),
        "forged handover": ("X-Cell-Handover", "route=x;sandbox=y;auth=" + mark("forged handover")),
        "uid": ("X-Sandbox-UID", mark("uid")),
        "referer": ("Referer", "https://cell.test/?cellgate_token=" + mark("referer")),
        "origin": ("Origin", "https://" + mark("origin") + ".test"),
        "own header": ("X-Own", mark("own header")),
        "forwarded": ("X-Forwarded-For", mark("forwarded")),
    }


def targets():
    """Where each credential is sent, with what addresses can hold."""
    return [
        f"/d/up/{mark('path')}?cellgate_token={mark('query token')}&api_key={mark('query api_key')}",
        f"/r/up/{mark('relay path')}?token={mark('query of a relay')}&cellgate_token={mark('relay token')}",
        f"/c/up/x?cellgate_token={mark('closing token')}",
        f"/o/gone/x?DAYTONA_SANDBOX_AUTH_KEY={mark('daytona query')}",
        f"/o/outside/x?secret={mark('query of a failure')}",
        f"/p/up/80/x2qxvk/{mark('signature in a path')[:9]}/x",
        f"/p/up/80/{mark('expires in a path')}/{mark('long signature')}/x",
        f"/api/sandboxes/up/files/download?path=/x&expires=2000000000&signature={mark('file signature')}",
        f"/files?path=/x&signature=v1_{mark('envd signature')}",
        f"/d/v2.key-1.{mark('scoped v2 in a path')}.{mark('its signature')}/x",
        f"/d/f1.bnM.c2I.80.a.{mark('route token in a path')}/x",
        f"/nowhere/{mark('no route')}?cellgate_token={mark('no route token')}",
        f"/d/up/../../{mark('climbing')}",
    ]


class Everything:
    """All that anybody but client, worker and who wrote the configuration gets to see."""

    def __init__(self, cell):
        self.cell = cell
        self.texts = {}

    def add(self, name, text):
        self.texts.setdefault(name, []).append(text if isinstance(text, str) else text.decode("latin-1"))

    def files(self):
        for path in [*self.cell.run_dir.rglob("*"), self.cell.folder / "up.log"]:
            if path.is_file() and not path.name.endswith(".pem"):
                self.add(f"file {path.name}", path.read_bytes())

    def processes(self):
        seen = set()
        waiting = [self.cell.up.pid]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):  # it has ended
                for part in ("cmdline", "environ", "comm", "status"):
                    self.add(f"/proc {part}", Path(f"/proc/{pid}/{part}").read_bytes())
                waiting += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
                seen.add(pid)
        assert len(seen) >= 4

    def pages(self):
        for name, paths in (("agent", ["/metrics", "/healthz", "/readyz", "/status"]), ("relay", ["/metrics", "/healthz", "/readyz", "/tunnels", "/stats", "/"])):
            for path in paths:
                try:
                    self.add(f"{name} {path}", self.cell.admin(path, name))
                except urllib.error.HTTPError as e:
                    self.add(f"{name} {path}", e.read())

    def haproxy(self):
        for command in ("show stat", "show info", "show sess", "show sess all", "show servers state", "show table"):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(next(self.cell.run_dir.glob("haproxy*.sock"))))
                sock.sendall(command.encode() + b"\n")
                self.add(f"haproxy {command}", b"".join(iter(lambda: sock.recv(65536), b"")))

    def command(self, *arguments, stdin=None):
        done = subprocess.run([BIN / "cellgate", *arguments], capture_output=True, text=True, timeout=20, input=stdin)
        assert done.returncode != 2, done.stderr  # the usage has no secrets
        self.add(f"cellgate {arguments[0]}", done.stdout + done.stderr)

    def found(self):
        return sorted((name, where) for where, texts in self.texts.items() for name, value in MARKS.items() if any(value in text for text in texts))


@pytest.fixture(scope="module")
def origin():
    origin = RawOrigin()
    yield origin
    origin.close()


@pytest.fixture(scope="module")
def cell(cells, origin):
    relay = {"connect_budget": "100ms", "dial_timeout": "100ms", "drain": "100ms"}
    config = {"routes": ROUTES, "log_level": "debug", "tokens": [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}, {"kind": "static", "sources": ["label"], "everywhere": True}], "relay": relay}
    return cells(sandboxes=records(origin), config=config, files={"k1.secret": KEY}, environment={"CELLGATE_WORKER_TIMEOUT": "500ms"})


def valid(sandbox="up", **claims):
    made = token("test", secret=KEY, sandbox=sandbox, **claims)
    MARKS.setdefault("valid signature " + str(len(MARKS)), made.split(".")[2])
    return made


def everything_refused(cell, everything):
    """Each credential at each address, plain and as an upgrade, over HTTP/1.1 and HTTP/2."""
    for target in targets():
        for header in sources().values():
            for upgrade in (False, True):
                with Http1(cell.http) as client:
                    response = client.request("GET", target, [*(WEBSOCKET if upgrade else []), header])
                if response.status >= 400:
                    everything.add("error", response.body + repr(response.headers).encode())
        with Http2(cell.https) as client:
            response = client.request("GET", target, [h for h in sources().values() if h[0] not in ("Authorization", "Proxy-Authorization")])
            everything.add("error", response.body + repr(response.headers).encode())
        # What no parser takes, with secrets in it.
        for bad in (b"X-A\0: b\r\n", b"Content-Length: x\r\n", b" folded\r\n", b"Host: two\r\n"):
            data = head("GET", target, [("Host", "cell.test"), sources()["bearer"]])[:-2] + bad + b"\r\n"
            with connect(cell.http) as sock:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                everything.add("error", b"".join(iter(lambda: sock.recv(65536), b"")))
        h2_talk(cell.https, h2_headers([(":method", "GET"), (":scheme", "https"), (":authority", "cell.test"), (":path", target), ("x-a", "b\r\n" + mark("h2 value"))]))


def valid_tokens_refused(cell, everything):
    """Good signatures for what is not allowed, or does not work."""
    for sandbox in ("stopped", "waking", "gone", "outside", "absent"):
        for claims in ({}, {"ttl": -60}, {"aud": "other"}, {"need": ["none-of-these"]}, {"org": "o2"}):
            good = valid(sandbox, **claims)
            for way, extra in (("d", []), ("r", WEBSOCKET), ("c", WEBSOCKET)):
                for target, headers in (
                    (f"/{way}/{sandbox}/x", [("Authorization", "Bearer " + good)]),
                    (f"/{way}/{sandbox}/x?cellgate_token={good}", []),
                    (f"/{way}/{sandbox}/x", [("Sec-WebSocket-Protocol", "cellgate, cellgate.bearer." + good)]),
                ):
                    with Http1(cell.http) as client:
                        client.send(head("GET", target, [("Host", "cell.test"), *extra, *headers]))
                        everything.add("error", repr(client.response_head().headers))


def labels_refused(cell, everything):
    """Tokens that are part of a host's label, beside the sandbox's name and instead of it."""
    for host in (f"80-up-{mark('label')}.preview.test", f"80-{mark('label instead of a name')}.signed.test"):
        for upgrade in (False, True):
            with Http1(cell.http) as client:
                response = client.request("GET", "/x", WEBSOCKET if upgrade else [], host=host)
            assert response.status == 401
            everything.add("error", response.body + repr(response.headers).encode())
        with Http2(cell.https) as client:
            response = client.request("GET", "/x", host=host)
            everything.add("error", response.body + repr(response.headers).encode())
        everything.command("explain", "--config", str(cell.config_file), f"GET http://{host}/x")
        everything.command("explain", "--json", "--config", str(cell.config_file), f"GET http://{host}/x")


def open_tunnels(cell):
    """Tunnels that live while the rest happens: one for each source, direct and through the relay."""
    made = []
    for way in "rd":
        for source in ("authorization", "query", "subprotocol"):
            good = valid()
            headers = {"authorization": [("Authorization", "Bearer " + good)], "subprotocol": [("Sec-WebSocket-Protocol", "cellgate, cellgate.bearer." + good)]}
            client = Http1(cell.http)
            query = f"?cellgate_token={good}&x={mark('query of a tunnel')}" if source == "query" else f"?x={mark('query of a tunnel')}"
            response = client.upgrade(f"/{way}/up/{mark('path of a tunnel')}{query}", headers.get(source, []))
            assert response.status == 101, (way, source, response.status)
            client.send(b"\x82\x9amask" + bytes(a ^ b for a, b in zip(mark("frame").encode(), b"mask" * 7)))
            made.append(client)
    return made


def operator_looks(cell, everything):
    config = str(cell.config_file)
    bad, good = mark("explained"), valid()
    for header in [*sources().values(), ("Authorization", "Bearer " + good)]:
        everything.command("explain", "--config", config, "-H", ": ".join(header), f"GET http://cell.test/d/up/x?api_key={bad}")
        everything.command("explain", "--json", "--upgrade", "--config", config, "-H", ": ".join(header), f"GET http://cell.test/r/up/x?x={bad}&cellgate_token={bad}")
    everything.command("token", "--config", config, "--inspect", good)
    everything.command("token", "--config", config, "--inspect", f"eyJhbGciOiJIUzI1NiJ9.{bad}.{bad}")
    sockets = {name: f"unix@{cell.run_dir}/{name}.control.sock" for name in ("agent", "relay")}
    for command in ("status", "tunnels"):
        everything.command(command, "--agent", sockets["agent"], "--relay", sockets["relay"])


def answers(cell, name):
    try:
        return cell.admin("/healthz", name)
    except OSError:
        return None


def crash(cell, name, everything):
    """The summary that SIGUSR1 asks for, then SIGABRT: what a crash leaves is a log, and what the kernel tells of it."""
    old = cell.pid(name)
    cell.kill(name, signal.SIGUSR1)
    log = cell.run_dir / f"{name}.log"
    until(lambda: re.search("msg=(status|summary)", log.read_text()), 10, "no summary")
    everything.processes()
    cwd = Path(os.readlink(f"/proc/{old}/cwd"))
    cell.kill(name, signal.SIGABRT)
    until(lambda: cell.pid(name) != old, 10, "it is not started again")
    until(lambda: answers(cell, name), 20, "it does not come up again")
    assert not list(cwd.glob("core*")), "a core file was written"


def test_no_secret_is_anywhere_it_does_not_belong(cell, origin):
    everything = Everything(cell)
    everything_refused(cell, everything)
    valid_tokens_refused(cell, everything)
    labels_refused(cell, everything)
    tunnels = open_tunnels(cell)
    everything.pages()
    everything.haproxy()
    operator_looks(cell, everything)
    everything.processes()
    # A key, a directory and a configuration that are not in order any more, each with its content as the trap.
    (cell.folder / "k1.secret").write_bytes(mark("short key")[:20].encode())
    part = cell.folder / "sandboxes.json.part"
    part.write_text('{"sandboxes": {"up": {"worker": "http://' + mark("bad record") + ':x", "headers": {"A": "' + mark("bad record header") + '"} "oops"')
    part.rename(cell.folder / "sandboxes.json")
    good = cell.config_file.read_text()
    cell.config_file.write_text(good[:-1] + ', "secret": "' + mark("bad configuration") + '"}')
    for name in ("agent", "relay"):
        cell.kill(name, signal.SIGHUP)
    log = cell.run_dir / "agent.log"
    until(lambda: "level=error" in log.read_text() or "level=warn" in log.read_text(), 10)
    time.sleep(0.2)
    cell.config_file.write_text(good)
    (cell.folder / "k1.secret").write_bytes(KEY)
    cell.set_sandboxes()
    stop(cell.pid("agent"))
    with Http1(cell.http) as client:
        everything.add("error", client.request("GET", f"/d/up/x?cellgate_token={valid()}").body)
    cell.kill("agent", signal.SIGCONT)
    crash(cell, "agent", everything)
    crash(cell, "relay", everything)
    for tunnel in tunnels:
        tunnel.sock.close()
    until(lambda: cell.access_log().count(" 101 ") >= 6, 10, "the tunnels' lines do not come")
    everything.pages()
    everything.files()
    assert everything.found() == []
    # The marks did reach somebody, or there would be nothing to find: the worker has the record's, and no client's token.
    got = b"".join(bytes(raw) for raw in origin.connections).decode("latin-1")
    assert MARKS["record authorization"] in got and MARKS["path of a tunnel"] in got and MARKS["query of a tunnel"] in got
    carried = [n for n, v in MARKS.items() if v in got and (n.startswith("valid signature") or n in ("bearer", "subprotocol", "cookie", "relay token", "closing token", "query token", "key"))]
    assert carried == []
