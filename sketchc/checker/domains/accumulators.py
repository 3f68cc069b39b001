"""The one domain of each `init=` tile (LANGUAGE R4).

Every write contributes, per axis, the domains of the tile operands that count there; variables of
loops entered after the tile's `alloc` are existentially quantified, ignoring trip counts. All
writes into a tile must agree on each axis on which they say something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Severity, Span
from sketchc.checker.domains import bounds
from sketchc.checker.facts.affine import constant_value
from sketchc.checker.facts.monotonicity import inlined, slope
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import names, substitute

#: Per axis of the tile, the domains of the operands that count there; None where none does.
Axes = tuple[tuple[ir.AxisDomain, ...] | None, ...]


@records.frozen
class Write:
    """One write into an `init=` tile: what its operands say, the scope of the write, and the scope
    in which the tile was allocated."""

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
    """One round of the fixpoint: the domains that follow from the writes as they stand.

    Disagreements are reported only when nothing changed any more.
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
    sign = slope(scope.form(bound), scope.counter(loop), scope)
    if sign is None:
        raise _Unquantifiable(bound, loop.variable)
    if (sign < 0) == is_upper:
        return loop.start
    step = constant_value(scope.form(loop.step))
    if step not in (1, -1):
        raise _Unquantifiable(bound, loop.variable)
    return simplify(ir.Binary("-", loop.stop, ir.Literal(step)))


def _unquantifiable(tile: ir.Tile, write: Write, problem: _Unquantifiable) -> Diagnostic:
    return Diagnostic(
        "SK0423",
        Severity.ERROR,
        f"the valid lanes of `{tile.source_name}` cannot be stated outside the inner loop",
        write.span,
        f"valid lanes depend on `{problem.variable}` through `{show(problem.bound)}`",
        (Label(tile.span, "lives longer than that loop"),),
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
    return Diagnostic(
        "SK0420",
        Severity.ERROR,
        f"operands written into `{tile.source_name}` disagree about its valid lanes on axis {axis}",
        odd[0].span,
        f"here {_words(odd[1])}",
        (
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
    """How two operands come to have the same lanes. One that has all of them is no slice of a
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
