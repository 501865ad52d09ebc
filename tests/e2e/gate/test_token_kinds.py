# SPDX-License-Identifier: MIT
"""Credentials of the systems in the field through HAProxy: scoped tokens, signed routes, access secrets, signed file
URLs. What each opens, what it does not, and that no worker sees it."""

import base64
import hashlib
import hmac
import itertools
import json
import os
import socket
import statistics
import time
import urllib.parse

import pytest
from cell import ALL_SYSTEMS, b64, token, until
from client import WEBSOCKET, Http1

SCOPED = b"0123456789abcdef0123456789abcdef"
ROUTE_KEY = b"a key for signed routes, long enough"
URL_KEY = b"a key for signed URLs, also long enough"
SECRET = "an-access-secret-of-sb-1"
PREVIEW = "a_token_in_the_place_of_a_sandbox"  # of Daytona's signed previews
# what must never be seen by a worker or in a log
PLANTED = []

LIFE = 3000  # seconds: what is made when tests are collected is used when others have run
CONFIG = {
    "systems": ALL_SYSTEMS,
    "domains": {"opencomputer": ["oc.test"], "opensandbox": ["os.test"], "sandbox-sdk": ["sdk.test"], "daytona": ["day.test"], "daytona-signed": ["signed.test"], "e2b": ["e2b.test"]},
    "agent": {"auth_failures": 5},
    "tokens": [
        {"kind": "jwt", "alg": "HS256", "secret_file": "k1.secret"},
        {"kind": "agent-sandbox", "secret_file": "scoped"},
        {"kind": "opensandbox-route", "keys": {"a": "route.key"}},
        {"kind": "file-url", "secret_file": "url"},
        {"kind": "static", "sources": ["OpenSandbox-Secure-Access"], "need": ["http", "pty"]},
        {"kind": "static", "everywhere": True},
    ],
}


def behind(origin):
    """A record of an application that answers on the ports which are asked for here."""
    return {"worker": origin.url, "serves": "application", "ports": {port: origin.url for port in ("80", "8080", "8888", "44772")}}


def access(secret):
    return {"token_sha256": hashlib.sha256(secret.encode()).hexdigest()}


def scoped(name="sb-1", space="default", exp=None, secret=SCOPED, context=b"agent-sandbox/scoped-token/v1."):
    payload = b64(json.dumps({"ns": space, "name": name, "exp": exp or int(time.time()) + LIFE}).encode())
    made = f"v1.{payload}." + b64(hmac.new(secret, context + payload.encode(), hashlib.sha256).digest())
    PLANTED.append(made)
    return made


def base36(number):
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def route(sandbox="sb-1", port=80, expires=None, key=ROUTE_KEY):
    """(expires, signature)"""
    expires = base36(expires or int(time.time()) + LIFE)
    canonical = f"v1\nshort\n{sandbox}\n{port}\n{expires}\n".encode()
    inner = len(key).to_bytes(4, "big") + key + len(canonical).to_bytes(4, "big") + canonical
    return expires, hashlib.sha256(inner).hexdigest()[:8] + "a"


def file_url(path, operation="download", sandbox="sb-1", expires=None, key=URL_KEY):
    expires = expires or int(time.time()) + LIFE
    signed = f"opensandbox-signed-url\n{sandbox}\n{path}\n{operation}\n{expires}".encode()
    signature = hmac.new(key, signed, hashlib.sha256).hexdigest()
    PLANTED.append(signature)
    return f"/api/sandboxes/{sandbox}/files/{operation}?path={urllib.parse.quote(path, safe='')}&expires={expires}&signature={signature}"


sources = itertools.count(2)


def answer(cell, method, target, headers=(), host="cell.test", source=None):
    """From an address of its own: wrong secrets count by address."""
    number = next(sources)
    source = source or f"127.1.{number // 250}.{number % 250 + 1}"
    with Http1(cell.http) as client:
        client.sock.close()
        client.sock = socket.create_connection(("127.0.0.1", cell.http), 10, source_address=(source, 0))
        return client.request(method, target, headers, host=host)


