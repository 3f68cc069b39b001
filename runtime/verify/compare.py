"""Compare an output with its float64 reference: the strict rule that decides, and the paper's rule.

The strict rule asks for the exact shape and dtype, NaN and infinities exactly where the reference
has them, exact integers and booleans, and for *every* other element

    |y - reference| <= rtol * |reference| + atol,    atol = rtol * RMS(reference),

    rtol = (8 * sqrt(K) + 16) * eps(accumulator) + roundings * u(output),  at most the paper's tau,

where K is the longest chain of additions behind one element, the accumulator is f32 (f64 for f64),
16 eps stand for the error of functions such as erf, whose error the sum in gelu amplifies, and the
last term for the rounding of f16 and bf16 outputs (u is half of eps). The rule is
calibrated in tests/unit/test_compare.py: the framework's own kernels pass; f16 accumulation, a
dropped last K tile and one element that is off by 1 % of the RMS fail.

The paper's rule (arXiv 2512.23424, Eq. 2 and 3) is reported beside it and decides nothing: it
accepts an output of NaNs alone, and a share of tau of the elements may be arbitrarily wrong.

Indices may differ on a tie: argmax, argmin, topk and sort may give the index of any of equal
elements. An integer output counts as indices of an input where the reference's indices select,
along one axis, the largest or smallest elements of that input, in order. Then another index is as
good where it selects an equal element, and where no index is given twice. Of values that the task
computes first (the two largest of a softmax), elements count as equal that are within tolerance:
rounding orders them, differently in each precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.runtime.process.arrays import Array, dtype_of

#: The paper's thresholds. It gives none for f64 and integers; these follow its pattern.
PAPER_TAU = {DType.F16: 0.004, DType.BF16: 0.03, DType.F32: 0.001, DType.F64: 0.001}
PAPER_EPSILON = 1e-8

#: How many roundings to the output's type the rule allows; `u` is the unit roundoff of the type.
_ROUNDINGS = {DType.F16: 4.0, DType.BF16: 2.0}
_UNIT_ROUNDOFF = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8}
_ACCUMULATOR_EPSILON = {DType.F64: 2.0**-52}
_FLOAT32_EPSILON = 2.0**-23
_FACTOR = 8.0
_FUNCTION_ERROR = 16.0
#: Elements compared at a time: the temporaries stay in the processor's caches.
_BLOCK = 1 << 17


@attrs.frozen
class WrongElement:
    """One element that breaks the rule; values are floats, or integers as they are. `before` is the
    reference's value before it was rounded, None where that is not known."""

    index: tuple[int, ...]
    expected: float | int
    actual: float | int
    before: float | None = None

    @property
    def error(self) -> float | None:
        """The absolute error; None where it is not finite."""
        found = abs(float(self.actual) - float(self.expected))
        return found if math.isfinite(found) else None


@attrs.frozen
class PaperRule:
    """Eq. 2 and 3 of the paper: a share of at most tau of the elements may be off by over tau."""

    tau: float
    fraction: float

    @property
    def passed(self) -> bool:
        """Whether the paper's rule accepts the output."""
        return self.fraction <= self.tau


@attrs.frozen
class Waiver:
    """Elements that break the rule and pass all the same: how many, `why`, and the one that is
    furthest off, with its error and the error allowed (infinite: not judged)."""

    count: int
    why: str
    index: tuple[int, ...]
    expected: float | int
    actual: float | int
    error: float
    allowed: float = math.inf


