"""The proofs of one sketch at one assignment of its constants (LANGUAGE section 6).

`prove` states, for an elaborated sketch with inferred domains, every claim with its verdict: scalar
subscripts in bounds, slices that fit, outputs covered, parallel iterations independent, loads that
find what an earlier phase wrote, tiles assigned before they are read. A refuted claim carries a
counter-example that was tried on concrete numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic
from sketchc.checker.claims import coverage, extents, initialisation, races, subscripts
from sketchc.checker.claims.reproduction import reproduced, without_contradictions
from sketchc.checker.claims.satisfiable import contradiction, refuses_all, vacuous
from sketchc.checker.facts import budget
from sketchc.checker.facts.answers import Finding
from sketchc.checker.facts.prover import Prover
from sketchc.checker.facts.sites import collect
from sketchc.checker.testing.testing import try_out
from sketchc.ir import nodes as ir
from sketchc.ir.guards import alternatives
from sketchc.ir.symbolic import conjuncts

#: How often accesses are judged anew because of launch checks that others of them made.
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
    result, found = _judged(sketch, allow_unproved)
    found = budget.attempt(
        "the cases of its conditions",
        budget.CLAIM,
        partial(_by_cases, result, found),
        lambda: found,
    )
    known = {require.condition for require in result.requires}
    if test:
        judged = found = reproduced(result, found, allow_unproved)
        found = budget.attempt(
            "runs at small sizes",
            budget.CHECK,
            lambda: try_out(result, judged, tried, shapes),
            lambda: judged,
        )
        sizes = dict.fromkeys(r for f in found for r in f.requires if r.condition not in known)
        result = records.evolve(result, requires=(*result.requires, *sizes))
    refused = test and refuses_all(result)
    if refused:
        found = vacuous(found)
    proofs = tuple(finding.proof for finding in without_contradictions(found))
    diagnostics = tuple(dict.fromkeys(d for finding in found for d in finding.diagnostics))
    if refused:
        diagnostics = (*diagnostics, contradiction(result))
    return result, proofs, diagnostics


def _judged(sketch: ir.Sketch, allow_unproved: bool) -> tuple[ir.Sketch, list[Finding]]:
    """The sketch with its generated launch checks, and a verdict on every claim. What the host
    checks before a launch, all claims know but the one that it was made for."""
    settled: list[Finding] = []
    rest: list[Finding] = []
    prover = Prover.of(sketch)
    sites = collect(sketch, prover.root)
    for _ in range(ROUNDS):
        found = [*extents.findings(prover), *subscripts.findings(prover, sites, allow_unproved)]
        before = set(map(_subject, settled))
        settled += [
            one
            for one in found
            if one.requires or (_is_proved(one) and _subject(one) not in before)
        ]
        rest = [one for one in found if not one.requires and not _is_proved(one)]
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
        *coverage.findings(prover, sites, allow_unproved),
        *races.findings(prover, sites, allow_unproved),
    ]


def _subject(finding: Finding) -> tuple[str, str]:
    return finding.proof.claim, finding.proof.subject


def _is_proved(finding: Finding) -> bool:
    return finding.proof.tier is ir.Tier.PROVED


# ---------------------------------------------------------------- one case at a time


def _by_cases(sketch: ir.Sketch, found: list[Finding]) -> list[Finding]:
    """What is open, tried in each case of a condition such as `G == 1 or G == C`: a claim that is
    proved in all of them is proved."""
    for require in sketch.requires:
        for part in conjuncts(require.condition):
            still = {_subject(one) for one in found if one.proof.tier is ir.Tier.UNPROVED}
            cases = alternatives(part)
            if not still:
                return found
            if not 1 < len(cases) <= CASE_LIMIT:
                continue
            for case in cases:
                still &= _proved_where(sketch, records.evolve(require, condition=case))
            found = [_in_each_case(one) if _subject(one) in still else one for one in found]
    return found


def _proved_where(sketch: ir.Sketch, case: ir.Require) -> set[tuple[str, str]]:
    """The claims that are proved where one more condition holds; none where a proof would rest on
    a further launch check."""
    narrowed = records.evolve(sketch, requires=(*sketch.requires, case))
    checked, found = _judged(narrowed, True)
    if checked.requires != narrowed.requires:
        return set()
    return set(map(_subject, found)) - {_subject(one) for one in found if not _is_proved(one)}


def _in_each_case(finding: Finding) -> Finding:
    detail = "shown for each case of a `require:`"
    return Finding(records.evolve(finding.proof, tier=ir.Tier.PROVED, detail=detail))
