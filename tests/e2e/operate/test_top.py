# SPDX-License-Identifier: MIT
"""What an operator looks for: the relay's /top, its page in a browser, and cellgate top in a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import urllib.error
import urllib.parse
from pathlib import Path

import pytest
from browser import Browser
from cell import BIN, until
from direct import Direct

HOSTILE = ["<img src=x onerror=alert(1)>", "\x1b[2J\x1b[H\x07", "‮bs-live", "a\nb\tc", "\x9b31m", "</script>", "x" * 900]


RELAY = {"keepalive": "60s", "dead_after": "60s", "max_tunnels": 40, "max_tunnels_per_sandbox": 0, "max_tunnels_per_org": 0, "redial_backoff": ["20ms"]}


@pytest.fixture
def direct(tmp_path):
    with Direct(tmp_path, relay=RELAY) as d:
        yield d


@pytest.fixture
def hostile(tmp_path):
    """A relay with a tunnel of each hostile name. No agent would admit them."""
    with Direct(tmp_path, relay=RELAY, agent=False) as d:
        worker = d.worker()
        for name in HOSTILE:
            d.open(worker, sandbox=name, session="y" * 3000, sub="z" * 3000)
        yield d


def top(direct, **query):
    return json.loads(direct.get("/top?" + urllib.parse.urlencode(query)))


def lose_and_find(direct, worker, upstream):
    """The worker's loss, and its tunnel served again."""
    upstream.reset()
    return worker.serve()


