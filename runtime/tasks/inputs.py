"""Inputs that discriminate: signed, of mixed scale, structured, large, and non-negative.

Uniform numbers in [0, 1) hide a missing sign, a wrong identity of a maximum, and most mistakes of
rounding; every kind here was chosen for a bug that the others let pass. Values stay in the range
where the framework's own kernels are exact to rounding (no overflow of squares in f32, constants
whose sums are exact), so that a failure speaks of the kernel. Where hints say what a task takes,
numbers are moved into its domain, and declared arguments are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.inputs import into_range
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import HintError, Scalar, fail
from sketchc.runtime.tasks.outline import Domain, Outline, Parameter

#: Kind of input -> what its values are.
KINDS: dict[str, str] = {
    "normal": "signed, of one scale",
    "mixed_scale": "signed, magnitudes over four decades",
    "structured": "rows that are sorted, constant, zero, alternating, denormal, with one outlier",
    "large": "signed, of large magnitude",
    "non_negative": "uniform in [0, 1)",
}
#: "normal" inputs in another memory layout; for models, which take torch's tensors as they come.
NON_CONTIGUOUS = "non_contiguous"
#: Drawn from what the task's own inputs look like: their range, sign and structure.
LIKE = "task_like"
#: Large magnitudes where not 1e3: in tasks that compute in f16, larger squares would overflow.
LARGE = {DType.F16: 16.0}
_SMALLEST = {DType.F16: 2.0**-24, DType.BF16: 2.0**-133, DType.F32: 2.0**-149}


def generate(kind: str, dtype: DType, shape: Sequence[int], random: np.random.Generator) -> Array:
    """An array of `shape`, C-contiguous; integers are within 100 of zero.

    Raises `KeyError` for an unknown kind.
    """
    if kind not in KINDS:
        raise KeyError(kind)
    if dtype is DType.BOOL:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.is_integer:
        low = -100 if dtype.is_signed else 0
        return np.asarray(random.integers(low, 100, shape), dtype.numpy_name)
    values = _floats(kind, dtype, tuple(shape), random)
    with np.errstate(over="ignore"):
        # `ascontiguousarray` would give a tensor without axes one.
        return np.asarray(values, numpy_dtype(dtype), order="C")


def _floats(
    kind: str, dtype: DType, shape: tuple[int, ...], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    large = LARGE.get(dtype, 1e3)
    match kind:
        case "normal":
            return np.asarray(random.standard_normal(shape))
        case "mixed_scale":
            top = math.log10(large)
            return random.standard_normal(shape) * 10.0 ** random.uniform(top - 4, top - 1, shape)
        case "large":
            return random.standard_normal(shape) * large
        case "non_negative":
            return np.asarray(random.random(shape))
        case _:
            return _structured(dtype, shape, random)


def _structured(
    dtype: DType, shape: tuple[int, ...], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Rows (the last axis) of six sorts, in a random order that repeats."""
    values = np.asarray(random.standard_normal(shape))
    if values.size == 0:
        return values
    rows = values.reshape(-1, shape[-1] if shape else 1)  # a view: what is set here is set there
    columns = rows.shape[1]
    for kind, first in enumerate(random.permutation(6)):
        part = rows[first::6]
        match kind:
            case 0:
                part.sort(axis=1)
            case 1:  # powers of two: their sums are exact
                signs = random.standard_normal((len(part), 1))
                part[:] = np.copysign(2.0 ** -random.integers(3, 9, (len(part), 1)), signs)
            case 2:
                part[:] = 0.0
            case 3:
                part[:] = np.where(np.arange(columns) % 2, -1.0, 1.0) * np.abs(part)
            case 4:
                part[:] = random.integers(-8, 9, part.shape) * _SMALLEST.get(dtype, 2.0**-1074)
            case _:
                places = random.integers(columns, size=len(part))
                part[np.arange(len(part)), places] = LARGE.get(dtype, 1e3)
    return values


