# SPDX-License-Identifier: MIT
"""The directory kind http against control planes that answer badly, slowly, or not at all: decisions go on, nobody is let
in or turned away by mistake, and it recovers by itself."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cell import AT_ONCE, on_worker, until
from client import Http1, request
from false_agent import FalseHaproxy, variables
from plane import FakePlane, answer

ROUTES = [{"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"}]
TIMEOUT = 0.5  # seconds that the agent gives the control plane


def directory(url, **more):
    return {"kind": "http", "url": url, "timeout": f"{int(TIMEOUT * 1000)}ms"} | more


# Everybody waits for as long as a busy machine needs, instead of 200 ms.
PATIENT, HAPROXY = {"agent": {"lookup": "9s"}}, {"CELLGATE_DECISION_TIMEOUT": "10000"}


def ask(cell, name):
    """(status, error, Retry-After) of a request for that sandbox."""
    response = request(cell.http, "GET", f"/s/{name}/x")
    return response.status, json.loads(response.body)["error"] if response.status >= 400 else None, response.get("retry-after")


UNKNOWN = (503, "directory_unavailable", "1")
SERVED = (200, None, None)


def metric(cell, name):
    lines = [line for line in cell.admin("/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture(scope="module")
def plane():
    plane = FakePlane()
    yield plane
    plane.close()


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, plane):
    """Answers are good for long: what comes sooner was pushed, or not in the cache."""
    return cells(config={"directory": directory(plane.url, ttl="1h", timeout="9s"), "routes": ROUTES} | PATIENT, environment=HAPROXY)


@pytest.fixture(scope="module")
def hasty(cells, plane):
    """As it is by default."""
    return cells(config={"directory": directory(plane.url, ttl="1h"), "routes": ROUTES})


# ---- what it answers ----


def raw(*chunks, pause=0.0, end=True):
    """Sends these bytes, one after the other; then the connection ends, or hangs until the agent has had enough."""

    def way(connection, _):
        for chunk in chunks:
            connection.send(chunk)
            time.sleep(pause)
        if not end:
            connection.read()
        return True

    return way


def says(status, body=b"", *fields):
    return lambda connection, _: answer(connection, status, body, *fields)


GOOD = b'{"worker":"http://127.0.0.1:1"}'
WAYS = {
    "nothing": raw(),
    "silence": raw(end=False),
    "half a head": raw(b"HTTP/1.1 200 OK\r\nContent-Le", end=False),
    "half a body": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n" + GOOD[:17]),
    "half a body, and silence": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n" + GOOD[:17], end=False),
    "drop by drop": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n", *[GOOD[i : i + 1] for i in range(31)], pause=0.05),
    "a chunk without its end": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n" + GOOD + b"\r\n"),
    "garbage": raw(b"\x00\xff\x16\x03\x01 not HTTP at all\r\n\r\n"),
    "HTTP/0.9": raw(GOOD),
    "a head without end": raw(b"HTTP/1.1 200 OK\r\n", *[b"X-%d: %s\r\n" % (i, b"y" * 8000) for i in range(64)]),
    "a body without end": raw(b"HTTP/1.1 200 OK\r\n\r\n", *[b" " * 65536] * 8),
    "too large": says(200, b'{"x-note":"' + b"y" * 70000 + b'","worker":"http://127.0.0.1:1"}'),
    "empty": says(200),
    "no JSON": says(200, b"<html>It works!</html>", "Content-Type: text/html"),
    "no record": says(200, ["sb-1"]),
    "a mistyped state": says(200, {"sate": "stopped", "worker": "http://127.0.0.1:1"}),
    "two documents": says(200, GOOD + GOOD),
    "a page not found": says(404, b"<html>404</html>", "Content-Type: text/html"),
    "a redirect": says(302, b"", "Location: /v1/sandboxes/elsewhere"),
    "204": says(204),
    "401": says(401),
    "403": says(403),
    "500": says(500),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_is_none_lets_nobody_in_and_says_nothing_of_the_sandbox(hasty, plane, origin, way):
    """The very request gets its 503 within the look-up's 200 ms; others are served meanwhile; and once there is an answer, so
    is this one."""
    name = f"bad-{list(WAYS).index(way)}"
    plane.ways[name] = WAYS[way]
    plane.records[name + "-other"] = {"worker": origin.url}
    begun = time.monotonic()
    assert ask(hasty, name) == UNKNOWN
    assert time.monotonic() - begun < AT_ONCE  # 200 ms, on a machine that has time
    until(lambda: ask(hasty, name + "-other") == SERVED, 10, "the others are not served")
    del plane.ways[name]
    plane.records[name] = {"worker": origin.url}
    until(lambda: ask(hasty, name) == SERVED, 10, "it does not recover")
    assert not plane.asked("elsewhere")


def test_states_by_status(cell, plane, origin):
    plane.ways["gone"] = says(410)
    plane.ways["moving"] = says(503, {"error": "sandbox_migrating"})
    plane.ways["waking"] = says(503, {"error": "sandbox_waking"})
    assert ask(cell, "never-heard-of")[:2] == (404, "sandbox_not_found")
    assert ask(cell, "gone")[:2] == (410, "sandbox_stopped")
    assert ask(cell, "moving")[:2] == (503, "sandbox_migrating")
    assert ask(cell, "waking")[:2] == (503, "sandbox_waking")
    # both are soon over, and asked for again soon
    plane.ways.pop("moving")
    plane.records["moving"] = {"worker": origin.url}
    until(lambda: ask(cell, "moving") == SERVED, 10, "it is not asked for again")


def test_a_state_alone_lets_nobody_in(cells):
    """The sandbox has a secret, but all that is said is that it wakes: it is not one that is open to everybody."""
    plane = FakePlane()
    routes = [ROUTES[0] | {"need": "http"}, {"name": "pty", "path": "/pty/{sandbox}", "upgrade": True, "via": "relay", "need": "pty"}]
    tokens = [{"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"}, {"kind": "static", "everywhere": True, "public": True, "need": ["http", "pty"]}]
    cell = cells(config={"directory": directory(plane.url, timeout="9s"), "routes": routes, "tokens": tokens} | PATIENT, environment=HAPROXY)
    plane.ways["locked"] = says(503, {"error": "sandbox_waking"})
    assert request(cell.http, "GET", "/s/locked/x").status == 401
    with Http1(cell.http) as client:
        assert client.upgrade("/pty/locked").status == 401
    # whoever has a token for it is told, also where the token has an owner and what was said has not
    response = request(cell.http, "GET", "/s/locked/x", [cell.bearer("locked", org="acme")])
    assert (response.status, json.loads(response.body)["error"]) == (503, "sandbox_waking")
    plane.close()


def test_many_visitors_of_a_suspended_sandbox_wake_it_once(cell, plane, origin):
    plane.records["asleep"] = {"state": "suspended"}
    plane.ways["wake"] = lambda connection, _: answer(connection, 202)
    for _ in range(20):
        status, error, later = ask(cell, "asleep")
        assert (status, error) == (503, "sandbox_waking") and int(later) >= 1
    until(lambda: plane.asked("wake"))
    assert [(r.method, r.target) for r in plane.asked("wake")] == [("POST", "/v1/sandboxes/asleep/wake")]
    plane.push(event("update", {"sandbox": "asleep", "record": {"worker": origin.url}}))
    until(lambda: ask(cell, "asleep") == SERVED, 10, "it does not wake")


@pytest.fixture(scope="module")
def patient(cells, plane):
    """An agent that waits long for its directory, asked without HAProxy, which does not."""
    config = {"directory": directory(plane.url, ttl="1h", timeout="20s"), "agent": {"lookup": "2s", "threads": 1}, "routes": ROUTES}
    cell = cells(config=config)
    haproxy = FalseHaproxy(cell.run_dir / "agent.sock")
    until(lambda: '"pushing":true' in cell.admin("/status").replace(" ", ""), 10, "changes are not pushed")
    yield cell, haproxy
    haproxy.close()


def question(path):
    return {"method": "GET", "version": "1.1", "headers": "host: x\r\n\r\n", "source": bytes([127, 0, 0, 1]), "path": path}


def from_address(path, address, *headers):
    return question(path) | {"source": bytes(address), "headers": "".join(f"{line}\r\n" for line in ("host: x", *headers)) + "\r\n"}


def test_a_wake_that_nobody_heard_is_asked_for_again(patient, plane):
    """There is one visitor, who may be a tunnel that waits for it."""
    cell, haproxy = patient
    said, before = [503, None, 202], len(plane.asked("wake"))

    def way(connection, _):
        status = said.pop(0) if said else 202
        return answer(connection, status) if status else True

    plane.records["unheard"] = {"state": "suspended"}
    plane.ways["wake"] = way
    haproxy.ask({1: question("/s/unheard/x")})
    assert b"sandbox_waking" in haproxy.receive()[2]
    until(lambda: len(plane.asked("wake")) == before + 3, 15, "it is not asked for again")
    time.sleep(0.7)  # that it will be woken is enough
    assert [(r.method, r.target) for r in plane.asked("wake")[before:]] == [("POST", "/v1/sandboxes/unheard/wake")] * 3


def test_wakes_that_hang_hold_up_no_look_up(patient, plane, origin):
    """Some control planes answer when the sandbox is awake."""
    cell, haproxy = patient
    gate, names, before = threading.Event(), [f"slow-{i}" for i in range(40)], len(plane.asked("wake"))
    plane.ways["wake"] = lambda connection, _: gate.wait(60) and answer(connection, 202)
    for name in names:
        plane.records[name] = {"state": "suspended"}
        haproxy.ask({1: question(f"/s/{name}/x")})
        assert b"sandbox_waking" in haproxy.receive()[2]
    plane.records["new"] = {"worker": origin.url}
    haproxy.ask({1: question("/s/new/x")})
    assert b"unavailable" not in haproxy.receive()[2]
    gate.set()
    woken = {f"/v1/sandboxes/{name}/wake" for name in names}
    until(lambda: {r.target for r in plane.asked("wake")[before:]} == woken, 20, "not all of them are woken")


def test_wakes_of_one_that_hang_hold_up_no_wake_of_others(cells):
    """40 of one address; those of 30 other addresses are asked for, each of them."""
    plane, gate = FakePlane(), threading.Event()
    cell = cells(config={"directory": directory(plane.url, timeout="9s"), "agent": {"lookup": "9s", "threads": 1}, "routes": ROUTES})
    haproxy = FalseHaproxy(cell.run_dir / "agent.sock")
    until(lambda: '"pushing":true' in cell.admin("/status").replace(" ", ""), 10, "changes are not pushed")
    plane.ways["wake"] = lambda connection, asked: ("greedy" not in asked.target or gate.wait(20)) and answer(connection, 202)

    def wake(names, address):
        plane.records |= {name: {"state": "suspended"} for name in names}
        haproxy.ask({i: from_address(f"/s/{name}/x", address(i)) for i, name in enumerate(names, 1)})
        assert all(b"sandbox_waking" in haproxy.receive()[2] for _ in names)

    wake([f"greedy-{i}" for i in range(40)], lambda _: [192, 0, 2, 1])
    wake([f"other-{i}" for i in range(30)], lambda i: [192, 0, 2, 100 + i])
    wanted = {f"/v1/sandboxes/other-{i}/wake" for i in range(30)}
    until(lambda: wanted <= {r.target for r in plane.asked("wake")}, 6, "wakes of others are not asked for")
    gate.set()
    haproxy.close()
    plane.close()


def test_who_is_known_is_served_before_who_is_not_is_refused(patient, plane, origin):
    """While the directory hangs: HAProxy's patience is hardly longer than what somebody waits who is not known."""
    cell, haproxy = patient
    plane.records["known"] = {"worker": origin.url}
    until(lambda: ask(cell, "known") == SERVED, 10)
    plane.ways |= {"known": raw(end=False), "unknown": raw(end=False)}
    before = metric(cell, "cellgate_directory_pushes_total")
    plane.push(event("update", {"sandbox": "known"}))  # it is not said how it is now
    until(lambda: metric(cell, "cellgate_directory_pushes_total") > before)
    haproxy.ask({1: question("/s/unknown/x"), 2: question("/s/known/x")})
    kind, stream, payload = haproxy.receive()
    assert (kind, stream) == (103, 2) and b"direct" in payload
    kind, stream, payload = haproxy.receive()
    assert (kind, stream) == (103, 1) and b"directory_unavailable" in payload


