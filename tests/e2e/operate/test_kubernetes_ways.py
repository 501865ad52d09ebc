# SPDX-License-Identifier: MIT
"""The ways into Kubernetes that go through somebody else's HAProxy: each controller's configuration, as it generates it for one
Ingress of its own, together with ours and with what examples/kubernetes says, through `haproxy -c` and with traffic. Which lines
of the controllers' templates these are is said at each. They run on the HAProxy that is chosen, and on each that lies in
$CELLGATE_CACHE: haproxytech has 3.2; jcmoraisjr 2.6, 2.8 and 3.0 (its 0.15, 0.16 and 0.17)."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from cell import ROOT, alive, end, free_port, haproxy_version, token, until
from client import WEBSOCKET, Http1, Http2, head
from direct import Peer, Worker
from origin import Connection

KUBERNETES = ROOT / "examples/kubernetes"
CACHE = Path(os.environ.get("CELLGATE_CACHE", "/var/tmp/cellgate-haproxy"))
HOST = "8080-hello.preview.example.com"
OWN = "shop.example.com"  # of an Ingress that is the controller's own


def version(command):
    text = subprocess.run([*shlex.split(command), "-v"], capture_output=True, text=True).stdout
    return tuple(int(n) for n in re.search(r"version (\d+)\.(\d+)", text).groups())


def haproxies():
    """The chosen one, and those of other versions that are there."""
    found = {}
    for command in [os.environ.get("HAPROXY", "haproxy"), *sorted(str(p) for p in CACHE.glob("haproxy-*"))]:
        with contextlib.suppress(OSError, AttributeError):
            found.setdefault(version(command), command)
    return found


HAPROXIES = haproxies()


def values(name):
    return yaml.safe_load((KUBERNETES / name / "values.yaml").read_text())["controller"]


def indented(text, spaces=4):
    return "".join(" " * spaces + line + "\n" for line in text.splitlines())


# ---- the controllers' files ----


def haproxytech(folder, ports, origin):
    """haproxytech/kubernetes-ingress at fc120676 (after v3.2.9). fs/usr/local/etc/haproxy/haproxy.cfg with what is set at run time:
    pkg/haproxy/env/defaults.go (global, defaults), pkg/controller/controller.go lines 290-340 (txn.path_match by maps),
    pkg/handler/http-bind.go and https.go (binds), pkg/haproxy/rules/setHdr.go (X-Forwarded-Proto); snippets come behind these
    rules, `use_backend %[...]` behind the snippets (pkg/route/route.go line 151)."""
    settings = values("ingress-haproxytech")["config"]
    snippet = indented(settings["frontend-config-snippet"], 2)
    (folder / "host.map").write_text(f"{OWN} {OWN}\n")
    (folder / "path-exact.map").write_text("")
    (folder / "path-prefix.map").write_text(f"{OWN}/ default_svc_shop_http.abc\n")
    rules = f"""  http-request set-var(txn.base) base
  http-request set-var(txn.path) path
  http-request set-var(txn.host) req.hdr(Host),field(1,:),lower
  http-request set-var(txn.host_match) var(txn.host),map({folder}/host.map)
  http-request set-var(txn.host_match) var(txn.host),regsub(^[^.]*,,),map({folder}/host.map,'') if !{{ var(txn.host_match) -m found }}
  http-request set-var(txn.path_match) var(txn.host_match),concat(,txn.path,),map({folder}/path-exact.map)
  http-request set-var(txn.path_match) var(txn.host_match),concat(,txn.path,),map_beg({folder}/path-prefix.map) if !{{ var(txn.path_match) -m found }}
"""
    (folder / "haproxy.cfg").write_text(f"""# _version=1
global
  localpeer local
  master-worker
  pidfile {folder}/haproxy.pid
  stats socket {folder}/runtime-api.sock level admin expose-fd listeners
  default-path config
  hard-stop-after {settings["hard-stop-after"]}
  stats timeout 36000
  ssl-default-bind-options no-sslv3 no-tls-tickets no-tlsv10
  log 127.0.0.1 local0 notice

defaults haproxytech
  log global
  option dontlognull
  option http-keep-alive
  timeout http-request 5000
  timeout connect 5000
  timeout client 50000
  timeout queue 5000
  timeout server 50000
  timeout tunnel 3600000
  timeout http-keep-alive 60000

