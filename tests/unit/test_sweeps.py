"""The parts of a sweep: each case is in one of them, each value of a parameter in all."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

from sweeps import CHOICE, PARTS

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
SWEEP = "tests/e2e/test_features.py::test_target_equals_interpreter"


def collected(choice: str) -> set[str]:
    """The cases of that sweep that a run would take."""
    found = subprocess.run(
        [*COLLECT, SWEEP.split("::")[0]],
        cwd=ROOT,
        env={**os.environ, CHOICE: choice},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.strip() for line in found.stdout.splitlines() if line.startswith(SWEEP)}


def test_parts_share_nothing_and_are_all_together() -> None:
    parts = [collected(str(number)) for number in range(PARTS)]
    assert all(not one & other for one, other in combinations(parts, 2))
    whole = collected("all")
    assert set().union(*parts) == whole
    pairs = [case.split("[")[1].rstrip("]").split("-", 1) for case in whole]
    for part in parts:
        for target, name in pairs:
            assert any(f"[{target}-" in case for case in part)
            assert any(case.endswith(f"-{name}]") for case in part)
