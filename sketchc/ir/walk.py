"""Walking and rewriting the typed sketch: what stands in statements, in accesses, in expressions.

Everything that looks for something in a sketch goes through these functions; a module matches nodes
itself only where each node means something else to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, assert_never

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ops.table import OPS

#: A step of the host that holds for the launches inside or after it.
Enclosing: TypeAlias = ir.HostFor | ir.HostIf | ir.Fetch | ir.Bind

_Node = TypeVar("_Node", ir.Statement, ir.HostStep)

# ---------------------------------------------------------------- expressions


def children(expression: ir.Expr) -> tuple[ir.Expr, ...]:
    """The direct parts of an expression."""
    match expression:
        case ir.Binary(left=left, right=right):  # the most frequent ones first
            return (left, right)
        case ir.Ref() | ir.Literal() | ir.TileLanes():
            return ()
        case ir.Unary(operand=operand):
            return (operand,)
        case ir.Choice():
            return expression.parts
        case ir.Function(arguments=arguments):
            return arguments
        case ir.Iota(extent=extent, lower=lower, upper=upper):
            return (extent, lower) if upper is None else (extent, lower, upper)
        case _:
            assert_never(expression)


def parts(expression: ir.Expr) -> Iterator[ir.Expr]:
    """An expression and all its parts, in reading order."""
    pending = [expression]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(reversed(children(part)))


def size(expression: ir.Expr) -> int:
    """How many nodes an expression has."""
    return 1 + sum(map(size, children(expression)))


def on_host(expression: ir.Expr) -> bool:
    """True where the host can compute the expression: no loop variable, binding or lane."""
    match expression:
        case ir.Ref(_, kind):
            return kind.on_host
        case ir.Iota() | ir.TileLanes():
            return False
        case _:
            return all(map(on_host, children(expression)))


def references(expression: ir.Expr) -> Iterator[ir.Ref]:
    """Every name that an expression uses, in reading order, repeats included."""
    return (part for part in parts(expression) if isinstance(part, ir.Ref))


def names(expression: ir.Expr) -> frozenset[str]:
    """The names that an expression uses; those of tiles are not among them."""
    return frozenset(reference.name for reference in references(expression))


def lanes(expression: ir.Expr) -> Iterator[ir.TileLanes]:
    """The tiles whose lanes an expression reads directly, not through bindings, in order."""
    return (part for part in parts(expression) if isinstance(part, ir.TileLanes))


def tiles_read(expression: ir.Expr) -> tuple[str, ...]:
    """The names of the tiles whose lanes an expression reads directly, in order."""
    return tuple(part.tile for part in lanes(expression))


def changed(expression: ir.Expr, change: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The expression with each direct part changed; the same object where none is."""
    before = children(expression)
    after = tuple(map(change, before))
    if all(old is new for old, new in zip(before, after, strict=True)):
        return expression
    match expression:
        case ir.Unary():
            return records.evolve(expression, operand=after[0])
        case ir.Binary():
            return records.evolve(expression, left=after[0], right=after[1])
        case ir.Choice():
            return records.evolve(expression, condition=after[0], then=after[1], otherwise=after[2])
        case ir.Function():
            return records.evolve(expression, arguments=after)
        case ir.Iota():
            upper = after[2] if len(after) > 2 else None
            return records.evolve(expression, extent=after[0], lower=after[1], upper=upper)
        case ir.Literal() | ir.Ref() | ir.TileLanes():
            return expression
        case _:
            assert_never(expression)


def map_tiles(expression: ir.Expr, change: Callable[[ir.TileLanes], ir.Expr]) -> ir.Expr:
    """The expression with each `TileLanes` in it replaced by `change` of it."""
    if isinstance(expression, ir.TileLanes):
        return change(expression)
    return changed(expression, lambda part: map_tiles(part, change))


