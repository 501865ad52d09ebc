# SPDX-License-Identifier: MIT
"""What lets nobody in any more ends the tunnels that it let in: a key that was replaced or taken out, with and without a name, of each
kind of token that has one; one token by its jti, whatever directory tells; a token that has expired."""

import base64
import json
import re
import time

import pytest
from cell import AT_ONCE, SECRET, Cell, on_worker, token, until
from resume import Caller, Refused
from test_directory_pushed import ByFile, ByPlane, ByRedis
from test_token_kinds import scoped
from test_token_kinds import route as signed_route
from tunnels import QUICK, Tunnels, pass_both_ways, route
from worker import Ws

OTHER = b"another secret of the tests, as long as that"
ROUTE_KEY = b"a key for signed routes, long enough"
JWT = {"kind": "jwt", "alg": "HS256", "secret_file": "one.secret", "bind": False}
KEPT = {"kind": "jwt", "alg": "HS256", "kid": "kept", "secret_file": "k1.secret"}
ROUTES = [
    route("secure", "pty"),
    {"name": "signed", "path": "/signed/{sandbox}/{port}/{expires}/{signature}/{rest...}", "to": "/{rest}", "upgrade": True,
     "via": "relay", "need": "http"},
    {"name": "api", "path": "/api/sandboxes/{sandbox}/{rest...}", "need": "none"},
]


class Reloaded:
    """A cell of one test, whose keys and entries change."""

    def __init__(self, folder, tokens, files):
        self.cell = Cell(folder, config={"relay": QUICK, "routes": ROUTES, "tokens": [*tokens, KEPT]}, files=files).start()
        self.tunnels = Tunnels(self.cell)
        self.worker = self.tunnels.worker()
        self.sandbox = "sb"
        self.application = self.tunnels.worker()
        self.tunnels.place("sb", self.worker, ports={"80": self.application.url})
        self.kept = self.open(self.bearer(token("test", sandbox="sb", header={"kid": "kept"})), session="kept")

    def bearer(self, text):
        return ("Authorization", "Bearer " + text)

    def open(self, *headers, session="s1"):
        return self.tunnels.open(self.worker, self.sandbox, "secure", session=session, headers=headers)

    def put(self, name, content):
        part = self.cell.folder / (name + ".part")
        part.write_bytes(content)
        part.rename(self.cell.folder / name)

    def entries(self, tokens):
        self.cell.config["tokens"] = [*tokens, KEPT]
        self.cell.config_file.write_text(json.dumps(self.cell.config))
        self.cell.kill("agent", 1)  # SIGHUP

    def ends(self, client):
        assert client.closed() == (1008, "token revoked")
        pass_both_ways(*self.kept)


@pytest.fixture
def reloaded(tmp_path):
    made = []

    def make(*tokens, **files):
        made.append(Reloaded(tmp_path, tokens, {name.replace("_", "."): content for name, content in files.items()}))
        return made[0]

    yield make
    for one in made:
        one.tunnels.close()
        one.cell.stop()


@pytest.mark.parametrize("kid", [None, "k"])
def test_a_secret_that_is_replaced_ends_what_the_old_one_let_in(reloaded, kid):
    entry = JWT | ({"kid": kid} if kid else {})
    r = reloaded(entry, one_secret=SECRET)
    bearer = r.bearer(token("test", sandbox="sb", header={"kid": kid} if kid else None))
    client, upstream = r.open(bearer)
    pass_both_ways(client, upstream)
    r.put("one.secret", OTHER)
    r.ends(client)
    assert r.tunnels.refused("sb", "secure", headers=[bearer]) == (401, "token_invalid")


@pytest.mark.parametrize("kid", [None, "k"])
def test_an_entry_that_is_taken_out_ends_what_it_let_in(reloaded, kid):
    r = reloaded(JWT | ({"kid": kid} if kid else {}), one_secret=SECRET)
    client, _ = r.open(r.bearer(token("test", sandbox="sb", header={"kid": kid} if kid else None)))
    r.entries([])
    r.ends(client)


