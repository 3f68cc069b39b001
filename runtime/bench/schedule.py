"""How long and how often something is timed, and with which inputs: the parent's decisions.

The inputs of each sample are fresh values at the same addresses, for which no earlier result is
right: this detects a kernel that reuses outputs, by the address of an input or by some of its
elements. So before every sample each tensor is rotated by an offset and, where it holds floats,
scaled by a factor in (1/2, 1]. The parent draws both and sends them one sample at a time; it can
compute the same values itself, and with them the reference. Parameters of a model stay as they are:
a kernel may prepare them once. A task that corrects its inputs (`valid_inputs`) would not accept
rotated ones: there, samples only alternate between the sets of inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Scalar


@attrs.frozen
class Schedule:
    """How many samples and bursts are timed, and for how long. `cold`: caches are flushed before
    each sample."""

    samples: int = 31
    warm_up_seconds: float = 0.5
    at_least_seconds: float = 1.0
    at_most_seconds: float = 60.0
    cold: bool = True
    bursts: int = 3


@attrs.frozen
class Settings:
    """How to measure. `sizes` replaces symbols of the task; `values` are those of `--set`."""

    seed: int
    threads: int
    schedule: Schedule = Schedule()
    sizes: Mapping[str, int] = attrs.field(factory=dict)
    values: Mapping[str, Scalar] = attrs.field(factory=dict)
    device: str = "cpu"
    timeout: float = 600.0
    baselines: tuple[str, ...] = ("eager",)


#: Factors are 1 - k/256 for k below this, exact in every floating-point type.
_FACTORS = 128


@attrs.frozen
class Turn:
    """How a tensor is varied: its elements, row-major, move up by `offset` places (the last ones to
    the front) and are multiplied with `factor`."""

    offset: int = 0
    factor: float = 1.0


@attrs.frozen
class Variation:
    """One sample's inputs: the number of the set of values (`base`), the number of the copy in
    memory (`place`), and the `Turn` of each tensor that is varied."""

    base: int
    place: int
    turns: Mapping[str, Turn] = attrs.field(factory=dict)


def draw_variation(
    random: np.random.Generator,
    sizes: Mapping[str, tuple[int, bool]],
    bases: int,
    place: int,
) -> Variation:
    """A random variation, with one of `bases` sets of values. `sizes` maps tensors that may be
    varied to (elements, whether they are floats); `place` is given, so that places alternate."""
    turns = {}
    for name, (elements, floating) in sizes.items():
        offset = int(random.integers(0, elements)) if elements else 0
        factor = 1.0 - int(random.integers(0, _FACTORS)) / 256 if floating else 1.0
        turns[name] = Turn(offset, factor)
    return Variation(int(random.integers(0, bases)), place, turns)


def varied(array: Array, turn: Turn) -> Array:
    """`array` varied by `turn`, in a new array of the same shape and type."""
    rotated = np.roll(array.reshape(-1), turn.offset).reshape(array.shape)
    if turn.factor == 1.0:
        return rotated
    scaled: Array = rotated * rotated.dtype.type(turn.factor)
    return scaled
