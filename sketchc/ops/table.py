"""The op table: the one source for every operation of the language.

Parser, checker, interpreter, emitters, reference documents, editor completion and agent prompts
read it. A row states operands, shape rule, dtype rule, identity, reference semantics and its one
line of documentation. The reference is a function of the NumPy module and the operands, so that
this module imports no numeric library itself: `row.reference(numpy, x, y)`.

References take and return float64 (or int64 / bool) arrays; the interpreter rounds at the write.
"""

from __future__ import annotations

from sketchc.base import records
from sketchc.ops import references
from sketchc.ops.references import Reference
from sketchc.ops.rows import (
    Attribute,
    Category,
    Fact,
    Op,
    Partial,
    Result,
    Shape,
    identity_value,
)
from sketchc.ops.tile_rows import TILE_ROWS

__all__ = [
    "OPS",
    "Attribute",
    "Category",
    "Fact",
    "Op",
    "Partial",
    "Result",
    "Shape",
    "identity_value",
]


def _unary(name: str, result: Result, doc: str, reference: Reference, *attributes: Attribute) -> Op:
    return Op(
        name,
        Category.ELEMENTWISE,
        ("source",),
        Shape.SAME,
        result,
        doc,
        reference,
        attributes=attributes,
    )


def _binary(name: str, result: Result, doc: str, reference: Reference) -> Op:
    operands = ("left", "right")
    return Op(name, Category.ELEMENTWISE, operands, Shape.BROADCAST, result, doc, reference)


def _reduction(name: str, identity: str, result: Result, doc: str, reference: Reference) -> Op:
    axis = Attribute("axis", "axes", positional=True)
    return Op(
        name,
        Category.REDUCTION,
        ("source",),
        Shape.REDUCED,
        result,
        doc,
        reference,
        identity,
        (axis,),
    )


