# SPDX-License-Identifier: MIT
"""The manifests of examples/kubernetes: their structure, and the chart beside them. What a real API server says of each is in
tests/kubernetes."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from cell import BIN, ROOT
from pod import KUBERNETES, kustomize

FOLDERS = ["overlays/agent-sandbox", "overlays/opensandbox", "overlays/endpointslices", "ingress", "ingress-haproxytech", "ingress-jcmoraisjr"]
GO = shutil.which("go") or next((str(p) for p in sorted(Path("/usr/lib").glob("go-*/bin/go"))), None)
pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl (Debian's kubernetes-client) writes the manifests")

def one(manifests, kind, name="cellgate"):
    found = [m for m in manifests if m["kind"] == kind and re.fullmatch(name + r"(-[a-z0-9]{10})?", m["metadata"]["name"])]
    assert len(found) == 1, (kind, name, len(found))
    return found[0]


def without_comments(text):
    return "".join(line for line in text.splitlines(True) if not line.strip().startswith("//"))


def rendered(*assignments, templates="*.yaml", namespace="gate", release="cellgate"):
    if not GO or not Path("/usr/share/gocode/src/github.com/Masterminds/sprig").exists():
        pytest.skip("the chart is rendered with Debian's golang-go, golang-github-masterminds-sprig-dev and golang-gopkg-yaml.v3-dev")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": os.environ.get("GOCACHE", "/var/tmp/cellgate-gocache")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["make", "-s", "-C", ROOT, "chart", f"B={folder}"], check=True, capture_output=True)
        command = [GO, "run", ROOT / "tests/kubernetes/render.go", templates, f"{folder}/chart/cellgate", namespace, release, *assignments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- structure ----


@pytest.mark.parametrize("folder", FOLDERS)
def test_haproxys_files_are_the_repositorys(folder):
    manifests = kustomize(KUBERNETES / folder)
    data = one(manifests, "ConfigMap", "cellgate-haproxy")["data"]
    assert data == {name: (ROOT / "haproxy" / name).read_text() for name in ("haproxy.cfg", "spoe.conf")}
    errors = one(manifests, "ConfigMap", "cellgate-errors")["data"]
    served = (p for p in (ROOT / "haproxy/errors").iterdir() if not p.name.startswith("destination-"))  # those are egress.cfg's
    assert {k: v.encode() for k, v in errors.items()} == {p.name: p.read_bytes() for p in served}


@pytest.mark.parametrize("folder", FOLDERS)
def test_haproxys_networks_are_the_agents(folder, tmp_path):
    data = one(kustomize(KUBERNETES / folder), "ConfigMap")["data"]
    config = json.loads(without_comments(data["cellgate.json"])) | {"directory": {"kind": "file", "path": "none"}}
    (tmp_path / "cellgate.json").write_text(json.dumps(config))
    said = subprocess.run([BIN / "cellgate", "networks", "--config", tmp_path / "cellgate.json"], capture_output=True, text=True, check=True).stdout
    assert [line for line in data["workers.lst"].splitlines() if not line.startswith("#")] == [line for line in said.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_agent_takes_the_configuration_with_the_arguments_of_its_manifest(folder, tmp_path):
    manifests = kustomize(KUBERNETES / folder)
    text = one(manifests, "ConfigMap")["data"]["cellgate.json"]
    (tmp_path / "cellgate.json").write_text(text)
    for name in re.findall(r'"(k1|scoped-token|route-a)"', text):
        (tmp_path / name).write_bytes(base64.b64encode(b"k" * 32))
        (tmp_path / name).chmod(0o600)
    if folder.startswith("ingress-"):
        values = yaml.safe_load((KUBERNETES / folder / "values.yaml").read_text())["controller"]
        words = {c["name"].removeprefix("cellgate-"): c["args"] for c in values["extraContainers"]}
    else:
        words = {c["name"]: c["args"] for c in one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]}
    # in a pod these say where the API server is
    environment = os.environ | {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for name in ("agent", "relay"):
        done = subprocess.run([BIN / f"cellgate-{name}", "-t", "-c", tmp_path / "cellgate.json", *words[name]], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_account_may_do_more_than_read_and_wake(folder):
    for role in (m for m in kustomize(KUBERNETES / folder) if m["kind"] in ("ClusterRole", "Role")):
        for rule in role["rules"]:
            verbs = ["patch"] if role["metadata"]["name"].endswith("-waking") else ["list", "watch"]
            assert rule["verbs"] == verbs and len(rule["resources"]) == 1 and "*" not in str(rule)


@pytest.mark.parametrize("folder", FOLDERS[:4])
def test_each_mount_and_each_port_has_what_it_names(folder):
    manifests = kustomize(KUBERNETES / folder)
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert {m["name"] for c in pod["containers"] for m in c["volumeMounts"]} == set(volumes)
    maps = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "ConfigMap"} | {"kube-root-ca.crt": None}
    for volume in volumes.values():
        for source in volume.get("projected", {"sources": [volume]})["sources"]:
            if "configMap" in source:
                assert source["configMap"]["name"] in maps
                if maps[source["configMap"]["name"]]:
                    assert {i["key"] for i in source["configMap"].get("items", ())} <= set(maps[source["configMap"]["name"]]["data"])
    ports = {p["name"] for c in pod["containers"] for p in c["ports"]}
    assert {p["targetPort"] for p in one(manifests, "Service")["spec"]["ports"]} <= ports
    assert {p["port"] for rule in one(manifests, "NetworkPolicy")["spec"]["ingress"] for p in rule["ports"]} <= ports
    selector = one(manifests, "Deployment")["spec"]["selector"]["matchLabels"]
    assert selector == one(manifests, "Service")["spec"]["selector"] == one(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    # nobody but the agent gets the account's token
    assert pod["automountServiceAccountToken"] is False
    assert [c["name"] for c in pod["containers"] if any(m["name"] == "cluster" for m in c["volumeMounts"])] == ["agent"]


def test_a_secret_of_opensandbox_opens_execd_and_a_signed_route_applications_alone(tmp_path):
    """Its server gives the SDK nothing but the sandbox's secret for execd (44772)."""
    config = json.loads(without_comments(one(kustomize(KUBERNETES / "overlays/opensandbox"), "ConfigMap")["data"]["cellgate.json"]))
    record = {"worker": "http://10.0.0.5", "access": {"token_sha256": hashlib.sha256(b"secret").hexdigest()}}
    (tmp_path / "sandboxes.json").write_text(json.dumps({"sandboxes": {"sb-1": record}}))
    (tmp_path / "route-a").write_bytes(base64.b64encode(b"k" * 32))
    (tmp_path / "route-a").chmod(0o600)
    (tmp_path / "cellgate.json").write_text(json.dumps(config | {"directory": {"kind": "file", "path": "sandboxes.json"}}))

    def cellgate(*words):
        return subprocess.run([BIN / "cellgate", words[0], "--config", tmp_path / "cellgate.json", *words[1:]], capture_output=True, text=True).stdout

    def decided(label, *headers):
        return re.search(r"^ *(?:verdict +(direct|relay)|status +(\d+))$", cellgate("explain", *headers, f"GET https://{label}.sandboxes.example.com/"), re.M).group(1, 2)

    for port, by_route in ((44772, (None, "403")), (8080, ("direct", None))):
        assert decided(f"sb-1-{port}", "-H", "OpenSandbox-Secure-Access: secret") == ("direct", None)
        assert decided(f"sb-1-{port}", "-H", "OpenSandbox-Secure-Access: other") == decided(f"sb-1-{port}") == (None, "401")
        assert decided(cellgate("token", "--kind", "opensandbox-route", "--sandbox", "sb-1", "--port", str(port)).strip()) == by_route


