"""What `sketchc tune` keeps in the store: points of exactly one setting, and the chosen ones."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import attrs
import pytest
from store_cases import unsound

from sketchc.runtime.store import exporting, reading
from sketchc.runtime.store.database import collect, open_store, read_store, transaction
from sketchc.runtime.store.tunings import (
    KILLED,
    Best,
    PointRow,
    Setting,
    known_points,
    nearest,
    put_best,
    put_points,
    tuned_points,
)
from sketchc.runtime.store.writing import SketchText, TaskText, put_environment, put_task

SKETCH = SketchText("sketch one {}", "one", "ab" * 32, 1)
SIZES = {"M": 64, "N": 100}
SETTING = Setting(
    *(SKETCH, TaskText("t.py", "# t"), "cpp", "cpu", "a chip", {"g++": "12"}, SIZES, 2, {})
)
ROWS = [
    PointRow({"T": 16}, (0.25, 0.5, 0.25)),
    PointRow({"T": 32}, (), "numerical", "its outputs are wrong"),
]
BEST = Best({"T": 16}, 0.25, 0.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def keep(path: Path, setting: Setting, rows: list[PointRow], best: Best | None = None) -> None:
    with open_store(path) as store, transaction(store):
        on = (put_task(store, setting.task), put_environment(store, {"python": "3.11"}), setting)
        put_points(store, *on, rows)
        if best is not None:
            put_best(store, *on, best)


def chosen(path: Path, **fixed: int) -> list[Best]:
    return [one.best for one in tuned_points(path, SKETCH.canonical, "cpp", "cpu", fixed)]


def test_points_are_known_of_exactly_the_setting_they_were_measured_in(path: Path) -> None:
    assert known_points(path, SETTING) == []
    keep(path, SETTING, ROWS)
    assert known_points(path, SETTING) == ROWS
    for other in (
        attrs.evolve(SETTING, symbols={"M": 65, "N": 100}),
        attrs.evolve(SETTING, threads=1),
        attrs.evolve(SETTING, device="another chip"),
        attrs.evolve(SETTING, compilers={"g++": "13"}),
        attrs.evolve(SETTING, fixed={"TN": 8}),
        attrs.evolve(SETTING, cold=False),
        attrs.evolve(SETTING, task=TaskText("t.py", "# another")),
        attrs.evolve(SETTING, sketch=attrs.evolve(SKETCH, canonical="cd" * 32)),
    ):
        assert known_points(path, other) == []


def test_a_later_batch_adds_to_what_was_known_of_its_points(path: Path) -> None:
    keep(path, SETTING, ROWS)
    keep(path, SETTING, [PointRow({"T": 16}, (0.125, 0.125)), PointRow({"T": 64}, (1.0,))])
    assert {row.point["T"]: row.samples for row in known_points(path, SETTING)} == {
        16: (0.25, 0.5, 0.25, 0.125, 0.125),
        32: (),
        64: (1.0,),
    }
    with read_store(path) as store:
        rows = store.execute("SELECT point, seconds FROM tuning_points")
        assert dict(map(tuple, rows)) == {'{"T":16}': 0.25, '{"T":32}': None, '{"T":64}': 1.0}


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("", "numerical", "numerical"),
        ("numerical", "", "numerical"),
        ("numerical", "timeout", "numerical"),
        ("timeout", "", ""),
        (KILLED, "", ""),
        (KILLED, "launch", "launch"),
    ],
)
def test_a_points_own_failure_stays(path: Path, first: str, second: str, kept: str) -> None:
    """Whichever of two searches comes first with what it saw."""
    for number, failure in enumerate((first, second)):
        keep(path, SETTING, [PointRow({"T": 8}, (float(number),), failure, failure)])
    (row,) = known_points(path, SETTING)
    assert (row.failure, row.reason, row.samples) == (kept, kept, (0.0, 1.0))


def keep_many(path: Path, writer: int) -> None:
    """What one search keeps: two samples of each of five points, ten times."""
    for batch in range(10):
        samples = (writer + batch / 64, writer + batch / 64 + 1 / 128)
        keep(path, SETTING, [PointRow({"T": size}, samples) for size in range(5)])


def test_two_searches_at_once_keep_all_their_samples(path: Path) -> None:
    """They also make the file together."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(keep_many, path, writer) for writer in (1, 2)]:
            done.result(timeout=120)
    expected = sorted(writer + step / 128 for writer in (1, 2) for step in range(20))
    rows = known_points(path, SETTING)
    assert [row.point for row in rows] == [{"T": size} for size in range(5)]
    for row in rows:
        assert sorted(row.samples) == expected