def test_retry_after_is_heeded(cells, origins):
    """429 and 503 with Retry-After: nobody asks in that time, and nobody who needs an answer waits."""
    plane, origin = FakePlane(), origins()
    cell = cells(config={"directory": directory(plane.url), "routes": ROUTES})
    plane.records |= {"one": {"worker": origin.url}, "two": {"worker": origin.url}}
    plane.ways["one"] = says(429, b"", "Retry-After: 2")
    assert ask(cell, "one") == UNKNOWN
    begun = time.monotonic()
    asked = len(plane.asked("one")) + len(plane.asked("two"))
    while time.monotonic() - begun < 1:
        assert ask(cell, "two") == UNKNOWN
    assert len(plane.asked("one")) + len(plane.asked("two")) == asked
    until(lambda: ask(cell, "two") == SERVED, 10, "it is never asked again")
    assert time.monotonic() - begun > 1
    plane.close()


def test_a_look_up_that_waited_for_its_turn_has_as_long_as_any_other(cells):
    """More are asked for than one owner has on their way at a time. Those behind would not be answered in what is left of their time,
    and the control plane would be taken for one that is dead."""
    plane, names = FakePlane(), [f"late-{i}" for i in range(30)]
    cell = cells(config={"directory": directory(plane.url, timeout="4s"), "agent": {"threads": 1}, "routes": ROUTES})
    until(lambda: '"pushing":true' in cell.admin("/status").replace(" ", ""), 10, "changes are not pushed")

    def slowly(connection, _):
        time.sleep(2.4)
        answer(connection, 404)

    def outcomes():
        return [metric(cell, f'cellgate_directory_look_ups_total{{outcome="{outcome}"}}') for outcome in ("absent", "unavailable")]

    plane.ways |= dict.fromkeys(names, slowly)
    haproxy = FalseHaproxy(cell.run_dir / "agent.sock")
    haproxy.ask({number: question(f"/s/{name}/x") for number, name in enumerate(names, 1)})
    until(lambda: sum(outcomes()) >= len(names), 20, "not all of them are answered")
    assert outcomes() == [len(names), 0]
    assert "does not answer" not in (cell.run_dir / "agent.log").read_text()
    haproxy.close()
    plane.close()


