# SPDX-License-Identifier: MIT
"""HTTP/2 inside of connections that are inspected: by ALPN, with hosts that `egress.http2` lists and `cellgate certificates` has written
certificates for."""

import json
import os
import queue
import ssl
import subprocess
from concurrent import futures

import pytest
from cell import BIN, until
from client import Http1, Http2
from test_egress import HOST, allow, caller, certificate, config, destinations, dial, rules  # noqa: F401 fixtures
from test_egress_clients import reload_haproxy
from test_egress_requests import Origin, Waiting, refused
from test_grpc import LARGE, Service
from test_grpc import certificates as grpc_certificates

SECRET = b"Bearer the-sandbox-never-has-this"
LISTED = {"http2": [HOST, "*.grpc.example.org"], "http2_folder": "http2"}


def inside(cell, port, name=HOST, to=None, offers=("h2", "http/1.1")):
    """The TLS connection inside of a CONNECT."""
    answer = dial(cell, f"{to or name}:{port}", caller(cell), timeout=20)
    assert answer.status == 200, answer.body
    context = ssl.create_default_context(cafile=cell.egress_ca)
    context.set_alpn_protocols(list(offers))
    return context.wrap_socket(answer.sock, server_hostname=name)


def http2(cell, port, **more):
    sock = inside(cell, port, **more)
    assert sock.selected_alpn_protocol() == "h2"
    return Http2(None, sock=sock)


@pytest.fixture
def site(cells, destinations, certificate):  # noqa: F811
    """A cell with one sandbox, whose rules are for the origin behind it, and for its name and others."""
    ca, context = certificate

    def make(serve=None, more=None, environment=None, listed=LISTED, **rule):
        origin = serve or Origin()
        server = destinations(origin, tls=context)
        names = {n: "127.0.0.1" for n in ("a.grpc.example.org", "other.example.org", "a.b.grpc.example.org")}
        record = rules(allow(server.port, inspect=True, **rule), *(allow(server.port, host=n, inspect=True) for n in names), **(more or {}))
        egress = {"ca_file": str(ca), "secrets": {"token": "token"}} | listed
        cell = cells(config=config(hosts=names, **egress), sandboxes={"sb-1": record}, egress=True, files={"token": SECRET}, environment=environment)
        return cell, server.port, origin

    return make


def test_who_offers_it_gets_it_with_names_that_are_listed(site):
    cell, port, origin = site()
    for name, offers, gets in ((HOST, ("h2", "http/1.1"), "h2"), (HOST, ("h2",), "h2"), (HOST, ("http/1.1",), "http/1.1"), ("a.grpc.example.org", ("h2",), "h2")):
        with inside(cell, port, name, offers=offers) as sock:  # its certificate was verified
            assert sock.selected_alpn_protocol() == gets, (name, offers)
    with http2(cell, port) as client:
        for body in (b"", b"x", b"y" * 16384, b"z" * 65536, b"z" * (1 << 20)):
            got = client.request("POST", "/a?x", [("x-kept", "1")], body, host=f"{HOST}:{port}")
            seen = origin.seen[-1]
            assert (got.status, seen.line, seen.get("x-kept"), seen.body) == (200, "POST /a?x HTTP/1.1", "1", body)


def test_names_that_are_not_listed_are_as_before(site):
    """HAProxy makes their certificate. Also of a name with one label more than a wildcard stands for."""
    cell, port, _ = site()
    for name in ("other.example.org", "a.b.grpc.example.org"):
        sock = inside(cell, port, name, offers=("h2", "http/1.1"))
        assert sock.selected_alpn_protocol() in (None, "h2")  # None, until HAProxy heeds `alpn` for these, too
        if sock.selected_alpn_protocol() is None:
            with Http1(None, sock=sock) as client:  # the origin's certificate is for another name
                assert refused(client.request("GET", "/", host=f"{name}:{port}"))[:2] == (502, "destination_unreachable")


