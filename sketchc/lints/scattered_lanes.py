"""Accesses whose neighbouring lanes are not neighbours in memory (SK0652)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, warning
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ir.symbolic import constant_value, simplify
from sketchc.ir.walk import access_names, children, has_lanes, references, substitute
from sketchc.parsing import syntax

_ONE = ir.Literal(1)
#: The least number of bytes that memory moves at once; neighbours nearer than that share them.
_LINE = 32


def scattered_lanes(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Warnings for loads and stores whose neighbouring lanes are not neighbours in the innermost
    dimension, unless other accesses and iterations nearby touch the elements in between.

    Indices that come from memory are left alone: the data decides where they point.
    """
    for phase in sketch.phases:
        statements = list(walk.statements(phase.body))
        bound = {each.name: each.value for each in statements if isinstance(each, ir.Bind)}
        accesses = [each for each in statements if isinstance(each, ir.Load | ir.Store)]
        for statement in accesses:
            gap = _gap(sketch, statement.access, sketch.tile(statement.tile), bound)
            if gap is None:
                continue
            bytes_each = sketch.tensor(statement.access.tensor).dtype.bytes
            around = _around(phase.body, statement)
            beside = _beside(statement, accesses, around, bound) * bytes_each
            least = _LINE if gap.elements is None else min(gap.elements * bytes_each, _LINE)
            near = gap.elements is not None and gap.elements * bytes_each < _LINE
            if not near and beside < least:
                yield _report(statement, f"neighbouring lanes lie {gap.text} apart")


@records.frozen
class _Gap:
    """The distance of neighbouring lanes: as text, and in elements where that is known."""

    text: str
    elements: int | None


def _gap(
    sketch: ir.Sketch, access: ir.Access, tile: ir.Tile, bound: Mapping[str, ir.Expr]
) -> _Gap | None:
    """The distance of neighbouring lanes where it may be more than one element. Dimensions of
    extent 1 do not count."""
    dimensions = [
        (subscript, extent)
        for subscript, extent in zip(access.subscripts, sketch.extents(access.tensor), strict=True)
        if extent != _ONE
    ]
    if not dimensions or all(extent == _ONE for extent in tile.extents):
        return None
    if any(isinstance(part, ir.IndexSubscript) and part.loaded for part, _ in dimensions):
        return None
    *outer, (innermost, extent) = dimensions
    match innermost:
        case ir.ScalarSubscript():
            if any(not isinstance(part, ir.ScalarSubscript) for part, _ in outer):
                return _product(_between(outer, extent))
            return None
        case ir.SliceSubscript(step=step):
            if tile.extents[-1] == _ONE:
                return None
            return _step(step)
        case ir.IndexSubscript():
            axis = next(
                axis for axis in range(1, len(tile.extents) + 1) if tile.extents[-axis] != _ONE
            )
            if _takes_apart(innermost.value, bound):
                return None
            if _varies(innermost, axis):
                factor = _coefficient(innermost.value, bound)
                return None if factor is None else _step(factor)
            still = [extent]
            for subscript, outer_extent in reversed(outer):
                if _varies(subscript, axis):
                    return _product(still)
                still.insert(0, outer_extent)
            return None
        case _:
            assert_never(innermost)


def _step(step: ir.Expr) -> _Gap:
    known = constant_value(step)
    return _Gap(f"`{show(step)}` elements", None if known is None else abs(known))


def _coefficient(value: ir.Expr, bound: Mapping[str, ir.Expr]) -> ir.Expr | None:
    """The factor of the only `iota` in an index; None where an index has several, or other
    arithmetic than sums and products."""
    match value:
        case ir.Iota():
            return _ONE
        case ir.Ref(name=name) if name in bound:
            return _coefficient(bound[name], bound)
        case ir.Binary("+" | "-", left, right):
            sides = [side for side in (left, right) if has_lanes(side, bound)]
            return _coefficient(sides[0], bound) if len(sides) == 1 else None
        case ir.Binary("*", left, right):
            if has_lanes(left, bound) and has_lanes(right, bound):
                return None
            lanes, factor = (left, right) if has_lanes(left, bound) else (right, left)
            inner = _coefficient(lanes, bound)
            return None if inner is None else simplify(ir.Binary("*", inner, factor))
        case _:
            return None


def _around(body: tuple[ir.Statement, ...], wanted: ir.Statement) -> list[ir.For]:
    """The sequential loops around a statement, outermost first."""
    for statement in body:
        inner = walk.inside(statement)
        if any(each is wanted for each in walk.statements(inner)):
            own = [statement] if isinstance(statement, ir.For) and not statement.parallel else []
            return own + _around(inner, wanted)
    return []


