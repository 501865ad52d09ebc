#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes scoped_v2.json: scoped tokens of agent-sandbox, version 2, good and bad, each with a request and what it must get.

    tests/data/make_scoped_v2.py [--now SECONDS] [--output FILE]

The file in the tree is made with the default time. tests/e2e/gate/test_scoped_v2.py calls table() with the present one. Ed25519 is
openssl's: seeds are fixed, so that a token of the same claims is the same everywhere.
"""
import argparse
import base64
import json
import subprocess
import tempfile
from pathlib import Path

NOW = 2000000000
CONTEXT = b"agent-sandbox/scoped-token/v2."
SEEDS = {"key-1": bytes(range(32)), "key_2": bytes(range(32, 64)), "unlisted": bytes(range(64, 96))}
UID = "0b5c6e2a-6f0e-4a51-9d3b-2f6f6a1f7c10"
PATH = "/exec/run"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _openssl(*arguments, **more):
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, **more).stdout


def _private(seed):
    """PKCS #8 (RFC 8410)."""
    return bytes.fromhex("302e020100300506032b657004220420") + seed


def public(kid):
    return _openssl("pkey", "-inform", "DER", "-pubout", "-outform", "DER", input=_private(SEEDS[kid]))[-32:]


def sign(kid, data):
    with tempfile.TemporaryDirectory() as folder:
        key, text = Path(folder) / "key", Path(folder) / "text"
        key.write_bytes(_private(SEEDS[kid]))
        text.write_bytes(data)
        return _openssl("pkeyutl", "-sign", "-rawin", "-inkey", key, "-keyform", "DER", "-in", text)


def keys_file(*kids):
    return json.dumps({"keys": [{"kid": kid, "publicKey": b64(public(kid))} for kid in kids or ("key-1", "key_2")]}).encode()


def claims(now, **instead):
    made = {"ns": "default", "name": "box", "uid": UID, "port": 9090, "method": "GET", "path": PATH, "exp": now + 60} | instead
    return {name: value for name, value in made.items() if value is not None}


def token(body, kid="key-1", by=None, context=CONTEXT, named=None):
    payload = b64(body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode())
    signed = context + kid.encode() + b"." + payload.encode()
    return f"v2.{named or kid}.{payload}.{b64(sign(by or kid, signed))}"


GOOD, INVALID, EXPIRED = [200, None], [401, "token_invalid"], [401, "token_expired"]
SANDBOX, GRANT, ABSENT = [403, "wrong_sandbox"], [403, "not_granted"], [404, "sandbox_not_found"]