def under_attack(haproxy, attack, questions, seconds=0.05):
    """The error that is said to each of `questions`, which come one by one. Before each of them all that `attack` returns is asked;
    nobody waits for what is said to that."""
    mine, said = {}, {}
    for number, asked in enumerate(questions, 1):
        haproxy.ask({100_000 + number * 1000 + i: one for i, one in enumerate(attack())})
        time.sleep(seconds)
        haproxy.ask({number: asked})
        mine[number] = asked
    while mine:
        _, stream, payload = haproxy.receive()
        if mine.pop(stream, None):
            said[stream] = variables(payload).get("error", b"")
    return list(said.values())


ATTACKED = [{"name": "proxy", "path": "/s/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
            {"name": "own", "path": "/own/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]  # fmt: skip


@pytest.mark.parametrize("who", ["token", "address"])
def test_who_asks_for_what_nobody_knows_makes_no_others_wait(cells, who):
    """620 unknown ids a second of one address, of which the control plane answers 640 at most: 30 of 30 new sandboxes of others are found
    in time, be they named by tokens or asked for from other addresses."""
    plane, numbers = FakePlane(), iter(range(100_000))

    def slowly(connection, asked):
        if asked.target == "/v1/events":
            return plane.follow(connection, asked)
        time.sleep(0.1)
        known = "/new-" in asked.target
        return answer(connection, 200 if known else 404, {"worker": "http://127.0.0.1:9"} if known else {"error": "sandbox_not_found"})

    plane.way = slowly
    config = {"directory": {"kind": "http", "url": plane.url}, "agent": {"threads": 1, "lookup": "2s"}, "routes": ATTACKED}
    cell = cells(config=config)
    until(lambda: '"pushing":true' in cell.admin("/status").replace(" ", ""), 10, "changes are not pushed")
    haproxy = FalseHaproxy(cell.run_dir / "agent.sock")

    def attack(count=31):
        return [from_address(f"/s/unknown-{next(numbers)}/x", [192, 0, 2, 1]) for _ in range(count)]

    haproxy.ask({900_000 + i: one for i, one in enumerate(attack(1500))})

    def own(i):
        if who == "address":
            return from_address(f"/s/new-{i}/x", [192, 0, 2, 100 + i])
        return from_address(f"/own/new-{i}/x", [192, 0, 2, 1], "authorization: Bearer " + cell.token(f"new-{i}", need=["http", "exec"]))

    assert under_attack(haproxy, attack, [own(i) for i in range(30)]) == [b""] * 30
    haproxy.close()
    plane.close()


@pytest.mark.parametrize("greedy", [1, 13])
def test_who_has_many_wait_leaves_others_room_to_wait(cells, greedy):
    """1,100 requests of each greedy address (9,000 if it is alone) for one sandbox, of which nothing is heard, one address after the other:
    30 of 30 new sandboxes of others are found."""
    plane, gate = FakePlane(), threading.Event()
    cell = cells(config={"directory": directory(plane.url, timeout="9s"), "agent": {"threads": 1, "lookup": "9s"}, "routes": ATTACKED})
    until(lambda: '"pushing":true' in cell.admin("/status").replace(" ", ""), 10, "changes are not pushed")
    plane.ways["silent"] = lambda connection, _: gate.wait(20) and answer(connection, 404)
    plane.records |= {f"new-{i}": {"worker": "http://127.0.0.1:9"} for i in range(30)}
    haproxy, others = [FalseHaproxy(cell.run_dir / "agent.sock") for _ in range(2)]
    each = 9000 if greedy == 1 else 1100
    reader = threading.Thread(target=lambda: [others.receive() for _ in range(greedy * each)])
    reader.start()
    for n in range(greedy):
        others.ask({i: from_address("/s/silent/x", [192, 0, 2, 1 + n]) for i in range(1 + n * each, 1 + (n + 1) * each)})
    assert under_attack(haproxy, list, [from_address(f"/s/new-{i}/x", [192, 0, 2, 100 + i]) for i in range(30)], 0) == [b""] * 30
    gate.set()
    reader.join()
    for one in (haproxy, others, plane):
        one.close()


def test_1000_requests_for_a_record_that_is_not_there_yet_are_one_look_up(cell, plane):
    sandboxd = cell.sandboxd()
    worker = cell.worker(sandboxd)

    def slowly(connection, _):
        time.sleep(0.1)
        answer(connection, 200, on_worker(f"http://{worker}"))

    async def one(gate):
        reader, writer = await asyncio.open_connection("127.0.0.1", cell.http)
        gate[0] -= 1
        while gate[0]:
            await asyncio.sleep(0.005)
        writer.write(b"GET /s/many/healthz HTTP/1.1\r\nHost: cell.test\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        writer.close()
        return line.split()[1]

    async def all_of_them():
        gate = [1000]
        return await asyncio.gather(*(one(gate) for _ in range(1000)))

    plane.ways["many"] = slowly
    statuses = asyncio.run(all_of_them())
    assert len(plane.asked("many")) == 1
    assert set(statuses) == {b"200"}


# ---- what it announces ----


def event(name, document, number=None, end="\n"):
    lines = [f"id: {number}"] if number is not None else []
    lines += [f"event: {name}", f"data: {json.dumps(document)}", "", ""]
    return end.join(lines).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_a_pushed_change_takes_effect_whatever_ends_its_lines(cell, plane, origin, end):
    name = f"pushed-{len(end)}-{ord(end[0])}"
    plane.records[name] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, name) == SERVED
    plane.push(event("update", {"sandbox": name, "record": {"state": "stopped", "epoch": 2}}, end=end))
    until(lambda: ask(cell, name)[0] == 410, 10, "the change is not noticed")
    plane.push(event("remove", {"sandbox": name}, end=end))
    until(lambda: ask(cell, name)[:2] == (404, "sandbox_not_found"), 10, "the removal is not noticed")
    assert len(plane.asked(name)) <= 2


def test_a_change_without_content_is_looked_up(cell, plane, origin):
    plane.records["announced"] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, "announced") == SERVED
    plane.records["announced"] = {"state": "stopped", "epoch": 2}
    plane.push(event("update", {"sandbox": "announced"}))
    until(lambda: ask(cell, "announced")[0] == 410, 10, "the change is not noticed")


def test_an_event_byte_by_byte_is_an_event(cell, plane, origin):
    plane.records["bytewise"] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, "bytewise") == SERVED
    for byte in event("update", {"sandbox": "bytewise", "record": {"state": "stopped", "epoch": 2}}, end="\r\n"):
        plane.push(bytes([byte]))
    until(lambda: ask(cell, "bytewise")[0] == 410, 10, "the change is not noticed")


def test_a_stream_that_is_cut_goes_on_behind_the_last_whole_event(cell, plane, origin):
    for name in ("cut-1", "cut-2"):
        plane.records[name] = {"worker": origin.url, "epoch": 1}
        assert ask(cell, name) == SERVED
    plane.push(event("update", {"sandbox": "cut-1", "record": {"state": "stopped", "epoch": 2}}, number=41))
    until(lambda: ask(cell, "cut-1")[0] == 410)
    # what has no end is no event, not even its id
    plane.push(event("update", {"sandbox": "cut-2", "record": {"state": "stopped", "epoch": 2}}, number=42)[:-1])
    before = len(plane.followed())
    plane.cut()
    until(lambda: len(plane.followed()) > before, 10, "it does not come again")
    assert plane.followed()[-1].get("last-event-id") == "41"
    assert ask(cell, "cut-2") == SERVED


def test_what_may_have_been_missed_is_looked_up_again(cell, plane, origin):
    plane.records["missed"] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, "missed") == SERVED
    plane.records["missed"] = {"state": "stopped", "epoch": 2}
    plane.cut()
    until(lambda: ask(cell, "missed")[0] == 410, 10, "what was missed while the stream was away stays unknown")


