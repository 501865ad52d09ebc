# SPDX-License-Identifier: MIT
"""What lets nobody in any more ends the tunnels that it let in: a key that was replaced or taken out, with and without a name, of each
kind of token that has one."""

import base64
import json

import pytest
from cell import SECRET, Cell, token, until
from test_token_kinds import scoped
from test_token_kinds import route as signed_route
from tunnels import QUICK, Tunnels, pass_both_ways, route

OTHER = b"another secret of the tests, as long as that"
ROUTE_KEY = b"a key for signed routes, long enough"
JWT = {"kind": "jwt", "alg": "HS256", "secret_file": "one.secret", "bind": False}
KEPT = {"kind": "jwt", "alg": "HS256", "kid": "kept", "secret_file": "k1.secret"}
ROUTES = [
    route("secure", "pty"),
    {"name": "signed", "path": "/signed/{sandbox}/{port}/{expires}/{signature}/{rest...}", "to": "/{rest}", "upgrade": True,
     "via": "relay", "need": "http"},
]


class Reloaded:
    """A cell of one test, whose keys and entries change."""

    def __init__(self, folder, tokens, files):
        self.cell = Cell(folder, config={"relay": QUICK, "routes": ROUTES, "tokens": [*tokens, KEPT]}, files=files).start()
        self.tunnels = Tunnels(self.cell)
        self.worker = self.tunnels.worker()
        self.sandbox = "sb"
        self.cell.set_sandboxes(sb={"worker": self.worker.url, "epoch": 1})
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
    r.cell.set_sandboxes(sb={"worker": two.url, "epoch": 2})  # every watch is looked at
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
    r.worker.serve()
    r.tunnels.accepted(client)
    r.put("a.key", base64.b64encode(OTHER))
    r.ends(client)