def ask(*arguments, **more):
    """(status, error or "")"""
    response = answer(*arguments, **more)
    is_error = response.status >= 400 and response.body[:1] == b"{"
    return response.status, json.loads(response.body)["error"] if is_error else ""


GOOD = (200, "")
MISSING, INVALID, EXPIRED = (401, "token_missing"), (401, "token_invalid"), (401, "token_expired")


@pytest.fixture(scope="module")
def origin(origins):
    return origins()


@pytest.fixture(scope="module")
def cell(cells, origin):
    files = {"scoped": SCOPED + b"\n", "route.key": base64.b64encode(ROUTE_KEY) + b"\n", "url": URL_KEY}
    records = {
        "sb-1": {**behind(origin), "access": access(SECRET)},
        "sb-2": {**behind(origin), "access": access("another-secret")},
        "plain": {**behind(origin)},
        "stopped": {"state": "stopped", "access": access(SECRET)},
        "ns/sb-1": {**behind(origin)},
        hashlib.sha256(PREVIEW.encode()).hexdigest(): {"ports": {"80": origin.url}, "access": access(PREVIEW)},
        hashlib.sha256(b"another_token").hexdigest(): {**behind(origin), "access": access("not_that_one")},
    }
    PLANTED.extend([SECRET, PREVIEW])
    return cells(sandboxes=records, config=CONFIG, files=files)


# ---- every credential where its system puts it ----


def forms():
    """name, host, target, headers, what the worker gets"""
    expires, signature = route()
    label = f"sb-1-80-{expires}-{signature}"
    yield "scoped token", "cell.test", "/a?b=1", [("Authorization", "Bearer " + scoped()), ("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Port", "80")], "/a?b=1"
    yield "scoped token, scheme in capitals", "cell.test", "/a", [("Authorization", "BEARER " + scoped()), ("X-Sandbox-ID", "sb-1")], "/a"
    yield "scoped token of a namespace", "cell.test", "/a", [("Authorization", "Bearer " + scoped(space="ns")), ("X-Sandbox-ID", "sb-1"), ("X-Sandbox-Namespace", "ns")], "/a"
    yield "scoped token in the query", "sb-1-80.os.test", "/a?cellgate_token=" + scoped() + "&b=1", [], "/a?b=1"
    yield "signed host", f"{label}.os.test", "/a?b=1", [], "/a?b=1"
    yield "signed path", "os.test", f"/sb-1/80/{expires}/{signature}/a%2Fb//c?d", [], "/a%2Fb//c?d"
    yield "signed path, no rest", "os.test", f"/sb-1/80/{expires}/{signature}", [], "/"
    yield "signed header", "app.test", "/a", [("OpenSandbox-Ingress-To", label)], "/a"
    yield "signed header with a domain", "app.test", "/a", [("OPEN-SANDBOX-INGRESS", label + ".any.where")], "/a"
    for what, host in [("plain", "sb-1-80.os.test"), ("signed", f"sb-1-80-{expires}-{signature[:7]}0a.os.test")]:
        yield f"access header, {what} host", host, "/a", [("OpenSandbox-Secure-Access", SECRET)], "/a"
    yield "access header and path", "os.test", "/sb-1/80/a", [("OpenSandbox-Secure-Access", SECRET)], "/a"
    yield "access header on the server's route", "cell.test", "/v1/sandboxes/sb-1/proxy/80/a", [("opensandbox-secure-access", SECRET)], "/a"
    yield "OpenComputer's preview header", "sb-1-p80.oc.test", "/a", [("X-OC-Preview-Token", SECRET)], "/a"
    yield "OpenComputer's preview as bearer", "sb-1-p80.oc.test", "/a", [("Authorization", "Bearer " + SECRET)], "/a"
    yield "Daytona's header", "80-sb-1.day.test", "/a", [("X-Daytona-Preview-Token", SECRET)], "/a"
    yield "Daytona's query", "80-sb-1.day.test", "/a?x=1&DAYTONA_SANDBOX_AUTH_KEY=" + SECRET, [], "/a?x=1"
    yield "Daytona's signed host", f"80-{PREVIEW}.signed.test", "/a?x=1", [], "/a?x=1"
    yield "Daytona's unsigned host beside it", "80-sb-1.signed.test", "/a", [("X-Daytona-Preview-Token", SECRET)], "/a"
    yield "e2b's header", "80-sb-1.e2b.test", "/a", [("e2b-traffic-access-token", SECRET)], "/a"
    yield "signed download", "cell.test", file_url("/home/a b+ü.txt"), [], "/sandboxes/sb-1/files/download?path=%2Fhome%2Fa%20b%2B%C3%BC.txt"
    yield "own token", "sb-1-80.os.test", "/a", [("Authorization", "Bearer " + token("test", sandbox="sb-1", ttl=LIFE))], "/a"


