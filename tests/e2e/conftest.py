# SPDX-License-Identifier: MIT
"""The fixtures (fixtures.py), and which files are asked for."""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(folder) for folder in Path(__file__).parent.iterdir() if folder.is_dir()]  # a test may use another room's

from fixtures import *  # noqa: E402, F403

# Long runs: tests/check asks for them.
collect_ignore = [] if os.environ.get("CELLGATE_LONG") else ["relay/test_relay_fleet.py"]

# What takes longest comes first: a file is run by one process, and the last one may be alone.
LONGEST = ["worker", "relay_direct", "allocations", "failclosed", "egress_requests", "egress", "directory_http", "top", "browser",
           "directory_kubernetes", "relay_haproxy", "mux_watch", "existence", "egress_clients", "egress_upgrades", "cell_resume_browser",
           "mux_v1", "mux_resume", "egress_http2", "cell_resume", "relay_bounds", "directory_redis", "relay_frames", "kubernetes_pod",
           "quickstart", "command", "revocation", "relay_memory", "relay_hoard", "directory_pushed", "directory_dns"]


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