def test_an_entry_that_trusts_another_issuer_ends_what_it_let_in(reloaded):
    r = reloaded(JWT | {"issuer": "old"}, one_secret=SECRET)
    client, _ = r.open(r.bearer(token("test", sandbox="sb", iss="old")))
    r.entries([JWT | {"issuer": "new"}])
    r.ends(client)


def test_what_trusts_the_same_key_as_before_ends_nothing(reloaded):
    """Other limits, another place in the list, the same bytes in another file."""
    r = reloaded(JWT, one_secret=SECRET)
    client, upstream = r.open(r.bearer(token("test", sandbox="sb")))
    r.put("two.secret", SECRET)
    r.entries([{"kind": "agent-sandbox", "secret_file": "two.secret"}, JWT | {"secret_file": "two.secret", "leeway": "1s"}])
    until(lambda: r.cell.admin("/metrics").count('cellgate_agent_reloads_total{outcome="good"} 1'), 10)
    r.put("one.secret", OTHER)  # which nobody reads any more
    two = r.tunnels.worker()
    r.cell.set_sandboxes(sb={"worker": two.url, "epoch": 99})  # every watch is looked at
    moved = {upstream.line.split()[1]: upstream for upstream in (two.serve(), two.serve())}
    pass_both_ways(client, moved["/s1"])


def test_a_new_secret_of_scoped_tokens_ends_what_the_old_one_let_in(reloaded):
    r = reloaded({"kind": "agent-sandbox", "secret_file": "scoped"}, scoped=SECRET)
    client, _ = r.open(r.bearer(scoped("sb", secret=SECRET)))
    r.put("scoped", OTHER)
    r.ends(client)


def test_a_new_key_of_signed_routes_ends_what_the_old_one_let_in(reloaded):
    r = reloaded({"kind": "opensandbox-route", "keys": {"a": "a.key", "b": "b.key"}}, a_key=base64.b64encode(ROUTE_KEY), b_key=base64.b64encode(OTHER))
    expires, signature = signed_route("sb")
    client = r.tunnels.ask("sb", "signed", f"80/{expires}/{signature}/")
    r.application.serve()
    r.tunnels.accepted(client)
    r.put("a.key", base64.b64encode(OTHER))
    r.ends(client)


# ---- one token ----


class ByKnownFile(ByFile):
    def tell(self, cell, sandbox, record):
        super().tell(cell, sandbox, record)
        Tunnels(cell).known()


def by_list(_, cell, jti, until):
    """Beside a directory that need not be able to say it."""
    part = cell.folder / "revoked.part"
    part.write_text(json.dumps({"revoked": {jti: until}}))
    part.rename(cell.folder / "revoked.json")


def by_file(_, cell, jti, until):
    part = cell.folder / "sandboxes.json.part"
    part.write_text(json.dumps({"sandboxes": cell.sandboxes, "revoked": {jti: until}}))
    part.rename(cell.folder / "sandboxes.json")


def by_plane(self, _, jti, until):
    self.plane.push(b"event: revoke\ndata: " + json.dumps({"revoked": {jti: until}}).encode() + b"\n\n")


def by_redis(self, _, jti, until):
    self.redis.ask("SET", "cellgate:sandbox:#revoked", json.dumps({"revoked": {jti: until}}))
    self.redis.ask("PUBLISH", "cellgate:sandbox:events", "#revoked")


REVOKERS = {"file": (ByKnownFile, by_file), "http": (ByPlane, by_plane), "redis": (ByRedis, by_redis), "list": (ByKnownFile, by_list)}


@pytest.fixture(params=REVOKERS)
def revoker(request, tmp_path):
    kind, revoke = REVOKERS[request.param]
    way = kind(tmp_path)
    # one agent thread: each has a view of its own, and the one that is asked may hear a moment later than the one that ended the tunnel
    config = {"directory": way.options(), "relay": QUICK, "routes": ROUTES, "agent": {"threads": 1}}
    if revoke is by_list:
        config["tokens_revoked_file"] = "revoked.json"
    cell = Cell(tmp_path, config=config, files={"revoked.json": b'{"revoked": {}}'})
    tunnels = None
    try:
        tunnels = Tunnels(cell.start())
        yield tunnels, way, lambda jti: revoke(way, cell, jti, int(time.time()) + 300)
    finally:
        if tunnels:
            tunnels.close()
        cell.stop()
        way.close()