@pytest.mark.parametrize("name, host, target, headers, wanted", forms(), ids=lambda x: x if isinstance(x, str) and " " in x else "")
def test_each_credential_opens_its_sandbox_and_stays_here(cell, origin, name, host, target, headers, wanted):
    before = len(origin.requests)
    assert ask(cell, "GET", target, headers, host) == GOOD
    (seen,) = origin.requests[before:]
    assert seen.target == wanted
    for credential in [*PLANTED, "secure-access", "preview-token", "traffic-access"]:
        assert credential.encode() not in seen.head.lower() or credential in host, seen.head
    without_host = seen.head.replace(host.encode(), b"")
    for value in [v for n, v in headers if n.lower() not in ("x-sandbox-id", "x-sandbox-port", "x-sandbox-namespace")]:
        assert value.encode() not in without_host


def test_sandbox_sdks_label_token_is_the_secret(cells, origin):
    """In a label it must be of [a-z0-9_]. Who has it learns that the sandbox is stopped, and nobody else."""
    records = {"sb-1": {**behind(origin), "access": access("abcdef0123456_89")}, "sb-3": {"state": "stopped", "access": access("abcdef0123456_89")}}
    cell = cells(sandboxes=records, config=CONFIG | {"tokens": [{"kind": "static", "everywhere": True}]})
    assert ask(cell, "GET", "/", host="8080-sb-1-abcdef0123456_89.sdk.test") == GOOD
    assert ask(cell, "GET", "/", host="8080-sb-1-abcdef0123456_88.sdk.test") == INVALID
    assert ask(cell, "GET", "/", host="8080-sb-2-abcdef0123456_89.sdk.test") == INVALID
    assert ask(cell, "GET", "/", host="8080-sb-3-abcdef0123456_89.sdk.test") == (410, "sandbox_stopped")
    assert ask(cell, "GET", "/", host="8080-sb-3-abcdef0123456_88.sdk.test") == INVALID


def test_a_secret_in_the_query_becomes_a_cookie(cells, origin):
    """Daytona's parameter, on a route that has a cookie: a page's links and scripts do not repeat it."""
    routes = [{"name": "preview", "host": "{port}-{sandbox}.<daytona>", "cookie": True}]
    cell = cells(sandboxes={"sb-1": {**behind(origin), "access": access(SECRET)}}, config={"domains": {"daytona": ["day.test"]}, "routes": routes, "tokens": [{"kind": "static", "everywhere": True}]})
    host = "80-sb-1.day.test"
    response = answer(cell, "GET", f"/a?x=1&DAYTONA_SANDBOX_AUTH_KEY={SECRET}&y", host=host)
    assert (response.status, response.get("location"), response.get("cache-control")) == (302, "/a?x=1&y", "no-store")
    assert response.get("set-cookie").startswith(f"__Host-cellgate={SECRET}; Path=/; Max-Age=86400; Secure; HttpOnly")
    before = len(origin.requests)
    cookie = ("Cookie", f"own=1; __Host-cellgate={SECRET}")
    assert ask(cell, "GET", "/a?x=1&y", [cookie], host) == GOOD
    (seen,) = origin.requests[before:]
    assert seen.target == "/a?x=1&y" and [value.rstrip("; ") for value in seen.all("cookie")] == ["own=1"]
    assert ask(cell, "GET", "/a?DAYTONA_SANDBOX_AUTH_KEY=wrong", [], host) == INVALID
    assert ask(cell, "GET", "/a", [("Cookie", "__Host-cellgate=wrong")], host) == INVALID


