# SPDX-License-Identifier: MIT
"""A real Kubernetes API server with etcd (Debian's etcd-server), where KUBE_APISERVER names the binary, and the objects that its directory
kind reads: custom resources of the groups and plurals of agent-sandbox and OpenSandbox, with schemas that take anything. No cluster: nothing
runs what is applied."""

import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from pathlib import Path

from cell import end, free_port, until

BINARY = os.environ.get("KUBE_APISERVER", "")
WHY_NOT = ("KUBE_APISERVER names no API server" if not BINARY else f"KUBE_APISERVER: there is no {BINARY}" if not Path(BINARY).exists()
           else "" if shutil.which("etcd") and shutil.which("kubectl") else "needs Debian's etcd-server and kubernetes-client")
GROUPS = {"sandboxes": ("agents.x-k8s.io", "Sandbox", ["v1beta1", "v1alpha1"]),
          "batchsandboxes": ("sandbox.opensandbox.io", "BatchSandbox", ["v1alpha1"])}
CLAIMS = {"sandboxclaims": ("extensions.agents.x-k8s.io", "SandboxClaim", ["v1beta1"])}  # which the directory does not read
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"


def crd(plural, versions=None):
    """Without conversion; whatever is in it is kept."""
    group, kind, all_versions = (GROUPS | CLAIMS)[plural]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = versions or all_versions
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": kind + "List"},
                     "versions": [{"name": v, "served": True, "storage": v == versions[0], "schema": schema, "subresources": {"status": {}}} for v in versions]}}


def sandbox(name, mode="Running", ready=None, address=None, reason=None, **metadata):
    """As agent-sandbox's controller leaves one."""
    status = {}
    if ready is not None:
        reason = reason or ("DependenciesReady" if ready else "SandboxSuspended" if mode == "Suspended" else "DependenciesNotReady")
        status["conditions"] = [{"type": "Ready", "status": str(bool(ready)), "reason": reason, "message": "m", "observedGeneration": 1,
                                 "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    if address:
        status |= {"podIPs": [address], "nodeName": "node-1"}
    return {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name} | metadata,
            "spec": {"operatingMode": mode, "podTemplate": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}}, "status": status}


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body[:300]!r}")
        self.status = status


class Api:
    """The API as one user sees it, on one connection."""

    def __init__(self, port, ca, token):
        context = ssl.create_default_context(cafile=str(ca))
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        self.token = token

    def __call__(self, method, path, body=None, kind="application/json"):
        fields = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        for again in (True, False):
            try:
                self.connection.request(method, path, json.dumps(body) if body is not None else None, fields)
                answer = self.connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException):
                self.connection.close()
                if not again:
                    raise
        if answer.status >= 300:
            raise Refused(answer.status, text)
        return json.loads(text)

    def create(self, path, one):
        """With its status, which creation leaves out."""
        made = self("POST", path, one)
        return self.status(f"{path}/{one['metadata']['name']}", one["status"]) if one.get("status") else made

    def status(self, path, status):
        return self("PATCH", path + "/status", {"status": status}, "application/merge-patch+json")

    def patch(self, path, patch):
        return self("PATCH", path, patch, "application/merge-patch+json")


class Kube:
    """etcd and the API server, in a folder; tokens of users may come and go with a restart of the latter."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.port, self.client, peer = free_port(), free_port(), free_port()
        self.tokens = {"admin": ("system:masters", "admin-token-" + os.urandom(8).hex())}
        self.user("cellgate")
        self.key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True)
        log = open(self.folder / "etcd.log", "wb")
        self.etcd = subprocess.Popen(
            ["etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--listen-client-urls", f"http://127.0.0.1:{self.client}",
             "--advertise-client-urls", f"http://127.0.0.1:{self.client}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
             "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", f"default=http://127.0.0.1:{peer}"],
            stdout=log, stderr=log)
        self.server = None
        self.start()
        (self.folder / "kubeconfig").write_text(
            f"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
            f"clusters: [{{name: c, cluster: {{server: '{self.url}', certificate-authority: '{self.ca}'}}}}]\n"
            f"users: [{{name: u, user: {{token: {self.tokens['admin'][1]}}}}}]\n")

    def user(self, name, group="cellgate"):
        """A new token for the user."""
        self.tokens[name] = (group, f"{name}-token-" + os.urandom(8).hex())
        return self.tokens[name][1]

    @property
    def ca(self):
        return self.folder / "certs/apiserver.crt"

    @property
    def url(self):
        return f"https://127.0.0.1:{self.port}"

    def api(self, name="admin"):
        return Api(self.port, self.ca, self.tokens[name][1])

    def start(self, *wrapper):
        """wrapper: a command in front of the server's."""
        rows = [f"{token},{name},{name},{group}" for name, (group, token) in self.tokens.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        log = open(self.folder / "apiserver.log", "ab")
        self.server = subprocess.Popen(
            [*wrapper, BINARY, f"--etcd-servers=http://127.0.0.1:{self.client}", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
             "--advertise-address=192.0.2.1", "--insecure-port=0", f"--cert-dir={self.folder}/certs", f"--service-account-key-file={self.key}",
             f"--service-account-signing-key-file={self.key}", "--service-account-issuer=https://kubernetes.default.svc",
             f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
             "--disable-admission-plugins=ServiceAccount", "--etcd-compaction-interval=0"], stdout=log, stderr=log)
        until(self.ready, 180, "the API server does not become ready")

    def ready(self):
        assert self.server.poll() is None, (self.folder / "apiserver.log").read_text()[-2000:]
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=5)
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {self.tokens['admin'][1]}"})
            answer = connection.getresponse()
            return answer.read() == b"ok"
        except (OSError, http.client.HTTPException):
            return False

    def kubectl(self, *arguments, given=None):
        """As the administrator."""
        return subprocess.run(["kubectl", "--kubeconfig", self.folder / "kubeconfig", *arguments], input=given, capture_output=True, text=True, timeout=120)

    def apply(self, text, *more):
        done = self.kubectl("apply", "-f", "-", *more, given=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def etcd_call(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.client, timeout=30)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())

    def compact(self):
        """Drops all of etcd's history; the API server forgets its own with a restart."""
        revision = self.etcd_call("/v3/kv/range", {"key": "YQ=="})["header"]["revision"]
        said = self.etcd_call("/v3/kv/compaction", {"revision": revision, "physical": True})
        assert "header" in said, said

    def install(self, *plurals):
        api = self.api()
        for plural in plurals:
            api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(plural))
        for plural in plurals:
            group, _, versions = (GROUPS | CLAIMS)[plural]
            until(lambda: self.serves(api, group, versions[0], plural), 30, "the resource is not served")

    @staticmethod
    def serves(api, group, version, plural):
        try:
            return api("GET", f"/apis/{group}/{version}/{plural}") is not None
        except Refused:
            return False

    def allow(self, *verbs, user="cellgate"):
        """The user may do that with all that the directory reads, and nothing else."""
        rules = [{"apiGroups": [group], "resources": [plural], "verbs": list(verbs)} for plural, (group, _, _) in GROUPS.items()]
        rules.append({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": [v for v in verbs if v != "patch"]})
        api, base = self.api(), "/apis/rbac.authorization.k8s.io/v1"
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}
        bind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}
        for path, body in ((f"{base}/clusterroles", role), (f"{base}/clusterrolebindings", bind)):
            try:
                api("POST", path, body)
            except Refused as refusal:
                if refusal.status != 409:
                    raise
                api.patch(f"{path}/{user}", body)

    def close(self):
        self.kill()  # it would wait a minute for whoever watches
        end(self.etcd)
