# SPDX-License-Identifier: MIT
"""The fixtures (fixtures.py), and which files are asked for."""

import os

from fixtures import *  # noqa: F403

# Long runs: tests/check asks for them.
collect_ignore = [] if os.environ.get("CELLGATE_LONG") else ["test_relay_fleet.py"]
