"""Scalar and index-tile expressions of the IR, compiled to Python closures.

A closure takes the values in scope (loop variables, symbols, bindings ...) and gives a Python
number or, for an expression over `iota`, a `TileValue` of type i64 or bool whose box says which
lanes are valid. Void lanes never trap (LOWERING 5).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TypeAlias, assert_never

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import DiagnosticError, InternalError
from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.tiles import (
    Array,
    Box,
    Extents,
    TileValue,
    box_shape,
    broadcast_extents,
    common_box,
    joint,
    lay_out,
    physical_shape,
    select,
)
from sketchc.interpreter.violations import Violation
from sketchc.ir import evaluate
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import children
from sketchc.launch.magnitudes import is_loaded

Scalar: TypeAlias = int | float | bool
Values: TypeAlias = dict[str, "Scalar | TileValue"]
ScalarFunction: TypeAlias = Callable[[Values], Scalar]
IndexFunction: TypeAlias = Callable[[Values], TileValue]

_INDEX_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "cdiv": lambda a, b: -(-a // b),
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


def _sum_leaves(a: Array, b: Array) -> Array:
    total = a + b
    leaves: Array = ((a ^ total) & (b ^ total)) < 0
    return leaves


def _product_leaves(a: Array, b: Array) -> Array:
    """Where products leave 64 bits; those that float64 shows to be near the limit are computed
    exactly."""
    size = np.abs(a.astype(np.float64) * b.astype(np.float64))
    leaves: Array = size >= 2.0**62
    if leaves.any():
        exact = a.astype(object) * b.astype(object)
        leaves = np.asarray((exact >= 2**63) | (exact < -(2**63)), np.bool_)
    return leaves


#: Where the results of operators leave 64 bits. The least integer has no negative counterpart.
_LEAVES: dict[str, Callable[[Array, Array], Array]] = {
    "+": _sum_leaves,
    "-": lambda a, b: ((a ^ b) & (a ^ (a - b))) < 0,
    "*": _product_leaves,
    "//": lambda a, b: (a == -(2**63)) & (b == -1),
    "cdiv": lambda a, b: np.logical_and(a == -(2**63), b != 0),
}


#: Closures by the identity of their expressions, which stand beside them: a sketch is run at many
#: sizes.
_COMPILED: dict[int, tuple[ir.Expr, ScalarFunction]] = {}
_MOST_COMPILED = 1 << 14


def compile_scalar(expression: ir.Expr) -> ScalarFunction:
    """A closure for a scalar expression; `ZeroDivisionError` becomes an SK0807 diagnostic."""
    known = _COMPILED.get(id(expression))
    if known is None:
        if len(_COMPILED) >= _MOST_COMPILED:
            _COMPILED.clear()
        known = _COMPILED[id(expression)] = (expression, _compiled(expression))
    return known[1]


def _compiled(expression: ir.Expr) -> ScalarFunction:
    match expression:
        case ir.Literal(value):
            return lambda values: value
        case ir.Ref(name):
            return lambda values: values[name]  # type: ignore[return-value]
        case ir.Unary("-", operand):
            inner = compile_scalar(operand)
            return lambda values: fitting(-inner(values), expression)
        case ir.Unary(_, operand):
            inner = compile_scalar(operand)
            return lambda values: not inner(values)
        case ir.Binary(operator, left, right):
            return _scalar_binary(expression, operator, compile_scalar(left), compile_scalar(right))
        case ir.Choice():
            asked, then, otherwise = map(compile_scalar, expression.parts)
            return lambda values: then(values) if asked(values) else otherwise(values)
        case ir.Function(name, arguments):
            function = evaluate.FUNCTION[name]
            parts = tuple(compile_scalar(argument) for argument in arguments)
            return lambda values: function(*(part(values) for part in parts))
        case ir.Iota() | ir.TileLanes():
            msg = "an index tile has no scalar value"
            raise InternalError(msg)
        case _:
            assert_never(expression)


def _scalar_binary(
    expression: ir.Binary, operator: str, left: ScalarFunction, right: ScalarFunction
) -> ScalarFunction:
    match operator:  # the commonest three without a further call
        case "+":
            return lambda values: fitting(left(values) + right(values), expression)
        case "-":
            return lambda values: fitting(left(values) - right(values), expression)
        case "*":
            return lambda values: fitting(left(values) * right(values), expression)
        case _:
            function = evaluate.BINARY[operator]
    if operator not in ("//", "%", "/", "cdiv"):
        return lambda values: function(left(values), right(values))

    def divide(values: Values) -> Scalar:
        try:
            return fitting(function(left(values), right(values)), expression)
        except ZeroDivisionError as error:
            text = f"division by zero: {left(values)} {operator} 0"
            raise _broken(expression, "arithmetic", text) from error

    return divide


def fitting(value: Scalar, expression: ir.Expr) -> Scalar:
    """The value of an expression; an integer that leaves 64 bits is an error (R10). Conditions of
    the launch exclude it for values that do not come from memory."""
    if -(2**63) <= value < 2**63 or isinstance(value, float):
        return value
    raise _leaves_64_bits(expression)


def _leaves_64_bits(expression: ir.Expr, lane: tuple[int, ...] = ()) -> DiagnosticError:
    return _broken(expression, "index-width", f"`{show(expression)}` leaves 64 bits", lane)


def _broken(
    expression: ir.Expr, kind: str, text: str, lane: tuple[int, ...] = ()
) -> DiagnosticError:
    violation = Violation(kind, "", lane, (), text, expression.span)
    return DiagnosticError([violation.diagnostic()])


def is_index(expression: ir.Expr, bindings: Container[str]) -> bool:
    """Whether the expression has lanes; `bindings` names the bindings that do."""
    match expression:
        case ir.Ref(name):
            return name in bindings
        case ir.Iota() | ir.TileLanes():
            return True
        case ir.Function():
            return False
        case _:
            return any(is_index(part, bindings) for part in children(expression))


#: The axes on which an index tile varies, counted from its last one, which is -1.
Axes: TypeAlias = frozenset[int]


@records.frozen
class IndexCompiler:
    """Compiles index tiles; `padding` more void lanes stand on every axis (physical extents).

    `read` gives a closure that reads an integer or bool tile; `bindings` holds the axes of every
    name bound to an index tile so far; `loaded` holds the names whose values come from memory."""

    read: Callable[[ir.TileLanes], Callable[[], TileValue]]
    padding: int = 0
    loaded: Container[str] = frozenset()
    bindings: dict[str, Axes] = records.field(factory=dict)

    def compile(self, expression: ir.Expr) -> IndexFunction:
        """A closure for an expression with lanes; scalars become rank-0 tiles."""
        if not is_index(expression, self.bindings):
            return _lift(compile_scalar(expression))
        match expression:
            case ir.Iota():
                return self._iota(expression)
            case ir.TileLanes():
                return self._lanes(expression)
            case ir.Ref(name, _, _, layout):
                return _reference(name, layout)
            case ir.Unary(operator, operand):
                if operator == "-" and is_loaded(operand, self.loaded):
                    expression = ir.Binary(operator, ir.Literal(0), operand, span=expression.span)
                    return self.compile(expression)
                return _unary(operator, self.compile(operand))
            case ir.Binary(operator, left, right):
                loaded = is_loaded(expression, self.loaded)
                return _binary(
                    expression, operator, self.compile(left), self.compile(right), loaded
                )
            case ir.Choice():
                return _choice(*map(self.compile, expression.parts))
            case ir.Literal() | ir.Function():
                msg = "a scalar has no lanes"
                raise InternalError(msg)
            case _:
                assert_never(expression)

    def axes(self, expression: ir.Expr) -> Axes:
        """The axes on which an expression varies: those of its parts."""
        match expression:
            case ir.Function():
                return frozenset()
            case ir.Ref(name, _, _, layout):
                own = self.bindings.get(name, frozenset())
                return own if layout is None else _placed(own, layout)
            case ir.Iota(layout=layout):
                return _placed(frozenset({-1}), layout)
            case ir.TileLanes(extents=extents, layout=layout):
                wide = (n for n, extent in enumerate(extents) if extent != ir.Literal(1))
                return _placed(frozenset(n - len(extents) for n in wide), layout)
            case _:
                return frozenset().union(*map(self.axes, children(expression)))

    def _lanes(self, expression: ir.TileLanes) -> IndexFunction:
        read, layout = self.read(expression), expression.layout
        kind = DType.BOOL if expression.dtype is DType.BOOL else DType.I64

        def tile_lanes(values: Values) -> TileValue:
            tile = read()
            array = tile.array.astype(numpy_dtype(kind), copy=False)
            return lay_out(TileValue("", kind, tile.extents, array, tile.box), layout)

        return tile_lanes

    def _iota(self, expression: ir.Iota) -> IndexFunction:
        extent_of = compile_scalar(expression.extent)
        lower_of = compile_scalar(expression.lower)
        upper_of = None if expression.upper is None else compile_scalar(expression.upper)
        layout = expression.layout

        def iota(values: Values) -> TileValue:
            extent, lower = int(extent_of(values)), int(lower_of(values))
            stop = extent
            if upper_of is not None:
                stop = max(0, min(extent, int(upper_of(values)) - lower))
            (length,) = physical_shape((extent,), self.padding)
            array = lower + np.arange(length, dtype=np.int64)
            tile = TileValue("iota", DType.I64, (extent,), array, ((0, stop),))
            return lay_out(tile, layout)

        return iota


def _placed(axes: Axes, layout: tuple[bool, ...]) -> Axes:
    """`axes` of an index tile after `layout` (`[:, None]`), counted from the last axis, too."""
    places = [place - len(layout) for place, own in enumerate(layout) if own]
    return frozenset(places[axis] for axis in axes)


def _lift(scalar: ScalarFunction) -> IndexFunction:
    def lift(values: Values) -> TileValue:
        value = scalar(values)
        dtype = DType.BOOL if isinstance(value, bool) else DType.I64
        return TileValue("", dtype, (), np.asarray(value), ())

    return lift


def _reference(name: str, layout: tuple[bool, ...] | None) -> IndexFunction:
    def reference(values: Values) -> TileValue:
        tile = values[name]
        if not isinstance(tile, TileValue):
            msg = f"{name} is not an index tile"
            raise InternalError(msg)
        return tile if layout is None else lay_out(tile, layout)

    return reference


def _unary(operator: str, operand: IndexFunction) -> IndexFunction:
    def apply(values: Values) -> TileValue:
        tile = operand(values)
        array = -tile.array if operator == "-" else np.logical_not(tile.array)
        dtype = tile.dtype if operator == "-" else DType.BOOL
        return TileValue("", dtype, tile.extents, array, tile.box)

    return apply


def _binary(
    expression: ir.Binary, operator: str, left: IndexFunction, right: IndexFunction, loaded: bool
) -> IndexFunction:
    """A closure for a binary operation. With `loaded`, a result that leaves 64 bits on a valid lane
    is an error; without, conditions of the launch exclude it."""
    function = _INDEX_BINARY[operator]
    leaves = _LEAVES.get(operator) if loaded else None
    divides = operator in ("//", "%", "cdiv")

    def apply(values: Values) -> TileValue:
        a, b = left(values), right(values)
        extents, box = joint(a, b)
        if divides:
            b = _guarded(expression, b, extents, box)
        if leaves is not None:
            wide = np.asarray(leaves(select(a, extents, box), select(b, extents, box)))
            if wide.any():
                lane = tuple(int(i) for i in np.argwhere(wide)[0])
                raise _leaves_64_bits(expression, lane)
        array = function(a.array, b.array)
        dtype = DType.BOOL if array.dtype == np.bool_ else DType.I64
        return TileValue("", dtype, extents, array, box)

    return apply


def _choice(
    condition: IndexFunction, then: IndexFunction, otherwise: IndexFunction
) -> IndexFunction:
    def apply(values: Values) -> TileValue:
        parts = [part(values) for part in (condition, then, otherwise)]
        extents = broadcast_extents(tuple([part.extents for part in parts]))
        asked, one, other = (part.array for part in parts)
        box = common_box(parts, extents)
        return TileValue("", DType.I64, extents, np.where(asked, one, other), box)

    return apply


def _guarded(expression: ir.Binary, divisor: TileValue, extents: Extents, box: Box) -> TileValue:
    """The divisor with 1 for zeros; a zero on a valid lane is an error."""
    if divisor.array.all():
        return divisor
    shape = box_shape(box)
    zeros = np.broadcast_to(select(divisor, extents, box) == 0, shape)
    if zeros.any():
        lane = tuple(int(i) for i in np.argwhere(zeros)[0]) if zeros.ndim else ()
        raise _broken(expression, "arithmetic", "division by zero", lane)
    array = np.where(divisor.array == 0, 1, divisor.array)
    return records.evolve(divisor, array=array)


def compile_domain(domain: ir.Domain) -> Callable[[Values, Extents], Box]:
    """A closure that gives the lanes of a static domain for logical extents."""
    axes = [
        (tuple(map(compile_scalar, axis.lower)), tuple(map(compile_scalar, axis.upper)))
        for axis in domain
    ]

    def evaluate_domain(values: Values, extents: Extents) -> Box:
        box = []
        for (lower, upper), extent in zip(axes, extents, strict=True):
            start, stop = 0, extent
            for bound in lower:
                start = max(start, int(bound(values)))
            for bound in upper:
                stop = min(stop, int(bound(values)))
            box.append((start, stop))
        return tuple(box)

    return evaluate_domain
