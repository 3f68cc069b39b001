"""Inputs that are nearly those of the case before."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.runtime.cases.drawing import (
    CHANGED,
    SWAPPED,
    Inputs,
    base_kind,
    is_neighbour,
    neighbour,
    with_neighbours,
)
from sketchc.runtime.cases.shapes import ShapeCase


def inputs() -> Inputs:
    x = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    index = np.arange(4, dtype=np.int64)
    return Inputs({"X": x, "INDEX": index}, [x, index, 2.5, None], {"weight": x})


@pytest.mark.parametrize("change", [CHANGED, SWAPPED])
@pytest.mark.parametrize("seed", range(5))
def test_as_little_differs_as_the_kind_says(change: str, seed: int) -> None:
    before = inputs()
    after = neighbour(before, f"normal/{change}", seed)
    different = np.flatnonzero(after.values["X"] != before.values["X"])
    assert different.size == (1 if change == CHANGED else 2)
    if change == SWAPPED:
        assert after.values["X"].sum() == before.values["X"].sum()
    assert np.array_equal(before.values["X"], inputs().values["X"]), "the given arrays stay"
    assert after.values["INDEX"] is before.values["INDEX"]


def test_all_sides_get_the_same_arrays() -> None:
    after = neighbour(inputs(), f"normal/{CHANGED}", 3)
    assert after.arguments[0] is after.values["X"]
    assert after.state["weight"] is after.values["X"]
    assert after.arguments[2:] == [2.5, None]


def test_constant_and_empty_tensors_stay() -> None:
    for array in (np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32)):
        given = Inputs({"X": array}, [array], {})
        assert neighbour(given, f"large/{SWAPPED}", 1).values["X"] is array
    assert neighbour(inputs(), "normal", 1).arguments[2] == 2.5


def test_neighbours_stand_behind_the_last_case_of_other_sizes() -> None:
    ragged, own = ShapeCase("ragged", {"M": 3}), ShapeCase("own", {"M": 8}, own=True)
    cases = with_neighbours([(ragged, "normal"), (ragged, "large"), (own, "task")])
    kinds = [kind for _, kind in cases]
    assert kinds == ["normal", "large", "large/changed", "large/swapped", "task"]
    assert [is_neighbour(kind) for kind in kinds] == [False, False, True, True, False]
    assert {base_kind(kind) for kind in kinds[1:4]} == {"large"}
    assert with_neighbours([(own, "task")])[1:] == [(own, "task/changed"), (own, "task/swapped")]
    assert with_neighbours([]) == []