def test_the_first_in_an_order_are_shown_and_all_are_counted(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    direct.set("sb-2", worker, org="Acme")
    pairs = [direct.open(worker) for _ in range(4)]
    other = direct.open(worker, sandbox="sb-2", org="Acme")
    other[0].say(b"x" * 500)
    other[1].message()
    found = top(direct, rows=2, sort="bytes")
    assert found["tunnels"] == found["matching"] == 5 and len(found["shown"]) == 2 and found["max_tunnels"] == 40
    assert found["shown"][0]["sandbox"] == "sb-2" and found["shown"][0]["to_worker"] >= 500
    ages = [t["age"] for t in top(direct, sort="age")["shown"]]
    assert len(ages) == 5 and ages == sorted(ages, reverse=True)
    assert found["sandboxes"] == [{"sandbox": "sb-1", "tunnels": 4}, {"sandbox": "sb-2", "tunnels": 1}]
    for text, count in {"sb-1": 4, "SB-2": 1, "acme": 1, "pty": 5, f":{worker.port}": 5, "serving": 5, "nobody": 0, found["shown"][0]["id"]: 1}.items():
        assert top(direct, filter=text)["matching"] == count, text
    assert top(direct, rows=0)["shown"] == []
    pairs[0][0].close_with(1000)
    assert pairs[0][1].hear()[0] == 8
    pairs[0][1].close_with(1000)
    until(lambda: top(direct)["ends"], 10)
    (end,) = top(direct)["ends"]
    assert (end["reason"], end["sandbox"], end["route"]) == ("client_closed", "sb-1", "pty") and abs(end["at"] - time.time()) < 60
    assert top(direct)["reasons"] == {"client_closed": 1}
    assert direct.control(command="top", sort="age", rows="1", filter="sb-1")["matching"] == 3


def test_redials_and_gaps_are_told(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    _, upstream = direct.open(worker)
    lose_and_find(direct, worker, upstream)
    until(lambda: top(direct)["redials_by_cause"]["reset"] == {"resumed": 1, "failed": 0}, 10)
    found = top(direct, sort="redials")
    assert sum(g["count"] for g in found["gaps"]) == 1 and found["gaps"][-1]["up_to"] is None
    assert found["shown"][0]["redials"] == 1


@pytest.mark.parametrize("query", ["sort=name", "rows=many", "rows=201", "rows=", "filter=" + "x" * 129])
def test_a_question_that_makes_no_sense_is_refused(direct, query):
    with pytest.raises(urllib.error.HTTPError) as refused:
        direct.get("/top?" + query)
    assert refused.value.code == 400
    assert not direct.control(command="top", **dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))["ok"]


def test_the_answer_is_small_however_long_names_are(hostile):
    text = hostile.get("/top")
    assert len(text) < 4096 * len(HOSTILE)
    shown = {t["sandbox"] for t in json.loads(text)["shown"]}
    assert shown == {name[:96] for name in HOSTILE}


# ---- the page ----


@pytest.fixture(scope="module")
def chromium():
    with Browser(width=1300, height=1000) as browser:
        yield browser


def open_page(chromium, direct):
    chromium.start_over()
    chromium.call("Emulation.setEmulatedMedia", features=[])
    chromium.open(f"http://{direct.admin_address}/")
    return chromium


@pytest.fixture
def page(direct, chromium):
    """The relay's page, open."""
    return open_page(chromium, direct)


def shown(page, table):
    rows = page.ask(f"[...document.querySelectorAll('#{table} tr')].map(r => [...r.cells].map(c => c.textContent))")
    return rows or []


def test_the_page_shows_what_there_is(direct, page):
    worker = direct.worker()
    direct.set(worker=worker)
    direct.set("sb-2", worker)
    first, *_ = [direct.open(worker) for _ in range(3)]
    direct.open(worker, sandbox="sb-2")
    lose_and_find(direct, worker, first[1])
    page.expect("#tunnels", "4 of 40")
    page.expect("#state", "ready, the agent is connected")
    page.wait(lambda: ["reset", "1", "0"] in shown(page, "causes"))
    assert shown(page, "sandboxes") == [["sb-1", "3"], ["sb-2", "1"]] and len(shown(page, "rows")) == 4
    assert page.text("#gaps") == "1" and page.evaluate("[...document.querySelectorAll('#histogram rect')].filter(r => +r.getAttribute('height')).length") == 1
    assert page.evaluate("document.getElementById('tunnels-meter').value") == 10
    first[0].close_with(1000)
    page.wait(lambda: shown(page, "ends"))
    assert shown(page, "ends")[0][1:4] == ["client_closed", "sb-1", "pty"] and shown(page, "reasons") == [["client_closed", "1"]]
    assert page.complaints() == [] and {urllib.parse.urlsplit(url).netloc for url in page.requests()} == {direct.admin_address}


def test_the_page_filters_and_sorts(direct, page):
    worker = direct.worker()
    direct.set(worker=worker)
    direct.set("sb-2", worker)
    direct.open(worker)
    direct.open(worker, sandbox="sb-2")
    page.wait(lambda: len(shown(page, "rows")) == 2)
    page.evaluate("document.getElementById('filter').focus()")
    page.type("SB-2")
    page.wait(lambda: [row[3] for row in shown(page, "rows")] == ["sb-2"])
    page.evaluate("document.getElementById('filter').value = ''; document.getElementById('sort').value = 'age'; document.getElementById('sort').onchange()")
    page.wait(lambda: [row[3] for row in shown(page, "rows")] == ["sb-1", "sb-2"])
    page.click("#sandboxes button")
    page.wait(lambda: len(shown(page, "rows")) == 1)
    assert page.evaluate("document.getElementById('filter').value").startswith("sb-") and page.complaints() == []


def test_names_are_text_in_the_page(hostile, chromium):
    page = open_page(chromium, hostile)
    page.wait(lambda: len(shown(page, "rows")) == len(HOSTILE))
    assert {row[3] for row in shown(page, "rows")} == {name[:96] for name in HOSTILE}
    assert page.evaluate("document.querySelectorAll('td img, td script').length") == 0
    assert page.evaluate("[...document.querySelectorAll('#rows td')].every(c => c.className == 'n' || c.firstChild.tagName == 'BDI')")
    assert page.complaints() == []


@pytest.mark.parametrize("scheme,dark", [("light", False), ("dark", True)])
def test_the_page_is_as_dark_as_one_wishes(page, scheme, dark):
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    light = "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3"
    page.expect("#state", "ready")
    paper, ink = (page.evaluate(light.format(what)) for what in ("backgroundColor", "color"))
    assert (paper < ink) == dark and abs(paper - ink) > 150


def test_the_page_says_when_nobody_answers(direct, page):
    page.expect("#state", "ready")
    direct.relay.kill()
    direct.relay.wait()
    page.expect("#state", "the relay does not answer")


# ---- cellgate top ----


def sockets(direct):
    return ["--relay", f"unix@{direct.folder}/relay.control.sock", "--agent", f"unix@{direct.folder}/agent.control.sock"]


def run(*arguments):
    done = subprocess.run([BIN / "cellgate", "top", *arguments], capture_output=True, text=True, timeout=20)
    return done.returncode, done.stdout, done.stderr


def test_once_is_for_scripts(direct):
    worker = direct.worker()
    direct.set(worker=worker)
    direct.set("sb-2", worker)
    pairs = [direct.open(worker), direct.open(worker), direct.open(worker, sandbox="sb-2")]
    lose_and_find(direct, worker, pairs[0][1])
    until(lambda: top(direct)["redials_by_cause"]["reset"]["resumed"], 10)
    code, text, errors = run("--once", *sockets(direct))
    assert (code, errors) == (0, "") and "\x1b" not in text
    assert "tunnels   3 of 40 " in text and "reset 1 " in text and "most in   sb-1 (2)   sb-2 (1)\n" in text and "relay: ready   agent: ready   cell: test" in text
    assert len(re.findall(r"^t-\d+-\d+ ", text, re.M)) == 3
    code, text, _ = run("--filter", "sb-2", "--sort", "age", *sockets(direct))  # its output is no terminal
    assert code == 0 and len(re.findall(r"^t-\d+-\d+ ", text, re.M)) == 1
    code, text, _ = run("--json", "--filter=sb-2", *sockets(direct))
    assert code == 0 and json.loads(text)["matching"] == 1


def test_a_daemon_that_does_not_answer_is_told(direct, tmp_path):
    relay, agent = sockets(direct)[:2], ["--agent", f"unix@{tmp_path}/nobody"]
    code, text, errors = run("--once", *relay, *agent)
    assert code == 1 and errors.startswith("cellgate: the agent: ") and "tunnels   0 of 40 " in text
    code, text, errors = run(*agent, "--relay", f"unix@{tmp_path}/nobody")
    assert code == 1 and text == "" and errors.count("cellgate: the ") == 2


@pytest.mark.parametrize("arguments", [["--sort", "name"], ["--sort"], ["--interval", "1ms"], ["--interval", "soon"], ["--filter", "x" * 101], ["extra"], ["--once", "--sort", "age", "--sort", "idle"]])
def test_wrong_usage_is_2_and_help_is_0(arguments):
    code, text, errors = run(*arguments)
    assert (code, text) == (2, "") and "usage: cellgate top" in errors
    code, text, errors = run("--help")
    assert (code, errors) == (0, "") and "usage: cellgate top" in text


def test_a_line_of_hostile_names_moves_no_cursor(hostile):
    code, text, _ = run("--once", *sockets(hostile))
    assert code == 1 and re.fullmatch(r"[ -~\n]*", text)
    rows = re.findall(r"^t-\d+-\d+ .*$", text, re.M)
    assert len(rows) == len(HOSTILE) and {len(row) for row in rows} == {len(rows[0])}
    assert any(" ?[2J?[H? " in row for row in rows) and any(" a?b?c " in row for row in rows)


class Terminal:
    """cellgate top in a terminal of its own; what it draws is kept as a screen of rows."""

    # Clearing a line or what is below, going home, another screen, the cursor shown, lines that wrap: nothing else.
    ALLOWED = re.compile(r"\x1b\[(?:K|J|H|\?(?:1049|25|7)[hl])|\r\n|[ -~]")

    def __init__(self, *arguments, rows=24, columns=100):
        self.fd, other = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(other)
        self.process = subprocess.Popen(["setsid", "--ctty", BIN / "cellgate", "top", "--interval", "250ms", *arguments], stdin=other, stdout=other, stderr=subprocess.PIPE)
        self.other, self.text = other, ""

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.fd], [], [], 0.02)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode("latin-1")
            except OSError:
                return

    def screen(self):
        """The rows of the last whole frame."""
        self.read()
        frames = self.text.split("\x1b[H")[1:]
        whole = [frame for frame in frames if "\x1b[J" in frame]
        return whole[-1].split("\x1b[J")[0].replace("\x1b[K", "").split("\r\n") if whole else []

    def expect(self, check, what):
        return until(lambda: (rows := self.screen()) and check(rows) and rows, 15, what)

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        code = self.process.wait(10)
        self.read()
        assert self.ALLOWED.sub("", self.text) == "", repr(self.ALLOWED.sub("", self.text)[:200])
        assert self.text.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")
        after = termios.tcgetattr(self.other)
        assert after == self.before
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        os.close(self.fd)
        os.close(self.other)


