"""The versions of tiles during domain inference: which lanes are valid, and which only by `pad=`.

At a join of two branches the versions must agree (R12): not as text, but in the lanes that their
domains select where each branch ends.

An `init=` tile has one domain (R4). Every write contributes, per axis, the domains of the tile
operands that count there; variables of loops entered after the tile's `alloc` are existentially
quantified, ignoring trip counts. All writes into a tile must agree on each axis on which they say
something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Span, error
from sketchc.checker.domains import bounds
from sketchc.checker.facts import Scope, constant_value, inlined, monotonicity
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import names, substitute


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
    """The padding of a tile that has either of two versions."""
    return tuple(
        (a or b) if a is None or b is None or a == b else Padding()
        for a, b in zip(first, second, strict=True)
    )


def updated(before: Paddings, written: Paddings) -> Paddings:
    """The padding of a tile after lanes with the padding `written` overwrite some of its lanes."""
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
    """A domain in the names known outside the branch; None where it needs others."""
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


#: Per axis of the tile, the domains of the operands that count there; None where none does.
Axes = tuple[tuple[ir.AxisDomain, ...] | None, ...]


@records.frozen
class Write:
    """One write into an `init=` tile: the axis domains of its operands, the scope of the write, and
    the scope in which the tile was allocated."""

    axes: Axes
    scope: Scope
    born: Scope
    span: Span


class _Unquantifiable(Exception):
    """A bound uses an inner loop variable in a way that has no simple widest value."""

    def __init__(self, bound: ir.Expr, variable: str) -> None:
        self.bound = bound
        self.variable = variable
        super().__init__(show(bound))


def solve(
    sketch: ir.Sketch, before: Mapping[str, ir.Domain], writes: Mapping[str, Sequence[Write]]
) -> tuple[dict[str, ir.Domain], tuple[Diagnostic, ...]]:
    """One round of the fixpoint: the domains that follow from the writes of this round.

    Disagreements are reported only in the round in which no domain changes.
    """
    solved: dict[str, ir.Domain] = {}
    found: list[Diagnostic] = []
    for name in before:
        tile = sketch.tile(name)
        solved[name] = tuple(
            _axis(tile, axis, writes[name], found) for axis in range(len(tile.extents))
        )
    return solved, tuple(found) if solved == dict(before) else ()


def _axis(
    tile: ir.Tile, axis: int, writes: Sequence[Write], found: list[Diagnostic]
) -> ir.AxisDomain:
    extent = tile.extents[axis]
    said: list[tuple[Write, ir.AxisDomain]] = []
    for write in writes:
        domains = write.axes[axis]
        if domains is None:
            continue
        try:
            widened = [widest(domain, write.scope, write.born) for domain in domains]
        except _Unquantifiable as problem:
            found.append(_unquantifiable(tile, write, problem))
            continue
        said.append((write, bounds.minimal(write.born, widened, extent)))
    if not said:
        return ir.FULL
    born = said[0][0].born
    domain = bounds.minimal(born, [valid for _, valid in said], extent)
    odd = next(
        ((write, valid) for write, valid in said if not bounds.covers(born, domain, valid, extent)),
        None,
    )
    if odd is not None:
        found.append(_disagreement(tile, axis, odd, said))
    return domain


def widest(domain: ir.AxisDomain, scope: Scope, born: Scope) -> ir.AxisDomain:
    """The lanes that are valid in some iteration of the loops between `born` and `scope`."""
    lower = tuple(inlined(bound, scope, born.bindings) for bound in domain.lower)
    upper = tuple(inlined(bound, scope, born.bindings) for bound in domain.upper)
    for loop in reversed(scope.loops[len(born.loops) :]):
        using = [b for b in (*lower, *upper) if loop.variable in names(b)]
        if not using:
            continue
        ends = {_end(bound, loop, scope, bound in upper) for bound in using}
        if len(ends) != 1:  # the widest lower and upper bounds belong to different iterations
            raise _Unquantifiable(using[0], loop.variable)
        value = {loop.variable: ends.pop()}
        lower = tuple(simplify(substitute(bound, value)) for bound in lower)
        upper = tuple(simplify(substitute(bound, value)) for bound in upper)
    for bound in (*lower, *upper):
        for name in sorted(names(bound) - born.forms.keys()):  # a value fetched in between
            raise _Unquantifiable(bound, name)
    return ir.AxisDomain(lower, upper)


def _end(bound: ir.Expr, loop: ir.For, scope: Scope, is_upper: bool) -> ir.Expr:
    """The value of the loop variable, its first or last, at which the bound admits most lanes."""
    sign = monotonicity(scope.form(bound), scope.counter(loop), scope)
    if sign is None:
        raise _Unquantifiable(bound, loop.variable)
    if (sign < 0) == is_upper:
        return loop.start
    step = constant_value(scope.form(loop.step))
    if step not in (1, -1):
        raise _Unquantifiable(bound, loop.variable)
    return simplify(ir.Binary("-", loop.stop, ir.Literal(step)))


def _unquantifiable(tile: ir.Tile, write: Write, problem: _Unquantifiable) -> Diagnostic:
    return error(
        write.span,
        "SK0423",
        f"the valid lanes of `{tile.source_name}` cannot be stated outside the inner loop",
        f"valid lanes depend on `{problem.variable}` through `{show(problem.bound)}`",
        labels=(Label(tile.span, "lives longer than that loop"),),
        notes=("a tile with `init=` has one domain for its whole life (R4)",),
        help=f"allocate the tile inside the loop over `{problem.variable}`",
    )


def _disagreement(
    tile: ir.Tile,
    axis: int,
    odd: tuple[Write, ir.AxisDomain],
    said: Sequence[tuple[Write, ir.AxisDomain]],
) -> Diagnostic:
    other = next(pair for pair in said if pair[1] != odd[1])
    return error(
        odd[0].span,
        "SK0420",
        f"operands written into `{tile.source_name}` disagree about its valid lanes on axis {axis}",
        f"here {_words(odd[1])}",
        labels=(
            Label(other[0].span, f"but here {_words(other[1])}"),
            Label(tile.span, "one domain for its whole life"),
        ),
        notes=(
            "a tile with `init=` has one domain, that of the operands written into it (R4); "
            "with two, rows that do not exist would contribute",
        ),
        help=_same_lanes(tile, axis, odd[1], other[1]),
    )


def _same_lanes(tile: ir.Tile, axis: int, one: ir.AxisDomain, two: ir.AxisDomain) -> str:
    """The help on giving two operands the same lanes. One that has all lanes is no slice of a
    tensor, but an index tile or a tile that was filled, and is bounded by its `iota`."""
    bound = next((each.upper[0] for each in (one, two) if each.upper), None)
    if not (one.full or two.full) or bound is None:
        return "load both operands through slices with the same bounds"
    match bound:
        case ir.Binary("-", upper, lower):
            lanes = f"iota({show(tile.extents[axis])}, {show(lower)}, {show(upper)})"
        case _:
            lanes = f"iota({show(tile.extents[axis])}, 0, {show(bound)})"
    return (
        f"let the operand with all lanes have no others: from an index tile `{lanes}`, or loaded "
        "through a slice with the same bounds"
    )


def _words(domain: ir.AxisDomain) -> str:
    if domain.full:
        return "all lanes are valid"
    terms = [f"`{show(bound)} <= lane`" for bound in domain.lower]
    terms += [f"`lane < {show(bound)}`" for bound in domain.upper]
    return f"lanes with {' and '.join(terms)} are valid"
