# SPDX-License-Identifier: MIT
"""What is written in several places says the same in each: arguments, variables and refusals."""

import grp
import ipaddress
import json
import os
import pwd
import re
import socket
import subprocess
from pathlib import Path

import pytest
from cell import ROOT, end, until


def macro(text, name):
    """The body of an X-macro, with the rows of the tables of foreign systems in the place of their names."""
    body = without_comments(re.search(rf"#define {name}\(X\)((?:.*\\\n)*.*\n)", text)[1])
    tables = "".join(path.read_text() for path in (ROOT / "spoa/agent/systems").rglob("tables.h"))
    return re.sub(r"\b([A-Z0-9_]{2,})\(X\)", lambda found: macro(tables, found[1]), body)


def table(path, name):
    """The rows of an X-macro."""
    body = macro((ROOT / path).read_text(), name)
    return re.findall(r"\bX\((.*?)\)(?= X\(| $)", re.sub(r"[\s\\]+", " ", body))


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def warnings(stderr):
    """Of a HAProxy that is known to be too old in one way it says so itself."""
    return [line for line in stderr.splitlines() if ("WARNING" in line or "ALERT" in line) and "2.8 before 2.8.11" not in line]


ENGINES = ["cellgate", "cellgate-again"]


def spoe(engine, keyword, file="spoe.conf"):
    section = re.search(rf"^\[{engine}\]\n(.*?)(?=^\[|\Z)", (ROOT / "haproxy" / file).read_text(), re.M | re.S)[1]
    return " ".join(re.findall(rf"^\s+{keyword} (.*)$", section, re.M)).split()


@pytest.mark.parametrize("engine", ENGINES)
def test_spoe_arguments_are_those_of_the_agent(engine):
    rows = [re.findall(r'"([^"]*)"', row) for row in table("spoa/agent/model/request.h", "REQUEST_ARGUMENTS")]
    assert len(rows) > 8
    assert spoe(engine, "args") == [f"{name}={sample}" for name, sample in rows]


@pytest.mark.parametrize("engine", ENGINES)
def test_spoe_variables_are_those_of_the_agent(engine):
    names = [re.search(r'"([^"]*)"', row)[1] for row in table("spoa/agent/model/verdict.h", "VERDICT_VARIABLES")]
    assert len(names) > 20
    assert spoe(engine, "register-var-names") == ["verdict", *names]
    # HAProxy reads beyond the end of a longer name.
    assert all(len(f"txn.cell.{name}") <= 63 for name in names)


@pytest.mark.parametrize("engine", ["egress", "egress-again"])
def test_egress_arguments_and_variables_are_those_of_the_agent(engine):
    rows = [re.findall(r'"([^"]*)"', row) for row in table("spoa/agent/decision/egress.h", "EGRESS_ARGUMENTS")]
    inside = [re.findall(r'"([^"]*)"', row)[:2] for row in table("spoa/agent/decision/egress.h", "EGRESS_INSIDE_ARGUMENTS")]
    names = [re.search(r'"([^"]*)"', row)[1] for row in table("spoa/agent/decision/egress.h", "EGRESS_VARIABLES")]
    names += [re.search(r'"([^"]*)"', row)[1] for row in table("spoa/agent/egress/rules.h", "EGRESS_CREDENTIALS")]
    assert len(rows) > 4 and len(inside) > 8 and len(names) > 20

    assert spoe(engine, "args", "egress-spoe.conf") == [f"{name}={sample}" for name, sample in rows + inside]
    assert spoe(engine, "register-var-names", "egress-spoe.conf") == ["verdict", *names]
    assert all(len(f"txn.egress.{name}") <= 63 for name in names)


def test_every_credential_of_egress_has_its_rule():
    text = (ROOT / "haproxy/egress.cfg").read_text()
    for row in table("spoa/agent/egress/rules.h", "EGRESS_CREDENTIALS"):
        variable, header = re.findall(r'"([^"]*)"', row)
        assert re.search(rf"(?i)http-request set-header {header} %\[var\(txn.egress.{variable}\)\] if {{ var\(txn.egress.{variable}\) -m found }}", text)


def test_every_status_of_egress_has_its_rule():
    text = (ROOT / "haproxy/egress.cfg").read_text()
    for status in re.search(r"acl known-status .* -m int (.*)", text)[1].split():
        assert f"http-request return status {status} content-type application/json" in text


