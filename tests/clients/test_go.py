# SPDX-License-Identifier: MIT
"""Debian's go through egress, at a module proxy with one module (a stand-in)."""

import io
import json
import os
import subprocess
import zipfile

import pytest
from test_egress import HOST, allow, certificate, config, rules  # noqa: F401 fixtures

NAME, VERSION = "example.org/thing", "v1.0.0"
MOD = f"module {NAME}\n\ngo 1.19\n".encode()


def packed():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{NAME}@{VERSION}/go.mod", MOD)
        archive.writestr(f"{NAME}@{VERSION}/thing.go", "package thing\n" + "// \u20ac\n" * 100000)
    return file.getvalue()


FILES = {f"/{NAME}/@v/{VERSION}.info": json.dumps({"Version": VERSION}).encode(), f"/{NAME}/@v/{VERSION}.mod": MOD, f"/{NAME}/@v/{VERSION}.zip": packed()}


def answer(connection, request):
    body = FILES.get(request.target)
    connection.send(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (b"200 OK" if body else b"404 Not Found", len(body or b""), body or b""))


@pytest.fixture(scope="module")
def proxy(origins, certificate):  # noqa: F811
    return origins(answer=answer, tls=certificate[1])


@pytest.fixture(scope="module")
def cell(cells, proxy):
    return cells(sandboxes={"sb-1": rules(allow(proxy.port))}, config=config(), egress=True)


@pytest.fixture
def download(cell, proxy, certificate, tmp_path):  # noqa: F811
    def download(token):
        environment = {"HTTPS_PROXY": f"http://sandbox:{token}@127.0.0.1:{cell.egress}", "GOPROXY": f"https://{HOST}:{proxy.port}", "GOSUMDB": "off",
                       "SSL_CERT_FILE": str(certificate[0]), "GOPATH": str(tmp_path / "go"), "GOCACHE": str(tmp_path / "cache"), "GOFLAGS": "-modcacherw", "HOME": str(tmp_path)}
        done = subprocess.run(["go", "mod", "download", "-json", f"{NAME}@{VERSION}"], env=os.environ | environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        return done.returncode, json.loads(done.stdout)

    return download


def test_a_module_is_downloaded(cell, download):
    code, said = download(cell.token(need=["egress"]))
    assert code == 0 and said["Version"] == VERSION and said["Sum"].startswith("h1:"), said


@pytest.mark.parametrize("token,told", [("x", "Proxy Authentication Required"), (None, "Forbidden")])
def test_a_wrong_token_is_reported(cell, download, token, told):
    code, said = download(token or cell.token(need=["http"]))
    assert code != 0 and told in said["Error"], said
