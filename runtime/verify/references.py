"""The task's outputs in float64, and what its own arithmetic makes of them.

The rule is calibrated so that the framework's own kernels pass. Where they do not, it asks for more
than the task delivers: a softmax amplifies the errors of the products before it, a recurrence adds
them up; in the tail of gelu, `1 + erf(x)` cancels in any float32; the float32 squares of denormal
numbers are zero. So where a candidate breaks the rule, it is held against the task's own result in
the task's own precision on the same inputs (`own`):

- an element passes whose error is at most `FACTOR` times the largest error of the task's own
  result in that output (of f16 and bf16, in proportion to the element and the root mean square;
  errors that are gross, an underflow say, are no measure: they count in their own row alone). One
  run may happen to be exact: errors are also taken at inputs that differ in the last bit. And,
- on inputs of extreme magnitude, an element is not judged that is grossly wrong in the task's own
  result (an infinity here, a large number there: neither is nearer to the truth), on these inputs
  or on some that differ in the last bit: a recurrence of many steps amplifies what it rounds so
  that each run is wrong elsewhere.

Further results are as right as the reference (`readings`): an element that another run of the task
gives, where several threads write into one place; what lies on the other side of a border that a
value was rounded at, or compared with, within the tolerance; an integer that the task gives in its
own precision; and indices of elements that are equal within the tolerance (`ties`).

The task is run for these only when a candidate fails. Where its own runs differ in all elements
that are still wrong, the fault is the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import attrs
import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.runtime.process.arrays import Array, dtype_of
from sketchc.runtime.tasks.description import Readings, TaskFailure, fail
from sketchc.runtime.tasks.repeat import NOT_DETERMINISTIC, alike, difference
from sketchc.runtime.verify.compare import (
    PAPER_TAU,
    Comparison,
    Waiver,
    compare,
    differs_on_ties_only,
    limits,
    relative_tolerance,
    root_mean_square,
    wrong_elements,
)

#: How far from the exact value an element may be, in multiples of the task's own largest error.
FACTOR = 2.0
#: An error of the task's own is gross beyond this many of the paper's thresholds.
_GROSS = 5.0
#: Outputs of up to so many elements are sampled so many times: one run of few elements says little,
#: and what a recurrence amplifies differs from run to run.
_SAMPLES = ((1 << 6, 24), (1 << 18, 8), (1 << 22, 4))
#: ... unless an error is beyond this many of the task's own, and of bounds.
_HOPELESS = 32.0
#: Types whose rounding errors of large elements say nothing of small ones.
_PROPORTIONAL = frozenset({DType.F16, DType.BF16})
#: Kinds of inputs whose values may lie beyond what the task's own precision can carry.
EXTREME_KINDS = frozenset({"structured", "mixed_scale", "large"})

OWN = "the task's own arithmetic is no better"
UNJUDGED = "the task's own result is grossly wrong there: not judged"
TIED = "other places of elements that are equal within tolerance"
BORDER = "the value before rounding lies within tolerance of the border"
RACES = "another run of the task gives this"
OWN_INTEGER = "the task gives this in its own precision"


@attrs.define
class References:
    """`arrays` are the outputs in float64; `own` runs the task in its own precision on the same
    inputs, and is None where nothing is excused; `extreme`: the inputs are of extreme magnitude;
    `inputs` are the tensors that indices may be of; `read` runs the task for other outputs that it
    may give, where values before roundings are off by a tolerance; `path` names the task."""

    arrays: list[Array]
    own: Callable[[], list[Array]] | None = None
    extreme: bool = False
    inputs: tuple[Array, ...] = ()
    read: Callable[[float], Readings] | None = None
    path: str = ""
    #: The task's outputs, in float64 and in its own precision, on inputs that differ in the last
    #: bit; the argument is the number of such inputs before.
    near: Callable[[int], tuple[list[Array], list[Array]]] | None = None
    _own_arrays: list[Array] | None = None
    _readings: Readings = Readings()

    def compare(
        self, position: int, name: str, actual: Array, dtype: DType, length: int
    ) -> Comparison:
        """`verify.compare.compare` for the output at `position`, relaxed as the module says. Raises
        `TaskFailure` where the task's own runs differ in all that is wrong."""
        reference = self.arrays[position]
        scale = self._scale(reference, dtype)
        found = compare(name, actual, reference, dtype, length, scale=scale)
        if found.failure != "numerical":
            return found
        if not dtype.is_float and differs_on_ties_only(actual, reference, self.inputs):
            return _tied(found, actual, reference)
        # The types of the output, and of values that follow from the inputs.
        types = (dtype, *(of for _, of in self._floats()))
        rtol = max(relative_tolerance(one, length) for one in types)
        self._ask(rtol)
        if not dtype.is_float and any(
            differs_on_ties_only(actual, reference, [place.values], 0.0 if place.exact else rtol)
            for place in self._readings.places
        ):
            return _tied(found, actual, reference)
        nearest, waivers = self._nearest(position, actual, reference, dtype)
        again = compare(name, actual, nearest, dtype, length, scale=scale)
        if not again.passed and dtype.is_float:
            again, more = self._relaxed(position, again, actual, nearest, length, dtype)
            waivers += more
        said = [f"{w.count} differ: {w.why}" for w in waivers if w.why not in (OWN, UNJUDGED)]
        reason = "; ".join([again.reason, *said])
        found = attrs.evolve(again, waivers=tuple(waivers), reason=reason)
        if not found.passed:
            self._require_one_answer(position, actual, nearest, dtype, length)
            found = self._with_value_before(found, position, reference, dtype)
        return found

    # ------------------------------------------------------------ what the task says

    def _floats(self) -> Iterator[tuple[Array, DType]]:
        """The inputs that are floating-point numbers."""
        for array in self.inputs:
            dtype = dtype_of(array)
            if dtype is not None and dtype.is_float:
                yield array, dtype

    def _scale(self, reference: Array, dtype: DType) -> float:
        """The magnitude of the operands, for a reference that is exactly 0 (the cross entropy of
        one class): what is left of terms that cancel is as large as their rounding."""
        if not dtype.is_float or reference.size == 0 or np.any(reference != 0):
            return 0.0
        wide = (array.astype(np.float64) for array, _ in self._floats())
        return max((root_mean_square(array, DType.F64) for array in wide), default=0.0)

    def _ask(self, rtol: float) -> None:
        """Run the task for other outputs that it may give, once."""
        read, self.read = self.read, None
        if read is not None:
            with suppress(TaskFailure):  # it may be short of memory
                self._readings = read(rtol)

    def _own(self, position: int) -> Array | None:
        """The output in the task's own precision; None where there is none of the same shape."""
        own, self.own = self.own, None
        if own is not None:
            with suppress(TaskFailure):  # the framework may have no kernel of that precision here
                self._own_arrays = own()
        found = None if self._own_arrays is None else self._own_arrays[position]
        return found if found is None or found.shape == self.arrays[position].shape else None

    def _others(self, position: int, dtype: DType) -> Iterator[tuple[str, Array]]:
        """Outputs that are as right as the reference, each with the reason."""
        for run in self._readings.runs:
            yield RACES, run[position]
        for run in self._readings.moved:
            yield BORDER, run[position]
        own = None if dtype.is_float else self._own(position)
        if own is not None:
            yield OWN_INTEGER, own

    # ------------------------------------------------------------ relaxing the rule

    def _nearest(
        self, position: int, actual: Array, reference: Array, dtype: DType
    ) -> tuple[Array, list[Waiver]]:
        """For each element, the nearest to `actual` of all right values; and waivers for those
        where it is not the reference's."""
        nearest, waivers = reference, []
        for why, other in self._others(position, dtype):
            if other.shape != reference.shape or np.array_equal(other, nearest, equal_nan=False):
                continue
            if why == RACES and not difference([reference], [other]):
                continue
            nearer = _nearer(actual, nearest, other)
            if nearer.any():
                nearest = np.where(nearer, other, nearest).astype(reference.dtype)
                waivers.append(_waiver(why, nearer, actual, reference))
        return nearest, waivers

    def _relaxed(
        self,
        position: int,
        found: Comparison,
        actual: Array,
        reference: Array,
        length: int,
        dtype: DType,
    ) -> tuple[Comparison, list[Waiver]]:
        """The comparison with the task's own errors allowed, where these come near the bound."""
        own = self._own(position)
        if own is None:
            return found, []
        # What the task itself rounds to the other side of a border is no error of it.
        exact, _ = self._nearest(position, own, self.arrays[position], dtype)
        scale = self._scale(reference, dtype)
        with np.errstate(all="ignore"):
            error = np.abs(actual.astype(np.float64) - reference)
        broke = wrong_elements(actual, reference, dtype, length, scale)
        misses = _Misses(broke, error, found.max_error)
        allowance = self._allowance(position, own, exact, length, dtype, misses)
        if allowance is None:
            return found, []
        again = compare(found.name, actual, reference, dtype, length, allowance, scale)
        unjudged = broke & np.isposinf(allowance)
        near = broke & ~unjudged & (error <= allowance)
        return again, [
            _waiver(why, where, actual, reference, allowance)
            for why, where in ((OWN, near), (UNJUDGED, unjudged))
            if where.any()
        ]

    def _allowance(
        self,
        position: int,
        own: Array,
        reference: Array,
        length: int,
        dtype: DType,
        misses: _Misses,
    ) -> Array | None:
        """How far off each element may be by the task's own errors; None where these are far from
        the bound."""
        own = own.astype(numpy_dtype(dtype)).astype(np.float64)
        wrong = wrong_elements(own.astype(numpy_dtype(dtype)), reference, dtype, length)
        with np.errstate(all="ignore"):
            error = np.abs(own - reference)
            bound = limits(reference, dtype, length)
            magnitude = np.abs(reference) + root_mean_square(reference, dtype)
            gross = wrong & ~(error <= _GROSS * PAPER_TAU[dtype] * magnitude)
            error = np.where(np.isfinite(error), error, 0.0)
            plain = np.where(gross, 0.0, error)
            if dtype in _PROPORTIONAL:
                largest = float(np.nan_to_num(plain / magnitude).max(initial=0.0))
                allowance = FACTOR * largest * magnitude
            else:
                largest = float(plain.max(initial=0.0))
                highest = max(largest, float(np.nanmax(bound, initial=0.0)))
                if misses.largest <= _HOPELESS * highest or (self.extreme and gross.any()):
                    samples = self._samples(position, reference, dtype, length)
                    # A sample runs the task twice: no more of them than it takes to excuse all.
                    while misses.left(FACTOR * largest, self.extreme & wrong) and (
                        sample := next(samples, None)
                    ):
                        largest = max(largest, sample[0])
                        wrong |= self.extreme & sample[1]
                allowance = np.full(reference.shape, FACTOR * largest)
            if not wrong.any() and not (allowance > bound).any():
                return None
        if gross.any():
            in_row = np.where(gross, error, 0.0)
            in_row = in_row.max(axis=-1, keepdims=True) if in_row.ndim else in_row
            allowance = np.maximum(allowance, FACTOR * in_row)
        return np.where(wrong, np.inf, allowance) if self.extreme else allowance

    def _samples(
        self, position: int, reference: Array, dtype: DType, length: int
    ) -> Iterator[tuple[float, Array]]:
        """At one input after the other that differs in the last bit: the task's own largest error,
        gross ones apart, and which elements are wrong there."""
        if self.near is None or not reference.size:
            return
        finite = np.abs(reference[np.isfinite(reference)])
        most = _GROSS * PAPER_TAU[DType.F32] * float(finite.max(initial=0.0))
        for number in range(next((n for size, n in _SAMPLES if reference.size <= size), 0)):
            try:
                exact, own = self.near(number)
            except TaskFailure:
                return
            rounded = own[position].astype(numpy_dtype(dtype))
            wrong = wrong_elements(rounded, exact[position], dtype, length)
            with np.errstate(all="ignore"):
                error = np.abs(own[position].astype(np.float64) - exact[position])
            error = error[np.isfinite(error) & (error <= most)]
            yield float(error.max(initial=0.0)), wrong

    # ------------------------------------------------------------ what is left over

    def _require_one_answer(
        self, position: int, actual: Array, nearest: Array, dtype: DType, length: int
    ) -> None:
        """Raises `TaskFailure` where the task's own runs differ in all elements that are wrong."""
        reference = self.arrays[position]
        for run in self._readings.runs:
            if not (where := difference([reference], [run[position]])):
                continue
            raced = ~np.asarray(alike(reference, run[position]))
            wrong = (
                wrong_elements(actual, nearest, dtype, length)
                if dtype.is_float
                else np.asarray(actual != nearest)
            )
            if not (wrong & ~raced).any():
                why = f"runs on the same inputs differ, with one thread and with several ({where})"
                fail(f"{self.path}: {NOT_DETERMINISTIC.format(why=why)}")

    def _with_value_before(
        self, found: Comparison, position: int, reference: Array, dtype: DType
    ) -> Comparison:
        """The first wrong element, with the reference's value before it was rounded."""
        moves = any((run[position] != reference).any() for run in self._readings.moved)
        fitting = [array for array in self._readings.rounded if array.size == reference.size]
        if found.first is None or not fitting or (dtype.is_float and not moves):
            return found
        place = np.ravel_multi_index(found.first.index, reference.shape) if reference.ndim else 0
        before = float(fitting[-1].reshape(-1)[int(place)])
        return attrs.evolve(found, first=attrs.evolve(found.first, before=before))