frontend https from haproxytech
  mode http
  bind 127.0.0.1:{ports["https"]} name v4 ssl crt {folder}/cert.pem alpn h2,http/1.1
{rules}  http-request set-header X-Forwarded-Proto https
{snippet}  use_backend %[var(txn.path_match),field(1,.)]
  default_backend haproxy-controller_default-local-service_http

frontend http from haproxytech
  mode http
  bind 127.0.0.1:{ports["http"]} name v4
{rules}{snippet}  use_backend %[var(txn.path_match),field(1,.)]
  default_backend haproxy-controller_default-local-service_http

backend haproxy-controller_default-local-service_http from haproxytech
  mode http
  http-request return status 404

backend default_svc_shop_http from haproxytech
  mode http
  balance roundrobin
  option forwardfor
  server SRV_1 127.0.0.1:{origin.port}
""")
    # its s6 service runs `haproxy -W -db -S … -f haproxy.cfg -f haproxy-aux.cfg`
    return ["-W", "-db", "-S", f"{folder}/master.sock,level,admin", "-f", str(folder / "haproxy.cfg"), "-f", str(ROOT / "haproxy/haproxy.cfg")]


def jcmoraisjr(folder, ports, origin):
    """jcmoraisjr/haproxy-ingress at 465a51ce; the same lines in release-0.15 and release-0.16. rootfs/etc/templates/haproxy/haproxy.tmpl:
    global and defaults (lines 60-185), the HTTP frontend (1270-1365), the HTTPS frontend (1368-1550) with the snippets of
    config-frontend-late at 1349 and 1516, in front of `use_backend`. Without Lua, whose scripts are in its image."""
    settings = values("ingress-jcmoraisjr")["config"]
    snippet = indented(settings["config-frontend-late"])
    (folder / "host.map").write_text(f"{OWN}#/ default_shop_8080\n")
    (folder / "crt.list").write_text(f"{folder}/cert.pem\n")
    rules = """    http-request set-var(req.path) path
    http-request set-var(req.host) hdr(host),field(1,:),lower
    http-request set-var(req.base) var(req.host),concat(\\#,req.path)
"""
    (folder / "haproxy.cfg").write_text(f"""global
    daemon
    unix-bind mode 0600
    stats socket {folder}/admin.sock level admin expose-fd listeners mode 600
    maxconn 2000
    hard-stop-after {settings["timeout-stop"]}
    tune.ssl.default-dh-param 2048
    ssl-default-bind-options no-sslv3 no-tlsv10 no-tlsv11 no-tls-tickets

defaults
    log global
    maxconn 2000
    option redispatch
    option dontlognull
    option http-keep-alive
    timeout client          50s
    timeout client-fin      50s
    timeout connect         5s
    timeout http-keep-alive 1m
    timeout http-request    5s
    timeout queue           5s
    timeout server          50s
    timeout server-fin      50s
    timeout tunnel          1h

backend default_shop_8080
    mode http
    balance random(2)
    option forwardfor
    server srv001 127.0.0.1:{origin.port} weight 1 check inter 2s

backend _error404
    mode http
    http-request return status 404

frontend _front_http
    mode http
    bind 127.0.0.1:{ports["http"]}
{rules}    http-request set-header X-Forwarded-Proto http
    http-request set-var(req.backend) var(req.base),lower,map_beg({folder}/host.map)
{snippet}    use_backend %[var(req.backend)] if {{ var(req.backend) -m found }}
    default_backend _error404

frontend _front_https
    mode http
    bind 127.0.0.1:{ports["https"]} ssl alpn h2,http/1.1 crt-list {folder}/crt.list ca-ignore-err all crt-ignore-err all
{rules}    http-request set-var(req.hostbackend) var(req.base),lower,map_beg({folder}/host.map)
    http-request set-header X-Forwarded-Proto https
{snippet}    use_backend %[var(req.hostbackend)] if {{ var(req.hostbackend) -m found }}
    default_backend _error404
""")
    # haproxy-reload.sh runs `haproxy -f /etc/haproxy -p … -D -sf OLD -x admin.sock`; all files of the folder are read, by name
    (folder / "etc").mkdir()
    (folder / "etc/haproxy.cfg").symlink_to(folder / "haproxy.cfg")
    (folder / "etc/zz-cellgate.cfg").symlink_to(ROOT / "haproxy/haproxy.cfg")
    return ["-db", "-f", str(folder / "etc")]


CONTROLLERS = {"haproxytech": (haproxytech, [(3, 2)]), "jcmoraisjr": (jcmoraisjr, [(2, 6), (2, 8), (3, 0)])}


def cases():
    """Each controller on its versions; on another one if that is all there is."""
    for name, (_, versions) in CONTROLLERS.items():
        for number in sorted({*versions, version(os.environ.get("HAPROXY", "haproxy"))}):
            mark = [] if number in HAPROXIES else [pytest.mark.skip(reason=f"no HAProxy {number[0]}.{number[1]} here (tests/haproxy-versions)")]
            yield pytest.param((name, number), id=f"{name}-{number[0]}.{number[1]}", marks=mark)


# ---- one of them, with its traffic ----


class Way:
    def __init__(self, name, number, cell, origin, worker, folder):
        self.name, self.cell, self.origin, self.worker, self.folder = name, cell, origin, worker, folder
        self.command = shlex.split(HAPROXIES[number])
        self.ports = {"http": free_port(), "https": free_port()}
        self.folder.joinpath("cert.pem").write_bytes((cell.run_dir / "cert.pem").read_bytes())
        self.arguments = CONTROLLERS[name][0](folder, self.ports, origin)
        # A HAProxy that tests/haproxy-versions runs by its own loader cannot execute itself again, as a master does at a reload.
        if "-W" in self.arguments and Path(shutil.which(self.command[0])).read_bytes()[:4] != b"\x7fELF":
            self.arguments = self.arguments[self.arguments.index("-f") :]
            self.arguments.insert(0, "-db")
            configuration = folder / "haproxy.cfg"
            configuration.write_text(configuration.read_text().replace("  master-worker\n", ""))
        self.own = free_port()
        self.files = folder / "cellgate"
        subprocess.run(["cp", "-R", ROOT / "haproxy", self.files], check=True)
        # the test's networks in place of a cluster's
        (self.files / "workers.lst").write_text("127.0.0.0/8\n")
        (self.files / "hop.lst").write_text((KUBERNETES / f"ingress-{name}/hop.lst").read_text())
        self.environment = os.environ | self.extra_environment()
        self.process = None

    def extra_environment(self):
        """What values.yaml says, at this run's places."""
        run = self.cell.run_dir
        places = {"127.0.0.1:8081": f"127.0.0.1:{self.own}", "unix@/run/cellgate/agent.sock": f"unix@{run}/agent.sock", "unix@/run/cellgate-relay/relay.sock": f"unix@{run}/relay.sock",
                  "unix@/run/cellgate-haproxy/worker-tls.sock": f"unix@{self.folder}/worker-tls.sock", "/run/cellgate-haproxy/stats.sock": f"{self.folder}/stats.sock",
                  "/etc/cellgate": str(self.files), "/etc/cellgate/hop.lst": f"{self.files}/hop.lst", "/etc/ssl/certs/ca-certificates.crt": f"{self.folder}/cert.pem", "none": "none"}
        return {e["name"]: places[e["value"]] for e in values(f"ingress-{self.name}")["extraEnvs"]}

    def check(self):
        return subprocess.run([*self.command, "-c", *self.arguments], env=self.environment, capture_output=True, text=True)

    def start(self, *more):
        with open(self.folder / "haproxy.log", "ab") as log:
            process = subprocess.Popen([*self.command, *self.arguments, *more], env=self.environment, stdout=log, stderr=log)
        return process

    def stop(self):
        for process in self.processes:
            end(process)

    def __enter__(self):
        self.processes = [self.start()]

        def answers():
            assert self.processes[0].poll() is None, (self.folder / "haproxy.log").read_text()
            with contextlib.suppress(OSError):
                return self.ask(OWN, "/").status == 200

        until(answers, 20, "the controller's HAProxy does not answer")
        return self

    def __exit__(self, *_):
        self.stop()

    def connected(self, tls, source="127.0.0.7"):
        sock = socket.create_connection(("127.0.0.1", self.ports["https" if tls else "http"]), 10, (source, 0))
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["http/1.1"])
            sock = context.wrap_socket(sock, server_hostname="a.preview.example.com")
        return sock

    def ask(self, host, target, headers=(), tls=True, method="GET", body=b""):
        client = Http1.__new__(Http1)
        Connection.__init__(client, self.connected(tls))
        with client:
            return client.request(method, target, headers, body, host=host)

    def bearer(self, *need):
        return ("Authorization", "Bearer " + token("kubernetes", header={"kid": "k1"}, sandbox="hello", port=8080, need=need or ["http"]))

    def upgrade(self, host, target, *headers, tls=True):
        peer = Peer(self.connected(tls), masks=True)
        peer.send(head("GET", target, [("Host", host), *WEBSOCKET, *headers]))
        return peer


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.listener.close()