BROKEN = {
    "a line without end": b"data: " + b"y" * 200_000,
    "a comment without end": b":" + b"y" * 200_000,
    "data without end": b"data: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n" * 5000,
    "no JSON": b"event: update\ndata: {\n\n",
    "no sandbox": b'event: remove\ndata: {"sandboxes":[]}\n\n',
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_stream_that_makes_no_sense_is_opened_again(cell, plane, origin, what):
    name = f"broken-{list(BROKEN).index(what)}"
    plane.records[name] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, name) == SERVED
    plane.records[name] = {"state": "stopped", "epoch": 2}
    until(lambda: plane.streams, 10)
    before = len(plane.followed())
    try:
        plane.push(BROKEN[what])
    except OSError:
        pass
    until(lambda: len(plane.followed()) > before, 10, "the stream goes on")
    until(lambda: ask(cell, name)[0] == 410, 10, "the change is not noticed")


def test_a_pushed_record_of_no_use_is_about_its_own_sandbox_only(cell, plane, origin):
    plane.records["odd"] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, "odd") == SERVED
    plane.records["odd"] = {"state": "stopped", "epoch": 2}
    before = len(plane.followed())
    plane.push(event("update", {"sandbox": "nobody", "record": {"worker": origin.url, "headers": {"X-Long": "x" * 13000}}}))
    plane.push(event("update", {"sandbox": "odd", "record": {"state": "asleep"}}))
    until(lambda: ask(cell, "odd")[0] == 410, 10, "it is not looked up")
    assert len(plane.followed()) == before


