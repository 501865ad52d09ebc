# SPDX-License-Identifier: MIT
"""What the pages of docs/migrate/ show: a configuration, records and requests of each system."""

import base64
import json
import re

from cell import ROOT

PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs/migrate").glob("*.md"))}
SHAPE = re.compile(r"^## Configuration\n.*?```jsonc\n(.*?)```\n.*?```jsonc\n(.*?)```\n.*?```text\n(.*?)```", re.M | re.S)
KEY = base64.b64encode(b"0123456789abcdef0123456789abcdef") + b"\n"


def example(name):
    """(configuration, records, requests) as texts."""
    return SHAPE.search(PAGES[name]).groups()


def addresses(records):
    return sorted(set(re.findall(r"http://10\.0\.0\.\d+:\d+", records)))


def stage(name, workers):
    """Arguments for cells(): the page's configuration and records, with these URLs in place of the addresses that it shows."""
    config, records, _ = example(name)
    assert set(workers) == set(addresses(records))
    for shown, url in workers.items():
        records = records.replace(f'"{shown}"', json.dumps(url))
    files = re.findall(r'"([\w.-]+\.(?:secret|key))"', config)
    return {"sandboxes": json.loads(records), "config": json.loads(config), "files": dict.fromkeys(files, KEY)}