def test_without_a_list_all_is_as_before(site):
    cell, port, origin = site(listed={})
    with inside(cell, port) as sock:
        assert sock.selected_alpn_protocol() in (None, "h2")
        if sock.selected_alpn_protocol() is None:
            assert Http1(None, sock=sock).request("GET", "/one", host=f"{HOST}:{port}").status == 200 and origin.seen[-1].line == "GET /one HTTP/1.1"


def test_each_stream_is_judged(site):
    """By method, path and host, also behind a stream that passed; a refusal ends none of the others."""
    cell, port, origin = site(access="read-only", paths=["/good/**"], set={"Authorization": {"secret": "token"}})
    with http2(cell, port) as client:
        def ask(method="GET", path="/good/x", host=f"{HOST}:{port}", headers=()):
            return client.request(method, path, list(headers), host=host)
        assert ask(headers=[("authorization", "Bearer mine"), ("x-cell-org", "forged")]).status == 200
        seen = origin.seen[-1]
        assert [v for n, v in seen.headers if n.lower() == "authorization"] == [SECRET.decode()] and seen.get("x-cell-org") is None
        assert refused(ask("DELETE"))[:2] == (403, "egress_denied")


@pytest.mark.parametrize("host", ["other.example.org", "a.grpc.example.org", HOST + ".", HOST + ":1", "127.0.0.1"])
def test_another_authority_than_that_of_the_connect(site, host):
    """Also of a name that the sandbox may reach, and for which there is a certificate."""
    cell, port, origin = site()
    with http2(cell, port) as client:
        got = client.request("GET", "/", host=host if ":" in host else f"{host}:{port}")
        if host == HOST + ".":  # the same name
            assert got.status == 200
        else:
            assert refused(got)[:2] == (421, "misdirected_request") and origin.seen == []


def test_a_host_beside_the_authority(site):
    """Two names in one request: the other one reaches nobody."""
    cell, port, origin = site()
    with http2(cell, port) as client:
        client._open([(":method", "GET"), (":scheme", "https"), (":authority", f"{HOST}:{port}"), (":path", "/")], [("host", f"other.example.org:{port}")], True)
        while client.headers is None and not client.ended:
            client._pump()
        assert client.headers is None or dict(client.headers)[":status"] in ("200", "400", "421")
        assert [r.get("host") for r in origin.seen] in ([], [f"{HOST}:{port}"])


def test_many_streams_in_one_connection(site):
    """As many as a sandbox may have at a time; those beyond are refused, and the others have their answers."""
    waiting = Waiting()
    cell, port, _ = site(waiting, environment={"CELLGATE_EGRESS_REQUESTS": "60"})
    with http2(cell, port) as client:
        statuses = {}
        pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", f"{HOST}:{port}"), (":path", "/")]
        for _ in range(80):
            client.h2.send_headers(client.h2.get_next_available_stream_id(), pseudo, end_stream=True)
        client._flush()

        def pump(until_count):
            while len(statuses) < until_count:
                data = client.sock.recv(1 << 18)
                assert data
                for event in client.h2.receive_data(data):
                    if type(event).__name__ == "ResponseReceived":
                        statuses[event.stream_id] = dict(event.headers)[":status"]
                client._flush()

        pump(20)
        until(lambda: waiting.waits == 60, 10, "sixty do not wait")
        assert set(statuses.values()) == {"429"} and len(statuses) == 20
        waiting.go.set()
        pump(80)
        assert sorted(statuses.values()) == ["200"] * 60 + ["429"] * 20


def test_a_websocket_over_http_2(site):
    """By extended CONNECT (RFC 8441), under the rule's word on WebSockets."""
    cell, port, origin = site()
    with http2(cell, port) as client:
        answer = client.upgrade("/ws", host=f"{HOST}:{port}")
        assert answer.status == 200 and origin.seen[-1].get("upgrade").lower() == "websocket"
        assert client.read_exactly(5) == b"glued"
        client.send(b"z" * 65536)
        assert client.read_exactly(65536) == b"z" * 65536