@pytest.mark.parametrize("name", ["OpenSandbox-Secure-Access", "X-OC-Preview-Token", "X-Daytona-Preview-Token", "e2b-traffic-access-token"])
def test_two_lines_of_an_access_header_are_refused(cell, origin, name):
    """Whoever looks at the second one sees another credential, or the same: it is not clear which is meant."""
    before = len(origin.requests)
    for second in (SECRET, "wrong", ""):
        for lines in ([SECRET, second], [second, SECRET]):
            assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/80/", [(name, value) for value in lines]) == (400, "bad_request")
    assert len(origin.requests) == before
    assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/80/", [(name, SECRET)]) == GOOD


# ---- what each does not open ----


def test_a_signed_preview_of_daytona_is_for_its_port_and_for_who_knows_the_token(cell):
    """The directory holds it under its hash, and neither a log nor a metric knows it (below)."""
    digest = hashlib.sha256(PREVIEW.encode()).hexdigest()
    assert ask(cell, "GET", "/", host=f"80-{PREVIEW}.signed.test") == GOOD
    assert ask(cell, "GET", "/", [*WEBSOCKET], host=f"80-{PREVIEW}.signed.test")[0] == 101
    assert ask(cell, "GET", "/", host=f"81-{PREVIEW}.signed.test") == (403, "not_granted")
    assert ask(cell, "GET", "/", host=f"80-{PREVIEW[:-1]}.signed.test") == INVALID
    assert ask(cell, "GET", "/", host=f"80-{digest}.signed.test") == INVALID  # which is what others may see
    assert ask(cell, "GET", "/", host="80-another_token.signed.test") == INVALID  # its record says otherwise
    assert ask(cell, "GET", "/", host="80-sb-1.signed.test") == MISSING
    until(lambda: f"sandbox={digest} " in cell.access_log(), 10, "it is not logged by its hash")


def test_scoped_tokens_of_agent_sandbox(cell):
    def asked(made, *headers, name="sb-1"):
        return ask(cell, "GET", "/", [("Authorization", "Bearer " + made), ("X-Sandbox-ID", name), *headers])

    now = int(time.time())
    assert asked(scoped()) == GOOD
    assert asked(scoped("sb-2")) == (403, "wrong_sandbox")
    assert asked(scoped(space="ns")) == (403, "wrong_sandbox")
    assert asked(scoped(), ("X-Sandbox-Namespace", "ns")) == (403, "wrong_sandbox")
    assert asked(scoped(), ("X-Sandbox-UID", "u")) == (403, "not_granted")
    assert asked(scoped(), ("X-Sandbox-Pod-IP", "10.0.0.1")) == (403, "not_granted")
    assert asked(scoped(secret=b"another secret of thirty-two bytes")) == INVALID
    assert asked(scoped(context=b"")) == INVALID
    assert asked(scoped()[3:]) == INVALID
    assert asked(scoped() + "=") == INVALID
    assert asked(scoped(exp=now - 1)) == EXPIRED
    # a bad token is refused before anybody is told about a sandbox
    assert asked(scoped(exp=now - 1), name="nobody") == EXPIRED
    assert asked(scoped("nobody"), name="nobody") == (404, "sandbox_not_found")


