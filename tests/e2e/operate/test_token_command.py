# SPDX-License-Identifier: MIT
"""`cellgate token`: makes tokens that others verify, and says of any token what the agent would."""

import base64
import hashlib
import hmac
import json
import pathlib
import re
import subprocess
import sys
import time

import pytest
from cell import BIN

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "data"))
import make_bad_tokens  # noqa: E402

CELLGATE = str(BIN / "cellgate")
WAIT = 20  # seconds: an upper bound, never slept through
SECRET = b"0123456789abcdef0123456789abcdef"
# RFC 7515 appendix A.3 and RFC 8037 appendix A.1
EC_PRIVATE = {**make_bad_tokens.EC_JWK, "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}
ED_PRIVATE = {**make_bad_tokens.ED_JWK, "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}


def decode(part):
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.fixture
def command(tmp_path):
    """Runs `cellgate token` with a configuration of its own."""

    class Command:
        path = tmp_path

        def configure(self, tokens, files):
            for name, content in files.items():
                (tmp_path / name).write_bytes(content)
            config = {"cell": "cell-a", "worker_networks": ["127.0.0.0/8"], "directory": {"kind": "file", "path": "s.json"}, "tokens": tokens}
            (tmp_path / "cellgate.json").write_text(json.dumps(config))

        def run(self, *arguments, stdin=""):
            return subprocess.run(
                [CELLGATE, "token", "--config", str(tmp_path / "cellgate.json"), *arguments],
                input=stdin, capture_output=True, text=True, timeout=WAIT, check=False)

        def make(self, *arguments):
            made = self.run(*arguments)
            assert made.returncode == 0, made.stderr
            assert made.stderr == ""
            return made.stdout.strip()

    command = Command()
    command.configure(
        [
            {"kind": "jwt", "alg": "HS256", "kid": "k1", "secret_file": "k1.secret"},
            {"kind": "jwt", "alg": "ES256", "kid": "es", "public_key_file": "ec.jwk",
             "private_key_file": "ec-private.jwk"},
            {"kind": "jwt", "alg": "EdDSA", "kid": "ed", "public_key_file": "ed.jwk",
             "private_key_file": "ed-private.jwk"},
            {"kind": "jwt", "alg": "EdDSA", "kid": "public", "public_key_file": "ed.jwk"},
        ],
        {
            "k1.secret": SECRET,
            "ec.jwk": json.dumps(make_bad_tokens.EC_JWK).encode(),
            "ec-private.jwk": json.dumps(EC_PRIVATE).encode(),
            "ed.jwk": json.dumps(make_bad_tokens.ED_JWK).encode(),
            "ed-private.jwk": json.dumps(ED_PRIVATE).encode(),
        })
    return command


def test_a_token_is_what_the_contract_says_and_python_verifies_it(command):
    before = int(time.time())
    token = command.make("--sandbox", "sb-1", "--need", "pty,exec", "--port=8080", "--org", "org-1", "--ttl", "90s")
    header, payload, signature = token.split(".")
    assert decode(header) == {"alg": "HS256", "typ": "JWT", "kid": "k1"}
    claims = decode(payload)
    assert before <= claims["iat"] <= time.time()
    assert claims.pop("exp") - claims.pop("iat") == 90
    assert len(claims.pop("jti")) == 16
    assert claims == {"aud": "cell-a", "org": "org-1", "sandbox": "sb-1", "need": ["pty", "exec"], "ports": [8080]}
    mac = hmac.new(SECRET, f"{header}.{payload}".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64encode(mac).rstrip(b"=").decode() == signature


@pytest.mark.parametrize("kid", ["k1", "es", "ed"])
def test_every_algorithm_is_made_and_admitted(command, kid):
    token = command.make("--sandbox", "sb-1", "--kid", kid)
    assert decode(token.split(".")[0])["kid"] == kid
    told = command.run("--inspect", "-", "--sandbox", "sb-1", "--need", "pty", stdin=token + "\n")
    assert told.returncode == 0
    assert "verdict   good\n" in told.stdout
    assert f"kid       {kid}\n" in told.stdout


def test_inspect_says_what_and_until_when(command):
    token = command.make("--sandbox", "*", "--org", "org-1", "--need", "http", "--port", "80,81", "--ttl", "10m")
    told = command.run("--inspect", token)
    for line in ("org       org-1", "sandbox   *", "need      http", "ports     80 81", "verdict   good"):
        assert line + "\n" in told.stdout
    assert "expires   20" in told.stdout


def test_inspect_says_how_far_the_issuers_clock_is_ahead(command):
    now = int(time.time())
    case = next(case for case in make_bad_tokens.table(now + 600)["cases"] if case["name"] == "issued in the future")
    told = command.run("--inspect", case["token"])
    assert told.returncode == 1 and "refused with token_invalid: it is issued in the future" in told.stdout
    issued = re.search(r"^issued    20\S+ \((\d+) s from now\)$", told.stdout, re.M)
    assert issued and 600 - 20 < int(issued[1]) <= 606
    assert "signature" not in told.stdout and re.search(r"^expires   20", told.stdout, re.M)


@pytest.mark.parametrize("arguments, code", [
    (["--sandbox", "sb-2"], "wrong_sandbox"),
    (["--sandbox", "sb-1", "--need", "exec"], "not_granted"),
    (["--sandbox", "sb-1", "--port", "81"], "not_granted"),
    (["--org", "org-2"], "sandbox_not_found"),
])
def test_inspect_says_why_not_there(command, arguments, code):
    token = command.make("--sandbox", "sb-1", "--need", "pty", "--port", "80", "--org", "org-1")
    told = command.run("--inspect", token, *arguments)
    assert told.returncode == 1
    assert f"refused with {code}: " in told.stdout


@pytest.mark.parametrize("arguments, code, words", [
    ([], 2, "--sandbox"),
    (["--sandbox"], 2, "Usage"),
    (["--sandbox", "*"], 2, "--org"),
    (["--sandbox", "sb-1", "--need", "pty,teleport"], 2, "teleport"),
    (["--sandbox", "sb-1", "--port", "65536"], 2, "65536"),
    (["--sandbox", "sb-1", "--port", "0"], 2, "port"),
    (["--sandbox", "sb-1", "--ttl", "0s"], 2, "--ttl"),
    (["--sandbox", "sb-1", "--ttl", "2h"], 1, "max_ttl"),
    (["--sandbox", "sb-1", "--kid", "k9"], 1, "kid"),
    (["--sandbox", "sb-1", "--kid", "public"], 1, "private_key_file"),
    (["--sandbox", 'sb","org":"x'], 1, "printable"),
])
def test_what_cannot_be_made_is_said(command, arguments, code, words):
    made = command.run(*arguments)
    assert made.returncode == code
    assert made.stdout == ""
    assert words in made.stderr


def test_help_and_an_argument_that_is_not_echoed(command):
    assert "Usage" in command.run("--help").stdout
    assert command.run("--help").returncode == 0
    wrong = command.run("eyJhbGciOiJIUzI1NiJ9.e30.AAAA")
    assert wrong.returncode == 2
    assert "eyJ" not in wrong.stderr


def test_a_key_that_does_not_fit_is_named_and_not_shown(command):
    (command.path / "k1.secret").write_bytes(b"short-and-secret")
    made = command.run("--sandbox", "sb-1")
    assert made.returncode == 1
    assert "k1.secret" in made.stderr and "short-and-secret" not in made.stderr
    (command.path / "k1.secret").unlink()
    assert "k1.secret" in command.run("--sandbox", "sb-1").stderr


def test_a_private_key_of_another_pair_makes_nothing(command):
    other = {  # RFC 8032 section 7.1, test 2
        "kty": "OKP", "crv": "Ed25519",
        "x": make_bad_tokens.encode(bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")),
        "d": make_bad_tokens.encode(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")),
    }
    (command.path / "ed-private.jwk").write_text(json.dumps(other))
    made = command.run("--sandbox", "sb-1", "--kid", "ed")
    assert made.returncode == 1 and made.stdout == ""
    assert "ed-private.jwk" in made.stderr and other["d"] not in made.stderr


def test_private_keys_are_not_read_to_inspect(command):
    token = command.make("--sandbox", "sb-1", "--kid", "ed")
    (command.path / "ed-private.jwk").unlink()
    assert command.run("--inspect", token).returncode == 0
    assert "ed-private.jwk" in command.run("--sandbox", "sb-1").stderr


def told_of(command, now, name):
    """What --inspect says of one token of the table made for this second."""
    table = make_bad_tokens.table(now)
    case = next(case for case in table["cases"] if case["name"] == name)
    arguments = ["--sandbox", table["sandbox"], "--need", table["need"]]
    if "port" in case:
        arguments += ["--port", str(case["port"])]
    if case.get("org"):
        arguments += ["--org", case["org"]]
    return case["refusal"], command.run("--inspect", case["token"], *arguments)


def answer_as_expected(command, name):
    refusal, told = told_of(command, int(time.time()), name)
    expected = f"refused with {refusal}: " if refusal else "verdict   good\n"
    return expected in told.stdout and told.returncode == (1 if refusal else 0), refusal, told


def in_reach(case):
    """Of records the command knows only the organisation that it is told."""
    return "not_before" not in case and (case["refusal"] != "sandbox_not_found" or case.get("org"))


def test_inspect_agrees_with_the_table_of_bad_tokens(command):
    table = make_bad_tokens.table()
    command.configure(table["tokens"], {name: bytes.fromhex(content) for name, content in table["files"].items()})
    cases = [case for case in table["cases"] if in_reach(case)]
    assert len(cases) > 150
    for case in cases:
        for _ in range(10):  # some differ from a good one by a second, which may pass meanwhile
            good, refusal, told = answer_as_expected(command, case["name"])
            if good:
                break
        assert good, f"{case['name']}: expected {refusal!r}, got {told.stdout}{told.stderr}"


# ---- the other kinds ----


@pytest.fixture
def kinds(command):
    command.configure(
        [
            {"kind": "static", "sources": ["X-OC-Preview-Token"]},
            {"kind": "agent-sandbox", "kid": "s", "secret_file": "k1.secret"},
            {"kind": "opensandbox-route", "keys": {"a": "route.key"}},
            {"kind": "file-url", "secret_file": "k1.secret"},
        ],
        {"route.key": base64.b64encode(SECRET)})
    return command


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--kind", "agent-sandbox", "--sandbox", "ns/box-a"], ["kind      agent-sandbox", "kid       s", "sandbox   ns/box-a"]),
        (["--kind", "opensandbox-route", "--sandbox", "my-sb", "--port", "8080"], ["kind      opensandbox-route", "sandbox   my-sb", "ports     8080", "need      http"]),
        (["--sandbox", "sb-1", "--download", "/a b&c/\u00fc"], ["kind      file-url", "file      download of /a b&c/\u00fc"]),
        (["--sandbox", "sb-1", "--upload", "/x"], ["kind      file-url", "file      upload of /x"]),
    ],
)
def test_other_kinds_are_made_and_inspected(kinds, arguments, told):
    made = kinds.make(*arguments)
    seen = kinds.run("--inspect", "-", stdin=made + "\n")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    for line in [*told, "verdict   good"]:
        assert line in seen.stdout
    assert kinds.run("--inspect", made[:-1] + ("0" if made[-1] != "0" else "1")).returncode == 1


def test_a_signed_route_is_inspected_as_host_and_as_path(kinds):
    label = kinds.make("--kind", "opensandbox-route", "--sandbox", "my-sb", "--port", "8080")
    sandbox, rest = label[:5], label[6:]
    for text in (label + ".preview.example.com", "/" + "/".join([sandbox, *rest.split("-")]) + "/a/b"):
        assert "verdict   good" in kinds.run("--inspect", text).stdout


def test_a_label_that_no_host_can_have_is_said(kinds):
    """Of a UUID it has 59 characters; a name of 63 is one too many for what comes behind it."""
    for sandbox, fits in (("3f2504e0-4f89-41d3-9a0c-0305e82c3301", True), ("s" * 63, False)):
        made = kinds.run("--kind", "opensandbox-route", "--sandbox", sandbox, "--port", "65535")
        assert made.returncode == 0 and made.stdout.startswith(sandbox + "-65535-")
        assert (len(made.stdout.strip()) <= 63, "label" in made.stderr) == (fits, not fits)


def test_a_new_secret_comes_with_what_the_record_has_to_hold(kinds):
    made = kinds.run("--kind", "static", "--sandbox", "sb-1")
    secret = made.stdout.strip()
    digest = hashlib.sha256(secret.encode()).hexdigest()
    assert made.returncode == 0 and len(secret) == 32
    assert made.stderr == f'for the sandbox\'s record: "access": {{"token_sha256": "{digest}"}}\n'
    seen = kinds.run("--inspect", "-", stdin=secret)
    assert seen.returncode == 0 and digest in seen.stdout and secret not in seen.stdout


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["--kind", "agent-sandbox", "--sandbox", "sb-1", "--need", "pty"], "cannot say need"),
        (["--kind", "opensandbox-route", "--sandbox", "sb-1"], "which port"),
        (["--kind", "file-url", "--sandbox", "sb-1"], "which file"),
        (["--kind", "jwt", "--sandbox", "sb-1"], "no entry of tokens"),
        (["--sandbox", "sb-1", "--download", "/a", "--ttl", "2d"], "max_ttl"),
    ],
)
def test_what_a_kind_cannot_say_is_refused(kinds, arguments, word):
    made = kinds.run(*arguments)
    assert made.returncode == 1 and word in made.stderr and made.stdout == ""


