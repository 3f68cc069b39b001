"""The versions of tiles during domain inference: which lanes are valid, and which only by `pad=`.

At a join of two branches the versions must agree (R12): not in words, but in the lanes that they
mean where each branch ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sketchc.base import records
from sketchc.checker.domains import bounds
from sketchc.checker.facts.monotonicity import inlined
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir.walk import changed, names


@records.frozen
class Padding:
    """Lanes that are valid only by `pad=`: the `value` that each of them holds, None where that is
    not known."""

    value: int | float | bool | None = None


#: For each axis of a tile, its padding; None for an axis that is valid without any.
Paddings: TypeAlias = tuple[Padding | None, ...]


@records.frozen
class Version:
    """What a tile holds at one place. `padded`: the axes valid only by `pad=` (R5). `torn`: the
    other branch's domain, where the branches of this `if` left different ones."""

    domain: ir.Domain
    padded: Paddings
    torn: tuple[ir.If, ir.Domain] | None = None


def plain(domain: ir.Domain) -> Version:
    """A version without padded lanes."""
    return Version(domain, tuple(None for _ in domain))


def either(first: Paddings, second: Paddings) -> Paddings:
    """The padding of a tile that is the one version or the other."""
    return tuple(
        (a or b) if a is None or b is None or a == b else Padding()
        for a, b in zip(first, second, strict=True)
    )


def updated(before: Paddings, written: Paddings) -> Paddings:
    """The padding of a tile some of whose lanes are written."""
    return tuple(a if a == b else Padding() for a, b in zip(before, written, strict=True))


def joined(
    branch: ir.If,
    tile: ir.Tile,
    one: tuple[Version, Scope],
    two: tuple[Version, Scope],
    outer: Scope,
) -> Version:
    """The version after an `if`; the scopes are those at the end of its branches."""
    (first, then), (second, otherwise) = one, two
    padded = either(first.padded, second.padded)
    torn = first.torn or second.torn
    left = _outside(first.domain, then, outer)
    right = _outside(second.domain, otherwise, outer)
    for domain in (left, right):
        if domain is None:
            continue
        if _same(then, first.domain, domain, tile) and _same(
            otherwise, second.domain, domain, tile
        ):
            return Version(domain, padded, torn)
    return Version(first.domain, padded, torn or (branch, second.domain))


def _outside(domain: ir.Domain, inner: Scope, outer: Scope) -> ir.Domain | None:
    """A domain in the names known outside the branch; None where that cannot be said."""
    result = []
    for axis in domain:
        sides = []
        for side in (axis.lower, axis.upper):
            written = tuple(inlined(bound, inner, outer.bindings) for bound in side)
            if any(names(bound) - outer.forms.keys() for bound in written):
                return None
            sides.append(written)
        result.append(ir.AxisDomain(*sides))
    return tuple(result)


def _same(scope: Scope, one: ir.Domain, two: ir.Domain, tile: ir.Tile) -> bool:
    return all(
        a == b or (bounds.covers(scope, a, b, extent) and bounds.covers(scope, b, a, extent))
        for a, b, extent in zip(one, two, tile.extents, strict=True)
    )


def renewed(value: ir.Expr, domain: Callable[[str], ir.Domain]) -> ir.Expr:
    """An expression in which the lanes of tiles have the domains of the versions read."""
    if isinstance(value, ir.TileLanes):
        return records.evolve(value, domain=domain(value.tile))
    return changed(value, lambda part: renewed(part, domain))