@pytest.mark.parametrize("form", ["label", "header", "path"])
def test_openSandboxs_ingress_decides_by_header_then_signature(cell, form):
    """The matrix of its own tests: a header, even empty, decides; there is no second chance by signature."""
    good, bad, late, other = route(), (route()[0], "00000000a"), route(expires=1), route(port=81)

    def asked(signature=None, header=None, sandbox="sb-1"):
        headers = [] if header is None else [("OpenSandbox-Secure-Access", header)]
        if form == "path":
            return ask(cell, "GET", "/".join(["", sandbox, "80", *(signature or ()), "a"]), headers, "os.test")
        label = "-".join([sandbox, "80", *(signature or ())])
        if form == "header":
            return ask(cell, "GET", "/a", [("OpenSandbox-Ingress-To", label), *headers])
        return ask(cell, "GET", "/a", headers, label + ".os.test")

    assert asked() == MISSING
    assert asked(good) == GOOD
    assert asked(bad) == INVALID
    assert asked(other) == INVALID
    assert asked(late) == EXPIRED
    assert asked((good[0], good[1][:8] + "b")) == INVALID  # no such key
    assert asked(("3w5e11264sgsg", good[1])) == (400, "bad_request")
    assert asked(None, SECRET) == GOOD
    assert asked(bad, SECRET) == GOOD
    assert asked(late, SECRET) == GOOD
    assert asked(good, "wrong") == INVALID
    assert asked(good, "") == INVALID
    assert asked(None, SECRET, "sb-2") == INVALID
    assert asked(None, SECRET, "nobody") == INVALID
    assert asked(route("nobody"), None, "nobody") == (404, "sandbox_not_found")


def test_signed_file_urls_are_for_one_file_and_direction(cell, origin):
    now = int(time.time())
    assert ask(cell, "GET", file_url("/a")) == GOOD
    assert ask(cell, "PUT", file_url("/a", "upload")) == GOOD
    assert ask(cell, "GET", file_url("/a").replace("path=%2Fa", "path=%2Fb")) == INVALID
    assert ask(cell, "GET", file_url("/a").replace("download", "upload")) == MISSING
    assert ask(cell, "PUT", file_url("/a", "upload").replace("upload", "download")) == MISSING
    assert ask(cell, "GET", file_url("/a").replace("sb-1", "sb-2")) == INVALID
    assert ask(cell, "GET", file_url("/a").replace("files/download", "exec")) == MISSING
    # nor for what an application, or another part of the API, has at a path that ends like it
    elsewhere = (403, "not_granted")
    assert ask(cell, "GET", file_url("/a").replace("/files/", "/x/files/")) == elsewhere
    assert ask(cell, "GET", file_url("/a").replace("/api/sandboxes/sb-1/", "/api/sandboxes/sb-1/sb-1/")) == elsewhere
    assert ask(cell, "GET", file_url("/a").replace("/api/sandboxes/sb-1/", "/v1/sandboxes/sb-1/proxy/80/")) == elsewhere
    assert ask(cell, "GET", file_url("/a").replace("/api/sandboxes/", "/"), host="sb-1-p80.oc.test") == elsewhere
    assert ask(cell, "GET", file_url("/a", expires=now - 2)) == EXPIRED
    assert ask(cell, "GET", file_url("/a", expires=now + 86400 + 60)) == INVALID
    assert ask(cell, "GET", file_url("/a").partition("&signature")[0]) == MISSING
    assert ask(cell, "GET", file_url("/a") + "&path=%2Fb") == (400, "bad_request")
    assert ask(cell, "GET", file_url("/a").replace("expires=", "x=")) == (400, "bad_request")
    assert ask(cell, "GET", file_url("/a", sandbox="nobody")) == (404, "sandbox_not_found")


def test_a_token_for_terminals_may_make_them(cell):
    """The capability of OpenComputer's own gateway does; one for pages does not open a shell."""
    for word, path in (("pty", "pty"), ("pty", "pty/s1/resize"), ("exec", "exec"), ("exec", "exec/s1/kill"), ("agent", "agent")):
        target = f"/api/sandboxes/sb-1/{path}"
        assert ask(cell, "POST", target, [cell.bearer(need=[word])]) == GOOD
        assert ask(cell, "POST", target, [cell.bearer(need=["http"])]) == (403, "not_granted")
    assert ask(cell, "GET", "/api/sandboxes/sb-1/files", [cell.bearer(need=["http"])]) == GOOD
    assert ask(cell, "GET", "/api/sandboxes/sb-1/files", [cell.bearer(need=["pty"])]) == (403, "not_granted")


