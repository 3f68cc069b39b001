"""The parts of a sweep: each case is in one of them, each value of a parameter in all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sweeps import CHOICE, CROSSED, PARTS, SLOW, dealt

ROOT = Path(__file__).parents[2]
COLLECT = (
    sys.executable,
    "-m",
    "pytest",
    "--collect-only",
    "-q",
    "-p",
    "no:xdist",
    "-o",
    "addopts=",
)
FILE = "tests/e2e/test_features.py"


def collected(choice: str, test: str) -> set[str]:
    """The cases of a test that a run would take."""
    found = subprocess.run(
        [*COLLECT, FILE],
        cwd=ROOT,
        env={**os.environ, CHOICE: choice},
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        line.partition("[")[2].strip().rstrip("]")
        for line in found.stdout.splitlines()
        if line.startswith(f"{FILE}::{test}[")
    }


@pytest.mark.parametrize(
    ("test", "count"),
    [("test_target_equals_interpreter", CROSSED), ("test_tile_sizes_do_not_matter", PARTS)],
)
def test_parts_share_nothing_and_are_all_together(test: str, count: int) -> None:
    parts = [collected(str(number), test) for number in range(count)]
    everything = collected("all", test)
    whole = {case for case in everything if case.split("-", 1)[0] not in SLOW}
    parts = [part & whole for part in parts]
    assert set().union(*parts) == whole
    assert sum(map(len, parts)) == len(whole) > 100
    if count == CROSSED:
        targets, names = zip(*(case.split("-", 1) for case in whole), strict=True)
        for part in parts:
            pairs = [case.split("-", 1) for case in part]
            assert {target for target, _ in pairs} == set(targets)
            assert {name for _, name in pairs} == set(names)


@pytest.mark.parametrize("target", SLOW)
def test_cases_of_a_slow_target_are_dealt_out_wherever_they_are(target: str) -> None:
    def case(place: str, number: int) -> Any:
        params = {"target": target, "name": str(number)}
        return SimpleNamespace(
            nodeid=f"tests/{place}::test[{target}-{number}]",
            callspec=SimpleNamespace(params=params, indices={"target": 0, "name": number}),
            get_closest_marker=lambda name: None,
        )

    slow = [case("e2e/test_a.py", number) for number in range(40 * SLOW[target])]
    quick = [case("unit/test_b.py", number) for number in range(3)]
    times: Counter[str] = Counter()
    for part in range(SLOW[target]):
        taken, left = dealt([*slow, *quick], str(part))
        assert len(taken) + len(left) == len(slow) + len(quick)
        assert 20 < len(taken) < 80
        times.update(item.nodeid for item in taken)
    assert {times[item.nodeid] for item in slow} == {1}
    assert {times[item.nodeid] for item in quick} == {SLOW[target]}
