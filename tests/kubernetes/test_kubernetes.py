# SPDX-License-Identifier: MIT
"""The directory kind kubernetes against a real API server and etcd (KUBE_APISERVER): decisions and live tunnels follow its events, and
nothing that happens to the server makes anybody hear that a sandbox does not exist."""

import http.client
import os
import re
import signal
import ssl
import statistics
import threading
import time

import kube_world
import pytest
from cell import until
from direct import Worker
from kube import BINARY, SANDBOXES, WHY_NOT, Kube, Refused, sandbox
from kube_world import ABSENT, STOPPED, UNKNOWN, WAKING, Hosts
from origin import Origin
from tunnels import Tunnels, pass_both_ways

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or BINARY)
LISTED, IN_TIME = 5000, 0.1
LABEL, SLICES = "example.com/sandbox", "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"


@pytest.fixture(scope="module")
def kube(tmp_path_factory):
    kube = Kube(tmp_path_factory.mktemp("kube"))
    kube.install("sandboxes")
    kube.allow("list", "watch", "patch")
    yield kube
    kube.close()


@pytest.fixture(scope="module")
def hosts():
    hosts = Hosts(*(f"127.0.0.{i}" for i in range(2, 6)))
    yield hosts
    hosts.close()


class World(kube_world.World):
    def __init__(self, kube, cells, hosts, *resources, **options):
        super().__init__(kube, cells, hosts, *resources, **{"ca_file": str(kube.ca), "token_file": "kube.token"} | options)
        self.start(files={"kube.token": f"{kube.tokens['cellgate'][1]}\n".encode()}).until_ready(60)
        self.api = kube.api()

    def becomes(self, name, expected, seconds=10):
        super().becomes(name, expected, seconds)

    def follows(self, name, act, expected):
        """Seconds from the end of what was done until the decision is another."""
        act()
        begun = time.monotonic()
        self.becomes(name, expected)
        return time.monotonic() - begun

    def quiet(self):
        until(lambda: self.metric('cellgate_directory_watches{state="closed"}') == 0 and self.metric("cellgate_directory_up") == 1, 60, "it does not recover")


@pytest.fixture(scope="module")
def world(kube, cells, hosts):
    return World(kube, cells, hosts)


def fill(kube, count, start=0):
    """Sandboxes that are ready, on eight connections."""
    def some(part):
        api = kube.api()
        for i in range(start + part, start + count, 8):
            try:
                api("POST", SANDBOXES, sandbox(f"many-{i}") | {"status": {}})
                api.status(f"{SANDBOXES}/many-{i}", sandbox("x", ready=True, address=f"127.0.0.{2 + i % 4}")["status"])
            except Refused as refusal:
                assert refusal.status == 409

    threads = [threading.Thread(target=some, args=(part,)) for part in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def told(what, seconds):
    print(f"{what}: {len(seconds)} times, median {statistics.median(seconds) * 1000:.1f} ms, longest {max(seconds) * 1000:.1f} ms")


def test_a_sandbox_is_followed_through_its_life_in_time(world):
    api, took = world.api, {}
    for i in range(10):
        one = f"{SANDBOXES}/life-{i}"
        name = f"life-{i}"
        world.becomes(name, ABSENT)

        def status(ready, address=None, reason=None, one=one):
            return lambda: api.status(one, sandbox("x", ready=ready, address=address, reason=reason)["status"] | ({} if address else {"podIPs": None}))

        steps = [("created", lambda: api("POST", SANDBOXES, sandbox(name)), WAKING), ("ready", status(True, "127.0.0.2"), "127.0.0.2"),
                 ("moved", status(True, "127.0.0.3"), "127.0.0.3"), ("not ready", status(False), WAKING), ("ready again", status(True, "127.0.0.4"), "127.0.0.4"),
                 ("finished", status(False, reason="PodSucceeded"), STOPPED), ("deleted", lambda: api("DELETE", one), ABSENT)]
        for what, act, expected in steps:
            took.setdefault(what, []).append(world.follows(name, act, expected))
    for what, seconds in took.items():
        told(what, seconds)
    assert all(statistics.median(seconds) < IN_TIME for seconds in took.values())


def test_a_suspended_one_is_woken_by_its_visitor(world):
    patched, served_again = [], []
    for i in range(10):  # one that was woken a moment ago is not woken again
        name, one = f"asleep-{i}", f"{SANDBOXES}/asleep-{i}"
        world.api.create(SANDBOXES, sandbox(name, ready=True, address="127.0.0.4"))
        world.becomes(name, "127.0.0.4")
        world.api.status(one, sandbox("x", "Suspended", ready=False)["status"] | {"podIPs": None})
        world.becomes(name, WAKING)
        world.api.patch(one, {"spec": {"operatingMode": "Suspended"}})
        begun = time.monotonic()
        assert world.ask(name) == WAKING
        until(lambda name=name, one=one: world.ask(name) == WAKING and world.api("GET", one)["spec"]["operatingMode"] == "Running", 10, "nobody wakes it")
        patched.append(time.monotonic() - begun)
        served_again.append(world.follows(name, lambda one=one: world.api.status(one, sandbox("x", ready=True, address="127.0.0.5")["status"]), "127.0.0.5"))
    told("suspended, asked for, and patched", patched)
    told("served again", served_again)
    assert statistics.median(patched) < IN_TIME and statistics.median(served_again) < IN_TIME


def test_live_tunnels_follow_a_pod_that_moves(world):
    tunnels, took = Tunnels(world.cell), []
    workers = [Worker(host="127.0.0.2")]
    workers.append(Worker(host="127.0.0.3", port=workers[0].port))
    tunnels.workers += workers
    for turn in range(3):  # one that moves more than ten times in a minute flaps
        name, one = f"tunnel-{turn}", f"{SANDBOXES}/tunnel-{turn}"
        world.api.create(SANDBOXES, sandbox(name, ready=True, address="127.0.0.2"))
        until(lambda: world.ask(name) == "127.0.0.2", 10, "it does not come")
        client, _ = tunnels.open(workers[0], f"{name}/{workers[0].port}")
        for number in range(1, 9):
            target = workers[number % 2]
            world.api.status(one, sandbox("x", ready=True, address=f"127.0.0.{2 + number % 2}")["status"])
            begun = time.monotonic()
            upstream = target.take()
            took.append(time.monotonic() - begun)
            target.accept(upstream)
            pass_both_ways(client, upstream)
        world.api("DELETE", one)
        assert client.closed() == (1000, "sandbox not found")
    told("a tunnel moved", took)
    assert statistics.median(took) < IN_TIME
    tunnels.close()


class Asking:
    """Asks for a sandbox that is there, all the time: it must be served, or be `directory_unavailable`; never be said not to exist."""

    def __init__(self, world, name):
        self.world, self.name, self.answers, self.stop = world, name, {}, False
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.stop:
            answer = self.world.ask(self.name)
            self.answers[answer] = self.answers.get(answer, 0) + 1
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()


def endpoint_slice(name, sandbox, address, junk=0):
    """junk: so many `<`, which the server takes and spells in six bytes each. It stores a custom resource so, and takes none over 2 MiB."""
    target = {"kind": "Pod", "name": "p", "fieldPath": "<" * junk}
    return {"apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": {"name": name, "labels": {LABEL: sandbox}},
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "targetRef": target}], "ports": [{"name": "http", "port": 8888}]}