_ELEMENTWISE = (
    _unary("copy", Result.SAME, "the source", lambda np, x: x),
    _unary("neg", Result.SAME, "-x", lambda np, x: -x),
    _unary("abs", Result.SAME, "|x|", lambda np, x: np.abs(x)),
    _unary("relu", Result.SAME, "max(x, 0)", lambda np, x: np.maximum(x, 0)),
    _unary(
        "clamp",
        Result.SAME,
        "min(max(x, low), high)",
        references.clamp,
        Attribute("low", "float"),
        Attribute("high", "float"),
    ),
    _unary("floor", Result.SAME, "largest integer not above x", references.to_integral("floor")),
    _unary("ceil", Result.SAME, "smallest integer not below x", references.to_integral("ceil")),
    _unary("round", Result.SAME, "nearest integer, ties to even", references.to_integral("rint")),
    _unary("trunc", Result.SAME, "x without its fraction", references.to_integral("trunc")),
    _unary("sign", Result.SAME, "-1, 0 or 1; NaN stays", lambda np, x: np.sign(x)),
    _unary("exp", Result.FLOAT, "e to the x", lambda np, x: np.exp(x)),
    _unary("exp2", Result.FLOAT, "2 to the x", lambda np, x: np.exp2(x)),
    _unary("log", Result.FLOAT, "natural logarithm", lambda np, x: np.log(x)),
    _unary("log2", Result.FLOAT, "logarithm to base 2", lambda np, x: np.log2(x)),
    _unary("sqrt", Result.FLOAT, "square root", lambda np, x: np.sqrt(x)),
    _unary("rsqrt", Result.FLOAT, "1 / sqrt(x)", lambda np, x: 1.0 / np.sqrt(x)),
    _unary("sin", Result.FLOAT, "sine", lambda np, x: np.sin(x)),
    _unary("cos", Result.FLOAT, "cosine", lambda np, x: np.cos(x)),
    _unary("tan", Result.FLOAT, "tangent", lambda np, x: np.tan(x)),
    _unary("atan", Result.FLOAT, "arc tangent", lambda np, x: np.arctan(x)),
    _unary("tanh", Result.FLOAT, "hyperbolic tangent", lambda np, x: np.tanh(x)),
    _unary("erf", Result.FLOAT, "error function", references.erf),
    _unary("sigmoid", Result.FLOAT, "1 / (1 + exp(-x))", references.sigmoid),
    _unary("silu", Result.FLOAT, "x * sigmoid(x)", lambda np, x: x * references.sigmoid(np, x)),
    _unary(
        "gelu",
        Result.FLOAT,
        'x * Phi(x); approximate="tanh" for the tanh form',
        references.gelu_with,
        Attribute("approximate", "choice", "none", ("none", "tanh")),
    ),
    _unary("softplus", Result.FLOAT, "log(1 + exp(x)), without overflow", references.softplus),
    _unary("softsign", Result.FLOAT, "x / (1 + |x|)", lambda np, x: x / (1.0 + np.abs(x))),
    _unary(
        "hardsigmoid",
        Result.FLOAT,
        "clamp(x / 6 + 1/2, 0, 1)",
        lambda np, x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    ),
    _unary(
        "hardswish",
        Result.FLOAT,
        "x * hardsigmoid(x)",
        lambda np, x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    ),
    _unary(
        "elu",
        Result.FLOAT,
        "x if x > 0 else alpha * (exp(x) - 1)",
        lambda np, x, alpha=1.0: references.where_positive(
            np, x, alpha * np.expm1(np.minimum(x, 0))
        ),
        Attribute("alpha", "float", 1.0),
    ),
    _unary(
        "selu",
        Result.FLOAT,
        "scaled elu with its fixed constants",
        lambda np, x: (
            references.SELU_SCALE
            * references.where_positive(np, x, references.SELU_ALPHA * np.expm1(np.minimum(x, 0)))
        ),
    ),
    _unary(
        "leaky_relu",
        Result.FLOAT,
        "x if x > 0 else slope * x",
        lambda np, x, slope=0.01: references.where_positive(np, x, slope * x),
        Attribute("slope", "float", 0.01),
    ),
    _binary("add", Result.PROMOTE, "a + b", lambda np, a, b: a + b),
    _binary("sub", Result.PROMOTE, "a - b", lambda np, a, b: a - b),
    _binary("mul", Result.PROMOTE, "a * b", lambda np, a, b: a * b),
    _binary("div", Result.FLOAT, "a / b", lambda np, a, b: np.true_divide(a, b)),
    _binary("max", Result.PROMOTE, "the larger; NaN wins", lambda np, a, b: np.maximum(a, b)),
    _binary("min", Result.PROMOTE, "the smaller; NaN wins", lambda np, a, b: np.minimum(a, b)),
    _binary("pow", Result.PROMOTE, "a to the b", lambda np, a, b: np.power(a, b)),
    _binary("atan2", Result.FLOAT, "angle of the point (b, a)", lambda np, a, b: np.arctan2(a, b)),
    _binary(
        "floordiv",
        Result.PROMOTE,
        "floor(a / b), of the quotient before it is rounded: 1 // 0.1 is 9; a zero has its sign",
        lambda np, a, b: np.floor_divide(a, b),
    ),
    _binary(
        "mod",
        Result.PROMOTE,
        "what floordiv leaves, exactly; it has the sign of b, a zero too (-1 mod inf is inf)",
        lambda np, a, b: np.mod(a, b),
    ),
    Op(
        "fma",
        Category.ELEMENTWISE,
        ("left", "right", "addend"),
        Shape.BROADCAST,
        Result.PROMOTE,
        "a * b + c",
        lambda np, a, b, c: a * b + c,
    ),
    _binary("eq", Result.BOOL, "a == b", lambda np, a, b: a == b),
    _binary("ne", Result.BOOL, "a != b", lambda np, a, b: a != b),
    _binary("lt", Result.BOOL, "a < b", lambda np, a, b: a < b),
    _binary("le", Result.BOOL, "a <= b", lambda np, a, b: a <= b),
    _binary("gt", Result.BOOL, "a > b", lambda np, a, b: a > b),
    _binary("ge", Result.BOOL, "a >= b", lambda np, a, b: a >= b),
    _unary("isnan", Result.BOOL, "x is NaN", lambda np, x: np.isnan(x)),
    _unary("isinf", Result.BOOL, "x is infinite", lambda np, x: np.isinf(x)),
    _unary("isfinite", Result.BOOL, "x is neither", lambda np, x: np.isfinite(x)),
    _binary("logical_and", Result.BOOL, "both are non-zero", lambda np, a, b: np.logical_and(a, b)),
    _binary("logical_or", Result.BOOL, "either is non-zero", lambda np, a, b: np.logical_or(a, b)),
    _unary("logical_not", Result.BOOL, "x is zero", lambda np, x: np.logical_not(x)),
    _binary("bitwise_and", Result.INTEGER, "a & b", lambda np, a, b: np.bitwise_and(a, b)),
    _binary("bitwise_or", Result.INTEGER, "a | b", lambda np, a, b: np.bitwise_or(a, b)),
    _binary("bitwise_xor", Result.INTEGER, "a ^ b", lambda np, a, b: np.bitwise_xor(a, b)),
    _unary("bitwise_not", Result.INTEGER, "~x", lambda np, x: np.bitwise_not(x)),
    _binary("shl", Result.INTEGER, "a << b", lambda np, a, b: np.left_shift(a, b)),
    _binary("shr", Result.INTEGER, "a >> b", lambda np, a, b: np.right_shift(a, b)),
    Op(
        "where",
        Category.ELEMENTWISE,
        ("condition", "then", "otherwise"),
        Shape.BROADCAST,
        Result.PROMOTE,
        "then where the condition holds, otherwise elsewhere",
        lambda np, c, a, b: np.where(c, a, b),
    ),
    _unary(
        "cast",
        Result.DESTINATION,
        "the source in the destination's type; integers too take the nearest (ties to even) unless "
        "round= says else; sat=True clamps, without it what does not fit is an error",
        lambda np, x: x,
        Attribute("round", "choice", "nearest", ("nearest", "down", "up", "zero")),
        Attribute("sat", "bool", False),
    ),
    Op(
        "fill",
        Category.ELEMENTWISE,
        ("value",),
        Shape.DESTINATION,
        Result.DESTINATION,
        "every lane becomes the scalar",
        lambda np, c: c,
    ),
)