def test_events_that_are_not_known_are_ignored(cell, plane, origin):
    plane.records["quiet"] = {"worker": origin.url, "epoch": 1}
    assert ask(cell, "quiet") == SERVED
    before = len(plane.followed())
    plane.push(b": comment\n\nevent: ping\ndata: x\n\ndata: message\n\nevent: later\ndata: {}\n\nretry: 100\n\n")
    plane.push(event("update", {"sandbox": "quiet", "record": {"state": "stopped", "epoch": 2}}))
    until(lambda: ask(cell, "quiet")[0] == 410)
    assert len(plane.followed()) == before


def test_revoked_tokens_are_refused(cells, origins):
    plane, origin = FakePlane(), origins()
    routes = [ROUTES[0] | {"need": "http"}]
    cell = cells(config={"directory": directory(plane.url, ttl="1h"), "routes": routes})
    plane.records["sb-1"] = {"worker": origin.url}
    headers = [cell.bearer("sb-1")]
    until(lambda: request(cell.http, "GET", "/s/sb-1/x", headers).status == 200)
    plane.push(event("revoke", {"not_before": int(time.time()) + 10}))
    until(lambda: request(cell.http, "GET", "/s/sb-1/x", headers).status == 401, 10, "the token is still good")
    plane.close()


def test_what_was_revoked_stays_revoked_over_a_reload(cells, origins):
    """The directory's part of the configuration changes, and its new stream has not said anything yet."""
    plane, origin = FakePlane(), origins()
    cell = cells(config={"directory": directory(plane.url, ttl="1h"), "routes": [ROUTES[0] | {"need": "http"}]})
    plane.records["sb-1"] = {"worker": origin.url}

    def status():
        return request(cell.http, "GET", "/s/sb-1/x", [cell.bearer("sb-1")]).status

    until(lambda: status() == 200)
    plane.push(event("revoke", {"not_before": int(time.time()) + 3600}))
    until(lambda: status() == 401, 10, "the token is still good")
    good = 'reloads_total{outcome="good"} '
    before, followed = float(cell.admin("/metrics").partition(good)[2].split()[0]), len(plane.followed())
    cell.config_file.write_text(json.dumps(cell.config | {"directory": directory(plane.url, ttl="2h")}))
    cell.kill("agent", signal.SIGHUP)
    until(lambda: f"{good}{before + 1:.0f}" in cell.admin("/metrics"), 10, "it is not reloaded")
    until(lambda: len(plane.followed()) > followed, 10, "the new stream is not opened")
    # the record has to be looked up again, which is no answer about the token
    assert until(lambda: (answered := status()) != 503 and answered, 10) == 401
    plane.push(event("revoke", {"not_before": 0}))
    until(lambda: status() == 200, 10, "what is said anew does not hold")
    plane.close()


