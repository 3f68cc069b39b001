"""Launches one after the other whose work one could do (SK0655): they load the same elements, or
the second loads what the same iteration of the first has stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Severity, Span
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lints.regions import Region, Space, region
from sketchc.lints.separate_passes import report_passes
from sketchc.parsing import syntax


def run(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """One warning for each two neighbours on equal grids that could be one launch."""
    del tree
    for first, second in _neighbours(sketch.steps):
        found = _pair(sketch, sketch.phases[first], sketch.phases[second])
        if found is not None:
            yield found


def _neighbours(steps: Iterable[ir.HostStep]) -> Iterator[tuple[int, int]]:
    steps = tuple(steps)
    for one, other in pairwise(steps):
        if isinstance(one, ir.Launch) and isinstance(other, ir.Launch):
            yield one.phase, other.phase
    for step in steps:
        match step:
            case ir.HostFor(body=body):
                yield from _neighbours(body)
            case ir.HostIf(body=body, orelse=orelse):
                yield from _neighbours(body)
                yield from _neighbours(orelse)
            case _:
                pass


@records.frozen
class _Touch:
    """One access: its base tensor, and where and what it touches; None below a branch, or where
    only some lanes are touched."""

    tensor: str
    place: tuple[Space, Region] | None
    span: Span

    @property
    def equal(self) -> tuple[object, ...] | None:
        """What is equal for accesses of the same elements in the same iterations, none of which
        touches what another does."""
        if self.place is None or self.place[1].counters != len(self.place[0].counts):
            return None
        return (self.place[0].counts, self.place[1])


@records.define
class _Touches:
    """What a phase loads and stores; `counts` holds the loops of every list of statements,
    `straight` is lost where loops stand side by side or in branches."""

    loads: list[_Touch] = records.field(factory=list)
    stores: list[_Touch] = records.field(factory=list)
    straight: bool = True
    counts: tuple[tuple[ir.Expr, bool], ...] = ()

    @property
    def grid(self) -> tuple[tuple[ir.Expr, bool], ...]:
        return tuple(count for count in self.counts if count[1])


def _touches(sketch: ir.Sketch, phase: ir.Phase) -> _Touches:
    result = _Touches()

    def visit(body: tuple[ir.Statement, ...], space: Space | None) -> None:
        loops = sum(isinstance(each, ir.For | ir.If) for each in body)
        result.straight = result.straight and loops <= 1
        if space is not None and len(space.counts) > len(result.counts):
            result.counts = space.counts
        for statement in body:
            match statement:
                case ir.Load(access=access, where=where):
                    within = None if where is not None else space
                    result.loads.append(touch(access, within, statement.span))
                case ir.Fetch(access=access):
                    result.loads.append(touch(access, None, statement.span))
                case ir.Store(access=access, where=where):
                    within = None if where is not None else space
                    result.stores.append(touch(access, within, statement.span))
                case ir.Atomic(access=access):
                    result.stores.append(touch(access, None, statement.span))
                case ir.For():
                    visit(statement.body, None if space is None else space.within(statement))
                case ir.If():
                    result.straight = False
                    visit(walk.inside(statement), None)
                case _:
                    pass

    def touch(access: ir.Access, space: Space | None, span: Span) -> _Touch:
        place = None if space is None else (space, region(access, space))
        return _Touch(sketch.tensor(access.tensor).name, place, span)

    visit(phase.body, Space())
    return result


def _pair(sketch: ir.Sketch, first: ir.Phase, second: ir.Phase) -> Diagnostic | None:
    one, other = _touches(sketch, first), _touches(sketch, second)
    if not (one.straight and other.straight and one.grid and one.counts == other.counts):
        return None
    stored, loaded = ({each.tensor for each in part} for part in (one.stores, one.loads))
    if {each.tensor for each in other.stores} & (stored | loaded):
        return None
    at_first, at_second = (
        next(each.span for each in phase.body if isinstance(each, ir.For))
        for phase in (first, second)
    )
    handed = [load for load in other.loads if load.tensor in stored]
    if handed:
        if all(_handed_over(load, one) for load in handed):
            return _report(at_first, at_second, handed[0].span)
        return None
    known = {load.equal for load in one.loads if _innermost(load, one)}
    again = (load for load in other.loads if _innermost(load, other) and load.equal in known)
    common = next(again, None)
    return None if common is None else report_passes(at_first, at_second, common.span)


def _innermost(touch: _Touch, touches: _Touches) -> bool:
    """Whether it lies in all loops and meets no other iteration."""
    return touch.equal is not None and touch.equal[0] == touches.counts


def _handed_over(load: _Touch, first: _Touches) -> bool:
    """Whether the same iteration of the first launch stores what is loaded, and nothing else does:
    what a whole loop adds up is complete after it only."""
    stores = [store for store in first.stores if store.tensor == load.tensor]
    return (
        len(stores) == 1
        and _innermost(stores[0], first)
        and load.equal is not None
        and load.equal == stores[0].equal
    )


def _report(first: Span, second: Span, load: Span) -> Diagnostic:
    return Diagnostic(
        "SK0655",
        Severity.WARNING,
        "two launches over the same data could be one",
        load,
        "the same iteration of the launch before has just stored it",
        labels=(
            Label(first, "the first launch"),
            Label(second, "the second needs nothing of its other iterations"),
        ),
        help="do the work of both in one loop: what the first computes is in its tile",
    )
