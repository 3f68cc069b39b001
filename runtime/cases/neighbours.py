"""Inputs that are nearly those of the case before: for kernels that keep results of earlier calls.

A kernel that recognises an input by some of it (its corners, its sum) hands out the answer of
another. So the last of the ragged cases is run twice more: with one element changed, and with two
elements in each other's place, which leaves sums as they are. Everything else is what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from sketchc.runtime.cases.drawing import Inputs
from sketchc.runtime.process.arrays import Array

if TYPE_CHECKING:
    from sketchc.runtime.cases.shapes import ShapeCase

#: Kinds of input are "KIND/changed" and "KIND/swapped".
CHANGED, SWAPPED = "changed", "swapped"


def with_neighbours(
    cases: list[tuple[ShapeCase, str]],
) -> list[tuple[ShapeCase, str]]:
    """The cases, with two neighbours behind the last one that has not the task's own sizes; behind
    the last of all where the task's sizes are the only ones."""
    if not cases:
        return cases
    ragged = [place for place, (case, _) in enumerate(cases) if not case.own]
    place = ragged[-1] if ragged else len(cases) - 1
    case, kind = cases[place]
    near = [(case, f"{kind}/{change}") for change in (CHANGED, SWAPPED)]
    return [*cases[: place + 1], *near, *cases[place + 1 :]]


def is_neighbour(kind: str) -> bool:
    """Whether inputs of this kind are those of the case before, nearly."""
    return "/" in kind


def base_kind(kind: str) -> str:
    """The kind of the case that it is a neighbour of; any other kind is its own."""
    return kind.partition("/")[0]


def neighbour(inputs: Inputs, kind: str, seed: int) -> Inputs:
    """The inputs with one element changed, or two swapped, in each tensor of floats that has two
    different ones. The element is the largest of all: a result that does not follow shows."""
    _, _, change = kind.partition("/")
    if not change:
        return inputs
    random = np.random.default_rng(seed + 1)
    moved = {
        id(array): _moved(array, change, random)
        for array in [*inputs.values.values(), *inputs.arguments, *inputs.state.values()]
        if isinstance(array, np.ndarray)
    }

    def new(value: Any) -> Any:
        return moved.get(id(value), value)

    return attrs.evolve(
        inputs,
        values={name: new(array) for name, array in inputs.values.items()},
        arguments=[new(argument) for argument in inputs.arguments],
        state={name: new(array) for name, array in inputs.state.items()},
    )


def _moved(array: Array, change: str, random: np.random.Generator) -> Array:
    flat = np.asarray(array, np.float64).reshape(-1)
    if array.dtype.kind in "iub" or not flat.size:
        return array
    largest = int(np.argmax(np.abs(flat)))
    others = np.flatnonzero(flat != flat[largest])
    if not others.size:
        return array
    place = int(random.choice(others))
    found = array.copy()
    elements = found.reshape(-1)
    elements[place] = array.reshape(-1)[largest]
    if change == SWAPPED:
        elements[largest] = array.reshape(-1)[place]
    return found