@attrs.frozen
class Comparison:
    """The verdict on one output.

    `failure` is "" (passed), "wrong_shape" (also for a dtype) or "numerical"; `reason` is a
    sentence. `worst` is the largest |error| / tolerance over the elements that are judged: passed
    means <= 1. `waivers` say where the rule was relaxed.
    """

    name: str
    failure: str
    reason: str
    elements: int
    wrong: int = 0
    first: WrongElement | None = None
    rtol: float = 0.0
    atol: float = 0.0
    max_error: float = 0.0
    max_relative_error: float = 0.0
    worst: float = 0.0
    paper: PaperRule | None = None
    waivers: tuple[Waiver, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the output is right."""
        return not self.failure

    @property
    def allowed(self) -> float | None:
        """The error allowed for the first wrong element; None without one of a finite error."""
        if self.first is None or not self.rtol or self.first.error is None:
            return None
        return self.atol + self.rtol * abs(float(self.first.expected))

    @property
    def waived(self) -> int:
        """How many elements pass although they break the rule."""
        return sum(waiver.count for waiver in self.waivers)


def relative_tolerance(dtype: DType, reduction_length: int) -> float:
    """The `rtol` of the strict rule; 0 for integers and bool."""
    if not dtype.is_float:
        return 0.0
    epsilon = _ACCUMULATOR_EPSILON.get(dtype, _FLOAT32_EPSILON)
    rounding = _ROUNDINGS.get(dtype, 0.0) * _UNIT_ROUNDOFF.get(dtype, 0.0)
    chain = _FACTOR * math.sqrt(max(reduction_length, 1)) + _FUNCTION_ERROR
    return min(chain * epsilon + rounding, PAPER_TAU[dtype])


def compare(
    name: str,
    actual: Array,
    reference: Array,
    dtype: DType,
    reduction_length: int = 1,
    allowance: Array | None = None,
    scale: float = 0.0,
) -> Comparison:
    """Decide whether `actual` is right.

    `reference` is float64 (int64 or bool for exact outputs) and has the right shape; `dtype` is
    what the output's elements must be. `allowance` (the reference's shape) says how far off each
    element of a floating-point output may be although that is more than the rule allows, infinite
    where it is not judged; see `references`. `scale` is that of the operands, and stands for the
    RMS of a reference that is exactly 0 everywhere.
    """
    misfit = ""
    if actual.shape != reference.shape:
        misfit = f"its shape is {list(actual.shape)} and should be {list(reference.shape)}"
    elif dtype_of(actual) is not dtype:
        misfit = f"its elements are {actual.dtype.name} and should be {dtype.numpy_name}"
    if misfit:
        return Comparison(name, "wrong_shape", misfit, reference.size)
    if dtype.is_float:
        tally = _tallied(actual, reference, dtype, reduction_length, scale, allowance)
        return tally.comparison(name, actual, reference)
    wrong = np.asarray(actual != reference)
    if not wrong.any():
        return Comparison(name, "", "equal", reference.size)
    count = int(wrong.sum())
    first = _first(wrong, actual, reference)
    reason = f"{count} of {reference.size} elements differ"
    return Comparison(name, "numerical", reason, reference.size, count, first, worst=math.inf)


def _first(wrong: Array, actual: Array, reference: Array) -> WrongElement | None:
    """The first element that is wrong; None where none is."""
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), reference.shape))
    plain = int if reference.dtype.kind in "iub" else float
    return WrongElement(index, plain(reference[index]), plain(actual[index]))


def root_mean_square(reference: Array, dtype: DType) -> float:
    """The RMS of the elements that `dtype` can hold (finite ones); 0 when there are none."""
    largest = float(_range(dtype).max)
    total, count = 0.0, 0
    flat = reference.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        magnitude = np.abs(block)
        finite = block if magnitude.max() <= largest else block[magnitude <= largest]
        finite = finite.astype(np.float64, copy=False)
        total += float(np.dot(finite, finite))
        count += finite.size
    return math.sqrt(total / count) if count else 0.0


def _range(dtype: DType) -> Any:
    """`max`: the largest finite number of a type; `tiny`: the smallest normal one."""
    return ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]


def wrong_elements(
    actual: Array,
    reference: Array,
    dtype: DType,
    reduction_length: int = 1,
    scale: float = 0.0,
) -> Array:
    """Where a floating-point `actual` breaks the rule: bool, the reference's shape."""
    tally = _tallied(actual, reference, dtype, reduction_length, scale)
    return tally.wrong.reshape(reference.shape)


def limits(reference: Array, dtype: DType, reduction_length: int) -> Array:
    """How far off each element may be by the rule; NaN where the reference is."""
    rtol, atol = _tolerance(reference, dtype, reduction_length)
    found: Array = atol + rtol * np.abs(reference.astype(np.float64))
    return found


def _tolerance(
    reference: Array, dtype: DType, reduction_length: int, scale: float = 0.0
) -> tuple[float, float]:
    """rtol and atol of one output."""
    rtol = relative_tolerance(dtype, reduction_length)
    # The floor lets a target flush denormals.
    atol = rtol * (root_mean_square(reference, dtype) or scale) + float(_range(dtype).tiny)
    return rtol, atol