def has_lanes(expression: ir.Expr, bindings: Mapping[str, ir.Expr]) -> bool:
    """True for an index tile: an expression over `iota` or tile lanes, also through a binding."""
    if isinstance(expression, ir.Ref):
        name = expression.name
        return name in bindings and has_lanes(bindings[name], bindings)
    return isinstance(expression, ir.Iota | ir.TileLanes) or any(
        has_lanes(part, bindings) for part in children(expression)
    )


def substitute(expression: ir.Expr, definitions: Mapping[str, ir.Expr]) -> ir.Expr:
    """The expression with names replaced by their `definitions`, which are taken as they are."""
    if isinstance(expression, ir.Ref):
        return definitions.get(expression.name, expression)
    return changed(expression, lambda part: substitute(part, definitions))


# ---------------------------------------------------------------- accesses


def indices(access: ir.Access) -> Iterator[ir.Expr]:
    """The expressions of an access's subscripts, in order."""
    for subscript in access.subscripts:
        yield from subscript_parts(subscript)


def is_plain(access: ir.Access) -> bool:
    """True where the access has scalars and slices of step 1 only."""
    return all(
        isinstance(subscript, ir.ScalarSubscript)
        or (isinstance(subscript, ir.SliceSubscript) and subscript.step == ir.Literal(1))
        for subscript in access.subscripts
    )


def subscript_parts(subscript: ir.Subscript) -> tuple[ir.Expr, ...]:
    """The expressions of one subscript: an index, or the two bounds and the step of a slice."""
    match subscript:
        case ir.ScalarSubscript(index=value) | ir.IndexSubscript(value=value):
            return (value,)
        case ir.SliceSubscript(lower, upper, _, step):
            return (lower, upper, step)
        case _:
            assert_never(subscript)


def access_names(access: ir.Access) -> set[str]:
    """Every scalar or index tile that an access uses by name."""
    return {reference.name for index in indices(access) for reference in references(index)}


# ---------------------------------------------------------------- statements


def blocks(statement: ir.Statement | ir.HostStep) -> tuple[tuple[Any, ...], ...]:
    """The blocks of a loop or branch, of statements or of host steps; none for other statements."""
    match statement:
        case ir.For(body=body) | ir.HostFor(body=body):
            return (body,)
        case ir.If(body=body, orelse=orelse) | ir.HostIf(body=body, orelse=orelse):
            return (body, orelse)
        case _:
            return ()


def inside(statement: ir.Statement | ir.HostStep) -> tuple[Any, ...]:
    """The statements, or steps of the host, directly inside the blocks of `statement`."""
    return tuple(each for block in blocks(statement) for each in block)


def statements(body: Iterable[_Node]) -> Iterator[_Node]:
    """All statements, or steps of the host, in order: a loop or branch before what is inside it."""
    pending = list(body)
    pending.reverse()
    while pending:
        statement = pending.pop()
        yield statement
        pending.extend(reversed(inside(statement)))


class HasBody(Protocol):
    """A phase, or the plan of a phase."""

    @property
    def body(self) -> tuple[ir.Statement, ...]:
        """The statements, in order."""
        ...


def bases(
    sketch: ir.Sketch, body: Iterable[ir.Statement], *kinds: type[ir.Load | ir.Store | ir.Atomic]
) -> set[str]:
    """The base tensors that statements of the types `kinds` access somewhere in `body`."""
    found = (each for each in statements(body) if isinstance(each, kinds))
    return {sketch.tensor(each.access.tensor).name for each in found}


def in_phases(phases: Iterable[HasBody]) -> Iterator[ir.Statement]:
    """All statements of all phases, in program order."""
    for phase in phases:
        yield from statements(phase.body)


def bodies(body: tuple[_Node, ...]) -> Iterator[tuple[_Node, ...]]:
    """Every straight list of statements, or of steps of the host: the body itself, and those of
    loops and branches."""
    yield body
    for statement in body:
        for inner in blocks(statement):
            yield from bodies(inner)


