# SPDX-License-Identifier: MIT
"""OpenSandbox's SDK from npm through a pod of overlays/opensandbox, whose sandboxes are BatchSandboxes of a real API server; its terminal by
npm's `ws`. Real: SDK and `ws`, the API server, HAProxy, agent and relay. Stand-ins: lifecycle server and controller
(opensandbox_server.py), execd (execd.py before a cell-worker; for the terminal a cell-worker), the application in the sandbox."""

import json
import shutil
import ssl
from contextlib import ExitStack

import pytest
from cell import BIN, end, until
from client import Http1
from cluster import with_a_cluster
from execd import Execd
from kube import WHY_NOT
from npm import Program, certificate, install
from opensandbox_server import KEYS, SECRET, BatchSandbox, LifecycleServer
from origin import Origin
from plane import answer
from pod import has_namespaces
from test_kubernetes_pod import TLS, plain
from worker import Host, start

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is one"),
              pytest.mark.skipif(not shutil.which("npm"), reason="needs node 20.19 or newer with npm"),
              pytest.mark.skipif(not has_namespaces(), reason="needs root of a whole machine: containers are namespaces of the kernel")]
EXECD, APPLICATION = 44772, 3000  # 8080 is HAProxy's, which is on the same machine here
GATE = "gate.example.com"
HERE, THERE = "127.0.1.1", "127.0.1.2"
RUN = {"stdout": "out\n", "stderr": "err\n", "exitCode": 3, "first": "init", "order": ["stderr", "stdout"]}


class World:
    """A cell with sandbox sb-1, whose pod may be at any address."""

    def __init__(self, cluster, stack, packages, authority):
        self.stack, self.packages, self.authority = stack, packages, authority
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority)
        self.server, self.host = LifecycleServer(cluster, TLS, context), Host()
        stack.callback(self.server.close)
        stack.callback(self.host.close)
        self.one = BatchSandbox(cluster, "sb-1")

    def worker(self, listen):
        """The port of a cell-worker; all have the same sessions."""
        names = (word for name in (f"sb-1-{EXECD}.sandboxes.example.com", GATE) for word in ("--host", name))
        process, listening = start(BIN / "cell-worker", "--listen", listen, "--sandboxd", self.host.socket, "--open", *names)
        self.stack.callback(process.communicate)
        self.stack.callback(end, process)
        return int(listening.rpartition(":")[2])

    def machine(self, address):
        """What listens in a sandbox: execd, and an application."""
        execd = Execd(host=address, port=EXECD)
        self.stack.callback(execd.close)
        execd.behind = self.worker("127.0.0.1:0")
        execd.application = Origin(lambda connection, request: answer(connection, 200, b"the application"), host=address, port=APPLICATION)
        self.stack.callback(execd.application.close)
        return execd

    def program(self, script, wanted):
        program = Program(self.packages, script, wanted, {"NODE_EXTRA_CA_CERTS": str(self.authority)})
        self.stack.callback(program.end)
        return program

    def connect(self, **connection):
        """The SDK: connect()("run") is a step of opensandbox.mjs."""
        connection |= {"domain": f"server.example.com:{self.server.port}", "protocol": "https", "apiKey": "an-api-key"}
        program = self.program("opensandbox.mjs", {"connection": connection, "port": APPLICATION})

        def step(name):
            program.say(name)
            return program.hear()

        step.program = program
        return step


@pytest.fixture(scope="module")
def packages():
    return install()


@pytest.fixture
def scene(tmp_path, packages):
    """story(world)"""

    def scene(story):
        authority = certificate(tmp_path)

        def test(pod, cluster):
            cluster.server.kubectl("create", "namespace", "opensandbox")
            pod.start()
            pod.await_ready()
            with ExitStack() as stack:
                story(World(cluster, stack, packages, authority))

        tls = {"tls.crt": (tmp_path / "crt").read_bytes(), "tls.key": (tmp_path / "key").read_bytes()}
        with_a_cluster("opensandbox", ["batchsandboxes"], KEYS, tls, test)

    return scene