def test_no_websocket_over_http_2_where_the_rule_says_so(site):
    cell, port, origin = site(websocket=False)
    with http2(cell, port) as client:
        assert client.upgrade("/ws", host=f"{HOST}:{port}").status == 403 and origin.seen == []


def test_a_name_more_and_another_authority(site):
    """Both count after a reload. A stream that is open sees nothing of it."""
    cell, port, _ = site(listed=LISTED | {"http2": []})
    sign = cell.run_dir / "egress-sign.pem"
    said = json.loads(cell.config_file.read_text())
    said["egress"] |= {"http2": [HOST], "sign_file": str(sign)}
    cell.config_file.write_text(json.dumps(said))

    def renew():
        subprocess.run([BIN / "cellgate", "certificates", "--config", cell.config_file], check=True)
        reload_haproxy(cell)

    def talk():
        client = Http1(None, sock=inside(cell, port, offers=("http/1.1",)))
        assert client.upgrade("/ws", host=f"{HOST}:{port}").status == 101 and client.read_exactly(5) == b"glued"
        return client

    with talk() as first:
        renew()
        http2(cell, port).sock.close()
        with talk() as second:
            authority(cell.folder).rename(sign)
            renew()
            with pytest.raises(ssl.SSLCertVerificationError):
                inside(cell, port)
            cell.egress_ca = cell.folder / "c"
            http2(cell, port).sock.close()
            for client in (first, second):
                client.send(b"still here")
                assert client.read_exactly(10) == b"still here"


def test_curl_gets_it(site, tmp_path):
    cell, port, origin = site()
    command = ["curl", "-sS", "--http2", "--proxy", f"http://sandbox:{cell.token(need=['egress'])}@127.0.0.1:{cell.egress}", "--cacert", cell.egress_ca, "-o", tmp_path / "body",
               "-w", "%{http_version} %{http_code}"]
    assert subprocess.run([*command, f"https://{HOST}:{port}/a"], capture_output=True, text=True, timeout=20).stdout == "2 200"
    assert subprocess.run([*command, "--http1.1", f"https://{HOST}:{port}/b"], capture_output=True, text=True, timeout=20).stdout == "1.1 200"
    assert [r.line for r in origin.seen] == ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]


# ---- the command ----


def made_by(folder, *command):
    subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)


SIGNS = ("-addext", "keyUsage=critical,keyCertSign")


def authority(folder, name="sign.pem", key=("rsa:2048",), says="critical,CA:TRUE,pathlen:0", ended=False):
    about = ["-newkey", *key, "-nodes", "-subj", "/CN=the authority", "-addext", f"basicConstraints={says}", *SIGNS, "-keyout", "k"]
    made_by(folder, "req", *about, "-out", "csr") if ended else made_by(folder, "req", "-x509", "-days", "30", *about, "-out", "c")
    if ended:
        made_by(folder, "x509", "-req", "-in", "csr", "-signkey", "k", "-days", "-1", "-copy_extensions", "copy", "-out", "c")
    (folder / name).write_bytes((folder / "c").read_bytes() + (folder / "k").read_bytes())
    (folder / name).chmod(0o600)
    return folder / name


class Command:
    def __init__(self, folder):
        self.folder, self.certificates = folder, folder / "http2"

    def configure(self, *names, **more):
        egress = {"http2": list(names), "http2_folder": "http2", "sign_file": "sign.pem"} | more
        base = {"cell": "c", "routes": [], "worker_networks": ["127.0.0.0/8"], "directory": {"kind": "file", "path": "none.json"}, "tokens": [], "open": True}
        (self.folder / "cellgate.json").write_text(json.dumps(base | {"egress": {k: v for k, v in egress.items() if v is not None}}))
        return self

    def run(self, *options, code=0):
        done = subprocess.run([BIN / "cellgate", "certificates", "--config", self.folder / "cellgate.json", *options], capture_output=True, text=True, timeout=20)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def files(self):
        return {path.name: path.read_bytes() for path in self.certificates.iterdir()}


