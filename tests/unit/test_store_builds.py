"""What `sketchc.compile` keeps in the store: found by its identity, unless it was refuted."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from store_cases import put, unsound, verdict

from sketchc.runtime.store import exporting, reading
from sketchc.runtime.store.builds import Build, find_build, keep_build
from sketchc.runtime.store.database import StoreError, collect, open_store, transaction
from sketchc.runtime.store.writing import TaskText

BUILD = Build("0123abcd", "t", "cpp", "")
TASK = TaskText("t.py", "# t")
FILES = {"t.cpp": "code", "t_dropin.py": "import t"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def test_a_build_is_found_by_what_it_was_made_from(path: Path) -> None:
    keep_build(path, BUILD, TASK, FILES)
    assert find_build(path, BUILD.identity) == FILES
    assert find_build(path, "another") == {}
    keep_build(path, BUILD, TASK, {"t.cpp": "other code"})
    assert find_build(path, BUILD.identity) == {"t.cpp": "other code"}


def test_one_that_was_refuted_since_is_not_found(path: Path) -> None:
    keep_build(path, BUILD, TASK, FILES)
    wrong = verdict(passed=False, failure="numerical")
    with open_store(path) as store:
        put(store, "t", "code", verdict(), verdict(passed=False, failure="infrastructure"))
        put(store, "t", "code of another", wrong)
        put(store, "t", "code", wrong, target="triton_cuda")
        put(store, "another", "code", wrong)
    assert find_build(path, BUILD.identity) == FILES
    with open_store(path) as store:
        put(store, "t", "code", wrong)
    assert find_build(path, BUILD.identity) == {}


def test_builds_are_listed_shown_kept_and_moved(path: Path, tmp_path: Path) -> None:
    keep_build(path, BUILD, TASK, FILES)
    keep_build(path, attrs.evolve(BUILD, identity="99", target="triton_cuda"), TASK, {})
    with open_store(path) as store:
        (row,) = reading.list_rows(store, "builds", task="t", target="cpp")
        assert (row["id"], row["files"]) == (BUILD.identity, 2)
        shown = reading.show(store, "0123")
        assert (shown["kind"], shown["files"], shown["task_name"]) == ("build", FILES, "t.py")
        assert len(reading.show(store, row["task"])["builds"]) == 2
        collect(store, keep=0, older_than_days=0)  # neither its task nor its texts go
        assert unsound(store) == []
        exported = exporting.export_json(store)
    there = tmp_path / "there.sqlite"
    with open_store(there) as store, transaction(store):
        exporting.import_rows(store, exporting.parse_export(exported, "export"), "export")
    assert find_build(there, BUILD.identity) == FILES
    assert json.loads(exported)["tables"]["build_files"]


@pytest.mark.parametrize("name", ["../t.py", "/t.py", "a/t.py", ".."])
def test_names_that_lead_out_of_a_folder_are_no_build(path: Path, name: str) -> None:
    keep_build(path, BUILD, TASK, {**FILES, name: "x"})
    assert find_build(path, BUILD.identity) == {}


def test_what_is_no_store_is_one_line(path: Path) -> None:
    path.write_text("something else " * 100, "utf-8")
    for work in (lambda: find_build(path, "1"), lambda: keep_build(path, BUILD, TASK, FILES)):
        with pytest.raises(StoreError, match="is not a store of sketchc"):
            work()