_REDUCTIONS = (
    _reduction(
        "reduce_sum",
        "zero",
        Result.ACCUMULATOR,
        "sum over the axes",
        lambda np, x, axis: np.sum(x, axis=axis, keepdims=True),
    ),
    _reduction(
        "reduce_prod",
        "one",
        Result.ACCUMULATOR,
        "product over the axes",
        lambda np, x, axis: np.prod(x, axis=axis, keepdims=True),
    ),
    _reduction(
        "reduce_max",
        "lowest",
        Result.SAME,
        "largest over the axes; NaN wins",
        lambda np, x, axis: np.max(x, axis=axis, keepdims=True),
    ),
    _reduction(
        "reduce_min",
        "highest",
        Result.SAME,
        "smallest over the axes; NaN wins",
        lambda np, x, axis: np.min(x, axis=axis, keepdims=True),
    ),
    _reduction(
        "reduce_any",
        "false",
        Result.BOOL,
        "true if any lane is",
        lambda np, x, axis: np.any(x, axis=axis, keepdims=True),
    ),
    _reduction(
        "reduce_all",
        "true",
        Result.BOOL,
        "true if all lanes are",
        lambda np, x, axis: np.all(x, axis=axis, keepdims=True),
    ),
)

_MATRIX_ATTRIBUTES = (
    Attribute("trans_a", "bool", False),
    Attribute("trans_b", "bool", False),
    Attribute("precision", "choice", "ieee", ("ieee", "tf32", "tf32x3")),
)

_MATRIX = tuple(
    Op(
        name,
        Category.MATRIX,
        ("a", "b"),
        Shape.MATRIX_PRODUCT,
        Result.ACCUMULATOR,
        doc,
        lambda np, a, b: np.matmul(a, b),
        "zero",
        _MATRIX_ATTRIBUTES,
        accumulates=accumulates,
    )
    for name, doc, accumulates in (
        ("gemm", "dst += a @ b", True),
        ("matmul", "dst = a @ b", False),
        ("dot", "dst = a @ b", False),
    )
)

#: What else is true of operations, a column each: most rows have none of these facts.
_FACTS = {
    Fact.NUMERIC: "neg abs relu clamp floor ceil round trunc sign add sub mul max min pow floordiv "
    "mod fma shl shr reduce_max reduce_min reduce_prod cumprod softmax layer_norm rms_norm",
    Fact.INTEGRAL: "shl shr",
    Fact.ZERO_OF_ZERO: "copy neg abs relu sqrt cast mul add sub sin tanh erf",
    Fact.SELECTS: "copy neg abs relu clamp leaky_relu where max min cast",
    Fact.HANDS_ON: "copy cast",
    Fact.ADDS: "add sub fma",
    Fact.SCALES: "mul div fma",
}
_PARTIAL = {
    "floordiv": Partial.QUOTIENT,
    "mod": Partial.REMAINDER,
    "pow": Partial.POWER,
    "shl": Partial.SHIFT,
    "shr": Partial.SHIFT,
}


def _complete(row: Op) -> Op:
    """The row with the columns above."""
    facts = frozenset(fact for fact, names in _FACTS.items() if row.name in names.split())
    return records.evolve(row, facts=facts, partial=_PARTIAL.get(row.name))


_ROWS = (*_ELEMENTWISE, *_REDUCTIONS, *_MATRIX, *TILE_ROWS)
#: Every operation by name.
OPS: dict[str, Op] = {row.name: _complete(row) for row in _ROWS}
