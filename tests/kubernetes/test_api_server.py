# SPDX-License-Identifier: MIT
"""What a real API server says of each manifest of examples/kubernetes (`kubectl apply --dry-run=server`), and what the agent's
account may do."""

import json
import re

import pytest
import yaml
from pod import KUBERNETES, kustomize
from test_kubernetes_manifests import FOLDERS, rendered


@pytest.fixture(scope="session")
def prepared(server):
    for name in ("cellgate", "gate", "haproxy-controller", "ingress-controller"):
        assert server.kubectl("create", "namespace", name).returncode == 0
    server.install("sandboxes", "batchsandboxes")  # the systems' own definitions want a webhook
    return server


def for_this_server(server, text):
    """policy/v1 came with 1.21: one that is older is asked about the same in policy/v1beta1."""
    minor = int(re.match(r"\d+", json.loads(server.kubectl("version", "-o", "json").stdout)["serverVersion"]["minor"])[0])
    return text if minor >= 21 else text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")


def accepted(server, manifests):
    said = server.apply(for_this_server(server, yaml.safe_dump_all(manifests)), "--dry-run=server")
    assert said.count("(server dry run)") == len(manifests)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_api_server_takes_every_manifest(prepared, folder):
    accepted(prepared, kustomize(KUBERNETES / folder))


@pytest.mark.parametrize("folder", FOLDERS[:3])
def test_the_api_server_takes_each_sandbox_to_try(prepared, folder):
    accepted(prepared, list(yaml.safe_load_all((KUBERNETES / folder / "sandbox.yaml").read_text())))


def test_the_api_server_takes_the_chart(prepared):
    accepted(prepared, [m for m in yaml.safe_load_all(rendered()) if m])


@pytest.mark.parametrize("name", ["haproxytech", "jcmoraisjr"])
def test_the_api_server_takes_the_containers_and_volumes_of_the_controllers_values(prepared, name):
    values = yaml.safe_load((KUBERNETES / f"ingress-{name}/values.yaml").read_text())["controller"]
    mounts = {"name": "controller", "image": "controller", "env": values["extraEnvs"], "volumeMounts": values["extraVolumeMounts"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "controller", "namespace": "default"},
           "spec": {"containers": [mounts, *values["extraContainers"]], "volumes": values["extraVolumes"], "securityContext": values.get("podSecurityContext", {})}}
    accepted(prepared, [pod])


def test_the_agents_account_may_read_and_no_more(prepared):
    """As the API server decides: `kubectl auth can-i` for the account."""
    for folder in FOLDERS[:3]:
        rights = [m for m in kustomize(KUBERNETES / folder) if m["kind"] in ("ClusterRole", "ClusterRoleBinding")]
        prepared.apply(yaml.safe_dump_all(rights))
    account = "--as=system:serviceaccount:cellgate:cellgate"

    def may(verb, resource):
        return prepared.kubectl("auth", "can-i", verb, resource, account, "-n", "default").stdout.strip() == "yes"

    for resource in ("sandboxes.agents.x-k8s.io", "batchsandboxes.sandbox.opensandbox.io", "endpointslices.discovery.k8s.io"):
        assert all(may(verb, resource) for verb in ("list", "watch"))
        assert not any(may(verb, resource) for verb in ("create", "update", "delete", "deletecollection"))
        assert may("patch", resource) == ("endpointslices" not in resource)
    for resource in ("secrets", "pods", "pods/exec", "configmaps", "services", "nodes"):
        assert not any(may(verb, resource) for verb in ("get", "list", "watch", "create", "patch"))
