"""Passes over the same data that could be one (SK0655): loops side by side, or launches that load
the same elements or those that the launch before has stored; and the maximum before a sum of
exponentials (SK0656). Regions are compared in a normal form, whatever loop variables are called."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Span, warning
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import normalize, rebuild
from sketchc.ir.walk import bodies, references, subscript_parts, substitute, writes
from sketchc.lints.uses import exposed, stored, updates
from sketchc.parsing import syntax

#: One subscript: its parts in normal form.
_Part: TypeAlias = tuple[ir.Expr, ...]
_COUNTER = "counter "
#: The statements that access tensors.
Moving: TypeAlias = ir.Load | ir.Store | ir.Atomic | ir.Fetch


@records.frozen
class Space:
    """Loops around a statement, outermost first, as if each counted 0, 1, ...: how often each runs
    and whether in parallel, and each loop variable as an expression of the counters."""

    counts: tuple[tuple[ir.Expr, bool], ...] = ()
    variables: tuple[tuple[str, ir.Expr], ...] = ()

    def within(self, loop: ir.For) -> Space:
        """The space of the loop's body."""
        known = dict(self.variables)
        start, stop, step = (substitute(e, known) for e in (loop.start, loop.stop, loop.step))
        count = _normal(ir.Binary("cdiv", ir.Binary("-", stop, start), step))
        counter = ir.Ref(f"{_COUNTER}{len(self.counts)}", ir.NameKind.LOOP)
        value = ir.Binary("+", start, ir.Binary("*", step, counter))
        return Space(
            (*self.counts, (count, loop.parallel)), (*self.variables, (loop.variable, value))
        )


@records.frozen
class Region:
    """The elements of a tensor or view that one iteration touches."""

    tensor: str
    parts: tuple[_Part, ...]

    @property
    def counters(self) -> int:
        """The number of loops of the space on which the region depends."""
        used = {ref.name for part in self.parts for e in part for ref in references(e)}
        return sum(name.startswith(_COUNTER) for name in used)


def region(access: ir.Access, space: Space) -> Region:
    """The region that `access` touches in an iteration of `space`. Bindings in index tiles keep
    their names."""
    known = dict(space.variables)
    return Region(
        access.tensor,
        tuple(
            tuple(_normal(substitute(part, known)) for part in subscript_parts(subscript))
            for subscript in access.subscripts
        ),
    )


def _normal(expression: ir.Expr) -> ir.Expr:
    return rebuild(normalize(expression))


