"""The op table: the one source for every operation of the language.

Parser, checker, interpreter, emitters, reference documents, editor completion and agent prompts
read it. A row states operands, shape rule, dtype rule, identity, reference semantics and its one
line of documentation. The reference is a function of the NumPy module and the operands, so that
this module imports no numeric library itself: `row.reference(numpy, x, y)`. References take and
return float64 (or int64 / bool) arrays; the interpreter rounds at the write. Those of cross-lane
rows are given the valid lanes alone: what void lanes do (nothing) and where the result is valid
stands in the interpreter.

Behind the rows stand the rules of R6 that go with their dtype column: operands promote to a common
type; f16 and bf16 are evaluated in f32; a scalar never widens a float tile. On a write, float to
float and widening integer conversions are implicit and everything else needs `cast`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from functools import partial

from sketchc.base import records
from sketchc.base.types import DType, promote
from sketchc.ops import references
from sketchc.ops.references import Reference

# ---------------------------------------------------------------- what a row says

Value = float | int | bool


class Shape(Enum):
    """How the result's shape follows from the operands'."""

    SAME = "as the source"
    BROADCAST = "broadcast of the operands"
    DESTINATION = "as the destination"
    REDUCED = "the source less the reduced axes (or with extent 1 there)"
    MATRIX_PRODUCT = "[M, K] with [K, N] gives [M, N]"
    TRANSPOSED = "the source with its last two axes exchanged"
    TOP_K = "the source with K on the axis"
    REARRANGED = "rearranged"


class Result(Enum):
    """How the result's dtype follows from the operands'."""

    SAME = "as the source"
    FLOAT = "float; integers and bool give f32"
    PROMOTE = "the common type of the operands"
    BOOL = "bool"
    INTEGER = "the common integer type"
    ACCUMULATOR = "f32 for f16, bf16 and f32; f64 for f64; integers keep the destination's type"
    DESTINATION = "the destination's"
    I64 = "i64"


class Category(Enum):
    """The kind of an operation; the reference documents have one table for each."""

    ELEMENTWISE = "element-wise"
    REDUCTION = "reduction"
    MATRIX = "matrix product"
    SCAN = "scan"
    INDEX = "index of an extremum"
    SORTING = "sorting"
    LAYOUT = "layout"
    COMPOSITE = "composite"
    RANDOM = "random"


class Fact(Enum):
    """Further properties of an operation, for analyses of its results."""

    NUMERIC = "has no meaning on conditions"
    INTEGRAL = "has no meaning on anything but integers"
    ZERO_OF_ZERO = "gives zero where all operands are, in every type"
    SELECTS = "gives an element of an operand, its negative, or one of two"
    HANDS_ON = "gives the source's numbers as they are"
    CONVERTS = "takes any type, and gives the destination's"
    LOGICAL = "asks whether its operands are zero"
    ONE_SCALAR = "takes one scalar, for all lanes"
    LARGEST = "finds the largest, where others find the smallest"
    FROM_THE_FIRST = "takes lanes that are valid from the first on"
    ADDS = "adds its operands, or the last one to a product"
    SCALES = "multiplies or divides its first two operands"


class Layout(Enum):
    """How an operation of the category LAYOUT arranges the lanes of its operands."""

    TRANSPOSED = "the last two axes exchanged"
    REPEATED = "along the destination's axes"
    PERMUTED = "the axes in another order"
    RESHAPED = "row by row, in another shape"
    JOINED = "one operand behind the other"


class Partial(Enum):
    """The role of the second operand where an operation on integers is undefined for some of its
    values."""

    QUOTIENT = "a divisor"
    REMAINDER = "the divisor of a remainder"
    POWER = "an exponent"
    SHIFT = "a shift count"


@records.frozen
class Attribute:
    """A keyword (or, for `axis`, also positional) argument with its allowed values or kind."""

    name: str
    kind: str  # "int", "axes", "bool", "float", "choice", "tile"
    default: object = None
    choices: tuple[str, ...] = ()
    positional: bool = False


@records.frozen
class Op:
    """One operation. `outputs` destinations stand last."""

    name: str
    result: Result
    doc: str
    reference: Reference
    attributes: tuple[Attribute, ...] = ()
    category: Category = records.field(kw_only=True)
    operands: tuple[str, ...] = records.field(kw_only=True)
    shape: Shape = records.field(kw_only=True)
    identity: str | None = None  # "zero", "one", "lowest", "highest", "false", "true"
    outputs: int = 1
    accumulates: bool = False  # reads its destination
    facts: frozenset[Fact] = frozenset()
    partial: Partial | None = None
    layout: Layout | None = None
    work: int = 1  # simple operations that one lane takes, roughly, where vectors compute it

    @property
    def kept(self) -> tuple[Attribute, ...]:
        """The attributes of a statement; a call with a tile as an attribute is written out."""
        return tuple(one for one in self.attributes if one.kind != "tile")

    @property
    def truth(self) -> bool:
        """Whether the operation reduces conditions to a condition, as `reduce_any` does."""
        return self.category is Category.REDUCTION and self.result is Result.BOOL

    @property
    def conditional(self) -> bool:
        """Whether the first operand is a condition, which does not affect the result's type."""
        return self.operands[0] == "condition"

    def asks(self, position: int) -> bool:
        """Whether the operand at `position` counts as true or false, whatever its type is."""
        return Fact.LOGICAL in self.facts or (self.conditional and position == 0)