@pytest.mark.parametrize("failure", ["timeout", "infrastructure"])
def test_what_the_machine_may_be_at_fault_for_is_tried_again(path: Path, failure: str) -> None:
    keep(path, SETTING, [PointRow({"T": 8}, (), failure, "late"), *ROWS])
    assert known_points(path, SETTING) == ROWS


def test_only_what_was_chosen_is_found_for_code(path: Path) -> None:
    assert chosen(path) == []
    keep(path, SETTING, ROWS)
    assert chosen(path) == []
    keep(path, SETTING, [], BEST)
    assert chosen(path) == [BEST]
    assert tuned_points(path, "cd" * 32, "cpp", "cpu", {}) == []
    assert tuned_points(path, SKETCH.canonical, "cpp", "another", {}) == []


def test_what_was_fixed_for_a_point_must_be_so_for_the_code(path: Path) -> None:
    keep(path, attrs.evolve(SETTING, fixed={"TN": 8}), ROWS, BEST)
    assert chosen(path) == []
    assert chosen(path, TN=16) == []
    assert chosen(path, TN=8, eps=1) == [BEST]


def test_what_is_fixed_for_the_code_must_be_so_in_the_point(path: Path) -> None:
    keep(path, SETTING, ROWS, BEST)
    name, value = next(iter(BEST.point.items()))
    assert chosen(path, **{name: value}) == [BEST]
    assert chosen(path, **{name: value * 2}) == []


def test_an_import_ends_a_search_that_was_killed_here(path: Path, tmp_path: Path) -> None:
    keep(path, SETTING, ROWS, BEST)
    with open_store(path) as store:
        exported = exporting.export_json(store)
    here = tmp_path / "here.sqlite"
    keep(here, SETTING, ROWS[:1])
    assert chosen(here) == []
    with open_store(here) as store, transaction(store):
        exporting.import_rows(store, exporting.parse_export(exported, "it"), "it")
    assert chosen(here) == [BEST]


def test_the_nearest_sizes_are_those_with_the_smallest_ratios(path: Path) -> None:
    for size in (16, 64, 1000):
        setting = attrs.evolve(SETTING, symbols={"M": size, "N": 100})
        keep(path, setting, [], Best({"T": size}, 0.25, None))
    found = tuned_points(path, SKETCH.canonical, "cpp", "cpu", {})
    for size, expected in ((1, 16), (31, 16), (33, 64), (250, 64), (254, 1000), (10**6, 1000)):
        assert nearest(found, {"M": size}).best.point == {"T": expected}
    assert nearest(found, {}).best.point == {"T": 1000}  # the newest


def test_tunings_are_listed_shown_kept_and_moved(path: Path, tmp_path: Path) -> None:
    keep(path, SETTING, ROWS, BEST)
    with open_store(path) as store:
        (row,) = reading.list_rows(store, "tunings", task="t", target="cpp")
        assert (row["best"], row["points"], row["symbols"]) == (BEST.point, 2, SIZES)
        shown = reading.show(store, row["id"][:12])
        assert (shown["kind"], shown["task_name"], len(shown["points"])) == ("tuning", "t.py", 2)
        collect(store, keep=0, older_than_days=0)  # neither its task nor its sketch goes
        assert unsound(store) == []
        exported = exporting.export_json(store)
    moved = tmp_path / "moved.sqlite"
    with open_store(moved) as store, transaction(store):
        exporting.import_rows(store, exporting.parse_export(exported, "it"), "it")
    assert known_points(moved, SETTING) == ROWS
    assert chosen(moved) == [BEST]
