"""The conditions of a launch as C++ text: most are expressions; sums that might leave 64 bits are
calculated in `sketch::natural`, which does not wrap around."""

from __future__ import annotations

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.launch.conditions import Condition, Kind
from sketchc.lowering.cpp.expressions import Expressions, logical
from sketchc.lowering.precedence import CPP, Code


def broken(condition: Condition, code: Expressions) -> Code:
    """That a condition does not hold."""
    match condition.kind, condition.holds:
        case Kind.ELEMENTS, holds:
            return _too_large(holds, code)
        case Kind.WIDTH | Kind.FETCHED, ir.Binary("<", total, ir.Literal(int(limit))):
            return CPP.postfix(_natural(total, code), f".reaches(UINT64_C({limit}))")
        case _:
            return code.fails(condition.holds)


def _too_large(holds: ir.Expr, code: Expressions) -> Code:
    match holds:
        case ir.Binary("and", left, right):
            return logical("or", _too_large(left, code), _too_large(right, code))
        case ir.Binary("<", product, _):
            return code.helper("too_large", f"{{{code.listed(_extents(product))}}}")
        case _:
            msg = "not a condition on numbers of elements"
            raise InternalError(msg)


def _extents(product: ir.Expr) -> list[ir.Expr]:
    match product:
        case ir.Binary("*", left, right):
            return [*_extents(left), *_extents(right)]
        case ir.Binary("max", extent, _):
            return [extent]
        case _:
            return [product]


def _natural(total: ir.Expr, code: Expressions, first: bool = True) -> Code:
    """A sum of products; the `first` factor makes the others magnitudes, too."""
    match total:
        case ir.Binary("+", left, right):
            alone = not isinstance(right, ir.Binary)
            return CPP.binary("+", _natural(left, code), _natural(right, code, first=not alone))
        case ir.Binary("*", left, right):
            return CPP.binary("*", _natural(left, code, first), _natural(right, code, first=False))
        case ir.Function("abs", (operand,)):
            return _natural(operand, code, first)
        case _:
            return code.helper("natural", code.scalar(total)) if first else code.scalar(total)