@pytest.fixture
def command(tmp_path):
    authority(tmp_path)
    return Command(tmp_path)


def test_certificates_are_made_kept_and_removed(command):
    command.configure("api.example.org", "*.grpc.example.org")
    assert command.run("--check", code=1) == "api.example.org: there is no certificate\n*.grpc.example.org: there is no certificate\n" and not command.certificates.exists()
    said = command.run().splitlines()
    assert [line.partition(", until ")[0] for line in said] == ["made api.example.org", "made *.grpc.example.org"]
    first = command.files()
    assert set(first) == {"api.example.org.pem", "*.grpc.example.org.pem"}
    assert command.certificates.stat().st_mode & 0o777 == 0o700 and all(p.stat().st_mode & 0o777 == 0o600 for p in command.certificates.iterdir())
    assert command.run() == command.run("--check") == "" and command.files() == first
    command.configure("api.example.org", "new.example.org")
    assert command.run("--check", code=1).splitlines() == ["new.example.org: there is no certificate", f"{command.certificates}/*.grpc.example.org.pem: its name is not in egress.http2"]
    assert command.files() == first
    assert command.run().splitlines()[1:] == ["removed *.grpc.example.org.pem"]
    assert command.files()["api.example.org.pem"] == first["api.example.org.pem"] and set(command.files()) == {"api.example.org.pem", "new.example.org.pem"}
    command.configure()
    assert sorted(command.run().splitlines()) == ["removed api.example.org.pem", "removed new.example.org.pem"] and command.files() == {}


def test_what_is_no_longer_good_is_made_anew(command):
    """Another authority, the same key with another end, another host's certificate, one without its key, one that all can read."""
    command.configure("a.example.org", "b.example.org").run()
    a, b = command.certificates / "a.example.org.pem", command.certificates / "b.example.org.pem"

    def anew(*names):
        assert command.run("--check", code=1)
        assert [line.split(",")[0] for line in command.run().splitlines()] == [f"made {n}" for n in names]
        assert command.run("--check") == ""

    b.write_bytes(a.read_bytes())
    assert command.run("--check", code=1) == "b.example.org: its certificate is another host's\n"
    anew("b.example.org")
    b.write_bytes(b.read_bytes().partition(b"-----BEGIN PRIVATE")[0] + b"-----BEGIN PRIVATE" + a.read_bytes().partition(b"-----BEGIN PRIVATE")[2])
    assert command.run("--check", code=1) == "b.example.org: its certificate has not its key\n"
    anew("b.example.org")
    b.chmod(0o644)
    anew("b.example.org")
    authority(command.folder)
    anew("a.example.org", "b.example.org")
    made_by(command.folder, "req", "-x509", "-key", "k", "-days", "60", "-subj", "/CN=the authority", "-addext", "basicConstraints=critical,CA:TRUE", "-out", "c")
    (command.folder / "sign.pem").write_bytes((command.folder / "c").read_bytes() + (command.folder / "k").read_bytes())
    anew("a.example.org", "b.example.org")


