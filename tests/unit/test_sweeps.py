"""The parts of a sweep: each case is in one of them, each value of a parameter in all."""

from __future__ import annotations

import json
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
FILE = "tests/e2e/test_features.py"
#: Collects a file's tests, and prints those that this run takes and those of each part.
COLLECT = """
import json, sys
import pytest


class Printing:
    def pytest_collection_finish(self, session):
        from sweeps import PARTS, dealt

        taken = {str(part): dealt(session.items, str(part))[0] for part in range(PARTS)}
        taken["run"] = session.items
        names = {key: [item.nodeid for item in items] for key, items in taken.items()}
        print("COLLECTED" + json.dumps(names))


options = ["--collect-only", "-q", "-p", "no:xdist", "-o", "addopts="]
sys.exit(pytest.main([*options, sys.argv[1]], plugins=[Printing()]))
"""


def collected(choice: str) -> dict[str, list[str]]:
    """The names of the tests of `FILE` that a run with this choice takes ("run"), and of those
    among them that are in each part."""
    found = subprocess.run(
        [sys.executable, "-c", COLLECT, FILE],
        cwd=ROOT,
        env={**os.environ, CHOICE: choice},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (x for x in found.stdout.splitlines() if x.startswith("COLLECTED"))
    names: dict[str, list[str]] = json.loads(line.removeprefix("COLLECTED"))
    return names


@pytest.fixture(scope="module")
def everything() -> dict[str, list[str]]:
    return collected("all")


def cases(names: list[str], test: str) -> set[str]:
    """The cases of one test."""
    found = (name.partition("[") for name in names)
    return {case.rstrip("]") for place, _, case in found if place == f"{FILE}::{test}"}


def test_a_run_takes_the_part_that_it_is_told(everything: dict[str, list[str]]) -> None:
    assert collected("1")["run"] == everything["1"]
    assert len(everything["1"]) < len(everything["run"])


@pytest.mark.parametrize(
    ("test", "count"),
    [("test_target_equals_interpreter", CROSSED), ("test_tile_sizes_do_not_matter", PARTS)],
)
def test_parts_share_nothing_and_are_all_together(
    test: str, count: int, everything: dict[str, list[str]]
) -> None:
    parts = [cases(everything[str(number)], test) for number in range(count)]
    every = cases(everything["run"], test)
    whole = {case for case in every if case.split("-", 1)[0] not in SLOW}
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


@pytest.mark.parametrize("said", [12, 24])
def test_a_mark_says_to_how_many_parts_its_cases_are_dealt_out(said: int) -> None:
    mark = pytest.mark.sweep(said).mark
    items: list[Any] = [
        SimpleNamespace(nodeid=f"tests/e2e/test_a.py::test[{n}]", get_closest_marker=lambda _: mark)
        for n in range(200)
    ]
    parts = [dealt(items, str(part))[0] for part in range(said)]
    assert sorted(item.nodeid for part in parts for item in part) == sorted(
        item.nodeid for item in items
    )
    assert max(map(len, parts)) < 2 * 200 / 12
    assert [item.nodeid for item in dealt(items, str(said))[0]] == [i.nodeid for i in parts[0]]


def test_tests_that_share_a_fixture_are_in_the_same_part() -> None:
    mark = pytest.mark.sweep(3, together="made").mark
    items: list[Any] = [
        SimpleNamespace(nodeid=f"tests/e2e/test_a.py::test_{n}", get_closest_marker=lambda _: mark)
        for n in range(20)
    ]
    assert sorted(len(dealt(items, str(part))[0]) for part in range(3)) == [0, 0, 20]
