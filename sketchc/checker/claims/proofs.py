"""The proofs of one sketch, for one assignment of its constants or for all (LANGUAGE section 6).

`prove` states, for an elaborated sketch with inferred domains, every claim with its verdict: scalar
subscripts in bounds, slices that fit, outputs covered, parallel iterations independent, loads that
find what an earlier phase wrote, tiles assigned before they are read. A refuted claim carries a
counter-example that was tried on concrete numbers.

The proofs find their counter-examples with arithmetic of their own. Before one is shown, the sketch
runs at exactly its sizes and params, and the rule must break there: else the report is only that
the claim is open, and what was tried. Conditions that contradict one another make every claim true,
so whether any launch is accepted is asked, too.

Proofs run again for each tuning point. Most sketches are right whatever their tile sizes, and then
one proof with the tunable constants as unknowns of at least 1 covers every point at once; only
where it does not succeed does each point need a proof of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    Severity,
    UsageError,
    has_errors,
    warning,
)
from sketchc.checker.claims import coverage, initialisation, races, subscripts
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.facts import Finding, Prover, Verdict, budget, collect, concrete, unproved
from sketchc.checker.testing.settings import Setting, executed
from sketchc.checker.testing.testing import try_out
from sketchc.ir import nodes as ir
from sketchc.ir.guards import alternatives
from sketchc.ir.symbolic import conjuncts

#: Work of one run, in lanes: about a second.
RUN_LIMIT = 50_000_000
MEMORY_LIMIT = 256 * 2**20


def reproduced(sketch: ir.Sketch, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each counter-example tried: one that does not break its rule when the sketch
    runs with these numbers leaves its claim open."""
    bases = {view.name: view.base for view in sketch.views}
    broken: dict[object, frozenset[tuple[str, str]] | None] = {}
    limit = budget.of_check(len(sketch.phases))
    result = []
    for finding in findings:
        proof, example = finding.proof, finding.proof.counter_example
        if proof.tier is not ir.Tier.REFUTED or example is None:
            result.append(finding)
            continue
        numbers = (tuple(example.symbols.items()), tuple(example.params.items()))
        if numbers not in broken:
            broken[numbers] = budget.attempt(
                "a run of a counter-example", limit, None, _broken, sketch, example, bases
            )
        rules = broken[numbers]
        if rules is not None and (proof.claim, bases.get(proof.subject, proof.subject)) in rules:
            result.append(finding)
        else:
            why = "takes too long to run" if rules is None else "no run repeats"
            result.append(_opened(finding, why))
    return result


def _broken(
    sketch: ir.Sketch, example: ir.CounterExample, bases: Mapping[str, str]
) -> frozenset[tuple[str, str]] | None:
    """The rules that a run at these numbers breaks, by claim and tensor; None without a run."""
    import numpy as np

    params = {**{p.name: 1 for p in sketch.params if p.default is None}, **example.params}
    setting = Setting(dict(example.symbols), params)
    try:
        done = executed(sketch, setting, RUN_LIMIT, MEMORY_LIMIT, np.random.default_rng(0))
    except (DiagnosticError, UsageError):
        return frozenset()
    if done is None:
        return None
    return frozenset((v.kind, bases.get(v.tensor, v.tensor)) for v in done[1].violations)


def _opened(finding: Finding, why: str) -> Finding:
    """The finding as one that leaves its claim open; `why`: the counter-example does not count."""
    proof = finding.proof
    tried = f"a counter-example that {why}: {proof.detail}"
    about, advice = finding.about, "state what makes it true in a `require:`"
    opened = unproved(*about, proof.span, advice, tried=tried)
    return records.evolve(opened, requires=finding.requires, testable=finding.testable)


