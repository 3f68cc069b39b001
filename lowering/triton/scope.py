"""The state of one kernel's emission: names, extents, lanes, arguments, helpers. And the text of
the scalar and index expressions in a kernel."""

from __future__ import annotations

import functools
import math
from typing import assert_never

import attrs
import numpy as np

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType, rounded
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.evaluate import known_value
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.plan import PhasePlan, PhysicalExtent, Plan
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import Names, is_literal, literal, mirrored
from sketchc.lowering.triton.dialect import TL, Dialect

#: The extents of a block, () for a scalar.
Shape = tuple[Code, ...]


@attrs.define
class Scope:
    """State of one kernel's emission.

    `guarded`: the index width is a compile-time parameter INDEX (else 32 bits are known to
    suffice). `memory_scalars`: float scalars travel through memory, as f64 (LOWERING 15).
    """

    plan: Plan
    dialect: Dialect
    phase: PhasePlan
    names: Names
    guarded: bool
    wide_literals: bool = False
    memory_scalars: bool = False
    scalars: dict[str, ir.NameKind] = attrs.field(factory=dict)  # sketch names read, host scalars
    buckets: dict[str, ir.Expr] = attrs.field(factory=dict)  # compile-time name -> bucket of
    lanes: dict[str, str] = attrs.field(factory=dict)  # physical extent text -> lane vector
    read_lanes: set[str] = attrs.field(factory=set)  # the lane vectors that the code reads
    strides: dict[tuple[str, int], str] = attrs.field(factory=dict)  # broadcast strides
    tensors: dict[str, None] = attrs.field(factory=dict)  # base tensors accessed
    functions: dict[str, None] = attrs.field(factory=dict)  # device functions called
    dtypes: dict[str, DType] = attrs.field(factory=dict)  # host scalar dtypes
    known: dict[str, bool] = attrs.field(factory=dict)  # name -> never negative
    lanes_of: dict[str, Shape] = attrs.field(factory=dict)  # binding -> shape
    given: dict[str, None] = attrs.field(factory=dict)  # optional tensors asked for
    pending: list[str] = attrs.field(factory=list)  # assignments before the next line
    read_anyway: dict[str, None] = attrs.field(factory=dict)  # tensors read on void lanes too
    #: (float tensor, integer type) -> the argument that points to its bits
    bit_pointers: dict[tuple[str, str], str] = attrs.field(factory=dict)

    # ------------------------------------------------------------ extents

    def tile(self, name: str) -> ir.Tile:
        """A tile of the sketch."""
        return self.plan.sketch.tile(name)

    def physical(self, logical: ir.Expr) -> PhysicalExtent:
        """The physical extent of an index tile's axis: that of a tile axis with the same extent."""
        for tile in self.plan.tiles.values():
            for mine, extent in zip(tile.tile.extents, tile.extents, strict=True):
                if mine == logical:
                    return extent
        value = self.constant(logical)
        if value is None:
            raise InternalError("an index tile has an extent that no tile has")
        padded = self.plan.capabilities.power_of_two_extents
        size = 1 << max(int(value) - 1, 0).bit_length() if padded else int(value)
        return PhysicalExtent(value=size, padded=size != value)

    def constant(self, expression: ir.Expr) -> int | float | bool | None:
        """The value of an expression over compile-time constants only; None for any other."""
        return known_value(expression, self.plan.sketch)

    def extent_code(self, physical: PhysicalExtent, logical: ir.Expr) -> Code:
        """How a kernel writes a physical extent."""
        if physical.bucket_of is not None:
            self.buckets[physical.name] = physical.bucket_of
            return Code(self.names[physical.name])
        if physical.value is None:
            raise InternalError("Triton has no run-time tile extents; the plan must bucket them")
        match logical:
            case ir.Ref(name, ir.NameKind.CONSTANT) if not physical.padded:
                self.scalars[name] = ir.NameKind.CONSTANT
                return Code(self.names[name])
            case _:
                return Code(str(physical.value))

    def shape(self, tile: str) -> Shape:
        """Physical extents of a tile as code; () for a tile of one element, a Triton scalar."""
        planned = self.plan.tiles[tile]
        if all(extent.value == 1 for extent in planned.extents):
            return ()
        return tuple(
            self.extent_code(physical, logical)
            for physical, logical in zip(planned.extents, planned.tile.extents, strict=True)
        )

    def lane(self, extent: Code) -> Code:
        """The lane vector `0 .. extent-1`, which is then defined at the top of the kernel."""
        self.name_lanes(extent)
        self.read_lanes.add(extent.text)
        return Code(self.lanes[extent.text])

    def name_lanes(self, extent: Code) -> None:
        """Reserve a lane vector's name, even if unread: a tile's are named in the order of axes."""
        if extent.text not in self.lanes:
            stem = extent.text.lower()
            wish = f"lanes_{stem}" if stem.isdigit() else f"{stem.removesuffix('_block')}_lanes"
            self.lanes[extent.text] = self.names.fresh(wish)

    def non_negative(self, expression: ir.Expr) -> bool:
        """Whether an expression is provably at least 0 here."""
        return never_negative(expression, self.known)

    def bind(self, wish: str, code: Code) -> Code:
        """A name for a value, assigned before the statement at hand."""
        name = self.names.fresh(wish)
        self.pending.append(f"{name} = {code}")
        return Code(name)

    def call(self, function: str, *arguments: Code | str) -> Code:
        """A call of a device function of this package."""
        return PYTHON.call(self.function(function), *arguments)

    def function(self, name: str) -> str:
        """The name here of a device function of this package; its source joins the file."""
        self.functions[name] = None
        return self.names.functions.get(name, name)


