# SPDX-License-Identifier: MIT
"""Many requests over one WebSocket, in the form of sandbox-sdk, in front of workers that speak plain HTTP."""

import contextlib
import json
import os
import random
import signal
import threading
import time

import pytest
from browser import Browser
from cell import ROOT, stop, until
from worker import CLOSE, PING, PONG, TEXT, Ws

ROUTES = [
    {"name": "mux", "path": ["/v1/mux", "/ws"], "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
    {"name": "below", "path": "/w/{sandbox}/ws", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk", "to": "/w/{sandbox}"},
    {"name": "web", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "exec"},
    {"name": "open", "path": "/open/{sandbox}/{rest...}", "to": "/{rest}", "need": "none"},
]


class Client:
    """One socket; `call` waits for the answer to its request, whatever comes for others goes to `kept`."""

    def __init__(self, cell, *headers, path="/v1/mux", protocols=None):
        extra = list(headers) + ([("Sec-WebSocket-Protocol", protocols)] if protocols else [])
        self.ws = Ws(cell.http, path, extra)
        self.kept, self.number = [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ws.http.sock.close()

    def say(self, **message):
        self.ws.send(TEXT, json.dumps(message).encode())

    def ask(self, path, method="GET", **more):
        self.number += 1
        self.say(type="request", id=f"ws_{self.number}", method=method, path=path, **more)
        return f"ws_{self.number}"

    def hear(self):
        opcode, payload = self.ws.message()
        assert opcode == TEXT, (opcode, payload)
        return json.loads(payload)

    def answers(self, id):
        """All messages for that id, the last of which ends it."""
        said = [m for m in self.kept if m.get("id") == id]
        self.kept = [m for m in self.kept if m.get("id") != id]
        while not said or not (said[-1].get("done") or said[-1]["type"] == "error"):
            message = self.hear()
            (said if message.get("id") == id else self.kept).append(message)
        return said

    def call(self, path, method="GET", **more):
        (answer,) = self.answers(self.ask(path, method, **more))
        return answer


def respond(connection, request, body, kind="application/json"):
    connection.send(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


class Worker:
    def __init__(self, origins):
        self.go, self.cut = threading.Event(), []
        self.origin = origins(answer=self.answer)

    def answer(self, connection, request):
        target = request.target
        if target == "/slow":
            self.go.wait(20)
            respond(connection, request, b'"slow"')
        elif target.startswith("/events"):
            self.events(connection, target)
        elif target == "/page":
            respond(connection, request, b"<!doctype html><title>mux</title>", "text/html")
        elif target == "/mux.js":
            respond(connection, request, (ROOT / "examples/mux/mux.js").read_bytes(), "text/javascript")
        elif target == "/mirror":
            respond(connection, request, connection.read_body(request), "application/octet-stream")
        elif target == "/text":
            respond(connection, request, b"no json", "text/plain")
        elif target == "/huge":
            respond(connection, request, b'"' + b"x" * (5 << 20) + b'"')
        elif target == "/large":
            respond(connection, request, b'"' + b"x" * (1 << 20) + b'"')
        elif target == "/cut":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            connection.sock.close()
        else:
            request.body = connection.read_body(request)
            text = json.dumps({"method": request.method, "target": target, "headers": request.headers, "body": request.body.decode()}).encode()
            respond(connection, request, text)

    def events(self, connection, target):
        """Split anywhere, lines of data, and a last one without an empty line behind it."""
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        text = b"event: stdout\ndata: one\ndata: two\n\n: comment\n\ndata: {\"type\":\"x\"}\r\n\r\nid: 7\ndata:last"
        if target == "/events/forever":
            number = 0
            with contextlib.suppress(OSError):
                while True:
                    piece = b"data: %d\n\n" % number
                    connection.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
                    number += 1
                    time.sleep(0.01)
            self.cut.append(number)
            return
        for i in range(len(text)):
            connection.send(b"1\r\n" + text[i : i + 1] + b"\r\n")
        connection.send(b"0\r\n\r\n")


@pytest.fixture
def worker(origins):
    return Worker(origins)


@pytest.fixture
def cell(cells, worker):
    records = {name: {"worker": worker.origin.url} for name in ("sb-1", "sb-2")}
    return cells(sandboxes=records, config={"routes": ROUTES})


def bearer(cell, sandbox="sb-1", **claims):
    return ("Authorization", "Bearer " + cell.token(sandbox, need=["exec"], **claims))


def test_a_request_is_as_if_it_had_come_by_itself(cell, worker):
    with Client(cell, bearer(cell), ("X-Kept", "of the upgrade")) as client:
        answer = client.call("/w/sb-1/api/execute?x=1", "POST", body={"command": "ls", "n": 12345678901234567890}, headers={"X-Own": "b", "Content-Length": "3", "X-Cell-Sandbox": "forged", "X-Forwarded-For": "6.6.6.6"})
    assert (answer["type"], answer["status"], answer["done"]) == ("response", 200, True)
    seen = answer["body"]
    assert (seen["method"], seen["target"], seen["body"]) == ("POST", "/api/execute?x=1", '{"command": "ls", "n": 12345678901234567890}')
    headers = {n.lower(): v for n, v in seen["headers"]}
    assert (headers["x-kept"], headers["x-own"], headers["content-type"], headers["x-forwarded-for"]) == ("of the upgrade", "b", "application/json", "127.0.0.1")
    assert not {"authorization", "x-cell-sandbox", "upgrade", "sec-websocket-key"} & set(headers)
    cell.says("haproxy", " verdict=direct route=web sandbox=sb-1 ")


def test_each_request_is_decided_by_itself(cell):
    with Client(cell, bearer(cell)) as client:
        refused = client.call("/w/sb-2/x")
        assert (refused["type"], refused["status"], refused["body"]["error"], refused["done"]) == ("response", 403, "wrong_sandbox", True)
        assert client.call("/nowhere")["status"] == 404
        assert client.call("/w/sb-1/x")["status"] == 200
        # a message puts nothing in the place of what the socket was opened with
        assert client.call("/w/sb-2/x", headers={"Authorization": bearer(cell, "sb-2")[1]})["status"] == 403
    with Client(cell) as nobody:
        assert nobody.call("/w/sb-1/x")["status"] == 401 and nobody.call("/open/sb-2/x")["status"] == 200


@pytest.mark.parametrize("how", ["query", "subprotocol"])
def test_the_credential_of_the_socket_may_come_in_other_ways(cell, how):
    text = cell.token("sb-1", need=["exec"])
    with Client(cell, path="/ws?cellgate_token=" + text) if how == "query" else Client(cell, protocols=f"cellgate, cellgate.bearer.{text}") as client:
        assert client.call("/w/sb-1/x")["status"] == 200 and client.call("/w/sb-2/x")["status"] == 403


def test_paths_may_be_below_one_sandbox(cell):
    with Client(cell, bearer(cell), path="/w/sb-1/ws") as client:
        assert client.call("/api/x")["body"]["target"] == "/api/x" and client.call("/../sb-2/x")["status"] in (400, 403)
    with Client(cell, bearer(cell), path="/w/sb-2/ws") as client:
        assert client.call("/api/x")["status"] == 403


def test_events_become_messages(cell):
    with Client(cell, bearer(cell)) as client:
        *events, last = client.answers(client.ask("/w/sb-1/events"))
        assert [(e["type"], e.get("event"), e["data"]) for e in events] == [("stream", "stdout", "one\ntwo"), ("stream", None, '{"type":"x"}'), ("stream", None, "last")]
        assert (last["type"], last["status"], last["done"]) == ("response", 200, True) and "body" not in last


def test_a_cancelled_stream_ends_at_the_worker(cell, worker):
    with Client(cell, bearer(cell)) as client, Client(cell, bearer(cell)) as other:
        id = client.ask("/w/sb-1/events/forever")
        assert client.hear()["data"] == "0"
        other.say(type="cancel", id=id)  # of another socket: not meant
        assert other.call("/w/sb-1/x")["status"] == 200 and worker.cut == []
        client.say(type="cancel", id=id)
        until(lambda: worker.cut, 10, "the stream goes on")
        assert client.call("/w/sb-1/x")["status"] == 200
        # closing the socket ends what is left of it
        client.ask("/w/sb-1/events/forever")
        assert client.hear()["data"] == "0"
    until(lambda: len(worker.cut) == 2, 10, "the stream outlives its socket")


def test_answers_that_are_no_json_or_none(cell):
    with Client(cell, bearer(cell)) as client:
        text = client.call("/w/sb-1/text")
        assert text["status"] == 200 and "body" not in text
        assert client.call("/w/sb-1/large")["body"] == "x" * (1 << 20)
        cut = client.call("/w/sb-1/cut")
        assert (cut["type"], cut["code"], cut["status"]) == ("error", "STREAM_ERROR", 502)


def test_what_is_no_message(cell):
    with Client(cell, bearer(cell)) as client:
        client.ws.send(TEXT, b"{no json")
        assert client.hear() == {"type": "error", "code": "PARSE_ERROR", "message": "Invalid JSON message", "status": 400}
        for wrong in ({}, {"type": "request"}, {"type": "request", "id": "a", "method": "TRACE", "path": "/"}, {"type": "request", "id": "a", "method": "GET", "path": "x"},
                      {"type": "request", "id": "a", "method": "GET", "path": "/ HTTP/1.1\r\nX: y"}, {"type": "request", "id": "a" * 129, "method": "GET", "path": "/"},
                      {"type": "request", "id": 1, "method": "GET", "path": "/"}, {"type": "request", "id": "a", "method": "GET", "path": "/", "headers": {"X": "a\r\nb: c"}},
                      {"type": "request", "id": "a", "method": "GET", "path": "/", "headers": {"X Y": "a"}}, {"type": "response", "id": "a", "status": 200}):
            client.say(**wrong)
            assert client.hear() == {"type": "error", "code": "INVALID_REQUEST", "message": "Message must be a valid WSRequest", "status": 400}
        client.ws.send(2, json.dumps({"type": "request", "id": "b", "method": "GET", "path": "/w/sb-1/x"}).encode())  # binary frames are read alike
        assert client.answers("b")[0]["status"] == 200


def test_limits(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.origin.url}}, config={"routes": [ROUTES[0] | {"max_message": "64KiB"}, *ROUTES[1:]], "relay": {"mux_requests": 3}})
    with Client(cell, bearer(cell)) as client:
        ids = [client.ask("/w/sb-1/slow") for _ in range(3)]
        client.say(type="request", id=ids[0], method="GET", path="/w/sb-1/x")
        assert client.hear() == {"type": "error", "code": "INVALID_REQUEST", "message": "The id belongs to a request that is on its way.", "status": 400}
        (many,) = client.answers(client.ask("/w/sb-1/x"))
        assert (many["code"], many["status"]) == ("TOO_MANY_REQUESTS", 429)
        client.say(type="cancel", id=ids[1])
        assert client.call("/w/sb-1/x")["status"] == 200
        worker.go.set()
        assert [client.answers(id)[0]["body"] for id in (ids[0], ids[2])] == ["slow", "slow"]
        large = client.call("/w/sb-1/large")
        assert (large["type"], large["status"]) == ("error", 502)
        client.say(type="request", id="x", method="POST", path="/w/sb-1/x", body="y" * 65536)
        assert client.ws.rest()[1][0] == 1009


def test_a_socket_is_whose_token_it_is_opened_with(cell):
    """Wherever the token stands, and only if it is good: a client of whom nobody knows who it is counts by its address."""
    org, sandbox = cell.token("sb-1", need=["exec"], org="acme"), cell.token("sb-1", need=["exec"])
    ways = [
        (dict(path="/ws?cellgate_token=" + org), "org=acme"), (dict(protocols="cellgate, cellgate.bearer." + org), "org=acme"), ([("Authorization", "Bearer " + org)], "org=acme"),
        ([("Authorization", "Bearer " + sandbox)], "sandbox=sb-1"), (dict(path="/ws"), None), ([("Authorization", "Bearer of-the-application")], None),
        ([("Authorization", "Bearer " + org[:-4] + "AAAA")], None), ([("Authorization", "Bearer " + cell.token("sb-1", need=["exec"], org="acme", exp=1))], None),
    ]  # fmt: skip
    for number, (way, whose) in enumerate(ways):
        with Client(cell, **way) if isinstance(way, dict) else Client(cell, *way):
            opened = until(lambda: [line for line in (cell.run_dir / "relay.log").read_text().splitlines() if "mux opened" in line][number:], 10)[0]
        assert [part for part in opened.split() if part.startswith(("org=", "sandbox=")) and not part.endswith('""')] == ([whose] if whose else []), opened


@pytest.mark.parametrize("whose", ["address", "organisation"])
def test_requests_count_as_tunnels_of_their_owner(cells, worker, whose):
    """Each holds descriptors. Without a token nobody is more than an address; with one the organisation answers for all of them."""
    most = {"max_tunnels_per_token": 10} if whose == "address" else {"max_tunnels_per_org": 10}
    cell = cells(sandboxes={name: {"worker": worker.origin.url, "org": "acme"} for name in ("sb-1", "sb-2")},
                 config={"routes": ROUTES, "relay": {"max_tunnels": 80} | most})
    headers = [()] * 2 if whose == "address" else [(bearer(cell, name, org="acme"),) for name in ("sb-1", "sb-2")]
    path = "/open/sb-1" if whose == "address" else "/w/sb-1"
    with Client(cell, *headers[0]) as client, Client(cell, *headers[1]) as other:
        held = [client.ask(path + "/slow") for _ in range(8)]
        until(lambda: [r.target for r in worker.origin.requests].count("/slow") == 8, 10, "the requests do not come")
        (many,) = other.answers(other.ask(path.replace("sb-1", "sb-2") + "/x"))
        assert (many["code"], many["status"]) == ("TOO_MANY_REQUESTS", 429) and "address" in many["message"]
        with Client(cell, *([bearer(cell, "sb-1")] if whose == "address" else [])) as stranger:
            assert stranger.call("/open/sb-1/x")["status"] == 200
        client.say(type="cancel", id=held[0])
        until(lambda: other.call(path.replace("sb-1", "sb-2") + "/x").get("status") == 200, 10, "no room comes back")
        worker.go.set()
        assert [client.answers(id)[0]["body"] for id in held[1:]] == ["slow"] * 7


def test_a_socket_in_which_nobody_asks_ends_whatever_is_said_in_it(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.origin.url}}, config={"routes": [ROUTES[0] | {"idle": "1s"}, *ROUTES[1:]]})
    began = time.monotonic()
    with Client(cell, bearer(cell)) as client:
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 15:
                client.ws.send(TEXT, b"rubbish")
                opcode, payload = client.ws.message()
                if opcode == CLOSE:
                    break
                time.sleep(0.05)
        assert 1 <= time.monotonic() - began < 10 and payload[2:] == b"idle"


