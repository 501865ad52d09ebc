# SPDX-License-Identifier: MIT
"""What a web page of another site can do, in a real browser, to the listeners of a machine: cell-worker and cell-plane with
and without their secrets, and both admin listeners. It tries what browsers let any page try."""

import contextlib
import http.server
import json
import stat
import threading
import time
from pathlib import Path

import pytest
from browser import Browser
from cell import AT_ONCE, BIN, end, free_port, until
from client import Http1, connect, exchange
from false_agent import FalseHaproxy
from plane import Plane
from worker import start

TRIES = """async (target, marker) => {
  const quiet = (promise) => Promise.race([promise.then((x) => x, (e) => String(e)), new Promise((r) => setTimeout(r, 3000, 'slow'))]);
  const command = encodeURIComponent(`touch ${marker}-ws`);
  const socket = (path) => new Promise((done) => {
    const ws = new WebSocket(`ws://${target}${path}`);
    ws.onopen = () => setTimeout(done, 300, 'open');
    ws.onerror = () => done('error');
  });
  const told = {};
  told.terminal = await quiet(socket(`/terminal?command=${command}`));
  told.echo = await quiet(socket('/ws-echo'));
  const body = (name) => JSON.stringify({ cmd: 'touch', args: [`${marker}-${name}`] });
  const post = (name, options) => quiet(fetch(`http://${target}/sandboxes/x/exec`, { method: 'POST', body: body(name), ...options }).then((r) => r.status));
  told.text = await post('text', { mode: 'no-cors', headers: { 'Content-Type': 'text/plain' } });
  told.untyped = await post('blob', { mode: 'no-cors', body: new Blob([body('blob')]) });
  told.json = await post('json', { headers: { 'Content-Type': 'application/json' } });
  told.beacon = navigator.sendBeacon(`http://${target}/sandboxes/x/exec`, body('beacon'));
  told.wake = await quiet(fetch(`http://${target}/v1/sandboxes/sb-1/wake`, { method: 'POST', mode: 'no-cors' }).then((r) => r.status));
  for (const path of ['/v1/sandboxes', '/tunnels', '/metrics', '/status', '/echo'])
    told[path] = await quiet(fetch(`http://${target}${path}`).then((r) => r.text()).then((text) => `read ${text}`));
  const frame = document.createElement('iframe');
  frame.name = 'f';
  document.body.append(frame);
  const form = document.createElement('form');
  Object.assign(form, { action: `http://${target}/sandboxes/x/exec`, method: 'POST', enctype: 'text/plain', target: 'f' });
  const field = document.createElement('input');
  Object.assign(field, { name: body('form').slice(0, -1) + ',"x":"', value: '"}' });
  form.append(field);
  document.body.append(form);
  const loaded = new Promise((done) => (frame.onload = done));
  form.submit();
  told.form = await quiet(loaded.then(() => 'sent'));
  return told;
}"""


def request(port, *arguments, **more):
    with Http1(port) as connection:
        return connection.request(*arguments, **more)


@pytest.fixture(scope="module")
def site():
    """A web site on a port, and so of an origin, of its own."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>a page</title><body>")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    # the name of a site whose owner points it at this machine
    with Browser("--host-resolver-rules=MAP *.example 127.0.0.1") as browser:
        yield browser


@pytest.fixture
def targets(host, tmp_path):
    """name -> (port, who looks whether something has happened)"""
    open_worker, address = start(BIN / "cell-worker", "--listen", "127.0.0.1:0", "--sandboxd", host.socket, "--open")
    guarded = host.worker()
    plane = Plane(tmp_path, wake=0)
    plane.set("sb-1", worker="http://127.0.0.1:1")
    plane("suspend", "sb-1")
    yield {"open": int(address.rpartition(":")[2]), "secret": guarded.port, "plane": plane.port}, plane
    end(open_worker)
    plane.close()


def attack(browser, page, target, marker):
    browser.start_over()
    browser.open(page)
    browser.wait(lambda: browser.ask("document.title") == "a page")
    return browser.evaluate(f"({TRIES})({json.dumps(target)}, {json.dumps(str(marker))})")


def nothing_was_done(told, tmp_path):
    assert not list(tmp_path.glob("marker*")), told
    assert told["terminal"] != "open" and told["echo"] != "open", told
    assert told["form"] == "sent", told
    assert not any(str(value).startswith("read ") for value in told.values()), told


@pytest.mark.parametrize("name", ["open", "secret", "plane"])
@pytest.mark.parametrize("site_name", ["127.0.0.1", "localhost", "evil.example"])
def test_a_page_of_another_site_runs_and_reads_nothing(browser, site, targets, tmp_path, name, site_name):
    ports, plane = targets
    told = attack(browser, f"http://{site_name}:{site}/", f"127.0.0.1:{ports[name]}", tmp_path / "marker")
    nothing_was_done(told, tmp_path)
    assert " suspended " in plane("list"), "it was woken"


@pytest.mark.parametrize("name", ["open", "secret", "plane"])
def test_a_name_that_is_pointed_at_us_is_refused(browser, site, targets, tmp_path, name):
    """DNS rebinding: the page's site and we have one name by then, and for the browser one origin."""
    ports, plane = targets
    target = f"evil.example:{ports[name]}"
    for method, path in (("GET", "/terminal?command=id"), ("GET", "/echo"), ("POST", "/sandboxes/x/exec"), ("GET", "/v1/sandboxes")):
        headers = [("Origin", f"http://{target}"), ("Content-Type", "application/json")]
        answer = request(ports[name], method, path, headers, b"{}" if method == "POST" else b"", host=target)
        assert answer.status == (421 if name == "open" else 401), (path, answer.status, answer.body)
    told = attack(browser, f"http://evil.example:{site}/", target, tmp_path / "marker")
    nothing_was_done(told, tmp_path)
    assert " suspended " in plane("list"), "it was woken"


