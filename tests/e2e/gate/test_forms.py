# SPDX-License-Identifier: MIT
"""The built-in routes, as the clients of each system address a sandbox: by path, by host and by header, plain and as an upgrade.
What the worker gets is asserted as its first line, its Host and the port that was meant."""

import hashlib

import pytest
from cell import ALL_SYSTEMS, until
from client import Http1, Http2

DOMAINS = {
    "opencomputer": ["oc.test", "Preview.OC2.test"],
    "opensandbox": ["os.test", "os2.test"],
    "sandbox-sdk": ["sdk.test", "sdk2.test"],
    "daytona": ["day.test", "day2.test"],
    "daytona-signed": ["signed.test"],
    "e2b": ["e2b.test", "sub.e2b2.test"],
}
ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
TO, INGRESS = "OpenSandbox-Ingress-To", "OPEN-SANDBOX-INGRESS"
PORTS = ["8080", "8888", "44772", "3000"]


def answer(connection, request):
    connection.read_body(request)
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture(scope="module")
def workers(origins):
    """By the sandbox's port, and "" for any other."""
    return {port: origins(answer=answer) for port in ["", *PORTS]}


@pytest.fixture(scope="module")
def cell(cells, workers):
    # by any port that has no address of its own the worker is meant
    record = {"worker": workers[""].url, "ports": {port: workers[port].url for port in PORTS}}
    names = ["sb-1", "a-p80-b", ID, "sb_2.x~", "ns/sb-1", hashlib.sha256(b"abc_123").hexdigest()]
    return cells(sandboxes={name: record for name in names}, config={"systems": ALL_SYSTEMS, "domains": DOMAINS, "management_ports": "1-65535", "open": True, "tokens": []})


def arrived(workers, before):
    (port,) = [port for port, worker in workers.items() if len(worker.requests) > before[port]]
    assert len(workers[port].requests) == before[port] + 1
    return port, workers[port].requests[-1]


KEEP = object()