@pytest.fixture(scope="module")
def cell(cells, origin, worker):
    """The agent and the relay of the recipe: its cellgate.json, with a directory that needs no cluster, and a route of the test's
    for the relay."""
    text = "".join(line for line in (KUBERNETES / "ingress-haproxytech/cellgate.json").read_text().splitlines(True) if not line.strip().startswith("//"))
    config = json.loads(text) | {"directory": {"kind": "file", "path": "sandboxes.json"}, "worker_networks": ["127.0.0.0/8"]}
    config["tokens"][0]["secret_file"] = "k1.secret"
    route = {"name": "terminal", "host": "{sandbox}.terminal.preview.example.com", "path": "/{session}", "to": "/{session}", "upgrade": True, "via": "relay", "stream": True, "need": "none"}
    return cells(sandboxes={"hello": {"worker": origin.url, "ports": {"8080": origin.url}, "serves": "application"}, "term": {"worker": worker.url}}, config=config | {"routes": [route, "defaults"]})


@pytest.fixture(scope="module", params=cases())
def way(request, cell, origin, worker, tmp_path_factory):
    name, number = request.param
    with Way(name, number, cell, origin, worker, tmp_path_factory.mktemp("way")) as way:
        yield way


def test_both_recipes_have_the_same_cell():
    one, other = ((KUBERNETES / f"ingress-{name}/cellgate.json").read_text() for name in CONTROLLERS)
    assert one == other