@pytest.mark.parametrize("key", [("rsa:2048",), ("ec", "-pkeyopt", "ec_paramgen_curve:P-384"), ("ed25519",)])
def test_a_certificate_is_good_for_its_host_alone(command, key):
    authority(command.folder, key=key)
    command.configure("api.example.org", "*.grpc.example.org").run()

    def verified(file, host):
        done = subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "c", "-verify_hostname", host, command.certificates / file], cwd=command.folder, capture_output=True)
        return done.returncode == 0

    assert verified("api.example.org.pem", "api.example.org") and verified("*.grpc.example.org.pem", "a.grpc.example.org")
    assert not verified("api.example.org.pem", "other.example.org") and not verified("*.grpc.example.org.pem", "a.b.grpc.example.org")
    text = subprocess.run(["openssl", "x509", "-in", command.certificates / "api.example.org.pem", "-noout", "-text"], capture_output=True, text=True, check=True).stdout
    end = subprocess.run(["openssl", "x509", "-in", command.folder / "c", "-noout", "-enddate"], capture_output=True, text=True, check=True).stdout.partition("=")[2].strip()
    assert "CA:FALSE" in text and "TLS Web Server Authentication" in text and f"Not After : {end}" in text and "CN" not in text.partition("Subject:")[2].splitlines()[0]


def test_an_authority_between(command):
    """Whose certificate is not the root's is sent with each, so that who has the root alone can verify."""
    folder = command.folder
    authority(folder, says="critical,CA:TRUE")
    (folder / "root").write_bytes((folder / "c").read_bytes())
    (folder / "root.key").write_bytes((folder / "k").read_bytes())
    made_by(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=between", "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0", *SIGNS, "-addext", "subjectKeyIdentifier=hash",
            "-keyout", "k", "-out", "csr")
    made_by(folder, "x509", "-req", "-in", "csr", "-CA", "root", "-CAkey", "root.key", "-CAcreateserial", "-copy_extensions", "copy", "-out", "c")
    (folder / "sign.pem").write_bytes(b"".join((folder / name).read_bytes() for name in ("c", "root", "k")))
    command.configure("api.example.org").run()
    file = command.certificates / "api.example.org.pem"
    assert file.read_bytes().count(b"BEGIN CERTIFICATE") == 2 and command.run("--check") == ""
    made_by(folder, "verify", "-x509_strict", "-CAfile", "root", "-untrusted", file, "-verify_hostname", "api.example.org", file)


def test_the_folder_is_its_own(command):
    """HAProxy would serve whatever is in there; and nobody's files are removed."""
    command.configure("api.example.org")
    command.certificates.mkdir()
    for name, content in (("site.pem", (command.folder / "sign.pem").read_bytes()), ("README", b"x"), ("api.example.org.pem", b"")):
        (command.certificates / name).write_bytes(content)
        before = command.files()
        assert "this command did not write it" in command.run(code=1) and "this command did not write it" in command.run("--check", code=1)
        assert command.files() == before
        (command.certificates / name).unlink()
    (command.certificates / "inner").mkdir()
    assert "inner" in command.run(code=1)
    (command.certificates / "inner").rmdir()
    command.certificates.chmod(0o777)
    assert "others can write there" in command.run(code=1) and "others can write there" in command.run("--check", code=1)
    command.certificates.chmod(0o755)
    (command.certificates / ".api.example.org.new").write_text("left by one that was killed")
    command.run()
    assert set(command.files()) == {"api.example.org.pem"}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_the_folder_is_nobody_elses(command):
    """Whoever owns it can put his files in the place of these, whatever its mode."""
    command.configure("api.example.org")
    command.certificates.mkdir(0o755)
    os.chown(command.certificates, 65534, 65534)
    assert "belongs to somebody else" in command.run(code=1) and "belongs to somebody else" in command.run("--check", code=1)
    assert command.files() == {}
    os.chown(command.certificates, 0, 0)
    command.run()


