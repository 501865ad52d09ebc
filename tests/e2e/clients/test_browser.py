# SPDX-License-Identifier: MIT
"""The browser terminal of examples/quickstart in headless Chromium, against a stand-in for the gate."""

import asyncio
import http
import json
import mimetypes
import pathlib
import ssl
import subprocess
import time

import pytest
from browser import Browser
from network import outside
from terminal_server import TerminalServer

QUICKSTART = pathlib.Path(__file__).parents[3] / "examples/quickstart"
ROWS = ".xterm-rows"
TOKEN = "header.payload-part.signature_x"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page as `build` makes it."""
    folder = tmp_path_factory.mktemp("ui")
    subprocess.run(outside(QUICKSTART / "ui/build", folder), check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def chromium():
    with Browser("--ignore-certificate-errors") as browser:
        yield browser


@pytest.fixture
def browser(chromium):
    """The module's browser on an empty page, without what earlier tests have left."""
    chromium.start_over()
    chromium.resize(1000, 640)
    return chromium


@pytest.fixture
def hidden(browser):
    """The same, behind another tab."""
    front = browser.call("Target.createTarget", url="about:blank")["targetId"]
    browser.call("Target.activateTarget", targetId=front)
    browser.wait(lambda: browser.evaluate("document.hidden"))
    yield browser
    browser.call("Target.closeTarget", targetId=front)
    browser.wait(lambda: not browser.evaluate("document.hidden"))


class Sandbox:
    """Greets, keeps what it gets, and obeys lines: `exit N`, `drop`, `close CODE REASON`."""

    def __init__(self):
        self.typed = b""
        self.sizes = []
        self.opened = 0

    async def __call__(self, websocket):
        self.opened += 1
        await websocket.send(f"session {self.opened}\r\nsb-1$ ".encode())
        async for message in websocket:
            if isinstance(message, str):
                self.sizes.append(json.loads(message))
                continue
            self.typed += message
            await websocket.send(message.replace(b"\r", b"\r\n"))
            if message.endswith(b"\r"):
                await self.obey(websocket, self.typed.split(b"\r")[-2].decode(errors="replace").split(" ", 2))

    async def obey(self, websocket, words):
        if words[0] == "exit":
            await websocket.send(json.dumps({"type": "exit", "exit_code": int(words[1])}))
            await websocket.close(1000, "exec completed")
        elif words[0] == "drop":
            websocket.transport.abort()
        elif words[0] == "close":
            await websocket.close(int(words[1]), words[2])


@pytest.fixture
def serve(pages):
    servers = []

    def start(handler, refuse=None, **options):
        async def process_request(path, headers):
            if not path.startswith("/ui/"):
                return refuse() if refuse else None
            file = pages / (path.split("?")[0].split("/", 3)[3] or "index.html")
            if not file.is_file():
                return http.HTTPStatus.NOT_FOUND, {}, b""
            return http.HTTPStatus.OK, {"Content-Type": mimetypes.guess_type(file.name)[0]}, file.read_bytes()

        server = TerminalServer(
            handler, process_request=process_request, subprotocols=["cellgate"], origins=None, **options
        ).__enter__()
        scheme = "https" if options.get("ssl") else "http"
        server.page = f"{scheme}://127.0.0.1:{server.port}/ui/sb-1/"
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.__exit__()


def type_line(browser, text):
    browser.type(text + "\r")