def test_who_runs_on_this_machine_may_use_an_open_worker(targets, tmp_path):
    ports, _ = targets
    body = json.dumps({"cmd": "touch", "args": [str(tmp_path / "marker")]}).encode()
    answer = request(ports["open"], "POST", "/sandboxes/x/exec", [("Content-Type", "application/json")], body, host=f"127.0.0.1:{ports['open']}")
    assert answer.status == 201
    until((tmp_path / "marker").exists)


def test_admin_pages_are_not_read_or_framed_by_other_sites(browser, site, cells, tmp_path):
    cell = cells()
    for name in ("agent-admin", "relay-admin"):
        told = attack(browser, f"http://127.0.0.1:{site}/", f"127.0.0.1:{cell.ports[name]}", tmp_path / "marker")
        nothing_was_done(told, tmp_path)
        answer = request(cell.ports[name], "GET", "/metrics", host="127.0.0.1")
        assert "frame-ancestors 'none'" in answer.get("content-security-policy") and answer.get("x-frame-options") == "DENY"
        assert request(cell.ports[name], "GET", "/metrics", host="evil.example").status == 421
        assert request(cell.ports[name], "GET", "/metrics", [("Origin", "http://evil.example")], host="127.0.0.1").status == 403
    browser.start_over()
    browser.open(f"http://127.0.0.1:{cell.ports['relay-admin']}/")
    browser.expect("#state", "ready, the agent is connected")  # its own page works under its policy
    assert browser.complaints() == []


def test_sockets_that_change_something_are_for_one_user(cells, host, tmp_path):
    cell, plane = cells(), Plane(tmp_path)
    sockets = [cell.run_dir / "agent.control.sock", cell.run_dir / "relay.control.sock", plane.control, Path(host.socket)]
    try:
        assert [stat.S_IMODE(path.stat().st_mode) for path in sockets] == [0o600] * len(sockets)
    finally:
        plane.close()


def test_a_page_that_speaks_http_to_spop_is_let_go_at_its_first_bytes(cells, browser, site, tmp_path):
    """agent.listen on TCP, which `up` would replace: an agent of its own."""
    cell, port = cells(), free_port()
    options = ("agent.listen=127.0.0.1:%d" % port, "agent.trust_tcp=true", f"agent.control=unix@{tmp_path}/c", f"agent.relay_listen=unix@{tmp_path}/r", f"agent.admin=unix@{tmp_path}/a")
    agent = cell.spawn("tcp-agent", BIN / "cellgate-agent", "-c", cell.config_file, *(x for option in options for x in ("-o", option)))

    def reachable():
        assert agent.poll() is None, (cell.folder / "tcp-agent.log").read_text()
        with contextlib.suppress(OSError), connect(port):
            return True

    until(reachable, 10)
    for data in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n"):
        began = time.monotonic()
        answer, closed = exchange(port, data)
        assert closed and b"HTTP" not in answer and time.monotonic() - began < AT_ONCE
    told = attack(browser, f"http://127.0.0.1:{site}/", f"127.0.0.1:{port}", tmp_path / "marker")
    assert told["terminal"] != "open" and not any(str(value).startswith("read ") for value in told.values())
    FalseHaproxy(port).close()  # the agent is unharmed
    assert agent.poll() is None