def test_a_message_may_end_with_an_empty_frame(cell):
    with Client(cell, bearer(cell)) as client:
        text = json.dumps({"type": "request", "id": "a", "method": "GET", "path": "/w/sb-1/x"}).encode()
        client.ws.send(TEXT, text[:20], fin=False)
        client.ws.send(0, b"", fin=False)
        client.ws.send(0, text[20:], fin=False)
        client.ws.send(0, b"")
        assert client.answers("a")[0]["status"] == 200


def test_a_token_beside_an_applications_own_authorization(cells, worker):
    route = ROUTES[-1] | {"name": "app", "path": "/app/{sandbox}/{rest...}", "need": "exec", "auth": "keep"}
    cell = cells(sandboxes={"sb-1": {"worker": worker.origin.url}}, config={"routes": [*ROUTES, route]})
    with Client(cell, ("Authorization", "Bearer of-the-application"), path="/v1/mux?cellgate_token=" + cell.token("sb-1", need=["exec"])) as client:
        seen = client.call("/app/sb-1/x?y=1")["body"]
        assert seen["target"] == "/x?y=1" and ["Authorization", "Bearer of-the-application"] in [[n.title(), v] for n, v in seen["headers"]]


def test_large_answers_become_whole_one_after_another(cells, worker):
    """Together they are more than the relay may hold for one; the socket and small answers go on."""
    cell = cells(sandboxes={"sb-1": {"worker": worker.origin.url}}, config={"routes": ROUTES, "relay": {"memory": "128MiB"}})
    with Client(cell, bearer(cell)) as client:
        client.ws.http.sock.settimeout(30)
        ids = [client.ask("/w/sb-1/huge") for _ in range(16)]
        small = client.ask("/w/sb-1/x")
        for id in ids:
            (answer,) = client.answers(id)
            assert answer["type"] == "response" and len(answer["body"]) == 5 << 20, answer.get("message")
        assert client.answers(small)[0]["status"] == 200