def test_an_authority_that_cannot_sign(command):
    command.configure("api.example.org")
    folder, sign = command.folder, command.folder / "sign.pem"
    good, key, certificate = sign.read_bytes(), (folder / "k").read_bytes(), (folder / "c").read_bytes()

    def refused_with(content, said):
        sign.write_bytes(content)
        assert said in command.run(code=1) and not command.certificates.exists()

    for content, said in ((b"", "there is no certificate"), (key, "there is no certificate"), (certificate, "there is no key"), (good[:700], "there is no certificate, or a broken one"),
                          (certificate.replace(b"A", b"B") + key, "a broken one"), (bytes(range(256)) * 100, "there is no certificate"), (b"x" * (300 << 10), "sign.pem")):
        refused_with(content, said)
    made_by(folder, "rsa", "-aes128", "-passout", "pass:secret", "-in", "k", "-out", "locked")
    refused_with(certificate + (folder / "locked").read_bytes(), "or one with a passphrase")
    authority(folder, "other.pem")
    refused_with(certificate + (folder / "k").read_bytes(), "the key is not that of the first certificate")
    authority(folder, "leaf.pem", says="critical,CA:FALSE")
    refused_with((folder / "leaf.pem").read_bytes(), "is no authority's")
    authority(folder, "old.pem", ended=True)
    refused_with((folder / "old.pem").read_bytes(), "the certificate has ended")
    sign.unlink()
    assert "sign.pem" in command.run(code=1)


def test_what_is_missing_is_said(command):
    assert "there is no egress.http2_folder" in command.configure("a.example.org", http2_folder=None).run(code=1)
    assert "there is no egress.sign_file" in command.configure("a.example.org", sign_file=None).run(code=1)
    assert command.configure("a.example.org", sign_file=None).run("-o", "egress.sign_file=" + str(command.folder / "sign.pem")).startswith("made a.example.org")
    assert "usage" in command.run("--what", code=2) and "usage" in command.run("--help")
    command.configure("a.example.org", http2_folder="/dev/null/x")
    assert "/dev/null/x" in command.run(code=1)
    for key in ("http2_folder", "sign_file"):  # the agent says it, too
        command.configure("a.example.org", **{key: None})
        done = subprocess.run([BIN / "cellgate-agent", "-t", "-c", command.folder / "cellgate.json"], capture_output=True, text=True)
        assert done.returncode == 1 and "egress.http2 needs egress.sign_file and egress.http2_folder" in done.stderr
    command.configure("b.example.org")
    headers = subprocess.run([BIN / "cellgate", "headers", "--config", command.folder / "cellgate.json"], capture_output=True, text=True, check=True).stdout
    assert f"CELLGATE_EGRESS_HTTP2='{command.certificates}'" in headers


NO_NAMES = ["", ".", "*", "*.", "*.org", "**.example.org", "a.*.example.org", "*a.example.org", "*.*.example.org", "a..example.org", ".example.org", "example.org.", "Example.org", "a/b.example.org",
            "../x.example.org", "a b", "127.0.0.1", "10", "[::1]", "a.example.org:443", "ex\u00e4mple.org", "a" * 64 + ".org", ("a" * 63 + ".") * 3 + "a" * 59, "a.example.org\n", "a,DNS:b.org"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_none_can_be_made_for(command, name):
    assert "egress.http2" in command.configure(name).run(code=1) and not command.certificates.exists()


def test_names_of_every_length(command):
    names = ["x", "a.example.org", "a" * 63 + ".example.org", ("a" * 63 + ".") * 3 + "a" * 58, "*." + "b" * 63 + ".org", "xn--bcher-kva.example", "0x7f", "a_b.example.org", "1.example.org"]
    assert len(command.configure(*names).run().splitlines()) == len(names) and command.run("--check") == ""


def test_a_name_that_haproxy_2_6_makes_no_certificate_for(cells, destinations, certificate):  # noqa: F811
    """It has over 64 bytes."""
    name = "a" * 60 + ".example.org"
    server = destinations(Origin(), tls=certificate[1])
    listed = config(hosts={name: "127.0.0.1"}, http2=[name], http2_folder="http2")
    cell = cells(config=listed, sandboxes={"sb-1": rules(allow(server.port, host=name, inspect=True))}, egress=True)
    with http2(cell, server.port, name=name) as client:  # the origin's certificate is for another name
        assert refused(client.request("GET", "/", host=f"{name}:{server.port}"))[:2] == (502, "destination_unreachable")


# ---- gRPC ----


@pytest.fixture
def called(cells, tmp_path):
    """(service, a maker of channels): grpcio's client in a sandbox, by its proxy, and a server that speaks HTTP/2 alone."""
    grpc = pytest.importorskip("grpc")
    made = []

    def make(environment=None, **rule):
        folder = tmp_path / "grpc"
        folder.mkdir()
        name = "api.grpc.test"
        grpc_certificates(folder)  # of the authority and of *.grpc.test
        service = Service()
        server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[service], options=[("grpc.max_receive_message_length", -1)])
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([((folder / "gate.key").read_bytes(), (folder / "gate.crt").read_bytes())]))
        server.start()
        listed = {"http2": [name], "http2_folder": "http2", "ca_file": str(folder / "ca.pem"), "secrets": {"token": "token"}}
        cell = cells(config=config(hosts={name: "127.0.0.1"}, **listed), sandboxes={"sb-1": rules(allow(port, host=name, inspect=True, **rule))}, egress=True,
                     files={"token": SECRET}, environment=environment)
        proxy = f"http://sandbox:{cell.token(need=['egress'])}@127.0.0.1:{cell.egress}"
        options = [("grpc.http_proxy", proxy), ("grpc.max_receive_message_length", -1)]
        channel = grpc.secure_channel(f"{name}:{port}", grpc.ssl_channel_credentials(cell.egress_ca.read_bytes()), options)
        made.extend([channel, server])
        return grpc, service, channel

    yield make
    for one in made:
        if hasattr(one, "close"):
            one.close()
        else:
            assert one.stop(0).wait(20), "the server does not end"  # stop(None) waits without a bound