def _turns(access: ir.Access, loop: ir.For, bound: Mapping[str, ir.Expr]) -> range:
    """The distances of the elements of all iterations from those of the first, where a loop of
    constant range moves an access by a constant along the last dimension alone; else only 0."""
    still = range(1)
    start, stop, step = map(constant_value, (loop.start, loop.stop, loop.step))
    *outer, last = access.subscripts
    if start is None or stop is None or not step or not isinstance(last, ir.ScalarSubscript):
        return still
    if any(loop.variable in _names(part, bound) for part in outer):
        return still
    index = substitute(last.index, bound)
    name = ir.Ref(loop.variable, ir.NameKind.LOOP)
    after = substitute(index, {loop.variable: ir.Binary("+", name, loop.step)})
    before = substitute(index, {loop.variable: name})
    moved = constant_value(simplify(ir.Binary("-", after, before)))
    turns = len(range(start, stop, step))
    return range(0, moved * min(turns, _LINE), moved) if moved and turns else still


def _names(part: ir.Subscript, bound: Mapping[str, ir.Expr]) -> set[str]:
    found = access_names(ir.Access("", (part,)))
    return found | {ref.name for each in found & bound.keys() for ref in references(bound[each])}


def _beside(
    statement: ir.Load | ir.Store,
    accesses: list[ir.Load | ir.Store],
    around: list[ir.For],
    bound: Mapping[str, ir.Expr],
) -> int:
    """How many elements side by side are touched by `statement` and the accesses that differ from
    it by constants in the last subscript, in all iterations of the two innermost loops `around`."""
    offsets = {0}
    for other in accesses:
        if type(other) is type(statement):
            found = _offset(statement.access, other.access)
            offsets |= set() if found is None else {found}
    for loop in list(reversed(around))[:2]:
        turns = _turns(statement.access, loop, bound)
        offsets = {offset + turn for offset in offsets for turn in turns}
    first = last = 0
    while first - 1 in offsets:
        first -= 1
    while last + 1 in offsets:
        last += 1
    return last - first + 1


def _offset(one: ir.Access, other: ir.Access) -> int | None:
    """How many elements the access `other` lies behind `one` along the last dimension; None where
    that is not constant or they differ otherwise."""
    if one.tensor != other.tensor or one.subscripts[:-1] != other.subscripts[:-1]:
        return None
    match one.subscripts[-1], other.subscripts[-1]:
        case ir.ScalarSubscript(mine), ir.ScalarSubscript(theirs):
            pass
        case ir.SliceSubscript(mine, step=step), ir.SliceSubscript(theirs, step=wanted):
            if step != wanted:
                return None
        case ir.IndexSubscript(mine), ir.IndexSubscript(theirs):
            pass
        case _:
            return None
    return constant_value(simplify(ir.Binary("-", theirs, mine)))


def _takes_apart(value: ir.Expr, bound: Mapping[str, ir.Expr]) -> bool:
    """Whether an index contains a quotient or a remainder: one axis of the tile then stands for
    several dimensions, and no other order of these need be better."""
    match value:
        case ir.Binary(operator="//" | "%" | "cdiv"):
            return True
        case ir.Ref(name=name) if name in bound:
            return _takes_apart(bound[name], bound)
        case _:
            return any(_takes_apart(part, bound) for part in children(value))


def _varies(subscript: ir.Subscript, axis: int) -> bool:
    """Whether an index in lane form varies along a tile's axis, counted from the last, 1."""
    return (
        isinstance(subscript, ir.IndexSubscript)
        and subscript.axis is None
        and len(subscript.extents) >= axis
        and subscript.extents[-axis] != _ONE
    )


def _between(outer: list[tuple[ir.Subscript, ir.Expr]], innermost: ir.Expr) -> list[ir.Expr]:
    """The extents of the dimensions behind the last one that has lanes."""
    extents = [innermost]
    for subscript, extent in reversed(outer):
        if not isinstance(subscript, ir.ScalarSubscript):
            break
        extents.insert(0, extent)
    return extents


def _product(extents: list[ir.Expr]) -> _Gap:
    known = [constant_value(extent) for extent in extents]
    text = "`" + "*".join(show(extent) for extent in extents) + "` elements"
    return _Gap(text, None if None in known else prod(n for n in known if n is not None))


def _report(statement: ir.Load | ir.Store, why: str) -> Diagnostic:
    verb = "load" if isinstance(statement, ir.Load) else "store"
    return warning(
        statement.access.span,
        "SK0652",
        f"the {verb} is not contiguous: {why}",
        "each lane touches a memory line of its own",
        notes=(
            "hardware moves whole lines (32 to 128 bytes); of such an access one element of each "
            "is used",
        ),
        help="let the tile's last axis run along the tensor's last dimension, and `transpose` the "
        "tile where the other order is wanted",
    )
