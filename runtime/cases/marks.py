"""Integers of a task's inputs that stand apart from the others: the label that a loss ignores.

Labels are 0 to 5, and 255 where an element has none; or -100. Of the numbers between, the task may
know nothing: it refuses them as indices. So such a task is asked, and where it refuses them, inputs
are drawn from the range of the others, with the numbers apart among them.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from sketchc.base.types import DType
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import Scalar, TaskFailure

#: So many numbers at most stand apart from the others ...
_MOST = 4
#: ... by so many times the usual distance of two.
_APART = 8


def with_marks(binding: Binding, task: TaskClient, seed: int) -> Binding:
    """The binding, with the numbers that stand apart in inputs where the task refuses those
    between."""
    positions = [
        source.position
        for source in binding.tensors
        if source.position is not None
        and source.position not in binding.values
        and source.tensor.dtype.is_integer
        and source.tensor.dtype is not DType.BOOL
    ]
    if not positions or binding.description.corrects:
        return binding
    own = task.own_inputs(seed % (1 << 31))
    marks = {}
    for position in positions:
        given = own[position]
        found = apart(given) if isinstance(given, np.ndarray) else ()
        if found and _refuses_between(task, own, position, found):
            marks[position] = found
    return attrs.evolve(binding, marks=marks)


def apart(given: Array) -> tuple[int, ...]:
    """The few numbers that are far from most of them; none where all are alike."""
    values = np.unique(given)
    if values.size < 3:
        return ()
    steps = np.diff(values)
    ends = np.flatnonzero(steps > _APART * np.median(steps)) + 1
    groups = np.split(values, ends)
    largest = max(groups, key=len)
    others = [int(value) for group in groups if group is not largest for value in group]
    return tuple(others) if len(others) <= _MOST else ()


def marked(array: Array, given: Array, marks: Sequence[int], random: np.random.Generator) -> Array:
    """The array with the numbers apart as often as they are in what the task gives."""
    found = array.copy()
    for mark in marks:
        found[random.random(array.shape) < np.mean(given == mark)] = mark
    return found


def _refuses_between(
    task: TaskClient, own: Sequence[Array | Scalar | None], position: int, marks: Sequence[int]
) -> bool:
    """Whether the task takes its own inputs, and not with numbers between those apart and the
    others."""
    given = np.asarray(own[position])
    others = given[~np.isin(given, marks)]
    mark = marks[0]
    near = int(others.max()) if mark > others.max() else int(others.min())
    moved = list(own)
    moved[position] = np.where(given == mark, np.asarray((mark + near) // 2, given.dtype), given)
    try:
        task.reference(own)
    except TaskFailure:
        return False
    try:
        task.reference(moved)
    except TaskFailure:
        return True
    return False
