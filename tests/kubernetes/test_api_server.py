# SPDX-License-Identifier: MIT
"""What a real API server says of each manifest of examples/kubernetes (`kubectl apply --dry-run=server`), and what the agent's
account may do."""

import json
import re

import pytest
import yaml
from pod import KUBERNETES, kustomize
from test_kubernetes_manifests import FOLDERS, NAMED, chart_of


@pytest.fixture(scope="session")
def prepared(server):
    for name in ("cellgate", "gate", "second", "team-a", "team-b", "team-c", "haproxy-controller", "ingress-controller"):
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


@pytest.mark.parametrize("given", [[], ["waking=true"], ["waking=true", NAMED]], ids=["as it is", "waking", "namespaces"])
def test_the_api_server_takes_the_chart(prepared, given):
    accepted(prepared, chart_of(*given))


@pytest.mark.parametrize("name", ["haproxytech", "jcmoraisjr"])
def test_the_api_server_takes_the_containers_and_volumes_of_the_controllers_values(prepared, name):
    values = yaml.safe_load((KUBERNETES / f"ingress-{name}/values.yaml").read_text())["controller"]
    mounts = {"name": "controller", "image": "controller", "env": values["extraEnvs"], "volumeMounts": values["extraVolumeMounts"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "controller", "namespace": "default"},
           "spec": {"containers": [mounts, *values["extraContainers"]], "volumes": values["extraVolumes"], "securityContext": values.get("podSecurityContext", {})}}
    accepted(prepared, [pod])


def may(server, account, verb, resource, *where):
    return server.kubectl("auth", "can-i", verb, resource, f"--as=system:serviceaccount:{account}:cellgate", *where).stdout.strip() == "yes"


def test_the_charts_account_has_rights_in_the_namespaces_that_are_named(prepared):
    """Of two releases, each in a namespace of its own, which watch one namespace together."""
    releases = {"gate": chart_of(NAMED), "second": chart_of('config.directory.namespaces=["team-b","team-c"]', "waking=true", namespace="second")}
    for manifests in releases.values():
        prepared.apply(yaml.safe_dump_all([m for m in manifests if m["kind"] in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")]))
    for account, theirs in {"gate": {"team-a", "team-b"}, "second": {"team-b", "team-c"}}.items():
        for namespace in ("team-a", "team-b", "team-c", "default", "gate", "second", "kube-system"):
            for verb in ("list", "watch"):
                assert may(prepared, account, verb, "sandboxes.agents.x-k8s.io", "-n", namespace) == (namespace in theirs), (account, verb, namespace)
            assert may(prepared, account, "patch", "sandboxes.agents.x-k8s.io", "-n", namespace) == (account == "second" and namespace in theirs)
            assert not any(may(prepared, account, verb, resource, "-n", namespace) for verb, resource in (("get", "secrets"), ("list", "pods"), ("create", "sandboxes.agents.x-k8s.io")))
        assert not any(may(prepared, account, verb, "sandboxes.agents.x-k8s.io", "-A") for verb in ("list", "watch", "patch"))


def test_the_agents_account_may_read_and_no_more(prepared):
    """As the API server decides: `kubectl auth can-i` for the account."""
    for folder in FOLDERS[:3]:
        rights = [m for m in kustomize(KUBERNETES / folder) if m["kind"] in ("ClusterRole", "ClusterRoleBinding")]
        prepared.apply(yaml.safe_dump_all(rights))

    def allowed(verb, resource):
        return may(prepared, "cellgate", verb, resource, "-n", "default")

    for resource in ("sandboxes.agents.x-k8s.io", "batchsandboxes.sandbox.opensandbox.io", "endpointslices.discovery.k8s.io"):
        assert all(allowed(verb, resource) for verb in ("list", "watch"))
        assert not any(allowed(verb, resource) for verb in ("create", "update", "delete", "deletecollection"))
        assert allowed("patch", resource) == ("endpointslices" not in resource)
    for resource in ("secrets", "pods", "pods/exec", "configmaps", "services", "nodes"):
        assert not any(allowed(verb, resource) for verb in ("get", "list", "watch", "create", "patch"))