def test_a_secret_grants_what_its_entry_says_and_its_own_sandbox_only(cell):
    preview = "/v1/sandboxes/sb-1/proxy/80/pty/s/ws"
    assert ask(cell, "GET", preview, [*WEBSOCKET, ("X-Daytona-Preview-Token", SECRET)]) == (403, "not_granted")
    assert ask(cell, "GET", preview, [*WEBSOCKET, ("X-Daytona-Preview-Token", "wrong")]) == INVALID
    assert ask(cell, "GET", "/v1/sandboxes/sb-2/proxy/80/", [("X-OC-Preview-Token", SECRET)]) == INVALID
    assert ask(cell, "GET", "/v1/sandboxes/plain/proxy/80/", [("X-OC-Preview-Token", SECRET)]) == INVALID
    assert ask(cell, "GET", "/v1/sandboxes/plain/proxy/80/", [("X-OC-Preview-Token", "")]) == INVALID


def test_nobody_learns_which_sandboxes_there_are(cell):
    """Known, unknown, stopped, without a secret: the same bytes."""
    answers = set()
    for sandbox in ("sb-1", "nobody", "stopped", "plain"):
        for headers in ([("OpenSandbox-Secure-Access", "wrong")], [("X-OC-Preview-Token", "0" * 64)], [("Authorization", "Bearer wrong")]):
            response = answer(cell, "GET", f"/v1/sandboxes/{sandbox}/proxy/80/", headers)
            answers.add((response.status, response.body, tuple(response.headers)))
    assert len(answers) == 1 and answers.pop()[0] == 401


def test_wrong_secrets_of_one_address_are_bounded(cell):
    seen = set()
    for i in range(500):
        target = f"/v1/sandboxes/{'sb-1' if i % 2 else 'nobody'}/proxy/80/"
        seen.add(ask(cell, "GET", target, [("OpenSandbox-Secure-Access", f"wrong{i}")], source="127.9.9.9"))
        if len(seen) == 2:
            break
    assert seen == {INVALID, (429, "too_many_requests")}
    # others go on, and so does who has a token
    assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/80/", [("OpenSandbox-Secure-Access", SECRET)]) == GOOD
    assert ask(cell, "GET", "/v1/sandboxes/sb-1/proxy/80/", [cell.bearer()], source="127.9.9.9") == GOOD


@pytest.mark.parametrize("sandbox", ["sb-1", "nobody"])
def test_wrong_signatures_of_one_address_are_bounded(cell, sandbox):
    """They have 32 bits: without a bound all of them could be tried."""
    expires, source = route()[0], "127.9.8." + ("1" if sandbox == "sb-1" else "2")
    guess = lambda i: ask(cell, "GET", "/", host=f"{sandbox}-80-{expires}-{i:08x}a.os.test", source=source)  # noqa: E731
    seen = set()
    for i in range(500):
        seen.add(guess(i))
        if len(seen) == 2:
            break
    assert seen == {INVALID, (429, "too_many_requests")}
    # every other address goes on
    for i in range(10, 60):
        assert ask(cell, "GET", "/", host=f"{sandbox}-80-{expires}-{i:08x}a.os.test", source=f"127.9.7.{i}") == INVALID
    assert ask(cell, "GET", "/", host="-".join(["sb-1-80", *route()]) + ".os.test") == GOOD
    assert ask(cell, "GET", "/", [cell.bearer()], host="sb-1-80.os.test", source=source) == GOOD