def identity_value(identity: str, dtype: DType) -> Value:
    """The identity of a cross-lane operation in a dtype: "zero", "one", "lowest", "highest"..."""
    low, high = dtype.limits or (-math.inf, math.inf)
    values = {"zero": 0, "false": 0, "one": 1, "true": 1, "lowest": low, "highest": high}
    return bool(values[identity]) if dtype is DType.BOOL else values[identity]


# ---------------------------------------------------------------- the rows

#: Precisions of matrix products of f32, coarsest first; a product's `precision=` is a floor.
#: "f32_split" is as exact as a product in f32 whose sums are in f32, within a bound, by what is
#: fastest on a chip: parts of the operands on matrix units, or "ieee".
PRECISIONS = ("tf32", "tf32x3", "f32_split", "ieee")

_SOURCE = ("source",)
_PAIR = ("left", "right")
_AXIS = Attribute("axis", "int", positional=True)
_AXES = Attribute("axis", "axes", positional=True)
_EPS = Attribute("eps", "float", 1e-5)

_unary = partial(Op, category=Category.ELEMENTWISE, operands=_SOURCE, shape=Shape.SAME)
_binary = partial(Op, category=Category.ELEMENTWISE, operands=_PAIR, shape=Shape.BROADCAST)
_matrix = partial(
    Op,
    result=Result.ACCUMULATOR,
    reference=lambda np, a, b: np.matmul(a, b),
    attributes=(
        Attribute("trans_a", "bool", False),
        Attribute("trans_b", "bool", False),
        Attribute("precision", "choice", "ieee", PRECISIONS[::-1]),
    ),
    category=Category.MATRIX,
    operands=("a", "b"),
    shape=Shape.MATRIX_PRODUCT,
    identity="zero",
)
_layout = partial(Op, category=Category.LAYOUT, operands=_SOURCE)
_scan = partial(
    Op,
    attributes=(
        _AXIS,
        Attribute("reverse", "bool", False),
        Attribute("exclusive", "bool", False),
        Attribute("carry", "tile"),
    ),
    category=Category.SCAN,
    operands=_SOURCE,
    shape=Shape.SAME,
)
_sorting = partial(Op, category=Category.SORTING, operands=("values", "indices"), outputs=2)
_composite = partial(Op, category=Category.COMPOSITE, operands=_SOURCE, shape=Shape.SAME)
_random = partial(
    Op, category=Category.RANDOM, operands=("seed", "offset"), shape=Shape.DESTINATION
)


def _over_axes(
    category: Category,
    attribute: Attribute,
    name: str,
    result: Result,
    doc: str,
    identity: str | None,
) -> Op:
    """A row whose reference is NumPy's function of the same name, without the "reduce_"."""
    return Op(
        name,
        result,
        doc,
        references.over_axes(name.removeprefix("reduce_")),
        (attribute,),
        category=category,
        operands=_SOURCE,
        shape=Shape.REDUCED,
        identity=identity,
    )


_reduction = partial(_over_axes, Category.REDUCTION, _AXES)
_index = partial(_over_axes, Category.INDEX, _AXIS, result=Result.I64, identity=None)
_NAN_WINS = "along the axis: NaN wins, ties go to the first, -1 where no lane is valid"

