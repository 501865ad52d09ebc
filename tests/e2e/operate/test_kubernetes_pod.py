# SPDX-License-Identifier: MIT
"""The life of a pod of examples/kubernetes, without a cluster (pod.py): its start in any order, its probes, the exchange of
its keys, the death of one of its containers, and its end, in which no client loses what could be brought to an end. Times are
a tenth of the manifests'."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from cell import SANITIZED, SECRET, token, until
from client import WEBSOCKET, Http1, head, request
from direct import Peer, Worker
from false_agent import HELLO
from origin import Origin, respond
from pod import KUBERNETES, Pod, has_namespaces, kustomize, network_of_its_own

pytestmark = [
    pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl (Debian's kubernetes-client) writes the manifests"),
    pytest.mark.skipif(not has_namespaces(), reason="needs root of a whole machine: containers are namespaces of the kernel"),
]
TLS = 8443
ACCOUNTS = {"haproxytech": {"runAsUser": 1000, "runAsGroup": 1000}, "jcmoraisjr": {"runAsUser": 99, "runAsGroup": 99}}
TOKENS = [{"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": "k1"}]
ROUTES = [
    {"name": "direct", "path": "/d/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"},
    {"name": "terminal", "path": "/t/{sandbox}/{session}", "to": "/{session}", "need": "none", "upgrade": True, "via": "relay", "stream": True},
    {"name": "straight", "path": "/w/{sandbox}/{rest...}", "to": "/{rest}", "need": "none", "upgrade": True, "via": "direct"},
]


@pytest.fixture(scope="module")
def manifests():
    return kustomize(KUBERNETES / "overlays/endpointslices")


@pytest.fixture(scope="module")
def certificate():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", f"{folder}/key", "-out", f"{folder}/crt"], check=True, capture_output=True)
        return {name: Path(folder, part).read_bytes() for name, part in (("tls.crt", "crt"), ("tls.key", "key"))}


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


def tenth(text):
    return re.sub(r"\d+(?:ms|s|m)\b", lambda match: f"{round(seconds(match[0]) * 100)}ms", text)


def in_a_tenth_of_the_time(manifests):
    """And for fewer clients: not every machine has as many descriptors as a container runtime gives."""
    manifests = json.loads(json.dumps(manifests))
    spec = next(m for m in manifests if m["kind"] == "Deployment")["spec"]["template"]["spec"]
    # the relay's two seconds for slow workers, and the agent's five, are not configured here
    spec["terminationGracePeriodSeconds"] = spec["terminationGracePeriodSeconds"] / 10 + 4
    for container in spec["containers"]:
        container["args"] = [tenth(word) if "drain=" in word else word.replace("max_tunnels=10000", "max_tunnels=1000") for word in container["args"]]
        if "lifecycle" not in container:
            continue
        hook = container["lifecycle"]["preStop"]["exec"]
        hook["command"] = ["8s" if before == "--at-most" else tenth(word) for before, word in zip(["", *hook["command"]], hook["command"])]
    next(c for c in spec["containers"] if c["name"] == "haproxy")["env"] += [{"name": "CELLGATE_STOP", "value": "6s"}, {"name": "CELLGATE_CONNECTIONS", "value": "2000"}]
    return manifests


def scene(test):
    """In a network of its own: test(pod, origin, worker), with a pod that has not been started."""

    def run(manifests, certificate):
        def inside():
            origin, worker = Origin(), Worker()
            sandboxes = {"sandboxes": {"sb-1": {"worker": origin.url}, "sb-2": {"worker": worker.url}}}
            config = re.sub(r"^ *//.*$", "", next(m["data"]["cellgate.json"] for m in manifests if m["kind"] == "ConfigMap" and "cellgate.json" in m["data"]), flags=re.M)
            config = json.loads(config) | {"serves": "application", "tokens": TOKENS, "directory": {"kind": "file", "path": "sandboxes.json"}, "routes": ROUTES, "worker_networks": ["127.0.0.0/8"]}
            for key in ("systems", "domains"):  # of whom only the directory matters here
                config.pop(key, None)
            files = {"cellgate": {"cellgate.json": json.dumps(config).encode(), "workers.lst": b"127.0.0.0/8\n", "proxies.lst": b"127.0.0.1\n"},
                     "cellgate-keys": {"k1": SECRET, "sandboxes.json": json.dumps(sandboxes).encode()}, "cellgate-tls": certificate}
            with tempfile.TemporaryDirectory(prefix="cg-pod-") as folder:
                pod = Pod(folder, in_a_tenth_of_the_time(manifests), files)
                try:
                    test(pod, origin, worker)
                except BaseException:
                    print(pod.logs())
                    raise
                finally:
                    pod.kill()
                    origin.close()

        network_of_its_own(inside)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@pytest.fixture(scope="module")
def behind_an_ingress():
    return kustomize(KUBERNETES / "ingress")


def bearer(secret=SECRET):
    return ("Authorization", "Bearer " + token("kubernetes", secret, header={"kid": "k1"}, sandbox="sb-1", need=["http"]))


def tunnel(port, target):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10), server_hostname="localhost")
    peer = Peer(sock, masks=True)
    peer.send(head("GET", target, [("Host", "cell.test"), *WEBSOCKET]))
    return peer


def heard(client):
    """Whether anything has come. (TLS cannot look without taking.)"""
    client.sock.settimeout(0.02)
    try:
        return client.bytes or client.more()
    except TimeoutError:
        return False
    finally:
        client.sock.settimeout(10)


def opened(worker, target):
    client = tunnel(TLS, target)
    leg = worker.serve()
    assert client.head()[0].endswith("101 Switching Protocols")
    return client, leg


def sees_relay(pod):
    """HAProxy may have looked for it before it was there."""
    log = pod.containers["haproxy"].log.read_text()
    return log.count("relay/relay is DOWN") <= log.count("relay/relay is UP")


def plain(port, target, host="cell.test"):
    with Http1(port) as client:
        return client.request("GET", target, host=host)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
        return True
    except ConnectionRefusedError:
        return False


# ---- the manifests' own numbers ----


def test_the_end_of_a_pod_fits_into_its_grace_period(manifests):
    spec = next(m for m in manifests if m["kind"] == "Deployment")["spec"]["template"]["spec"]
    by_name = {c["name"]: c for c in spec["containers"]}

    def after(words, option):
        return seconds(words[words.index(option) + 1])

    hooks = {name: c["lifecycle"]["preStop"]["exec"]["command"] for name, c in by_name.items()}
    drain = seconds(next(w for w in by_name["relay"]["args"] if w.startswith("relay.drain=")).partition("=")[2])
    stop = seconds(re.search(r"CELLGATE_STOP-(\d+s)", (KUBERNETES / "base/pod.cfg").read_text())[1])
    grace = spec["terminationGracePeriodSeconds"]
    assert after(hooks["relay"], "--for") == after(hooks["haproxy"], "--for")
    relay_ends = after(hooks["relay"], "--for") + drain + 2  # for slow workers: docs/relay.md
    assert relay_ends <= after(hooks["agent"], "--at-most")
    assert after(hooks["agent"], "--at-most") + after(hooks["agent"], "--for") + 5 < grace  # agent.drain
    assert relay_ends < after(hooks["haproxy"], "--for") + stop < grace


# ---- start ----


@scene
def test_containers_start_in_any_order(pod, origin, worker):
    haproxy, agent, relay = (pod.containers[name] for name in ("haproxy", "agent", "relay"))
    pod.start("haproxy")
    until(lambda: haproxy.ask("livenessProbe") == 200, 20)
    until(lambda: haproxy.ask("readinessProbe") == 503, 20)
    assert request(TLS, "GET", "/d/sb-1/", [bearer()], tls=True).status == 503
    pod.start("relay")
    until(lambda: relay.ask("livenessProbe") == 200, 20)
    pod.start("agent")
    pod.await_ready()
    assert [c.ask("livenessProbe") for c in (haproxy, agent, relay)] == [200, 200, 200]
    assert request(TLS, "GET", "/d/sb-1/x", [bearer()], tls=True).status == 200
    assert origin.requests[-1].get("x-forwarded-proto") == "https"
    answer = plain(8080, "/d/sb-1/x")
    assert (answer.status, answer.get("location")) == (308, "https://cell.test/d/sb-1/x")
    opened(worker, "/t/sb-2/s1")
    # what Prometheus reads, and nobody else's pages
    for port, name in ((8404, b"haproxy_process_"), (9103, b"cellgate_agent_"), (9104, b"cellgate_relay_")):
        assert name in plain(port, "/metrics", "10.1.2.3").body
        assert plain(port, "/tunnels", "10.1.2.3").status == 404


def is_answered(container, name):
    """Whether a process of that container's account gets an answer to what HAProxy says first on one of the agent's sockets."""
    ask = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/cellgate/{name}'); s.sendall({HELLO!r})\ntry: print(len(s.recv(4)))\nexcept ConnectionError: print(0)"
    return container.run(["/usr/bin/python3", "-c", ask]).stdout.strip() == "4"


@scene
def test_the_containers_have_nothing_that_they_do_not_need(pod, origin, worker):
    pod.start()
    pod.await_ready()
    for name, container in pod.containers.items():
        lines = Path(f"/proc/{container.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["Uid"].split()[0] == str(container.account["runAsUser"]) and status["NoNewPrivs"] == "1", name
        assert {status[cap] for cap in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status["NSpid"].split()[-1] == "1", "it is not process 1"
    accounts = {c.account["runAsUser"] for c in pod.containers.values()}
    assert len(accounts) == 3
    relay, haproxy = pod.containers["relay"], pod.containers["haproxy"]
    for container in (relay, haproxy):
        assert not container.run(["/usr/bin/test", "-e", "/etc/cellgate/k1"]).returncode == 0, "it sees keys"
    assert pod.containers["agent"].run(["/usr/bin/test", "-r", "/etc/cellgate/k1"]).returncode == 0
    for container, place in ((relay, "/run/cellgate/x"), (haproxy, "/run/cellgate-relay/x"), (relay, "/etc/cellgate/x"), (relay, "/x")):
        assert container.run(["/usr/bin/touch", place]).returncode != 0, (container.name, place)
    # all have one group, so the sockets' files let each of them connect
    assert is_answered(haproxy, "agent.sock") and not is_answered(relay, "agent.sock")
    assert is_answered(relay, "agent-relay.sock") and not is_answered(haproxy, "agent-relay.sock")
    # the agent's commands are the agent's
    assert relay.run(["/usr/bin/cellgate", "status", "--agent", "unix@/run/cellgate/agent.control.sock", "--relay", "unix@/run/cellgate-relay/control.sock"]).returncode == 1
    assert relay.run(["/usr/bin/cellgate", "tunnels", "--relay", "unix@/run/cellgate-relay/control.sock"]).returncode == 0


@scene
def test_new_keys_and_records_count_as_soon_as_they_are_there(pod, origin, worker):
    """A Secret and a ConfigMap change by a symbolic link that is turned."""
    pod.start()
    pod.await_ready()
    new = b"another secret of the tests, 32 bytes or more"

    def status(secret):
        return request(TLS, "GET", "/d/sb-1/", [bearer(secret)], tls=True).status

    assert (status(SECRET), status(new)) == (200, 401)
    pod.update("cellgate-keys", {"k1": new})
    until(lambda: (status(SECRET), status(new)) == (401, 200), 10, "the new key does not count")
    pod.update("cellgate-keys", {"sandboxes.json": b'{"sandboxes": {"sb-1": {"worker": "http://127.0.0.1:1", "state": "stopped"}}}'})
    until(lambda: status(new) == 410, 10, "the new record does not count")


def test_behind_an_ingress_the_controller_says_who_the_client_is(behind_an_ingress, certificate):
    @scene
    def test(pod, origin, worker):
        pod.start()
        pod.await_ready()
        client = [("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Proto", "https")]
        assert request(8080, "GET", "/d/sb-1/", [bearer(), *client]).status == 200
        seen = origin.requests[-1]
        assert (seen.all("x-forwarded-for"), seen.all("x-forwarded-proto")) == (["203.0.113.7"], ["https"])
        assert request(8080, "GET", "/d/sb-1/", [bearer()]).status == 403  # without TLS to the client
        assert not listens(TLS)

    test(behind_an_ingress, certificate)


# ---- in the pods of an ingress controller ----


def beside(name):
    """A controller's pod with what examples/kubernetes adds to it. Of the controller there is its account and a front end that leads all
    to cellgate: haproxytech's chart runs the pod as 1000:1000, without an fsGroup (chart 1.52.1, templates/_podspec.tpl); jcmoraisjr's
    image is of 99 (rootfs/Dockerfile), and its chart takes podSecurityContext (templates/_podtemplate.yaml)."""
    manifests = kustomize(KUBERNETES / f"ingress-{name}")
    values = yaml.safe_load((KUBERNETES / f"ingress-{name}/values.yaml").read_text())["controller"]
    account = ACCOUNTS[name] | values.get("podSecurityContext", {})
    front = """defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout tunnel 1h
