# SPDX-License-Identifier: MIT
"""libspop-agent as it is installed: what it exports, and examples/agent built on it, shared and static, behind HAProxy."""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess

import pytest
from cell import ROOT, end, free_port, until
from false_agent import frame, text, typed

HEADER = ROOT / "spoa/spop/spop_agent.h"
# Who calls this may be a `make SAN=...`: the library is built without.
PLAIN = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "SAN", "COV", "FUZZ", "B", "DESTDIR", "PREFIX", "LIBDIR")}
FUNCTIONS = {name for name in re.findall(r"\b(spop_agent_\w+)\(", re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)) if name != "spop_agent_handler"}


class Installed:
    """In a folder as a package would have it, for a compiler that sees nothing else of the tree."""

    def __init__(self, root):
        self.root = root
        subprocess.run(["make", "-s", "install-lib", f"DESTDIR={root}", "PREFIX=/usr", "LIBDIR=/usr/lib/of-this-machine"], cwd=ROOT, env=PLAIN, check=True)
        self.lib = root / "usr/lib/of-this-machine"
        self.environment = PLAIN | {
            "PKG_CONFIG_PATH": str(self.lib / "pkgconfig"),
            "PKG_CONFIG_SYSROOT_DIR": str(root),
            # a prefix of /usr is no flag for a compiler whose root this is not
            "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
            "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1",
            "LD_LIBRARY_PATH": str(self.lib),
        }

    @property
    def example(self):
        return self.root / "usr/share/doc/spop-agent/examples"

    def flags(self, *options):
        return subprocess.run(["pkg-config", *options, "spop-agent"], env=self.environment, capture_output=True, text=True, check=True).stdout.split()

    def build(self, kind, source, target):
        flags = self.flags("--cflags", "--libs") if kind == "shared" else self.flags("--static", "--cflags", "--libs")
        if kind == "static":
            flags = [f"-l:lib{flag[2:]}.a" if flag == "-lspop-agent" else flag for flag in flags]
        command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", target, source, *flags]
        subprocess.run(command, cwd=target.parent, env=self.environment, check=True)
        return target


HELLO = frame(1, 0, 0, text("supported-versions") + typed("2.0") + text("max-frame-size") + b"\x03" + b"\xfc\xf0\x06" + text("capabilities") + typed("pipelining"))


def notify(ip, name="check-address"):
    return frame(3, 1, 1, text(name) + b"\x01" + text("ip") + ip)


def read_until(sock, wanted):
    """What the agent says, up to these bytes."""
    got = b""
    while wanted not in got:
        got += (more := sock.recv(65536))
        assert more, got
    return got


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("root"))