def test_an_answer_that_does_not_fit_is_an_error_of_its_own(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.origin.url}}, config={"routes": ROUTES, "relay": {"memory": "8MiB"}})
    with Client(cell, bearer(cell)) as client:
        huge = client.call("/w/sb-1/huge")
        assert (huge["type"], huge["code"], huge["status"]) == ("error", "INTERNAL_ERROR", 503)
        assert client.call("/w/sb-1/x")["status"] == 200


def test_a_relay_that_stood_still_takes_nobody_for_dead(cells, worker):
    cell = cells(sandboxes={"sb-1": {"worker": worker.origin.url}}, config={"routes": ROUTES, "relay": {"keepalive": "300ms", "dead_after": "2s"}})
    with Client(cell, bearer(cell)) as client:
        client.ws.show_control = True
        assert client.ws.frame()[0] == PING
        stop(cell.pid("relay"))
        client.ws.send(PONG)
        time.sleep(2.5)  # longer than dead_after
        os.kill(cell.pid("relay"), signal.SIGCONT)
        client.ws.show_control = False
        assert client.call("/w/sb-1/x")["status"] == 200


def test_many_requests_in_any_order(cell, worker):
    """Each is answered once, none to another's id."""
    chance = random.Random(7)
    with Client(cell, bearer(cell)) as client:
        asked, heard, cancelled = {}, {}, set()
        for n in range(2000):
            while len(asked) - len(heard) - len(cancelled) >= 40:
                take(client, heard, cancelled)
            id = f"r{n}"
            asked[id] = f"/w/sb-1/{'events' if n % 17 == 0 else n}"
            client.say(type="request", id=id, method="GET", path=asked[id])
            if chance.random() < 0.05:
                client.say(type="cancel", id=id)
                cancelled.add(id)
        while len(set(heard) | cancelled) < len(asked):
            take(client, heard, cancelled)
        for id, messages in heard.items():
            assert messages == 1 or id in cancelled
        assert client.call("/w/sb-1/x")["status"] == 200


