# SPDX-License-Identifier: MIT
"""An attacker who may reach one sandbox tries to smuggle requests and headers to another one: raw bytes through HAProxy to
direct workers and to the relay, raw HTTP/2 frames, raw bytes at the relay's own socket, and answers of a hostile worker.
Each case has its exact answers, and exactly what the attacker's own worker may get of it; the other worker gets nothing."""

import re
import socket

import pytest
from cell import haproxy_version, until
from client import KEY, connect
from raw import RawOrigin, Seen, h2_data, h2_headers, h2_talk

ROUTES = [
    {"name": "relay", "path": "/r/{sandbox}/{rest...}", "to": "/{rest}", "upgrade": True, "via": "relay"},
    {"name": "direct", "path": "/d/{sandbox}/{rest...}", "to": "/{rest}"},
]

# %A is the attacker's own token, %W the way: d or r.
AUTH = b"Authorization: Bearer %A\r\n"
GLUED = b"GET /d/victim/glued HTTP/1.1\r\nHost: cell.test\r\n" + AUTH + b"\r\n"


def request(*lines, line="GET /d/mine/x HTTP/1.1", host="Host: cell.test", behind=b""):
    """A plain request with these header lines."""
    head = [line, *([host] if host else []), *lines]
    return "\r\n".join(head).encode("latin-1") + b"\r\n" + AUTH + b"\r\n" + behind


def post(*lines, body=b"", line="POST /d/mine/x HTTP/1.1"):
    return request(*lines, line=line, behind=body)


def upgrade(*lines, way="d", line="", version="Sec-WebSocket-Version: 13", to="Upgrade: websocket", connection="Connection: Upgrade", behind=b"", **more):
    fields = [to, connection, f"Sec-WebSocket-Key: {KEY}", version, *lines]
    return request(*[f for f in fields if f], line=line or f"GET /{way}/mine/x HTTP/1.1", behind=behind, **more)


def sized(data):
    return b"%x\r\n" % len(data) + data + b"\r\n"


GOT = ("GET /x HTTP/1.1", b"")


def posted(body):
    return ("POST /x HTTP/1.1", body)