frontend controller
    bind 127.0.0.1:8443 ssl crt /etc/controller-tls/tls.crt alpn h2,http/1.1
    default_backend cellgate-hop-tls
"""
    aux = next(m["mountPath"] for m in values["extraVolumeMounts"] if m.get("subPath") == "haproxy.cfg")
    controller = {
        "name": "haproxy", "image": "cellgate-haproxy", "args": ["-db", "-f", "/etc/controller/haproxy.cfg", "-f", aux], "env": values["extraEnvs"],
        "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": False, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [*values["extraVolumeMounts"], {"name": "controller", "mountPath": "/etc/controller"}, {"name": "tls", "mountPath": "/etc/controller-tls"}]}
    certificate = {"secretName": "cellgate-tls", "items": [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.crt.key"}]}
    volumes = [*values["extraVolumes"], {"name": "controller", "configMap": {"name": "controller"}}, {"name": "tls", "secret": certificate}]
    spec = {"securityContext": account, "terminationGracePeriodSeconds": 60, "containers": [controller, *values["extraContainers"]], "volumes": volumes}
    return [*manifests, {"kind": "ConfigMap", "metadata": {"name": "controller"}, "data": {"haproxy.cfg": front}},
            {"kind": "Deployment", "spec": {"template": {"spec": spec}}}]


@pytest.mark.parametrize("name", ACCOUNTS)
def test_in_a_controllers_pod_a_relay_that_was_taken_over_is_only_a_relay(name, certificate):
    @scene
    def test(pod, origin, worker):
        pod.start()
        pod.await_ready()
        until(lambda: listens(TLS), 10)
        until(lambda: request(TLS, "GET", "/d/sb-1/", [bearer()], tls=True).status == 200, 10, "no request comes through")
        until(lambda: sees_relay(pod), 10, "HAProxy does not look again")
        # all that they want of each other, they get: a tunnel that is redialled has asked the agent for its ticket
        client, leg = opened(worker, "/t/sb-2/s1")
        leg.reset()
        second = worker.serve()
        second.say(b"after the worker")
        assert client.message()[1] == b"after the worker"
        relay, haproxy = pod.containers["cellgate-relay"], pod.containers["haproxy"]

        def connects(container, path):
            return container.run(["/usr/bin/python3", "-c", f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"]).returncode == 0

        assert is_answered(relay, "agent-relay.sock") and connects(relay, "/run/cellgate-haproxy/worker-tls.sock")
        assert is_answered(haproxy, "agent.sock") and connects(haproxy, "/run/cellgate-relay/relay.sock")
        assert not is_answered(relay, "agent.sock") and not is_answered(haproxy, "agent-relay.sock")
        # and nothing else
        for path in ("/run/cellgate/agent.control.sock", "/run/cellgate-haproxy/stats.sock"):
            assert relay.run(["/usr/bin/test", "-S", path]).returncode == 0 and not connects(relay, path), path
        for path in ("/run/cellgate/agent.control.sock", "/run/cellgate-relay/control.sock"):
            assert not connects(haproxy, path), path
        for container in (relay, haproxy):
            assert container.run(["/usr/bin/test", "-e", "/run/cellgate/agent-relay.sock.key"]).returncode == 0
            assert container.run(["/usr/bin/cat", "/run/cellgate/agent-relay.sock.key"]).returncode != 0, "it reads the key of the tickets"
            assert container.run(["/usr/bin/test", "-e", "/etc/cellgate/k1"]).returncode != 0, "it sees keys"
        for container, own in ((relay, "cellgate-relay"), (haproxy, "cellgate-haproxy"), (pod.containers["cellgate-agent"], "cellgate")):
            for folder in ("cellgate", "cellgate-relay", "cellgate-haproxy"):
                done = container.run(["/usr/bin/touch", f"/run/{folder}/x"])
                assert (done.returncode == 0) == (folder == own), (container.name, folder)

    test(beside(name), certificate)


# ---- a container that dies ----


@scene
def test_a_container_that_dies_is_started_again_and_tunnels_go_on(pod, origin, worker):
    pod.start()
    pod.await_ready()
    client, leg = opened(worker, "/t/sb-2/s1")
    agent = pod.containers["agent"]
    agent.signal(9)
    until(lambda: not agent.alive(), 10)
    client.say(b"without an agent")
    assert leg.message()[1] == b"without an agent"
    pod.start("agent")
    pod.await_ready()
    leg.say(b"with another")
    assert client.message()[1] == b"with another"
    # its tickets are known to the next one: the tunnel may be redialled
    leg.reset()
    second = worker.serve()
    second.say(b"after the worker")
    assert client.message()[1] == b"after the worker"


# ---- the end ----


@pytest.mark.skipif(SANITIZED, reason="measures time")
@scene
def test_a_pod_that_ends_lets_everybody_finish(pod, origin, worker):
    def slowly(connection, asked):
        time.sleep(2 if asked.target.endswith("/slow") else 0)
        respond(connection, asked)

    def served():
        """For a second: load balancers have not heard of it yet."""
        try:
            assert request(TLS, "GET", "/d/sb-1/", [bearer()], tls=True).status == 200
        except OSError:
            assert time.monotonic() - before > 0.9, "it ends too soon"
            return False
        return time.monotonic() - before < 0.7

    pod.start()
    pod.await_ready()
    tunnels = [opened(worker, f"/t/sb-2/s{i}") for i in range(8)]
    kept = Http1(TLS, tls=True)
    assert kept.request("GET", "/d/sb-1/", [bearer()]).status == 200
    slow = Http1(TLS, tls=True)
    origin.answer = slowly
    before = time.monotonic()
    told = pod.delete()
    slow.send(head("GET", "/d/sb-1/slow", [("Host", "cell.test"), bearer()]))
    opened(worker, "/t/sb-2/late")[0].close()
    while served():
        pass
    until(lambda: not listens(TLS), 3, "HAProxy still takes connections")
    assert time.monotonic() - before > 0.9
    # 1 s to 5 s: tunnels end one after the other, with a code that says to come again
    ends = []
    for client, leg in tunnels:
        client.say(b"still there")
    waiting = dict(enumerate(tunnels))
    while waiting and time.monotonic() - before < 8:
        for number, (client, _) in list(waiting.items()):
            if heard(client):
                opcode, payload, _ = client.hear()
                assert opcode == 8 and payload[:2] == (1012).to_bytes(2, "big"), (opcode, payload)
                client.close_with(1012)
                ends.append(time.monotonic() - before)
                del waiting[number]
    assert len(ends) == 8 and 0.9 < ends[0] and ends[-1] < 6
    assert ends[-1] - ends[0] > 1.5, f"all at once: {ends}"
    # what began before the end is answered
    assert slow.response().status == 200
    hooks = told()
    containers = pod.containers
    assert {name: code for name, (_, code, _) in hooks.items()} == {"haproxy": 0, "agent": 0, "relay": 0}, hooks
    assert not any(c.killed for c in containers.values()), pod.logs()
    assert {name: c.process.returncode for name, c in containers.items()} == {"haproxy": 0, "agent": 0, "relay": 0}
    assert containers["agent"].ended > containers["relay"].ended
    assert time.monotonic() - before < pod.grace


@pytest.mark.skipif(SANITIZED, reason="measures time")
@scene
def test_what_does_not_end_is_cut_before_the_kubelet_kills(pod, origin, worker):
    pod.start()
    pod.await_ready()
    straight, leg = opened(worker, "/w/sb-2/forever")
    before = time.monotonic()
    told = pod.delete()
    straight.say(b"go on")
    assert leg.message()[1] == b"go on"
    until(lambda: not pod.containers["relay"].alive(), 10)
    leg.say(b"and on")
    assert straight.message()[1] == b"and on"
    told()
    assert not any(c.killed for c in pod.containers.values()), pod.logs()
    assert 6 < time.monotonic() - before < pod.grace


@scene
def test_an_idle_pod_ends_soon(pod, origin, worker):
    pod.start()
    pod.await_ready()
    before = time.monotonic()
    pod.delete()()
    assert time.monotonic() - before < 4
    assert not any(c.killed for c in pod.containers.values())