# ---- who is kept from whom; a pod with these accounts and folders is in test_kubernetes_pod.py ----

OWN_ACCOUNTS = {"haproxytech": 1000, "jcmoraisjr": 99}  # and group, of the controllers' HAProxy
FOLDER = {"controller": "/run/cellgate-haproxy", "cellgate-agent": "/run/cellgate", "cellgate-relay": "/run/cellgate-relay"}
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def containers(name):
    """The controller's, as far as it is cellgate's, and those beside it."""
    given = values(f"ingress-{name}")
    account = {"runAsUser": OWN_ACCOUNTS[name], "runAsGroup": OWN_ACCOUNTS[name]}
    controller = {"name": "controller", "securityContext": account, "volumeMounts": given["extraVolumeMounts"]}
    return {c["name"]: c for c in [controller, *given["extraContainers"]]}


def words(container):
    return dict(word.split("=", 1) for word in container["args"] if "=" in word)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_each_container_has_an_account_of_its_own_and_all_have_one_group(name):
    accounts = {n: c["securityContext"] for n, c in containers(name).items()}
    assert {n: a["runAsUser"] for n, a in accounts.items()} == {"controller": OWN_ACCOUNTS[name], "cellgate-agent": 10001, "cellgate-relay": 10002}
    assert {a["runAsGroup"] for a in accounts.values()} == {OWN_ACCOUNTS[name]}
    # the agent looks the relay's account up, and gives its group a socket: one that is not the agent's own it could not give
    agent = containers(name)["cellgate-agent"]
    entries = [line.split(":") for line in (KUBERNETES / f"ingress-{name}/passwd").read_text().splitlines()]
    assert {e[0]: (int(e[2]), int(e[3])) for e in entries}[words(agent)["agent.relay_user"]] == (10002, OWN_ACCOUNTS[name])
    assert words(agent)["agent.haproxy_user"] == str(OWN_ACCOUNTS[name])
    assert any(m["mountPath"] == "/etc/passwd" and m["subPath"] == "passwd" for m in agent["volumeMounts"])