@pytest.mark.skipif(not os.environ.get("CELLGATE_LONG"), reason="a measurement")
def test_an_unknown_sandbox_and_a_wrong_secret_take_the_same_time(cell):
    """Medians of the agent's own time as HAProxy would see it; a busy machine makes it coarse."""
    times = {"sb-1": [], "nobody": []}
    for i in range(1500):
        for sandbox, list_ in times.items():
            started = time.perf_counter()
            ask(cell, "GET", f"/v1/sandboxes/{sandbox}/proxy/80/", [("OpenSandbox-Secure-Access", f"wrong{i}")])
            list_.append(time.perf_counter() - started)
    known, unknown = (statistics.median(x) for x in times.values())
    assert abs(known - unknown) < 0.1 * max(known, unknown)


# ---- rotation, revocation ----


def test_keys_change_without_a_restart(cell):
    def asked(made):
        return ask(cell, "GET", "/", [("Authorization", "Bearer " + made), ("X-Sandbox-ID", "sb-1")])

    def change(secret):
        part = cell.folder / "scoped.part"
        part.write_bytes(secret)
        part.rename(cell.folder / "scoped")

    other = b"the next secret, of thirty-two bytes or more"
    old, new = scoped(), scoped(secret=other)
    assert asked(old) == GOOD
    try:
        change(other)
        until(lambda: asked(new) == GOOD, 10)
        # whichever thread is asked: one has shown the new key, so no other takes the old one
        assert [asked(old) for _ in range(8)] == [INVALID] * 8
    finally:
        change(SCOPED)
    until(lambda: asked(old) == GOOD, 10)
    assert [asked(new) for _ in range(8)] == [INVALID] * 8


def test_not_before_refuses_what_does_not_say_when_it_was_made(cell, origin):
    def asked():
        return ask(cell, "GET", "/", [("Authorization", "Bearer " + scoped("sb-3")), ("X-Sandbox-ID", "sb-3")])

    cell.set_sandboxes(**{"sb-3": {**behind(origin)}})
    until(lambda: asked() == GOOD)
    cell.set_sandboxes(**{"sb-3": {**behind(origin), "not_before": 1}})
    until(lambda: asked() == (401, "token_revoked"))


def test_not_before_ends_the_tunnels_of_what_does_not_say_when_it_was_made(cell, origin):
    bearer = ("Authorization", "Bearer " + scoped("sb-5"))
    cell.set_sandboxes(**{"sb-5": {**behind(origin)}})
    until(lambda: ask(cell, "GET", "/v1/sandboxes/sb-5/proxy/80/", [bearer]) == GOOD)
    with Http1(cell.http) as client:
        assert client.upgrade("/v1/sandboxes/sb-5/proxy/80/pty/s/ws", [bearer]).status == 101
        cell.set_sandboxes(**{"sb-5": {**behind(origin), "not_before": 1}})
        assert client.read_until(b"\x03\xf0token revoked") is not None  # 1008


def test_a_new_secret_ends_the_old_one_and_its_tunnels(cell, origin):
    def asked(secret):
        return ask(cell, "GET", "/v1/sandboxes/sb-4/proxy/80/", [("OpenSandbox-Secure-Access", secret)])

    cell.set_sandboxes(**{"sb-4": {**behind(origin), "access": access("first")}})
    until(lambda: asked("first") == GOOD)
    with Http1(cell.http) as client:
        response = client.upgrade("/v1/sandboxes/sb-4/proxy/80/pty/s/ws", [("OpenSandbox-Secure-Access", "first")])
        assert response.status == 101
        cell.set_sandboxes(**{"sb-4": {**behind(origin), "access": access("second")}})
        until(lambda: asked("second") == GOOD)
        assert asked("first") == INVALID
        assert client.read_until(b"\x03\xf0token revoked") is not None  # 1008


def test_no_credential_is_in_a_log(cell):
    logs = cell.access_log() + (cell.run_dir / "agent.log").read_text() + (cell.run_dir / "relay.log").read_text() + cell.admin("/metrics")
    assert 'cellgate_agent_tokens_total{kind="opensandbox-route",outcome="none"}' in logs
    for credential in {*PLANTED, "another-secret", "first", route()[1]}:
        assert credential not in logs.replace("first_", "")