def expressions(statement: ir.Statement | ir.HostStep) -> Iterator[ir.Expr]:
    """The scalar and index-tile expressions of one statement as written, or of a step of the host,
    not those of its blocks: neither domains nor guards, which inference makes."""
    match statement:
        case ir.Load() | ir.Store() | ir.Atomic():
            yield from indices(statement.access)
            if statement.where is not None:
                yield statement.where
            if isinstance(statement, ir.Load) and isinstance(statement.pad, ir.ScalarOperand):
                yield statement.pad.value
        case ir.Fetch(access=access):
            yield from indices(access)
        case ir.Compute(operands=operands):
            for operand in operands:
                if not isinstance(operand, ir.TileOperand):
                    yield operand.value
        case ir.Bind(value=value):
            yield value
        case ir.For() | ir.HostFor():
            yield from (statement.start, statement.stop, statement.step)
        case ir.If(condition=condition) | ir.HostIf(condition=condition):
            yield condition
        case ir.Alloc() | ir.Launch():
            pass
        case _:
            assert_never(statement)


def operand_tiles(operand: ir.Operand) -> tuple[str, ...]:
    """The tiles that an operand reads: its own, or those whose lanes its expression takes."""
    if isinstance(operand, ir.TileOperand):
        return (operand.tile,)
    return tiles_read(operand.value)


def operand_dtype(operand: ir.Operand, tile: Callable[[str], ir.Tile]) -> DType:
    """The element type that an operand has by itself; `tile` finds a tile by its name."""
    return tile(operand.tile).dtype if isinstance(operand, ir.TileOperand) else operand.dtype


def operand_extents(operand: ir.Operand, tile: Callable[[str], ir.Tile]) -> tuple[ir.Expr, ...]:
    """The shape of an operand; () for a scalar."""
    match operand:
        case ir.TileOperand(tile=name, layout=layout):
            return laid_out(tile(name).extents, layout, ir.Literal(1))
        case ir.IndexOperand(extents=extents):
            return extents
        case ir.ScalarOperand():
            return ()
        case _:
            assert_never(operand)


def reads(statement: ir.Statement) -> tuple[str, ...]:
    """The tiles whose values a statement reads, in order; not those that its blocks read."""
    own: tuple[str, ...] = ()
    match statement:
        case ir.Compute():
            for operand in statement.operands:
                own += operand_tiles(operand)
            if OPS[statement.operation].accumulates:
                own += statement.destinations
            return own
        case ir.Store(tile=tile) | ir.Atomic(tile=tile):
            own = (tile,)
    return own + tuple(tile for part in expressions(statement) for tile in tiles_read(part))


def writes(statement: ir.Statement) -> tuple[str, ...]:
    """The tiles that a statement writes, in order; not those that its blocks write."""
    match statement:
        case ir.Load(tile=tile):
            return (tile,)
        case ir.Compute():
            return statement.destinations
        case _:
            return ()


# ---------------------------------------------------------------- steps of the host


def around(schedule: tuple[ir.HostStep, ...], phase: int) -> tuple[Enclosing, ...]:
    """The host steps in force where a phase is launched, outermost first: the loops and branches
    around it, and the names bound or fetched before it at each level."""
    return _path(schedule, phase) or ()


def _path(schedule: tuple[ir.HostStep, ...], phase: int) -> tuple[Enclosing, ...] | None:
    """The steps in force at the launch of `phase`, or None where it is not in the schedule."""
    bound: list[Enclosing] = []
    for step in schedule:
        match step:
            case ir.Launch(index):
                if index == phase:
                    return tuple(bound)
            case ir.Fetch() | ir.Bind():
                bound.append(step)
            case ir.HostFor() | ir.HostIf():
                inner = _path(step.body, phase)
                if inner is None and isinstance(step, ir.HostIf):
                    inner = _path(step.orelse, phase)
                if inner is not None:
                    return (*bound, step, *inner)
            case _:
                assert_never(step)
    return None


