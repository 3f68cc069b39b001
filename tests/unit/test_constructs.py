"""docs/CONSTRUCTS.md names every example, has a result in every cell, and is what its script makes
of the recorded runs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.stem for path in (ROOT / "examples").glob("*.sketch")}
RESULTS = json.loads((ROOT / "docs" / "constructs.json").read_text())


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "benchmarks" / "constructs.py"
    specification = importlib.util.spec_from_file_location("constructs", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_example_shows_a_construct(script: ModuleType) -> None:
    assert {example for rows in script.CONSTRUCTS.values() for _, example in rows} == EXAMPLES


def test_every_example_was_run_on_every_target(script: ModuleType) -> None:
    assert set(RESULTS) == EXAMPLES
    for example, columns in RESULTS.items():
        assert set(columns) == set(script.COLUMNS), example
        assert all(columns.values()), example


def test_the_page_is_what_the_results_make_of_it(script: ModuleType) -> None:
    assert (ROOT / "docs" / "CONSTRUCTS.md").read_text() == script.render(RESULTS)


def test_refusals_name_a_code_that_is_explained() -> None:
    codes = {
        result
        for columns in RESULTS.values()
        for result in columns.values()
        if result.startswith("SK")
    }
    pages = {path.stem for path in (ROOT / "sketchc" / "explain").glob("*.md")}
    assert codes <= pages


def test_a_failure_is_shown_as_one(script: ModuleType) -> None:
    page = script.render({"add": {"cpp": "numerical: Y: 3 of 9 elements are wrong"}})
    assert "[add](../examples/add.sketch) | not run | **no** | not run" in page
    assert "- add, C++: numerical: Y: 3 of 9 elements are wrong" in page
