# SPDX-License-Identifier: MIT
"""A pod of an overlay of examples/kubernetes, as its manifests say and with the agent's own account, beside a real API server."""

import json
import re
import tempfile

import yaml
from kube import SANDBOXES, Kube, Refused, sandbox
from pod import KUBERNETES, Pod, kustomize, network_of_its_own
from test_kubernetes_pod import in_a_tenth_of_the_time


class Cluster:
    """What a controller would do: objects with the status that it writes."""

    def __init__(self, server):
        self.server, self.api = server, server.api()

    def account_token(self, namespace):
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.api("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/cellgate/token", asked)["status"]["token"].encode()

    def sandbox(self, name, address=None, ready=True, mode="Running", namespace="default"):
        path, one = SANDBOXES.replace("default", namespace), sandbox(name, mode, ready, address)
        try:
            self.api("POST", path, one)
        except Refused as refusal:
            assert refusal.status == 409
            self.api.patch(f"{path}/{name}", {"spec": one["spec"]})
        self.api.status(f"{path}/{name}", {"podIPs": None} | one["status"])

    def mode(self, name, namespace="default"):
        return self.api("GET", f"{SANDBOXES.replace('default', namespace)}/{name}")["spec"]["operatingMode"]


def with_a_cluster(overlay, resources, keys, certificate, test, tokens=(), manifests=None):
    """test(pod, cluster), in a network of its own, with a pod that has not been started. The configuration is the overlay's, but that
    sandboxes are on this machine; tokens: a list of entries behind those that it has; manifests: others than the overlay's."""
    manifests = in_a_tenth_of_the_time(manifests or kustomize(KUBERNETES / "overlays" / overlay))
    namespace = next(m["metadata"]["namespace"] for m in manifests if m["kind"] == "Deployment")

    def inside():
        with tempfile.TemporaryDirectory(prefix="kube-") as folder, tempfile.TemporaryDirectory(prefix="cg-pod-") as place:
            server = Kube(folder)
            cluster, pod = Cluster(server), None
            try:
                server.install(*resources)
                rights = [m for m in manifests if m["kind"] in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")]
                for name in sorted({m["metadata"]["namespace"] for m in rights if "namespace" in m["metadata"]}):
                    server.kubectl("create", "namespace", name)
                server.apply(yaml.safe_dump_all(rights))
                text = next(m["data"]["cellgate.json"] for m in manifests if m["kind"] == "ConfigMap" and "cellgate.json" in m["data"])
                text = text.replace("10.0.0.0/8", "127.0.0.0/8")
                if tokens:
                    config = json.loads(re.sub(r"^ *//.*$", "", text, flags=re.M))
                    text = json.dumps(config | {"tokens": config["tokens"] + tokens})
                files = {"cellgate": {"cellgate.json": text.encode(), "workers.lst": b"127.0.0.0/8\n"}, "cellgate-keys": keys, "cellgate-tls": certificate}
                pod = Pod(place, manifests, files, cluster={"token": cluster.account_token(namespace), "ca.crt": server.ca.read_bytes(), "namespace": namespace.encode()},
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
