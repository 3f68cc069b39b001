"""Refuse, before any code is written, what the target cannot do."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sketchc.base.diagnostics import Diagnostic, DiagnosticError, Span, error
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.lowering.plan import Plan, carried, float_parts
from sketchc.lowering.precisions import SPLIT
from sketchc.ops.table import COMPARISONS, OPS, Fact


@attrs.frozen
class CheckCapabilities:
    """Raise `DiagnosticError` with SK0703 for a dtype or operation that the target does not have
    (float scalars take f64), SK0704 for an atomic update of a dtype that it cannot update.

    Why: a user learns in the sketch's own terms, not from a vendor's compiler.
    Requires: an elaborated sketch. Ensures: every dtype and operation used is one that the target
    states in its capabilities; a note for every precision that the target replaces by a finer one
    (`precision` is a floor, and every target offers "ieee").
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        found = [
            _diagnostic(plan, code, *refusal) for code, check in _CHECKS for refusal in check(plan)
        ]
        if found:
            raise DiagnosticError(found)
        return attrs.evolve(plan, notes=(*plan.notes, *self._precisions(plan)))

    def _precisions(self, plan: Plan) -> list[str]:
        offered = plan.capabilities.precisions
        asked = (statement.attributes.get("precision") for statement in _computations(plan))
        finer = {str(name) for name in asked if name is not None and name not in offered}
        missing = sorted(finer - {SPLIT})  # which "ieee" is
        return [
            f'precision "{name}" is a floor: {plan.target} multiplies with more' for name in missing
        ]


#: What the target does not have, where it is asked for, and advice.
_Refusal = tuple[str, Span, str]


def _dtypes(plan: Plan) -> Iterator[_Refusal]:
    known = plan.capabilities.dtypes
    for what, group in (("tensor", plan.sketch.tensors), ("tile", plan.sketch.tiles)):
        for declared in group:
            if declared.dtype.value not in known:
                asked = f"{what} `{declared.name}` is {declared.dtype.value}"
                yield asked, declared.span, f"{plan.target} takes {', '.join(sorted(known))}"


def _operations(plan: Plan) -> Iterator[_Refusal]:
    for statement in _computations(plan):
        if statement.operation in plan.capabilities.ops_missing:
            advice = "use other operations, or another target"
            yield f"operation `{statement.operation}`", statement.span, advice


def _casts(plan: Plan) -> Iterator[_Refusal]:
    """Scalars that casts and operations on scalars alone read in their own dtype, where the target
    does not have that; the dtype of a `let` of floats is f64."""
    for statement in _computations(plan):
        for operand in carried(statement):
            if operand.dtype.value not in plan.capabilities.dtypes:
                asked = f"`{show(operand.value)}` is {operand.dtype.value}"
                advice = "cast a param, or a tile that the scalar is written into with `fill`"
                yield asked, statement.span, advice


def _numbers(plan: Plan) -> Iterator[_Refusal]:
    """Operations on numbers alone, where the target lacks the type that these are evaluated in."""
    for statement in _computations(plan):
        if (
            statement.dtype.value not in plan.capabilities.dtypes
            and Fact.CONVERTS not in OPS[statement.operation].facts
            and all(isinstance(operand, ir.ScalarOperand) for operand in statement.operands)
            and not any(carried(statement))
        ):
            asked = f"`{statement.operation}` is evaluated in {statement.dtype.value}"
            advice = "write the number into a tile with `fill` first, or write what comes out"
            yield asked, statement.span, advice


def _atomics(plan: Plan) -> Iterator[_Refusal]:
    for statement in walk.in_phases(plan.sketch.phases):
        if isinstance(statement, ir.Atomic):
            known = plan.capabilities.atomics.get(statement.operation)
            dtype = plan.sketch.tensor(statement.access.tensor).dtype.value
            if known is not None and dtype not in known:
                asked = f"`atomic_{statement.operation}` on a tensor of {dtype}"
                advice = (
                    f"{plan.target} updates {', '.join(sorted(known))}: update a workspace "
                    "of one of these, and convert it in a phase of its own"
                )
                yield asked, statement.span, advice


def _float_scalars(plan: Plan) -> Iterator[_Refusal]:
    """Float scalars that need f64 where the target lacks it; comparisons of f32 values do not."""
    if DType.F64.value in plan.capabilities.dtypes:
        return
    for statement in walk.in_phases(plan.sketch.phases):
        for part in float_parts(statement):
            if not _held_by_f32(part):
                advice = (
                    "compare a fetched float with a literal, a param of at most f32 or another "
                    "fetched one; or compare tiles"
                )
                yield f"`{show(part)}` is computed in f64", statement.span, advice


def _held_by_f32(part: ir.Binary) -> bool:
    """True for a comparison whose sides are literals or scalars of a float type below f64."""
    return part.operator in COMPARISONS and all(
        isinstance(side, ir.Literal)
        or (isinstance(side, ir.Ref) and side.dtype.is_float and side.dtype is not DType.F64)
        for side in (part.left, part.right)
    )


def _computations(plan: Plan) -> Iterator[ir.Compute]:
    return (each for each in walk.in_phases(plan.sketch.phases) if isinstance(each, ir.Compute))


#: The checks, in order, with the code of what they find.
_CHECKS = (
    ("SK0703", _dtypes),
    ("SK0703", _operations),
    ("SK0703", _casts),
    ("SK0703", _numbers),
    ("SK0704", _atomics),
    ("SK0703", _float_scalars),
)


def _diagnostic(plan: Plan, code: str, asked: str, span: Span, advice: str) -> Diagnostic:
    message = f"{asked}, which {plan.target} cannot do"
    return error(span, code, message, "not on this target", help=advice)
