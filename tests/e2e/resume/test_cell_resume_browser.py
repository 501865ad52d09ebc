# SPDX-License-Identifier: MIT
"""The browser terminal over Cell-Resume, through HAProxy to real shells: the network is cut, the page is reloaded and
workers are killed, and every byte is there once. CELLGATE_LONG=1 takes each way to a worker, not only the relay's."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from browser import Browser
from cell import ROOT, on_worker, until
from network import outside
from wire import Wire

QUICKSTART = ROOT / "examples/quickstart"
ROWS = ".xterm-rows"
LAST = 12000
SLOW_SEQ = f"stty -echo; PS1=; for i in $(seq 1 {LAST // 100}); do seq $((i*100-99)) $((i*100)); sleep 0.02; done; echo the''end\r"


@pytest.fixture(scope="module", params=["direct", "relay", "quickstart"] if os.environ.get("CELLGATE_LONG") else ["relay"])
def cell(request, cells, tmp_path_factory):
    pages = tmp_path_factory.mktemp("ui")
    subprocess.run(outside(QUICKSTART / "ui/build", pages), check=True, timeout=120)
    routes = json.loads(re.sub(r"^\s*//.*$", "", (QUICKSTART / "cellgate.json").read_text(), flags=re.M))["routes"]
    for route in routes:
        if route["name"] == "terminal" and request.param != "quickstart":
            plain = {name: route[name] for name in ("name", "path", "upgrade", "to", "need")}
            routes[routes.index(route)] = plain | {"via": request.param}
    cell = cells(config={"routes": routes, "management_ports": "8080", "worker_networks": ["127.0.0.0/8"]})
    manager = cell.sandboxd()
    cell.addresses = [cell.worker(manager, name, "--ui", pages) for name in ("worker-a", "worker-b")]
    cell.epoch = 0
    move(cell, 0)
    return cell


def move(cell, to):
    def loads():
        return (cell.run_dir / "agent.log").read_text().count("directory loaded")

    cell.epoch, before = cell.epoch + 1, loads()
    cell.set_sandboxes(**{"sb-1": on_worker(f"http://{cell.addresses[to]}", epoch=cell.epoch)})
    until(lambda: loads() > before, 10, "the agent does not read its directory")


@pytest.fixture(scope="module")
def chromium():
    with Browser("--ignore-certificate-errors") as browser:
        yield browser


@pytest.fixture
def wire(cell):
    with Wire(cell.http) as wire:
        yield wire


@pytest.fixture
def page(cell, chromium, wire):
    chromium.start_over()
    # a management port: the same wherever the sandbox is
    chromium.open(f"http://127.0.0.1:{wire.port}/ui/sb-1/#port=8080&token={cell.token()}")
    chromium.expect("#state", "Connected")
    return chromium


def screen(page):
    """All output that the page has drawn, over its reloads."""
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    text = page.evaluate("sessionStorage.getItem(Object.keys(sessionStorage).find((key) => key.endsWith(':screen')))")
    return text.replace("\r\n", "\n")


def assert_exact(page):
    lines = screen(page)
    exact = "".join(f"{i}\n" for i in range(1, LAST + 1)) + "theend\n"
    assert lines[lines.index("1\n2\n3\n") :].removesuffix("\x1b[?2004h") == exact


def test_a_cut_network_loses_and_repeats_nothing(page, wire):
    page.type(SLOW_SEQ)
    for dead in (0, 0.4, 0):
        time.sleep(0.5)
        wire.dead = dead > 0
        page.follow("#state")
        wire.cut()
        page.has_said("Reconnecting")
        time.sleep(dead)
        wire.dead = False
        page.expect("#state", "Connected")
    page.expect(ROWS, "theend")
    assert wire.cuts >= 6
    assert_exact(page)


def test_a_reload_loses_and_repeats_nothing(page):
    page.type(SLOW_SEQ)
    for _ in range(3):
        time.sleep(0.4)
        page.evaluate("window.before = true")
        page.reload()
        page.wait(lambda: page.evaluate("!window.before && document.querySelector('#state')?.innerText === 'Connected'"))
    page.expect(ROWS, "theend")
    assert_exact(page)


def test_what_is_typed_arrives_once(page, wire, tmp_path):
    file, text = tmp_path / "typed", ""
    page.type(f"stty -echo; echo re''ady; cat > {file}; echo do''ne\r")
    page.expect(ROWS, "ready")
    for i in range(30):
        page.type(f"line {i}\r")
        text += f"line {i}\n"
        if i == 10:
            wire.dead = True
            wire.cut()
            page.expect("#state", "Reconnecting")
        if i == 15:
            wire.dead = False
        if i == 20:
            page.evaluate("window.before = true")
            page.reload()
            page.wait(lambda: page.evaluate("!window.before && document.querySelector('#state')?.innerText === 'Connected'"))
            page.click("#terminal")
    page.type("\x04")
    page.expect(ROWS, "done")
    assert file.read_text() == text


def test_a_page_goes_on_at_another_worker_and_hears_of_the_end(cell, page):
    page.type("echo $((40+2)).; A=there\r")
    page.expect(ROWS, "42.")
    victim = next(p for p in cell.processes if "worker-a" in p.args)
    move(cell, 1)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    page.expect("#state", "Connected")
    page.type("echo still-$A; exit 4\r")
    page.expect(ROWS, "still-there")
    page.expect("#notice-title", "The session has ended with exit code 4.")
    page.click("#again .primary")
    page.expect("#state", "Connected")
    until(lambda: "new session" in page.text(ROWS))
    page.type("echo new-$A.\r")
    page.expect(ROWS, "new-.")


def go(page, url):
    page.open(url)
    page.wait(lambda: page.ask(f"document.readyState === 'complete' && location.href === '{url}'"))


def go_back(page, steps):
    """To a page that the browser has put away and shows as it was."""

    def was_put_away():
        page.ask("0")  # takes in what was told meanwhile
        return any(event.get("params", {}).get("type") == "BackForwardCacheRestore" for event in page.events)

    history = page.call("Page.getNavigationHistory")
    page.events.clear()
    page.call("Page.navigateToHistoryEntry", entryId=history["entries"][history["currentIndex"] - steps]["id"])
    page.wait(was_put_away, "a page as it was left")


def go_on_with_a_later_page(page):
    """The session's first page is two steps back then."""
    terminal = page.evaluate("location.href")
    page.type("A=there; echo $((40+2)).\r")
    page.expect(ROWS, "42.")
    go(page, terminal + "words.js")
    go(page, terminal)
    page.expect("#state", "Connected")
    page.type("echo still-$A; A=$A-too\r")
    page.expect(ROWS, "still-there")
    go(page, terminal + "words.js")