def _tallied(
    actual: Array,
    reference: Array,
    dtype: DType,
    reduction_length: int,
    scale: float,
    allowance: Array | None = None,
) -> _Tally:
    """The floating-point elements of one output, held against the rule block by block."""
    rtol, atol = _tolerance(reference, dtype, reduction_length, scale)
    tally = _Tally(dtype, rtol, atol, np.zeros(reference.size, np.bool_))
    flat_actual, flat_reference = actual.reshape(-1), reference.reshape(-1)
    for start in range(0, reference.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        y = flat_actual[part].astype(np.float64, copy=False)
        expected = flat_reference[part].astype(np.float64, copy=False)
        more = None if allowance is None else allowance.reshape(-1)[part]
        tally.wrong[part] = tally.count(y, expected, more)
    return tally


@attrs.define
class _Tally:
    """The rule for one output, where it is broken, and what is known of the elements so far."""

    dtype: DType
    rtol: float
    atol: float
    wrong: Array
    waived: int = 0
    misplaced: int = 0
    max_error: float = 0.0
    max_relative: float = 0.0
    worst: float = 0.0
    over_tau: int = 0

    def count(self, y: Array, reference: Array, allowance: Array | None) -> Array:
        """Count one block of elements, both float64; returns where they break the rule."""
        largest = float(_range(self.dtype).max)
        with np.errstate(all="ignore"):
            magnitude = np.abs(reference)
            # No comparison with a NaN holds, so that neither block has one.
            if magnitude.max(initial=0.0) <= largest * (1 - self.rtol) and np.isfinite(y).all():
                return self._count_plain(y, reference, magnitude, allowance)
            # Right at the type's largest value, rounding may go either way.
            beyond = magnitude > largest * (1 + self.rtol)
            expected = np.where(beyond, np.sign(reference) * np.inf, reference)
            border = np.isfinite(reference) & (magnitude > largest * (1 - self.rtol))
            border &= np.isinf(y) & (np.sign(y) == np.sign(reference))
            plain = np.isfinite(expected) & np.isfinite(y)
            same = (np.isnan(expected) & np.isnan(y)) | ((expected == y) & np.isinf(y)) | border
            error = np.abs(y - expected)
            limit = self.atol + self.rtol * np.abs(expected)
            bad: Array = ~same & (~plain | (error > limit))
            if allowance is not None:
                near = bad & (np.isposinf(allowance) | (plain & (error <= allowance)))
                self.waived += int(near.sum())
                bad &= ~near
                limit = np.maximum(limit, allowance)
            self._count_over_tau(y, magnitude, np.abs(y - reference))
            if plain.any():
                relative = error[plain] / np.abs(expected[plain])
                self._measure(error[plain], limit[plain], relative)
        if misplaced := int((bad & ~plain).sum()):
            self.misplaced += misplaced
            self.worst = math.inf
        return bad

    def _count_plain(
        self, y: Array, reference: Array, magnitude: Array, allowance: Array | None
    ) -> Array:
        """`count` for a block of nothing but numbers that are far from the type's largest: most
        blocks are such, and need a third of the steps."""
        error = np.abs(y - reference)
        limit = self.atol + self.rtol * magnitude
        bad: Array = error > limit
        if allowance is not None:
            near = bad & (error <= allowance)
            self.waived += int(near.sum())
            bad &= ~near
            limit = np.maximum(limit, allowance)
        relative = error / magnitude
        if magnitude.min(initial=math.inf) > PAPER_EPSILON:
            self.over_tau += int(np.count_nonzero(relative > PAPER_TAU[self.dtype]))
        else:
            self._count_over_tau(y, magnitude, error)
        self._measure(error, limit, relative)
        return bad

    def _count_over_tau(self, y: Array, magnitude: Array, difference: Array) -> None:
        """Count by the paper's Eq. 2, taken literally; 0/0, a NaN, is over nothing."""
        divisor = np.where(magnitude > PAPER_EPSILON, magnitude, np.abs(y))
        self.over_tau += int(np.count_nonzero(difference / divisor > PAPER_TAU[self.dtype]))

    def _measure(self, error: Array, limit: Array, relative: Array) -> None:
        """Keep the largest of the errors of elements that are numbers."""
        self.max_error = max(self.max_error, float(error.max(initial=0.0)))
        self.worst = max(self.worst, float((error / limit).max(initial=0.0)))
        highest = float(np.fmax.reduce(relative, initial=0.0))  # where both are 0, it is a NaN
        if math.isinf(highest):  # the reference is 0 somewhere, and the output is not
            highest = float(relative[np.isfinite(relative)].max(initial=0.0))
        self.max_relative = max(self.max_relative, highest)

    def comparison(self, name: str, actual: Array, reference: Array) -> Comparison:
        """The comparison of an output by all of its elements."""
        count, reason = int(self.wrong.sum()), "within tolerance"
        if count:
            reason = f"{count} of {reference.size} elements are wrong"
            if self.misplaced:
                reason += f", {self.misplaced} of them by NaN or infinity in the wrong place"
        if self.waived:
            reason += f"; {self.waived} pass because the task's own arithmetic is no better there"
        return Comparison(
            name,
            "numerical" if count else "",
            reason,
            reference.size,
            count,
            _first(self.wrong, actual, reference),
            self.rtol,
            self.atol,
            self.max_error,
            self.max_relative,
            self.worst,
            PaperRule(PAPER_TAU[self.dtype], self.over_tau / max(reference.size, 1)),
        )


def differs_on_ties_only(
    actual: Array, reference: Array, inputs: Iterable[Array], rtol: float = 0.0
) -> bool:
    """Whether `actual` (integers, of the reference's shape) is as good as the reference: indices
    into one of `inputs` that select equal elements everywhere, or as good as equal by `rtol` (of an
    element and of the root mean square)."""
    if reference.size == 0 or reference.dtype == np.bool_:
        return False
    readings = (one for source in inputs for one in _readings(source, reference, actual))
    return any(_selects_equal(*reading, rtol) for reading in readings)


def _readings(
    source: Array, reference: Array, actual: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """Triples (input, reference, actual), each axis that indices may be of moved to the end."""
    if source.ndim == 0:
        return
    if reference.size == 1:  # of the flattened input
        yield source.reshape(-1), reference.reshape(-1), actual.reshape(-1)
    for axis, extent in enumerate(source.shape):
        others = source.shape[:axis] + source.shape[axis + 1 :]
        moved = np.moveaxis(source, axis, -1)
        if reference.shape == others:
            yield moved, reference[..., None], actual[..., None]
        elif reference.ndim == source.ndim and reference.shape[axis] <= extent:
            ends = (np.moveaxis(reference, axis, -1), np.moveaxis(actual, axis, -1))
            if ends[0].shape[:-1] == others:
                yield moved, *ends


def _selects_equal(values: Array, reference: Array, actual: Array, rtol: float) -> bool:
    """Whether `actual` and `reference` select equal `values` along the last axis, and the reference
    its extremes; no index may occur twice."""
    extent = values.shape[-1]
    for indices in (reference, actual):
        if indices.min() < 0 or indices.max() >= extent:
            return False
    in_order = np.sort(actual, axis=-1)
    if (in_order[..., 1:] == in_order[..., :-1]).any():
        return False
    wide = values.astype(np.float64) if values.dtype.kind not in "iub" else values
    wanted = np.take_along_axis(wide, reference.astype(np.int64), -1)
    found = np.take_along_axis(wide, actual.astype(np.int64), -1)
    if not _equal(wanted, found) and not (rtol and _near(wanted, found, values, rtol)):
        return False
    smallest = np.sort(wide, axis=-1)
    count = reference.shape[-1]
    # NaNs are sorted to the end, as torch has them: larger than everything.
    return _equal(wanted, smallest[..., :count]) or _equal(wanted, smallest[..., ::-1][..., :count])


def _near(wanted: Array, found: Array, values: Array, rtol: float) -> bool:
    """Whether elements of `values` are equal but for rounding."""
    with np.errstate(all="ignore"):
        finite = values[np.isfinite(values)].astype(np.float64)
        scale = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
        close = np.abs(wanted - found) <= rtol * (np.abs(wanted) + scale)
        same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    return bool((close | same).all())


def _equal(first: Array, second: Array) -> bool:
    return bool(np.array_equal(first, second, equal_nan=first.dtype.kind == "f"))