NO_STREAMS = {
    "404": says(404),
    "another type": says(200, b"[]", "Content-Type: application/json"),
    "a redirect": says(307, b"", "Location: /v1/elsewhere"),
    "an end": raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"),
}


@pytest.mark.parametrize("what", NO_STREAMS)
def test_without_events_what_is_in_use_is_asked_for_again(cells, origins, what):
    plane, origin = FakePlane(), origins()
    plane.events = NO_STREAMS[what]
    cell = cells(config={"directory": directory(plane.url, ttl="300ms"), "routes": ROUTES})
    plane.records["sb-1"] = {"worker": origin.url, "epoch": 1}
    until(lambda: ask(cell, "sb-1") == SERVED)  # the plane may be slower than the look-up waits
    plane.records["sb-1"] = {"state": "stopped", "epoch": 2}
    until(lambda: ask(cell, "sb-1")[0] == 410, 10, "the change is not noticed")
    time.sleep(0.5)
    assert len(plane.followed()) < 30  # tried again, but not in a loop
    assert not plane.asked("elsewhere")
    plane.close()


# ---- who asks ----


def test_the_token_is_sent_and_read_again_when_it_changes(cells, origins):
    plane, origin = FakePlane(), origins()
    good = ["Bearer first"]

    def guarded(connection, request):
        if request.get("authorization") not in good:
            return answer(connection, 401)
        if request.target == "/v1/events":
            return plane.follow(connection, request)
        return answer(connection, 200, {"worker": origin.url})

    plane.way = guarded
    config = {"directory": directory(plane.url, token_file="plane.token", ttl="100ms"), "routes": ROUTES}
    cell = cells(config=config, files={"plane.token": b"first\n"})
    until(lambda: ask(cell, "sb-1") == SERVED)
    good[:] = ["Bearer second"]
    assert ask(cell, "sb-2") == UNKNOWN
    part = cell.folder / "plane.token.part"
    part.write_text("second\n")
    part.rename(cell.folder / "plane.token")
    until(lambda: ask(cell, "sb-2") == SERVED, 10, "the new token is not used")
    good[:] = ["Bearer third!"]
    file = cell.folder / "plane.token"
    seen = file.stat()
    file.write_text("third!\n")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # as cp -p does
    assert file.stat().st_size == seen.st_size
    until(lambda: ask(cell, "sb-3") == SERVED, 10, "the token of the same size and age is not used")
    assert "first" not in (cell.run_dir / "agent.log").read_text()
    plane.close()


