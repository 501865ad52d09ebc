# SPDX-License-Identifier: MIT
"""Headless Chromium, driven over the DevTools protocol."""

import asyncio
import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request

import websockets

WAIT = 60  # seconds; a machine that is busy draws slowly
KEYS = {"\r": ("Enter", 13), "\x7f": ("Backspace", 8), "\t": ("Tab", 9)}


LEFT = ("Inspected target navigated or closed", "Not attached to an active page")


class PageLeft(AssertionError):
    """The page that was asked went away before it answered."""


class Browser:
    """One Chromium with one page, in a profile of its own. Use as a context manager."""

    def __init__(self, *flags, width=1000, height=640):
        self._flags = flags
        self._size = (width, height)
        self._loop = asyncio.new_event_loop()
        self._next_id = 0
        self._socket = None
        self.events = []  # all that the page told, as {"method":..., "params":...}

    def __enter__(self):
        self._profile = tempfile.mkdtemp(prefix="cellgate-browser-")
        self._process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
            + ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]
            # not a process for each site, and another one in reserve: they take longer to start than a page
            + ["--disable-features=SpareRendererForSitePerProcess,IsolateOrigins,site-per-process", "--disable-site-isolation-trials"]
            + [f"--user-data-dir={self._profile}", "--remote-debugging-port=0", *self._flags, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._socket:
            self._loop.run_until_complete(self._socket.close())
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _connect(self):
        file = pathlib.Path(self._profile) / "DevToolsActivePort"
        self.wait(lambda: file.exists() and file.read_text().count("\n") >= 1)
        port = file.read_text().split()[0]
        pages = []

        def find_page():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer:
                pages[:] = [target for target in json.load(answer) if target["type"] == "page"]
            return pages

        self.wait(find_page)
        self._socket = self._loop.run_until_complete(self._dial(pages[0]["webSocketDebuggerUrl"]))
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(*self._size)

    @staticmethod
    async def _dial(url):
        # no bound of what waits to be read: behind one the answer to our Close would wait, too, for ten seconds
        return await websockets.connect(url, max_size=None, max_queue=None, ping_interval=None)

    async def _call(self, message):
        await self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(await asyncio.wait_for(self._socket.recv(), WAIT))
            if answer.get("id") == message["id"]:
                return answer
            self.events.append(answer)

    def call(self, method, **params):
        self._next_id += 1
        call = self._call({"id": self._next_id, "method": method, "params": params})
        answer = self._loop.run_until_complete(asyncio.wait_for(call, 3 * WAIT))  # however much else the page has to say
        if answer.get("error", {}).get("message") in LEFT:
            raise PageLeft(answer)
        assert "error" not in answer, answer
        return answer["result"]

    @staticmethod
    def wait(condition, what="condition"):
        """The first true result of `condition`, asked again and again."""
        until = time.monotonic() + WAIT
        while not (result := condition()):
            assert time.monotonic() < until, f"timed out: {what()}" if callable(what) else f"timed out: {what}"
            time.sleep(0.03)
        return result

    # ---- the page ----

    def open(self, url):
        self.call("Page.navigate", url=url)

    def start_over(self):
        """An empty page; what earlier ones have told is forgotten, also what they were late to tell."""
        self.open("about:blank")
        self.wait(lambda: self.ask("location.href") == "about:blank")
        self.evaluate("0")  # asked of the new page, so all that the old one has said is in
        self.events.clear()

    def reload(self):
        self.call("Page.reload")

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def ask(self, expression):
        """As evaluate; None when the page is left meanwhile."""
        try:
            return self.evaluate(expression)
        except PageLeft:
            return None

    def text(self, selector):
        return self.ask(f"document.querySelector({json.dumps(selector)})?.innerText") or ""

    def expect(self, selector, text):
        """Waits until the element's text holds `text`."""
        self.wait(lambda: text in self.text(selector), lambda: f"{text!r} in {selector}: {self.text(selector)!r}")

    def follow(self, selector):
        """From now on all is kept that the element says, for however short a while: see `has_said`."""
        self.evaluate(
            "window.saidMeanwhile = [];"
            f"new MutationObserver(([{{ target }}]) => window.saidMeanwhile.push(target.textContent))"
            f".observe(document.querySelector({json.dumps(selector)}), {{ childList: true, characterData: true }})"
        )

    def has_said(self, text):
        said = "window.saidMeanwhile"
        self.wait(lambda: self.evaluate(f"{said}.some((words) => words.includes({json.dumps(text)}))"), lambda: f"{text!r} in {self.evaluate(said)}")

    def click(self, selector):
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text):
        for character in text:
            key, code = KEYS.get(character, (character, 0))
            shared = {"key": key, "code": key if code else "", "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", text="" if code and character != "\r" else character, **shared)
            self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def wheel(self, x, y, by):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def paste(self, text):
        """As an input method or the clipboard does: at once, into what has the focus."""
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    # ---- what it did ----

    def requests(self):
        self.evaluate("0")  # takes in what was told meanwhile
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return urls + [e["params"]["url"] for e in self.events if e.get("method") == "Network.webSocketCreated"]

    def complaints(self):
        """Exceptions, errors in the console, violations of the page's policy."""
        self.evaluate("0")
        return [
            e["params"]
            for e in self.events
            if e.get("method") == "Runtime.exceptionThrown"
            or (e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")
            or (e.get("method") == "Runtime.consoleAPICalled" and e["params"]["type"] == "error")
        ]