def test_it_opens_shows_and_types(serve, browser):
    sandbox = Sandbox()
    server = serve(sandbox)
    browser.open(f"{server.page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    assert browser.text("#state") == "Connected"
    assert browser.text("#sandbox") == "sb-1"
    type_line(browser, "echo hello")
    browser.expect(ROWS, "sb-1$ echo hello")
    assert sandbox.typed == b"echo hello\r"
    opened = server.calls[0]
    assert opened.request_headers["Sec-WebSocket-Protocol"] == f"cell-resume.1, cellgate, cellgate.bearer.{TOKEN}"
    assert opened.subprotocol == "cellgate"
    cols, rows = browser.text("#size").split("×")
    assert opened.path.startswith(f"/v1/sandboxes/sb-1/proxy/8888/terminal?cols={cols}&rows={rows}&cr_tunnel=")
    assert browser.complaints() == []


def test_the_token_leaves_the_address_bar_and_survives_a_reload(serve, browser):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    assert browser.evaluate("location.href") == server.page
    assert TOKEN not in browser.evaluate("document.documentElement.outerHTML")
    browser.reload()
    browser.expect(ROWS, "session 2")
    assert TOKEN in server.calls[1].request_headers["Sec-WebSocket-Protocol"]


def test_nothing_is_fetched_from_elsewhere_and_no_url_holds_the_token(serve, browser):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    urls = [url for url in browser.requests() if not url.startswith("data:")]
    assert len(urls) >= 7
    assert {url.split("/")[2] for url in urls} == {f"127.0.0.1:{server.port}"}
    # the page's own navigation is told with its fragment, which no browser sends
    assert not any(TOKEN in url.split("#")[0] for url in urls)


def test_port_and_path_come_from_the_fragment(serve, browser):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token={TOKEN}&port=4711&path=/x/%7Bsandbox%7D/%7Bport%7D/t?a=b")
    browser.expect(ROWS, "session 1")
    assert server.calls[0].path.startswith("/x/sb-1/4711/t?a=b&cols=")
    assert server.calls[0].request_headers["Sec-WebSocket-Protocol"] == f"cell-resume.1, cellgate, cellgate.bearer.{TOKEN}"


OWN = "/v1/sandboxes/sb-1/proxy/8888/terminal?cols="


@pytest.mark.parametrize("said", ["path=/x/t", "path=/x/t?command=id&token=", "port=4711", f"path={OWN[:-5]}command=id"])
@pytest.mark.parametrize("reloads", [False, True])
def test_a_link_without_a_token_says_nothing_about_where_the_tabs_token_goes(serve, browser, said, reloads):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    if reloads:
        browser.start_over()
        browser.open(f"{server.page}#{said}")
        browser.expect(ROWS, "session 2")
    else:
        browser.evaluate(f"location.hash = {json.dumps(said)}")
        browser.wait(lambda: browser.evaluate("location.hash") == "", "the link was read")
        type_line(browser, "still here")
        browser.expect(ROWS, "still here")
    assert all(call.path.startswith(OWN) and "command" not in call.path for call in server.calls)
    assert len(server.calls) == 1 + reloads


@pytest.mark.parametrize("name", ["command", "%2563ommand", "Command"])
def test_a_command_of_a_link_is_run_when_a_person_agrees_and_not_before(serve, browser, name):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    browser.evaluate(f"location.hash = 'token=other&path=/x/t?{name}=id'")
    browser.expect("#notice-title", "A link wants to open another terminal")
    browser.expect("#notice-detail", "/x/t?")
    type_line(browser, "still here")
    browser.expect(ROWS, "still here")
    browser.click("#reconnect")
    browser.expect("#state", "Connected")
    assert all(call.path.startswith(OWN) for call in server.calls)
    browser.evaluate(f"location.hash = 'token=other&path=/x/t?{name}=id'")
    browser.expect("#notice-title", "A link wants to open another terminal")
    before = len(server.calls)
    browser.click("#agree")
    browser.wait(lambda: len(server.calls) > before)
    assert server.calls[-1].path.startswith("/x/t?") and server.calls[-1].request_headers["Sec-WebSocket-Protocol"].endswith(".other")


def test_a_typed_token_goes_where_a_link_says_only_when_a_person_agrees(serve, browser):
    tokens = []

    async def handler(websocket):
        tokens.append(websocket.request_headers["Sec-WebSocket-Protocol"].split("cellgate.bearer.")[-1])
        if tokens[-1] == "stale":
            await websocket.close(4401, "token_expired")
        await websocket.send(b"welcome")
        await websocket.wait_closed()

    server = serve(handler)
    browser.open(f"{server.page}#token=stale&path=/x/t")
    browser.expect("#notice-title", "The token is missing, invalid or expired.")
    browser.click("#token")
    browser.type("mine\r")
    browser.expect("#notice-detail", "/x/t")
    browser.expect("#agree", "Open")
    assert tokens == ["stale"]
    browser.click("#agree")
    browser.expect(ROWS, "welcome")
    assert tokens == ["stale", "mine"]


def test_a_path_cannot_lead_to_another_host(serve, browser):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token={TOKEN}&path=//192.0.2.1/t")
    browser.expect(ROWS, "session 1")
    assert server.calls[0].path.startswith("/t?cols=")


def test_a_new_window_size_is_told(serve, browser):
    sandbox = Sandbox()
    browser.open(f"{serve(sandbox).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    browser.resize(700, 400)
    browser.wait(lambda: len(sandbox.sizes) >= 2 and sandbox.sizes[-1]["cols"] < sandbox.sizes[0]["cols"])
    last = sandbox.sizes[-1]
    assert last["type"] == "resize"
    browser.expect("#size", f"{last['cols']}×{last['rows']}")


def test_the_size_settles(serve, browser):
    sandbox = Sandbox()
    browser.open(f"{serve(sandbox).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    type_line(browser, "x" * 300)
    time.sleep(0.7)  # a page that cannot make up its mind tells a size with every frame
    assert len(sandbox.sizes) <= 2 and sandbox.sizes[-1] == sandbox.sizes[0]


def test_the_end_is_told_with_exit_code_and_a_button_opens_a_new_session(serve, browser, tmp_path):
    sandbox = Sandbox()
    browser.open(f"{serve(sandbox).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    type_line(browser, "exit 3")
    browser.expect("#notice-title", "The session has ended with exit code 3.")
    assert browser.text("#notice-detail") == "Closed with code 1000: exec completed."
    assert browser.text("#state") == "Exit code 3"
    browser.screenshot(tmp_path / "ended.png")
    browser.click("#again .primary")
    browser.expect(ROWS, "session 2")
    assert browser.evaluate("document.querySelector('#notice').hidden")
    type_line(browser, "exit 0")
    browser.expect("#notice-title", "The session has ended.")


@pytest.mark.parametrize(
    "code, reason, title",
    [
        (4404, "sandbox_not_found", "There is no such sandbox."),
        (4410, "sandbox_stopped", "The sandbox is stopped."),
        (1011, "upstream unrecoverable", "The sandbox's worker was lost."),
        (1008, "token expired", "The gate does not allow this any longer."),
        (4001, "taken over", "Somebody else took this session over."),
        (4999, "own words", "The other side ended the session."),
    ],
)
def test_a_final_close_is_explained_and_not_retried(serve, browser, code, reason, title):
    sandbox = Sandbox()
    browser.open(f"{serve(sandbox).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    type_line(browser, f"close {code} {reason}")
    browser.expect("#notice-title", title)
    assert browser.text("#notice-detail") == f"Closed with code {code}: {reason}."
    assert browser.text("#state") == f"Disconnected ({code})"
    time.sleep(0.8)  # longer than the first wait before a new attempt
    assert sandbox.opened == 1


def test_a_reason_is_text_and_never_markup(serve, browser):
    browser.open(f"{serve(Sandbox()).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    type_line(browser, "close 4000 <img src=x onerror=alert(1)>")
    browser.expect("#notice-detail", "Closed with code 4000: <img src=x onerror=alert(1)>.")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0


def test_a_refused_token_is_asked_for_again(serve, browser):
    tokens = []

    async def handler(websocket):
        tokens.append(websocket.request_headers["Sec-WebSocket-Protocol"].split("cellgate.bearer.")[-1])
        if tokens[-1] != "fresh":
            await websocket.close(4401, "token_expired")
        await websocket.send(b"welcome")
        await websocket.wait_closed()

    server = serve(handler)
    browser.open(f"{server.page}#token=stale")
    browser.expect("#notice-title", "The token is missing, invalid or expired.")
    browser.click("#token")
    browser.type("fresh\r")
    browser.expect(ROWS, "welcome")
    assert tokens == ["stale", "fresh"]
    browser.reload()
    browser.expect(ROWS, "welcome")
    assert tokens == ["stale", "fresh", "fresh"]


def test_a_lost_connection_comes_back_by_itself(serve, browser):
    sandbox = Sandbox()
    browser.open(f"{serve(sandbox).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    browser.follow("#state")
    type_line(browser, "drop")
    browser.has_said("Reconnecting in 1 s (attempt 1 of 10)")
    browser.expect(ROWS, "session 2")
    assert browser.text("#state") == "Connected"
    type_line(browser, "close 1012 relay restarting")
    browser.expect(ROWS, "session 3")


def test_a_clock_that_is_put_back_does_not_hold_up_the_next_attempt(serve, browser):
    browser.open(f"{serve(Sandbox()).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    browser.evaluate("{ let now = Date.now(); Date.now = () => (now -= 60000); }")
    type_line(browser, "drop")
    browser.expect(ROWS, "session 2")


def test_a_gate_that_refuses_is_tried_again_and_the_button_does_not_wait(serve, browser):
    asked = []

    def refuse():
        asked.append(time.monotonic())
        if len(asked) < 4:
            return http.HTTPStatus.SERVICE_UNAVAILABLE, {}, b"{}"
        return None

    browser.open(f"{serve(Sandbox(), refuse=refuse).page}#token={TOKEN}")
    browser.expect("#state", "(attempt 2 of 10)")
    browser.click("#reconnect")
    browser.wait(lambda: len(asked) >= 3)
    browser.expect(ROWS, "session 1")
    waits = [b - a for a, b in zip(asked, asked[1:])]
    assert len(asked) == 4 and waits[0] < 1.5


def test_a_token_that_cannot_be_sent_is_said(serve, browser):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token=two%20words")
    browser.expect("#notice-title", "The address or the token is malformed.")
    assert server.calls == []


def test_characters_that_arrive_in_halves_are_whole_on_the_screen(serve, browser):
    async def handler(websocket):
        for byte in "caf\u00e9 \u20ac \U0001f680 done".encode():
            await websocket.send(bytes([byte]))
        await websocket.wait_closed()

    browser.open(f"{serve(handler).page}#token={TOKEN}")
    browser.expect(ROWS, "caf\u00e9 \u20ac \U0001f680 done")


def test_a_large_paste_arrives_whole_and_in_order(serve, browser):
    got = []

    async def handler(websocket):
        await websocket.send(b"ready")
        async for message in websocket:
            got.append(message)

    text = "".join(f"{i:05d} caf\u00e9 " for i in range(6000))
    browser.open(f"{serve(handler).page}#token={TOKEN}")
    browser.expect(ROWS, "ready")
    browser.paste(text)
    size = len(text.encode())
    browser.wait(lambda: sum(len(m) for m in got if isinstance(m, bytes)) >= size)
    messages = [m for m in got if isinstance(m, bytes)]
    assert b"".join(messages) == text.encode()
    assert max(len(m) for m in messages) <= 16384


def test_a_flood_of_output_is_drawn_to_its_end(serve, browser):
    async def handler(websocket):
        line = b"0123456789abcdef" * 4 + b"\r\n"
        for _ in range(300):
            await websocket.send(line * 500)
        await websocket.send(b"the end of 19 megabytes")
        await websocket.wait_closed()

    browser.open(f"{serve(handler).page}#token={TOKEN}")
    browser.expect(ROWS, "the end of 19 megabytes")
    assert browser.complaints() == []


def test_a_hidden_tab_does_not_hold_up_the_program(serve, hidden):
    drawn = []

    async def handler(websocket):
        for _ in range(100):  # each is more than xterm.js draws at a stretch, and a hidden tab has one timer a second
            await websocket.send(b"\x1b[2J" * 1000)
        await websocket.send(b"\x1b[5n")  # Device Status Report: answered in its turn
        while (answer := await websocket.recv()) != b"\x1b[0n":
            assert isinstance(answer, str)
        drawn.append(True)
        await websocket.wait_closed()

    hidden.open(f"{serve(handler).page}#token={TOKEN}")
    hidden.wait(lambda: drawn, "all to be drawn")
    assert hidden.evaluate("document.hidden")
    assert hidden.complaints() == []


def test_the_wheel_scrolls_back(serve, browser):
    async def handler(websocket):
        await websocket.send("".join(f"line {i}\r\n" for i in range(200)).encode() + b"ready")
        await websocket.wait_closed()

    browser.open(f"{serve(handler).page}#token={TOKEN}")
    browser.expect(ROWS, "ready")
    assert "line 100\n" not in browser.text(ROWS)
    browser.wait(lambda: browser.wheel(500, 300, -800) or "line 100\n" in browser.text(ROWS))


def test_text_that_is_no_control_message_is_harmless(serve, browser):
    async def handler(websocket):
        for text in ("plain", "null", "[]", "7", '{"type":"exit","exit_code":"<b>"}', '{"type":"ready"}'):
            await websocket.send(text)
        await websocket.send('{"type":"error","message":"no \\u001b[31mshell"}')
        await websocket.send(b"still here")
        await websocket.wait_closed()

    browser.open(f"{serve(handler).page}#token={TOKEN}")
    browser.expect(ROWS, "still here")
    assert "no ?[31mshell" in browser.text(ROWS)
    assert browser.complaints() == []


def test_another_link_in_the_same_tab_is_followed(serve, browser):
    server = serve(Sandbox())
    browser.open(f"{server.page}#token=first")
    browser.expect(ROWS, "session 1")
    browser.evaluate("location.hash = 'token=second'")
    browser.expect(ROWS, "session 2")
    assert server.calls[1].request_headers["Sec-WebSocket-Protocol"].endswith(".second")
    browser.wait(lambda: server.calls[0].close_code == 1000)


def test_what_the_page_says_has_names_and_roles(serve, browser):
    browser.open(f"{serve(Sandbox()).page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = {(n["role"]["value"], n.get("name", {}).get("value")) for n in tree if not n.get("ignored")}
    assert {("main", "Terminal"), ("heading", "sb-1"), ("button", "Reconnect"), ("button", "Screen reader")} <= named
    assert "status" in {role for role, _ in named}
    browser.click("#reader")
    browser.expect(".xterm-accessibility-tree", "session 1")


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", "/CN=test", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/certificate.pem"],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/certificate.pem", f"{folder}/key.pem")
    return context


def test_over_tls_the_socket_is_wss(serve, browser, tls):
    server = serve(Sandbox(), ssl=tls)
    browser.open(f"{server.page}#token={TOKEN}")
    browser.expect(ROWS, "session 1")
    assert f"wss://127.0.0.1:{server.port}/v1/sandboxes/" in " ".join(browser.requests())
    type_line(browser, "exit 0")
    browser.expect("#notice-title", "The session has ended.")


def test_a_session_that_ends_while_output_is_drawn_shows_all_of_it(serve, browser):
    async def handler(websocket):
        await websocket.send(b"x" * 2_000_000 + b"\r\nlast words\r\n")
        await websocket.send(json.dumps({"type": "exit", "exit_code": 0}))
        await asyncio.sleep(0)
        await websocket.close(1000, "exec completed")

    browser.open(f"{serve(handler).page}#token={TOKEN}")
    browser.expect("#notice-title", "The session has ended.")
    browser.expect(ROWS, "last words")