def test_a_slice_over_the_limit_is_of_no_consequence_for_others(kube, cells, hosts):
    api, one = kube.api(), f"{SLICES}/large-x"
    world = World(kube, cells, hosts, ("endpointslices",), label=LABEL)
    good = 'cellgate_directory_lists_total{outcome="good"}'
    api("POST", SLICES, endpoint_slice("small-x", "small", "127.0.0.2"))
    api("POST", SLICES, endpoint_slice("large-x", "large", "127.0.0.3", 1200000))
    world.becomes("large", WAKING)
    other = World(kube, cells, hosts, ("endpointslices",), label=LABEL)  # which lists it
    assert [w.ask(name) for w in (world, other) for name in ("small", "large", "nobody")] == 2 * ["127.0.0.2", WAKING, ABSENT]
    api("PUT", one, endpoint_slice("large-x", "large", "127.0.0.3"))
    for w in (world, other):
        w.becomes("large", "127.0.0.3")
    api("PUT", one, endpoint_slice("large-x", "large", "127.0.0.4", 1200000))
    for w in (world, other):
        w.becomes("large", WAKING)
    api("DELETE", one)  # whose event is as large
    for w in (world, other):
        w.becomes("large", ABSENT)
        assert w.metric(good) == 1 and w.ask("small") == "127.0.0.2"


@pytest.fixture(scope="module")
def known(world):
    world.api.create(SANDBOXES, sandbox("known", ready=True, address="127.0.0.2"))
    world.becomes("known", "127.0.0.2")
    return "known"


def served(asking):
    print(asking.answers)
    assert set(asking.answers) == {"127.0.0.2"}


def test_the_server_may_be_killed_and_compacted(world, known, kube):
    with Asking(world, known) as asking:
        world.api.create(SANDBOXES, sandbox("goes", ready=True, address="127.0.0.3"))
        world.becomes("goes", "127.0.0.3")
        lists = world.metric('cellgate_directory_lists_total{outcome="good"}')
        kube.kill()
        until(lambda: world.metric("cellgate_directory_up") == 0, 20, "it does not see it")
        assert world.ask("nobody") == UNKNOWN
        kube.start()
        world.api("DELETE", f"{SANDBOXES}/goes")
        kube.compact()
        kube.kill()
        time.sleep(0.5)  # so that the agent comes back to a server that has forgotten
        kube.start()
        world.quiet()
        world.becomes("goes", ABSENT, 30)
        world.becomes("nobody", ABSENT)
    served(asking)
    print("lists:", lists, world.metric('cellgate_directory_lists_total{outcome="good"}'))


