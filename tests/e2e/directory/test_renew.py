# SPDX-License-Identifier: MIT
"""OpenSandbox's control plane is told through Redis that sandboxes are in use: what its consumers read, how often, while a
tunnel is active, and that nobody waits for it."""

import datetime
import json
import time

import pytest
from cell import AT_ONCE, Cell, until
from client import Http1, request
from redis_server import Redis
from tunnels import QUICK, Tunnels, pass_both_ways, route

KEY = "opensandbox:renew:intent"
ROUTES = [
    {"name": "proxy", "path": "/v1/sandboxes/{sandbox}/proxy/{port}/{rest...}", "to": "/{rest...}", "need": "none"},
    {"name": "host", "host": "{port}-{sandbox}.<e2b>", "need": "none"},
    route("plain"),
    {"name": "closed", "path": "/closed/{sandbox}/{rest...}", "need": "http"},
    {"name": "api", "path": "/api/sandboxes/{sandbox}/{rest...}", "need": "none"},
]


def bulk(redis, *words):
    """The texts of an array's strings."""
    parts = redis.ask(*words).split(b"\r\n")
    return [parts[i + 1].decode() for i, part in enumerate(parts) if part.startswith(b"$") and part != b"$-1"]


def intents(redis, key=KEY):
    """Those that are there, oldest first, as a consumer takes them."""
    return [json.loads(text) for text in reversed(bulk(redis, "LRANGE", key, 0, -1))]


@pytest.fixture
def redis(tmp_path):
    server = Redis(tmp_path)
    yield server
    server.stop()


def config(redis, **renew):
    return {"routes": ROUTES, "management_ports": "1-65535", "domains": {"e2b": ["e2b.test"]}, "relay": QUICK, "renew": {"redis": f"127.0.0.1:{redis.port}"} | renew}


def told(cell, outcome):
    lines = [line for line in cell.admin("/metrics").splitlines() if line.startswith(f'cellgate_agent_renew_intents_total{{outcome="{outcome}"}}')]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_what_consumers_are_told_and_how_often(cells, origins, redis):
    url = origins().url
    cell = cells(sandboxes={name: {"worker": url} for name in ("sb-1", "sb-2", "sb-3")}, config=config(redis))
    before = datetime.datetime.now(datetime.timezone.utc)
    for _ in range(5):
        assert request(cell.http, "GET", "/v1/sandboxes/sb-1/proxy/8080/a%2Fb?secret=s&cellgate_token=t").status == 200
    assert request(cell.http, "GET", "/v1/sandboxes/sb-1/proxy/9090/other").status == 200
    with Http1(cell.http) as client:
        assert client.request("POST", "/long" * 200, body=b"x", host="44772-sb-2.e2b.test").status == 200
    assert request(cell.http, "GET", "/closed/sb-3/").status == 401  # nobody has used it
    assert request(cell.http, "GET", "/v1/sandboxes/absent/proxy/80/").status == 404
    until(lambda: len(intents(redis)) == 2, 10, "no intents")
    first, second = intents(redis)
    observed = datetime.datetime.fromisoformat(first.pop("observed_at").replace("Z", "+00:00"))
    assert abs((observed - before).total_seconds()) < 10
    assert first == {"sandbox_id": "sb-1", "port": 8080, "request_uri": "/a%2Fb"}
    second.pop("observed_at")
    assert second == {"sandbox_id": "sb-2", "port": 44772}
    assert told(cell, "told") == 2 and told(cell, "failed") == told(cell, "dropped") == 0


def test_an_active_tunnel_is_told_again(cells, redis):
    """A watch comes back when something is news, or after a minute: here the record changes."""
    tunnels = Tunnels(cells(config=config(redis, every="1s")))
    try:
        worker = tunnels.worker()
        sandbox = tunnels.sandbox(worker)
        client, upstream = tunnels.open(worker, sandbox)

        def count():
            return [intent["sandbox_id"] for intent in intents(redis)].count(sandbox)

        until(lambda: count() == 1, 10, "the opening is not told")
        for number in (2, 3):
            time.sleep(1.2)
            pass_both_ways(client, upstream)
            tunnels.place(sandbox, worker)
            until(lambda n=number: count() == n, 10, "it is not told that the tunnel is active")
        client.close()
    finally:
        tunnels.close()