@pytest.fixture
def terminal():
    made = []

    def start(*arguments, **more):
        made.append(Terminal(*arguments, **more))
        return made[-1]

    yield start
    for one in made:
        one.close()


def tunnels_on(rows):
    return [row.split()[1] for row in rows if re.match(r"t-\d+-\d+ ", row)]


def test_a_terminal_shows_sorts_filters_and_is_left_as_it_was(direct, terminal):
    worker = direct.worker()
    direct.set(worker=worker)
    direct.set("sb-2", worker)
    direct.open(worker)
    direct.open(worker, sandbox="sb-2")
    screen = terminal(*sockets(direct))
    rows = screen.expect(lambda rows: sorted(tunnels_on(rows)) == ["sb-1", "sb-2"], "the tunnels")
    assert len(rows) == screen.rows and rows[-1].startswith("q quits   s sorts: held   / filters: ") and rows[-1].endswith("2 fit")
    screen.type("s")
    screen.expect(lambda rows: "s sorts: age" in rows[-1] and tunnels_on(rows) == ["sb-1", "sb-2"], "another order")
    screen.type("/")
    screen.expect(lambda rows: rows[-1].startswith("filter: _"), "the filter")
    screen.type("sq-\x7f\x7fb-2")
    screen.expect(lambda rows: rows[-1].startswith("filter: sb-2_") and tunnels_on(rows) == ["sb-2"], "one tunnel")
    screen.type("\r")
    screen.expect(lambda rows: "/ filters: sb-2 " in rows[-1], "the filter is kept")
    screen.type("\x1b[A")  # an arrow is no Esc
    direct.open(worker, sandbox="sb-2")
    screen.expect(lambda rows: tunnels_on(rows) == ["sb-2", "sb-2"], "a new tunnel, by itself")
    screen.type("/\x1b")
    screen.expect(lambda rows: len(tunnels_on(rows)) == 3, "no filter")
    screen.type("q")
    assert screen.end() == 0