def take(client, heard, cancelled):
    message = client.hear()
    assert message["type"] in ("response", "stream"), message
    id = message["id"]
    if message["type"] == "response":
        heard[id] = heard.get(id, 0) + 1
        cancelled.discard(id)
        if "body" in message:
            assert message["body"]["target"] == "/" + id[1:]


def test_a_client_that_does_not_read_stops_the_worker(cell, worker):
    with Client(cell, bearer(cell)) as slow, Client(cell, bearer(cell)) as other:
        slow.ask("/w/sb-1/events/forever")
        slow.hear()
        for _ in range(20):
            slow.ask("/w/sb-1/large")
        until(lambda: len(worker.origin.requests) >= 15, 10)
        assert other.call("/w/sb-1/x")["status"] == 200
        answers = [slow.answers(f"ws_{n}")[0] for n in range(2, 22)]
        assert all(len(a["body"]) == 1 << 20 for a in answers)


def test_a_relay_that_drains_answers_what_is_on_its_way(cell, worker):
    with Client(cell, bearer(cell)) as client, Client(cell, bearer(cell)) as idle:
        id = client.ask("/w/sb-1/slow")
        until(lambda: any(r.target == "/slow" for r in worker.origin.requests), 10)
        cell.kill("relay", 15)
        assert idle.ws.rest()[1][0] == 1012
        worker.go.set()
        assert client.answers(id)[0]["body"] == "slow"
        assert client.ws.rest()[1][0] == 1012