def table(now=NOW):
    """[name, token, request instead of the usual one, what it gets]"""
    body, rows = claims(now), []

    def row(label, made, want, /, **request):
        rows.append({"name": label, "token": made, "request": request, "want": want})

    good = token(body)
    version, kid, payload, signature = good.split(".")
    row("good", good, GOOD)
    row("by the second key", token(body, "key_2"), GOOD)
    row("a query is not signed", good, GOOD, target=PATH + "?a=b")
    row("escapes in lower case", token(claims(now, path="/a%2Fb%C3%BC")), GOOD, target="/a%2fb%c3%bC")
    row("the root", token(claims(now, path="/")), GOOD, target="/")
    row("another method of its own", token(claims(now, method="POST")), GOOD, method="POST")
    # not this request
    for name, request in {"method": {"method": "POST"}, "HEAD for GET": {"method": "HEAD"}, "path": {"target": "/exec"}, "path below": {"target": PATH + "/x"}, "slash": {"target": PATH + "/"},
                          "double slash": {"target": "/" + PATH}, "case": {"target": "/Exec/run"}, "escaped letter": {"target": "/%65xec/run"}, "port": {"port": "8080"}, "no port": {"port": None}}.items():
        row(f"another {name}", good, GRANT, **request)
    row("letters of a path in upper case", token(claims(now, path="/ab")), GRANT, target="/AB")
    row("letters that follow an escape", token(claims(now, path="/%2FAB")), GRANT, target="/%2fab")
    row("another sandbox", good, SANDBOX, name="other")
    row("a namespace", good, SANDBOX, space="ns")
    row("its namespace alone", token(claims(now, ns="ns")), SANDBOX)
    row("UID of another", token(claims(now, uid="another")), ABSENT)
    row("a record without a UID", token(claims(now, name="bare")), ABSENT, name="bare")
    row("none of that name", token(claims(now, name="none")), ABSENT, name="none")
    # keys
    row("kid of another key", token(body, "key-1", named="key_2"), INVALID)
    row("signed by another key", token(body, "key-1", by="key_2"), INVALID)
    row("an unlisted kid", token(body, "unlisted"), INVALID)
    row("an unlisted key that takes a listed kid", token(body, "key-1", by="unlisted"), INVALID)
    for name in ("", "key.1", "key 1", "key-1%00", "KEY-1", "k" * 129):
        row(f"kid {name[:12]!r}", f"v2.{name}.{payload}.{signature}", INVALID)
    row("another context", token(body, context=b"agent-sandbox/scoped-token/v1."), INVALID)
    row("no context", token(body, context=b""), INVALID)
    row("called v1", "v1" + good[2:], INVALID)
    row("as a v1 token", f"v1.{payload}.{signature}", INVALID)
    row("called V2", "V2" + good[2:], INVALID)
    # malformed
    for at, part in enumerate((kid, payload, signature)):
        for name, spoilt in {"empty": "", "cut": part[:-1], "longer": part + "A", "padded": part + "=", "with a plus": part[:-1] + "+", "with a blank": part[:3] + "%20" + part[3:]}.items():
            parts = [version, kid, payload, signature]
            parts[at + 1] = spoilt
            row(f"part {at + 1} {name}", ".".join(parts), INVALID)
    row("a fifth part", good + ".AAAA", INVALID)
    row("three parts", f"v2.{kid}.{payload}", INVALID)
    flipped = bytearray(base64.urlsafe_b64decode(signature + "=="))
    flipped[5] ^= 1
    row("a bit of the signature", f"v2.{kid}.{payload}.{b64(bytes(flipped))}", INVALID)
    row("claims of another token", f"v2.{kid}.{b64(json.dumps(claims(now, path='/x')).encode())}.{signature}", INVALID, target="/x")
    # claims, well signed
    for name in body:
        row(f"without {name}", token(claims(now, **{name: None})), INVALID)
    wrong = {"ns": ["", "NS", "a/b", 1], "name": ["", "Box", "a.b", 1], "uid": ["", "a b", "u" * 65, 1], "port": [0, 65536, -1, "9090", 1.5], "method": ["", "get", "G ET", 1], "path": ["", "exec", "/a b", 1], "exp": ["1", -1, 1e99]}
    for name, values in wrong.items():
        for value in values:
            row(f"{name} {str(value)[:10]!r}", token(claims(now, **{name: value})), INVALID)
    row("no object", token(b"[]"), INVALID)
    row("no JSON", token(b"{"), INVALID)
    row("a claim twice", token(json.dumps(body).encode()[:-1] + b',"port":9090}'), INVALID)
    row("expired", token(claims(now, exp=now - 1)), EXPIRED)
    row("at its end", token(claims(now, exp=now)), EXPIRED)
    row("expired, of none", token(claims(now, exp=now - 1, name="none")), EXPIRED, name="none")
    row("longer than max_ttl", token(claims(now, exp=now + 7200)), INVALID)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--now", type=int, default=NOW)
    parser.add_argument("--output", default=Path(__file__).with_name("scoped_v2.json"))
    options = parser.parse_args()
    made = {"now": options.now, "keys": json.loads(keys_file()), "tokens": table(options.now)}
    Path(options.output).write_text(json.dumps(made, indent=1) + "\n")