@pytest.mark.parametrize("rows,columns", [(12, 40), (3, 20), (1, 1), (60, 250)])
def test_a_screen_of_any_size_is_kept_to(hostile, terminal, rows, columns):
    screen = terminal(*sockets(hostile))
    screen.expect(lambda rows: len(tunnels_on(rows)) == len(HOSTILE), "the tunnels")
    screen.resize(rows, columns)
    screen.process.send_signal(signal.SIGWINCH)
    screen.expect(lambda shown: len(shown) == rows and max(len(row) for row in shown) <= columns, "the size")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_terminal_that_takes_nothing_is_left_as_it_was(direct, terminal, number):
    """A hung ssh, Ctrl-S: the signal ends it all the same."""
    screen = terminal(*sockets(direct))

    def wakes():
        return re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", open(f"/proc/{screen.process.pid}/status").read())[1]

    def is_stuck():
        """For longer than from one frame to the next."""
        before = wakes()
        time.sleep(0.6)
        return wakes() == before

    until(is_stuck, 20, "the terminal is not full")
    screen.process.send_signal(number)
    assert screen.process.wait(5) == 0
    assert termios.tcgetattr(screen.other) == screen.before


def test_an_output_that_takes_nothing_is_an_error(direct):
    for arguments in (["top", "--once"], ["top", "--json"], ["status"], ["status", "--json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BIN / "cellgate", *arguments, *sockets(direct)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
        assert done.returncode == 1 and "standard output: No space left on device" in done.stderr, arguments


def test_a_relay_that_goes_is_told_and_waited_for(direct, terminal):
    screen = terminal(*sockets(direct))
    screen.expect(lambda rows: "relay: ready" in rows[0], "the relay")
    direct.relay.kill()
    direct.relay.wait()
    screen.expect(lambda rows: "relay: does not answer   agent: ready" in rows[0] and rows[1].startswith("relay     "), "the relay has gone")
    direct.relay = direct.spawn("cellgate-relay")
    screen.expect(lambda rows: "relay: ready" in rows[0], "the relay is back")
    screen.type("\x03")
    assert screen.end() == 0


def test_a_terminal_is_given_back_while_it_is_stopped(direct, terminal):
    screen = terminal(*sockets(direct))
    screen.expect(lambda rows: "relay: ready" in rows[0], "the relay")
    screen.type("\x1a")
    until(lambda: Path(f"/proc/{screen.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", 10)
    screen.read()
    assert screen.text.endswith("\x1b[?1049l") and termios.tcgetattr(screen.other) == screen.before
    before = len(screen.text)
    screen.process.send_signal(signal.SIGCONT)
    until(lambda: screen.read() or "\x1b[?1049h" in screen.text[before:], 10)
    screen.type("q")
    assert screen.end() == 0
