# SPDX-License-Identifier: MIT
"""What whoever has the relay's rights can do with HAProxy's sockets for it: one test for each line of security.md about a relay
that was taken over, but those that test_neighbour.py and test_confinement.py have."""

import base64
import contextlib
import hashlib
import hmac
import re
import socket
import ssl
import struct
import time
import urllib.parse

import pytest
from cell import AT_ONCE, until
from client import Http1
from false_agent import FalseHaproxy, variables
from test_egress import HOST, certificate, destinations, rules  # noqa: F401 fixtures
from test_egress_requests import SECRET, ask, refused, site  # noqa: F401 fixtures

OTHER = "other.example.org"
FOREVER = 2**32 - 1


def proxy_header(address, port, authority, unique_id=None, source="0.0.0.0"):
    """The PROXY protocol, version 2, as the relay writes it (spoa/proto/proxy_header.c)."""
    values = b"".join(bytes([kind]) + struct.pack(">H", len(value)) + value for kind, value in ((2, authority), (5, unique_id)) if value is not None)
    ends = socket.inet_aton(source) + socket.inet_aton(address) + struct.pack(">HH", 0, port)
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", len(ends) + len(values)) + ends + values


def proof(cell, port, name=b"sb-1", host=HOST, address="127.0.0.1", connection=b"id-1", issued=0, until=FOREVER, key=None, org=b""):
    """What the agent gives the relay for a CONNECT (spoa/agent/token/inside_proof.h); `issued` is in seconds from now."""
    key = key or (cell.run_dir / "agent-relay.sock.key").read_bytes()
    times = struct.pack(">II", int(time.time()) + issued, until)
    owner = hmac.new(key, b"cellgate inside owner 1;" + org, hashlib.sha256).digest()[:6]
    parts = [b"cellgate inside 2;", times + owner, b"\x04", socket.inet_aton(address), struct.pack(">HH", port, len(host)), host.encode(), struct.pack(">H", len(connection)), connection, name]
    mac = hmac.new(key, b"".join(parts), hashlib.sha256).digest()[:16]
    return base64.urlsafe_b64encode(times + owner + mac) + b" " + connection + b" " + name