def test_over_tls_only_the_named_authority_is_believed(cells, origins, tmp_path):
    certificate = tmp_path / "plane.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=plane"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out", tmp_path / "ca.pem"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.pem", certificate)
    plane, origin = FakePlane(tls=context), origins()
    plane.records["sb-1"] = {"worker": origin.url, "epoch": 1}
    files = {"ca.pem": (tmp_path / "ca.pem").read_bytes()}
    cell = cells(config={"directory": directory(plane.url, ca_file="ca.pem"), "routes": ROUTES}, files=files)
    until(lambda: ask(cell, "sb-1") == SERVED)
    plane.push(event("update", {"sandbox": "sb-1", "record": {"state": "stopped", "epoch": 2}}))
    until(lambda: ask(cell, "sb-1")[0] == 410)
    asked = len(plane.requests)
    # so patient that on a busy machine, too, it is the certificate that it fails for
    other = cells(config={"directory": directory(plane.url, timeout="10s"), "routes": ROUTES})
    assert ask(other, "sb-1") == UNKNOWN
    assert [r for r in plane.requests[asked:] if r.target != "/v1/events"] == []
    other.says("agent", "certificate")
    plane.close()


def test_the_systems_authorities_are_not_read_for_each_connection(cells, tmp_path):
    """A control plane that ends each connection would hold up all that is on the same loop: nobody else is heard meanwhile."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")  # as Debian's libcurl was built for
    if not bundle.exists():
        pytest.skip("there are no authorities of the system's")
    began = time.process_time()
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(bundle)
    reading = time.process_time() - began
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=plane"
    subprocess.run([*command.split(), "-keyout", tmp_path / "key.pem", "-out", tmp_path / "ca.pem"], check=True, capture_output=True)
    context, tries = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    context.sni_callback = lambda *_: tries.append(1)
    plane = FakePlane(tls=context)
    cell = cells(config={"directory": directory(plane.url, timeout="10s"), "routes": ROUTES})

    def spent():
        fields = Path(f"/proc/{cell.pid('agent')}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def goes_on(count):
        wanted = len(tries) + count
        until(lambda: ask(cell, f"sb-{time.monotonic_ns()}") == UNKNOWN and len(tries) >= wanted, 60, "it does not try")

    goes_on(2)
    before, tried = spent(), len(tries)
    goes_on(20)
    assert spent() - before < (len(tries) - tried) * reading / 2
    plane.close()


def test_wrong_configurations_are_named(cells):
    for url, why in [
        ("ftp://127.0.0.1", "directory.url"),
        ("http://me:secret@127.0.0.1", "token_file"),
        ("http://127.0.0.1/?x=1", "query"),
    ]:
        with pytest.raises(AssertionError) as raised:
            cells(config={"directory": directory(url), "routes": ROUTES})
        assert why in str(raised.value) and "me:secret" not in str(raised.value).split("agent.log")[-1]
