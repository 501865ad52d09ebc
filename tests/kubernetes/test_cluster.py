# SPDX-License-Identifier: MIT
"""A pod of examples/kubernetes, as its manifests say and with the agent's own account, beside a real API server: sandboxes that come,
become ready, move, sleep, are woken by a request, end, and are deleted."""

import json
import socket
import subprocess
import tempfile
import time

import pytest
import yaml
from cell import BIN, until
from client import request
from kube import SANDBOXES, WHY_NOT, Kube, Refused, sandbox
from origin import Origin
from pod import KUBERNETES, Pod, has_namespaces, kustomize, network_of_its_own
from test_kubernetes_pod import TLS, certificate, in_a_tenth_of_the_time  # noqa: F401 # a fixture

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is one"),
              pytest.mark.skipif(not has_namespaces(), reason="needs root of a whole machine: containers are namespaces of the kernel")]
SCOPED = b"0123456789abcdef0123456789abcdef"


class Cluster:
    """What a controller would do: objects with the status that it writes."""

    def __init__(self, server):
        self.server, self.api = server, server.api()

    def account_token(self):
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.api("POST", "/api/v1/namespaces/cellgate/serviceaccounts/cellgate/token", asked)["status"]["token"].encode()

    def sandbox(self, name, address=None, ready=True, mode="Running", namespace="default"):
        path, one = SANDBOXES.replace("default", namespace), sandbox(name, mode, ready, address)
        try:
            self.api("POST", path, one)
        except Refused as refusal:
            assert refusal.status == 409
            self.api.patch(f"{path}/{name}", {"spec": one["spec"]})
        self.api.status(f"{path}/{name}", {"podIPs": None} | one["status"])

    def mode(self, name):
        return self.api("GET", f"{SANDBOXES}/{name}")["spec"]["operatingMode"]


def scoped(folder, sandbox):
    (folder / "scoped-token").write_bytes(SCOPED)
    (folder / "mint.json").write_text(json.dumps({"cell": "kubernetes", "systems": ["agent-sandbox"], "directory": {"kind": "file", "path": "none"},
                                                  "tokens": [{"kind": "agent-sandbox", "secret_file": "scoped-token"}]}))
    command = [str(BIN / "cellgate"), "token", "--config", str(folder / "mint.json"), "--kind", "agent-sandbox", "--sandbox", sandbox]
    return ("Authorization", "Bearer " + subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def with_a_cluster(certificate, test):
    manifests = in_a_tenth_of_the_time(kustomize(KUBERNETES / "overlays/agent-sandbox"))

    def inside():
        with tempfile.TemporaryDirectory(prefix="kube-") as folder, tempfile.TemporaryDirectory(prefix="cg-pod-") as place:
            server = Kube(folder)
            cluster, pod = Cluster(server), None
            try:
                server.install("sandboxes")
                server.kubectl("create", "namespace", "cellgate")
                server.apply(yaml.safe_dump_all(m for m in manifests if m["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")))
                text = next(m["data"]["cellgate.json"] for m in manifests if m["kind"] == "ConfigMap" and "cellgate.json" in m["data"])
                # where sandboxes are is all that differs: on this machine
                files = {"cellgate": {"cellgate.json": text.replace("10.0.0.0/8", "127.0.0.0/8").encode(), "workers.lst": b"127.0.0.0/8\n"},
                         "cellgate-keys": {"scoped-token": SCOPED}, "cellgate-tls": certificate}
                pod = Pod(place, manifests, files, cluster={"token": cluster.account_token(), "ca.crt": server.ca.read_bytes(), "namespace": b"cellgate"},
                          environment={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port), "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port)})
                test(pod, cluster)
            except BaseException:
                print(pod.logs() if pod else "")
                raise
            finally:
                if pod:
                    pod.kill()
                server.close()

    network_of_its_own(inside)


def origin_at(address, port=8888):
    kept, socket.create_server = socket.create_server, lambda where, **more: kept((address, port), **more)
    try:
        return Origin()
    finally:
        socket.create_server = kept


def test_a_sandbox_from_its_creation_to_its_end(certificate):  # noqa: F811
    def test(pod, cluster):
        one, other = origin_at("127.0.1.1"), origin_at("127.0.1.2")
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

    with_a_cluster(certificate, test)


def test_without_a_right_the_pod_says_so_and_is_not_ready(certificate):  # noqa: F811
    def test(pod, cluster):
        assert cluster.server.kubectl("delete", "clusterrolebinding", "cellgate-agent-sandbox").returncode == 0
        pod.start()
        agent = pod.containers["agent"]
        until(lambda: "403" in agent.log.read_text() or "forbidden" in agent.log.read_text(), 20, "the log does not name it")
        assert agent.ask("livenessProbe") == 200 and agent.ask("readinessProbe") == 503

    with_a_cluster(certificate, test)
