"""Elements that the task's own arithmetic gets wrong are not judged, and no others are excused."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.runtime.verify.compare import compare, wrong_elements
from sketchc.runtime.verify.references import References
from sketchc.types import DType

RNG = np.random.default_rng(5)


def _normalise(x: np.ndarray) -> np.ndarray:
    """x over its norm along the last axis, in x's own precision."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


@pytest.fixture
def rows() -> np.ndarray:
    """Ordinary rows, and one whose squares no float32 can hold."""
    x = RNG.standard_normal((5, 33)).astype(np.float32)
    x[2] = 1e-30
    return x


def test_what_the_task_cannot_compute_either_is_not_judged(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    with np.errstate(all="ignore"):
        own = _normalise(rows)
    assert compare("Y", own, exact, DType.F32, 33).wrong == 33
    found = References([exact], lambda: [own]).compare(0, "Y", own, DType.F32, 33)
    assert found.passed
    assert "33 are not judged" in found.reason


def test_other_elements_are_judged_as_ever(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    with np.errstate(all="ignore"):
        own = _normalise(rows)
    actual = own.copy()
    actual[4, 7] += 0.01
    found = References([exact], lambda: [own]).compare(0, "Y", actual, DType.F32, 33)
    assert (found.failure, found.wrong) == ("numerical", 1)
    assert found.first is not None
    assert found.first.index == (4, 7)


def test_a_task_that_is_right_excuses_nothing(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))
    actual = exact.astype(np.float32)
    actual[0, 0] = np.nan
    own = exact.astype(np.float32)
    found = References([exact], lambda: [own]).compare(0, "Y", actual, DType.F32, 33)
    assert found.wrong == 1
    assert not References([exact], None).compare(0, "Y", actual, DType.F32, 33).passed


def test_the_task_is_not_asked_when_the_candidate_is_right(rows: np.ndarray) -> None:
    exact = _normalise(rows.astype(np.float64))

    def own() -> list[np.ndarray]:
        pytest.fail("asked without need")

    actual = exact.astype(np.float32)
    assert References([exact], own).compare(0, "Y", actual, DType.F32, 33).passed


@pytest.mark.parametrize("shape", [(1,), (7, 11), (0, 4)])
def test_the_mask_counts_what_the_rule_counts(shape: tuple[int, ...]) -> None:
    exact = RNG.standard_normal(shape)
    actual = exact.astype(np.float32)
    actual.reshape(-1)[::3] += 1.0
    mask = wrong_elements(actual, exact, DType.F32)
    assert mask.shape == shape
    assert int(mask.sum()) == compare("Y", actual, exact, DType.F32).wrong
