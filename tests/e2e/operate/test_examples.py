# SPDX-License-Identifier: MIT
"""The examples of docs/migrate/, with each system's own credentials, run as the pages show them. Beside the status that they name: no
worker sees the credential, and gets what is the application's."""

import re
import shlex
import subprocess

import pytest
from cell import BIN
from client import Http1
from migrate import PAGES, addresses, example, stage

# secrets that requests bring, by what they look like on the page
SECRETS = re.compile(r"osb_\w+|the-secret-of-\S+|an?-\w+-(?:key|token)|dtn_\w+|a1b2c3d4e5f60718")
OF_THE_APPLICATION = {"Basic b2YtdGhlLWFwcDo=", "Basic cm9vdDo=", "Bearer of-the-application"}


def test_every_system_has_a_page():
    assert set(PAGES) == {"opencomputer", "opensandbox", "sandbox-sdk", "agent-sandbox", "e2b", "daytona"}


def requests(text):
    """(placeholders' commands, [(status, method, URL, headers)])"""
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    commands = dict(line.split(": ", 1) for block in blocks for line in block if re.match("[A-Z]+: cellgate", line))
    asked = [block for block in blocks if re.match(r"\d{3} ", block[0])]
    assert len(blocks) == len(asked) + (1 if commands else 0)
    return commands, [(*block[0].split(" ", 2), [tuple(line.split(": ", 1)) for line in block[1:]]) for block in asked]


def ask(cell, method, url, headers):
    host, path = re.match(r"https://([^/]+)(/.*)", url).groups() if url.startswith("https:") else ("cell.test", url)
    with Http1(cell.http) as client:
        return client.upgrade(path, headers, host=host) if method == "WS" else client.request(method, path, headers, host=host)


@pytest.mark.parametrize("name", PAGES)
def test_example(cells, origins, name):
    _, records, text = example(name)
    workers = {url: origins() for url in addresses(records)}
    cell = cells(**stage(name, {url: worker.url for url, worker in workers.items()}))
    commands, asked = requests(text)
    values = {}
    for placeholder, command in commands.items():
        program, *arguments = shlex.split(command)
        done = subprocess.run([BIN / program, arguments[0], "--config", cell.config_file, *arguments[1:]], capture_output=True, text=True, check=True)
        values["$" + placeholder] = done.stdout.strip()
    fill = re.compile("|".join(map(re.escape, values)) or "(?!)")
    for status, method, url, headers in asked:
        url = fill.sub(lambda match: values[match[0]], url)
        headers = [(key, fill.sub(lambda match: values[match[0]], value)) for key, value in headers]
        before = sum(len(worker.requests) for worker in workers.values())
        response = ask(cell, method, url, headers)
        assert response.status == int(status), (name, url, response.body)
        seen = [worker.requests[-1] for worker in workers.values() if worker.requests]
        assert sum(len(worker.requests) for worker in workers.values()) == before + (status in ("200", "101"))
        for request in seen:
            # a label is part of the Host that applications make links of
            given = request.target + str([pair for pair in request.headers if pair[0].lower() not in ("host", "x-forwarded-host")])
            assert not SECRETS.search(given) and not any(value in given for value in values.values()), given
    if name == "e2b":
        assert workers["http://10.0.0.5:49983"].requests[-1].all("x-access-token") == ["what-envd-wants"]
        assert workers["http://10.0.0.5:49983"].requests[-1].all("authorization") == ["Basic cm9vdDo="]
    passed = {value for worker in workers.values() for request in worker.requests for value in request.all("authorization")}
    assert passed == {value for _, _, _, headers in asked for key, value in headers if value in OF_THE_APPLICATION}