# ---- the chart ----


def chart_of(*assignments, **more):
    return [m for m in yaml.safe_load_all(rendered(*assignments, **more)) if m]


def rights(manifests):
    """{(namespace or None, account, its namespace): {(group, resource): verbs}}, as the API server would add them up."""
    roles = {(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]): m["rules"] for m in manifests if m["kind"] in ("Role", "ClusterRole")}
    found = {}
    for binding in (m for m in manifests if m["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        space, role = binding["metadata"].get("namespace"), binding["roleRef"]
        rules = roles[role["kind"], space if role["kind"] == "Role" else None, role["name"]]
        for subject in binding["subjects"]:
            given = found.setdefault((space, subject["name"], subject["namespace"]), {})
            for rule in rules:
                given.setdefault((rule["apiGroups"][0], rule["resources"][0]), set()).update(rule["verbs"])
    return found


SANDBOXES, SLICES = ("agents.x-k8s.io", "sandboxes"), ("discovery.k8s.io", "endpointslices")
NAMED = 'config.directory.namespaces=["team-a","team-b"]'


def test_the_chart_says_what_kustomize_says():
    chart = chart_of("waking=true")
    plain = kustomize(KUBERNETES / "overlays/agent-sandbox")
    for kind in ("ServiceAccount", "PodDisruptionBudget", "NetworkPolicy", "Service"):
        ours, theirs = one(chart, kind), one(plain, kind)
        assert ours["metadata"]["namespace"] == "gate"
        assert ours.get("spec") == theirs.get("spec")
    ours, theirs = (one(all_of_them, "Deployment")["spec"] for all_of_them in (chart, plain))
    ours["template"]["metadata"].pop("annotations")
    text = re.sub(r"cellgate-[a-z0-9]{10}(?=\")", "cellgate", json.dumps(theirs, sort_keys=True))
    assert json.dumps(ours, sort_keys=True) == text
    assert json.loads(one(chart, "ConfigMap")["data"]["cellgate.json"]) == json.loads(without_comments(one(plain, "ConfigMap")["data"]["cellgate.json"]))
    for name in ("cellgate-haproxy", "cellgate-errors"):
        assert one(chart, "ConfigMap", name)["data"] == one(plain, "ConfigMap", name)["data"]
    assert rights(plain) == {(None, "cellgate", "cellgate"): {SANDBOXES: {"list", "watch", "patch"}}}
    assert rights(chart) == {(None, "cellgate", "gate"): {SANDBOXES: {"list", "watch", "patch"}}}


def test_by_itself_the_chart_lets_nobody_be_woken():
    """Who may patch one field of a sandbox may change all of it."""
    assert rights(chart_of()) == {(None, "cellgate", "gate"): {SANDBOXES: {"list", "watch"}}}
    notes = [rendered(*given, templates="NOTES.txt") for given in ((), ("waking=true",), (NAMED,))]
    assert ["--set waking=true" in text for text in notes] == [True, False, True]
    assert ["in all namespaces" in text for text in notes] == [True, True, False] and "team-a, team-b" in notes[2]
    # what Helm prints is not reached by a manifest's indentation, nor by an empty value
    assert not any("<no value>" in text or "%!" in text for text in notes)


@pytest.mark.parametrize("waking", [False, True])
def test_where_namespaces_are_named_the_chart_gives_rights_in_these_alone(waking):
    chart = chart_of(NAMED, 'config.directory.resources=["agent-sandbox","endpointslices"]', f"waking={str(waking).lower()}")
    assert json.loads(one(chart, "ConfigMap")["data"]["cellgate.json"])["directory"]["namespaces"] == ["team-a", "team-b"]
    assert not [m["kind"] for m in chart if "namespace" not in m["metadata"]]
    expected = {SANDBOXES: {"list", "watch", "patch"} if waking else {"list", "watch"}, SLICES: {"list", "watch"}}
    assert rights(chart) == {(space, "cellgate", "gate"): expected for space in ("team-a", "team-b")}


def test_an_empty_list_of_namespaces_is_all_of_them_as_for_the_agent():
    assert rights(chart_of("config.directory.namespaces=[]")) == rights(chart_of())


def test_two_releases_share_no_name_outside_of_their_namespaces():
    releases = [("gate", "cellgate"), ("other", "cellgate"), ("gate", "second"), ("a", "b-c"), ("a-b", "c")]
    for given in ((), (NAMED,)):
        outside = [[(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in chart_of("waking=true", *given, namespace=namespace, release=release)
                    if m["metadata"].get("namespace") != namespace] for namespace, release in releases]
        assert all(len(names) == (8 if given else 4) for names in outside)
        together = [name for names in outside for name in names]
        assert len(set(together)) == len(together)


def test_the_charts_values_count():
    chart = chart_of('config.directory.resources=["opensandbox","endpointslices"]', "replicas=5", 'service.type="ClusterIP"', 'secrets.tls="my-tls"', 'secrets.keys="my-keys"',
                     'environment={"CELLGATE_HSTS":"max-age=300"}', 'resources={"relay":{"limits":{"memory":"2Gi"}}}', 'image.registry="registry.example/x"', 'image.tag="9"')
    deployment = one(chart, "Deployment")["spec"]
    by_name = {c["name"]: c for c in deployment["template"]["spec"]["containers"]}
    assert deployment["replicas"] == 5 and by_name["relay"]["resources"] == {"limits": {"memory": "2Gi"}}
    assert {"name": "CELLGATE_HSTS", "value": "max-age=300"} in by_name["haproxy"]["env"]
    assert {c["image"] for c in by_name.values()} == {f"registry.example/x/cellgate-{name}:9" for name in by_name}
    assert rights(chart) == {(None, "cellgate", "gate"): {("sandbox.opensandbox.io", "batchsandboxes"): {"list", "watch"}, SLICES: {"list", "watch"}}}
    service = one(chart, "Service")["spec"]
    assert service["type"] == "ClusterIP" and "externalTrafficPolicy" not in service
    volumes = {v["name"]: v for v in deployment["template"]["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == "my-tls"
    assert [s["secret"]["name"] for s in volumes["agent-config"]["projected"]["sources"] if "secret" in s] == ["my-keys"]