@pytest.mark.parametrize("name", CONTROLLERS)
def test_no_folder_is_written_by_two_containers(name):
    writes = {n: [m["mountPath"] for m in c["volumeMounts"] if not m.get("readOnly")] for n, c in containers(name).items()}
    assert writes == {n: [FOLDER[n]] for n in writes}
    writers = [m["name"] for c in containers(name).values() for m in c["volumeMounts"] if not m.get("readOnly")]
    assert len(set(writers)) == len(writers)
    # and is at the same place for those who only connect
    assert {m["mountPath"] for c in containers(name).values() for m in c["volumeMounts"] if m["name"] in writers} == set(FOLDER.values())


@pytest.mark.parametrize("name", CONTROLLERS)
def test_each_has_its_sockets_where_it_alone_writes(name):
    variables = {e["name"]: e["value"].removeprefix("unix@").rpartition("/")[0] for e in values(f"ingress-{name}")["extraEnvs"]}
    assert variables["CELLGATE_WORKER_TLS"] == variables["CELLGATE_STATS"] == FOLDER["controller"]
    assert variables["CELLGATE_AGENT"] == FOLDER["cellgate-agent"] and variables["CELLGATE_RELAY"] == FOLDER["cellgate-relay"]
    of_the_relay = {key: value.removeprefix("unix@").rpartition("/")[0] for key, value in words(containers(name)["cellgate-relay"]).items() if "unix@" in value}
    assert of_the_relay == {"relay.listen": FOLDER["cellgate-relay"], "relay.control": FOLDER["cellgate-relay"], "relay.worker_tls": FOLDER["controller"]}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_relay_has_neither_a_token_of_the_api_server_nor_keys(name):
    volumes = {v["name"]: v for v in values(f"ingress-{name}")["extraVolumes"]}
    mounted = {m["mountPath"]: volumes[m["name"]] for m in containers(name)["cellgate-relay"]["volumeMounts"]}
    assert "emptyDir" in mounted[TOKEN]
    assert not any("secret" in str(volume) for volume in mounted.values())
    keys = [v["name"] for v in volumes.values() if "'secret'" in str(v)]
    assert keys and {n for n, c in containers(name).items() for m in c["volumeMounts"] if m["name"] in keys} == {"cellgate-agent"}


# ---- as a client sees it ----


def test_haproxy_accepts_it_without_a_word(way):
    done = way.check()
    # but for what haproxy.cfg itself says of an old one, and 3.3 and later of a word in the controller's own template
    known = ["'cellgate: "] + (["master-worker"] if haproxy_version() >= (3, 3) else [])
    said = [line for line in (done.stdout + done.stderr).splitlines() if ("WARNING" in line or "ALERT" in line) and not any(k in line for k in known)]
    assert done.returncode == 0 and not said, said


def test_a_request_over_tls(way):
    forged = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "evil")]
    answer = way.ask(HOST, "/a%2Fb?c=%20d&e", [way.bearer(), *forged])
    assert answer.status == 200, answer.body
    seen = way.origin.requests[-1]
    assert seen.target == "/a%2Fb?c=%20d&e"
    assert (seen.all("x-forwarded-for"), seen.all("x-forwarded-proto"), seen.all("x-forwarded-host")) == (["127.0.0.7"], ["https"], [HOST])
    assert seen.all("authorization") == []


def test_a_large_body_and_answer(way):
    body = os.urandom(3 << 20)
    assert way.ask(HOST, "/", [way.bearer()], method="POST", body=body).body == body


def test_http2_over_tls(way):
    with Http2(way.ports["https"]) as client:
        assert client.request("GET", "/h2", [way.bearer()], host=HOST).status == 200
    assert way.origin.requests[-1].target == "/h2"


def test_without_tls_a_client_is_sent_to_https_and_its_credential_refused(way):
    before = len(way.origin.requests)
    answer = way.ask(HOST, "/x", tls=False)
    assert (answer.status, answer.get("location")) == (308, f"https://{HOST}/x")
    assert way.ask(HOST, "/x", [way.bearer()], tls=False).status == 403
    assert way.ask(HOST, "/x", [way.bearer(), ("X-Forwarded-Proto", "https")], tls=False).status == 403
    assert len(way.origin.requests) == before


def test_whoever_has_no_token_is_refused(way):
    assert way.ask(HOST, "/").status == 401
    assert way.ask(HOST, "/", [("Authorization", "Bearer x")]).status == 401