def without_contradictions(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without the proofs, over some accesses, of a claim that another finding refutes:
    a claim on one subject has one verdict."""
    refuted = {finding.about for finding in findings if finding.proof.tier is ir.Tier.REFUTED}
    return [
        finding
        for finding in findings
        if finding.proof.tier in (ir.Tier.REFUTED, ir.Tier.UNPROVED) or finding.about not in refuted
    ]


_VACUOUS = "no launch satisfies the conditions, so nothing is claimed"


def refuses_all(sketch: ir.Sketch) -> bool:
    """Whether it is certain that no sizes and params satisfy what a launch checks. Small sizes are
    tried first: nearly always some are accepted."""
    if not sketch.requires:
        return False
    what = "whether a launch is accepted"
    return budget.attempt(what, budget.EXACT, False, _refuses_all, sketch)


def _refuses_all(sketch: ir.Sketch) -> bool:
    if next(concrete.admissible_hosts(sketch), None) is not None:
        return False
    prover = Prover.of(sketch)
    return prover.refute(prover.root.facts, (), ()).verdict is Verdict.PROVED


def contradiction(sketch: ir.Sketch) -> Diagnostic:
    """The warning for a sketch whose conditions no launch satisfies (SK0660)."""
    own = [require for require in sketch.requires if not require.generated]
    return warning(
        own[-1].span if own else sketch.span,
        "SK0660",
        f"no launch of `{sketch.name}` is accepted: its conditions contradict one another",
        "no sizes and params satisfy all conditions",
        notes=("what is proved under conditions that nothing satisfies says nothing",),
        help="relax one of the `require:`s",
    )


def vacuous(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where each proof says that no launch satisfies the conditions."""
    return [
        records.evolve(finding, proof=records.evolve(finding.proof, detail=_VACUOUS))
        if finding.proved
        else finding
        for finding in findings
    ]


#: How often accesses are judged: launch checks generated for some may prove others.
ROUNDS = 3
#: More cases than this are not told apart.
CASE_LIMIT = 6


def prove(
    sketch: ir.Sketch,
    allow_unproved: bool = False,
    test: bool = False,
    tried: Collection[tuple[str, str]] = (),
    shapes: Mapping[str, int] | None = None,
) -> tuple[ir.Sketch, tuple[ir.Proof, ...], tuple[Diagnostic, ...]]:
    """The sketch with generated launch checks added, all verdicts, and an error for every refuted
    or unproved one (a warning for the latter where `allow_unproved` is set). `test`: what is
    neither proved nor refuted is tried in the interpreter, but for those `tried` already (by
    claim and subject). `shapes`: sizes for which a proof is enough, since the host will check
    them."""
    result, found = _judged(sketch)
    what = "the cases of its conditions"
    found = budget.attempt(what, budget.CLAIM, found, _by_cases, result, found)
    known = {require.condition for require in result.requires}
    if test:
        found = reproduced(result, found)
        what, limit = "runs at small sizes", budget.of_check(len(result.phases))
        found = budget.attempt(what, limit, found, try_out, result, found, tried, shapes)
        sizes = dict.fromkeys(r for f in found for r in f.requires if r.condition not in known)
        result = records.evolve(result, requires=(*result.requires, *sizes))
    refused = test and refuses_all(result)
    if refused:
        found = vacuous(found)
    proofs = tuple(finding.proof for finding in without_contradictions(found))
    told = (d for one in found for d in _told(one, allow_unproved))
    diagnostics = tuple(dict.fromkeys(told))
    if refused:
        diagnostics = (*diagnostics, contradiction(result))
    return result, proofs, diagnostics


def _told(finding: Finding, allow_unproved: bool) -> Iterable[Diagnostic]:
    """The diagnostics of a finding; warnings for an open claim, where that is allowed."""
    if not allow_unproved or finding.proof.tier is not ir.Tier.UNPROVED:
        return finding.diagnostics
    return (records.evolve(found, severity=Severity.WARNING) for found in finding.diagnostics)


def _judged(sketch: ir.Sketch) -> tuple[ir.Sketch, list[Finding]]:
    """The sketch with its generated launch checks, and a verdict on every claim. A launch check is
    a fact for all claims but the one that it was generated for."""
    settled: list[Finding] = []
    rest: list[Finding] = []
    prover = Prover.of(sketch)
    sites = collect(sketch, prover.root)
    for _ in range(ROUNDS):
        found = [*subscripts.extent_findings(prover), *subscripts.findings(prover, sites)]
        before = {one.about for one in settled}
        settled += [
            one for one in found if one.requires or (one.proved and one.about not in before)
        ]
        rest = [one for one in found if not one.requires and not one.proved]
        known = {require.condition for require in sketch.requires}
        new = {r.condition: r for one in found for r in one.requires if r.condition not in known}
        if not new:
            break
        sketch = records.evolve(sketch, requires=(*sketch.requires, *new.values()))
        prover = Prover.of(sketch)
        sites = collect(sketch, prover.root)
        if not rest:
            break
    return sketch, [
        *settled,
        *rest,
        *initialisation.findings(prover),
        *coverage.findings(prover, sites),
        *races.findings(prover, sites),
    ]


# ---------------------------------------------------------------- one case at a time


def _by_cases(sketch: ir.Sketch, found: list[Finding]) -> list[Finding]:
    """The findings, where an open claim is tried in each case of a condition (`G == 1 or G == C`):
    a claim that is proved in all of them is proved."""
    for require in sketch.requires:
        for part in conjuncts(require.condition):
            still = {one.about for one in found if one.proof.tier is ir.Tier.UNPROVED}
            cases = alternatives(part)
            if not still:
                return found
            if not 1 < len(cases) <= CASE_LIMIT:
                continue
            for case in cases:
                still &= _proved_where(sketch, records.evolve(require, condition=case))
            found = [_in_each_case(one) if one.about in still else one for one in found]
    return found


def _proved_where(sketch: ir.Sketch, case: ir.Require) -> set[tuple[str, str]]:
    """The claims that are proved where one more condition holds; none where a proof would rest on
    a further launch check."""
    narrowed = records.evolve(sketch, requires=(*sketch.requires, case))
    checked, found = _judged(narrowed)
    if checked.requires != narrowed.requires:
        return set()
    return {one.about for one in found} - {one.about for one in found if not one.proved}


def _in_each_case(finding: Finding) -> Finding:
    detail = "shown for each case of a `require:`"
    return Finding(records.evolve(finding.proof, tier=ir.Tier.PROVED, detail=detail))


def proved_for_all(sketch: ir.Sketch, known: Collection[tuple[str, str]] = ()) -> bool:
    """True if every claim of an elaborated sketch holds for all tunable constants >= 1; `known` are
    claims by name and subject that need no proof.

    False means only that this proof did not succeed.
    """
    names = frozenset(c.name for c in sketch.constants if c.tunable and c.dtype.is_integer)
    if not names:
        return False
    inferred, found = infer_domains(with_symbols(sketch, names))
    if found:
        return False
    what = "a proof for all tile sizes"
    proved = budget.attempt(what, budget.CLAIM, None, prove, inferred, allow_unproved=True)
    if proved is None:
        return False
    _, proofs, found = proved
    open_claims = [proof for proof in proofs if proof.tier is not ir.Tier.PROVED]
    return not has_errors(found) and all(
        proof.tier is ir.Tier.UNPROVED and (proof.claim, proof.subject) in known
        for proof in open_claims
    )


def same_but_for_tiles(left: ir.Sketch, right: ir.Sketch) -> bool:
    """True if two elaborations of one sketch differ in the values of tunable constants at most."""
    own = {c.name: c for c in left.constants}
    constants = tuple(own.get(c.name, c) if c.tunable else c for c in right.constants)
    return records.evolve(right, constants=constants) == left


def with_symbols(sketch: ir.Sketch, names: frozenset[str]) -> ir.Sketch:
    """The sketch with these constants as symbols of at least 1."""
    at_least_one = tuple(
        ir.Require(ir.Binary(">=", ir.Ref(name, ir.NameKind.SYMBOL), ir.Literal(1)), f"{name} >= 1")
        for name in sorted(names)
    )
    kept = tuple(constant for constant in sketch.constants if constant.name not in names)
    renamed: ir.Sketch = _rename(records.evolve(sketch, constants=kept), names)
    return records.evolve(
        renamed,
        symbols=(*sketch.symbols, *(ir.Symbol(name) for name in sorted(names))),
        requires=(*renamed.requires, *at_least_one),
    )


def _rename(node: Any, names: frozenset[str]) -> Any:
    """The node with references to the constants `names` turned into references to symbols."""
    if isinstance(node, ir.Ref):
        if node.kind is ir.NameKind.CONSTANT and node.name in names:
            return records.evolve(node, kind=ir.NameKind.SYMBOL)
        return node
    if isinstance(node, tuple):
        renamed = tuple(_rename(item, names) for item in node)
        changed = any(new is not old for new, old in zip(renamed, node, strict=True))
        return renamed if changed else node
    if isinstance(node, Mapping | str) or not records.has(type(node)):
        return node
    changes = {}
    for field in records.fields(type(node)):
        if not field.name.endswith("span"):
            old = getattr(node, field.name)
            new = _rename(old, names)
            if new is not old:
                changes[field.name] = new
    return records.evolve(node, **changes) if changes else node