def poison(dtype: DType, shape: Sequence[int], *, second: bool = False) -> Array:
    """A buffer for an output that is not yet written: NaN, or a value that no kernel is likely to
    give. bool has no third value: the `second` run starts from the other one."""
    if dtype.is_float:
        return np.full(shape, np.nan, numpy_dtype(dtype))
    if dtype is DType.BOOL:
        return np.full(shape, not second)
    return np.full(shape, np.iinfo(dtype.numpy_name).max - 21 - second, dtype.numpy_name)


#: Own sizes where hints leave them open: distinct, so that shapes tell them apart.
_SIZES = (96, 160, 72, 40, 24, 12, 10, 6)


def within(array: Array, domain: Domain, dtype: DType) -> Array:
    """The elements moved into a domain, in order: sorted rows stay sorted, equal elements equal."""
    if domain.choices:
        allowed = np.asarray(sorted(domain.choices), numpy_dtype(dtype))
        places = np.abs(array.astype(np.float64)) * 7.0 % len(allowed)
        return np.asarray(allowed[places.astype(np.int64)])
    if dtype is DType.BOOL:
        return array
    if dtype.is_integer:
        lower, upper = _whole_range(domain, dtype)
        return into_range(array, lower, upper)
    plain = np.asarray(array, np.float64)
    share = plain / (1.0 + np.abs(plain))  # in (-1, 1), in the same order
    if math.isfinite(domain.lower) and math.isfinite(domain.upper):
        middle, half = (domain.lower + domain.upper) / 2, (domain.upper - domain.lower) / 2
        moved = middle + half * share
    elif math.isfinite(domain.lower):
        moved = domain.lower + np.abs(plain)
    elif math.isfinite(domain.upper):
        moved = domain.upper - np.abs(plain)
    else:
        return array
    return _clipped(moved, domain, dtype)


def _whole_range(domain: Domain, dtype: DType) -> tuple[int, int]:
    """The half-open range of the integers of a type in a domain."""
    information = np.iinfo(dtype.numpy_name)
    lower, upper = int(information.min), int(information.max)
    if math.isfinite(domain.lower):
        lower = max(lower, math.ceil(domain.lower))
        lower += domain.open_lower and lower == domain.lower
    if math.isfinite(domain.upper):
        upper = min(upper, math.floor(domain.upper))
        upper -= domain.open_upper and upper == domain.upper
    return lower, upper + 1


def _clipped(moved: Array, domain: Domain, dtype: DType) -> Array:
    """`moved` in the type `dtype`, clipped to the domain; its open ends are left out there, too."""
    kind = numpy_dtype(dtype)
    found = moved.astype(kind)
    for end, is_open, inward in (
        (domain.lower, domain.open_lower, math.inf),
        (domain.upper, domain.open_upper, -math.inf),
    ):
        if math.isfinite(end):
            least = np.asarray(end).astype(kind)
            outside = float(least) < end if inward > 0 else float(least) > end
            if is_open or outside:
                least = np.nextafter(least, np.asarray(inward).astype(kind))
            found = np.maximum(found, least) if inward > 0 else np.minimum(found, least)
    return np.asarray(found, kind, order="C")


def own_sizes(outline: Outline) -> dict[str, int]:
    """A size for every name in the declared shapes, within its hint."""
    domains = outline.domains
    names = dict.fromkeys(
        extent
        for parameter in outline.parameters
        if parameter.declared is not None
        for extent in parameter.declared.extents or ()
        if isinstance(extent, str)
    )
    return {
        name: domains.get(name, Domain(1)).near(_SIZES[place % len(_SIZES)])
        for place, name in enumerate(names)
    }


