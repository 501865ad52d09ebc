# SPDX-License-Identifier: MIT
"""Event streams through a direct route while their worker is away: a GET that names `text/event-stream` is held for about ten
seconds, nothing that was sent is sent again, and what is said in the end makes its client come again."""

import concurrent.futures
import contextlib
import json
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from browser import Browser
from cell import closed_port, until
from client import Http1, Http2, head
from origin import Origin

ROUTES = [{"name": "web", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"}]
EVENTS = [("Accept", "text/event-stream")]
# What Chromium and Firefox send for an EventSource.
EVENT_SOURCE = [*EVENTS, ("Cache-Control", "no-cache"), ("Sec-Fetch-Mode", "cors"), ("Sec-Fetch-Dest", "empty"), ("Sec-Fetch-Site", "same-origin")]
NO_EVENT_SOURCE = {
    "no browser": EVENTS,
    "a list": [("Accept", "application/json, Text/Event-Stream;q=0.5"), *EVENT_SOURCE[1:]],
    "fetch()": [*EVENTS, *EVENT_SOURCE[2:]],
    "navigation": [*EVENT_SOURCE[:2], ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")],
}
BOUND = (8, 14)  # seconds
AT_ONCE = 1.5
PAGE = b"""<!doctype html><script>
const log = [], source = new EventSource("events");
source.onopen = () => log.push("open");
source.onmessage = ({ data }) => log.push(data);
source.onerror = () => log.push("error " + source.readyState);
</script>"""


class Worker:
    """Serves a page and its events until it is killed; lives again on the same port."""

    def __init__(self, tls=None):
        self.tls, self.origin, self.streams, self.last_ids, self.socks = tls, Origin(self.answer, tls=tls), 0, [], []
        self.port, self.url = self.origin.port, self.origin.url

    def answer(self, connection, asked):
        self.socks.append(connection.sock)
        if asked.target == "/page":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)
            return True
        self.streams += 1
        self.last_ids.append(asked.get("last-event-id"))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        connection.send(head + b"retry: 100\nid: %d\ndata: event %d\n\n" % (self.streams, self.streams))
        while connection.read():
            pass
        return True

    def kill(self):
        self.origin.close()
        for sock in self.socks:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)

    def start(self):
        self.origin = Origin(self.answer, tls=self.tls, port=self.port)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=worker -addext subjectAltName=DNS:localhost"
    subprocess.run([*command.split(), "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def cell(cells, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    workers = {"sb-1": Worker(), "sb-tls": Worker(context), "sb-page": Worker(), "sb-wakes": Worker()}
    records = {name: {"worker": worker.url.replace("127.0.0.1", "localhost") if worker.tls else worker.url} for name, worker in workers.items()}
    records["sb-wakes"]["state"] = "waking"
    records["sb-gone"] = {"worker": f"http://127.0.0.1:{closed_port()}"}
    records["sb-closes"] = {"worker": "http://127.0.0.1:1"}
    records["sb-stopped"] = {"worker": "http://127.0.0.1:1", "state": "stopped"}
    cell = cells(sandboxes=records, config={"routes": ROUTES}, environment={"CELLGATE_WORKER_CA": str(certificate / "cert"), "CELLGATE_SANDBOX_REQUESTS": "12"})
    cell.workers, cell.records = workers, records
    yield cell
    for worker in workers.values():
        worker.kill()


@pytest.fixture(scope="module")
def chromium():
    with Browser("--ignore-certificate-errors") as browser:
        yield browser


def ask(cell, sandbox, headers=(), method="GET", kind=Http1, target="events"):
    """The answer, and how long it took."""
    began = time.monotonic()
    with Http1(cell.http, timeout=30) if kind is Http1 else Http2(cell.https, timeout=30) as client:
        answer = client.request(method, f"/w/{sandbox}/{target}", headers)
    return answer, time.monotonic() - began


def is_refused(answer, error):
    said = json.loads(answer.body)
    assert (answer.status, said["error"], said["retryable"]) == (503, error, True)
    assert answer.all("retry-after") and int(answer.all("retry-after")[0]) > 0


def is_to_come_again(answer, error):
    assert answer.status == 200 and answer.all("content-type") == ["text/event-stream"] and answer.all("cache-control") == ["no-store"]
    retry, comment, *rest = answer.body.decode().split("\n")
    assert retry == "retry: 2000" and rest == ["", ""] and comment.startswith(": ")
    assert json.loads(comment[2:])["error"] == error and json.loads(comment[2:])["retryable"] is True


def log(chromium):
    return chromium.evaluate("log")


def log_is(chromium, expected):
    chromium.wait(lambda: len(log(chromium)) >= len(expected), lambda: log(chromium))
    assert log(chromium) == expected


# ---- held ----


def test_a_browsers_events_go_on_when_their_worker_was_restarted(cell, chromium):
    """Three seconds of nobody: the page sees that its stream broke, once, and then the next event."""
    worker = cell.workers["sb-page"]
    chromium.open(f"http://127.0.0.1:{cell.http}/w/sb-page/page")
    chromium.wait(lambda: chromium.ask("typeof log") == "object" and "event 1" in chromium.evaluate("log"))
    worker.kill()
    time.sleep(3)
    assert log(chromium) == ["open", "event 1", "error 0"]
    worker.start()
    log_is(chromium, ["open", "event 1", "error 0", "open", "event 2"])
    assert worker.last_ids == [None, "1"]


@pytest.mark.parametrize("sandbox", ["sb-1", "sb-tls"])
@pytest.mark.parametrize("headers", [EVENTS, EVENT_SOURCE], ids=["events", "event source"])
def test_a_stream_is_held_while_its_worker_is_restarted(cell, sandbox, headers):
    worker = cell.workers[sandbox]
    worker.kill()
    before = worker.streams
    timer = threading.Timer(1.5, worker.start)
    timer.start()
    try:
        with Http1(cell.http, timeout=20) as client:
            client.send(head("GET", f"/w/{sandbox}/events", [("Host", "cell.test"), *headers, ("Last-Event-ID", "a b")]))
            assert client.response_head().status == 200
            assert b"data: event %d\n\n" % (before + 1) in client.read_until(b"\n\n") + b"\n\n"
    finally:
        timer.join()
    assert worker.last_ids[before:] == ["a b"]


def test_what_is_held_ends_after_ten_seconds_in_what_makes_it_come_again(cell):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        waiting = {name: pool.submit(ask, cell, "sb-gone", headers) for name, headers in NO_EVENT_SOURCE.items()}
        waiting["h2"] = pool.submit(ask, cell, "sb-gone", EVENTS, kind=Http2)
        sources = [pool.submit(ask, cell, "sb-gone", EVENT_SOURCE, kind=kind) for kind in (Http1, Http2)]
        for method, headers in (("GET", ()), ("POST", EVENTS), ("HEAD", EVENTS), ("GET", [("Accept", "text/event-streams, text/html")])):
            answer, seconds = ask(cell, "sb-gone", headers, method)
            assert answer.status == 502 and seconds < AT_ONCE, (method, headers)
        for name, one in waiting.items():
            answer, seconds = one.result()
            assert BOUND[0] < seconds < BOUND[1], name
            is_refused(answer, "worker_unreachable")
        for one in sources:
            answer, seconds = one.result()
            assert BOUND[0] < seconds < BOUND[1]
            is_to_come_again(answer, "worker_unreachable")


def test_nothing_that_was_sent_is_sent_again(cell, origins):
    """The worker takes the request and ends without an answer: it sees it once, and the client is told to come again."""
    asked = []
    origin = origins(answer=lambda connection, request: asked.append(request) or True)
    cell.records["sb-closes"] = {"worker": origin.url}
    cell.set_sandboxes(**cell.records)
    until(lambda: ask(cell, "sb-closes", [("Accept", "text/html")])[0].status == 502 and asked, 10, "the record is in force")
    for headers, judge in ((EVENTS, is_refused), (EVENT_SOURCE, is_to_come_again)):
        del asked[:]
        answer, seconds = ask(cell, "sb-closes", headers)
        assert len(asked) == 1 and seconds < AT_ONCE
        judge(answer, "worker_unreachable")


def test_a_client_that_leaves_is_held_no_longer(cell):
    """What it counted against is free again."""
    for _ in range(12):
        with Http1(cell.http) as client:
            client.send(head("GET", "/w/sb-gone/events", [("Host", "cell.test"), *EVENTS]))
    until(lambda: ask(cell, "sb-gone")[0].status == 502, 3, "clients that left are still counted")


# ---- refused by the agent ----


@pytest.mark.parametrize("kind", [Http1, Http2])
def test_a_refusal_for_a_while_makes_each_come_again(cell, kind):
    for headers in NO_EVENT_SOURCE.values():
        is_refused(ask(cell, "sb-wakes", headers, kind=kind)[0], "sandbox_waking")
    is_to_come_again(ask(cell, "sb-wakes", EVENT_SOURCE, kind=kind)[0], "sandbox_waking")


def test_a_refusal_for_good_ends_an_event_source(cell):
    assert ask(cell, "sb-none", EVENT_SOURCE)[0].status == 404
    assert ask(cell, "sb-stopped", EVENT_SOURCE)[0].status == 410


def test_a_browsers_events_begin_when_its_sandbox_is_awake(cell, chromium):
    """Refused, it comes again by itself."""
    chromium.open(f"http://127.0.0.1:{cell.http}/w/sb-1/page")
    chromium.wait(lambda: chromium.ask("typeof log") == "object" and "open" in chromium.evaluate("log"))
    chromium.evaluate("source.close(), log.length = 0")
    chromium.evaluate(
        "window.late = new EventSource('/w/sb-wakes/events'), late.onopen = () => log.push('open'), late.onmessage = ({ data }) => log.push(data),"
        "late.onerror = () => log.push('error ' + late.readyState), 0"
    )
    log_is(chromium, ["open", "error 0"])
    records = cell.records | {"sb-wakes": {"worker": cell.workers["sb-wakes"].url}}
    cell.set_sandboxes(**records)
    chromium.wait(lambda: "event 1" in log(chromium), lambda: log(chromium))
    assert log(chromium)[-2:] == ["open", "event 1"] and "error 2" not in log(chromium)
