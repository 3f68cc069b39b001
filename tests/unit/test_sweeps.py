"""The parts of a sweep: each case is in one of them, each value of a parameter in all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import CHOICE, CROSSED, PARTS

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
    whole = collected("all", test)
    assert set().union(*parts) == whole
    assert sum(map(len, parts)) == len(whole) > 100
    if count == CROSSED:
        targets, names = zip(*(case.split("-", 1) for case in whole), strict=True)
        for part in parts:
            pairs = [case.split("-", 1) for case in part]
            assert {target for target, _ in pairs} == set(targets)
            assert {name for _, name in pairs} == set(names)