def test_every_status_of_a_refusal_has_its_rule():
    text = (ROOT / "haproxy/haproxy.cfg").read_text()
    statuses = {row.split(",")[1].strip() for row in table("spoa/proto/refusal.h", "REFUSALS")} - {"407", "408", "421"}  # egress.cfg's, and the relay's
    assert statuses <= set(re.search(r"acl known-status .* -m int (.*)", text)[1].split())
    for status in statuses:
        assert f"http-request return status {status} content-type application/json" in text


def test_metadata_services_are_the_same_in_the_agent_and_in_haproxy():
    table = re.search(r"metadata\[\] = \{\n(.*?)\n\};", (ROOT / "spoa/base/text/cidr.c").read_text(), re.S)[1]
    rows = re.findall(r"\{\{(\d), \{(.*?)\}\},\s*(\d+)\},", without_comments(table))
    assert len(rows) == table.count("{{")
    ours = set()
    for family, octets, bits in rows:
        packed, at = bytearray(4 if family == "4" else 16), 0
        for octet in octets.split(", "):
            index, _, value = octet.rpartition(" = ")
            at = int(index.strip("[]")) if index else at
            packed[at], at = int(value, 0), at + 1
        ours.add(ipaddress.ip_network((bytes(packed), int(bits))))
    text = (ROOT / "haproxy/haproxy.cfg").read_text()
    lists = [set(map(ipaddress.ip_network, line.split())) for line in re.findall(r"-m ip (169\.254[^}\n]*)", text)]
    assert len(ours) > 5 and lists == [ours, ours]
    front, relays = text.split("frontend to-worker-tls")
    carried = [{ipaddress.ip_network(word) for line in re.findall(r"acl metadata .* -m ip (::ffff.*)", part) for word in line.split()} for part in (front, relays)]
    wanted = set()
    for network in (n for n in ours if n.version == 4):
        at, bits = int(network.network_address), network.prefixlen
        wanted |= {ipaddress.ip_network((front | at, 96 + bits)) for front in (0, 0xFFFF << 32, 0x64FF9B << 96)}
        wanted.add(ipaddress.ip_network((0x2002 << 112 | at << 80, 16 + bits)))
    assert carried == [wanted, wanted]


@pytest.mark.parametrize("path", sorted((ROOT / "haproxy/errors").iterdir()), ids=lambda path: path.stem)
def test_error_files_are_whole_answers(path):
    head, _, body = path.read_bytes().partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    stream = re.fullmatch(rb"retry: 2000\n: (.*)\n\n", body)  # an EventSource comes again after a 200 alone
    error = json.loads(stream[1] if stream else body)
    status = int(head.split(b" ")[1])
    assert (status == 200) == bool(stream) == (b"Content-Type: text/event-stream" in head)
    if path.stem in ("events-unreachable", "event-source"):  # a GET for events may be repeated whatever became of it
        assert status in (200, 503) and error == {"error": "worker_unreachable", "message": "The sandbox's worker cannot be reached.", "retryable": True}
        assert stream or b"Retry-After: 1\r\n" in head
        return
    known = {row.split(",")[0]: row for row in table("spoa/proto/refusal.h", "REFUSALS")}
    if error["error"] in known:
        assert known[error["error"]].split(",")[1].strip() == str(status)
        assert error["message"] == re.search(r'"(.*)"', known[error["error"]])[1]
        assert error["retryable"] == ("true" in known[error["error"]]) == (b"Retry-After: 1" in head)


