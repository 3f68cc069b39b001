"""Claims held against executions: what is proved is kept by every run, and what is refuted is
broken by the run that the counter-example names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from sketchc.base.diagnostics import DiagnosticError, Source, UsageError, has_errors
from sketchc.checker.claims.proofs import prove
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.interpreter.launch import bind_values, tensor_shapes
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse

Claim = tuple[str, str]
Numbers = Mapping[str, int]


def elaborated(text: str) -> ir.Sketch:
    """The first sketch, with its domains."""
    tree, found = parse(Source("test", text))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert not has_errors(found), [d.message for d in found]
    assert sketch is not None
    sketch, found = infer_domains(sketch)
    assert not has_errors(found), [d.message for d in found]
    return sketch


def proved(text: str) -> tuple[ir.Sketch, dict[Claim, ir.Proof]]:
    """The first sketch with the worst proof of each claim and subject; nothing is tried out."""
    sketch, proofs, _ = prove(elaborated(text))
    order = list(ir.Tier)
    worst: dict[Claim, ir.Proof] = {}
    for proof in proofs:
        key = (proof.claim, proof.subject)
        known = worst.get(key)
        if known is None or order.index(proof.tier) > order.index(known.tier):
            worst[key] = proof
    return sketch, worst


def tiers(text: str) -> dict[str, ir.Tier]:
    """The tier of each claim by "claim subject", without trying anything out."""
    return {f"{claim} {subject}": p.tier for (claim, subject), p in proved(text)[1].items()}


def broken(
    sketch: ir.Sketch, symbols: Numbers, params: Mapping[str, int | float | bool] | None = None
) -> set[Claim] | None:
    """The claims that a run at these numbers breaks; None where a launch refuses them."""
    given = {p.name: 1 for p in sketch.params if p.default is None} | dict(params or {})
    try:
        values = bind_values(sketch, symbols, given)
        shapes = tensor_shapes(sketch, values, 2**26)
        inputs = random_inputs(sketch, shapes, np.random.default_rng(0), given)
        result = interpret(sketch, inputs, symbols, given, Options(collect=True, shuffle=1))
    except (DiagnosticError, UsageError):
        return None
    bases = {view.name: view.base for view in sketch.views}
    names = {tile.name: tile.source_name for tile in sketch.tiles}
    return {(v.kind, names.get(v.tensor, bases.get(v.tensor, v.tensor))) for v in result.violations}


def grid(sketch: ir.Sketch, sizes: tuple[int, ...]) -> Iterator[dict[str, int]]:
    """All assignments of these sizes to the symbols."""
    names = [symbol.name for symbol in sketch.symbols]
    for chosen in product(sizes, repeat=len(names)):
        yield dict(zip(names, chosen, strict=True))


def check_against_runs(
    text: str, sizes: tuple[int, ...] = (0, 1, 2, 3, 5), params: tuple[Numbers, ...] = ({},)
) -> dict[str, ir.Tier]:
    """Asserts that no run at these sizes breaks a proved claim, and that a run at the numbers of
    each counter-example breaks the refuted one. Returns the tiers."""
    sketch, proofs = proved(text)
    bases = {view.name: view.base for view in sketch.views}
    subject = {key: (key[0], bases.get(key[1], key[1])) for key in proofs}
    held = {subject[key] for key, proof in proofs.items() if proof.tier is ir.Tier.PROVED}
    refuted = {subject[k] for k, proof in proofs.items() if proof.tier is ir.Tier.REFUTED}
    for key, proof in proofs.items():
        example = proof.counter_example
        if proof.tier is ir.Tier.REFUTED and example is not None:
            wrong = broken(sketch, example.symbols, example.params)
            assert wrong is not None, (text, proof)
            # A store outside of its tensor is that, whatever else it is.
            assert wrong & {subject[key], ("in-bounds", subject[key][1])} & refuted, (text, proof)
    for symbols in grid(sketch, sizes):
        for some in params:
            wrong = (broken(sketch, symbols, some) or set()) & (held - refuted)
            assert not wrong, (text, symbols, some, wrong)
    return {f"{claim} {name}": proof.tier for (claim, name), proof in proofs.items()}
