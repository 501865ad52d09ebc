# SPDX-License-Identifier: MIT
"""A whole cell on the control plane of examples/control-plane: killed, stopped, restarted with its data and without,
behind a link that stalls; moves and wakes through live tunnels."""

import json
import re
import signal
import select
import socket
import statistics
import time

import pytest
from browser import Browser
from cell import WORKER_BEARER, WORKER_SECRET, WORKER_SECRET_FILE, stop, until
from client import request
from plane import Plane, Proxy
from tunnels import QUICK, ROUTES, Tunnels, pass_both_ways

STALE = 4.0
PAGE = {"name": "page", "path": "/page/{sandbox}/{rest...}", "to": "/{rest}", "need": "none", "upgrade": False}
GUARDED = PAGE | {"name": "guarded", "path": "/guarded/{sandbox}/{rest...}", "need": "exec"}


class Cell(Tunnels):
    """Tunnels, of a cell whose directory is a control plane."""

    def __init__(self, cells, folder, proxied=False, **directory):
        self.plane = Plane(folder)
        self.proxy = Proxy(self.plane.port) if proxied else None
        url = {"url": self.proxy.url} if proxied else {}
        # each decision thread has a view of its own: of several, the one that is asked may have heard and another one not yet
        config = {"relay": QUICK, "agent": {"threads": 1}, "routes": [*ROUTES, PAGE, GUARDED],
                  "directory": self.plane.directory(timeout="500ms", **url, **directory)}
        super().__init__(cells(config=config))

    def place(self, sandbox, worker=None, **record):
        self.plane.set(sandbox, **({"worker": worker.url} if worker else {}), **record)

    def status(self, sandbox, *headers):
        return request(self.cell.http, "GET", f"/page/{sandbox}/x", list(headers)).status

    def revoke(self, not_before):
        """The control plane says so, and the agent has heard of it; 0 takes it back."""
        sandbox = f"sb-{next(self.numbers)}"
        self.plane.set(sandbox, state="stopped")
        bearer, status = self.cell.bearer(sandbox), 401 if not_before else 410
        self.plane("revoke", str(not_before))
        until(lambda: request(self.cell.http, "GET", f"/guarded/{sandbox}/x", [bearer]).status == status, 10, "the agent has not heard")

    def pushing(self):
        return '"pushing":true' in self.cell.admin("/status").replace(" ", "")

    def close(self):
        super().close()
        self.plane.close()
        if self.proxy:
            self.proxy.close()


@pytest.fixture(scope="module")
def tunnels(cells, tmp_path_factory):
    tunnels = Cell(cells, tmp_path_factory.mktemp("p"), ttl="1h")
    yield tunnels
    tunnels.close()


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


def test_a_change_reaches_a_live_tunnel_at_once(tunnels, record_property):
    """From the start of the operator's command, a process, to the dial of the new worker. The bound is for a machine that is
    busy."""
    one, two = tunnels.worker(), tunnels.worker()
    sandbox = tunnels.sandbox(one)
    client, _ = tunnels.open(one, sandbox)
    taken = []
    for target in (two, one) * 5:
        told = time.monotonic()
        tunnels.plane("move", sandbox, target.url)
        upstream = target.take()
        taken.append(time.monotonic() - told)
        target.accept(upstream)
        pass_both_ways(client, upstream)
    record_property("seconds", taken)
    print(f"command to dial: median {statistics.median(taken) * 1000:.1f} ms, longest {max(taken) * 1000:.1f} ms")
    assert statistics.median(taken) < 0.5


def test_a_sandbox_that_is_stopped_or_removed_closes_its_tunnels(tunnels):
    worker = tunnels.worker()
    for verb, reason in (("stop", "sandbox stopped"), ("remove", "sandbox not found")):
        sandbox = tunnels.sandbox(worker)
        client, _ = tunnels.open(worker, sandbox)
        tunnels.plane(verb, sandbox)
        assert client.closed() == (1000, reason)


