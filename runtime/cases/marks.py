"""Integers of a task's inputs that stand apart from the others: the label that a loss ignores.

Labels are 0 to 5, for example, and 255 or -100 where an element has none. The task may not know the
numbers between and refuse them as indices. So it is run on some, and where it refuses them, inputs
are drawn from the range of the other numbers, with the outliers among them.
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

#: At most so many numbers stand apart from the others ...
_MOST = 4
#: ... by more than so many times the median distance between neighbours.
_APART = 8


def with_marks(binding: Binding, task: TaskClient, seed: int) -> Binding:
    """The binding with `marks`: outliers among the integers of inputs, where the task refuses the
    integers between them and the others."""
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
    """The few values (at most `_MOST`) that are far from most others in `given`; else none."""
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
    """`array` with `marks` at random places, as often as each is in the task's own `given`."""
    found = array.copy()
    for mark in marks:
        found[random.random(array.shape) < np.mean(given == mark)] = mark
    return found


def _refuses_between(
    task: TaskClient, own: Sequence[Array | Scalar | None], position: int, marks: Sequence[int]
) -> bool:
    """Whether the task takes its own inputs, and refuses them with an integer between the first
    mark and the other values in its place."""
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
