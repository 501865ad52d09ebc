# SPDX-License-Identifier: MIT
"""The API server that the tests of this folder share, but those that kill theirs."""

import sys
import tempfile
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("e2e/support", "e2e/operate", "clients")]
from fixtures import *  # noqa: E402, F403
from kube import WHY_NOT, Kube  # noqa: E402


@pytest.fixture(scope="session")
def server():
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with tempfile.TemporaryDirectory(prefix="kube-") as folder:
        server = Kube(folder)
        yield server
        server.close()