# route, target, host (None: the gateway's), headers, the port whose worker gets it, its target, and its Host (KEEP: the client's)
PLAIN = [
    # OpenComputer: the API below /api, previews
    ("opencomputer-pty-api", "/api/sandboxes/sb-1/pty?cols=80", None, [], "", "/sandboxes/sb-1/pty?cols=80", None),
    ("opencomputer-api", "/api/sandboxes/sb-1/files/a%2Fb//c?path=/x", None, [], "", "/sandboxes/sb-1/files/a%2Fb//c?path=/x", None),
    ("opencomputer-preview", "/a?b", "sb-1-p8080.oc.test", [], "8080", "/a?b", KEEP),
    ("opencomputer-preview", "/api/sandboxes/x/y", "a-p80-b-p3000.oc.test:8443", [], "3000", "/api/sandboxes/x/y", KEEP),
    ("opencomputer-preview", "/", "SB-1-P8080.preview.oc2.TEST.", [], "8080", "/", KEEP),
    # OpenSandbox: the server's proxy, with and without /v1
    ("opensandbox-proxy", "/sandboxes/sb-1/proxy/8080", None, [], "8080", "/", None),
    ("opensandbox-proxy", "/v1/sandboxes/sb-1/proxy/8080/", None, [], "8080", "/", None),
    ("opensandbox-proxy", "/v1/sandboxes/sb-1/proxy/44772/files?x=1&x=2", None, [], "44772", "/files?x=1&x=2", None),
    ("opensandbox-proxy", f"/sandboxes/{ID}/proxy/9/a/../b", None, [], "", "/a/../b", None),
    ("opensandbox-proxy", "/sandboxes/sb-1/proxy/44772/pty/p1/ws", None, [], "44772", "/pty/p1/ws", None),
    ("opensandbox-proxy", "/sandboxes/sb_2.x~/proxy/8080/", None, [], "8080", "/", None),
    # its ingress: label, path and headers, plain and with something that looks signed
    ("opensandbox-ingress", "/a", "sb-1-8080.os.test", [], "8080", "/a", KEEP),
    ("opensandbox-ingress", "/a", f"{ID}-8080.os2.test", [], "8080", "/a", KEEP),
    ("opensandbox-ingress", "/", "sb-1-8080-x2qxvk-21e6a3d0a.os.test", [], "8080", "/", KEEP),
    ("opensandbox-ingress", "/", f"{ID}-44772-x2qxvk-21e6a3d0a.os.test", [], "44772", "/", KEEP),
    ("opensandbox-ingress-path", "/sb-1/8080/a//b?c", "os.test", [], "8080", "/a//b?c", KEEP),
    ("opensandbox-ingress-path", "/sb-1/8080", "os2.test", [], "8080", "/", KEEP),
    ("opensandbox-ingress-path", "/sb-1/8080/x2qxvk/21e6a3d0a/a", "os.test", [], "8080", "/a", KEEP),
    ("opensandbox-ingress-path", "/sb-1/8080/x2qxvk/short/a", "os.test", [], "8080", "/x2qxvk/short/a", KEEP),
    ("opensandbox-ingress-to", "/a?b", None, [(TO, "sb-1-8080")], "8080", "/a?b", KEEP),
    ("opensandbox-ingress-to", "/a", None, [(TO, f"{ID}-3000.anything.test"), (INGRESS, "sb-1-8080")], "3000", "/a", KEEP),
    ("opensandbox-ingress-to", "/a", None, [(TO, "sb-1-8080-x2qxvk-21e6a3d0a")], "8080", "/a", KEEP),
    ("opensandbox-ingress-header", "/a", None, [(INGRESS, "sb-1-44772.os.test")], "44772", "/a", KEEP),
    # the headers on the domain of the other forms: what the application's path looks like does not matter
    ("opensandbox-ingress-to", "/api/v1/users", "os.test", [(TO, "sb-1-8080")], "8080", "/api/v1/users", KEEP),
    ("opensandbox-ingress-header", "/sb-1/3000/a", "os.test", [(INGRESS, "sb-1-8080")], "8080", "/sb-1/3000/a", KEEP),
    # Cloudflare's sandbox-sdk
    ("sandbox-sdk-preview", "/a", "8080-sb-1-abc_123.sdk.test", [], "8080", "/a", KEEP),
    ("sandbox-sdk-preview", "/a", f"8080-{ID}-k.sdk2.test", [], "8080", "/a", KEEP),
    # Daytona, e2b
    ("daytona-preview", "/a", "3000-sb-1.day.test", [], "3000", "/a", KEEP),
    ("daytona-preview", "/a", f"22222-{ID}.day2.test", [], "", "/a", KEEP),
    ("daytona-signed-preview", "/a", f"3000-{ID}.signed.test", [], "3000", "/a", KEEP),
    ("daytona-signed-preview", "/a", "8080-abc_123.signed.test", [], "8080", "/a", KEEP),
    ("e2b-preview", "/a", "44772-sb-1.e2b.test", [], "44772", "/a", KEEP),
    ("e2b-preview", "/a", "8080-sb-1.sub.e2b2.test", [], "8080", "/a", KEEP),
    ("e2b-envd", "/filesystem.Filesystem/List", "49983-sb-1.e2b.test", [], "", "/filesystem.Filesystem/List", KEEP),
    ("e2b-envd", "/health", "49983-sb-1-6532622b.e2b.test", [], "", "/health", KEEP),
    ("e2b-preview", "/a", "3000-sb-1-6532622b.sub.e2b2.test", [], "3000", "/a", KEEP),
    ("e2b-header", "/a", None, [("E2b-Sandbox-Id", "sb-1"), ("E2b-Sandbox-Port", "8080")], "8080", "/a", KEEP),
    ("e2b-envd-header", "/files?path=/x", None, [("E2b-Sandbox-Id", "sb-1"), ("E2b-Sandbox-Port", "49983")], "", "/files?path=/x", KEEP),
    ("e2b-envd-header", "/health", None, [("E2b-Sandbox-Id", "sb-1")], "", "/health", KEEP),
    ("e2b-preview", "/a", "8080-sb-1.e2b.test", [("E2b-Sandbox-Id", "sb-1"), ("E2b-Sandbox-Port", "49983")], "8080", "/a", KEEP),
    ("daytona-toolbox", "/toolbox/sb-1/process/execute", None, [], "", "/process/execute", None),
    ("daytona-toolbox", "/toolbox/sb-1/files/download?path=%2Fa", None, [], "", "/files/download?path=%2Fa", None),
    ("daytona-toolbox-pty", "/toolbox/sb-1/process/pty", None, [], "", "/process/pty", None),
    ("daytona-toolbox-pty", "/toolbox/sb-1/process/pty/s1/resize", None, [], "", "/process/pty/s1/resize", None),
    # agent-sandbox
    ("agent-sandbox", "/a%2Fb?c=%20", None, [("X-Sandbox-ID", "sb-1")], "8888", "/a%2Fb?c=%20", None),
    ("agent-sandbox", "/", None, [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", "8080"), ("X-Sandbox-Namespace", "default")], "8080", "/", None),
    # no path is the gate's own
    ("agent-sandbox", "/healthz", None, [("X-Sandbox-ID", "sb-1")], "8888", "/healthz", None),
    ("e2b-preview", "/status.ok", "8080-sb-1.e2b.test", [], "8080", "/status.ok", KEEP),
    ("opensandbox-proxy", "/sandboxes/sb-1/proxy/8080/metrics", None, [], "8080", "/metrics", None),
    ("agent-sandbox", "/", None, [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Namespace", "ns"), ("X-Sandbox-UID", "u")], "8888", "/", None),
]

UPGRADES = [
    ("opencomputer-pty", "relay", "/api/sandboxes/sb-1/pty/s%2F1?token=t", None, [], "", "/sandboxes/sb-1/pty/s%2F1?token=t", None),
    ("opencomputer-exec", "relay", "/api/sandboxes/sb-1/exec/0123abcd", None, [], "", "/sandboxes/sb-1/exec/0123abcd", None),
    ("opencomputer-agent", "relay", "/api/sandboxes/sb-1/agent/0123abcd", None, [], "", "/sandboxes/sb-1/agent/0123abcd", None),
    ("opencomputer-preview", "direct", "/ws", "sb-1-p8080.oc.test", [], "8080", "/ws", KEEP),
    ("opensandbox-pty", "relay", "/sandboxes/sb-1/proxy/44772/pty/p1/ws?pty=0&since=7", None, [], "44772", "/pty/p1/ws?pty=0&since=7", None),
    ("opensandbox-pty", "relay", "/v1/sandboxes/sb-1/proxy/44772/pty/p1/ws", None, [], "44772", "/pty/p1/ws", None),
    ("terminal", "relay", "/v1/sandboxes/sb-1/proxy/8080/terminal?cols=80&rows=24", None, [], "8080", "/terminal?cols=80&rows=24", None),
    ("opensandbox-proxy", "direct", "/sandboxes/sb-1/proxy/8080/socket.io/?EIO=4&transport=websocket", None, [], "8080", "/socket.io/?EIO=4&transport=websocket", None),
    ("opensandbox-ingress", "direct", "/ws", "sb-1-8080.os.test", [], "8080", "/ws", KEEP),
    ("opensandbox-ingress-path", "direct", "/sb-1/8080/ws", "os.test", [], "8080", "/ws", KEEP),
    ("opensandbox-ingress-to", "direct", "/ws", None, [(TO, "sb-1-8080")], "8080", "/ws", KEEP),
    ("sandbox-sdk-preview", "direct", "/ws", "8080-sb-1-abc.sdk.test", [], "8080", "/ws", KEEP),
    ("daytona-preview", "direct", "/ws", "8080-sb-1.day.test", [], "8080", "/ws", KEEP),
    ("e2b-preview", "direct", "/ws", "8080-sb-1.e2b.test", [], "8080", "/ws", KEEP),
    ("e2b-envd", "direct", "/ws", "49983-sb-1.e2b.test", [], "", "/ws", KEEP),
    ("e2b-header", "direct", "/ws", None, [("E2b-Sandbox-Id", "sb-1"), ("E2b-Sandbox-Port", "8080")], "8080", "/ws", KEEP),
    ("daytona-toolbox-pty", "direct", "/toolbox/sb-1/process/pty/s1/connect", None, [], "", "/process/pty/s1/connect", None),
    ("agent-sandbox", "direct", "/ws", None, [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", "8080")], "8080", "/ws", None),
]


def check(workers, before, host, want):
    port, target, keeps = want
    got, seen = arrived(workers, before)
    assert (got, seen.target) == (port, target)
    assert seen.all("host") == [host if keeps is KEEP else f"127.0.0.1:{workers[port].port}"]
    # What was used to find the sandbox is not the application's, the client's own address is.
    assert not {TO.lower(), INGRESS.lower(), "e2b-sandbox-id", "e2b-sandbox-port"} & set(seen.names) and not any(name.startswith("x-sandbox-") for name in seen.names)
    assert seen.all("x-forwarded-host") == [host] and seen.all("x-forwarded-for") == ["127.0.0.1"]


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_every_form_of_address_reaches_its_sandbox_and_port(cell, workers, kind):
    with Http1(cell.http) if kind == "http" else Http2(cell.https) as client:
        for name, target, host, headers, *want in PLAIN:
            host, before = host or "cell.test", {port: len(worker.requests) for port, worker in workers.items()}
            response = client.request("PATCH", target, headers, b"body", host=host)
            assert response.status == 200, (name, target, host, response.body)
            try:
                check(workers, before, host, want)
            except AssertionError as e:
                raise AssertionError(f"{name} {host}{target}: {e}") from e

    def routes():
        return [line.split("route=")[1].split(" ")[0] for line in cell.access_log().splitlines()[-len(PLAIN):] if "route=" in line]

    until(lambda: routes() == [row[0] for row in PLAIN], 10, "other routes")  # a line is written after its answer


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_every_form_of_address_takes_upgrades(cell, workers, kind):
    for name, via, target, host, headers, *want in UPGRADES:
        host, before = host or "cell.test", {port: len(worker.requests) for port, worker in workers.items()}
        with Http1(cell.http) if kind == "http" else Http2(cell.https) as client:
            response = client.upgrade(target, headers, host=host)
            assert response.status == (101 if kind == "http" else 200), (name, target, response.body)
            check(workers, before, host, want)
    wanted = [f"verdict={via} route={name} " for name, via, *_ in UPGRADES]
    until(lambda: all(text in cell.access_log() for text in wanted), 10, "a tunnel is logged when it ends")


@pytest.mark.parametrize("kind", ["http", "h2"])
def test_the_origin_of_an_upgrade_is_judged_and_then_as_the_systems_have_it(cell, workers, kind):
    """OpenSandbox's server passes it on. agent-sandbox takes it off upgrades, and leaves it to plain requests."""

    def seen(upgrade, target, headers, origin):
        with Http1(cell.http) if kind == "http" else Http2(cell.https) as client:
            ask = client.upgrade if upgrade else lambda target, headers: client.request("GET", target, headers)
            response = ask(target, [*headers, ("Origin", origin)])
            return response.status in (101, 200) and workers["8080"].requests[-1].all("origin")

    proxy, box = ("/sandboxes/sb-1/proxy/8080/ws", []), ("/ws", [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", "8080")])
    assert seen(True, *proxy, "https://cell.test") == ["https://cell.test"]
    assert seen(False, *proxy, "https://elsewhere.test") == ["https://elsewhere.test"]
    assert seen(True, *box, "https://cell.test") == []
    assert seen(False, *box, "https://cell.test") == ["https://cell.test"]
    assert seen(True, *proxy, "https://elsewhere.test") is False
    assert seen(True, *box, "https://elsewhere.test") is False


@pytest.mark.parametrize(
    "target,host,headers,status",
    [
        ("/", None, [], 404),
        ("/", "oc.test", [], 404),
        ("/", "sb-1-p8080.nowhere.test", [], 404),
        ("/", "sb-1-p8080.deeper.oc.test", [], 404),
        ("/", "80-sb-1-tok.sdk.test", [], 404),  # below 1024
        ("/", "3000-sb-1-tok.sdk.test", [], 404),  # the SDK's own
        ("/", "8080-sb-1.sdk.test", [], 404),  # sandbox "sb", token "1": there is none
        ("/", "65536-sb-1.e2b.test", [], 400),
        ("/", "0-sb-1.e2b.test", [], 400),
        ("/", "080-sb-1.e2b.test", [], 400),
        ("/sandboxes/sb-1/proxy/0/", None, [], 400),
        ("/sandboxes/sb-1/proxy/65536/", None, [], 400),
        ("/sandboxes/sb-1/proxy/08/", None, [], 400),
        ("/sandboxes/sb-1/proxy/x/", None, [], 400),
        ("/v2/sandboxes/sb-1/proxy/8080/", None, [], 404),
        ("/sandboxes/sb-1/proxy/8080/../../../other/proxy/8080/", None, [], 400),
        ("/sb-1/0/", "os.test", [], 400),
        ("/", None, [(TO, "sb-1")], 404),  # sandbox "sb", port 1
        ("/", None, [(TO, "sb")], 404),
        ("/", None, [("X-Sandbox-ID", "sb/1")], 400),
        ("/", None, [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", "none")], 400),
        ("/", None, [("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Namespace", "other")], 404),
        ("/", None, [("X-Sandbox-ID", "absent")], 404),
    ],
)
def test_what_is_no_address_reaches_nobody(cell, workers, target, host, headers, status):
    before = {port: len(worker.requests) for port, worker in workers.items()}
    for client in (Http1(cell.http), Http2(cell.https)):
        with client:
            assert client.request("GET", target, headers, host=host or "cell.test").status == status
    assert {port: len(worker.requests) for port, worker in workers.items()} == before