def test_going_back_goes_on_with_the_session_where_it_is(page):
    go_on_with_a_later_page(page)
    for steps in (1, 2):
        go_back(page, steps)
        page.expect(ROWS, "still-there")
        page.expect("#state", "Connected")
        page.type(f"echo $A-{steps}\r")
        page.expect(ROWS, f"there-too-{steps}")


def test_a_page_that_is_shown_again_leaves_the_session_to_the_later_one_when_it_hears_of_its_loss(page):
    """That may be before it is told that it is shown again: here it does not see the later one until then."""
    page.evaluate("""{
        const get = Storage.prototype.getItem;
        Storage.prototype.getItem = () => null;
        addEventListener("pageshow", () => (Storage.prototype.getItem = get));
    }""")
    go_on_with_a_later_page(page)
    go_back(page, 1)
    page.expect("#state", "Connected")
    go_back(page, 2)
    page.expect(ROWS, "still-there")
    page.expect("#state", "Connected")
    page.type("echo $A-again\r")
    page.expect(ROWS, "there-too-again")


def test_a_pages_side_is_exact_wherever_a_leg_is_lost_or_the_page_reloaded(tmp_path):
    module = tmp_path / "resume.mjs"
    module.write_bytes((QUICKSTART / "ui/resume.js").read_bytes())
    run = subprocess.run(["node", ROOT / "tests/e2e/support/resume_page.mjs", module], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 200