def inside(cell, port, unique_id, tls=True, authority=HOST, name=HOST, address="127.0.0.1"):
    """A connection to HAProxy, as the relay makes it for a CONNECT that is inspected."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(cell.run_dir / ("egress-tls.sock" if tls else "egress-http.sock")))
    sock.sendall(proxy_header(address, port, authority.encode(), unique_id))
    if tls:
        sock = ssl.create_default_context(cafile=cell.egress_ca).wrap_socket(sock, server_hostname=name)
    return Http1(None, sock=sock)


def says(cell, port, unique_id, host=HOST, **more):
    client = inside(cell, port, unique_id, **more)
    with contextlib.closing(client.sock):
        return client.request("GET", "/", [], b"", host=f"{host}:{port}")


def forgeries(cell, port):
    """Unique ids that are no proof of a connection of sb-1 to HOST, and those of others or of another time."""
    good = proof(cell, port)
    yield "nothing", None
    yield "a name", b"sb-1"
    yield "an id and a name", b"id-1 sb-1"
    yield "no proof in front", b"A" * 40 + b" id-1 sb-1"
    yield "a proof without a name", good[:40]
    yield "a proof that is cut", good[:39] + good[40:]
    yield "another sandbox", good.replace(b"sb-1", b"sb-2")
    yield "a namespace", good.replace(b"sb-1", b"team/sb-1")
    yield "another id", good.replace(b"id-1", b"id-2")
    yield "a part of the id for the name", good.replace(b"id-1 ", b"id-1  ")
    yield "the proof of another sandbox", proof(cell, port, name=b"sb-2")[:40] + good[40:]
    yield "another key", proof(cell, port, key=b"k" * 32)
    yield "another host", proof(cell, port, host=OTHER)
    yield "another port", proof(cell, port + 1)
    yield "another address", proof(cell, port, address="127.0.0.2")
    raw = base64.urlsafe_b64decode(good[:40])
    yield "another time", base64.urlsafe_b64encode(struct.pack(">I", struct.unpack(">I", raw[:4])[0] - 1) + raw[4:]) + good[40:]
    yield "another owner", base64.urlsafe_b64encode(raw[:13] + bytes([raw[13] ^ 1]) + raw[14:]) + good[40:]
    yield "another end", base64.urlsafe_b64encode(raw[:4] + struct.pack(">I", FOREVER - 1) + raw[8:]) + good[40:]
    # relay.head_time is 10 s: this is as late as an honest client can be, and a moment
    yield "a CONNECT of a minute ago", proof(cell, port, issued=-60)
    yield "a CONNECT that is to come", proof(cell, port, issued=60)
    yield "a token that has expired", proof(cell, port, until=int(time.time()) - 1)


@pytest.mark.parametrize("tls", [True, False], ids=["egress-tls.sock", "egress-http.sock"])
def test_no_one_is_a_sandbox_without_a_connect_that_the_agent_allowed(site, tls):  # noqa: F811
    credential = {"set": {"Authorization": {"secret": "token"}}, "secrets": SECRET.encode() + b"\n"} if tls else {}
    cell, port, origin = site(tls=tls, **credential)
    passed = {}
    for what, unique_id in forgeries(cell, port):
        got = says(cell, port, unique_id, tls=tls)
        if got.status != 403 or refused(got)[1] != "egress_denied":
            passed[what] = got.status
    assert not passed and origin.seen == []
    # and the forgeries are not refused for another reason: the agent's own words pass
    assert says(cell, port, proof(cell, port), tls=tls).status == 200
    assert says(cell, port, proof(cell, port, issued=-20, until=int(time.time()) + 60), tls=tls).status == 200
    assert len(origin.seen) == 2


def test_a_proof_opens_no_other_destination(site):  # noqa: F811
    """Of a sandbox that may reach both."""
    cell, port, origin = site()
    cell.set_sandboxes(**{"sb-1": rules(*({"host": host, "ports": [port], "private": True, "inspect": True} for host in (HOST, OTHER)))})
    assert refused(says(cell, port, proof(cell, port), host=OTHER, authority=OTHER, name=OTHER))[:3] == (403, "egress_denied", "nobody proves whose connection this is")
    assert refused(says(cell, port, proof(cell, port), address="127.0.0.2"))[:2] == (403, "egress_denied")
    assert origin.seen == []


def told(cell, port, org="a", **claims):
    """What the agent says of a CONNECT of sb-1 to HAProxy."""
    haproxy = FalseHaproxy(cell.run_dir / "agent.sock")
    claims |= {"org": org} if org else {}
    lines = f"host: x\r\nproxy-authorization: Bearer {cell.token('sb-1', need=['egress'], **claims)}\r\n\r\n"
    haproxy.ask({1: {"method": "CONNECT", "version": "1.1", "target": f"{HOST}:{port}", "headers": lines, "source": bytes([127, 0, 0, 1])}}, "cell-egress")
    answer = variables(haproxy.receive()[2])
    haproxy.close()
    return answer


def proof_of_a_connect(cell, port, org=None):
    """What the agent itself writes for one, which a relay that was taken over keeps."""
    handover = told(cell, port, org)["handover"].decode()
    return urllib.parse.unquote_to_bytes(dict(part.split("=", 1) for part in handover.split(";"))["inside"])


def test_a_proof_is_for_the_owner_whose_the_sandbox_was(site):  # noqa: F811
    """A request of somebody's old connection gets no secret of the sandbox that has its name by now, whatever its relay has heard."""
    cell, port, origin = site(set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode() + b"\n")
    rule = {"host": HOST, "ports": [port], "private": True, "inspect": True, "set": {"Authorization": {"secret": "token"}}}

    def owned_by(org):
        cell.set_sandboxes(**{"sb-1": rules(rule) | ({"org": org} if org else {})})
        until(lambda: [("handover" in told(cell, port, other)) for other in ("a", "b")] == [org == "a", org == "b"])
        origin.seen.clear()

    owned_by("a")
    of_a = [proof_of_a_connect(cell, port, org="a"), proof_of_a_connect(cell, port)]
    assert [says(cell, port, kept).status for kept in of_a] == [200, 200]
    owned_by("b")
    for kept in of_a:
        assert refused(says(cell, port, kept))[:3] == (403, "egress_denied", "the directory has no such sandbox")
    assert origin.seen == []
    # as a tunnel does, one of a sandbox that was nobody's stays
    owned_by("")
    nobodys = proof_of_a_connect(cell, port)
    owned_by("b")
    assert says(cell, port, nobodys).status == 200