_ROWS = (
    _unary("copy", Result.SAME, "the source", lambda np, x: x),
    _unary("neg", Result.SAME, "-x", lambda np, x: -x),
    _unary("abs", Result.SAME, "|x|", lambda np, x: np.abs(x)),
    _unary("relu", Result.SAME, "max(x, 0)", lambda np, x: np.maximum(x, 0)),
    _unary(
        "clamp",
        Result.SAME,
        "min(max(x, low), high)",
        references.clamp,
        (Attribute("low", "float"), Attribute("high", "float")),
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
    _unary("expm1", Result.FLOAT, "exp(x) - 1, also near 0", lambda np, x: np.expm1(x)),
    _unary("log1p", Result.FLOAT, "log(1 + x), also near 0", lambda np, x: np.log1p(x)),
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
        references.gelu,
        (Attribute("approximate", "choice", "none", ("none", "tanh")),),
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
        (Attribute("alpha", "float", 1.0),),
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
        (Attribute("slope", "float", 0.01),),
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
    _binary(
        "fma",
        Result.PROMOTE,
        "a * b + c",
        lambda np, a, b, c: a * b + c,
        operands=("left", "right", "addend"),
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
    _binary(
        "where",
        Result.PROMOTE,
        "then where the condition holds, otherwise elsewhere",
        lambda np, c, a, b: np.where(c, a, b),
        operands=("condition", "then", "otherwise"),
    ),
    _unary(
        "cast",
        Result.DESTINATION,
        "the source in the destination's type; integers too take the nearest (ties to even) unless "
        "round= says else; sat=True clamps, without it what does not fit is an error",
        lambda np, x: x,
        (
            Attribute("round", "choice", "nearest", ("nearest", "down", "up", "zero")),
            Attribute("sat", "bool", False),
        ),
    ),
    _unary(
        "fill",
        Result.DESTINATION,
        "every lane becomes the scalar",
        lambda np, c: c,
        operands=("value",),
        shape=Shape.DESTINATION,
    ),
    _reduction("reduce_sum", Result.ACCUMULATOR, "sum over the axes", "zero"),
    _reduction("reduce_prod", Result.ACCUMULATOR, "product over the axes", "one"),
    _reduction("reduce_max", Result.SAME, "largest over the axes; NaN wins", "lowest"),
    _reduction("reduce_min", Result.SAME, "smallest over the axes; NaN wins", "highest"),
    _reduction("reduce_any", Result.BOOL, "true if any lane is", "false"),
    _reduction("reduce_all", Result.BOOL, "true if all lanes are", "true"),
    _matrix("gemm", doc="dst += a @ b", accumulates=True),
    _matrix("matmul", doc="dst = a @ b"),
    _matrix("dot", doc="dst = a @ b"),
    _layout(
        "transpose",
        Result.SAME,
        "exchange the last two axes",
        lambda np, x: np.swapaxes(x, -1, -2),
        shape=Shape.TRANSPOSED,
    ),
    _layout(
        "broadcast",
        Result.SAME,
        "repeat the source to the destination's shape",
        lambda np, x: x,
        shape=Shape.DESTINATION,
    ),
    _layout(
        "permute",
        Result.SAME,
        "axis a of the result is axis axes[a] of the source",
        lambda np, x, axes: np.transpose(x, axes),
        (Attribute("axes", "axes", positional=True),),
        shape=Shape.REARRANGED,
    ),
    _layout(
        "reshape",
        Result.SAME,
        "the same values, row-major, in the destination's shape; axes that are split or merged "
        "must be fully valid",
        lambda np, x, shape: np.reshape(x, shape),
        shape=Shape.REARRANGED,
    ),
    _layout(
        "concat",
        Result.PROMOTE,
        "the left, then the right along the axis; the left must be fully valid there",
        lambda np, a, b, axis: np.concatenate((a, b), axis=axis),
        (_AXIS,),
        operands=_PAIR,
        shape=Shape.REARRANGED,
    ),
    _scan(
        "cumsum",
        Result.ACCUMULATOR,
        "running sum along the axis; exclusive=True leaves the lane out, reverse=True runs from "
        "the end; `carry=t` begins with t, and leaves the sum in it",
        lambda np, x, axis, **flags: references.scan(np.cumsum, 0, np, x, axis, **flags),
        identity="zero",
    ),
    _scan(
        "cumprod",
        Result.ACCUMULATOR,
        "running product, with the flags of cumsum",
        lambda np, x, axis, **flags: references.scan(np.cumprod, 1, np, x, axis, **flags),
        identity="one",
    ),
    _index("argmax", doc=f"lane of the tile that holds the largest {_NAN_WINS}"),
    _index("argmin", doc=f"lane of the tile that holds the smallest {_NAN_WINS}"),
    _sorting(
        "topk",
        Result.SAME,
        "merge into two `init=` tiles the K best values with their indices, best first, K being "
        "the destinations' extent; NaN is the largest, ties go to the smaller index, a negative "
        "index (nothing yet) comes after all others",
        references.topk,
        (_AXIS, Attribute("largest", "bool", True)),
        shape=Shape.TOP_K,
        accumulates=True,
    ),
    _sorting(
        "sort",
        Result.SAME,
        "the values in order along the axis and their indices with them; stable both ways, NaN is "
        "the largest",
        references.sort,
        (_AXIS, Attribute("descending", "bool", False)),
        shape=Shape.SAME,
    ),
    Op(
        "rank",
        Result.I64,
        "dst, an i64 tile, += how many of the others `sort` puts before each value",
        references.rank,
        (_AXIS, Attribute("descending", "bool", False)),
        category=Category.COMPOSITE,
        operands=("values", "indices", "others", "their_indices"),
        shape=Shape.SAME,
        accumulates=True,
    ),
    _composite(
        "softmax",
        Result.FLOAT,
        "over the last axis; expands to reduce_max, sub, exp, reduce_sum, div",
        references.softmax,
    ),
    _composite(
        "layer_norm",
        Result.FLOAT,
        "(x - mean) / sqrt(variance + eps) over the valid lanes of the last axis; expands to "
        "reduce_sum, div, sub, mul, reduce_sum, div, add, rsqrt, mul",
        references.layer_norm,
        (_EPS,),
    ),
    _composite(
        "rms_norm",
        Result.FLOAT,
        "x / sqrt(mean(x * x) + eps) over the valid lanes of the last axis; expands to mul, "
        "reduce_sum, div, add, rsqrt, mul",
        references.rms_norm,
        (_EPS,),
    ),
    _random(
        "rand",
        Result.DESTINATION,
        "uniform in [0, 1), a multiple of 2**-24: Philox4x32-10 with the seed as its key and the "
        "offset, a scalar or one index for each lane, as its counter",
        references.uniform,
    ),
    _random(
        "randn",
        Result.DESTINATION,
        "standard normal by Box-Muller from the first two words that rand's generator gives",
        references.normal,
    ),
)

#: What else is true of operations, a column each: most rows have none of these facts.
_FACTS = {
    Fact.NUMERIC: "neg abs relu clamp floor ceil round trunc sign add sub mul max min pow floordiv "
    "mod fma shl shr reduce_max reduce_min reduce_prod cumprod softmax layer_norm rms_norm",
    Fact.INTEGRAL: "shl shr",
    Fact.ZERO_OF_ZERO: "copy neg abs relu sqrt cast mul add sub sin tanh erf",
    Fact.SELECTS: "copy neg abs relu clamp leaky_relu where max min cast",
    Fact.HANDS_ON: "copy cast",
    Fact.CONVERTS: "cast",
    Fact.LOGICAL: "logical_and logical_or logical_not",
    Fact.ONE_SCALAR: "fill",
    Fact.LARGEST: "argmax",
    Fact.FROM_THE_FIRST: "sort",
    Fact.ADDS: "add fma",
    Fact.SCALES: "mul div fma",
}
_PARTIAL = {
    "floordiv": Partial.QUOTIENT,
    "mod": Partial.REMAINDER,
    "pow": Partial.POWER,
    "shl": Partial.SHIFT,
    "shr": Partial.SHIFT,
}
_LAYOUT = {
    "transpose": Layout.TRANSPOSED,
    "broadcast": Layout.REPEATED,
    "permute": Layout.PERMUTED,
    "reshape": Layout.RESHAPED,
    "concat": Layout.JOINED,
}
#: How many simple operations a lane takes, of operations that take more than one: a division takes
#: the time of several, a function that a polynomial approximates one for each term and more.
_WORK = {
    4: "div sqrt rsqrt softsign",
    10: "floordiv mod",
    12: "exp exp2 expm1 elu selu",
    16: "log log2 log1p sigmoid silu sin cos",
    24: "tanh erf gelu tan atan atan2 softplus mish",
    40: "pow rand randn",
}
#: The operation that computes with data tiles as an infix operator does with numbers.
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod"}
#: The operation that compares data tiles as an infix operator does numbers.
COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
#: What combines two results of a reduction, by its identity.
COMBINING = {
    "zero": "add",
    "one": "mul",
    "lowest": "max",
    "highest": "min",
    "false": "logical_or",
    "true": "logical_and",
}


def _complete(row: Op) -> Op:
    """The row with its entries of `_FACTS`, `_PARTIAL`, `_LAYOUT` and `_WORK`."""
    facts = frozenset(fact for fact, names in _FACTS.items() if row.name in names.split())
    work = next((number for number, names in _WORK.items() if row.name in names.split()), 1)
    partial, layout = _PARTIAL.get(row.name), _LAYOUT.get(row.name)
    return records.evolve(row, facts=facts, partial=partial, layout=layout, work=work)


#: Every operation by name.
OPS: dict[str, Op] = {row.name: _complete(row) for row in _ROWS}

# ---------------------------------------------------------------- types of operands and results


def common(tiles: Iterable[DType], scalars: Iterable[DType | None]) -> DType | None:
    """The type of an operation's operands, in evaluation precision; None without any.

    A scalar of None is *weak*: an integer literal, which takes the type of any tile. Float scalars
    beside a float tile take its type; beside an integer or bool tile they make it f32.
    """
    result: DType | None = None
    for dtype in tiles:
        result = dtype if result is None else promote(result, dtype)
    if result is None:
        for scalar in scalars:
            dtype = DType.I64 if scalar is None else scalar
            result = dtype if result is None else promote(result, dtype)
        return result
    if result.is_float:
        return result.compute
    for scalar in scalars:
        if scalar is not None and scalar.is_float:
            return DType.F32
        if scalar is None:
            result = DType.I64 if result is DType.BOOL else result
        else:
            result = promote(result, scalar)
    return result


def result_of(row: Op, operand: DType | None) -> DType | None:
    """The type that an operation gives for operands of the common type `operand` (in evaluation
    precision); None when only the destination can tell."""
    match row.result:
        case Result.SAME | Result.PROMOTE | Result.INTEGER:
            return operand
        case Result.FLOAT:
            return None if operand is None else (operand if operand.is_float else DType.F32)
        case Result.BOOL:
            return DType.BOOL
        case Result.ACCUMULATOR:
            if operand is None or operand.is_float:
                return operand
            return DType.I32 if row.category is Category.MATRIX else DType.I64
        case Result.I64:
            return DType.I64
        case Result.DESTINATION:
            return None


def may_evaluate(row: Op, dtype: DType, destination: DType) -> bool:
    """Whether an operation that writes a tile of type `destination` may be evaluated in `dtype`."""
    match row.result:
        case Result.FLOAT:
            return dtype.is_float and destination.is_float
        case Result.INTEGER:
            return not dtype.is_float and writes_implicitly(dtype, destination)
        case Result.BOOL:
            return destination is DType.BOOL and not (row.truth and dtype is not DType.BOOL)
        case Result.I64:
            return writes_implicitly(DType.I64, destination)
        case Result.SAME | Result.PROMOTE | Result.ACCUMULATOR:
            return writes_implicitly(dtype, destination)
        case Result.DESTINATION:
            return True


def writes_implicitly(source: DType, destination: DType) -> bool:
    """Whether a value of type `source` may be written to `destination` without `cast` (R6)."""
    if source is destination:
        return True
    if source.is_float and destination.is_float:
        return True
    if not (source.is_integer and destination.is_integer):
        return False
    if source.is_signed == destination.is_signed:
        return source.bytes < destination.bytes
    return destination.is_signed and source.bytes < destination.bytes


def literal_fits(value: int | float | bool, destination: DType) -> bool:
    """Whether the literal `value` may stand for a value of the type `destination`."""
    if isinstance(value, bool):
        return destination is DType.BOOL
    if isinstance(value, float):
        return destination.is_float
    if destination.is_float:
        return True
    if destination is DType.BOOL:
        return False
    low, high = destination.limits or (0, 0)
    return low <= value <= high