def separate_passes(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Warnings for pairs of sibling loops with equal ranges that load the same elements."""
    for phase in sketch.phases:
        for body in bodies(phase.body):
            loops = [
                (position, statement)
                for position, statement in enumerate(body)
                if isinstance(statement, ir.For) and not statement.parallel
            ]
            for (start, first), (end, second) in pairwise(loops):
                yield from _pair(sketch, first, second, body[start + 1 : end])


def _pair(
    sketch: ir.Sketch, first: ir.For, second: ir.For, between: tuple[ir.Statement, ...]
) -> Iterator[Diagnostic]:
    one, other = Space().within(first), Space().within(second)
    if one.counts != other.counts:
        return
    common = _common(first, one, second, other)
    loaded = walk.bases(sketch, second.body, ir.Load)
    if common is None or stored(sketch, first.body) & loaded:
        return
    made = {
        tile for statement in walk.statements((*first.body, *between)) for tile in writes(statement)
    }
    needed = exposed(second.body) & made
    if not needed:
        yield report_passes(first.span, second.span, common.span)
    elif not stored(sketch, second.body) and needed <= _maxima(first) and _sums(second):
        yield _report_online(first, second, common)


def _common(first: ir.For, one: Space, second: ir.For, other: Space) -> ir.Load | None:
    """A load of the second loop whose elements the first loop loads, too; else None."""
    known = {region(each.access, one) for each in first.body if isinstance(each, ir.Load)}
    loads = (each for each in second.body if isinstance(each, ir.Load))
    return next((load for load in loads if region(load.access, other) in known), None)


def _maxima(loop: ir.For) -> set[str]:
    """The tiles that a loop updates by `max` with themselves as an operand."""
    return {
        statement.destination
        for statement in walk.statements(loop.body)
        if isinstance(statement, ir.Compute) and statement.operation == "max" and updates(statement)
    }


def _sums(loop: ir.For) -> bool:
    names = {each.operation for each in walk.statements(loop.body) if isinstance(each, ir.Compute)}
    return "reduce_sum" in names and bool(names & {"exp", "exp2"})


def report_passes(first: Span, second: Span, common: Span) -> Diagnostic:
    """The warning that two passes, at these spans, both load the elements at `common` (SK0655)."""
    return warning(
        common,
        "SK0655",
        "two passes over the same data could be one",
        "loaded again",
        labels=(
            Label(first, "the first pass"),
            Label(second, "the second needs nothing that the first computes"),
        ),
        help="do the work of both in one loop: the elements are then moved once",
    )


def _report_online(first: ir.For, second: ir.For, common: ir.Load) -> Diagnostic:
    return warning(
        common.span,
        "SK0656",
        "the maximum and the sum of exponentials can be taken in one pass",
        "loaded again",
        labels=(Label(first.span, "finds the maximum"), Label(second.span, "sums with it")),
        notes=(
            "carry both: with the new maximum m' of a block, s' = s*exp(m - m') + sum(exp(x - m')) "
            "(online softmax, Milakov and Gimelshein 2018)",
        ),
        help="see examples/online_softmax.sketch",
    )


def fusable_launches(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """One warning for each two neighbouring launches on equal grids that could be one."""
    for first, second in (pair for steps in bodies(sketch.steps) for pair in pairwise(steps)):
        if isinstance(first, ir.Launch) and isinstance(second, ir.Launch):
            found = _launches(sketch, sketch.phases[first.phase], sketch.phases[second.phase])
            if found is not None:
                yield found


@records.frozen
class _Footprint:
    """The elements that one access touches: its base tensor and `place`, the loops around it and
    the region; None below a branch, or where only some lanes are touched."""

    tensor: str
    place: tuple[Space, Region] | None
    span: Span

    @property
    def equal(self) -> tuple[object, ...] | None:
        """A key that is equal for accesses of the same elements in the same iterations; None where
        different iterations may touch the same element."""
        if self.place is None or self.place[1].counters != len(self.place[0].counts):
            return None
        return (self.place[0].counts, self.place[1])


@records.define
class _Footprints:
    """The loads and stores of a phase; `counts` are the trip counts of its deepest nest of loops,
    `straight` is False where there are branches, or loops side by side."""

    loads: list[_Footprint] = records.field(factory=list)
    stores: list[_Footprint] = records.field(factory=list)
    straight: bool = True
    counts: tuple[tuple[ir.Expr, bool], ...] = ()

    @property
    def grid(self) -> tuple[tuple[ir.Expr, bool], ...]:
        return tuple(count for count in self.counts if count[1])


def _footprints(sketch: ir.Sketch, phase: ir.Phase) -> _Footprints:
    result = _Footprints()

    def visit(body: tuple[ir.Statement, ...], space: Space | None) -> None:
        loops = sum(isinstance(each, ir.For | ir.If) for each in body)
        result.straight = result.straight and loops <= 1
        if space is not None and len(space.counts) > len(result.counts):
            result.counts = space.counts
        for statement in body:
            match statement:
                case ir.Load(where=None) | ir.Store(where=None):
                    note(statement, space)
                case ir.Load() | ir.Store() | ir.Fetch() | ir.Atomic():
                    note(statement, None)
                case ir.For():
                    visit(statement.body, None if space is None else space.within(statement))
                case ir.If():
                    result.straight = False
                    visit(walk.inside(statement), None)

    def note(statement: Moving, space: Space | None) -> None:
        access = statement.access
        place = None if space is None else (space, region(access, space))
        loads = isinstance(statement, ir.Load | ir.Fetch)
        found = _Footprint(sketch.tensor(access.tensor).name, place, statement.span)
        (result.loads if loads else result.stores).append(found)

    visit(phase.body, Space())
    return result


def _launches(sketch: ir.Sketch, first: ir.Phase, second: ir.Phase) -> Diagnostic | None:
    one, other = _footprints(sketch, first), _footprints(sketch, second)
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
            return _report_launches(at_first, at_second, handed[0].span)
        return None
    known = {load.equal for load in one.loads if _innermost(load, one)}
    again = (load for load in other.loads if _innermost(load, other) and load.equal in known)
    common = next(again, None)
    return None if common is None else report_passes(at_first, at_second, common.span)


def _innermost(footprint: _Footprint, phase: _Footprints) -> bool:
    """Whether an access lies in all loops of its phase, and no two iterations share elements."""
    return footprint.equal is not None and footprint.equal[0] == phase.counts


def _handed_over(load: _Footprint, first: _Footprints) -> bool:
    """Whether a load of the second launch takes what one store of the first launch writes in the
    same iteration, inside all its loops: the sum over a loop is complete only after the loop."""
    stores = [store for store in first.stores if store.tensor == load.tensor]
    return (
        len(stores) == 1
        and _innermost(stores[0], first)
        and load.equal is not None
        and load.equal == stores[0].equal
    )


def _report_launches(first: Span, second: Span, load: Span) -> Diagnostic:
    return warning(
        load,
        "SK0655",
        "two launches over the same data could be one",
        "the same iteration of the launch before has just stored it",
        labels=(
            Label(first, "the first launch"),
            Label(second, "the second needs nothing of its other iterations"),
        ),
        help="do the work of both in one loop: what the first computes is in its tile",
    )
