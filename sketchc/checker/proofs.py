"""The proofs of one sketch at one assignment of its constants (LANGUAGE section 6).

`prove` states, for an elaborated sketch with inferred domains, every claim with its verdict: scalar
subscripts in bounds, slices that fit, outputs covered, parallel iterations independent, loads that
find what an earlier phase wrote, tiles assigned before they are read. A refuted claim carries a
counter-example that was tried on concrete numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker import coverage, extents, initialisation, races, subscripts
from sketchc.checker.prover import Prover
from sketchc.checker.sites import collect
from sketchc.checker.testing import try_out
from sketchc.diagnostics import Diagnostic


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
    prover = Prover.of(sketch)
    sites = collect(sketch, prover.root)
    found = [
        *extents.findings(prover),
        *subscripts.findings(prover, sites, allow_unproved),
        *initialisation.findings(prover),
        *coverage.findings(prover, sites, allow_unproved),
        *races.findings(prover, sites, allow_unproved),
    ]
    known = {require.condition for require in sketch.requires}
    generated: list[ir.Require] = []
    for require in (r for finding in found for r in finding.requires):
        if require.condition not in known:
            known.add(require.condition)
            generated.append(require)
    result = attrs.evolve(sketch, requires=(*sketch.requires, *generated))
    if test:
        found = try_out(result, found, tried, shapes)
        sizes = dict.fromkeys(r for f in found for r in f.requires if r.condition not in known)
        result = attrs.evolve(result, requires=(*result.requires, *sizes))
    proofs = tuple(finding.proof for finding in found)
    diagnostics = tuple(dict.fromkeys(d for finding in found for d in finding.diagnostics))
    return result, proofs, diagnostics
