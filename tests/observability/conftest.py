# SPDX-License-Identifier: MIT
"""Rules, dashboard and incidents of examples/observability in Debian's Prometheus."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "e2e/support"))

from fixtures import *  # noqa: E402, F403
