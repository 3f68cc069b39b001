"""Whether any launch is accepted: conditions that contradict one another make every claim true."""

from __future__ import annotations

from collections.abc import Sequence

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Severity
from sketchc.checker.facts import budget
from sketchc.checker.facts.answers import Finding
from sketchc.checker.facts.enumeration import admissible_hosts
from sketchc.checker.facts.prover import Prover, Verdict
from sketchc.ir import nodes as ir

_VACUOUS = "no launch satisfies the conditions, so nothing is claimed"


def refuses_all(sketch: ir.Sketch) -> bool:
    """Whether it is certain that no sizes and params satisfy what a launch checks. Small sizes are
    tried first: nearly always some are accepted."""
    if not sketch.requires:
        return False
    return budget.attempt(
        "whether a launch is accepted", budget.EXACT, lambda: _refuses_all(sketch), lambda: False
    )


def _refuses_all(sketch: ir.Sketch) -> bool:
    if next(admissible_hosts(sketch), None) is not None:
        return False
    prover = Prover.of(sketch)
    return prover.refute(prover.root.facts, (), ()).verdict is Verdict.PROVED


def contradiction(sketch: ir.Sketch) -> Diagnostic:
    """The warning for such a sketch."""
    own = [require for require in sketch.requires if not require.generated]
    return Diagnostic(
        "SK0660",
        Severity.WARNING,
        f"no launch of `{sketch.name}` is accepted: its conditions contradict one another",
        own[-1].span if own else sketch.span,
        "no sizes and params satisfy all conditions",
        notes=("what is proved under conditions that nothing satisfies says nothing",),
        help="relax one of the `require:`s",
    )


def vacuous(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each proof saying what it is worth."""
    return [
        records.evolve(finding, proof=records.evolve(finding.proof, detail=_VACUOUS))
        if finding.proof.tier is ir.Tier.PROVED
        else finding
        for finding in findings
    ]
