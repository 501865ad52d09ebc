# SPDX-License-Identifier: MIT
"""A real Firefox, driven by WebDriver BiDi: a WebSocket over HTTP/2 while HAProxy is reloaded (haproxy#2789 reports that Firefox closes
the WebSockets of a connection that gets a GOAWAY)."""

import asyncio
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
import websockets
from cell import ROOT, end, free_port, until
from origin import Origin, switch
from tunnels import ROUTES

pytestmark = pytest.mark.skipif(not shutil.which("firefox-esr"), reason="firefox-esr is not installed")
OPEN = """() => new Promise((resolve) => {
  window.said = []; window.ended = null;
  const ws = window.ws = new WebSocket(URL_);
  ws.onmessage = (event) => window.said.push(event.data);
  ws.onclose = (event) => { window.ended = [event.code, event.wasClean]; resolve('closed'); };
  ws.onopen = () => resolve('open');
})"""
SAY = "() => new Promise((resolve) => { const n = said.length; ws.send('word'); const t = setInterval(() => { if (ended || said.length > n) { clearInterval(t); resolve(ended ? null : said[n]); } }, 20); })"


class Firefox:
    """One headless Firefox with one page, in a profile of its own. Use as a context manager."""

    def __enter__(self):
        self.loop, self.numbers = asyncio.new_event_loop(), itertools.count(1)
        self.profile = tempfile.mkdtemp(prefix="cg-firefox-")
        # Nothing but the pages of the test is asked for.
        Path(self.profile, "user.js").write_text('user_pref("network.captive-portal-service.enabled", false);\nuser_pref("network.connectivity-service.enabled", false);\n'
                                                 'user_pref("app.normandy.enabled", false);\nuser_pref("services.settings.server", "");\n'
                                                 'user_pref("browser.safebrowsing.provider.mozilla.updateURL", "");\nuser_pref("toolkit.telemetry.enabled", false);\n')
        port = free_port()
        command = ["firefox-esr", "--headless", "--no-remote", "--profile", self.profile, f"--remote-debugging-port={port}", "about:blank"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=os.environ | {"HOME": self.profile, "MOZ_CRASHREPORTER_DISABLE": "1"})
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 60, "Firefox does not listen")
        self.socket = self.loop.run_until_complete(self._connect(f"ws://127.0.0.1:{port}/session"))
        self.do("session.new", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})
        self.page = self.do("browsingContext.getTree")["contexts"][0]["context"]
        return self

    def __exit__(self, *_):
        self.loop.run_until_complete(self.socket.close())
        end(self.process)
        self.loop.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    @staticmethod
    async def _connect(url):
        return await websockets.connect(url, max_size=None)

    def do(self, method, **params):
        return self.loop.run_until_complete(self._do(next(self.numbers), method, params))

    async def _do(self, number, method, params):
        await self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            said = json.loads(await asyncio.wait_for(self.socket.recv(), 60))
            if said.get("id") == number:
                assert said["type"] == "success", said
                return said["result"]

    def open(self, url):
        self.do("browsingContext.navigate", context=self.page, url=url, wait="complete")

    def call(self, function):
        """What the function returns in the page, once its promise is kept."""
        result = self.do("script.callFunction", functionDeclaration=function, awaitPromise=True, target={"context": self.page})
        assert result["type"] == "success", result
        return result["result"].get("value")


@pytest.fixture(scope="module")
def firefox():
    with Firefox() as firefox:
        yield firefox


def answer(connection, request):
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nempty")


def echo_frames(connection, request):
    """Gives back the payload of short frames."""
    switch(connection, request)
    while True:
        first, second = connection.read_exactly(2)
        mask, payload = connection.read_exactly(4), connection.read_exactly(second & 127)
        if first & 15 == 8:
            return connection.send(bytes([0x88, 0]))
        connection.send(bytes([first, len(payload)]) + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)))


class Gate:
    """HAProxy of its own in front of the cell's daemons, started again as `systemctl reload` does it."""

    def __init__(self, cell, folder):
        self.port, self.folder = free_port(), folder
        run = cell.run_dir
        self.environment = os.environ | {
            "CELLGATE_DIR": str(ROOT / "haproxy"), "CELLGATE_CERT": str(run / "cert.pem"), "CELLGATE_HTTP": f"127.0.0.1:{free_port()}", "CELLGATE_HTTPS": f"127.0.0.1:{self.port}",
            "CELLGATE_STATS": f"{folder}/stats", "CELLGATE_WORKER_TLS": f"{folder}/tls", "CELLGATE_AGENT": f"unix@{run}/agent.sock", "CELLGATE_RELAY": f"unix@{run}/relay.sock"}

    def start(self, *more):
        with open(f"{self.folder}/log", "ab") as log:
            process = subprocess.Popen([*os.environ["HAPROXY"].split(), "-db", "-f", ROOT / "haproxy/haproxy.cfg", *more], env=self.environment, stdout=log, stderr=log)
        until(lambda: self.in_force() == process.pid, 20, "HAProxy does not start")
        return process

    def in_force(self):
        """The process that has the admin socket."""
        with socket.socket(socket.AF_UNIX) as sock:
            if sock.connect_ex(f"{self.folder}/stats"):
                return None
            sock.sendall(b"show info\n")
            said = b"".join(iter(lambda: sock.recv(65536), b""))
            return int(said.partition(b"\nPid: ")[2].split()[0])


@pytest.mark.parametrize("way", ["plain", "direct"])
def test_a_websocket_over_http2_outlives_a_reload(cells, firefox, way):
    """Also while its page asks for more, which tells Firefox that the old process takes nothing new."""
    worker = Origin(answer=answer, upgrade=echo_frames)
    routes = [*ROUTES, {"name": "direct", "path": "/direct/{sandbox}/{session}", "to": "/{session}", "upgrade": True, "need": "none"}]
    cell = cells(sandboxes={"sb-1": {"worker": worker.url}}, config={"routes": routes, "tokens": [{"kind": "static", "public": True, "everywhere": True, "need": ["exec", "pty"]}]})
    gate = Gate(cell, tempfile.mkdtemp(prefix="cg-"))
    dial = OPEN.replace("URL_", json.dumps(f"wss://localhost:{gate.port}/{way}/sb-1/s1"))
    old = gate.start()
    try:
        firefox.open(f"https://localhost:{gate.port}/api/sandboxes/sb-1/page")
        assert firefox.call(dial) == "open" and firefox.call(SAY) == "word"
        new = gate.start("-sf", str(old.pid))
        try:
            seen = [firefox.call(SAY)]
            for _ in range(3):
                assert firefox.call("() => fetch(location.href).then((answer) => answer.status)") == 200
                seen.append(firefox.call(SAY))
            assert seen == ["word"] * 4 and firefox.call("() => window.ended") is None
            firefox.call("() => ws.close()")
            until(lambda: [line for line in Path(gate.folder, "log").read_text().splitlines() if " HTTP/2.0 " in line and f"route={way} " in line], 10, "it was not HTTP/2")
        finally:
            end(new)
    finally:
        end(old)
        shutil.rmtree(gate.folder)
        worker.close()