def test_the_controllers_own_hosts_are_its_own(way):
    answer = way.ask(OWN, "/own", [("Authorization", "Bearer whatever")])
    assert answer.status == 200 and way.origin.requests[-1].all("authorization") == ["Bearer whatever"]
    assert way.ask("other.example.com", "/").status == 404
    assert way.ask("preview.example.com.evil.example", "/").status == 404


def test_a_websocket_straight_to_its_sandbox(way):
    client = way.upgrade(HOST, "/ws", way.bearer())
    assert client.head()[0].endswith("101 Switching Protocols")
    client.say(b"to and fro")
    assert client.take(6 + 10)[-10:]  # the origin gives back the bytes, masked as they were
    client.close()


def test_a_tunnel_of_the_relay_outlives_its_worker(way):
    client = way.upgrade("term.terminal.preview.example.com", "/s1")
    leg = way.worker.serve()
    assert client.head()[0].endswith("101 Switching Protocols")
    assert leg.fields["x-forwarded-for"] == "127.0.0.7" and leg.fields["x-forwarded-proto"] == "https"
    client.say(b"one")
    assert leg.message()[1] == b"one"
    leg.reset()
    leg = way.worker.serve()
    leg.say(b"two")
    assert client.message()[1] == b"two"
    client.close_with(1000)
    leg.closed()


def test_nobody_else_reaches_the_front_end_behind(way):
    """It believes a PROXY header of 127.0.0.1 alone."""
    forged = b"PROXY TCP4 6.6.6.6 1.1.1.1 40000 443\r\n"
    with socket.create_connection(("127.0.0.1", way.own), 10, ("127.0.0.9", 0)) as sock:
        sock.sendall(forged + head("GET", "/", [("Host", HOST), way.bearer()]))
        assert b" 400 " in sock.recv(4096).split(b"\r\n")[0]


def test_a_reload_keeps_tunnels_until_the_controller_kills_the_old_process(way):
    """Which is what hard-stop-after and timeout-stop are raised for. Here it is six seconds: a busy machine takes two for
    a reload."""
    configuration = way.folder / "haproxy.cfg"
    text = configuration.read_text()
    configuration.write_text(re.sub(r"hard-stop-after \S+", "hard-stop-after 6s", text))
    assert "12h" in values(f"ingress-{way.name}")["config"].values()
    try:
        reload(way)  # from now on the running process has six seconds
        client = way.upgrade("term.terminal.preview.example.com", "/s2")
        leg = way.worker.serve()
        assert client.head()[0].endswith("101 Switching Protocols")
        before = time.monotonic()
        reload(way)
        client.say(b"through the old process")
        assert leg.message()[1] == b"through the old process"
        assert way.ask(HOST, "/", [way.bearer()]).status == 200
        assert client.ended() and 5 < time.monotonic() - before < 12
    finally:
        configuration.write_text(text)


def reload(way):
    """As the controller does: by the master, or by a new process that takes the sockets of the old one."""
    if "-W" in way.arguments:
        until(lambda: master_answers(way), 10, "the master does not answer")
        before = workers(way)
        way.processes[-1].send_signal(signal.SIGUSR2)
        until(lambda: workers(way) - before, 10, "no new worker")
        until(lambda: way.ask(HOST, "/", [way.bearer()]).status == 200, 10)
        until(lambda: not any(accepts(way, int(pid)) for pid in before), 10, "the old worker does not stop")
        return
    old = way.processes[-1]
    stats = "runtime-api.sock" if way.name == "haproxytech" else "admin.sock"
    way.processes.append(way.start("-sf", str(old.pid), "-x", f"{way.folder}/{stats}"))
    until(lambda: not accepts(way, old.pid), 10, "the old process does not stop")


def master_answers(way):
    """While it reads its configuration again it does not, and HAProxy 2.6 forgets a SIGUSR2 that comes then."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as master:
        master.connect(f"{way.folder}/master.sock")
        master.sendall(b"show version\n")
        return master.recv(100)


def accepts(way, pid):
    """Whether that process still listens."""
    if not alive(pid):
        return False
    listing = subprocess.run(["ss", "-Hltnp", f"sport = :{way.ports['https']}"], capture_output=True, text=True).stdout
    return f"pid={pid}," in listing


def workers(way):
    return set(Path(f"/proc/{way.processes[-1].pid}/task/{way.processes[-1].pid}/children").read_text().split())