def test_the_list_is_bounded_and_one_of_ones_own(cells, origins, redis):
    url = origins().url
    names = [f"sb-{n}" for n in range(40)]
    cell = cells(sandboxes={name: {"worker": url} for name in names}, config=config(redis, key="mine", max_length=10, database=3))
    with Http1(cell.http) as client:
        for name in names:
            assert client.request("GET", f"/v1/sandboxes/{name}/proxy/80/").status == 200
    until(lambda: told(cell, "told") == 40, 10, "not all are told")
    redis.ask("SELECT", 3)
    until(lambda: len(intents(redis, "mine")) == 10, 10, "it is not cut")
    assert [intent["sandbox_id"] for intent in intents(redis, "mine")] == names[-10:]


def test_nobody_waits_for_redis_and_what_was_noted_meanwhile_is_told_later(cells, origins, redis):
    url = origins().url
    cell = cells(sandboxes={f"sb-{n}": {"worker": url} for n in range(30)}, config=config(redis))

    def use(numbers):
        with Http1(cell.http) as client:
            for n in numbers:
                assert client.request("GET", f"/v1/sandboxes/sb-{n}/proxy/80/").status == 200

    use(range(1))
    until(lambda: len(intents(redis)) == 1, 10, "no intent")
    redis.pause()
    try:
        began = time.monotonic()
        use(range(10))
        assert time.monotonic() - began < AT_ONCE
    finally:
        redis.go_on()
    until(lambda: told(cell, "told") + told(cell, "failed") == 10, 20, "they are not told")
    redis.stop()
    use(range(10, 20))
    redis.start()
    until(lambda: told(cell, "told") + told(cell, "failed") == 20, 20, "they are not told after a restart")
    missing = {f"sb-{n}" for n in range(10, 20)} - {intent["sandbox_id"] for intent in intents(redis)}
    assert len(missing) <= told(cell, "failed")  # what was under way when the server stopped
    assert told(cell, "dropped") == 0


def test_a_password_and_a_refusal(cells, origins, tmp_path):
    redis = Redis(tmp_path, "--requirepass", "pass-word-of-redis", password="pass-word-of-redis")
    try:
        redis.ask("SET", KEY, "not a list")
        url = origins().url
        cell = cells(sandboxes={"sb-1": {"worker": url}, "sb-2": {"worker": url}}, config=config(redis, password_file="password"), files={"password": b"pass-word-of-redis\n"})
        assert request(cell.http, "GET", "/v1/sandboxes/sb-1/proxy/80/").status == 200
        until(lambda: told(cell, "failed") == 1, 10, "the refusal is not counted")
        redis.ask("DEL", KEY)
        assert request(cell.http, "GET", "/v1/sandboxes/sb-2/proxy/80/").status == 200
        until(lambda: told(cell, "told") == 1, 10, "it is not told")
        assert [intent["sandbox_id"] for intent in intents(redis)] == ["sb-2"]
        until(lambda: "renew intents cannot be sent" in cell.logs(), 10, "the refusal is not logged")
        assert "pass-word-of-redis" not in cell.logs()
    finally:
        redis.stop()


@pytest.mark.parametrize("renew", [{"redis": "nowhere"}, {"redis": "127.0.0.1:6379", "user": "u"}, {"redis": "127.0.0.1:6379", "every": "1ms"}])
def test_a_bad_configuration_is_refused(tmp_path, renew):
    cell = Cell(tmp_path, config={"renew": renew})
    with pytest.raises(AssertionError, match="renew"):
        cell.start()