# name, bytes, statuses of the answers, what the attacker's own worker gets
LENGTHS = [
    ("content-length, then what looks like a chunked body", post("Content-Length: 6", "Transfer-Encoding: chunked", body=b"0\r\n\r\nX" + GLUED), (200,), (posted(b""),)),
    ("chunked, then what looks like a longer body", post("Transfer-Encoding: chunked", "Content-Length: 4", body=sized(GLUED) + b"0\r\n\r\n"), (400,), ()),
    ("chunked twice", post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("chunked and identity", post("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("chunked and another coding", post("Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("another coding and chunked", post("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n" + GLUED), (422,), ()),
    ("a coding that is none", post("Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("a coding with a tab before it", post("Transfer-Encoding:\tchunked", body=b"0\r\n\r\n"), (200,), (posted(b""),)),
    ("a coding with a vertical tab before it", post("Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("a coding in quotes", post('Transfer-Encoding: "chunked"', body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("a coding in capitals", post("TRANSFER-ENCODING: CHUNKED", body=sized(b"hello") + b"0\r\n\r\n"), (200,), (posted(b"hello"),)),
    ("a space before the coding's colon", post("Transfer-Encoding : chunked", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("an underscore in the coding's name", post("Content-Length: 5", "Transfer_Encoding: chunked", body=b"0\r\n\r\n"), (200,), (posted(b"0\r\n\r\n"),)),
    ("chunked in HTTP/1.0", post("Transfer-Encoding: chunked", line="POST /d/mine/x HTTP/1.0", body=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("two lengths", post("Content-Length: 5", "Content-Length: 6", body=b"hello" + GLUED), (400,), ()),
    ("two equal lengths", post("Content-Length: 5", "Content-Length: 5", body=b"hello"), (200,), (posted(b"hello"),)),
    ("a list of equal lengths", post("Content-Length: 5, 5", body=b"hello"), (200,), (posted(b"hello"),)),
    ("a list of lengths", post("Content-Length: 5, 6", body=b"hello" + GLUED), (400,), ()),
    ("a length with a plus", post("Content-Length: +5", body=b"hello" + GLUED), (400,), ()),
    ("a length with a minus", post("Content-Length: -5", body=b"hello" + GLUED), (400,), ()),
    ("a length with a space inside", post("Content-Length: 1 5", body=b"hello" + GLUED), (400,), ()),
    ("a length with a comma behind", post("Content-Length: 5,", body=b"hello" + GLUED), (400,), ()),
    ("a length in hexadecimal", post("Content-Length: 0x5", body=b"hello" + GLUED), (400,), ()),
    ("a length with a point", post("Content-Length: 5.0", body=b"hello" + GLUED), (400,), ()),
    ("an empty length", post("Content-Length:", body=GLUED), (400,), ()),
    ("a length of 2^64 and 5", post("Content-Length: 18446744073709551621", body=b"hello" + GLUED), (400,), ()),
    ("a space before the length's colon", post("Content-Length : 5", body=b"hello" + GLUED), (400,), ()),
    ("a length with zeros before", post("Content-Length: 0005", body=b"hello"), (200,), (posted(b"hello"),)),
]
CHUNKS = [
    ("an extension of a chunk", post("Transfer-Encoding: chunked", body=b"5;a=b\r\nhello\r\n0\r\n\r\n"), (200,), (posted(b"hello"),)),
    ("an extension with a bare line feed", post("Transfer-Encoding: chunked", body=b"5;a=\nb\r\nhello\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("a chunk's size with a plus", post("Transfer-Encoding: chunked", body=b"+5\r\nhello\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("a chunk's size with a minus", post("Transfer-Encoding: chunked", body=b"-5\r\nhello\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("a chunk's size in 0x", post("Transfer-Encoding: chunked", body=b"0x5\r\nhello\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("a chunk without a size", post("Transfer-Encoding: chunked", body=b"\r\nhello\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("a chunk's size of 2^64", post("Transfer-Encoding: chunked", body=b"10000000000000005\r\nhello\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("a chunk that ends in a bare line feed", post("Transfer-Encoding: chunked", body=b"5\r\nhello\n0\r\n\r\n" + GLUED), (200, 403), (posted(b"hello"),)),
    ("a chunk's size that ends in a bare line feed", post("Transfer-Encoding: chunked", body=b"5\nhello\r\n0\r\n\r\n" + GLUED), (200, 403), (posted(b"hello"),)),
    ("a chunk that is longer than its size", post("Transfer-Encoding: chunked", body=b"5\r\nhelloworld\r\n0\r\n\r\n" + GLUED), (400,), ()),
    ("headers behind the last chunk", post("Transfer-Encoding: chunked", body=b"0\r\nX-Cell-Route: forged\r\nAuthorization: x\r\n\r\n"), (200,), (posted(b""),)),
]
SYNTAX = [
    ("a folded header", request("X-A: b\r\n c: d"), (200,), (GOT,)),
    ("a folded header before all", request(host="\tX: y\r\nHost: cell.test"), (400,), ()),
    ("a bare line feed ends the head", b"GET /d/mine/x HTTP/1.1\nHost: cell.test\n" + AUTH.replace(b"\r", b"") + b"\n" + GLUED, (200, 403), (GOT,)),
    ("a bare line feed between headers", request("X-A: b\nX-Cell-Route: forged"), (200,), (GOT,)),
    ("a bare carriage return in a value", request("X-A: b\rX-Cell-Route: forged"), (400,), ()),
    ("a carriage return twice", request("X-A: b\r\r\nX-B: c"), (400,), ()),
    ("a carriage return before the colon", request("X-A\r: b"), (400,), ()),
    ("a NUL in a value", request("X-A: b\0c"), (400,), ()),
    ("a NUL in a name", request("X-A\0: b"), (400,), ()),
    ("a NUL in the path", request(line="GET /d/mine/x\0y HTTP/1.1"), (400,), ()),
    ("no name", request(": b"), (400,), ()),
    ("a name with a space inside", request("X A: b"), (400,), ()),
    ("no version", request(line="GET /d/mine/x"), (400,), ()),
    ("HTTP/0.9, whole", b"GET /d/mine/x\r\n", (400,), ()),
    ("a version of 2.0", request(line="GET /d/mine/x HTTP/2.0"), (200,), (GOT,)),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (), ()),
    ("a tab in the request line", request(line="GET\t/d/mine/x\tHTTP/1.1"), (200,), (GOT,)),
    ("a line feed in the request line", request(line="GET /d/mine/x HTTP/1.1\nX: y"), (200,), (GOT,)),
    ("a space in the path", request(line="GET /d/mine/x /d/victim/y HTTP/1.1"), (400,), ()),
    ("bytes above 127 in the path", request(line="GET /d/mine/\xc0\xae\xc0\xae/x HTTP/1.1"), (400,), ()),
    ("the asterisk", request(line="OPTIONS * HTTP/1.1"), (400,), ()),
    ("an empty line before the request", b"\r\n" + request(), (200,), (GOT,)),
]
TARGETS = [
    ("dot segments to the other sandbox", request(line="GET /d/mine/../victim/x HTTP/1.1"), (400,), ()),
    ("encoded dot segments", request(line="GET /d/mine/%2e%2e/victim/x HTTP/1.1"), (400,), ()),
    ("half encoded dot segments", request(line="GET /d/mine/.%2E/victim/x HTTP/1.1"), (400,), ()),
    ("encoded slashes around dots", request(line="GET /d/mine/..%2fvictim%2fx HTTP/1.1"), (400,), ()),
    ("backslashes", request(line="GET /d/mine/..\\victim\\x HTTP/1.1"), (400,), ()),
    ("path parameters behind dots", request(line="GET /d/mine/..;/victim/x HTTP/1.1"), (400,), ()),
    ("dots encoded twice", request(line="GET /d/mine/%252e%252e/victim/x HTTP/1.1"), (200,), (("GET /%252e%252e/victim/x HTTP/1.1", b""),)),
    ("overlong UTF-8, encoded", request(line="GET /d/mine/%c0%ae%c0%ae/victim HTTP/1.1"), (200,), (("GET /%c0%ae%c0%ae/victim HTTP/1.1", b""),)),
    ("overlong UTF-8 in the sandbox's name", request(line="GET /d/%c0%adine/x HTTP/1.1"), (400,), ()),
    ("a NUL, encoded, in the sandbox's name", request(line="GET /d/mine%00/x HTTP/1.1"), (400,), ()),
    ("a slash, encoded, in the sandbox's name", request(line="GET /d/mine%2fvictim/x HTTP/1.1"), (400,), ()),
    ("CR and LF, encoded", request(line="GET /d/mine/x%0d%0aHost:%20victim HTTP/1.1"), (200,), (("GET /x%0d%0aHost:%20victim HTTP/1.1", b""),)),
    ("an absolute target with another host", request(line="GET http://other.test/d/mine/x HTTP/1.1"), (400,), ()),
    ("an absolute target with a user", request(line="GET http://cell.test@other.test/d/mine/x HTTP/1.1"), (400,), ()),
    ("an absolute target with the same host", request(line="GET http://cell.test/d/mine/x HTTP/1.1"), (200,), (GOT,)),
    ("an authority as target", request(line="GET cell.test:80 HTTP/1.1"), (400,), ()),
    ("a fragment", request(line="GET /d/mine/x#/../../victim HTTP/1.1"), (400,), ()),
    ("two hosts", request("Host: other.test"), (400,), ()),
    ("two hosts, the second with a space", request("Host : other.test"), (400,), ()),
    ("no host", request(host=None), (400,), ()),
    ("a host with a comma", request(host="Host: cell.test, other.test"), (400,), ()),
    ("a host with CR", request(host="Host: cell.test\rX: y"), (400,), ()),
    ("CONNECT", request(line="CONNECT cell.test:80 HTTP/1.1", host="Host: cell.test:80", behind=GLUED), (405,), ()),
]
HEADERS = [
    ("internal headers", request("X-Cell-Handover: sandbox=victim", "X-Cell-Route: x", "x-CELL-sandbox: victim"), (200,), (GOT,)),
    ("internal headers with underscores", request("X_Cell_Handover: sandbox=victim", "X-Cell_Route: x", "x_cell-sandbox: victim"), (200,), (GOT,)),
    ("an internal header with a space before its colon", request("X-Cell-Handover : sandbox=victim"), (400,), ()),
    ("an internal header with a tab before its colon", request("X-Cell-Handover\t: sandbox=victim"), (400,), ()),
    ("Connection names an internal header", request("Connection: X-Cell-Handover"), (400,), ()),
    ("Connection names what HAProxy sets", request("Connection: close, X-Forwarded-For"), (400,), ()),
    ("Connection names the host", request("Connection: Host"), (400,), ()),
    ("Connection names the credential", request("Connection: keep-alive", "Connection: Authorization"), (400,), ()),
    ("two credentials", request("Authorization: Bearer other"), (400,), ()),
    ("Upgrade without Connection", request("Upgrade: websocket", behind=GLUED), (400,), ()),
    ("h2c", request("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", behind=GLUED), (200,), (GOT,)),
    ("h2c without its settings", request("Upgrade: h2c", "Connection: Upgrade", behind=GLUED), (200,), (GOT,)),
    ("h2c, then what it would speak", request("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", behind=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (200,), (GOT,)),
    ("h2c with a body", post("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", "Content-Length: 5", body=b"hello" + GLUED), (200,), (posted(b"hello"),)),
    ("another offer", request("Upgrade: TLS/1.0, x", "Connection: Upgrade", behind=GLUED), (200,), (GOT,)),
    ("a proxy's Connection without Upgrade", request("Connection: Upgrade", behind=GLUED), (200, 403), (GOT,)),
    ("Connection in three lines", request("Connection: keep-alive", "Connection: te", "Connection: Upgrade", behind=GLUED), (200, 403), (GOT,)),
    ("Connection names the host in a third line", request("Connection: keep-alive", "Connection: te", "Connection: Host"), (400,), ()),
    ("a request behind a request", request(behind=GLUED), (200, 403), (GOT,)),
    ("Expect and no body", post("Expect: 100-continue", "Content-Length: 0"), (200,), (posted(b""),)),
]
UPGRADES = [
    ("the good one", upgrade(way="%W"), (101,), (GOT,)),
    ("a version that is not 13", upgrade(way="%W", version="Sec-WebSocket-Version: 777", behind=GLUED), (426,), ()),
    ("two versions", upgrade("Sec-WebSocket-Version: 8", way="%W", behind=GLUED), (426,), ()),
    ("no version", upgrade(way="%W", version=None, behind=GLUED), (426,), ()),
    ("a length of 0", upgrade("Content-Length: 0", way="%W"), (101,), (GOT,)),
    ("a body by length", upgrade("Content-Length: %d" % len(GLUED), way="%W", behind=GLUED), (400,), ()),
    ("a body in chunks", upgrade("Transfer-Encoding: chunked", way="%W", behind=b"0\r\n\r\n" + GLUED), (400,), ()),
    ("HTTP/1.0", upgrade(line="GET /%W/mine/x HTTP/1.0", behind=GLUED), (400,), ()),
    ("POST", upgrade(line="POST /%W/mine/x HTTP/1.1", behind=GLUED), (405,), ()),
    ("h2c beside websocket", upgrade("Upgrade: h2c", way="%W"), (400,), ()),
    ("websocket, misspelt", upgrade(way="%W", to="Upgrade: websocket\x0b", behind=GLUED), (400,), ()),
    ("Connection names the handover", upgrade(way="%W", connection="Connection: Upgrade, X-Cell-Handover", behind=GLUED), (400,), ()),
    ("Connection without Upgrade", upgrade(way="%W", connection="Connection: keep-alive", behind=GLUED), (400,), ()),
    ("a forged handover", upgrade("X-Cell-Handover: route=relay;sandbox=victim;addr=127.0.0.1;addr_port=%V", way="%W"), (101,), (GOT,)),
    ("a forged handover with underscores", upgrade("X_Cell_Handover: route=relay;sandbox=victim;addr=127.0.0.1;addr_port=%V", way="%W"), (101,), (GOT,)),
    ("a forged handover, folded", upgrade("X-A: b\r\n X-Cell-Handover: sandbox=victim", way="%W"), (101,), (GOT,)),
    ("a forged handover behind a line feed", upgrade("X-A: b\nX-Cell-Handover: sandbox=victim", way="%W"), (101,), (GOT,)),
    ("a NUL", upgrade("X-A: b\0c", way="%W", behind=GLUED), (400,), ()),
    ("two hosts", upgrade("Host: victim.test", way="%W", behind=GLUED), (400,), ()),
    ("another host in an absolute target", upgrade(line="GET http://victim.test/%W/mine/x HTTP/1.1", behind=GLUED), (400,), ()),
    ("dot segments", upgrade(line="GET /%W/mine/%2e%2e/victim/x HTTP/1.1", behind=GLUED), (400,), ()),
    ("the other sandbox", upgrade(line="GET /%W/victim/x HTTP/1.1", behind=GLUED), (403,), ()),
]
HTTP1 = [*LENGTHS, *CHUNKS, *SYNTAX, *TARGETS, *HEADERS]
HTTP1 += [(f"{what}: {name}", data.replace(b"%W", way), answers, got) for what, way in (("upgrade", b"d"), ("relay", b"r")) for name, data, answers, got in UPGRADES]

PSEUDO = {":method": "GET", ":scheme": "https", ":authority": "cell.test", ":path": "/d/mine/x"}
CREDENTIAL = ("authorization", "Bearer %A")


def h2(*fields, body=None, **pseudo):
    """A request; pseudo-headers are given as method=..., None leaves one out."""
    changed = PSEUDO | {":" + n: v for n, v in pseudo.items()}
    return [*[(n, v) for n, v in changed.items() if v is not None], CREDENTIAL, *fields], body


def h2_upgrade(*fields, way="r", **more):
    return h2(("sec-websocket-version", "13"), *fields, method="CONNECT", protocol="websocket", path=f"/{way}/mine/x", body=b"", **more)


# name, (fields, body: bytes end the stream, but a WebSocket's, None: there is none), answer, what the attacker's own worker gets
HTTP2 = [
    ("the good one", h2(), 200, (GOT,)),
    ("CR and LF in a value", h2(("x-a", "b\r\nx-cell-route: forged")), "goaway", ()),
    ("LF in a value", h2(("x-a", "b\nx-cell-route: forged")), "goaway", ()),
    ("CR in a value", h2(("x-a", "b\rx-cell-route: forged")), "goaway", ()),
    ("NUL in a value", h2(("x-a", "b\0c")), "reset", ()),
    ("capitals in a name", h2(("X-A", "b")), "reset", ()),
    ("a space in a name", h2(("x a", "b")), "reset", ()),
    ("a colon in a name", h2(("x-a:", "b")), "reset", ()),
    ("CR and LF in a name", h2(("x-a: b\r\nx-b", "c")), "goaway", ()),
    ("an empty name", h2(("", "b")), "goaway", ()),
    ("Connection", h2(("connection", "close")), "reset", ()),
    ("Connection names an internal header", h2(("connection", "x-cell-handover")), "reset", ()),
    ("Keep-Alive", h2(("keep-alive", "timeout=5")), "reset", ()),
    ("Proxy-Connection", h2(("proxy-connection", "keep-alive")), "reset", ()),
    ("Upgrade", h2(("upgrade", "websocket")), "reset", ()),
    ("Upgrade to h2c", h2(("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA")), "reset", ()),
    ("Transfer-Encoding", h2(("transfer-encoding", "chunked"), method="POST", body=b"0\r\n\r\n" + GLUED), "reset", ()),
    ("Transfer_Encoding", h2(("transfer_encoding", "chunked"), method="POST", body=b"0\r\n\r\n"), 200, (posted(b"0\r\n\r\n"),)),
    ("TE", h2(("te", "gzip")), "reset", ()),
    ("a path without a slash", h2(path="d/mine/x"), "reset", ()),
    ("an empty path", h2(path=""), "reset", ()),
    ("no path", h2(path=None), "reset", ()),
    ("an asterisk as path", h2(path="*"), 400, ()),
    ("an absolute path", h2(path="http://other.test/d/mine/x"), "reset", ()),
    ("a space in the path", h2(path="/d/mine/x HTTP/1.1"), "reset", ()),
    ("a request in the path", h2(path="/d/mine/x HTTP/1.1\r\nHost: cell.test\r\n\r\nGET /d/victim/y"), "goaway", ()),
    ("LF in the path", h2(path="/d/mine/x\ny"), "goaway", ()),
    ("NUL in the path", h2(path="/d/mine/x\0y"), "reset", ()),
    ("bytes above 127 in the path", h2(path="/d/mine/\xc0\xae"), 400, ()),
    ("dot segments", h2(path="/d/mine/%2e%2e/victim/x"), 400, ()),
    ("no method", h2(method=None), "reset", ()),
    ("a request in the method", h2(method="GET /d/victim/x HTTP/1.1\r\nx: y\r\n\r\nGET"), "goaway", ()),
    ("a space in the method", h2(method="GET /d/victim/x"), 400, ()),
    ("CONNECT", h2(method="CONNECT", path=None, scheme=None), 405, ()),
    ("no scheme", h2(scheme=None), "reset", ()),
    ("a scheme with an address", h2(scheme="https://other.test/d/victim/x?"), 400, ()),
    ("CR and LF in the authority", h2(authority="cell.test\r\nx: y"), "goaway", ()),
    ("a space in the authority", h2(authority="cell.test other.test"), 400, ()),
    ("a user in the authority", h2(authority="a@cell.test"), 400, ()),
    ("a path in the authority", h2(authority="cell.test/d/victim"), 400, ()),
    ("another host than the authority", h2(("host", "other.test")), 200, (GOT,)),
    ("a host twice", h2(("host", "cell.test"), ("host", "other.test")), 200, (GOT,)),
    ("no authority and no host", h2(authority=None), 400, ()),
    ("a pseudo-header twice", h2((":path", "/d/victim/x")), "reset", ()),
    ("a pseudo-header behind the others", h2(("x-a", "b"), (":method", "GET"), method=None), "reset", ()),
    ("an unknown pseudo-header", h2(foo="bar"), "reset", ()),
    ("a status", h2(status="200"), "reset", ()),
    ("a protocol without CONNECT", h2(protocol="websocket"), 200, (GOT,)),
    ("a longer length than the body", h2(("content-length", "50"), method="POST", body=b"hello"), "reset", ()),
    ("a shorter length than the body", h2(("content-length", "1"), method="POST", body=b"hello"), "reset", ()),
    ("a length and no body", h2(("content-length", "5"), method="POST"), 200, (posted(b""),)),
    ("two lengths", h2(("content-length", "5"), ("content-length", "6"), method="POST", body=b"hello"), "reset", ()),
    ("a length with a plus", h2(("content-length", "+5"), method="POST", body=b"hello"), "reset", ()),
    ("internal headers", h2(("x-cell-handover", "sandbox=victim"), ("x_cell_handover", "sandbox=victim"), ("x-cell_org", "x")), 200, (GOT,)),
    ("two credentials", h2(("authorization", "Bearer x")), 400, ()),
    ("WebSocket", h2_upgrade(), 200, (GOT,)),
    ("WebSocket with a forged handover", h2_upgrade(("x-cell-handover", "route=relay;sandbox=victim;addr=127.0.0.1;addr_port=%V")), 200, (GOT,)),
    ("WebSocket with Transfer-Encoding", h2_upgrade(("transfer-encoding", "chunked")), "reset", ()),
    ("WebSocket with a length", h2_upgrade(("content-length", "5")), 400, ()),
    ("WebSocket of another version", h2_upgrade(("sec-websocket-version", "8")), 426, ()),
]

# Where HAProxy of another version has its own answer: it refuses more, or removes an h2c before anybody is asked.
OF_30 = {
    "a chunk that ends in a bare line feed": ((400,), ()),
    "a chunk's size that ends in a bare line feed": ((400,), ()),
    "h2c without its settings": ((200, 403), (GOT,)),
    "upgrade: h2c beside websocket": ((101,), (GOT,)),
    "relay: h2c beside websocket": ((101,), (GOT,)),
    "h2: an asterisk as path": (404, ()),
    "h2: a space in the authority": ("reset", ()),
    "h2: a user in the authority": ("reset", ()),
    "h2: a path in the authority": ("reset", ()),
    "h2: a length and no body": ("reset", ()),
}
OF_32 = OF_30 | {
    "another coding and chunked": ((400,), ()),
    "two lengths": ((), ()),
    "Upgrade without Connection": ((200, 403), (GOT,)),
    "h2: a protocol without CONNECT": ("reset", ()),
}
VERSION = haproxy_version()
OTHERWISE = OF_32 if VERSION >= (3, 2) else OF_30 if VERSION >= (3, 0) else {}
if VERSION >= (3, 3):
    OTHERWISE = {name: row for name, row in OF_32.items() if name != "two lengths"}


class Stage:
    def __init__(self, cells):
        self.mine, self.victim = RawOrigin(), RawOrigin()
        self.cell = cells(sandboxes={"mine": {"worker": self.mine.url}, "victim": {"worker": self.victim.url}}, config={"routes": ROUTES})
        self.token = self.cell.token("mine").encode()

    def fill(self, data):
        return data.replace(b"%A", self.token).replace(b"%V", b"%d" % self.victim.port).replace(b"%M", b"%d" % self.mine.port)

    def h2(self, fields, body):
        filled = [(self.fill(n.encode("latin-1")), self.fill(v.encode("latin-1"))) for n, v in fields]
        stays = (":protocol", "websocket") in fields and (":method", "CONNECT") in fields
        data = h2_headers(filled, end=body is None) + (h2_data(self.fill(body), end=not stays) if body is not None else b"")
        return h2_talk(self.cell.https, data, opens=stays)

    def close(self):
        self.mine.close()
        self.victim.close()


@pytest.fixture(scope="module")
def stage(cells):
    stage = Stage(cells)
    yield stage
    stage.close()


def read_answers(sock, data, wanted):
    """Sends it all; ends the sending when as many answers as wanted are there, and reads to the end."""
    answer = b""
    try:
        sock.sendall(data)
        while len(statuses(answer)) < wanted and (more := sock.recv(65536)):
            answer += more
        sock.shutdown(socket.SHUT_WR)
        while more := sock.recv(65536):
            answer += more
    except ConnectionError:
        pass
    return answer


def talk(port, data, wanted):
    with connect(port) as sock:
        return read_answers(sock, data, wanted)


def statuses(answer):
    return tuple(int(s) for s in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer))


# The relay tells a worker that its client is gone.
CLOSE = re.compile(rb"\x88[\x80-\xff].{4,}", re.S)
INTERNAL = re.compile(r"x[-_]cell[-_]|authorization|http2-settings|keep-alive|te$|proxy-")


def reached(stage, before, upgrades):
    """What the attacker's worker has got since then: each connection is one request and nothing behind it."""
    got = []
    for raw in stage.mine.connections[before:]:
        seen = Seen(bytes(raw))
        assert not seen.rest or CLOSE.fullmatch(seen.rest), seen.rest
        forged = [n for n, _ in seen.fields if INTERNAL.match(n)]
        assert not forged, forged
        assert seen.all("upgrade") == (["websocket"] if upgrades else [])
        assert seen.all("host") == [f"127.0.0.1:{stage.mine.port}"]
        assert seen.all("x-forwarded-for") == ["127.0.0.1"]
        got.append((seen.line, seen.body))
    return tuple(got)


@pytest.mark.parametrize("name,data,answers,got", HTTP1, ids=[row[0] for row in HTTP1])
def test_bytes(stage, name, data, answers, got):
    answers, got = OTHERWISE.get(name, (answers, got))
    before = len(stage.mine.connections)
    answer = talk(stage.cell.http, stage.fill(data), len(answers))
    until(lambda: stage.mine.ended == len(stage.mine.connections), 10)
    assert (statuses(answer), reached(stage, before, 101 in answers)) == (answers, got)
    assert not stage.victim.connections


@pytest.mark.parametrize("name,parts,answer,got", HTTP2, ids=[row[0] for row in HTTP2])
def test_frames(stage, name, parts, answer, got):
    answer, got = OTHERWISE.get("h2: " + name, (answer, got))
    before = len(stage.mine.connections)
    assert stage.h2(*parts) == answer
    until(lambda: stage.mine.ended == len(stage.mine.connections), 10)
    assert reached(stage, before, "WebSocket" in name) == got
    assert not stage.victim.connections


# ---- at the relay's own socket: behind HAProxy, but never trusted for its syntax ----

HANDOVER = "X-Cell-Handover: route=relay;sandbox=mine;addr=127.0.0.1;addr_port=%M"
RELAY = [
    ("the good one", upgrade(HANDOVER), 101, (GOT,)),
    ("no handover", upgrade(), 400, ()),
    ("two handovers", upgrade(HANDOVER, HANDOVER.replace("%M", "%V")), 400, ()),
    ("a handover with a space before its colon", upgrade(HANDOVER.replace(":", " :", 1)), 400, ()),
    ("a folded handover", upgrade(HANDOVER.replace(";addr=", "\r\n ;addr=")), 400, ()),
    ("CR and LF, encoded, in the handover's host", upgrade(HANDOVER + ";host=a%0D%0AX:%20y"), 400, ()),
    ("the same key twice", upgrade(HANDOVER + ";addr_port=%V"), 400, ()),
    ("an address that is none", upgrade(HANDOVER.replace("127.0.0.1", "127.0.0.1.5")), 400, ()),
    ("an address outside of the networks", upgrade(HANDOVER.replace("127.0.0.1", "192.0.2.1")), 502, ()),
    ("a bare line feed ends the head", upgrade(HANDOVER).replace(b"\r\n", b"\n"), 400, ()),
    ("a bare line feed between headers", upgrade(HANDOVER, "X-A: b\nX-B: c"), 400, ()),
    ("a bare carriage return", upgrade(HANDOVER, "X-A: b\rX-B: c"), 400, ()),
    ("a NUL in a value", upgrade(HANDOVER, "X-A: b\0c"), 400, ()),
    ("a space in a name", upgrade(HANDOVER, "X A: b"), 400, ()),
    ("no colon", upgrade(HANDOVER, "nonsense"), 400, ()),
    ("two hosts", upgrade(HANDOVER, "Host: b"), 400, ()),
    ("no host", upgrade(HANDOVER, host=None), 400, ()),
    ("a length", upgrade(HANDOVER, "Content-Length: 5", behind=b"hello"), 400, ()),
    ("a coding", upgrade(HANDOVER, "Transfer-Encoding: chunked", behind=b"0\r\n\r\n"), 400, ()),
    ("HTTP/1.0", upgrade(HANDOVER, line="GET /x HTTP/1.0"), 400, ()),
    ("HTTP/1.10", upgrade(HANDOVER, line="GET /x HTTP/1.10"), 400, ()),
    ("POST", upgrade(HANDOVER, line="POST /x HTTP/1.1"), 405, ()),
    ("two spaces in the request line", upgrade(HANDOVER, line="GET  /x HTTP/1.1"), 400, ()),
    ("an absolute target", upgrade(HANDOVER, line="GET http://other.test/x HTTP/1.1"), 400, ()),
    ("a control character in the target", upgrade(HANDOVER, line="GET /x\x01 HTTP/1.1"), 400, ()),
    ("another version of WebSocket", upgrade(HANDOVER, version="Sec-WebSocket-Version: 8"), 426, ()),
    ("two keys", upgrade(HANDOVER, f"Sec-WebSocket-Key: {KEY}"), 400, ()),
    ("h2c", upgrade(HANDOVER, to="Upgrade: h2c"), 426, ()),
]


@pytest.mark.parametrize("name,data,answer,got", RELAY, ids=[row[0] for row in RELAY])
def test_the_relay_itself(stage, name, data, answer, got):
    data = stage.fill(data.replace(b"/d/mine/x", b"/x")) + stage.fill(GLUED) * (answer != 101)
    before = len(stage.mine.connections)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(stage.cell.run_dir / "relay.sock"))
        assert statuses(read_answers(sock, data, 1)) == (answer,)
    until(lambda: stage.mine.ended == len(stage.mine.connections), 10)
    lines = [Seen(bytes(raw)).line for raw in stage.mine.connections[before:]]
    assert lines == [line for line, _ in got]
    assert not stage.victim.connections


# ---- a worker that is hostile ----

OK = RawOrigin.OK
HOSTILE = [
    ("the good one", OK, (200, 403)),
    ("a second answer behind the first", OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", (200, 403)),
    ("more than its length", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 299 Poison\r\n\r\n", (200, 403)),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 50\r\n\r\nok", (502,)),
    ("length and chunks", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", (200, 403)),
    ("a coding that is none", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nok", (502,)),
    ("a length with a plus", b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", (502,)),
    ("LF and an internal header", b"HTTP/1.1 200 OK\r\nX-A: b\nSet-Cookie: x=y\r\nContent-Length: 2\r\n\r\nok", (200, 403)),
    ("NUL in a header", b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 2\r\n\r\nok", (502,)),
    ("CR in a header", b"HTTP/1.1 200 OK\r\nX-A: b\rX-B: c\r\nContent-Length: 2\r\n\r\nok", (502,)),
    ("a space in a name", b"HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 2\r\n\r\nok", (502,)),
    ("an upgrade that nobody asked for", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nraw", (502,)),
    ("no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", (502,)),
    ("HTTP/0.9", b"<html>ok</html>\r\n\r\n", (502,)),
    ("a body behind 204", b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 299 Poison\r\nContent-Length: 0\r\n\r\n", (204, 403)),
    ("a body behind 304", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 30\r\n\r\nHTTP/1.1 299 Poison\r\n\r\n", (304, 403)),
    ("hints before the answer", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, (103, 200, 403)),
]


@pytest.mark.parametrize("name,reply,answers", HOSTILE, ids=[row[0] for row in HOSTILE])
def test_a_hostile_worker_cannot_answer_for_another(stage, name, reply, answers):
    """Two requests on a client's connection: what the first one's worker says is never taken for the second one's answer."""
    stage.mine.reply = reply
    try:
        answer = talk(stage.cell.http, stage.fill(request() + GLUED), len(answers))
    finally:
        stage.mine.reply = OK
    assert statuses(answer) == answers
    assert b"oison" not in answer and b"raw" not in answer
    assert not stage.victim.connections


def test_headers_behind_a_body_are_none(stage):
    """Trailers stay behind the body, where they are no headers; from HAProxy 3.2 on they go no further."""
    before = len(stage.mine.connections)
    trailers = b"0\r\nX-Cell-Handover: forged\r\nAuthorization: forged\r\nContent-Length: 5\r\n\r\n"
    talk(stage.cell.http, stage.fill(post("Transfer-Encoding: chunked", body=trailers)), 1)
    [raw] = stage.mine.connections[before:]
    seen = Seen(bytes(raw))
    assert "forged" not in [value for _, value in seen.fields]
    assert len(seen.trailers) == (0 if VERSION >= (3, 2) else 3)


def test_a_chunks_size_that_does_not_end_is_not_collected(stage):
    """Some HAProxy (before the repair of 2026: 2.8.0, 3.0, 3.4.0) reads no further and ends it after the client's timeout, others refuse it."""
    sent, most, refused, stalls = 0, 64 << 20, False, VERSION in ((2, 8), (3, 0), (3, 4))
    with connect(stage.cell.http) as sock:
        sock.settimeout(0.5 if stalls else 20)
        try:
            sock.sendall(stage.fill(post("Transfer-Encoding: chunked", body=b"5;")))
            while sent < most:
                sent += sock.send(b"a" * 65536)
        except ConnectionError:
            refused = True
        except TimeoutError:
            pass
    assert sent < most and (refused or stalls)
    assert not stage.victim.connections


def test_frames_before_the_answer_wait_for_it(stage):
    """A client that does not wait for its 101: what it says is not read as a request, whether there will be a tunnel or not."""
    for way, kept in (("d", True), ("r", False)):
        before = len(stage.mine.connections)
        early = b"\x82\x85abcd" + bytes(a ^ b for a, b in zip(b"hello", b"abcda"))
        assert statuses(talk(stage.cell.http, stage.fill(upgrade(way=way, behind=early)), 1)) == (101,)
        # another one may still be of an earlier test
        [raw] = until(lambda: [raw for raw in stage.mine.connections[before:] if b"\r\n\r\n\x82\x85" in raw], 10)
        if kept:
            assert bytes(raw).endswith(early)
    before = len(stage.mine.connections)
    assert statuses(talk(stage.cell.http, stage.fill(upgrade(version="Sec-WebSocket-Version: 8", behind=GLUED * 50)), 1)) == (426,)
    assert len(stage.mine.connections) == before