@attrs.frozen
class _Misses:
    """Which elements of a kernel's output are beyond the bound, each one's error, and the largest
    error that is judged."""

    where: Array
    error: Array
    largest: float

    def left(self, allowed: float, unjudged: Array) -> bool:
        """Whether one is off by more than `allowed`, apart from those that are not judged."""
        with np.errstate(all="ignore"):
            return bool((self.where & ~unjudged & ~(self.error <= allowed)).any())


def nudged(value: Array, number: int) -> Array:
    """Floats moved by a unit in the last place, up or down or not at all; 0 stays."""
    if value.dtype.name not in ("float32", "float64"):
        return value
    random = np.random.default_rng([number, value.size])
    toward = np.where(random.random(value.shape) < 0.5, np.inf, -np.inf).astype(value.dtype)
    moved = np.nextafter(value, toward)
    kept = (random.random(value.shape) < 0.5) | (value == 0) | ~np.isfinite(value)
    found: Array = np.where(kept, value, moved).astype(value.dtype)
    return found


def _nearer(actual: Array, one: Array, other: Array) -> Array:
    """Where `actual` is nearer to `other` than to `one`; NaN and infinities only to their like."""
    found: Array
    if one.dtype.kind in "iub":
        found = (actual != one) & (actual == other)
        return found
    y = actual.astype(np.float64)
    with np.errstate(all="ignore"):
        first, second = np.abs(y - one), np.abs(y - other)
        first = np.where((y == one) | (np.isnan(y) & np.isnan(one)), 0.0, first)
        second = np.where((y == other) | (np.isnan(y) & np.isnan(other)), 0.0, second)
        found = (second < first) | (np.isnan(first) & ~np.isnan(second))
    return found


def _waiver(
    why: str, where: Array, actual: Array, reference: Array, allowance: Array | None = None
) -> Waiver:
    """The waiver for the elements at `where`, with the one that is furthest off."""
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(np.float64) - reference.astype(np.float64))
    ranked = np.where(where, np.nan_to_num(error, nan=np.inf, posinf=np.inf), -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(ranked)), reference.shape))
    plain = float if reference.dtype.kind not in "iub" else int
    allowed = np.inf if allowance is None else float(allowance[index])
    return Waiver(
        int(where.sum()),
        why,
        index,
        plain(reference[index]),
        plain(actual[index]),
        float(error[index]),
        allowed,
    )


def _tied(found: Comparison, actual: Array, reference: Array) -> Comparison:
    waiver = _waiver(TIED, np.asarray(actual != reference), actual, reference)
    reason = f"equal but for {found.wrong} indices of equal elements"
    return Comparison(found.name, "", reason, found.elements, waivers=(waiver,))
