#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""tests/e2e/support/record_kube.py >tests/data/kubernetes.json: what a real API server (KUBE_APISERVER) says, word for word, for the small one of
fake_kube.py: lists in pages, events, a bookmark, refusals. Addresses are on loopback, where the tests have their workers."""

import http.client
import json
import ssl
import sys
import tempfile
import threading
import time

from cell import until
from kube import SANDBOXES, Kube, sandbox

BATCHES = "/apis/sandbox.opensandbox.io/v1alpha1/namespaces/opensandbox/batchsandboxes"
SLICES = "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"


def get(kube, path, token):
    context = ssl.create_default_context(cafile=str(kube.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", kube.port, context=context, timeout=200)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
    answer = connection.getresponse()
    return answer


class Watch:
    """The lines of a watch, as they come."""

    def __init__(self, kube, path, version, seconds=60, token=None):
        self.lines = []
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}"
        self.answer = get(kube, path + query, token or kube.tokens["admin"][1])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for line in self.answer:
                self.lines.append(line.decode())
        except http.client.HTTPException:
            pass  # the server ends it within a chunk

    def has(self, count):
        until(lambda: len(self.lines) >= count, 85, f"{len(self.lines)} of {count} events")
        return self.lines


def main():
    kube = Kube(tempfile.mkdtemp())
    try:
        json.dump(record(kube), sys.stdout, indent=1)
        print()
    finally:
        kube.close()


def record(kube):
    admin, got = kube.tokens["admin"][1], {}
    kube.install("sandboxes", "batchsandboxes")
    api = kube.api()

    def say(name, path, token=admin):
        answer = get(kube, path, token)
        got[name] = {"status": answer.status, "body": answer.read().decode()}
        return json.loads(got[name]["body"]) if answer.status == 200 else None

    say("empty", SANDBOXES + "?limit=500")
    for i in range(3):
        api.create(SANDBOXES, sandbox(f"sb-{i}", ready=True, address=f"127.0.0.{i + 2}"))
    page = say("page-1", SANDBOXES + "?limit=2")
    say("page-2", SANDBOXES + f"?limit=2&continue={page['metadata']['continue']}")
    watch = Watch(kube, SANDBOXES, page["metadata"]["resourceVersion"])
    one = SANDBOXES + "/sb-new"
    api("POST", SANDBOXES, sandbox("sb-new"))
    api.status(one, sandbox("sb-new", ready=False)["status"])
    api.status(one, sandbox("sb-new", ready=True, address="127.0.0.9")["status"])
    api.patch(one, {"spec": {"operatingMode": "Suspended"}})
    api.status(one, sandbox("sb-new", "Suspended", ready=False)["status"] | {"podIPs": None})
    api.patch(one, {"spec": {"operatingMode": "Running"}})
    api.status(one, sandbox("sb-new", ready=True, address="127.0.0.10")["status"])
    api.status(one, sandbox("sb-new", ready=False, reason="SandboxExpired")["status"] | {"podIPs": None})
    api("DELETE", one)
    names = ["added", "starting", "ready", "suspending", "suspended", "resuming", "moved", "expired", "deleted"]
    got["events"] = dict(zip(names, watch.has(len(names))))
    last = json.loads(watch.lines[-1])["object"]["metadata"]["resourceVersion"]
    bookmark = Watch(kube, SANDBOXES, last, seconds=300)

    api("POST", "/api/v1/namespaces", {"metadata": {"name": "opensandbox"}})
    note = {"sandbox.opensandbox.io/endpoints": '["127.0.0.20"]', "opensandbox.io/secure-access-token": "secret"}
    api.create(BATCHES, {"apiVersion": "sandbox.opensandbox.io/v1alpha1", "kind": "BatchSandbox", "metadata": {"name": "os-1", "annotations": note},
                         "spec": {"replicas": 1}, "status": {"replicas": 1, "allocated": 1, "ready": 1, "phase": "Succeed"}})
    say("batches", BATCHES + "?limit=500")
    api("POST", SLICES, {"apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSlice", "addressType": "IPv4",
                         "metadata": {"name": "es-1-x", "labels": {"example.com/sandbox": "es-1"}},
                         "endpoints": [{"addresses": ["127.0.0.30"], "conditions": {"ready": True}}], "ports": [{"name": "http", "port": 8888}]})
    say("slices", SLICES + "?limit=500&labelSelector=example.com%2Fsandbox")

    say("401", SANDBOXES, "wrong")
    say("403", SANDBOXES, kube.tokens["cellgate"][1])
    say("404", SANDBOXES.replace("v1beta1", "v9"))
    for i in range(40):  # they come a minute after the watch began, and after other events only
        if any('"BOOKMARK"' in line for line in bookmark.lines):
            break
        api.status(SANDBOXES + "/sb-0", {"nodeName": f"node-{i + 2}"})
        time.sleep(3)
    got["bookmark"] = next(line for line in bookmark.lines if '"BOOKMARK"' in line)
    kube.compact()
    say("410-list", SANDBOXES + f"?limit=2&continue={page['metadata']['continue']}")
    kube.kill()
    kube.start()  # its own history is gone, too
    until(lambda: kube.serves(kube.api(), "agents.x-k8s.io", "v1beta1", "sandboxes"), 60, "the resource is not served")
    got["410-event"] = Watch(kube, SANDBOXES, page["metadata"]["resourceVersion"], seconds=4).has(1)[0]
    return got


if __name__ == "__main__":
    main()