def check_declared(outline: Outline) -> None:
    """Raises `TaskFailure` where a task without `get_inputs` leaves an argument open."""
    if outline.kind != "function" and not any(p.declared for p in outline.parameters):
        fail(
            f"{outline.path}: it defines no `get_inputs`; a task has `def get_inputs(): the list "
            "of forward's inputs`, or `# @hint: x: f32[M, N]` for each of them"
        )
    if not outline.parameters:
        fail(f"{outline.path}: {outline.subject} takes no arguments that could be seen")
    domains = outline.domains
    for parameter in outline.parameters:
        if parameter.declared is None and not parameter.has_default:
            fail(
                f"{outline.path}: nothing says what the argument `{parameter.name}` of "
                f"{outline.subject} is: add the comment `# @hint: {parameter.name}: f32[M, N]` (or "
                "`f32` for a number), or define get_inputs()"
            )
        number = parameter.declared is not None and parameter.declared.extents is None
        if number and not parameter.has_default and parameter.name not in domains:
            fail(
                f"{outline.path}: the number `{parameter.name}` of {outline.subject} has no value: "
                f"give it a default, or add `# @hint: {parameter.name} in [0, 1]`"
            )


def declared_inputs(outline: Outline, seed: int) -> list[Array | Scalar | None]:
    """The own inputs of a task without `get_inputs`: signed, of one scale, within the hints."""
    random = np.random.default_rng(seed)
    sizes = own_sizes(outline)
    domains = outline.domains
    found: list[Array | Scalar | None] = []
    for parameter in outline.parameters:
        domain = domains.get(parameter.name)
        if parameter.declared is None or parameter.declared.extents is None:
            found.append(_number(parameter, domain))
            continue
        dtype = parameter.declared.dtype
        shape = tuple(
            sizes[extent] if isinstance(extent, str) else extent
            for extent in parameter.declared.extents
        )
        array = generate("normal", dtype, shape, random)
        found.append(array if domain is None else within(array, domain, dtype))
    return found


def _number(parameter: Parameter, domain: Domain | None) -> Scalar | None:
    """An argument that is a number: its default, else one of its domain."""
    if parameter.has_default or domain is None:
        return parameter.default
    if domain.choices:
        value = sorted(domain.choices)[len(domain.choices) // 2]
    else:
        finite = [end for end in (domain.lower, domain.upper) if math.isfinite(end)]
        value = sum(finite) / len(finite) if finite else 1.0
        value += (not domain.holds(value)) * (1.0 if math.isfinite(domain.lower) else -1.0)
    declared = parameter.declared
    if declared is not None and declared.dtype is DType.BOOL:
        return bool(value)
    return round(value) if declared is not None and declared.dtype.is_integer else value


def check_hints(outline: Outline) -> None:
    """Raises `HintError` for a hint that declares an unknown argument, or allows no size."""
    names = [parameter.name for parameter in outline.parameters]
    for hint in outline.hints:
        where = f"{outline.path}, line {hint.line}: the hint `{hint.text}`"
        if hint.declared is not None and hint.name not in names:
            listed = ", ".join(names) or "none"
            msg = (
                f"{where} speaks of `{hint.name}`, and the arguments of {outline.subject} are "
                f"{listed}"
            )
            raise HintError(msg)
        if hint.domain is not None and hint.name not in names:
            least, most = hint.domain.integer_range
            if least < 1 or most < least:
                msg = (
                    f"{where} leaves no size for {hint.name}: a size is a whole number from 1 on; "
                    f"if {hint.name} is meant to be an argument, they are {', '.join(names)}"
                )
                raise HintError(msg)


def other_sizes(outline: Outline) -> Mapping[str, list[int]]:
    """For each name that hints restrict and that is no argument: two sizes that it may have."""
    names = {parameter.name for parameter in outline.parameters}
    found = {}
    for hint in outline.hints:
        if hint.domain is not None and hint.name not in names:
            least = hint.domain.integer_range[0]
            found[hint.name] = [least, hint.domain.at_least(least + 1) or least + 1]
    return found
