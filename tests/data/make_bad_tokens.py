#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes bad_tokens.json: tokens, good and bad, with the refusal that each must get.

    tests/data/make_bad_tokens.py [--now SECONDS] [--output FILE]

The file in the tree is made with the default time, so that it is the same on every machine; a test against a running
agent imports table() and gives it the present time. Only what Python brings is used, hence HS256 throughout: the
other algorithms appear where a token merely claims them. Unit tests verify their signatures with RFC vectors.
"""
import argparse
import base64
import hashlib
import hmac
import json
import os

NOW = 2000000000
CELL = "cell-a"
SECRETS = {
    "k1": b"0123456789abcdef0123456789abcdef",
    "none": b"the key of tokens without a kid!",
    "k2": b"\x00" * 32,
    "opencomputer": b"test-session-secret",
}
# RFC 7515 appendix A.3 and RFC 8037 appendix A.2, public parts
EC_JWK = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}
ED_JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
FILES = {
    **{f"{name}.secret": secret for name, secret in SECRETS.items()},
    "ec.jwk": json.dumps(EC_JWK).encode(),
    "ed.jwk": json.dumps(ED_JWK).encode(),
}
TOKENS = [
    {"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": "k1.secret"},
    {"kind": "jwt", "alg": "HS256", "secret_file": "none.secret"},
    {"kind": "jwt", "alg": "HS256", "kid": "k2", "secret_file": "k2.secret", "issuer": "https://issuer.example",
     "audience": "https://cellgate.example", "max_ttl": "60s", "leeway": "0s", "bind": True},
    {"kind": "jwt", "alg": "HS256", "secret_file": "opencomputer.secret", "min_secret": 16,
     "issuer": "opensandbox-edge", "claims": {"cell": "cell_id", "org": "org_id"}},
    {"kind": "jwt", "alg": "ES256", "kid": "ec", "public_key_file": "ec.jwk"},
    {"kind": "jwt", "alg": "EdDSA", "kid": "ed", "public_key_file": "ed.jwk"},
]
ORG = "11111111-2222-4333-8444-555555555555"


def encode(data):
    if isinstance(data, str):
        data = data.encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def text(value):
    """JSON as most issuers write it; a str is taken as it is, to say what json.dumps would not."""
    return value if isinstance(value, (str, bytes)) else json.dumps(value, separators=(",", ":"))


def sign(signing_input, secret):
    return encode(hmac.new(secret, signing_input.encode(), hashlib.sha256).digest())


def token(claims, header=None, secret=SECRETS["k1"]):
    header = {"alg": "HS256", "typ": "JWT", "kid": "k1"} if header is None else header
    signing_input = encode(text(header)) + "." + encode(text(claims))
    return signing_input + "." + sign(signing_input, secret)


class Table:
    def __init__(self, now):
        self.now = now
        self.cases = []

    def claims(self, **changes):
        """Good claims with changes; None takes one out."""
        claims = {"aud": CELL, "sub": "user-7", "iat": self.now - 10, "exp": self.now + 110, "sandbox": "sb-1"}
        claims.update(changes)
        return {key: value for key, value in claims.items() if value is not None}

    def put(self, name, refusal, credential, **target):
        self.cases.append({"name": name, "refusal": refusal, "token": credential, **target})

    def good(self, name, claims, header=None, secret=SECRETS["k1"], **target):
        self.put(name, "", token(claims, header, secret), **target)

    def bad(self, name, refusal, claims, header=None, secret=SECRETS["k1"], **target):
        self.put(name, refusal, token(claims, header, secret), **target)


def with_text(claims, old, new):
    """The claims as JSON text with a part replaced: for JSON that json.dumps does not write."""
    written = text(claims)
    assert old in written
    return written.replace(old, new, 1)


def put_good(t):
    now = t.now
    t.good("the least: exp, aud, sandbox", t.claims(sub=None, iat=None))
    t.good("everything", t.claims(iss="anyone", nbf=now - 10, jti="j", org="org-1", need=["pty", "exec"],
                                  ports=[80, 8080], plan="pro"), port=8080, org="org-1")
    t.good("typ in lower case", t.claims(), {"alg": "HS256", "typ": "jwt", "kid": "k1"})
    for kind in ("at+jwt", "AT+JWT", "application/at+jwt", "application/jwt"):
        t.good("typ " + kind, t.claims(), {"alg": "HS256", "typ": kind, "kid": "k1"})
    # RFC 7519 section 2: a NumericDate may have a fraction, and JSON has several ways to write a number
    exp = '"exp":%d' % (now + 110)
    for form in ("%d.5", "%d.0", "%d0e-1", "%d.75E+0", "%d000.9e-3"):
        t.good("exp as " + form, with_text(t.claims(), exp, '"exp":' + form % (now + 110)))
    t.good("exp as 0.%de10", with_text(t.claims(), exp, '"exp":0.%de10' % (now + 110)))
    t.good("iat and nbf in this second", t.claims(iat=now + 5.5, nbf=now + 5.75))
    t.good("no typ", t.claims(), {"alg": "HS256", "kid": "k1"})
    t.good("blanks in the JSON", json.dumps(t.claims(), indent=2))
    t.good("audience last in an array", t.claims(aud=["other", CELL]))
    t.good("audience first in an array", t.claims(aud=[CELL, "other"]))
    t.good("cell instead of aud", t.claims(aud=None, cell=CELL))
    t.good("any sandbox of an organisation", t.claims(sandbox="*", org="org-1"), org="org-1")
    t.good("no sandbox, an organisation", t.claims(sandbox=None, org="org-1"), org="org-1")
    t.good("expired within the leeway", t.claims(exp=now - 4))
    t.good("issued within the leeway of the future", t.claims(iat=now + 5, nbf=now + 5))
    t.good("as long as max_ttl", t.claims(iat=now, exp=now + 3600))
    t.good("header members that are ignored",
           t.claims(), {"alg": "HS256", "kid": "k1", "jku": "https://evil.example/", "x5u": "https://evil.example/",
                        "jwk": {"kty": "oct", "k": "AAAA"}, "b64": False, "zip": "DEF"})
    t.good("no kid, for the keys without one", t.claims(), {"alg": "HS256"}, SECRETS["none"])
    t.good("a secret of 32 NUL bytes, issuer and audience",
           t.claims(iss="https://issuer.example", aud="https://cellgate.example", iat=now, exp=now + 60),
           {"alg": "HS256", "kid": "k2"}, SECRETS["k2"])
    t.good("OpenComputer's capability token",
           {"sub": ORG, "iss": "opensandbox-edge", "iat": now - 100, "exp": now + 20, "org_id": ORG,
            "cell_id": CELL, "plan": "pro"}, {"alg": "HS256", "typ": "JWT"}, SECRETS["opencomputer"], org=ORG)
    t.good("a need of a later version beside one of ours", t.claims(need=["pty", "teleport"]))
    t.good("issued just when older ones were revoked", t.claims(iat=now - 10), not_before=now - 10)
    t.good("the numbers of an escaped name", with_text(t.claims(), '"exp"', '"\\u0065xp"'))


def put_form(t):
    good = token(t.claims())
    header, payload, signature = good.split(".")
    form = [
        ("empty", ""),
        ("one dot", "."),
        ("two dots", ".."),
        ("no dots", header),
        ("one part missing", header + "." + payload),
        ("signature empty", header + "." + payload + "."),
        ("header empty", "." + payload + "." + signature),
        ("payload empty", header + ".." + signature),
        ("four parts", good + ".e30"),
        ("a dot behind it", good + "."),
        ("five parts, as JWE", "e30.e30.e30.e30.e30"),
        ("JSON serialisation", text({"payload": payload, "protected": header, "signature": signature})),
        ("a blank before it", " " + good),
        ("a blank behind it", good + " "),
        ("a line end behind it", good + "\n"),
        ("a blank within", header + ". " + payload + "." + signature),
        ("padding on the signature", good + "="),
        ("padding on the header", header + "=." + payload + "." + signature),
        ("base64 instead of base64url", header + "." + payload + "." + "+/" + signature[2:]),
        ("a foreign character in the signature", header + "." + payload + ".#" + signature[1:]),
        ("a foreign character added to the header", header + "?." + payload + "." + signature),
        ("a foreign character added to the payload", header + "." + payload + "?." + signature),
        ("spare bits in the signature", good[:-1] + chr(ord(good[-1]) + 1)),
        ("signature cut by a byte", header + "." + payload + "." + encode(base64.urlsafe_b64decode(signature + "=")[:31])),
        ("signature longer by a byte",
         header + "." + payload + "." + encode(base64.urlsafe_b64decode(signature + "=") + b"\0")),
        ("signature of 4096 bytes", header + "." + payload + "." + "A" * 4096),
        ("longer than 8 KiB", token(t.claims(sub="x" * 6200))),
        ("agent-sandbox's token", "v1.eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoyMDAwMDAwMDAwfQ."
                                  "M1Vb0-M5-gnkivK7xeY711h5iZ87ZLO-85EALGrHShQ"),
        ("two tokens with a comma", good + "," + good),
    ]
    for name, credential in form:
        t.put(name, "token_invalid", credential)


def put_signature(t):
    good = token(t.claims())
    header, payload, signature = good.split(".")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    other = encode(text(t.claims(sandbox="sb-2")))
    t.put("signature changed", "token_invalid", header + "." + payload + "." + flipped)
    t.put("payload changed", "token_invalid", header + "." + other + "." + signature)
    t.put("header changed", "token_invalid", encode('{"alg":"HS256","kid":"k1"}') + "." + payload + "." + signature)
    t.bad("another secret", "token_invalid", t.claims(), secret=b"x" * 32)
    t.bad("the secret with a line end", "token_invalid", t.claims(), secret=SECRETS["k1"] + b"\n")
    t.bad("an empty secret", "token_invalid", t.claims(), secret=b"")
    signing_input = header + "." + payload
    t.put("HMAC-SHA512 under the right secret", "token_invalid", signing_input + "." + encode(
        hmac.new(SECRETS["k1"], signing_input.encode(), hashlib.sha512).digest()))
    t.put("plain SHA-256 of secret and input", "token_invalid", signing_input + "." + encode(
        hashlib.sha256(SECRETS["k1"] + signing_input.encode()).digest()))


def put_header(t):
    def header(name, value, secret=SECRETS["k1"]):
        t.bad(name, "token_invalid", t.claims(), value, secret)

    header("alg none", {"alg": "none", "kid": "k1"})
    t.put("alg none without signature", "token_invalid",
          encode('{"alg":"none","kid":"k1"}') + "." + encode(text(t.claims())) + ".")
    header("alg nOnE", {"alg": "nOnE", "kid": "k1"})
    header("alg in lower case", {"alg": "hs256", "kid": "k1"})
    header("alg HS512", {"alg": "HS512", "kid": "k1"})
    header("alg ES256 with the HMAC key's kid", {"alg": "ES256", "kid": "k1"})
    header("alg missing", {"typ": "JWT", "kid": "k1"})
    header("alg in an array", {"alg": ["HS256"], "kid": "k1"})
    header("alg null", {"alg": None, "kid": "k1"})
    header("alg empty", {"alg": "", "kid": "k1"})
    header("alg in another case of the name", {"ALG": "HS256", "kid": "k1"})
    header("alg twice", '{"alg":"none","alg":"HS256","kid":"k1"}')
    header("alg twice, once escaped", '{"\\u0061lg":"none","alg":"HS256","kid":"k1"}')
    header("alg with a NUL", '{"alg":"HS256\\u0000","kid":"k1"}')
    header("HS256 with the P-256 key's text as secret", {"alg": "HS256", "kid": "ec"}, FILES["ec.jwk"])
    header("HS256 with the Ed25519 key's bytes as secret", {"alg": "HS256", "kid": "ed"},
           base64.urlsafe_b64decode(ED_JWK["x"] + "="))
    header("EdDSA with the P-256 key's kid", {"alg": "EdDSA", "kid": "ec"})
    header("ES256 with an HMAC for a signature", {"alg": "ES256", "kid": "ec"})
    signing_input = encode('{"alg":"ES256","kid":"ec"}') + "." + encode(text(t.claims()))
    t.put("ES256 with a signature of 64 NUL bytes", "token_invalid", signing_input + "." + encode(b"\0" * 64))
    t.put("ES256 with a signature in DER", "token_invalid",
          signing_input + "." + encode(b"\x30\x06\x02\x01\x01\x02\x01\x01"))
    signing_input = encode('{"alg":"EdDSA","kid":"ed"}') + "." + encode(text(t.claims()))
    t.put("EdDSA with a signature of 64 NUL bytes", "token_invalid", signing_input + "." + encode(b"\0" * 64))
    header("crit", {"alg": "HS256", "kid": "k1", "crit": ["exp"], "exp": 1})
    header("crit empty", {"alg": "HS256", "kid": "k1", "crit": []})
    header("crit with b64", {"alg": "HS256", "kid": "k1", "crit": ["b64"], "b64": True})
    header("an unknown kid", {"alg": "HS256", "kid": "k9"})
    header("a kid that is a path", {"alg": "HS256", "kid": "../../dev/null"}, b"\0")
    header("a kid in another case", {"alg": "HS256", "kid": "K1"})
    header("an empty kid", {"alg": "HS256", "kid": ""}, SECRETS["none"])
    header("a kid that is a number", {"alg": "HS256", "kid": 1})
    header("a kid that is null", {"alg": "HS256", "kid": None}, SECRETS["none"])
    header("no kid, though the key has one", {"alg": "HS256"})
    header("another key's kid", {"alg": "HS256", "kid": "k2"})
    for kind in ("logout+jwt", "dpop+jwt", "secevent+jwt", "at", "application/", "text/at+jwt", ""):
        header("a typ of another kind: " + kind, {"alg": "HS256", "kid": "k1", "typ": kind})
    header("a typ that is a number", {"alg": "HS256", "kid": "k1", "typ": 1})
    header("the attacker's jwk", {"alg": "HS256", "jwk": {"kty": "oct", "k": encode(b"x" * 32)}}, b"x" * 32)
    header("an array", [{"alg": "HS256", "kid": "k1"}])
    header("not JSON", "alg=HS256")
    header("something behind the JSON", '{"alg":"HS256","kid":"k1"}{}')
    header("a byte-order mark", b'\xef\xbb\xbf{"alg":"HS256","kid":"k1"}')
    header("bytes that are no UTF-8", b'{"alg":"HS256","kid":"k1","x":"\xff"}')
    header("too deep", '{"alg":"HS256","kid":"k1","x":' + "[" * 50 + "]" * 50 + "}")


def put_times(t):
    now = t.now
    t.bad("expired", "token_expired", t.claims(iat=now - 200, exp=now - 100))
    t.bad("expired just now, leeway and all", "token_expired", t.claims(exp=now - 5))
    t.bad("expired by a fraction", "token_expired", t.claims(exp=now - 4.25))
    t.bad("expired long ago by its exponent", "token_expired", with_text(t.claims(iat=None), '"exp":%d' % (now + 110), '"exp":%de-5' % (now + 110)))
    t.bad("expired, for another sandbox as well", "token_expired", t.claims(exp=now - 5, sandbox="sb-2"))
    t.bad("expired without leeway", "token_expired",
          t.claims(iss="https://issuer.example", aud="https://cellgate.example", iat=now - 60, exp=now),
          {"alg": "HS256", "kid": "k2"}, SECRETS["k2"])
    t.put("expired and the signature changed", "token_invalid",
          token(t.claims(exp=now - 100), secret=b"x" * 32))
    for name, claims in (
            ("exp missing", t.claims(exp=None)),
            ("exp null", with_text(t.claims(), '"exp":%d' % (now + 110), '"exp":null')),
            ("exp a string", t.claims(exp=str(now + 110))),
            ("exp true", t.claims(exp=True)),
            ("exp infinite", with_text(t.claims(), '"exp":%d' % (now + 110), '"exp":1e400')),
            ("exp with an endless exponent", with_text(t.claims(), '"exp":%d' % (now + 110), '"exp":1e99999999999999999999')),
            ("exp too late by its exponent", with_text(t.claims(), '"exp":%d' % (now + 110), '"exp":%de9' % (now + 110))),
            ("exp negative and fractional", t.claims(exp=-0.5)),
            ("exp not a number", with_text(t.claims(), '"exp":%d' % (now + 110), '"exp":%d.' % (now + 110))),
            ("iat in the future by a fraction", t.claims(iat=now + 6.5)),
            ("nbf in the future by an exponent", with_text(t.claims(nbf=1), '"nbf":1', '"nbf":1e10')),
            ("exp negative", t.claims(exp=-1)),
            ("exp 2^53+1", t.claims(exp=2**53 + 1)),
            ("exp 2^63", t.claims(exp=2**63)),
            ("exp 2^64 + exp", t.claims(exp=2**64 + now + 110)),
            ("exp twice", with_text(t.claims(), '"exp"', '"exp":%d,"exp"' % (now + 9))),
            ("exp twice, once escaped", with_text(t.claims(), '"exp"', '"\\u0065xp":%d,"exp"' % (now + 9))),
            ("exp only in upper case", with_text(t.claims(), '"exp"', '"EXP"')),
            ("exp with a NUL behind it", with_text(t.claims(), '"exp"', '"exp\\u0000x"')),
            ("exp with a leading zero", with_text(t.claims(), '"exp":', '"exp":0')),
            ("exp in an array", t.claims(exp=[now + 110])),
            ("longer than max_ttl", t.claims(iat=now, exp=now + 3601)),
            ("longer than max_ttl, iat missing", t.claims(iat=None, exp=now + 3606)),
            ("issued in the future", t.claims(iat=now + 6)),
            ("iat a string", t.claims(iat=str(now))),
            ("iat negative, to stretch max_ttl", t.claims(iat=-5)),
            ("nbf in the future", t.claims(nbf=now + 6)),
            ("expires before it is issued", t.claims(iat=now, exp=now - 1)),
    ):
        t.bad(name, "token_invalid", claims)


def put_claims(t):
    for name, claims in (
            ("payload an array", "[]"),
            ("payload a string", '"sb-1"'),
            ("payload not JSON", "sb-1"),
            ("payload with something behind it", text(t.claims()) + "x"),
            ("payload with a raw line end in a string", with_text(t.claims(), "user-7", "user\n7")),
            ("payload with a lone surrogate", with_text(t.claims(), "user-7", "\\ud800")),
            ("payload with overlong UTF-8", text(t.claims()).encode().replace(b"user-7", b"\xc0\xaf")),
            ("payload too deep", with_text(t.claims(), '"user-7"', "[" * 50 + "]" * 50)),
            ("payload with a comment", text(t.claims()) + "//"),
            ("neither aud nor cell", t.claims(aud=None)),
            ("aud a number", t.claims(aud=7)),
            ("aud an array with a number", t.claims(aud=[CELL, 7])),
            ("cell an array", t.claims(cell=[CELL])),
            ("iss a number", t.claims(iss=7)),
            ("sub a number", t.claims(sub=7)),
            ("sub empty", t.claims(sub="")),
            ("org with a line end", t.claims(org="org-1\r\nX-Admin: 1")),
            ("sandbox a number", t.claims(sandbox=1)),
            ("sandbox an array", t.claims(sandbox=["sb-1"])),
            ("sandbox empty", t.claims(sandbox="")),
            ("sandbox null", with_text(t.claims(), '"sb-1"', "null")),
            ("any sandbox of nobody", t.claims(sandbox="*")),
            ("no sandbox and no organisation", t.claims(sandbox=None)),
            ("need a string", t.claims(need="pty")),
            ("need with a number", t.claims(need=["pty", 1])),
            ("need null", with_text(t.claims(need=1), '"need":1', '"need":null')),
            ("ports a number", t.claims(ports=80)),
            ("ports with a string", t.claims(ports=["80"])),
            ("ports with 0", t.claims(ports=[0])),
            ("ports with 65536", t.claims(ports=[65536])),
            ("ports with a fraction", t.claims(ports=[80.5])),
    ):
        t.bad(name, "token_invalid", claims)
    k2 = {"alg": "HS256", "kid": "k2"}
    theirs = t.claims(iss="https://issuer.example", aud="https://cellgate.example", iat=t.now, exp=t.now + 60)
    t.bad("iss missing where one is wanted", "token_invalid",
          {key: value for key, value in theirs.items() if key != "iss"}, k2, SECRETS["k2"])
    t.bad("iss null where one is wanted", "token_invalid", {**theirs, "iss": None}, k2, SECRETS["k2"])
    t.bad("iss another", "token_invalid", {**theirs, "iss": "https://issuer.example/"}, k2, SECRETS["k2"])
    t.bad("aud missing where one is configured", "token_invalid",
          {key: value for key, value in {**theirs, "cell": CELL}.items() if key != "aud"}, k2, SECRETS["k2"])
    t.bad("aud the cell where another one is configured", "wrong_cell", {**theirs, "aud": CELL}, k2, SECRETS["k2"])
    t.bad("the max_ttl of its own key", "token_invalid", {**theirs, "exp": t.now + 61}, k2, SECRETS["k2"])
    oc = {"sub": ORG, "iss": "opensandbox-edge", "iat": t.now - 100, "exp": t.now + 20, "org_id": ORG, "cell_id": CELL}
    secret = SECRETS["opencomputer"]
    t.bad("OpenComputer's for another cell", "wrong_cell", {**oc, "cell_id": "cell-b"}, {"alg": "HS256"}, secret,
          org=ORG)
    t.bad("OpenComputer's with an empty organisation", "token_invalid", {**oc, "org_id": ""}, {"alg": "HS256"},
          secret, org="")
    t.bad("OpenComputer's with the names of ours", "token_invalid",
          {**t.claims(org=ORG, cell=CELL), "iss": "opensandbox-edge", "aud": None}, {"alg": "HS256"}, secret, org=ORG)
    t.bad("OpenComputer's, sandbox of another organisation", "sandbox_not_found", oc, {"alg": "HS256"}, secret,
          org="org-2")


def put_scope(t):
    now = t.now
    t.bad("aud another cell", "wrong_cell", t.claims(aud="cell-b"))
    t.bad("aud other cells", "wrong_cell", t.claims(aud=["cell-b", "cell-aa"]))
    t.bad("aud empty", "wrong_cell", t.claims(aud=[]))
    t.bad("cell another", "wrong_cell", t.claims(aud=None, cell="cell-b"))
    t.bad("aud right, cell another", "wrong_cell", t.claims(cell="cell-b"))
    t.bad("another sandbox", "wrong_sandbox", t.claims(sandbox="sb-2"))
    t.bad("a longer sandbox", "wrong_sandbox", t.claims(sandbox="sb-11"))
    t.bad("a shorter sandbox", "wrong_sandbox", t.claims(sandbox="sb-"))
    t.bad("the sandbox in another case", "wrong_sandbox", t.claims(sandbox="SB-1"))
    t.bad("a star that is no pattern", "wrong_sandbox", t.claims(sandbox="sb-*"))
    t.bad("need another", "not_granted", t.claims(need=["exec", "http"]))
    t.bad("need nothing", "not_granted", t.claims(need=[]))
    t.bad("need only of a later version", "not_granted", t.claims(need=["teleport"]))
    t.bad("need in another case", "not_granted", t.claims(need=["PTY"]))
    t.bad("another port", "not_granted", t.claims(ports=[80, 8080]), port=81)
    t.bad("no port at all", "not_granted", t.claims(ports=[]), port=80)
    t.bad("another organisation", "sandbox_not_found", t.claims(org="org-1"), org="org-2")
    t.bad("an organisation, the sandbox has none", "sandbox_not_found", t.claims(org="org-1"))
    t.bad("any sandbox, another organisation", "sandbox_not_found", t.claims(sandbox="*", org="org-1"), org="org-2")
    t.bad("any sandbox, this one has no organisation", "sandbox_not_found", t.claims(sandbox="*", org="org-1"))
    t.bad("issued before not_before", "token_revoked", t.claims(), not_before=now - 9)
    t.bad("not_before, and it does not say when it was issued", "token_revoked", t.claims(iat=None), not_before=1)


def table(now=NOW):
    t = Table(now)
    for put in (put_good, put_form, put_signature, put_header, put_times, put_claims, put_scope):
        put(t)
    names = [case["name"] for case in t.cases]
    assert len(names) == len(set(names))
    return {
        "now": now,
        "cell": CELL,
        "sandbox": "sb-1",
        "need": "pty",
        "files": {name: content.hex() for name, content in FILES.items()},
        "tokens": TOKENS,
        "cases": t.cases,
    }


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--now", type=int, default=NOW)
    parser.add_argument("--output", default=os.path.join(here, "bad_tokens.json"))
    arguments = parser.parse_args()
    with open(arguments.output, "w", encoding="ascii") as output:
        json.dump(table(arguments.now), output, indent=1)
        output.write("\n")


if __name__ == "__main__":
    main()
