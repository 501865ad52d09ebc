# SPDX-License-Identifier: MIT
"""Clients of the field, unchanged: Chromium, node's `ws`, Python's websockets and curl, at the built-in routes and at an
application behind a preview host and below a path."""

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
from pathlib import Path

import application
import pytest
import websockets
from browser import Browser
from cell import token, until
from network import outside

NODE = Path(__file__).parent / "node"
EVERY_BYTE = bytes(range(256)) * 40
ROUTES = [
    {"name": "preview", "host": "{port}-{sandbox}.<e2b>", "cookie": True, "ports": "1024-65535"},
    {"name": "relay", "path": "/r/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "pty"},
    {"name": "telling", "path": "/c/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay", "need": "pty", "refuse": "close"},
    {"name": "direct", "path": "/v1/sandboxes/{sandbox}/proxy/{port}/{rest...}", "to": "/{rest}", "upgrade": True},
    {"name": "prefix", "path": "/below/{sandbox}/{rest...}", "to": "/{rest}", "need": "none", "cookies": "keep"},
]
WAYS = {"direct": "/v1/sandboxes/sb-1/proxy/80/ws", "relay": "/r/sb-1/ws"}


@pytest.fixture(scope="module")
def origin(origins):
    return origins(answer=application.answer, upgrade=application.upgrade)


@pytest.fixture(scope="module")
def cell(cells, origin):
    config = {"routes": ROUTES, "management_ports": "1-65535", "domains": {"e2b": ["e2b.localhost"]}}
    return cells(sandboxes={"sb-1": {"worker": origin.url}}, config=config)


def handshakes(cell, scheme):
    return f"{'wss' if scheme == 'https' else 'ws'}://127.0.0.1:{cell.https if scheme == 'https' else cell.http}"


# ---- Python ----


def python(url, messages, **more):
    """(selected subprotocol, what came back)."""
    if url.startswith("wss"):
        more["ssl"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        more["ssl"].check_hostname, more["ssl"].verify_mode = False, ssl.CERT_NONE

    async def run():
        async with websockets.connect(url, max_size=None, open_timeout=10, **more) as client:
            for message in messages:
                await client.send(message)
            await (await client.ping())
            return client.subprotocol, [await client.recv() for _ in messages]

    return asyncio.run(run())


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("way", WAYS)
def test_python_websockets(cell, way, scheme):
    bearer = {"Authorization": "Bearer " + cell.token()}
    said = ["text \u20ac", EVERY_BYTE, "", b"", "x" * 70000]
    assert python(handshakes(cell, scheme) + WAYS[way], said, extra_headers=bearer) == (None, said)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("offered,selected", [(["binary", "base64"], "binary"), (["base64"], "base64"), (["binary"], "binary"), (["base64", "chat"], "base64")])
@pytest.mark.parametrize("source", ["header", "subprotocol"])
def test_a_remote_screen_negotiates_its_subprotocol(cell, origin, way, offered, selected, source):
    """As noVNC and websockify do; a token beside them is never selected and the worker does not see it."""
    if source == "header":
        more = {"extra_headers": {"Authorization": "Bearer " + cell.token()}, "subprotocols": offered}
    else:
        more = {"subprotocols": [*offered, "cellgate", "cellgate.bearer." + cell.token()]}
    said = base64.b64encode(EVERY_BYTE).decode() if selected == "base64" else EVERY_BYTE
    assert python(handshakes(cell, "http") + WAYS[way], [said], **more) == (selected, [said])
    seen = [p.strip() for line in origin.requests[-1].all("sec-websocket-protocol") for p in line.split(",")]
    assert [p for p in seen if p != "cellgate"] == offered


@pytest.mark.parametrize("way", WAYS)
def test_python_websockets_is_told_why_not(cell, way):
    for headers, status in (({}, 401), ({"Authorization": "Bearer x"}, 401), ({"Authorization": "Bearer " + cell.token("sb-2")}, 403)):
        with pytest.raises(websockets.InvalidStatusCode) as refused:
            python(handshakes(cell, "http") + WAYS[way], [], extra_headers=headers)
        assert refused.value.status_code == status


# ---- node ----


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Runs client.mjs with the version of `ws` that the lock file names."""
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(NODE / name, folder)
    subprocess.run(outside("npm", "ci", "--ignore-scripts", "--no-progress", "--prefer-offline"), cwd=folder, check=True, timeout=120, capture_output=True)

    def run(url, protocols=(), headers=None, messages=(), **more):
        wanted = {"url": url, "protocols": list(protocols), "headers": headers or {}, "messages": list(messages)} | more
        done = subprocess.run(["node", NODE / "client.mjs", folder], input=json.dumps(wanted), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("way", WAYS)
def test_node_ws(cell, node, way, scheme):
    messages = [{"text": "text \u20ac"}, {"base64": base64.b64encode(EVERY_BYTE).decode()}, {"text": ""}]
    protocols = ["binary", "cellgate", "cellgate.bearer." + cell.token()]
    seen = node(handshakes(cell, scheme) + WAYS[way], protocols, messages=messages)
    assert seen == {"messages": messages, "pongs": 1, "protocol": "binary", "code": 1000, "reason": "done"}
    seen = node(handshakes(cell, scheme) + WAYS[way], ["cellgate", "cellgate.bearer." + cell.token()])
    assert seen["protocol"] == "cellgate" and seen["code"] == 1000


def test_node_ws_is_told_why_not(cell, node):
    for way in WAYS.values():
        seen = node(handshakes(cell, "http") + way, headers={"Authorization": "Bearer " + cell.token(ttl=-60)})
        assert seen["status"] == 401 and json.loads(seen["body"])["error"] == "token_expired"
    seen = node(handshakes(cell, "http") + "/c/sb-1/ws", ["cellgate", "cellgate.bearer.x"], waits=True)
    assert (seen["code"], seen["reason"], seen["protocol"]) == (4401, "token_invalid", "cellgate")


# ---- curl ----


def curl(*arguments):
    done = subprocess.run(["curl", "-sS", "--insecure", "--max-time", "20", *map(str, arguments)], capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("form", ["host", "prefix"])
def test_curl_signs_in_follows_redirects_and_reads_events(cell, origin, tmp_path, form, version):
    host = f"{origin.port}-sb-1.e2b.localhost"
    base = f"https://{host}:{cell.https}" if form == "host" else f"https://cell.localhost:{cell.https}/below/sb-1"
    jar = tmp_path / "jar"
    common = ["--location", "--cookie", jar, "--cookie-jar", jar, f"--http{version}", "--connect-to", f"::127.0.0.1:{cell.https}"]
    if form == "host":
        # The token becomes a cookie once; after that the application's own cookies and redirects are all there is.
        assert "start" in curl(*common, f"{base}/?cellgate_token={cell.token()}")
    own = ["--header", f"Origin: https://{host}:{cell.https}"] if form == "host" else []
    assert "<p id=who>ada" in curl(*common, *own, "--data", "name=ada", f"{base}/login", "--write-out", "%{http_version}").replace(f"</script>{version}", "")
    assert curl(*common, "--no-buffer", f"{base}/events") == "data: 1\n\ndata: 2\n\ndata: 3\n\n"
    assert "<p id=who>ada" in curl(*common, f"{base}/own-address")
    assert curl(*common, "--output", "/dev/null", "--write-out", "%{http_version} %{url_effective}", f"{base}/own-address") == f"{version} {base}/home"
    assert {line.split("\t")[5] for line in jar.read_text().splitlines() if "\t" in line} >= {"session", "theme"}


def test_curl_is_told_why_not(cell):
    told = json.loads(curl(f"http://127.0.0.1:{cell.http}{WAYS['direct']}"))
    assert told == {"error": "no_route", "message": "Nothing is served under this address.", "retryable": False}
    host = "3000-sb-1.e2b.localhost"
    told = json.loads(curl("--connect-to", f"::127.0.0.1:{cell.https}", f"https://{host}:{cell.https}/"))
    assert told["error"] == "token_missing"


# ---- a browser ----

DIAL = """new Promise((done) => {
    const seen = {}, socket = new WebSocket(URL_, PROTOCOLS);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { seen.protocol = socket.protocol; seen.opened = true; if (SEND) socket.send(new Uint8Array([0, 1, 254, 255])); };
    socket.onmessage = (e) => { seen.echo = Array.from(new Uint8Array(e.data)); socket.close(1000, "done"); };
    socket.onclose = (e) => { seen.code = e.code; seen.reason = e.reason; done(seen); };
})"""


@pytest.fixture(scope="module")
def chromium():
    with Browser("--ignore-certificate-errors") as browser:
        yield browser


@pytest.fixture(params=["HTTP/1.1", "HTTP/2.0"])
def page(request, cell, chromium):
    """A page of the gate's own origin, and the HTTP that Chromium speaks with it."""
    scheme, port = ("http", cell.http) if request.param == "HTTP/1.1" else ("https", cell.https)
    chromium.open(f"{scheme}://cell.localhost:{port}/below/sb-1/?{request.param}")
    chromium.wait(lambda: chromium.evaluate("document.title") == "start" and chromium.evaluate("location.protocol") == scheme + ":")
    chromium.version, chromium.base = request.param, f"{scheme.replace('http', 'ws')}://cell.localhost:{port}"
    return chromium


def dial(page, path, protocols, send=True):
    script = DIAL.replace("URL_", json.dumps(page.base + path)).replace("PROTOCOLS", json.dumps(protocols)).replace("SEND", json.dumps(send))
    return page.evaluate(script)


def spoke(cell, page, route, before):
    """The access log says which HTTP the WebSocket came over."""
    lines = until(lambda: [x for x in cell.access_log().splitlines()[before:] if f"route={route} " in x], 10, "no line in the access log")
    assert all(f" {page.version} " in line for line in lines), lines


@pytest.mark.parametrize("way", WAYS)
def test_a_browser_opens_a_websocket_with_its_token_as_subprotocol(cell, page, way):
    before = len(cell.access_log().splitlines())
    for offered, selected in ((["binary"], "binary"), (["base64"], "base64"), (["cellgate"], "cellgate"), (["cellgate", "chat"], "chat")):
        seen = dial(page, WAYS[way], [*offered, "cellgate.bearer." + cell.token()])
        assert seen == {"opened": True, "protocol": selected, "echo": [0, 1, 254, 255], "code": 1000, "reason": "done"}
    spoke(cell, page, way, before)


@pytest.mark.parametrize("way", WAYS)
def test_a_browser_that_is_refused(cell, page, way):
    before = len(cell.access_log().splitlines())
    for credential in ("x", token("test", sandbox="sb-1", ttl=-60), cell.token("sb-2")):
        assert dial(page, WAYS[way], ["cellgate", "cellgate.bearer." + credential]) == {"code": 1006, "reason": ""}
    assert dial(page, WAYS[way], ["cellgate"]) == {"code": 1006, "reason": ""}
    spoke(cell, page, way, before)


def test_a_browser_reads_why_it_was_refused_where_the_route_says_so(cell, page):
    for credential, code, reason in (
        ("x", 4401, "token_invalid"),
        (token("test", sandbox="sb-1", ttl=-60), 4401, "token_expired"),
        (cell.token("sb-2"), 4403, "wrong_sandbox"),
        (cell.token(need=["exec"]), 4403, "not_granted"),
    ):
        seen = dial(page, "/c/sb-1/ws", ["cellgate", "cellgate.bearer." + credential], send=False)
        assert seen == {"opened": True, "protocol": "cellgate", "code": code, "reason": reason}


def test_a_page_of_another_origin_opens_nothing(cell, page):
    for path in WAYS.values():
        url = (page.base + path).replace("cell.localhost", "other.localhost")
        script = DIAL.replace("URL_", json.dumps(url)).replace("PROTOCOLS", json.dumps(["cellgate", "cellgate.bearer." + cell.token()])).replace("SEND", "true")
        assert page.evaluate(script) == {"code": 1006, "reason": ""}


@pytest.mark.parametrize("form", ["host", "prefix"])
def test_an_application_with_cookies_redirects_events_and_a_websocket(cell, origin, chromium, form):
    if form == "host":
        base = f"https://{origin.port}-sb-1.e2b.localhost:{cell.https}"
        chromium.open(f"{base}/?cellgate_token={cell.token()}")
    else:
        base = f"https://app.localhost:{cell.https}/below/sb-1"
        chromium.open(base + "/")
    chromium.wait(lambda: chromium.evaluate("location.href") == base + "/" and chromium.evaluate("document.title") == "start", lambda: chromium.evaluate("location.href + document.body.innerText"))
    chromium.click("#go")
    chromium.expect("#who", "ada")
    chromium.expect("#events", "1 2 3")
    chromium.expect("#ws", "through the gate")
    assert chromium.evaluate("location.href") == base + "/home"
    assert chromium.evaluate("document.cookie") == ("theme=dark" if form == "host" else "theme=dark")
    chromium.open(base + "/own-address")
    chromium.wait(lambda: chromium.evaluate("location.href") == base + "/home")
    assert b"cellgate" not in b"".join(request.head for request in origin.requests if request.target.startswith(("/home", "/events")))


def test_a_cookie_of_one_sandbox_is_not_the_next_ones(cell, origin, chromium):
    chromium.open(f"https://app.localhost:{cell.https}/below/sb-1/login")
    chromium.expect("#who", "ada")
    chromium.open(f"https://app.localhost:{cell.https}/below/sb-9/")
    chromium.wait(lambda: "sandbox_not_found" in chromium.evaluate("document.body?.innerText ?? ''"))
    assert chromium.evaluate("document.cookie") == ""
