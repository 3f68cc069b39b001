"""The fewest points that serve several sizes: against all sets of points, and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchc.runtime.tune.cover import TOLERANCE, cover

#: Times of sizes by points: near ties, clear losers, and failures.
TIMES = st.sampled_from([1.0, 1.02, 1.04, 1.06, 1.2, 3.0, np.inf])


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:
    sizes, points = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    rows = [draw(st.lists(TIMES, min_size=points, max_size=points)) for _ in range(sizes)]
    scales = draw(st.lists(st.sampled_from([1e-6, 1e-3, 1.0]), min_size=sizes, max_size=sizes))
    table = np.array(rows) * np.array(scales)[:, None]
    lead = draw(st.integers(0, points - 1))  # each size has a point that works
    table[:, lead] = np.where(np.isfinite(table).any(axis=1), table[:, lead], 1.0)
    return table


def serve_all(table: np.ndarray, chosen: tuple[int, ...]) -> bool:
    return bool((table[:, chosen].min(axis=1) <= (1 + TOLERANCE) * table.min(axis=1)).all())


def least(table: np.ndarray) -> int:
    """The number of points of the smallest set, by trying all of them."""
    points = range(table.shape[1])
    sets = (s for n in range(1, len(points) + 1) for s in itertools.combinations(points, n))
    return len(next(s for s in sets if serve_all(table, s)))


def mean(table: np.ndarray, chosen: tuple[int, ...]) -> float:
    """The logarithm of the geometric mean over the sizes."""
    return float(np.log(table[:, chosen].min(axis=1)).mean())


@given(tables())
def test_it_serves_every_size_with_as_few_points_as_any_set(table: np.ndarray) -> None:
    chosen = cover(table)
    assert serve_all(table, chosen)
    assert len(chosen) == least(table)
    assert list(chosen) == sorted(set(chosen))
    sets = itertools.combinations(range(table.shape[1]), len(chosen))
    assert mean(table, chosen) <= min(mean(table, s) for s in sets if serve_all(table, s)) + 1e-9


@pytest.mark.parametrize(
    ("table", "chosen"),
    [
        ([[1.0, 1.03], [1.03, 1.0]], (0,)),
        ([[1.0, 1.03], [1.04, 1.0]], (1,)),
        ([[1.0, 2.0, 1.04], [2.0, 1.0, 1.04]], (2,)),
        ([[1.0, 2.0, 1.06], [2.0, 1.0, 1.04]], (0, 1)),
        ([[1.0, np.inf], [np.inf, 1.0]], (0, 1)),
        # The second point serves what the first one does, and more, but more slowly.
        ([[1.0, 1.04, 2.0], [2.0, 2.0, 1.0], [2.0, 1.04, 1.0]], (0, 2)),
    ],
)
def test_among_the_smallest_sets_the_fastest_is_taken(
    table: list[list[float]], chosen: tuple[int, ...]
) -> None:
    assert cover(np.array(table)) == chosen


def test_many_points_are_taken_one_after_the_other() -> None:
    """Each size of many has a best point of its own, which serves no other size."""
    table = np.where(np.eye(40, dtype=bool), 1.0, 2.0)
    assert cover(table) == tuple(range(40))
