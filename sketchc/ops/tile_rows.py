"""The rows of the op table that work across lanes or move them: scans, indices of extrema, sorting,
layout, composites and random numbers. Part of `sketchc.ops.table`.

References of cross-lane rows are given the valid lanes alone: what void lanes do (nothing) and
where the result is valid stands in the interpreter.
"""

from __future__ import annotations

from sketchc.ops import references
from sketchc.ops.random_numbers import normal, uniform
from sketchc.ops.references import Reference
from sketchc.ops.rows import Attribute, Category, Op, Result, Shape

_AXIS = Attribute("axis", "int", positional=True)


def _layout(
    name: str,
    shape: Shape,
    doc: str,
    reference: Reference,
    *attributes: Attribute,
    operands: tuple[str, ...] = ("source",),
    result: Result = Result.SAME,
) -> Op:
    return Op(name, Category.LAYOUT, operands, shape, result, doc, reference, attributes=attributes)


_LAYOUTS = (
    _layout(
        "transpose",
        Shape.TRANSPOSED,
        "exchange the last two axes",
        lambda np, x: np.swapaxes(x, -1, -2),
    ),
    _layout(
        "broadcast",
        Shape.DESTINATION,
        "repeat the source to the destination's shape",
        lambda np, x: x,
    ),
    _layout(
        "permute",
        Shape.REARRANGED,
        "axis a of the result is axis axes[a] of the source",
        lambda np, x, axes: np.transpose(x, axes),
        Attribute("axes", "axes", positional=True),
    ),
    _layout(
        "reshape",
        Shape.REARRANGED,
        "the same values, row-major, in the destination's shape; axes that are split or merged "
        "must be fully valid",
        lambda np, x, shape: np.reshape(x, shape),
    ),
    _layout(
        "concat",
        Shape.REARRANGED,
        "the left, then the right along the axis; the left must be fully valid there",
        lambda np, a, b, axis: np.concatenate((a, b), axis=axis),
        _AXIS,
        operands=("left", "right"),
        result=Result.PROMOTE,
    ),
)


def _scan(name: str, identity: str, doc: str, reference: Reference) -> Op:
    flags = (Attribute("reverse", "bool", False), Attribute("exclusive", "bool", False))
    return Op(
        name,
        Category.SCAN,
        ("source",),
        Shape.SAME,
        Result.ACCUMULATOR,
        doc,
        reference,
        identity,
        (_AXIS, *flags),
    )


_SCANS = (
    _scan(
        "cumsum",
        "zero",
        "running sum along the axis; exclusive=True leaves the lane out, reverse=True runs from "
        "the end",
        lambda np, x, axis, **flags: references.scan(np.cumsum, 0, np, x, axis, **flags),
    ),
    _scan(
        "cumprod",
        "one",
        "running product, with the flags of cumsum",
        lambda np, x, axis, **flags: references.scan(np.cumprod, 1, np, x, axis, **flags),
    ),
)


def _index(name: str, doc: str, reference: Reference) -> Op:
    return Op(
        name,
        Category.INDEX,
        ("source",),
        Shape.REDUCED,
        Result.I64,
        doc,
        reference,
        attributes=(_AXIS,),
    )


_INDICES = (
    _index(
        "argmax",
        "lane of the tile that holds the largest along the axis: NaN wins, ties go to the first, "
        "-1 where no lane is valid",
        lambda np, x, axis: np.argmax(x, axis=axis, keepdims=True),
    ),
    _index(
        "argmin",
        "lane of the tile that holds the smallest along the axis: NaN wins, ties go to the first, "
        "-1 where no lane is valid",
        lambda np, x, axis: np.argmin(x, axis=axis, keepdims=True),
    ),
)

_SORTING = (
    Op(
        "topk",
        Category.SORTING,
        ("values", "indices"),
        Shape.TOP_K,
        Result.SAME,
        "merge into two `init=` tiles the K best values with their indices, best first, K being "
        "the destinations' extent; NaN is the largest, ties go to the smaller index, a negative "
        "index (nothing yet) comes after all others",
        references.topk,
        attributes=(_AXIS, Attribute("largest", "bool", True)),
        outputs=2,
        accumulates=True,
    ),
    Op(
        "sort",
        Category.SORTING,
        ("values", "indices"),
        Shape.SAME,
        Result.SAME,
        "the values in order along the axis and their indices with them; stable both ways, NaN is "
        "the largest",
        references.sort,
        attributes=(_AXIS, Attribute("descending", "bool", False)),
        outputs=2,
    ),
)


def _composite(name: str, doc: str, reference: Reference, *attributes: Attribute) -> Op:
    return Op(
        name,
        Category.COMPOSITE,
        ("source",),
        Shape.SAME,
        Result.FLOAT,
        doc,
        reference,
        attributes=attributes,
    )


_EPS = Attribute("eps", "float", 1e-5)

_COMPOSITES = (
    _composite(
        "softmax",
        "over the last axis; expands to reduce_max, sub, exp, reduce_sum, div",
        references.softmax,
    ),
    _composite(
        "layer_norm",
        "(x - mean) / sqrt(variance + eps) over the valid lanes of the last axis; expands to "
        "reduce_sum, div, sub, mul, reduce_sum, div, add, rsqrt, mul",
        references.layer_norm,
        _EPS,
    ),
    _composite(
        "rms_norm",
        "x / sqrt(mean(x * x) + eps) over the valid lanes of the last axis; expands to mul, "
        "reduce_sum, div, add, rsqrt, mul",
        references.rms_norm,
        _EPS,
    ),
)


def _random(name: str, doc: str, reference: Reference) -> Op:
    return Op(
        name,
        Category.RANDOM,
        ("seed", "offset"),
        Shape.DESTINATION,
        Result.DESTINATION,
        doc,
        reference,
    )


_RANDOM = (
    _random(
        "rand",
        "uniform in [0, 1), a multiple of 2**-24: Philox4x32-10 with the seed as its key and the "
        "offset, a scalar or one index for each lane, as its counter",
        uniform,
    ),
    _random(
        "randn",
        "standard normal by Box-Muller from the first two words that rand's generator gives",
        normal,
    ),
)

TILE_ROWS = (*_LAYOUTS, *_SCANS, *_INDICES, *_SORTING, *_COMPOSITES, *_RANDOM)