def test_a_token_that_is_revoked_is_refused_and_its_tunnel_ends_within_a_second(revoker):
    tunnels, way, revoke = revoker
    worker = tunnels.worker()
    way.tell(tunnels.cell, "sb", {"worker": worker.url, "epoch": 1})
    bearer, other = tunnels.cell.bearer("sb", jti="one"), tunnels.cell.bearer("sb", jti="two")
    client, _ = tunnels.open(worker, "sb", "secure", headers=[bearer])
    kept = tunnels.open(worker, "sb", "secure", headers=[other])
    begun = time.monotonic()
    revoke("one")
    assert client.closed() == (1008, "token revoked")
    assert tunnels.refused("sb", "secure", headers=[bearer]) == (401, "token_revoked")
    took = time.monotonic() - begun
    assert took < AT_ONCE, took  # a second, and what a busy machine adds
    pass_both_ways(*kept)
    pass_both_ways(*tunnels.open(worker, "sb", "secure", headers=[other]))
    assert 'cellgate_agent_revoked_tokens{by=' in tunnels.cell.admin("/metrics")


def test_a_broken_list_leaves_the_last_good_one_in_force(revoker):
    tunnels, way, revoke = revoker
    worker = tunnels.worker()
    way.tell(tunnels.cell, "sb", {"worker": worker.url, "epoch": 1})
    bearer = tunnels.cell.bearer("sb", jti="one")
    client, _ = tunnels.open(worker, "sb", "secure", headers=[bearer])
    revoke("one")
    assert client.closed() == (1008, "token revoked")
    revoke("")  # a jti that none can be
    until(lambda: "an empty jti" in (tunnels.cell.run_dir / "agent.log").read_text(), 10)
    assert tunnels.refused("sb", "secure", headers=[bearer]) == (401, "token_revoked")


# ---- the token's end ----


def test_a_tunnel_ends_with_its_token_unless_the_entry_says_otherwise(reloaded):
    r = reloaded({"kind": "jwt", "alg": "HS256", "leeway": "0s", "secret_file": "one.secret"}, JWT | {"kid": "free"}, one_secret=SECRET)
    bound, _ = r.open(r.bearer(token("test", sandbox="sb", ttl=2)))
    free = r.open(r.bearer(token("test", sandbox="sb", ttl=2, header={"kid": "free"})))
    assert bound.closed() == (1008, "token expired")
    pass_both_ways(*free)


class Renewing(Caller):
    """Through a cell, with a token that is asked for at each dial."""

    def __init__(self, cell, ttl):
        super().__init__("?command=/bin/sh")
        self.cell, self.ttl, self.path = cell, ttl, "/term/sb-1/s1" + "?command=/bin/sh"

    def request(self, port, **changes):
        return Ws(port, self.path, [("Cell-Resume", self.header(**changes)), self.cell.bearer("sb-1", ttl=self.ttl)], self.patience, show_control=True)


def test_a_client_that_resumes_comes_back_with_a_new_token_and_loses_nothing(tmp_path):
    tokens = [{"kind": "jwt", "alg": "HS256", "leeway": "0s", "secret_file": "k1.secret"}]
    routes = [route("term", "pty", resume="cell", to="/terminal")]
    with Cell(tmp_path, config={"tokens": tokens, "relay": QUICK, "routes": routes}) as cell:
        cell.set_sandboxes(**{"sb-1": on_worker(f"http://{cell.worker(cell.sandboxd())}", epoch=1)})
        caller = until(lambda: dialled(cell), 10)
        caller.say(b"stty -echo; for i in $(seq 1 40); do echo line-$i; sleep 0.1; done; echo all''-said\n")
        assert caller.wait(lambda: caller.close)
        assert caller.close == (1008, "token expired")
        assert b"all-said" not in caller.output, "it was over before the token was"
        caller.ttl = 60
        caller.dial(cell.http)
        caller.find(rb"all-said")
        assert re.findall(rb"line-(\d+)\r", caller.output) == [b"%d" % i for i in range(1, 41)]
        caller.drop()


def dialled(cell):
    try:
        return Renewing(cell, 2).dial(cell.http)
    except Refused:
        return None  # the directory is not read yet
