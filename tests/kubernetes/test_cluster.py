# SPDX-License-Identifier: MIT
"""A pod of examples/kubernetes, as its manifests say and with the agent's own account, beside a real API server: sandboxes that come,
become ready, move, sleep, are woken by a request, end, and are deleted."""

import json
import subprocess
import time

import pytest
from cell import BIN, until
from client import request
from cluster import with_a_cluster
from kube import WHY_NOT
from origin import Origin
from pod import has_namespaces
from test_kubernetes_manifests import NAMED, chart_of
from test_kubernetes_pod import TLS, certificate  # noqa: F401 # a fixture

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is one"),
              pytest.mark.skipif(not has_namespaces(), reason="needs root of a whole machine: containers are namespaces of the kernel")]
SCOPED = b"0123456789abcdef0123456789abcdef"


def scoped(folder, sandbox):
    (folder / "scoped-token").write_bytes(SCOPED)
    (folder / "mint.json").write_text(json.dumps({"cell": "kubernetes", "systems": ["agent-sandbox"], "directory": {"kind": "file", "path": "none"},
                                                  "tokens": [{"kind": "agent-sandbox", "secret_file": "scoped-token"}]}))
    command = [str(BIN / "cellgate"), "token", "--config", str(folder / "mint.json"), "--kind", "agent-sandbox", "--sandbox", sandbox]
    return ("Authorization", "Bearer " + subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def in_a_cluster(certificate, test):
    with_a_cluster("agent-sandbox", ["sandboxes"], {"scoped-token": SCOPED}, certificate, test)


def test_a_sandbox_from_its_creation_to_its_end(certificate):  # noqa: F811
    def test(pod, cluster):
        one, other = Origin(host="127.0.1.1", port=8888), Origin(host="127.0.1.2", port=8888)
        cluster.sandbox("before", "127.0.1.1")
        pod.start()
        pod.await_ready()

        def asked(name, namespace="default", more=()):
            headers = [("X-Sandbox-ID", name), ("X-Sandbox-Namespace", namespace), scoped(pod.folder, f"{namespace}/{name}"), *more]
            answer = request(TLS, "GET", "/execute", headers, tls=True)
            return answer.status, json.loads(answer.body)["error"] if answer.status >= 400 else ""

        assert asked("before") == (200, "") and len(one.requests) == 1
        assert asked("hello") == (404, "sandbox_not_found")
        cluster.sandbox("hello", ready=False)
        until(lambda: asked("hello") == (503, "sandbox_waking"))
        cluster.sandbox("hello", "127.0.1.1")
        until(lambda: asked("hello") == (200, ""))
        cluster.sandbox("hello", "127.0.1.2")
        until(lambda: asked("hello") == (200, "") and other.requests)
        cluster.server.kubectl("create", "namespace", "team")
        cluster.sandbox("hello", "127.0.1.1", namespace="team")
        until(lambda: asked("hello", "team") == (200, ""))
        cluster.sandbox("hello", ready=False, mode="Suspended")
        until(lambda: asked("hello")[0] == 503)
        until(lambda: cluster.mode("hello") == "Running", 10, "the request did not wake it")
        cluster.sandbox("hello", "127.0.1.2")
        until(lambda: asked("hello") == (200, ""))
        assert cluster.server.kubectl("delete", "sandbox", "hello").returncode == 0
        until(lambda: asked("hello") == (404, "sandbox_not_found"))
        # the API server goes: what is known serves
        cluster.server.kill()
        for _ in range(5):
            assert asked("before") == (200, "") and pod.is_ready()
            time.sleep(0.2)
        assert asked("never-seen")[0] == 503

    in_a_cluster(certificate, test)


@pytest.mark.parametrize("waking", [False, True])
def test_with_the_charts_rights_in_two_namespaces_the_agent_serves_these(certificate, waking):  # noqa: F811
    """And asks for no more: it would not become ready."""

    def test(pod, cluster):
        one = Origin(host="127.0.1.1", port=8888)
        cluster.server.kubectl("create", "namespace", "team-c")
        for namespace in ("team-a", "team-c"):
            cluster.sandbox("before", "127.0.1.1", namespace=namespace)
        pod.start()
        pod.await_ready()

        def asked(name, namespace):
            answer = request(TLS, "GET", "/execute", [("X-Sandbox-ID", name), ("X-Sandbox-Namespace", namespace), scoped(pod.folder, f"{namespace}/{name}")], tls=True)
            return answer.status, json.loads(answer.body)["error"] if answer.status >= 400 else ""

        assert asked("before", "team-a") == (200, "") and len(one.requests) == 1
        assert asked("before", "team-c") == asked("before", "default") == (404, "sandbox_not_found")
        cluster.sandbox("later", "127.0.1.1", namespace="team-b")
        until(lambda: asked("later", "team-b") == (200, ""))
        cluster.sandbox("later", ready=False, mode="Suspended", namespace="team-b")
        until(lambda: asked("later", "team-b") == (503, "sandbox_waking"))
        if waking:
            until(lambda: cluster.mode("later", "team-b") == "Running", 10, "the request did not wake it")
        else:
            time.sleep(1)
            assert cluster.mode("later", "team-b") == "Suspended" and asked("later", "team-b") == (503, "sandbox_waking")
            print(pod.containers["agent"].log.read_text())
        assert pod.is_ready() and asked("before", "team-a") == (200, "")

    chart = chart_of(NAMED, f"waking={str(waking).lower()}")
    with_a_cluster(None, ["sandboxes"], {"scoped-token": SCOPED}, certificate, test, manifests=chart)


def test_without_a_right_the_pod_says_so_and_is_not_ready(certificate):  # noqa: F811
    def test(pod, cluster):
        assert cluster.server.kubectl("delete", "clusterrolebinding", "cellgate-agent-sandbox").returncode == 0
        pod.start()
        agent = pod.containers["agent"]
        until(lambda: "403" in agent.log.read_text() or "forbidden" in agent.log.read_text(), 20, "the log does not name it")
        assert agent.ask("livenessProbe") == 200 and agent.ask("readinessProbe") == 503

    in_a_cluster(certificate, test)
