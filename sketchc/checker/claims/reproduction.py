"""Counter-examples as the interpreter sees them, and one verdict for each claim.

The proofs find their counter-examples with arithmetic of their own. Before one is shown, the sketch
runs at exactly its sizes and params, and the rule must break there: else nothing is said but that
the claim is open, and what was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, DiagnosticError, UsageError
from sketchc.checker.facts import budget
from sketchc.checker.facts.answers import UNDECIDED, Finding, severity
from sketchc.checker.testing.workload import LANES_PER_UNIT, workload
from sketchc.ir import nodes as ir

#: Work of one run, in lanes: about a second.
RUN_LIMIT = 50_000_000
MEMORY_LIMIT = 256 * 2**20

_OPEN = {
    "in-bounds": ("SK0502", "cannot prove that the subscripts of `{}` stay inside"),
    "slice-fits": ("SK0504", "cannot prove that the slices of `{}` fit their tiles"),
    "covered": ("SK0511", "cannot prove that every element of `{}` is written"),
    "initialised": ("SK0531", "cannot prove that an earlier phase writes what is loaded from `{}`"),
    "independent": ("SK0522", "cannot prove that parallel iterations are independent in `{}`"),
}


def reproduced(
    sketch: ir.Sketch, findings: Sequence[Finding], allow_unproved: bool
) -> list[Finding]:
    """The findings, each counter-example tried: one that does not break its rule when the sketch
    runs with these numbers leaves its claim open."""
    bases = {view.name: view.base for view in sketch.views}
    broken: dict[object, frozenset[tuple[str, str]] | None] = {}
    result = []
    for finding in findings:
        proof, example = finding.proof, finding.proof.counter_example
        if proof.tier is not ir.Tier.REFUTED or example is None or proof.claim not in _OPEN:
            result.append(finding)
            continue
        numbers = (tuple(example.symbols.items()), tuple(example.params.items()))
        if numbers not in broken:
            broken[numbers] = _broken(sketch, example, bases)
        rules = broken[numbers]
        if rules is not None and (proof.claim, bases.get(proof.subject, proof.subject)) in rules:
            result.append(finding)
        else:
            why = "takes too long to run" if rules is None else "no run repeats"
            result.append(_opened(finding, why, allow_unproved))
    return result


def _broken(
    sketch: ir.Sketch, example: ir.CounterExample, bases: Mapping[str, str]
) -> frozenset[tuple[str, str]] | None:
    """The rules that a run at these numbers breaks, by claim and tensor; None where there is no
    run."""
    return budget.attempt(
        "a run of a counter-example",
        budget.CHECK,
        lambda: _run(sketch, example, bases),
        lambda: None,
    )


def _run(
    sketch: ir.Sketch, example: ir.CounterExample, bases: Mapping[str, str]
) -> frozenset[tuple[str, str]] | None:
    import numpy as np

    from sketchc.interpreter.api import Options, interpret
    from sketchc.interpreter.inputs import indices_exist, random_inputs
    from sketchc.interpreter.launch import bind_values, tensor_shapes

    params = {**{p.name: 1 for p in sketch.params if p.default is None}, **example.params}
    options = Options(collect=True, shuffle=1, memory_limit=MEMORY_LIMIT)
    try:
        values = bind_values(sketch, example.symbols, params)
        shapes = tensor_shapes(sketch, values, options.memory_limit)
        cost = workload(sketch, values, RUN_LIMIT)
        if cost is None or not indices_exist(sketch, shapes, params):
            return None
        budget.spend(cost // LANES_PER_UNIT)
        inputs = random_inputs(sketch, shapes, np.random.default_rng(0), params)
        result = interpret(sketch, inputs, dict(example.symbols), params, options)
    except (DiagnosticError, UsageError):
        return frozenset()
    return frozenset((v.kind, bases.get(v.tensor, v.tensor)) for v in result.violations)


def _opened(finding: Finding, why: str, allow_unproved: bool) -> Finding:
    """The claim as one that is neither proved nor refuted."""
    proof = finding.proof
    code, message = _OPEN[proof.claim]
    detail = "could be neither proved nor refuted"
    diagnostic = Diagnostic(
        code,
        severity(allow_unproved),
        message.format(proof.subject),
        proof.span,
        detail,
        notes=(UNDECIDED, f"tried: a counter-example that {why}: {proof.detail}"),
        help="state what makes it true in a `require:`",
    )
    opened = records.evolve(proof, tier=ir.Tier.UNPROVED, detail=detail, counter_example=None)
    return records.evolve(finding, proof=opened, diagnostics=(diagnostic,))


def without_contradictions(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those that say of some accesses of a tensor what others of them refute:
    a claim on one subject has one verdict."""
    refuted = {
        (finding.proof.claim, finding.proof.subject)
        for finding in findings
        if finding.proof.tier is ir.Tier.REFUTED
    }
    return [
        finding
        for finding in findings
        if finding.proof.tier in (ir.Tier.REFUTED, ir.Tier.UNPROVED)
        or (finding.proof.claim, finding.proof.subject) not in refuted
    ]
