# SPDX-License-Identifier: MIT
"""Playwright over CDP at a Chromium in a sandbox, with examples/browser/nginx.conf in front of its debugging port."""

import re

import pytest
from cell import ROOT

RELAY = {"upgrade": True, "via": "relay", "redial": False}
FORMS = {"host-relay": {"host": "{port}-{sandbox}.e2b.example.com"}, "host-direct": {"host": "{port}-{sandbox}.preview.example.com"},
         "path": {"path": "/cdp/{sandbox}/{rest...}", "to": "/{rest}"}}
ROUTES = [{"name": f"{name}{kind}", "need": "exec"} | form | more for name, form in FORMS.items()
          for kind, more in (("-socket", RELAY), ("", {})) if not kind or name != "host-direct"]


@pytest.fixture(scope="module")
def browser(servers):
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
    return servers(lambda port: ["chromium", *options, f"--user-data-dir={servers.folder}/profile", f"--remote-debugging-port={port}"], "chromium")


@pytest.fixture(scope="module")
def front(servers, browser):
    """nginx with the lines of the example, its ports replaced."""
    lines = re.sub(r"(?m)^#.*\n", "", (ROOT / "examples/browser/nginx.conf").read_text())
    folder = servers.folder / "nginx"
    folder.mkdir()

    def command(port):
        ours = lines.replace("listen 9223", f"listen 127.0.0.1:{port}").replace("127.0.0.1:9222", f"127.0.0.1:{browser.port}")
        assert ours.count("127.0.0.1:") == 2
        places = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "conf").write_text(f"daemon off; pid {folder}/pid; error_log stderr; events {{ }}\nhttp {{ access_log off; {places}\n{ours}}}\n")
        return ["nginx", "-p", folder, "-e", "stderr", "-c", folder / "conf"]

    return servers(command, "nginx")


@pytest.fixture(scope="module")
def cell(cells, node, front):
    return cells(sandboxes={"sb-1": {"worker": front.url}}, config={"routes": ROUTES}, environment=node.certificate)


@pytest.fixture(scope="module")
def connect(cell, node, front):
    def connect(form, token=None):
        below = FORMS[form].get("host", "gate.example.com").format(port=front.port, sandbox="sb-1")
        url = f"https://{below}:{cell.https}" + ("/cdp/sb-1" if form == "path" else "")
        program = node("playwright.mjs", {"url": url, "token": token or cell.token(need=["exec"])})
        program.say("connect")
        return program

    return connect


def connected(program):
    assert re.match(r"\d+\.", (said := program.hear()).get("value", "")), said


@pytest.mark.parametrize("form", FORMS)
def test_a_page_is_driven(connect, form):
    program = connect(form)
    connected(program)
    program.say("use")
    assert program.hear() == {"button": "the inside", "png": "PNG", "much": True}


@pytest.mark.parametrize("form", FORMS)
def test_a_lost_worker_is_told_and_the_next_connect_works(cell, connect, front, form):
    program = connect(form)
    connected(program)
    program.say("wait")
    assert program.hear() == "waits"
    front.kill()
    told = [program.hear(), program.hear()]
    assert "disconnected" in told, told
    told.remove("disconnected")
    assert "closed" in told[0]["message"], told
    cell.says("haproxy", *("verdict=direct", "route=host-direct") if form == "host-direct" else ("verdict=relay", f"route={form}-socket"))
    front.start()
    program.say("connect")
    connected(program)


@pytest.mark.parametrize("token,status", [("x", 401), (None, 403)])
def test_a_wrong_token_is_reported(cell, connect, token, status):
    told = connect("host-relay", token or cell.token(need=["http"])).hear()
    assert f"Unexpected status {status} when connecting" in told["message"], told