def test_grpc(called):
    """Calls of each shape, large messages, metadata both ways, and a status in trailers."""
    grpc, service, channel = called(paths=["/cell.Test/*"], set={"Authorization": {"secret": "token"}})
    for request in (b"", b"x", LARGE):
        answer, call = channel.unary_unary("/cell.Test/Unary").with_call(request, timeout=20, metadata=[("own-bin", b"\0\1"), ("authorization", "mine")])
        assert answer == request and dict(call.initial_metadata())["head"] == "said first" and dict(call.trailing_metadata())["tail"] == "said last"
    assert service.metadata[-1]["own-bin"] == b"\0\1" and service.metadata[-1]["authorization"] == SECRET.decode()
    assert list(channel.unary_stream("/cell.Test/Pour")(b"2000", timeout=20)) == [b"%d" % i for i in range(2000)]
    said = queue.Queue()
    call = channel.stream_stream("/cell.Test/Talk")(iter(said.get, None), timeout=20)
    for i in range(50):
        said.put(b"%d" % i * 1000)
        assert next(call) == b"%d" % i * 1000
    said.put(None)
    assert list(call) == [] and call.code() == grpc.StatusCode.OK
    with pytest.raises(grpc.RpcError) as why:
        channel.unary_unary("/cell.Test/Refuse")(b"", timeout=20)
    assert why.value.code() == grpc.StatusCode.NOT_FOUND and dict(why.value.trailing_metadata())["bytes-bin"] == b"\0\xff"
    hung = channel.unary_stream("/cell.Test/Wait")(b"", timeout=20)
    assert next(hung) == b"begun"
    hung.cancel()
    assert service.cancelled.wait(10), "the server does not hear that its caller went"


def test_grpc_that_the_rule_does_not_allow(called):
    grpc, service, channel = called(paths=["/cell.Test/Pour"])
    with pytest.raises(grpc.RpcError) as why:
        channel.unary_unary("/cell.Test/Unary")(b"x", timeout=20)
    assert why.value.code() == grpc.StatusCode.PERMISSION_DENIED and service.metadata == []
    assert list(channel.unary_stream("/cell.Test/Pour")(b"3", timeout=20)) == [b"0", b"1", b"2"]
