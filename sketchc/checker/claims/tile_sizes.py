"""One proof for all tile sizes: the tunable constants taken as symbols.

Proofs run again for each tuning point. Most sketches are right whatever their tile sizes, and then
one proof with the tunable constants as unknowns of at least 1 covers every point at once; only
where it does not succeed does each point need a proof of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import has_errors
from sketchc.checker.claims.proofs import prove
from sketchc.checker.domains.inference import infer_domains
from sketchc.checker.facts import budget
from sketchc.ir import nodes as ir


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
    proved = budget.attempt(
        "a proof for all tile sizes",
        budget.CLAIM,
        lambda: prove(inferred, allow_unproved=True),
        lambda: None,
    )
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
    values = {c.name: c.value for c in left.constants}
    constants = tuple(
        records.evolve(c, value=values.get(c.name, c.value), chosen_by="") if c.tunable else c
        for c in right.constants
    )
    expected = tuple(records.evolve(c, chosen_by="") if c.tunable else c for c in left.constants)
    return constants == expected and records.evolve(right, constants=left.constants) == left


def with_symbols(sketch: ir.Sketch, names: frozenset[str]) -> ir.Sketch:
    """The sketch with these constants as symbols of at least 1."""
    at_least_one = tuple(
        ir.Require(ir.Binary(">=", ir.Ref(name, ir.NameKind.SYMBOL), ir.Literal(1)), f"{name} >= 1")
        for name in sorted(names)
    )
    return records.evolve(
        sketch,
        symbols=(*sketch.symbols, *(ir.Symbol(name) for name in sorted(names))),
        constants=tuple(c for c in sketch.constants if c.name not in names),
        lets=_rename(sketch.lets, names),
        tensors=_rename(sketch.tensors, names),
        views=_rename(sketch.views, names),
        requires=(*_rename(sketch.requires, names), *at_least_one),
        tiles=_rename(sketch.tiles, names),
        phases=_rename(sketch.phases, names),
        schedule=_rename(sketch.schedule, names),
    )


def _rename(node: Any, names: frozenset[str]) -> Any:
    """The same nodes with references to the constants as references to symbols."""
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