# ---- examples/mux/mux.js ----


PROGRAM = """(async () => {
    const { Mux } = await import("/open/sb-1/mux.js");
    let opened = 0;
    class Counted extends WebSocket { constructor(...all) { super(...all); opened++; } }
    const mux = new Mux(`ws://${location.host}/v1/mux`, { protocols: ["cellgate", "cellgate.bearer.TOKEN"], WebSocket: Counted });
    const told = {};
    const first = await Promise.all(["a", "b", "c"].map((name) => mux.fetch(`/w/sb-1/${name}`))); // none is open yet
    told.first = [...first.map((answer) => answer.status), opened];
    const answer = await mux.fetch("/w/sb-1/x?y", { method: "POST", headers: { "X-Own": "b" }, body: JSON.stringify({ a: "\u20ac" }) });
    told.one = [answer.status, answer.headers.get("content-type"), await answer.json()];
    told.refused = (await mux.fetch("/w/sb-2/x")).status;
    const many = await Promise.all(Array.from({ length: 60 }, async (_, n) => (await (await mux.fetch(`/w/sb-1/${n}`)).json()).target));
    told.many = many.every((target, n) => target === `/${n}`);
    let text = "";
    const reader = (await mux.fetch("/w/sb-1/events")).body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part; !(part = await reader.read()).done; text += part.value);
    told.events = text;
    const stop = new AbortController();
    const forever = (await mux.fetch("/w/sb-1/events/forever", { signal: stop.signal })).body.getReader();
    await forever.read();
    stop.abort();
    told.aborted = await forever.read().then(() => forever.read()).catch((error) => error.name);
    const half = (await mux.fetch("/w/sb-1/cut")).body.getReader();
    told.cut = await half.read().then(() => half.read()).catch((error) => error.code);
    const bytes = new Uint8Array(3 << 20).map((_, n) => n * 7);
    const back = new Uint8Array(await (await mux.fetch("/w/sb-1/mirror", { method: "PUT", body: new Blob([bytes]) })).arrayBuffer());
    told.mirror = back.length === bytes.length && back.every((byte, n) => byte === bytes[n]);
    const lost = mux.fetch("/w/sb-1/slow").catch((error) => error.message);
    await mux.fetch("/w/sb-1/x");
    mux.close();
    told.lost = await lost;
    told.again = (await mux.fetch("/w/sb-1/x")).status; // connects anew
    return JSON.stringify(told);
})()"""


def test_mux_js_in_a_browser(cell, worker):
    with Browser() as browser:
        browser.open(f"http://127.0.0.1:{cell.http}/open/sb-1/page")
        browser.wait(lambda: browser.evaluate("document.title") == "mux")
        told = json.loads(browser.ask(PROGRAM.replace("TOKEN", cell.token("sb-1", need=["exec"]))))
    assert told["first"] == [200, 200, 200, 1]
    status, kind, seen = told["one"]
    assert (status, kind, seen["method"], seen["target"], json.loads(seen["body"])) == (200, "application/json", "POST", "/x?y", {"a": "\u20ac"})
    assert ("x-own", "b") in [(n.lower(), v) for n, v in seen["headers"]]
    assert (told["refused"], told["many"], told["again"], told["mirror"]) == (403, True, 200, True)
    assert told["events"] == 'event: stdout\ndata: one\ndata: two\n\n: comment\n\ndata: {"type":"x"}\r\n\r\nid: 7\ndata:last'
    assert (told["aborted"], told["cut"]) == ("AbortError", "STREAM_ERROR") and told["lost"].startswith("the WebSocket ended: 1000")
    until(lambda: worker.cut, 10, "the stream goes on")
