# SPDX-License-Identifier: MIT
"""`cellgate attach` in a pseudo-terminal and in a pipe, against a stand-in for the gate."""

import asyncio
import fcntl
import http
import json
import os
import pathlib
import pty
import select
import signal
import socket
import ssl
import struct
import subprocess
import termios
import threading
import time

import pytest
from cell import BIN, closed_port
from terminal_server import TerminalServer

CELLGATE = os.environ.get("CELLGATE") or str(BIN / "cellgate")
WAIT = 20  # seconds: an upper bound, never slept through


def set_size(fd, cols, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


class Terminal:
    """`cellgate attach` as the foreground process of a pseudo-terminal."""

    def __init__(self, *arguments, env=None, cols=101, rows=31):
        self.master, self.slave = pty.openpty()
        set_size(self.slave, cols, rows)
        self.before = termios.tcgetattr(self.slave)
        self.screen = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", CELLGATE, "attach", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, **(env or {})},
        )

    def type(self, data):
        while data:
            data = data[os.write(self.master, data[:512]) :]

    def read(self, timeout=0.0):
        if not select.select([self.master], [], [], timeout)[0]:
            return False
        self.screen += os.read(self.master, 65536)
        return True

    def expect(self, text):
        until = time.monotonic() + WAIT
        while text not in self.screen:
            assert time.monotonic() < until, f"{text!r} not in {self.screen[-2000:]!r}"
            self.read(0.1)

    def wait(self):
        """The exit code; reads the screen meanwhile, as a full pseudo-terminal would hold the program up."""
        until = time.monotonic() + WAIT
        while self.process.poll() is None:
            assert time.monotonic() < until, f"still running: {self.screen[-2000:]!r}"
            self.read(0.05)
        while self.read():
            pass
        return self.process.returncode

    def is_raw(self):
        flags = termios.tcgetattr(self.slave)
        return not flags[3] & (termios.ICANON | termios.ECHO | termios.ISIG) and not flags[1] & termios.OPOST

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **options):
        opened.append(Terminal(*arguments, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def serve():
    servers = []

    def start(handler, **options):
        servers.append(TerminalServer(handler, **options).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()


def eventually(condition):
    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def exit_message(code):
    return json.dumps({"type": "exit", "exit_code": code})


class Shell:
    """A handler that keeps what it gets, greets, and does what a line of input says."""

    def __init__(self, greeting=b"ready$ "):
        self.greeting = greeting
        self.typed = b""
        self.sizes = []
        self.other = []

    async def __call__(self, websocket):
        await websocket.send(self.greeting)
        async for message in websocket:
            if isinstance(message, bytes):
                self.typed += message
                if b"exit 7\n" in self.typed or b"exit 7\r" in self.typed:
                    await websocket.send(exit_message(7))
                    await websocket.close(1000, "exec completed")
            else:
                control = json.loads(message)
                (self.sizes if control.get("type") == "resize" else self.other).append(control)


# ---- in a terminal ----


def test_output_is_shown_and_the_exit_code_is_the_remotes(serve, terminal):
    server = serve(Shell())
    t = terminal(server.url)
    t.expect(b"ready$ ")
    t.type(b"exit 7\r")
    assert t.wait() == 7
    assert b"session ended with exit code 7 (closed with 1000 exec completed)" in t.screen


def test_every_byte_that_is_typed_arrives_unchanged(serve, terminal):
    shell = Shell()
    server = serve(shell)
    t = terminal(server.url)
    t.expect(b"ready$ ")
    data = bytes(range(256)) * 20
    t.type(data.replace(b"~", b""))
    t.type(b"\x03\x1a\x1c")
    eventually(lambda: shell.typed == data.replace(b"~", b"") + b"\x03\x1a\x1c")
    assert t.process.poll() is None


def test_every_byte_of_output_is_shown_unchanged(serve, terminal):
    data = bytes(range(256)) * 3000

    async def handler(websocket):
        await websocket.send([data[i : i + 70000] for i in range(0, len(data), 70000)])
        await websocket.send(exit_message(0))

    t = terminal(serve(handler).url)
    assert t.wait() == 0
    assert t.screen.startswith(data)


def test_the_size_is_sent_at_the_start_and_when_it_changes(serve, terminal):
    shell = Shell()
    t = terminal(serve(shell).url, cols=101, rows=31)
    t.expect(b"ready$ ")
    eventually(lambda: shell.sizes == [{"type": "resize", "cols": 101, "rows": 31}])
    set_size(t.slave, 90, 20)
    eventually(lambda: shell.sizes[1:] == [{"type": "resize", "cols": 90, "rows": 20}])


def test_the_terminal_is_raw_during_the_session_and_restored_behind_it(serve, terminal):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waiting = terminal(f"ws://127.0.0.1:{silent.getsockname()[1]}/")
        peer, _ = silent.accept()
        assert peer.recv(1) and waiting.is_restored()  # it has asked, and there is no session yet
        peer.close()
        assert waiting.wait() == 255 and waiting.is_restored()
    t = terminal(serve(Shell()).url)
    t.expect(b"ready$ ")
    assert t.is_raw()
    t.type(b"exit 7\r")
    t.wait()
    assert t.is_restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_restores_the_terminal_and_closes(serve, terminal, number):
    server = serve(Shell())
    t = terminal(server.url)
    t.expect(b"ready$ ")
    assert t.is_raw()
    t.process.send_signal(number)
    assert t.wait() == 128 + number
    assert t.is_restored()
    eventually(lambda: server.calls[0].close_code == 1000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_while_the_terminal_stands_still(serve, terminal, number):
    held = threading.Event()

    async def handler(websocket):
        await websocket.send(b"y" * 200_000)  # more than a terminal takes that nobody reads
        for _ in range(100):
            await (await websocket.ping())
        held.set()
        await websocket.wait_closed()

    server = serve(handler)
    t = terminal(server.url)
    assert held.wait(WAIT)
    assert t.is_raw()
    assert not fcntl.fcntl(t.slave, fcntl.F_GETFL) & os.O_NONBLOCK, "what is the shell's, too, was changed"
    t.process.send_signal(number)
    assert t.process.wait(WAIT) == 128 + number
    assert t.is_restored()
    eventually(lambda: server.calls[0].close_code == 1000)


def test_a_stopped_program_gives_the_terminal_back_until_it_goes_on(serve, terminal):
    shell = Shell()
    t = terminal(serve(shell).url)
    t.expect(b"ready$ ")
    t.process.send_signal(signal.SIGTSTP)
    eventually(t.is_restored)
    t.process.send_signal(signal.SIGCONT)
    eventually(t.is_raw)
    t.type(b"exit 7\r")
    assert t.wait() == 7
    assert len(shell.sizes) == 2


def test_tilde_dot_at_a_lines_start_leaves(serve, terminal):
    server = serve(Shell())
    t = terminal(server.url)
    t.expect(b"ready$ ")
    t.type(b"ls\r~.never sent")
    assert t.wait() == 0
    assert b"cellgate attach: left" in t.screen
    assert t.is_restored()
    eventually(lambda: server.calls[0].close_code == 1000)


def test_a_tilde_elsewhere_is_sent(serve, terminal):
    shell = Shell()
    t = terminal(serve(shell).url)
    t.expect(b"ready$ ")
    t.type(b"cd ~.\r~~\r~a~.\r~~.\r~")
    eventually(lambda: shell.typed == b"cd ~.\r~\r~a~.\r~.\r")
    time.sleep(0.2)  # the last one is held back for what may follow
    assert shell.typed == b"cd ~.\r~\r~a~.\r~.\r"
    t.type(b"?")
    t.expect(b"~.  leave")
    t.type(b"b")
    eventually(lambda: shell.typed.endswith(b"\rb"))


def test_a_close_without_exit_is_explained(serve, terminal):
    async def handler(websocket):
        await websocket.close(1011, "upstream unrecoverable")

    t = terminal(serve(handler).url)
    assert t.wait() == 255
    assert b"session ended (closed with 1011 upstream unrecoverable)" in t.screen


def test_a_normal_close_without_exit_is_success(serve, terminal):
    async def handler(websocket):
        await websocket.close(1000, "")

    t = terminal(serve(handler).url)
    assert t.wait() == 0
    assert b"session ended (closed with 1000)" in t.screen


def test_a_reason_cannot_drive_the_terminal(serve, terminal):
    async def handler(websocket):
        await websocket.close(4404, "\x1b]0;owned\x07\u20ac")

    t = terminal(serve(handler).url)
    assert t.wait() == 255
    assert b"\x1b" not in t.screen and b"4404 ?]0;owned????" in t.screen


def test_a_lost_connection_is_said_and_the_terminal_restored(serve, terminal):
    async def handler(websocket):
        await websocket.send(b"ready$ ")
        await asyncio.sleep(0.2)
        websocket.transport.abort()
        await asyncio.sleep(1)

    t = terminal(serve(handler).url)
    t.expect(b"ready$ ")
    assert t.wait() == 255
    assert b"the connection was lost" in t.screen
    assert t.is_restored()


def test_an_exit_message_in_fragments_with_a_ping_between_is_understood(serve, terminal):
    async def handler(websocket):
        await (await websocket.ping(b"there?"))

        async def parts():
            for part in ('{"type":"ex', 'it","exit_', 'code":300}'):
                yield part
                await websocket.ping()

        await websocket.send(parts())
        await websocket.close(1000, "")

    t = terminal(serve(handler).url)
    assert t.wait() == 300 & 0xFF


def test_text_that_is_no_control_message_is_not_shown(serve, terminal):
    async def handler(websocket):
        for text in ("plain", "{", '{"type":"ready"}', '{"type":"exit"}', '{"type":"exit","exit_code":"9"}', "x" * 9000):
            await websocket.send(text)
        await websocket.send(b"done")
        await websocket.close(1000, "")

    t = terminal(serve(handler).url)
    assert t.wait() == 0
    assert t.screen.startswith(b"done")


# ---- in a pipe ----


def attach(*arguments, input=b"", env=None):
    environment = {k: v for k, v in os.environ.items() if k != "CELLGATE_TOKEN"}
    return subprocess.run(
        [CELLGATE, "attach", *arguments], input=input, capture_output=True, timeout=WAIT, env={**environment, **(env or {})}
    )


def test_a_pipe_works_and_no_size_is_sent(serve):
    shell = Shell()
    done = attach(serve(shell).url, input=b"echo ~.\n~.\nexit 7\n")
    assert (done.returncode, done.stdout) == (7, b"ready$ ")
    assert shell.typed.startswith(b"echo ~.\n~.\nexit 7\n")
    assert shell.sizes == []


@pytest.mark.parametrize("typed, sent", [(b"", b"\x04"), (b"ls\n", b"ls\n\x04"), (b"cat", b"cat\n\x04")])
def test_the_end_of_a_pipe_is_control_d(serve, typed, sent):
    got = []

    async def handler(websocket):
        async for message in websocket:
            got.append(message)
            if b"\x04" in message:
                await websocket.send(exit_message(0))
                await websocket.close(1000, "")

    assert attach(serve(handler).url, input=typed).returncode == 0
    assert b"".join(got) == sent


def test_control_d_is_repeated_until_the_session_ends(serve):
    got = []

    async def handler(websocket):
        async for message in websocket:
            got.append(message)
            if b"".join(got).count(b"\x04") == 2:
                await websocket.send(exit_message(6))
                await websocket.close(1000, "")

    assert attach(serve(handler).url, input=b"ls\n").returncode == 6
    assert b"".join(got) == b"ls\n\x04\x04"


def test_a_megabyte_in_and_out_is_unchanged(serve):
    data = os.urandom(1 << 20).replace(b"\x04", b"\x05") + b"\n"

    async def handler(websocket):
        async for message in websocket:
            await websocket.send(message.replace(b"\x04", b""))
            if b"\x04" in message:
                await websocket.close(1000, "")

    done = attach(serve(handler).url, input=data)
    assert done.stdout == data


def test_a_reader_that_goes_away_ends_it(serve):
    async def handler(websocket):
        while True:
            await websocket.send(b"x" * 4096)

    process = subprocess.Popen(
        [CELLGATE, "attach", serve(handler).url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.read(10) == b"x" * 10
    process.stdout.close()
    assert process.wait(WAIT) == 255
    assert b"standard output is closed" in process.stderr.read()
    process.stdin.close()
    process.stderr.close()


def test_a_slow_reader_holds_up_the_sender_and_loses_nothing(serve):
    sent = []

    async def handler(websocket):
        for i in range(400):
            await websocket.send(bytes([i % 251]) * 65536)
            sent.append(i)
        await websocket.close(1000, "")

    process = subprocess.Popen(
        [CELLGATE, "attach", serve(handler, write_limit=65536).url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    eventually(lambda: len(sent) > 1)
    before = -1
    until = time.monotonic() + WAIT
    while before != len(sent):
        assert time.monotonic() < until
        before = len(sent)
        time.sleep(0.3)
    assert len(sent) < 400, "all was taken although nobody reads"
    got = process.stdout.read()
    process.stdin.close()
    process.stdout.close()
    assert process.wait(WAIT) == 0
    assert got == b"".join(bytes([i % 251]) * 65536 for i in range(400))


def test_descriptors_that_are_closed_are_not_the_connection(serve):
    """Where the first three were closed, the connection would be one of them."""
    typed = []

    async def handler(websocket):
        await websocket.send(b"echo to the screen\n")
        async for message in websocket:
            typed.append(message)
            if message == b"\x04":
                await websocket.close(1000, "")

    def run(redirection):
        """Nothing is typed, and the input does not end."""
        command = f"exec {CELLGATE} attach {serve(handler).url} {redirection}"
        process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        code = process.wait(WAIT)
        said = process.stdout.read(), process.stderr.read()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        return code, *said

    code, shown, _ = run("<&-")
    assert (code, shown, typed) == (0, b"echo to the screen\n", [b"\x04"])
    code, _, why = run(">&-")
    assert code == 255 and b"standard output is closed" in why
    assert run("2>&- </dev/null")[0] == 0


# ---- credentials ----


def command_line(process):
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""  # it has ended


def test_the_token_comes_from_a_file_or_the_environment_and_never_stands_in_argv(serve, tmp_path):
    headers, lines = [], []

    async def handler(websocket):
        headers.append(websocket.request_headers.get("Authorization"))
        lines.extend(line for line in map(command_line, pathlib.Path("/proc").glob("[0-9]*")) if server.url.encode() in line)
        await websocket.close(1000, "")

    server = serve(handler)
    (tmp_path / "token").write_text("from-file-secret\n")
    attach(server.url, "--token-file", str(tmp_path / "token"), env={"CELLGATE_TOKEN": "from-env-secret"})
    attach("--token-file", str(tmp_path / "token"), server.url)
    attach(server.url, env={"CELLGATE_TOKEN": "from-env-secret"})
    attach(server.url + "?cellgate_token=in-query")
    assert headers == ["Bearer from-file-secret", "Bearer from-file-secret", "Bearer from-env-secret", None]
    assert len(lines) >= 4 and b"-secret" not in b"".join(lines)
    assert server.calls[3].path.endswith("/terminal?cellgate_token=in-query")


@pytest.mark.parametrize("token", ["", "two words", "a\r\nX: y", "x" * 9000])
def test_a_token_that_is_no_token_is_refused_and_not_shown(serve, tmp_path, token):
    server = serve(Shell())
    (tmp_path / "token").write_text(token)
    done = attach("--token-file", str(tmp_path / "token"), server.url)
    assert done.returncode == 255
    assert str(tmp_path / "token").encode() in done.stderr
    assert server.calls == []
    assert not token or token.encode() not in done.stderr


# ---- refusals ----


def test_a_refusal_of_the_gate_is_shown_in_its_words(serve):
    async def refuse(path, headers):
        body = json.dumps({"error": "token_expired", "message": "The token has\x1b expired.", "retryable": False})
        return http.HTTPStatus.UNAUTHORIZED, {"Content-Type": "application/json"}, body.encode()

    done = attach(serve(Shell(), process_request=refuse).url)
    assert done.returncode == 255
    assert done.stderr == b"cellgate attach: refused with status 401 token_expired: The token has? expired.\n"


def raw_server(answer):
    """One connection that is answered with these bytes, whatever it asks."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(4096)
            connection.sendall(answer)
        listener.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return listener.getsockname()[1], thread


SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    "answer, told",
    [
        (b"SSH-2.0-x\r\n\r\n", b"is not HTTP"),
        (b"", b"no answer to the upgrade"),
        (b"HTTP/1.1 101 S", b"no answer to the upgrade"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>", b"refused with status 404\n"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"refused with status 204\n"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", b"refused with status 302\n"),
        (SWITCHING + b"\r\n", b"no correct Sec-WebSocket-Accept"),
        (SWITCHING + b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", b"no correct Sec-WebSocket-Accept"),
        (b"HTTP/1.1 200 OK\nX: y\n\n", b"line feed without carriage return"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 20000, b"too large"),
    ],
)
def test_an_answer_that_is_no_upgrade_is_refused(answer, told):
    port, thread = raw_server(answer)
    done = attach(f"ws://127.0.0.1:{port}/terminal")
    thread.join(WAIT)
    assert done.returncode == 255
    assert told in done.stderr


def test_a_frame_against_the_rules_ends_it_with_1002(serve):
    async def handler(websocket):
        websocket.transport.write(b"\x82\x81\0\0\0\0x")
        await websocket.wait_closed()

    server = serve(handler)
    done = attach(server.url)
    assert done.returncode == 255
    assert b"masked frame from a server" in done.stderr
    eventually(lambda: server.calls[0].close_code == 1002)


def test_nobody_listens():
    port = closed_port()
    done = attach(f"ws://127.0.0.1:{port}/")
    assert done.returncode == 255
    assert f"cannot connect to 127.0.0.1 port {port}: Connection refused".encode() in done.stderr


@pytest.mark.parametrize(
    "arguments, code",
    [
        ([], 2),
        (["ws://a/", "ws://b/"], 2),
        (["--nonsense", "ws://a/"], 2),
        (["ftp://127.0.0.1/"], 255),
        (["ws://"], 255),
        (["ws://u:p@127.0.0.1/"], 255),
        (["ws://127.0.0.1:0/"], 255),
        (["ws://127.0.0.1:65536/"], 255),
        (["ws://127.0.0.1:8x/"], 255),
        (["ws://[::1/"], 255),
        (["ws://127.0.0.1/a b"], 255),
        (["ws://127.0.0.1/\r\nX: y"], 255),
        (["ws://127.0.0.1/\u20ac"], 255),
        (["--token-file", "/nonexistent", "ws://127.0.0.1/"], 255),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, code):
    done = attach(*arguments)
    assert done.returncode == code
    assert done.stderr and b"u:p" not in done.stderr


def test_help():
    done = attach("--help")
    assert done.returncode == 0
    assert b"--token-file" in done.stdout


# ---- TLS ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    for name, alternative in (("good", "IP:127.0.0.1,DNS:localhost"), ("other", "DNS:other.example")):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
            + ["-subj", "/CN=test", "-addext", f"subjectAltName={alternative}"]
            + ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"],
            check=True,
            capture_output=True,
        )
    return folder


def tls_context(folder, name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
    return context


@pytest.mark.parametrize(
    "name, host, arguments, told",
    [
        ("good", "127.0.0.1", ["--ca", "good.pem"], None),
        ("good", "localhost", ["--ca", "good.pem"], None),
        ("good", "127.0.0.1", ["--insecure"], None),
        ("other", "127.0.0.1", ["--insecure"], None),
        ("good", "127.0.0.1", [], b"self-signed certificate"),
        ("other", "127.0.0.1", ["--ca", "other.pem"], b"IP address mismatch"),
        ("other", "localhost", ["--ca", "other.pem"], b"hostname mismatch"),
        ("good", "127.0.0.1", ["--ca", "other.pem"], b"self-signed certificate"),
        ("good", "127.0.0.1", ["--ca", "missing.pem"], b"cannot read certificates"),
    ],
)
def test_the_certificate_is_verified_unless_told_not_to(serve, certificate, name, host, arguments, told):
    server = serve(Shell(), ssl=tls_context(certificate, name))
    arguments = [f"{certificate}/{a}" if a.endswith(".pem") else a for a in arguments]
    done = attach(*arguments, server.url.replace("127.0.0.1", host), input=b"exit 7\n")
    assert done.returncode == (255 if told else 7), done.stderr
    assert (told or b"exit code 7") in done.stderr
    assert len(server.calls) == (0 if told else 1)


def test_megabytes_over_tls_are_unchanged(serve, certificate, terminal):
    data = os.urandom(3 << 20)

    async def handler(websocket):
        for i in range(0, len(data), 100000):
            await websocket.send(data[i : i + 100000])
        await websocket.close(1000, "")

    done = attach("--insecure", serve(handler, ssl=tls_context(certificate, "good")).url)
    assert done.stdout == data


def test_a_terminal_over_tls(serve, certificate, terminal):
    t = terminal("--insecure", serve(Shell(), ssl=tls_context(certificate, "good")).url)
    t.expect(b"ready$ ")
    t.type(b"exit 7\r")
    assert t.wait() == 7


def test_what_is_not_tls_is_said(serve):
    done = attach("--insecure", serve(Shell()).url.replace("ws://", "wss://"))
    assert done.returncode == 255
    assert b"TLS with 127.0.0.1 failed" in done.stderr