def test_the_watch_may_be_cut(world, known):
    with Asking(world, known) as asking:
        for _ in range(3):
            os.system(f"ss -K dst 127.0.0.1 dport = {world.kube.port} >/dev/null 2>&1")  # where the kernel can
            world.api.status(f"{SANDBOXES}/known", sandbox("x", ready=True, address="127.0.0.2")["status"])
            time.sleep(0.3)
        world.quiet()
    served(asking)


class Between(Origin):
    """Between agent and server, as `kubectl proxy` is. Of the event that names `cut` it says half, and is gone."""

    def __init__(self, kube):
        super().__init__(self._pass)
        self.kube, self.cut, self.cuts = kube, None, 0
        self.watched = []  # from which versions

    def _pass(self, connection, request):
        body = connection.read_body(request)
        server = http.client.HTTPSConnection("127.0.0.1", self.kube.port, context=ssl.create_default_context(cafile=str(self.kube.ca)), timeout=600)
        server.request(request.method, request.target, body, {name: request.get(name) for name in ("authorization", "accept", "content-type") if request.get(name)})
        answer = server.getresponse()
        connection.send(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" % answer.status)
        if "watch=1" in request.target:
            self.watched.append(re.search(r"resourceVersion=(\d+)", request.target)[1])
        while line := answer.readline():
            if self.cut and self.cut in line and "watch=1" in request.target:
                connection.send(b"%x\r\n" % len(line) + line[:len(line) // 2])
                self.cut = None
                self.cuts += 1
                server.close()
                return True
            connection.send(b"%x\r\n" % len(line) + line + b"\r\n")
        connection.send(b"0\r\n\r\n")
        return False


def test_an_event_may_be_cut(kube, cells, hosts):
    """Between two bytes of it: it is not half heard, and not lost."""
    between, took = Between(kube), []
    world = World(kube, cells, hosts, url=between.url)
    one = f"{SANDBOXES}/cut"
    world.api.create(SANDBOXES, sandbox("cut", ready=True, address="127.0.0.2"))
    world.becomes("cut", "127.0.0.2")
    with Asking(world, "cut") as asking:
        for i in range(1, 11):
            watched = len(between.watched)
            between.cut = b'"name":"cut"'
            address = f"127.0.0.{2 + i % 2}"
            took.append(world.follows("cut", lambda address=address: world.api.status(one, sandbox("x", ready=True, address=address)["status"]), address))
            until(lambda watched=watched: len(between.watched) == watched + 1, 5, "nobody watches again")
            world.becomes("nobody", ABSENT)
            time.sleep(1.1)  # a watch that lived for a second was a good one
    assert between.cuts == 10 and world.metric("cellgate_directory_lists_total") == 1
    assert set(asking.answers) == {"127.0.0.2", "127.0.0.3"}
    told("an event that was cut", took)
    between.close()


def test_the_server_may_stand_still(world, known):
    with Asking(world, known) as asking:
        world.kube.server.send_signal(signal.SIGSTOP)
        time.sleep(3)
        world.kube.server.send_signal(signal.SIGCONT)
        world.becomes("nobody", ABSENT, 30)
        world.quiet()
    served(asking)


def test_rights_may_be_taken_away_and_given_back(world, known, kube):
    with Asking(world, known) as asking:
        kube.allow("get")
        kube.kill()
        kube.start()
        until(lambda: "RBAC lacks `" in world.cell.logs(), 30, "nobody is told")
        assert world.ask("nobody") == UNKNOWN
        kube.allow("list", "watch", "patch")
        world.quiet()
        world.becomes("nobody", ABSENT)
    served(asking)


def test_the_token_may_rotate(world, known, kube):
    with Asking(world, known) as asking:
        token = kube.user("cellgate")
        kube.kill()
        kube.start()
        until(lambda: "status 401" in world.cell.logs(), 30, "nobody is told")
        part = world.cell.folder / "kube.token.part"
        part.write_text(token)
        part.rename(world.cell.folder / "kube.token")
        world.quiet()
        world.becomes("nobody", ABSENT)
    served(asking)
    assert "-token-" not in world.cell.logs()


def test_five_thousand_are_listed(kube, cells, hosts, world):
    fill(kube, LISTED)
    begun = time.monotonic()
    other = World(kube, cells, hosts)
    print(f"{int(other.metric('cellgate_directory_objects '))} listed, ready after {time.monotonic() - begun:.1f} s with the whole cell")
    until(lambda: other.metric("cellgate_directory_objects ") >= LISTED, 10, "some are missing")
    for i in range(0, LISTED, 250):
        assert other.ask(f"many-{i}") == f"127.0.0.{2 + i % 4}"
    until(lambda: world.metric("cellgate_directory_objects ") >= LISTED, 60, "the watch has missed some")
    for i in range(0, LISTED, 250):
        assert world.ask(f"many-{i}") == f"127.0.0.{2 + i % 4}"