@pytest.fixture
def environment(tmp_path):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x"]
        + ["-keyout", tmp_path / "k.pem", "-out", tmp_path / "c.pem"],
        check=True,
        capture_output=True,
    )
    (tmp_path / "cert.pem").write_text((tmp_path / "k.pem").read_text() + (tmp_path / "c.pem").read_text())
    return {"CELLGATE_DIR": str(ROOT / "haproxy"), "CELLGATE_CERT": str(tmp_path / "cert.pem"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def test_the_configuration_is_valid_without_a_warning(environment, pytestconfig):
    command = [*pytestconfig.getoption("--haproxy").split(), "-c", "-f", ROOT / "haproxy/haproxy.cfg"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not warnings(done.stderr)


def test_a_haproxy_that_is_too_old_is_refused(environment, tmp_path, pytestconfig):
    """As if this one were."""
    text = (ROOT / "haproxy/haproxy.cfg").read_text()
    assert text.count("!version_atleast(2.6.9)") == 1
    (tmp_path / "haproxy.cfg").write_text(text.replace("!version_atleast(2.6.9)", "!version_atleast(99.0)"))
    command = [*pytestconfig.getoption("--haproxy").split(), "-c", "-f", tmp_path / "haproxy.cfg"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "HAProxy 2.6.9 or later is needed" in done.stderr


def test_it_is_valid_behind_the_configuration_that_debian_installs(environment, tmp_path, pytestconfig):
    debian = "global\n log /dev/log local0\n user haproxy\n group haproxy\n ca-base /etc/ssl/certs\n crt-base /etc/ssl/private\n"
    (tmp_path / "debian.cfg").write_text(debian + "defaults\n log global\n mode http\n timeout connect 5s\n timeout client 50s\n timeout server 50s\n")
    environment |= {"CELLGATE_RELAY_GROUP": "haproxy", "CELLGATE_WORKER_CA": environment["CELLGATE_CERT"]}
    environment |= {"REDIS_SOCKET": f"{tmp_path}/r", "REDIS_SERVER": "127.0.0.1:1", "REDIS_NAME": "x", "REDIS_CA": environment["CELLGATE_CERT"]}
    files = [tmp_path / "debian.cfg", ROOT / "haproxy/haproxy.cfg", ROOT / "examples/redis-tls/haproxy.cfg"]
    command = [*pytestconfig.getoption("--haproxy").split(), "-c", *(word for file in files for word in ("-f", file))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and not warnings(done.stderr), done.stderr


def test_behind_another_configuration_each_request_is_logged_once(environment, tmp_path, pytestconfig):
    """Debian's logs to the journal too, where HAProxy's output goes: a line of ours must not reach it twice."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(f"{tmp_path}/journal")
        (tmp_path / "debian.cfg").write_text(f"global\n log {tmp_path}/journal local0\ndefaults\n log global\n mode http\n timeout connect 5s\n timeout client 50s\n timeout server 50s\n"
                                             f"frontend own\n bind unix@{tmp_path}/own\n http-request return status 200\n option httplog\n")
        environment |= {"CELLGATE_HTTP": f"unix@{tmp_path}/a", "CELLGATE_HTTPS": "none", "CELLGATE_STATS": f"{tmp_path}/s", "CELLGATE_WORKER_TLS": f"unix@{tmp_path}/t", "CELLGATE_WORKER_CA": environment["CELLGATE_CERT"]}
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen([*pytestconfig.getoption("--haproxy").split(), "-db", "-f", tmp_path / "debian.cfg", "-f", ROOT / "haproxy/haproxy.cfg"], env=environment, stdout=log, stderr=log)

        def asked(name):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"{tmp_path}/{name}")
                client.sendall(b"GET /x HTTP/1.0\r\n\r\n")
                return b"".join(iter(lambda: client.recv(4096), b""))

        try:
            until(lambda: (tmp_path / "own").exists() and (tmp_path / "a").exists(), 10, "it does not listen")
            assert b" 403 " in asked("a")[:15] and b" 200 " in asked("own")[:15]
            until(lambda: "GET" in (tmp_path / "log").read_text(), 10, "it logs nothing")
            said = b""
            journal.settimeout(10)
            while b" own " not in said:  # what its other frontend says comes last
                said = journal.recv(65536)
                assert b" cellgate " not in said, said
        finally:
            end(process)
    assert len([line for line in (tmp_path / "log").read_text().splitlines() if "GET" in line]) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_as_a_user_haproxy_leaves_its_socket_to_the_relays_group(environment, tmp_path, pytestconfig):
    environment |= {"CELLGATE_USER": "haproxy", "CELLGATE_GROUP": "haproxy", "CELLGATE_RELAY_GROUP": "games", "CELLGATE_STATS": str(tmp_path / "s"), "CELLGATE_WORKER_TLS": f"unix@{tmp_path}/t"}
    environment |= {"CELLGATE_HTTP": f"unix@{tmp_path}/a", "CELLGATE_HTTPS": f"unix@{tmp_path}/b", "CELLGATE_LOG": "stderr"}
    command = [*pytestconfig.getoption("--haproxy").split(), "-db", "-f", ROOT / "haproxy/haproxy.cfg"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    wanted = [pwd.getpwnam("haproxy").pw_uid, grp.getgrnam("haproxy").gr_gid]

    def become():
        status = Path(f"/proc/{process.pid}/status").read_text()
        return [int(re.search(rf"^{kind}:\t(\d+)", status, re.M)[1]) for kind in ("Uid", "Gid")]

    try:
        until(lambda: process.poll() is not None or become()[0] == wanted[0], 20, "it stays root")
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert become() == wanted
        there = os.stat(tmp_path / "t")
        assert there.st_gid == grp.getgrnam("games").gr_gid and there.st_mode & 0o777 == 0o660
    finally:
        end(process)
