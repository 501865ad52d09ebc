# SPDX-License-Identifier: MIT
"""agent-sandbox's own Python client through a pod of overlays/agent-sandbox beside a real API server, to its own Python runtime. Real: client
and runtime, unchanged, from the checkout of its public source that AGENT_SANDBOX names; the API server, HAProxy, agent and relay. A
stand-in: its controller. The client sends no token, so the configuration has the second entry of docs/migrate/agent-sandbox.md, too.

AGENT_SANDBOX_CLIENT, AGENT_SANDBOX_RUNTIME: Pythons that have what client (kubernetes, pydantic 2, requests, prometheus-client) and runtime
(fastapi, uvicorn, python-multipart) import; without them this one."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cell import end, until
from cluster import with_a_cluster
from kube import SANDBOXES, WHY_NOT
from migrate import example
from npm import Program, certificate
from pod import has_namespaces
from test_kubernetes_pod import TLS

SOURCE = os.environ.get("AGENT_SANDBOX", "")
CLIENT, RUNTIME = (os.environ.get(f"AGENT_SANDBOX_{name}", sys.executable) for name in ("CLIENT", "RUNTIME"))
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"


def why_not():
    if WHY_NOT or not SOURCE:
        return WHY_NOT or "AGENT_SANDBOX names no checkout of kubernetes-sigs/agent-sandbox"
    for python, names in ((CLIENT, "kubernetes, pydantic, requests, prometheus_client"), (RUNTIME, "fastapi, uvicorn, multipart")):
        done = subprocess.run([python, "-c", f"import {names}"], capture_output=True, text=True)
        if done.returncode != 0:
            return f"{python}: {done.stderr.splitlines()[-1]}"
    return "" if has_namespaces() else "needs root of a whole machine: containers are namespaces of the kernel"


NO = why_not()
pytestmark = pytest.mark.skipif(bool(NO), reason=NO or "there is one")


def listens(address, port):
    with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
        return True
    return False


@contextlib.contextmanager
def runtime(folder, address):
    """Of one pod. Who it is stands in a file."""
    base = folder / address
    base.mkdir()
    (base / "where").write_text(address)
    with open(folder / f"{address}.log", "wb") as log:
        process = subprocess.Popen([RUNTIME, "-m", "uvicorn", "main:app", "--host", address, "--port", "8888"], cwd=f"{SOURCE}/examples/python-runtime-sandbox",
                                   stdout=log, stderr=log, env=os.environ | {"SANDBOX_BASE_DIR": str(base)})
    try:
        until(lambda: process.poll() is not None or listens(address, 8888), 30, "the runtime does not start")
        assert process.poll() is None, (folder / f"{address}.log").read_text()
        yield
    finally:
        end(process)


class Controller:
    """A stand-in for agent-sandbox's controller: one claim is bound to one sandbox of a pool."""

    def __init__(self, cluster, sandbox):
        self.cluster, self.sandbox = cluster, sandbox

    def bind(self, address):
        claim = until(lambda: self.cluster.api("GET", CLAIMS)["items"], 30, "nobody claims one")[0]["metadata"]["name"]
        self.cluster.sandbox(self.sandbox, address)
        self.cluster.api.status(f"{CLAIMS}/{claim}", {"sandbox": {"name": self.sandbox, "podIPs": [address]},
                                                      "conditions": [{"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "m",
                                                                      "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        return claim

    def collect(self):
        assert not self.cluster.api("GET", CLAIMS)["items"]
        self.cluster.api("DELETE", f"{SANDBOXES}/{self.sandbox}")


def test_what_a_user_does_with_a_sandbox(tmp_path):
    certificate(tmp_path)
    public = [entry for entry in json.loads(example("agent-sandbox")[0])["tokens"] if entry.get("public")]
    shutil.copy(Path(__file__).parent / "agent_sandbox_client.py", tmp_path)

    def test(pod, cluster):
        pod.start()
        pod.await_ready()
        environment = {"KUBECONFIG": str(cluster.server.folder / "kubeconfig"), "REQUESTS_CA_BUNDLE": str(tmp_path / "crt")}
        controller = Controller(cluster, "pooled-1")
        with runtime(tmp_path, "127.0.1.1"), runtime(tmp_path, "127.0.1.2"):
            client = Program(tmp_path, "agent_sandbox_client.py", {"source": SOURCE, "url": f"https://localhost:{TLS}"}, environment, CLIENT)
            try:
                story(cluster, controller, client)
            finally:
                client.end()

    def story(cluster, controller, client):
        def attempt(*step):
            client.say(step)
            return client.hear()

        def does(*step):
            said = attempt(*step)
            assert "value" in said, said
            return said["value"]

        def is_woken():
            return cluster.mode("pooled-1") == "Running"

        def wakes():
            """A command is answered by the pod until the agent has heard of its suspension."""
            client.say(["run", "cat where"])
            until(lambda: is_woken() or not client.told.empty(), 10, "the command does not wake it")
            return is_woken() or not client.hear()

        client.say(["create"])
        claim = controller.bind("127.0.1.1")
        assert client.hear()["value"] == {"claim": claim, "sandbox": "pooled-1", "all": [claim]}
        assert does("run", "echo out") == ["out\n", "", 0]
        assert does("run", "ls none")[2] == 2
        assert does("files") == {"same": True, "text": "words €", "exists": [True, True, False], "list": [["bytes", "file", 100_000]]}
        does("attach")
        assert does("run_there", "echo there") == "there\n"
        # it moves
        cluster.sandbox("pooled-1", "127.0.1.2")
        until(lambda: does("run", "cat where")[0] == "127.0.1.2", 10, "the old pod is still asked")
        # suspended: the client asks on after 503, which wakes it
        cluster.sandbox("pooled-1", ready=False, mode="Suspended")
        until(wakes, 10, "it is still served")
        cluster.sandbox("pooled-1", "127.0.1.1")
        assert client.hear()["value"] == ["127.0.1.1", "", 0]
        # deleted by one client: the other is refused as for a sandbox that never was
        assert does("delete") == []
        controller.collect()
        until(lambda: attempt("run_there", "true").get("status") == 401, 10, "it is still served")

    with_a_cluster("agent-sandbox", ["sandboxes", "sandboxclaims"], {"scoped-token": b"0123456789abcdef0123456789abcdef"},
                   {"tls.crt": (tmp_path / "crt").read_bytes(), "tls.key": (tmp_path / "key").read_bytes()}, test, tokens=public)