def test_what_is_given_several_times_adds_up_or_is_refused(command):
    seen = command.run("--inspect", command.make("--sandbox", "a", "--need", "http", "--need=pty,exec", "--port", "1", "--port", "2,3")).stdout
    assert "need      pty,exec,http\n" in seen and "ports     1 2 3\n" in seen
    for twice in (["--sandbox", "b"], ["--sandbox=a"], ["--ttl", "1s", "--ttl", "2s"], ["--config", "x"], ["--kid", "a", "--kid", "b"]):
        done = command.run("--sandbox", "a", *twice)
        assert done.returncode == 2 and "given twice" in done.stderr


@pytest.mark.parametrize(
    "program, arguments",
    [
        ("cellgate", ["explain", "--config", "a", "--config=b", "GET /"]),
        ("cellgate", ["status", "--config", "a", "--config", "b"]),
        ("cellgate", ["tunnels", "--relay", "a", "--relay", "b"]),
        ("cellgate", ["attach", "--ca", "a", "--ca", "b", "http://x/"]),
        ("cellgate-agent", ["-c", "a", "-c", "b"]),
        ("cellgate-relay", ["-o", "cell=a", "-o", "cell=b"]),
    ],
)
def test_other_options_are_refused_the_second_time(program, arguments):
    done = subprocess.run([BIN / program, *arguments], capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 2 or program == "cellgate" and done.returncode == 255
    assert "given twice" in done.stderr


def test_routes_are_printed_as_json(command):
    path = command.path / "cellgate.json"
    config = json.loads(path.read_text()) | {"systems": ["opensandbox", "e2b"], "domains": {"e2b": ["e2b.test"]}, "routes": ["terminal", {"name": "mine", "path": "/{sandbox}"}, "defaults"]}
    path.write_text(json.dumps(config))

    def printed():
        return json.loads(subprocess.run([CELLGATE, "routes", "--config", path], capture_output=True, text=True, check=True).stdout)

    first = printed()
    names = [route["name"] for route in first["routes"]]
    assert names[:2] == ["terminal", "mine"] and "e2b-preview" in names[2:] and first["off"] == ["opensandbox-ingress", "opensandbox-ingress-path"]
    del config["systems"], config["domains"]  # which are in the patterns now
    path.write_text(json.dumps(config | {"routes": first["routes"]}))
    assert printed() == first | {"off": []}