class Lists:
    """The example's agent behind the example's HAProxy."""

    def __init__(self, installed, folder, program):
        self.folder, self.program, self.environment, self.example = folder, program, installed.environment, installed.example
        self.socket = folder / "agent.sock"
        self.http = ("127.0.0.1", free_port())
        self.processes = []
        self.agent = None
        self.start_agent()
        own = {"LISTS_DIR": str(self.example), "LISTS_HTTP": f"127.0.0.1:{self.http[1]}", "LISTS_AGENT": f"unix@{self.socket}"}
        command = [*os.environ.get("HAPROXY", "haproxy").split(), "-q", "-f", str(self.example / "haproxy.cfg")]
        self.processes.append(subprocess.Popen(command, env=os.environ | own))
        until(self._answers, 10, "HAProxy does not listen")

    def _answers(self):
        assert self.processes[-1].poll() is None
        with contextlib.suppress(OSError):
            return bool(self.ask("127.0.0.1"))

    def start_agent(self):
        self.agent = subprocess.Popen([self.program, f"unix@{self.socket}", self.example / "lists.txt"], env=self.environment)
        self.processes.append(self.agent)
        until(self._listens)

    def _listens(self):
        assert self.agent.poll() is None
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self.socket))
            return True

    def ask(self, source):
        """(status, body) for a client that has this address."""
        with socket.create_connection(self.http, 5, (source, 0)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: sock.recv(4096), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode().strip()

    def all(self):
        return [self.ask(f"127.0.0.{n}") for n in (1, 2, 3)]

    def close(self):
        for process in reversed(self.processes):
            end(process)


ALL = [(200, "known"), (403, "blocked"), (200, "unknown")]


@pytest.fixture(scope="module", params=["shared", "static"])
def lists(request, installed, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    made = Lists(installed, folder, installed.build(request.param, installed.example / "address_lists.c", folder / "address-lists"))
    yield made
    made.close()


# ---- what is installed ----


def test_what_a_package_needs_is_there(installed):
    files = {str(path.relative_to(installed.root / "usr")) for path in installed.root.rglob("*") if not path.is_dir()}
    lib = "lib/of-this-machine/"
    shared = next(name for name in files if re.fullmatch(lib + r"libspop-agent\.so\.0\.\d+\.\d+", name))
    assert files == {
        "include/spop_agent.h",
        "share/man/man3/spop-agent.3",
        lib + "pkgconfig/spop-agent.pc",
        *("share/doc/spop-agent/examples/" + path.name for path in (ROOT / "examples/agent").iterdir()),
        lib + "libspop-agent.a",
        lib + "libspop-agent.so",
        lib + "libspop-agent.so.0",
        shared,
    }
    assert (installed.lib / "libspop-agent.so").resolve() == (installed.root / "usr" / shared).resolve()
    dynamic = subprocess.run(["readelf", "-d", installed.lib / "libspop-agent.so"], capture_output=True, text=True, check=True).stdout
    assert "[libspop-agent.so.0]" in dynamic
    assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) == {"libev.so.4", "libc.so.6"}


def symbols(*command):
    output = subprocess.run(["nm", *command], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in output.splitlines() if re.match(r"[0-9a-f]+ \w ", line)}


def test_only_the_headers_functions_have_names(installed):
    assert len(FUNCTIONS) > 20
    assert symbols("-D", "--defined-only", installed.lib / "libspop-agent.so") == FUNCTIONS
    assert symbols("-g", "--defined-only", installed.lib / "libspop-agent.a") == FUNCTIONS


def test_every_function_is_in_the_manual(installed, tmp_path):
    page = (installed.root / "usr/share/man/man3/spop-agent.3").read_text()
    assert set(re.findall(r"\b(spop_agent_\w+)\(", page)) >= FUNCTIONS
    synopsis, example = page.split(".SH DESCRIPTION")[0], page.split(".SH EXAMPLE\n.nf\n")[1].split(".fi")[0]
    assert set(re.findall(r"\b(spop_agent_\w+)\(", synopsis)) == FUNCTIONS | {"spop_agent_handler"}
    source = tmp_path / "example.c"
    source.write_text(example)
    installed.build("shared", source, tmp_path / "example")


@pytest.mark.parametrize("language", ["c99", "c11", "c++17"])
def test_header_stands_alone(installed, tmp_path, language):
    cxx = language.startswith("c++")
    if cxx and not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    source = tmp_path / ("x.cc" if cxx else "x.c")
    source.write_text("#include <spop_agent.h>\nint main(void) { return !spop_agent_error(NULL); }\n")
    command = ["c++" if cxx else "cc", f"-std={language}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused", "-o", tmp_path / "x", source, *installed.flags("--cflags", "--libs")]
    subprocess.run(command, env=installed.environment, check=True)
    subprocess.run([tmp_path / "x"], env=installed.environment, check=True)


def test_example_has_under_a_hundred_lines_and_nothing_of_the_tree(installed):
    source = (installed.example / "address_lists.c").read_text()
    assert len(source.splitlines()) < 100
    assert not re.search(r'#include "', source)


def test_command_shows_three_answers(installed):
    own = {"HTTP_PORT": str(free_port()), "HAPROXY": os.environ.get("HAPROXY", "haproxy")}
    done = subprocess.run([installed.example / "run"], env=installed.environment | own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1::2] == ["known", "blocked", "unknown"] and all(line.startswith("$ curl --interface 127.0.0.") for line in lines[::2])
    shown = (installed.example / "README.md").read_text()
    assert all(f"    {line.replace(own['HTTP_PORT'], '8088')}\n" in shown for line in lines)


def test_command_without_the_library_says_what_is_missing(installed, tmp_path):
    done = subprocess.run([installed.example / "run"], env=PLAIN | {"PKG_CONFIG_LIBDIR": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "install-lib" in done.stderr


# ---- behind HAProxy ----


def test_three_answers(lists):
    assert lists.all() == ALL


def test_list_that_is_wrong_is_said_with_its_line(lists, tmp_path):
    for number, line in enumerate(["known", "known 1.2.3.4/33", "known 1.2.3", "known ::1/129", "known x.test"]):
        path = tmp_path / f"{number}.txt"
        path.write_text(f"# a list\n\nblocked ::1\n{line}\n")
        done = subprocess.run([lists.program, f"unix@{tmp_path}/x.sock", path], env=lists.environment, capture_output=True, text=True, timeout=10)
        assert done.returncode == 1 and f"{path}:4:" in done.stderr, line


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_restart(lists, how):
    lists.agent.send_signal(how)
    assert lists.agent.wait(10) == (0 if how == signal.SIGTERM else -how)
    assert lists.socket.exists() == (how == signal.SIGKILL)
    assert lists.ask("127.0.0.1") == (503, "no answer")
    lists.start_agent()  # where a socket that nobody listens on may be left
    until(lambda: lists.all() == ALL, 10, "no answers after a restart")


def test_second_agent_on_the_same_socket_is_refused(lists):
    done = subprocess.run([lists.program, f"unix@{lists.socket}", lists.example / "lists.txt"], env=lists.environment, capture_output=True, text=True, timeout=10)
    assert done.returncode == 1 and str(lists.socket) in done.stderr
    assert lists.all() == ALL


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_agent_listens_on_tcp(lists, host):
    port = free_port()
    agent = subprocess.Popen([lists.program, f"{host}:{port}", lists.example / "lists.txt"], env=lists.environment)
    try:

        def greeted():
            assert agent.poll() is None
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host.strip("[]"), port), 5) as sock:
                sock.sendall(HELLO + notify(typed(bytes([127, 0, 0, 2]))))
                return read_until(sock, b"blocked")

        assert b"max-frame-size" in until(greeted)
    finally:
        end(agent)
    assert agent.returncode == 0


# ---- a hostile peer ----

GARBAGE = {
    "nothing": b"",
    "zeros": bytes(4096),
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "oversize": struct.pack(">I", 2**32 - 1),
    "one byte too long": struct.pack(">I", 16381) + bytes(16381),
    "shorter than a head": struct.pack(">I", 6) + bytes(6),
    "a question before hello": notify(typed(bytes(4))),
    "hello, oversize": HELLO + struct.pack(">I", 65536) + bytes(65536),
    "hello, a value cut off": HELLO + notify(b"\x06\x01"),
    "hello, a text longer than its frame": HELLO + notify(b"\x08\xff\xff\xff\xff\x0f"),
    "hello, a type that there is not": HELLO + notify(b"\x0f"),
    "hello, in fragments": HELLO + b"\0\0\0\x0b" + b"\x03\0\0\0\0\x01\x01" + b"abcd",
    "hello twice": HELLO + HELLO,
    "hello, cut": HELLO + notify(typed(bytes(4)))[:-2],
}


@pytest.mark.parametrize("what", GARBAGE)
def test_hostile_peer_ends_its_own_connection_only(lists, what):
    before = lists.agent.pid
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(lists.socket))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(GARBAGE[what])
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):  # to the end, which is the agent's
                pass
    assert lists.all() == ALL
    assert lists.agent.poll() is None and lists.agent.pid == before


@pytest.mark.parametrize("value", [typed("127.0.0.1"), typed(7), b"\x00", b"\x09\x00", typed(True)], ids=["text", "number", "null", "binary", "truth"])
def test_argument_of_another_kind_gets_the_fallback(lists, value):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(lists.socket))
        sock.sendall(HELLO + notify(value))
        got = read_until(sock, b"no_answer")
    assert b"error" in got and b"standing" not in got
    assert lists.all() == ALL


def test_many_at_once(lists):
    """HAProxy's connections to the agent are few: each question that is in flight gets its own answer."""
    sources = [f"127.0.0.{n}" for n in (1, 2, 3, 4)] * 25
    of = dict(zip(sources, [*ALL, ALL[2]]))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lists.ask, sources)) == [of[source] for source in sources]
