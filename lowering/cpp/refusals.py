"""The conditions of a launch as C++ text: most are expressions; sums that might leave 64 bits are
calculated in `sketch::natural`, which does not wrap around."""

from __future__ import annotations

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.launch.conditions import Condition, Kind
from sketchc.lowering.cpp.expressions import fails, logical, scalar
from sketchc.lowering.precedence import CPP, Code


def broken(condition: Condition) -> Code:
    """That a condition does not hold."""
    match condition.kind, condition.holds:
        case Kind.ELEMENTS, holds:
            return _too_large(holds)
        case Kind.WIDTH | Kind.FETCHED, ir.Binary("<", total, ir.Literal(int(limit))):
            code = _natural(total)
            text = f"({code})" if code.level < CPP.postfix_level else str(code)
            return Code(f"{text}.reaches(UINT64_C({limit}))")
        case _:
            return fails(condition.holds)


def _too_large(holds: ir.Expr) -> Code:
    match holds:
        case ir.Binary("and", left, right):
            return logical("or", _too_large(left), _too_large(right))
        case ir.Binary("<", product, _):
            extents = ", ".join(str(scalar(extent)) for extent in _extents(product))
            return Code(f"sketch::too_large({{{extents}}})")
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


def _natural(total: ir.Expr, first: bool = True) -> Code:
    """A sum of products; the `first` factor makes the others magnitudes, too."""
    match total:
        case ir.Binary("+", left, right):
            alone = not isinstance(right, ir.Binary)
            return CPP.binary("+", _natural(left), _natural(right, first=not alone))
        case ir.Binary("*", left, right):
            return CPP.binary("*", _natural(left, first), _natural(right, first=False))
        case ir.Function("abs", (operand,)):
            return _natural(operand, first)
        case _:
            return CPP.call("sketch::natural", scalar(total)) if first else scalar(total)