def test_who_asks_for_another_ones_sandbox_learns_nothing_of_it(site):  # noqa: F811
    cell, port, _ = site()
    answers = []
    for record, reason in ({"org": "b"}, b"no rule is about this destination"), ({"org": "b", "state": "stopped"}, b"the sandbox has been stopped"), (None, b"the directory has no such sandbox"):
        cell.set_sandboxes(**{"sb-1": record and rules() | record})
        until(lambda: told(cell, port, "b").get("reason") == reason)  # noqa: B023
        answers.append({name: value for name, value in told(cell, port).items() if name != "ptime"})
    assert answers[0] == answers[1] == answers[2] and answers[0]["error"] == b"egress_denied"


def test_a_connection_lasts_beyond_the_time_for_its_proof(site):  # noqa: F811
    """What counts is when it began, not when a request in it is asked about."""
    cell, port, origin = site()
    begun = time.time()
    kept = proof(cell, port, issued=-40)  # 50 s are the bound
    client = inside(cell, port, kept)
    with contextlib.closing(client.sock):
        assert client.request("GET", "/", [], b"", host=f"{HOST}:{port}").status == 200
        time.sleep(max(0, begun + 12 - time.time()))
        assert client.request("GET", "/", [], b"", host=f"{HOST}:{port}").status == 200
    assert refused(says(cell, port, kept))[:2] == (403, "egress_denied")  # one that begins now
    assert len(origin.seen) == 2


def test_a_proof_outlives_the_agent_and_is_in_no_log(site):  # noqa: F811
    cell, port, origin = site()
    kept = proof(cell, port)
    assert ask(cell, port).status == 200
    assert says(cell, port, kept).status == 200
    old = cell.pid("agent")
    cell.kill("agent")
    until(lambda: cell.pid("agent") != old, 10, "no agent is started again")
    until(lambda: says(cell, port, kept).status == 200, 10, "the new agent does not take it")
    logs = "".join(path.read_text(errors="replace") for path in cell.run_dir.glob("*.log"))
    assert kept[:40].decode() not in logs
    ids = re.findall(r" connection=(\S*) sb-1 ", logs)
    assert re.fullmatch(r"[0-9a-f-]{36}", ids[0]) and set(ids[1:]) == {"id-1"}, ids


# ---- where it may dial ----


def through(cell, listener, address, port, authority, said=b""):
    """All that comes back through one of HAProxy's sockets: up to the end of a JSON object, or of the connection."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(20)
        sock.connect(str(cell.run_dir / listener))
        data = b""
        with contextlib.suppress(ConnectionError):
            sock.sendall(proxy_header(address, port, authority) + said)
            while not data.endswith(b"}") and (more := sock.recv(65536)):
                data += more
        return data


NEVER = ["169.254.169.254", "169.254.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16"]


def test_the_way_out_has_no_credential_and_leads_to_no_metadata_service(site):  # noqa: F811
    cell, port, origin = site(set={"Authorization": {"secret": "token"}}, secrets=SECRET.encode() + b"\n")
    request = f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n".encode()
    assert through(cell, "egress-out.sock", "127.0.0.1", port, HOST.encode(), request).startswith(b"HTTP/1.1 200 ")
    assert [name.lower() for name, _ in origin.seen[0].headers] == ["host", "connection"]
    assert through(cell, "egress-out.sock", "127.0.0.1", port, OTHER.encode(), request) == b""  # whose certificate it is not
    assert through(cell, "egress-out.sock", "127.0.0.1", port, None, request) == b""
    for address in (*NEVER, "0.0.0.0", "224.0.0.1"):
        assert through(cell, "egress-out.sock", address, 443, HOST.encode(), request) == b"", address
    assert len(origin.seen) == 1
    said = [line for line in (cell.run_dir / "haproxy.log").read_text().splitlines() if line.startswith("destination ")]
    assert not [line for line in said if any(f"to={address}:" in line for address in NEVER)], said


def test_the_way_to_workers_leads_to_workers_alone(cells):
    """With a credential of the record only if the agent gave one, which it does for a ticket."""
    cell = cells()
    with socket.create_server(("127.0.0.1", 0)) as worker:
        worker.settimeout(20)
        port = worker.getsockname()[1]
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(cell.run_dir / "worker-tls.sock"))
        sock.sendall(proxy_header("127.0.0.1", port, b"worker.example.org"))
        met, _ = worker.accept()
        met.settimeout(20)
        assert met.recv(3)[:2] == b"\x16\x03"  # a ClientHello, and nothing before it
        met.close()
        sock.close()
        before = time.monotonic()
        for address in (*NEVER, "192.0.2.7", "10.255.0.1"):
            assert through(cell, "worker-tls.sock", address, port, b"worker.example.org", b"x") == b"", address
        assert through(cell, "worker-tls.sock", "127.0.0.1", port, None, b"x") == b""
        assert time.monotonic() - before < 2 * AT_ONCE  # HAProxy waits 2 s for each that it dials
        worker.setblocking(False)
        with pytest.raises(BlockingIOError):
            worker.accept()


def asked_by(cell, source, path, *headers):
    """What the agent says to HAProxy of a request that comes from there, as HAProxy sees it."""
    haproxy = FalseHaproxy(cell.run_dir / "agent.sock")
    lines = "".join(f"{line}\r\n" for line in ("host: h", *headers)) + "\r\n"
    haproxy.ask({1: {"id": "id-1", "method": "GET", "version": "1.1", "path": path, "headers": lines, "source": socket.inet_aton(source), "tls": True}})
    answer = variables(haproxy.receive()[2])
    haproxy.close()
    return answer


def proof_of_a_mux(cell, source):
    """What the agent gives the relay with a mux socket that this address opens (spoa/agent/token/mux_proof.h)."""
    handover = asked_by(cell, source, "/v1/mux", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==")["handover"].decode()
    return dict(part.split("=", 1) for part in handover.split(";")).get("source", "").encode()


def in_a_mux(cell, source, unique_id, *headers):
    """The statuses of a request that the relay sends for a client of this address."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.settimeout(20)
        sock.connect(str(cell.run_dir / "mux.sock"))
        lines = "".join(f"{line}\r\n" for line in ("Host: h", *headers, "Connection: close"))
        sock.sendall(proxy_header("0.0.0.0", 443, None, unique_id, source) + f"GET /w/sb-1/x HTTP/1.1\r\n{lines}\r\n".encode())
        return [int(status) for status in re.findall(rb"^HTTP/1.1 (\d+)", b"".join(iter(lambda: sock.recv(65536), b"")), re.M)]