def test_commands_files_and_endpoints(scene):
    def story(world):
        execd = world.machine(HERE)
        sdk, proxied = world.connect(), world.connect(useServerProxy=True)  # which wait until it is there
        world.one.runs_at(HERE)
        for client in (sdk, proxied):
            assert client("run") == RUN
            assert client("much") == {"exitCode": 0, "sum": 5000050000}
            seen = client("files")
            assert seen["whole"] and seen["streamed"] and seen["text"] == "words" and seen["missing"]["status"] == 404
        # by secret, and by signature
        assert sdk("preview") == [[200, "the application"]] * 2
        asked = execd.application.requests
        assert len(asked) == 2 and not any(request.get("opensandbox-secure-access") for request in [*asked, *execd.requests])

    scene(story)


def test_moved_paused_woken_resumed_and_deleted(scene):
    def story(world):
        one, here, there = world.one, world.machine(HERE), world.machine(THERE)
        one.runs_at(HERE)
        sdk = world.connect()
        assert sdk("run") == RUN and here.requests and not there.requests
        one.runs_at(THERE)
        until(lambda: sdk("run") == RUN and there.requests, 10, "the old pod is still asked")
        seen = len(here.requests)
        assert sdk("run") == RUN and len(here.requests) == seen
        # paused, and woken by a command
        assert "error" not in sdk("pause") and one.is_to_pause()
        one.has_paused()
        assert sdk("state") == "Paused"
        until(lambda: sdk("attempt").get("status") == 503, 10, "it is still served")
        until(lambda: not one.is_to_pause(), 10, "the command does not wake it")
        one.runs_at(HERE)
        until(lambda: "value" in sdk("attempt"), 10, "it is not served again")
        # paused, and resumed by its user, whose SDK waits until it is there
        assert "error" not in sdk("pause") and one.is_to_pause()
        one.has_paused()
        sdk.program.say("resume")
        until(lambda: not one.is_to_pause(), 10, "nobody resumes it")
        seen = len(there.requests)
        one.runs_at(THERE)
        assert sdk.program.hear() == "resumed" and sdk("run") == RUN and len(there.requests) > seen
        # deleted: as one that never was
        assert "error" not in sdk("kill")
        until(lambda: sdk("attempt").get("status") == 401, 10, "it is still served")

    scene(story)


def test_a_terminal_follows_its_pod(scene):
    def story(world):
        for address in (HERE, THERE):
            world.worker(f"{address}:{EXECD}")
        world.one.runs_at(HERE)
        proxied, key = f"/v1/sandboxes/sb-1/proxy/{EXECD}/pty", {"OpenSandbox-Secure-Access": SECRET}

        def ask(method, path="", body=b""):
            with Http1(TLS, tls=True) as client:
                return client.request(method, proxied + path, [*key.items(), ("Content-Type", "application/json")], body, host=GATE)

        until(lambda: ask("GET", "/none").status == 404, 10, "it is not served")
        session = json.loads(ask("POST", body=b"{}").body)["session_id"]
        terminal = world.program("terminal.mjs", {"url": f"wss://{GATE}:{TLS}{proxied}/{session}/ws", "headers": key})
        assert "open" in terminal.hear()

        def shows(text):
            seen = ""
            while text not in seen:
                seen += terminal.hear().get("bytes", "")
            return seen

        terminal.say({"bytes": "\0kept=this; echo re''ady\n"})
        shows("ready")
        world.one.runs_at(THERE)
        moved = b'cellgate_relay_redials_total{cause="moved",outcome="resumed"} 1\n'
        until(lambda: moved in plain(9104, "/metrics", "127.0.0.1").body, 10, "it does not move")
        terminal.say({"bytes": "\0echo still $kept\n"})
        assert "ready" not in shows("still this")

    scene(story)
