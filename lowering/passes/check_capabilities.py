"""Refuse, before any code is written, what the target cannot do."""

from __future__ import annotations

import attrs

from sketchc import ir
from sketchc.diagnostics import Diagnostic, DiagnosticError, Severity
from sketchc.lowering.plan import Plan, walk
from sketchc.source import Span


@attrs.frozen
class CheckCapabilities:
    """Raise `DiagnosticError` with SK0703 (dtype or operation) or SK0705 (precision).

    Why: a user learns in the sketch's own terms, not from a vendor's compiler.
    Requires: an elaborated sketch. Ensures: every dtype, operation and precision used is one that
    the target states in its capabilities.
    """

    def run(self, plan: Plan) -> Plan:
        found = [*self._dtypes(plan), *self._statements(plan)]
        if found:
            raise DiagnosticError(found)
        return plan

    def _dtypes(self, plan: Plan) -> list[Diagnostic]:
        known = plan.capabilities.dtypes
        return [
            _refusal(
                plan,
                "SK0703",
                f"{what} `{declared.name}` is {declared.dtype.value}",
                declared.span,
                f"{plan.target} takes {', '.join(sorted(known))}",
            )
            for what, group in (("tensor", plan.sketch.tensors), ("tile", plan.sketch.tiles))
            for declared in group
            if declared.dtype.value not in known
        ]

    def _statements(self, plan: Plan) -> list[Diagnostic]:
        found = []
        capabilities = plan.capabilities
        for phase in plan.sketch.phases:
            for statement in walk(phase.body):
                if not isinstance(statement, ir.Compute):
                    continue
                operation = statement.operation
                if operation in capabilities.ops_missing:
                    message = f"operation `{operation}`"
                    advice = "use other operations, or another target"
                    found.append(_refusal(plan, "SK0703", message, statement.span, advice))
                precision = statement.attributes.get("precision")
                if precision is not None and precision not in capabilities.precisions:
                    message = f'precision "{precision}"'
                    advice = f"{plan.target} offers {', '.join(sorted(capabilities.precisions))}"
                    found.append(_refusal(plan, "SK0705", message, statement.span, advice))
        return found


def _refusal(plan: Plan, code: str, message: str, span: Span, advice: str) -> Diagnostic:
    return Diagnostic(
        code=code,
        severity=Severity.ERROR,
        message=f"{message}, which {plan.target} cannot do",
        span=span,
        label="not on this target",
        help=advice,
    )