def bound_names(body: Iterable[ir.Statement | ir.HostStep]) -> Iterator[str]:
    """The names that the statements or steps of `body` make, not those nested in them: loop
    variables, bindings, fetched scalars."""
    for statement in body:
        match statement:
            case ir.For(variable=name) | ir.HostFor(variable=name):
                yield name
            case ir.Bind(name=name) | ir.Fetch(name=name):
                yield name


def free_name(wanted: str, taken: Container[str]) -> str:
    """A name that is not taken: `wanted`, or with the first number from 2 on that is free."""
    candidates = (f"{wanted}_{count}" for count in itertools.count(2))
    return next(name for name in itertools.chain((wanted,), candidates) if name not in taken)


def declared_names(sketch: ir.Sketch) -> Iterator[str]:
    """Every name of a sketch: those it declares, then those its statements and host steps make."""
    declared = (
        sketch.symbols,
        sketch.params,
        sketch.constants,
        sketch.lets,
        sketch.tensors,
        sketch.views,
        sketch.tiles,
    )
    for group in declared:
        yield from (each.name for each in group)
    yield from bound_names(in_phases(sketch.phases))
    yield from bound_names(statements(sketch.schedule))


_T = TypeVar("_T")


def element_indices(access: ir.Access, extents: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """The element index of each lane of a tile with these `extents`, per dimension of the tensor.

    Each is a scalar expression or an index tile whose layout says on which of the tile's axes it
    varies; it broadcasts, right-aligned, to the tile's shape.
    """
    rank = len(extents)
    result: list[ir.Expr] = []
    axis = 0
    for subscript in access.subscripts:
        match subscript:
            case ir.ScalarSubscript(index):
                result.append(index)
            case ir.SliceSubscript(lower, _, _, step):
                layout = tuple(other == axis for other in range(axis, rank))  # varies along `axis`
                lanes = ir.Iota(extents[axis], ir.Literal(0), None, layout)
                scaled = lanes if step == ir.Literal(1) else ir.Binary("*", lanes, step)
                result.append(scaled if lower == ir.Literal(0) else ir.Binary("+", lower, scaled))
                axis += 1
            case ir.IndexSubscript(value, _, _, place):
                result.append(value)
                axis += place is not None
            case _:
                assert_never(subscript)
    return tuple(result)


def laid_out(own: Iterable[_T], layout: tuple[bool, ...] | None, new: _T) -> tuple[_T, ...]:
    """One item per axis after `[:, None]`: those of `own` in order, `new` for each new axis."""
    if layout is None:
        return tuple(own)
    axes = iter(own)
    return tuple(next(axes) if kept else new for kept in layout)


def own_axes(around: tuple[_T, ...], layout: tuple[bool, ...] | None) -> tuple[_T, ...]:
    """The items of `around`, one per axis and right-aligned with `layout`, at an index tile's own
    axes, where `layout` is True; all items without a layout."""
    if layout is None:
        return around
    last = around[len(around) - len(layout) :]
    return tuple(each for each, present in zip(last, layout, strict=True) if present)


def kept_axes(before: Sequence[_T], after: Sequence[_T], one: _T) -> tuple[int | None, ...]:
    """For each axis of the shape `before`, the axis of `after` that it becomes in a `reshape`; None
    for one that is split or merged, or of extent 1 and dropped. Leading and trailing axes that both
    shapes share map one to one, also where axes of extent `one` come or go between them."""
    found: list[int | None] = [None for _ in before]
    old, new = list(range(len(before))), list(range(len(after)))
    for _ in range(2):
        while old and new and before[old[0]] == after[new[0]]:
            found[old.pop(0)] = new.pop(0)
        while old and new and before[old[-1]] == after[new[-1]]:
            found[old.pop()] = new.pop()
        old = [axis for axis in old if before[axis] != one]
        new = [axis for axis in new if after[axis] != one]
    return tuple(found)