def shape_code(shape: Shape) -> str:
    """A shape as the text of a Python tuple."""
    inner = ", ".join(extent.text for extent in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def broadcast_to(code: Code, shape: Shape) -> Code:
    """A block repeated to a shape."""
    return PYTHON.call("tl.broadcast_to", code, shape_code(shape))


def chosen(mask: Code | None, code: Code, otherwise: Code | str) -> Code:
    """`code` where the mask holds, and everywhere without one."""
    return code if mask is None else PYTHON.call("tl.where", mask, code, otherwise)


def spread(code: Code, axis: int, rank: int) -> Code:
    """A lane vector as axis `axis` of `rank`: `lanes[:, None]`."""
    return laid_out(code, tuple(other == axis for other in range(rank)))


def raised(code: Code, own: int, rank: int) -> Code:
    """A block of rank `own` with axes of extent 1 in front, up to `rank`."""
    return laid_out(code, (False,) * (rank - own) + (True,) * own)


def kernel_expression(expression: ir.Expr, scope: Scope) -> Code:
    """The code of an integer or predicate expression; lane vectors that it needs go to `scope`."""
    match expression:
        case ir.Literal(value):
            return literal(value)
        case ir.Ref():
            return _reference(expression, scope)
        case ir.Unary("-", operand):
            return PYTHON.unary("-", kernel_expression(operand, scope))
        case ir.Unary(_, operand):
            return _negation(operand, scope)
        case ir.Binary():
            return _binary(expression, scope)
        case ir.Choice(condition, then, otherwise):
            asked = joined(condition, scope)
            sides = (kernel_expression(side, scope) for side in (then, otherwise))
            return PYTHON.call("tl.where", asked, *sides)
        case ir.Iota(extent, lower, _, layout):
            physical = scope.physical(extent)
            if physical.value == 1:  # one lane: a scalar
                return kernel_expression(lower, scope)
            code = laid_out(scope.lane(scope.extent_code(physical, extent)), layout)
            if is_literal(lower, 0):
                return code
            return PYTHON.binary("+", kernel_expression(lower, scope), code)
        case ir.TileLanes(tile, dtype, _, layout):
            code = Code(scope.names[tile])
            if dtype is not DType.BOOL:
                # What memory holds may be anything: 64 bits keep every value of it apart.
                code = PYTHON.call("tl.cast", code, TL[DType.I64])
            return laid_out(code, layout) if scope.shape(tile) else code
        case ir.Function():
            raise InternalError("functions of scalars are the host's to compute")
        case _:
            assert_never(expression)


def _reference(expression: ir.Ref, scope: Scope) -> Code:
    match expression.kind:
        case ir.NameKind.LOOP:
            return Code(scope.names[expression.name])
        case ir.NameKind.BINDING:
            code = Code(scope.names[expression.name])
            if expression.layout is None or not scope.lanes_of.get(expression.name):
                return code
            return laid_out(code, expression.layout)
        case ir.NameKind.PRESENT:
            scope.given[expression.name] = None
            return Code(scope.names.given(expression.name))
        case _:
            scope.scalars[expression.name] = expression.kind
            scope.dtypes[expression.name] = expression.dtype
            return Code(scope.names[expression.name])


def laid_out(code: Code, layout: tuple[bool, ...]) -> Code:
    """A vector or tile with a new axis of extent 1 for each False in `layout`."""
    if all(layout):
        return code
    marks = ", ".join(":" if own else "None" for own in layout)
    return PYTHON.postfix(code, f"[{marks}]")


def _negation(operand: ir.Expr, scope: Scope) -> Code:
    """`not`, pushed inwards: `~` on a Python bool is not a negation."""
    match operand:
        case ir.Unary("not", inner):
            return kernel_expression(inner, scope)
        case ir.Binary("and" | "or" as operator, left, right):
            other = "or" if operator == "and" else "and"
            swapped = ir.Binary(other, ir.Unary("not", left), ir.Unary("not", right))
            return kernel_expression(swapped, scope)
        case ir.Binary() if symbolic.has_floats(operand):
            return PYTHON.call("tl.where", kernel_expression(operand, scope), "False", "True")
        case ir.Binary(operator) if operator in symbolic.OPPOSITE:
            return kernel_expression(symbolic.negated(operand), scope)
        case _:
            return PYTHON.binary("==", kernel_expression(operand, scope), Code("0"))


def _binary(expression: ir.Binary, scope: Scope) -> Code:
    expression = mirrored(expression)
    operator = expression.operator
    if operator in ("and", "or"):
        sides = joined(expression.left, scope), joined(expression.right, scope)
        return PYTHON.binary("&" if operator == "and" else "|", *sides)
    left = kernel_expression(expression.left, scope)
    right = kernel_expression(expression.right, scope)
    if operator in ("//", "%", "cdiv") and index_shape(expression.right, scope):
        # A void lane's divisor may be anything, and must not trap (LOWERING 5).
        right = PYTHON.call("tl.where", PYTHON.binary("==", right, Code("0")), Code("1"), right)
    if symbolic.has_floats(expression):
        return _float_binary(expression, left, right, scope)
    safe = scope.non_negative(expression.left) and scope.non_negative(expression.right)
    match operator:
        case "+" if is_literal(expression.left, 0):
            return right
        case "min":
            return PYTHON.call("tl.minimum", left, right)
        case "max":
            return PYTHON.call("tl.maximum", left, right)
        case "cdiv":
            # On possibly negative operands: ceil(a / b) = -floor(-a / b).
            if safe:
                return PYTHON.call("tl.cdiv", left, right)
            quotient = scope.call("floor_quotient", PYTHON.unary("-", left), right)
            return PYTHON.unary("-", quotient)
        case "//" if not safe:
            return scope.call("floor_quotient", left, right)
        case "%" if not safe:
            return scope.call("floor_remainder", left, right)
        case _:
            return PYTHON.binary(operator, left, right)


def _float_binary(expression: ir.Binary, left: Code, right: Code, scope: Scope) -> Code:
    """An operation on float scalars, in f64. Where the target has no f64, only comparisons arrive
    here of values that an f32 holds (see `CheckCapabilities`) or with a literal, which is then
    replaced by a neighbouring f32."""
    operator = expression.operator
    if DType.F64.value in scope.plan.capabilities.dtypes:
        left, right = _in_f64(expression.left, left), _in_f64(expression.right, right)
    elif isinstance(expression.right, ir.Literal):
        number = float(expression.right.value)
        if operator in ("==", "!=") and rounded(number, DType.F32) != number:
            return Code(str(operator == "!="))
        right = literal(_f32_beside(number, above=operator in ("<", ">=")))
    match operator:
        case "min" | "max":
            return PYTHON.call({"min": "tl.minimum", "max": "tl.maximum"}[operator], left, right)
        case _:
            return PYTHON.binary(operator, left, right)


def _in_f64(expression: ir.Expr, code: Code) -> Code:
    match expression:
        case ir.Literal(value):
            return PYTHON.call("tl.full", "()", literal(float(value)), TL[DType.F64])
        case ir.Binary():
            return code
        case _:
            return PYTHON.call("tl.cast", code, TL[DType.F64])


def _f32_beside(number: float, above: bool) -> float:
    """The number as an f32, the next one above or below where none equals it."""
    nearest = rounded(number, DType.F32)
    if nearest == number or (nearest > number) == above:
        return nearest
    return float(np.nextafter(np.float32(nearest), np.float32(math.inf if above else -math.inf)))


def index_shape(expression: ir.Expr, scope: Scope) -> Shape:
    """The physical shape of an expression's code; () for a scalar."""
    match expression:
        case ir.Literal() | ir.Function():
            return ()
        case ir.Ref(name=name, kind=ir.NameKind.BINDING, layout=layout):
            own = scope.lanes_of.get(name, ())
        case ir.Ref():
            return ()
        case ir.Iota(extent=extent, layout=layout):
            physical = scope.physical(extent)
            own = () if physical.value == 1 else (scope.extent_code(physical, extent),)
        case ir.TileLanes(tile=tile, layout=layout):
            own = scope.shape(tile)
        case ir.Unary(operand=operand):
            return index_shape(operand, scope)
        case ir.Binary(left=left, right=right):
            return broadcast(index_shape(left, scope), index_shape(right, scope))
        case ir.Choice():
            return functools.reduce(broadcast, (index_shape(p, scope) for p in expression.parts))
        case _:
            assert_never(expression)
    return walk.laid_out(own, layout, Code("1")) if own else own


def broadcast(left: Shape, right: Shape) -> Shape:
    """The shape of two broadcast against each other, right-aligned."""
    rank = max(len(left), len(right))
    one = Code("1")
    wide = [(one,) * (rank - len(side)) + side for side in (left, right)]
    return tuple(b if a.text == "1" else a for a, b in zip(*wide, strict=True))


def joined(condition: ir.Expr, scope: Scope) -> Code:
    """A condition as an operand of `&` and `|`. Comparisons of float scalars go through `tl.where`:
    beside a tile, Triton's interpreter would repeat them in the type of the values compared."""
    code, lanes = kernel_expression(condition, scope), index_shape(condition, scope)
    compared = isinstance(condition, ir.Binary) and condition.operator in symbolic.OPPOSITE
    if compared and not lanes and symbolic.has_floats(condition):
        code = PYTHON.call("tl.where", code, "True", "False")
    return truth(code, lanes, scope)


def truth(code: Code, lanes: Shape, scope: Scope) -> Code:
    """A condition as an operand of `&` and `|`, cast for older front ends, which do not join a
    scalar that is known when they compile (a size of 1 is) to one that is not."""
    if lanes or not scope.dialect.interval_masks:
        return code
    return PYTHON.call("tl.cast", code, "tl.int1")