def test_a_websocket_to_a_suspended_sandbox_wakes_it_and_opens(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    tunnels.plane("suspend", sandbox)
    until(lambda: "suspended" in tunnels.plane("list"))
    client, upstream = tunnels.open(worker, sandbox)
    pass_both_ways(client, upstream)
    assert re.search(rf"{sandbox} +running", tunnels.plane("list"))


def test_what_cannot_be_saved_is_not_said_and_waking_goes_on(tmp_path):
    """A disk that is full for a while: where the new state would be written, nothing can be."""
    plane, part = Plane(tmp_path, wake=0.5), tmp_path / "plane.json.part"

    def full_while_it_wakes():
        plane("suspend", "sb-1")
        plane("wake", "sb-1")
        part.mkdir()
        return "waking" in plane("list") or part.rmdir()

    try:
        plane.set("sb-1", worker="http://127.0.0.1:1")
        until(full_while_it_wakes, 20, "it wakes too soon")
        with pytest.raises(AssertionError, match="plane.json.part"):
            plane("suspend", "sb-1")
        assert "waking" in plane("list")
        until(lambda: "not awake yet" in (tmp_path / "plane.log").read_text(), 10, "it does not try to say that it is awake")
        assert "waking" in plane("list")
        part.rmdir()
        until(lambda: "running" in plane("list"), 10, "it sleeps for ever")
    finally:
        plane.close()


def test_a_sandbox_that_is_set_while_it_wakes_wakes(tmp_path):
    """The record comes with a new owner, and with the state that it was read with."""
    plane = Plane(tmp_path, wake=0.5)
    try:
        plane.set("sb-1", worker="http://127.0.0.1:1", state="waking")
        until(lambda: "running" in plane("list"), 10, "it wakes for ever")
        plane("suspend", "sb-1")
        plane("wake", "sb-1")
        plane.set("sb-1", worker="http://127.0.0.1:1", state="waking", org="acme")
        until(lambda: "running" in plane("list"), 10, "it wakes for ever")
    finally:
        plane.close()


def test_who_comes_late_to_wake_a_sandbox_does_not_end_its_migration(tmp_path):
    plane = Plane(tmp_path)
    try:
        plane.set("sb-1", worker="http://127.0.0.1:1", state="migrating")
        assert request(plane.port, "POST", "/v1/sandboxes/sb-1/wake", [Plane.BEARER]).status == 202
        assert "migrating" in plane("list")
    finally:
        plane.close()


def test_plain_http_wakes_it_too_and_is_told_to_come_again(tunnels, origin):
    sandbox = "plain-http"
    tunnels.place(sandbox, origin, state="suspended")
    answer = request(tunnels.cell.http, "GET", f"/page/{sandbox}/x", [("Accept", "*/*")])
    assert answer.status == 503 and int(answer.get("retry-after")) >= 1
    assert json.loads(answer.body)["error"] == "sandbox_waking"
    until(lambda: tunnels.status(sandbox) == 200, 10, "it does not wake")


def test_a_browser_gets_a_page_that_reloads_itself(tunnels, origins):
    origin = origins()
    text = b"<html><body id=b>awake</body></html>"
    origin.answer = lambda connection, _: connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    tunnels.place("for-browser", origin, state="suspended")
    with Browser() as browser:
        browser.open(f"http://127.0.0.1:{tunnels.cell.http}/page/for-browser/")
        browser.expect("#b", "awake")
    tunnels.cell.says("haproxy", " 503 ", "sandbox=for-browser ", "error=sandbox_waking")


def test_a_token_that_the_control_plane_revokes_ends_its_tunnels(tunnels):
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    client, _ = tunnels.open(worker, sandbox, "secure", headers=[tunnels.cell.bearer(sandbox)])
    tunnels.revoke(int(time.time()) + 10)
    assert client.closed()[0] in (1008, 4401)
    tunnels.revoke(0)


def test_a_revocation_that_is_taken_back_holds_no_longer(tunnels):
    """Not for an agent that follows, nor for one that comes then and has heard of it before."""
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    headers = [tunnels.cell.bearer(sandbox)]
    pass_both_ways(*tunnels.open(worker, sandbox, "secure", headers=headers))
    with socket.create_connection(("127.0.0.1", tunnels.plane.port), 10) as follower:
        follower.sendall(Plane.FOLLOW)
        tunnels.revoke(int(time.time()) + 100)
        tunnels.revoke(0)
        text = b""
        while b'{"not_before":0}\n\n' not in text:
            text += (more := follower.recv(4096))
            assert more, text
    pass_both_ways(*tunnels.open(worker, sandbox, "secure", headers=headers))
    assert b'{"not_before":0}\n\n' in told_first(tunnels.plane)


def test_a_record_of_several_lines_is_one_event(tmp_path):
    """A line of an event's data is whatever stands behind `data:`."""
    plane = Plane(tmp_path)
    try:
        plane.set("sb-2", worker="http://127.0.0.1:1")
        record = json.dumps({"worker": "http://127.0.0.1:1", "org": "a\nb", "headers": {"8080": {"A": "b", "C": "d"}}, "x-a": []}, indent=1)
        plane("set", "sb-1", record)
        plane("set", "sb-1", record.replace("\n", "\r\n\t") + "\n")
        plane.kill()
        plane.state.write_text(json.dumps(json.loads(plane.state.read_text()), indent=4))
        plane.start()
        with socket.create_connection(("127.0.0.1", plane.port), 10) as follower:
            follower.sendall(Plane.FOLLOW)
            told = follower.recv(4096)
            while b": cell-plane\n\n" not in told:
                told += follower.recv(4096)
            plane("set", "sb-1", record)
            plane("move", "sb-2", "http://127.0.0.1:2")
            plane("move", "sb-1", "http://127.0.0.1:2")
            while told.count(b"event: update") < 3 or not told.endswith(b"\n\n\r\n"):
                told += (more := follower.recv(4096))
                assert more, told
        events = [line[6:] for line in told.splitlines() if line.startswith(b"data: ")]
        assert [json.loads(event)["sandbox"] for event in events] == ["sb-1", "sb-2", "sb-1"]
        assert json.loads(events[-1])["record"]["headers"] == {"8080": {"A": "b", "C": "d"}}
        assert json.loads(events[-1])["record"]["org"] == "a\nb"
    finally:
        plane.close()


# ---- it is away ----


def test_an_epoch_from_which_there_is_no_way_on_is_refused(tmp_path):
    """It would come back as a file that cannot be read."""
    plane = Plane(tmp_path)
    try:
        with pytest.raises(AssertionError, match="epoch is at most"):
            plane.set("sb-1", worker="http://127.0.0.1:1", epoch=2**63 - 2)
        plane.set("sb-1", worker="http://127.0.0.1:1", epoch=2**62)
        plane.kill()
        plane.start()
        assert str(2**62 + 1) in plane.state.read_text()
    finally:
        plane.close()


def told_first(plane):
    """What an agent hears that begins to follow."""
    with socket.create_connection(("127.0.0.1", plane.port), 10) as sock:
        sock.sendall(Plane.FOLLOW)
        text = b""
        while b": cell-plane\n\n" not in text:
            text += sock.recv(4096)
    return text


def test_what_was_revoked_stays_so_when_it_is_killed(tmp_path):
    """Also for an agent that comes only then."""
    plane, part = Plane(tmp_path), tmp_path / "plane.json.part"
    try:
        plane.set("sb-1", worker="http://127.0.0.1:1")
        plane("revoke", "1700000000")
        plane.kill()
        plane.start()
        assert b'"not_before":1700000000' in told_first(plane)
        plane.set("sb-1", worker="http://127.0.0.1:2")
        assert json.loads(plane.state.read_text())["not_before"] == 1700000000
        part.mkdir()
        with pytest.raises(AssertionError, match="plane.json.part"):
            plane("revoke", "1800000000")
        assert b'"not_before":1700000000' in told_first(plane)
        part.rmdir()
        plane("revoke", "0")
        plane.kill()
        plane.start()
        assert b'"not_before":0}' in told_first(plane)
    finally:
        plane.close()


def test_killed_and_back_with_its_data(tunnels, origin):
    """Tunnels and decisions go on; the first request for what was never asked for is served again as soon as it is back."""
    worker = tunnels.worker()
    sandbox = tunnels.sandbox(worker)
    tunnels.place("known", origin)
    tunnels.place("unknown", origin)
    until(lambda: tunnels.status("known") == 200)
    client, upstream = tunnels.open(worker, sandbox)
    tunnels.plane.kill()
    until(lambda: not tunnels.pushing(), 10)
    assert tunnels.status("known") == 200
    assert tunnels.status("unknown") == 503
    pass_both_ways(client, upstream)
    tunnels.plane.start()
    back = time.monotonic()
    until(lambda: tunnels.status("unknown") == 200, 10, "it does not recover")
    print(f"served {(time.monotonic() - back) * 1000:.0f} ms after it was back")
    until(tunnels.pushing, 10, "it is not followed again")
    two = tunnels.worker()
    tunnels.plane("move", sandbox, two.url)
    pass_both_ways(client, two.serve())


def test_back_without_its_data_it_is_believed_where_it_says_so(tunnels, origin):
    tunnels.place("forgotten", origin)
    tunnels.place("kept", origin)
    until(lambda: (tunnels.status("forgotten"), tunnels.status("kept")) == (200, 200))
    tunnels.plane.kill()
    tunnels.plane.state.unlink()
    tunnels.plane.start()
    tunnels.place("kept", origin)
    until(lambda: tunnels.status("forgotten") == 404, 10, "what it does not know is still served")
    until(lambda: tunnels.status("kept") == 200, 10)


@pytest.fixture(scope="module")
def stalling(cells, tmp_path_factory):
    stalling = Cell(cells, tmp_path_factory.mktemp("s"), proxied=True, ttl="200ms", stale=f"{int(STALE * 1000)}ms")
    yield stalling
    stalling.close()


def test_a_control_plane_that_hangs_holds_up_nobody(stalling, origin):
    """Stopped as a whole: what is in use is served on from memory, at once; then too old; and again soon after."""
    stalling.place("known", origin)
    until(lambda: stalling.status("known") == 200)
    stop(stalling.plane.process.pid)
    begun, took = time.monotonic(), []
    while time.monotonic() - begun < STALE / 2:
        asked = time.monotonic()
        assert stalling.status("known") == 200
        took.append(time.monotonic() - asked)
    print(f"longest request while it hung: {max(took) * 1000:.0f} ms")
    assert statistics.median(took) < 0.1, took  # who waits for a look-up waits for twice that
    until(lambda: stalling.status("known") == 503, STALE * 3, "the last good record serves for ever")
    stalling.plane.kill(signal.SIGCONT)
    until(lambda: stalling.status("known") == 200, 10, "it does not recover")


def test_a_link_that_stalls_is_noticed_and_left(stalling, origin):
    """Connections that are half open: nothing comes, nothing ends."""
    stalling.place("linked", origin)
    until(lambda: stalling.status("linked") == 200)
    stalling.proxy.stall()
    begun = time.monotonic()
    while time.monotonic() - begun < STALE / 2:
        assert stalling.status("linked") == 200
    assert stalling.status("never-asked-for") == 503
    stalling.proxy.stall(False)
    until(lambda: stalling.status("linked") == 200 and stalling.status("never-asked-for") == 404, 10, "it does not recover")


def test_nobody_without_the_secret_learns_anything(tmp_path):
    plane = Plane(tmp_path)
    try:
        plane.set("sb-1", worker="http://127.0.0.1:1")
        for target in ("/v1/sandboxes", "/v1/sandboxes/sb-1", "/v1/events"):
            assert request(plane.port, "GET", target).status == 401
            assert request(plane.port, "GET", target, [("Authorization", "Bearer wrong")]).status == 401
        assert request(plane.port, "POST", "/v1/sandboxes/sb-1/wake").status == 401
        answer = request(plane.port, "GET", "/v1/sandboxes/sb-1", [Plane.BEARER])
        assert json.loads(answer.body)["worker"] == "http://127.0.0.1:1"
        assert request(plane.port, "DELETE", "/v1/sandboxes/sb-1", [Plane.BEARER]).status == 405
    finally:
        plane.close()


def test_what_its_workers_ask_for_is_told_to_agents_and_to_nobody_else(tmp_path):
    """It goes into records of sandboxes on those workers, beside headers that are there; an Authorization stays."""
    ours, foreign = "http://127.0.0.1:1", "http://127.0.0.1:2"
    records = {
        "none": {"worker": ours},
        "beside": {"worker": ours, "headers": {"X-A": "b", "X-C": "d"}},
        "empty": {"worker": ours, "headers": {}},
        "own": {"worker": ours, "headers": {"authorization": "Bearer own"}},
        "foreign": {"worker": foreign, "headers": {"X-A": "b"}},
    }
    bearer = dict([WORKER_BEARER])
    expected = {"none": bearer, "beside": bearer | {"X-A": "b", "X-C": "d"}, "empty": bearer, "own": {"authorization": "Bearer own"}, "foreign": {"X-A": "b"}}
    plane = Plane(tmp_path, workers=[ours], worker_secret=WORKER_SECRET_FILE)

    def asked(path):
        return json.loads(request(plane.port, "GET", path, [Plane.BEARER]).body)

    try:
        printed = [plane.set(name, **record) for name, record in records.items()] + [plane("list")]
        assert {name: record.get("headers") for name, record in asked("/v1/sandboxes")["sandboxes"].items()} == expected
        for name, headers in expected.items():
            assert asked(f"/v1/sandboxes/{name}")["headers"] == headers
        with socket.create_connection(("127.0.0.1", plane.port), 10) as follower:
            follower.sendall(Plane.FOLLOW)
            told = follower.recv(4096)
            for change in (("move", "foreign", ours), ("move", "beside", foreign)):
                printed.append(plane(*change))
            while told.count(b"event: update") < 2 or not told.endswith(b"\n\n\r\n"):
                told += follower.recv(4096)
        there, left = (json.loads(x.split(b"\n")[0])["record"]["headers"] for x in told.split(b"data: ")[-2:])
        assert there == bearer | {"X-A": "b"} and left == {"X-A": "b", "X-C": "d"}
        plane.kill()
        kept = plane.state.read_text()
        plane.start()
        assert asked("/v1/sandboxes/beside")["headers"] == left
    finally:
        plane.close()
    for text in (kept, *printed, (tmp_path / "plane.log").read_text()):
        assert WORKER_SECRET not in text and Plane.SECRET not in text
