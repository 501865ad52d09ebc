# SPDX-License-Identifier: MIT
"""What tests/chaos makes of a stream: each kind of damage is told from the others, wherever a read happens to end."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "chaos"
LOADER = SourceFileLoader("chaos", str(PATH))
chaos = module_from_spec(spec_from_loader("chaos", LOADER))
LOADER.exec_module(chaos)

SIZE, SENT = chaos.RECORD, 12


def sent(first, last=None):
    return chaos.records("x", first, (last or first + 1) - first)


def judged(data, step):
    count = chaos.Count("x")
    for at in range(0, len(data), step):
        count.feed(data[at : at + step])
    count.finish(SENT)
    return {"lost": count.lost, "repeated": count.repeated, "late": count.reordered, "corrupt": count.corrupt}


CASES = {
    "whole": (sent(0, SENT), {}),
    "records are missing": (sent(0, 3) + sent(5, SENT), {"lost": 2 * SIZE}),
    "a cut within records": (sent(0, 4)[:-20] + sent(5, SENT)[10:], {"lost": 20 + SIZE + 10}),
    "the end is missing": (sent(0, SENT)[:-100], {"lost": 100}),
    "a record twice": (sent(0, 4) + sent(3, SENT), {"repeated": SIZE}),
    "records late": (sent(0, 2) + sent(4, 8) + sent(2, 4) + sent(8, SENT), {"late": 2 * SIZE}),
    "the end of a cut record late": (sent(0, 3)[:-20] + sent(3, 8) + sent(2)[-20:] + sent(8, SENT), {"late": 20}),
    "a record late, within another": (sent(0, 2) + sent(3, 8) + sent(8)[:2] + sent(2) + sent(8)[2:] + sent(9, SENT), {"late": SIZE}),
    "records late, within another": (sent(0, 2) + sent(4, 8) + sent(8)[:40] + sent(2, 4) + sent(8)[40:] + sent(9, SENT), {"late": 2 * SIZE}),
    "another byte": (sent(0, 3)[:-30] + b"!" + sent(0, SENT)[3 * SIZE - 29 :], {"corrupt": 30, "lost": 0}),
}


@pytest.mark.parametrize("step", (1, 7, 64, 10000))
@pytest.mark.parametrize("case", CASES)
def test_damage_is_told_apart(case, step):
    data, expected = CASES[case]
    assert judged(data, step) == {"lost": 0, "repeated": 0, "late": 0, "corrupt": 0} | expected
