"""Rows of `level1` of all categories, designed, lowered and verified through the command line.
Which twenty-fourth of them, the part of the sweeps says: 24 runs of CI see all, and a run sees the
categories that the one twelve runs before it did not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from sweeps import choice_of
from toolchains import require

from sketchc.agents.suites.level1 import rows
from sketchc.cli.main import run

#: One row of so many: twice as many as the smallest category has.
SHARE = 24


def sample(start: int) -> list[str]:
    """The names of every twenty-fourth row, in the order of the categories."""
    ordered = sorted(rows(), key=lambda row: row.category)
    return [row.name for row in ordered][start % SHARE :: SHARE]


def test_all_samples_are_all_rows_and_two_of_them_have_all_categories() -> None:
    samples = [sample(start) for start in range(SHARE)]
    assert sorted(name for each in samples for name in each) == sorted(r.name for r in rows())
    categories = {row.name: row.category for row in rows()}
    for number, each in enumerate(samples):
        assert len(each) in (4, 5)
        both = {*each, *samples[(number + SHARE // 2) % SHARE]}
        assert {categories[name] for name in both} == {*categories.values()}


def test_a_sample_of_level1_passes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    require("cpp")
    part = choice_of(pytestconfig)
    names = sample(0 if part == "all" else int(part))
    only = f"^({'|'.join(map(re.escape, names))})$"
    out = tmp_path / "out"
    arguments = ["--target", "cpp", "--only", only, "--no-store", "-q", "-o", str(out)]
    status = run(["suite", "run", "level1", *arguments])
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    missed = {r["task"]: (r["outcome"], r["reason"]) for r in results if r["outcome"] != "passed"}
    assert not missed, capfd.readouterr()
    assert sorted(r["task"] for r in results) == sorted(names)
    assert status == 0
