# SPDX-License-Identifier: MIT
"""Java's HttpClient and HttpURLConnection: requests to a worker, with the offer of h2c that HttpClient makes without TLS, and both through
egress as docs/egress.md advises. Its WebSocket is one of those of test_websockets.py."""

import json

import pytest
from jvm import GATE, Jvm
from test_egress import HOST, allow, certificate, config, rules  # noqa: F401 fixtures

ROUTES = [{"name": "app", "path": "/app/{sandbox}/{rest...}", "to": "/{rest}", "need": "http"}]


def tells(connection, request):
    """What the worker got, but the headers' values."""
    body = connection.read_body(request)
    text = json.dumps({"request": f"{request.method} {request.target}", "names": sorted(request.names), "size": len(body)}).encode()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


@pytest.fixture(scope="module")
def server(origins):
    return origins(answer=tells)


@pytest.fixture(scope="module")
def secure(origins, certificate):  # noqa: F811
    return origins(answer=tells, tls=certificate[1])


@pytest.fixture(scope="module")
def echo(servers, node):
    return servers(lambda port: ["node", servers.packages / "echo_server.mjs", port], "ws")


@pytest.fixture(scope="module")
def cell(cells, node, server, secure, echo):
    inside = rules(*(allow(one.port) for one in (server, secure, echo))) | {"worker": server.url}
    return cells(sandboxes={"sb-1": inside}, config=config() | {"routes": ROUTES}, environment=node.certificate, egress=True)


@pytest.fixture(scope="module")
def java(tmp_path_factory, node, certificate):  # noqa: F811
    """Starts JVMs: java(token="...", property=...)."""
    made = []

    def start(**arguments):
        made.append(Jvm(tmp_path_factory.mktemp("java"), [*node.certificate.values(), certificate[0]], **arguments))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def direct(java):
    return java()


@pytest.mark.parametrize("scheme,version", [("http", "HTTP_1_1"), ("https", "HTTP_2")])
def test_requests(direct, cell, scheme, version):
    below = f"{scheme}://{GATE}:{getattr(cell, scheme)}/app/sb-1"
    for size in (0, 3_000_000, 0):
        status, spoken, body = direct.request(f"{below}/a%2Fb?c=d", cell.token(), size)
        seen = json.loads(body)
        assert (status, spoken, seen["size"]) == (200, version, size)
        assert seen["request"] == f"{'POST' if size else 'GET'} /a%2Fb?c=d"
        assert not {"upgrade", "http2-settings", "authorization"} & set(seen["names"]), seen


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_wrong_token_is_reported(direct, cell, scheme):
    status, _, body = direct.request(f"{scheme}://{GATE}:{getattr(cell, scheme)}/app/sb-1/", "x")
    assert (status, json.loads(body)["error"]) == (401, "token_invalid")


def proxied(java, cell, token):
    properties = {f"{scheme}_{name}": value for scheme in ("http", "https") for name, value in (("proxyHost", "127.0.0.1"), ("proxyPort", cell.egress))}
    return java(names=(), token=token, jdk_http_auth_tunneling_disabledSchemes="", **properties)


def test_through_egress(java, cell, server, secure, echo):
    """The proxy's question (407) is answered by the program's Authenticator with the token."""
    inside = proxied(java, cell, cell.token(need=["egress"]))
    for step in ("request", "legacy"):
        for url in (f"https://{HOST}:{secure.port}/there", f"http://{HOST}:{server.port}/there"):
            status, _, body = inside.request(url, step=step)
            seen = json.loads(body)
            assert (status, seen["request"]) == (200, "GET /there")
            assert not {"proxy-authorization", "upgrade", "http2-settings"} & set(seen["names"]), seen


def test_a_websocket_through_egress(java, cell, echo):
    """By CONNECT, for a client that has sent no plain request through the proxy: the next one on its connection would be no proxy's."""
    inside = proxied(java, cell, cell.token(need=["egress"]))
    assert inside.ask("open", f"ws://{HOST}:{echo.port}/", "", "") == ["open", ""]
    inside.say("text aGVsbG8=")
    assert inside.hear() == "text aGVsbG8="
    assert inside.ask("close", 1000)[:2] == ["close", "1000"]


def test_egress_is_refused_readably(java, cell, secure):
    """Without a token and with a wrong one 407, which HttpClient answers again and again; with one that does not grant it 403."""
    there = f"https://{HOST}:{secure.port}/there"
    assert proxied(java, cell, "").request(there)[0] == 407
    assert b"too many authentication attempts" in proxied(java, cell, "x").request(there)[2]
    assert b"403" in proxied(java, cell, cell.token(need=["http"])).request(there)[2]
