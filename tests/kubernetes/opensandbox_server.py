# SPDX-License-Identifier: MIT
"""Stand-ins for OpenSandbox's own parts beside a real API server: its lifecycle server with an ingress of mode `gateway`, as far as its
SDK asks it here, and what its controller says of a BatchSandbox."""

import base64
import hashlib
import json
from urllib.parse import parse_qs, urlsplit

from kube import Refused
from origin import Origin
from plane import answer

OBJECTS = "/apis/sandbox.opensandbox.io/v1alpha1/namespaces/opensandbox/batchsandboxes"
ROUTE_KEY, SECRET = b"0123456789abcdef0123456789abcdef", "the-secret-of-this-sandbox"
ENDPOINTS, SECRET_NOTE = "sandbox.opensandbox.io/endpoints", "opensandbox.io/secure-access-token"
KEYS = {"route-a": base64.b64encode(ROUTE_KEY)}


class BatchSandbox:
    """As the controller leaves it."""

    def __init__(self, cluster, name):
        self.api, self.name, self.path = cluster.api, name, f"{OBJECTS}/{name}"
        self.api("POST", OBJECTS, {"apiVersion": "sandbox.opensandbox.io/v1alpha1", "kind": "BatchSandbox",
                                   "metadata": {"name": name, "annotations": {SECRET_NOTE: SECRET}}, "spec": {"replicas": 1}})

    def _becomes(self, phase, *addresses):
        self.api.patch(self.path, {"metadata": {"annotations": {ENDPOINTS: json.dumps(addresses)}}})
        self.api.status(self.path, {"phase": phase, "replicas": 1, "allocated": len(addresses), "ready": len(addresses)})

    def runs_at(self, address):
        self._becomes("Succeed", address)

    def has_paused(self):
        self._becomes("Paused")

    def is_to_pause(self):
        return self.api("GET", self.path)["spec"].get("pause")


def base36(number):
    return (base36(number // 36) if number >= 36 else "") + "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36]


def signed(name, port, expires):
    """The label of a signed route."""
    expires = base36(expires)
    canonical = f"v1\nshort\n{name}\n{port}\n{expires}\n".encode()
    digest = hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in (ROUTE_KEY, canonical))).hexdigest()
    return f"{name}-{port}-{expires}-{digest[:8]}a"


class LifecycleServer(Origin):
    """gate: where cellgate is, HOST:PORT. Pause, resume and deletion do to the object what the server does."""

    def __init__(self, cluster, gate_port, tls):
        self.server, self.gate_port = cluster.server, gate_port
        super().__init__(answer=self._answer, tls=tls)

    def _answer(self, connection, request):
        connection.read_body(request)
        try:
            status, body = self._do(request, self.server.api())
        except Refused as refusal:
            status, body = refusal.status, {"code": "KUBERNETES::SANDBOX_NOT_FOUND", "message": "sandbox not found"}
        answer(connection, status, body, "Content-Type: application/json")

    def _do(self, request, api):
        target = urlsplit(request.target)
        _, _, _, name, *rest = target.path.split("/")
        one = api("GET", f"{OBJECTS}/{name}")
        if rest and rest[0] == "endpoints":
            return 200, self._endpoint(one, name, int(rest[1]), {key: values[0] for key, values in parse_qs(target.query).items()})
        if rest:
            api.patch(f"{OBJECTS}/{name}", {"spec": {"pause": rest[0] == "pause"}})
            return 202, b""
        if request.method == "DELETE":
            api("DELETE", f"{OBJECTS}/{name}")
            return 204, b""
        state = {"Succeed": "Running"}.get(one["status"]["phase"], one["status"]["phase"])
        return 200, {"id": name, "status": {"state": state}, "createdAt": one["metadata"]["creationTimestamp"], "entrypoint": []}

    def _endpoint(self, one, name, port, query):
        if "expires" in query:
            return {"endpoint": f"{signed(name, port, int(query['expires']))}.sandboxes.example.com:{self.gate_port}"}
        proxied = query.get("use_server_proxy") == "true"
        where = f"gate.example.com:{self.gate_port}/sandboxes/{name}/proxy/{port}" if proxied else f"{name}-{port}.sandboxes.example.com:{self.gate_port}"
        return {"endpoint": where, "headers": {"OpenSandbox-Secure-Access": one["metadata"]["annotations"][SECRET_NOTE]}}