@pytest.fixture
def mux(cells):
    routes = [{"name": "mux", "path": "/v1/mux", "upgrade": True, "via": "relay", "need": "none", "mux": "sandbox-sdk"},
              {"name": "http", "path": "/w/{sandbox}/{rest...}", "need": "exec"}]
    return cells(config={"routes": routes, "relay": {"mux": "unix@mux.sock"}, "agent": {"auth_failures": 3, "threads": 1}}, sandboxes={"sb-1": {"worker": "http://127.0.0.1:9"}})


CLIENT, OTHER_CLIENT = "10.9.8.7", "10.9.8.8"
WRONG = "authorization: Bearer x.y.z"


def test_a_request_of_a_mux_needs_a_token(mux):
    good, known = f"Authorization: Bearer {mux.token('sb-1', need=['exec'])}", proof_of_a_mux(mux, CLIENT)
    for headers in ([], [WRONG], ["X-Cell-Handover: sandbox=sb-1"]):
        assert in_a_mux(mux, CLIENT, known, *headers) == [401], headers
    assert in_a_mux(mux, CLIENT, known, good) == [103, 502]  # its ticket, and nobody listens there


def test_a_request_of_a_mux_names_no_address_but_that_of_a_client(mux):
    """Neither to guess as somebody else, nor to lock him out."""
    good, known = f"Authorization: Bearer {mux.token('sb-1', need=['exec'])}", proof_of_a_mux(mux, CLIENT)
    passed = {}
    for what, source, unique_id in (("nothing", CLIENT, None), ("no proof", CLIENT, b"A" * 28), ("a part of one", CLIENT, known[:-1]), ("more", CLIENT, known + b" "), ("another client's", OTHER_CLIENT, known)):
        for _ in range(4):
            statuses = in_a_mux(mux, source, unique_id, WRONG)
            if statuses != [503]:
                passed[what] = statuses
        assert in_a_mux(mux, source, unique_id, good) == [503], what
    assert not passed
    for client in (CLIENT, OTHER_CLIENT):
        answer = asked_by(mux, client, "/w/sb-1/x", WRONG)
        assert answer["error"] == b"token_invalid", client
    assert in_a_mux(mux, CLIENT, known, good) == [103, 502]
    logs = "".join(path.read_text(errors="replace") for path in mux.run_dir.glob("*.log"))
    assert known.decode() not in logs
