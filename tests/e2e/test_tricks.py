"""Known tricks against the verifier: each must be caught, in the right class, and honest kernels
that look like them must pass. `tests/tricks/tricks.toml` is the table; docs/TRICKS.md shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toolchains import require
from tricks import page
from tricks.table import FOLDER, Group, grouped, load, misjudged, name_of

from sketchc.runtime.verify.verdict import FAILURES

GROUPS = grouped("cpu")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's store."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.mark.sweep
@pytest.mark.parametrize("group", GROUPS, ids=name_of)
def test_tricks(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    require(group[1])
    assert misjudged(group, GROUPS[group], capsys) == {}


def test_the_table_is_whole() -> None:
    tricks = load()
    files = [trick.file for trick in tricks]
    assert len(files) == len(set(files))
    lying = {
        str(path.relative_to(FOLDER))
        for path in FOLDER.glob("*/*")
        if path.suffix in (".cpp", ".py") and path.parent.name != "tasks"
    }
    assert lying == set(files)
    for trick in tricks:
        assert set(trick.caught) <= set(FAILURES), trick.file
        assert not trick.like or trick.like in files, trick.file
        assert trick.runs in ("cpu", "gpu"), trick.file
        assert bool(trick.by) == bool(trick.caught), trick.file
        assert len(trick.mechanism) > 20, trick.file


def test_there_are_enough_of_them() -> None:
    tricks = load()
    cheats = [trick for trick in tricks if trick.caught and not trick.like]
    assert len(cheats) >= 40
    assert len({trick.mechanism for trick in cheats}) == len(cheats)
    assert sum(trick.runs == "cpu" for trick in cheats) >= 28
    assert sum(not trick.caught for trick in tricks) >= 20


def test_those_for_a_gpu_were_judged_on_one() -> None:
    """The record of tests/device/test_tricks_cuda.py holds each, with a class that is right."""
    lines = (page.PLACE.parent / "data" / "tricks_h200.jsonl").read_text().splitlines()
    said = {record["file"]: record for record in map(json.loads, lines)}
    tricks = [trick for trick in load() if trick.runs == "gpu"]
    assert len(tricks) >= 8
    for trick in tricks:
        record = said[trick.file]
        assert record["failure"] in trick.caught, trick.file
        assert (record["command"], record["passed"]) == (trick.command, False)


def test_the_page_shows_the_table() -> None:
    assert page.PLACE.read_text("utf-8") == page.text(), "run: python tests/tricks/page.py"
