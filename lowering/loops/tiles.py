"""What a statement reads and writes at the lanes of its loops: tiles, tensors, index tiles.

Every access form becomes one term per dimension of the tensor: a lane with offset and step where
the subscript is a slice, else an index tile's value. Conditions that generated code must test (what
lies outside of the tensor, `where=`, indices that were loaded) become guards of the read or store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import assert_never

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import changed, children, in_phases, names, statements
from sketchc.launch.conditions import actual_extent
from sketchc.lowering.loops.forwarding import Versions
from sketchc.lowering.loops.nests import (
    ONE,
    ZERO,
    LaneSource,
    Read,
    Reference,
    Term,
    lane_axis,
    lane_variable,
    read_variable,
)


def step_name(tensor: str, axis: int) -> str:
    """The host scalar that is 0 where a broadcastable axis has extent 1, else 1."""
    return f"{tensor}_step_{axis}"


def _plus(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    if left == ZERO:
        return right
    return left if right == ZERO else ir.Binary("+", left, right)


def _times(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    if ZERO in (left, right):
        return ZERO
    if left == ONE:
        return right
    return left if right == ONE else ir.Binary("*", left, right)


def _axes(extents: tuple[ir.Expr, ...], tensor: ir.Tensor | None) -> list[tuple[ir.Expr, ir.Expr]]:
    """Per axis the extent in memory and the step from one index to the next. Axes of `tensor` that
    may have extent 1 have both as scalars of the host."""
    found: list[tuple[ir.Expr, ir.Expr]] = [(extent, ONE) for extent in extents]
    flags = () if tensor is None else tensor.broadcast[: len(extents)]
    for axis, repeats in enumerate(flags):
        if tensor is not None and repeats:
            actual, step = actual_extent(tensor.name, axis), step_name(tensor.name, axis)
            found[axis] = ir.Ref(actual, ir.NameKind.LET), ir.Ref(step, ir.NameKind.LET)
    return found


def row_major(
    indices: tuple[ir.Expr, ...], extents: tuple[ir.Expr, ...], tensor: ir.Tensor | None
) -> ir.Expr:
    """The element number of `indices`, in Horner's form."""
    total: ir.Expr = ZERO
    for index, (extent, step) in zip(indices, _axes(extents, tensor), strict=True):
        total = _plus(_times(total, extent), _times(index, step))
    return total


def strides(extents: tuple[ir.Expr, ...], tensor: ir.Tensor | None) -> tuple[ir.Expr, ...]:
    """Elements from one index to the next, per axis."""
    found: list[ir.Expr] = []
    stride: ir.Expr = ONE
    for extent, step in reversed(_axes(extents, tensor)):
        found.insert(0, _times(stride, step))
        stride = _times(extent, stride)
    return tuple(found)


def resolve_index(
    expression: ir.Expr,
    lanes: tuple[ir.Expr, ...],
    bindings: Mapping[str, ir.Expr],
    element: Callable[[ir.TileLanes, tuple[ir.Expr, ...]], ir.Expr],
) -> ir.Expr:
    """An index tile's value at one lane. `lanes` gives the lane of each of its axes; operands of
    lower rank are aligned to the right. `element` gives a tile's value at its own lanes."""

    def inner(part: ir.Expr) -> ir.Expr:
        return resolve_index(part, lanes, bindings, element)

    match expression:
        case ir.Ref(name, kind, layout=layout):
            if kind is not ir.NameKind.BINDING or name not in bindings:
                return expression
            value = bindings[name]
            rank = index_rank(value, bindings)
            if rank == 0:
                return expression
            return resolve_index(value, _own(lanes, layout, rank), bindings, element)
        case ir.Literal() | ir.Unary() | ir.Binary() | ir.Choice() | ir.Function():
            return changed(expression, inner)
        case ir.Iota(extent, lower, _, layout):
            (lane,) = _own(lanes, layout, 1)
            return _plus(lower, ZERO if constant_value(extent) == 1 else lane)
        case ir.TileLanes(extents=extents, layout=layout):
            own = _own(lanes, layout, len(extents))
            return element(
                expression,
                tuple(
                    ZERO if constant_value(extent) == 1 else lane
                    for extent, lane in zip(extents, own, strict=True)
                ),
            )
        case _:
            assert_never(expression)


def _own(
    lanes: tuple[ir.Expr, ...], layout: tuple[bool, ...] | None, rank: int
) -> tuple[ir.Expr, ...]:
    """The lanes of an expression's own axes, given those of the axes around it."""
    if layout is None:
        return lanes[len(lanes) - rank :]
    aligned = lanes[len(lanes) - len(layout) :]
    own = tuple(lane for lane, mine in zip(aligned, layout, strict=True) if mine)
    if len(own) != rank:
        msg = "an index tile's layout does not fit its rank"
        raise InternalError(msg)
    return own


def index_rank(expression: ir.Expr, bindings: Mapping[str, ir.Expr]) -> int:
    """The number of axes of an index tile; 0 for a scalar."""
    match expression:
        case ir.Ref(name, kind, layout=layout):
            if kind is not ir.NameKind.BINDING or name not in bindings:
                return 0
            rank = index_rank(bindings[name], bindings)
            return rank if layout is None or rank == 0 else len(layout)
        case ir.Iota(layout=layout) | ir.TileLanes(layout=layout):
            return len(layout)
        case _:
            ranks = (index_rank(part, bindings) for part in children(expression))
            return max(ranks, default=0)


Loops = tuple[int | None, ...]


@attrs.define
class Tiles:
    """The tiles of one phase. `bindings` maps names bound so far to their expressions, in which
    the name of a tile stands for the version that was bound."""

    sketch: ir.Sketch
    versions: Versions
    bindings: dict[str, ir.Expr] = attrs.field(factory=dict)
    #: accumulators of reductions and temporaries, beside the sketch's own tiles
    temporaries: dict[str, tuple[tuple[ir.Expr, ...], DType]] = attrs.field(factory=dict)

    def extents(self, tile: str) -> tuple[ir.Expr, ...]:
        """The extents of a tile, of one of its versions or of a temporary."""
        if tile in self.temporaries:
            return self.temporaries[tile][0]
        return self.sketch.tile(self.versions.origin(tile)).extents

    def dtype(self, tile: str) -> DType:
        """The element type of a tile, of one of its versions or of a temporary."""
        if tile in self.temporaries:
            return self.temporaries[tile][1]
        return self.sketch.tile(self.versions.origin(tile)).dtype

    def temporary(self, stem: str, extents: tuple[ir.Expr, ...], dtype: DType) -> str:
        """A new tile of the generated code's own."""
        name = self.versions.fresh(stem)
        self.temporaries[name] = (extents, dtype)
        return name

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The scalars that come from memory: nothing is known about their range."""
        return fetched_scalars(self.sketch)

    # ------------------------------------------------------------ index tiles

    def lane_source(
        self, statement: ir.Statement, value: ir.Expr, dtype: DType, loops: Loops
    ) -> LaneSource:
        """An index tile or predicate of `statement` at the lanes of `loops`, one for each axis of
        a shape to which it broadcasts."""
        reads: dict[Read, int] = {}

        def element(leaf: ir.TileLanes, own: tuple[ir.Expr, ...]) -> ir.Expr:
            read = self.version_read(leaf.tile, tuple(map(lane_axis, own)), leaf.domain)
            return read_variable(reads.setdefault(read, len(reads)), leaf.dtype)

        lanes = tuple(ZERO if loop is None else lane_variable(loop) for loop in loops)
        read_now = partial(self.versions.read, statement)
        versioned = map_tiles(value, lambda leaf: attrs.evolve(leaf, tile=read_now(leaf.tile)))
        resolved = resolve_index(versioned, lanes, self.bindings, element)
        return LaneSource(resolved, dtype, tuple(reads))

    # ------------------------------------------------------------ reads

    def tile_read(self, tile: str, loops: Loops) -> Read:
        """The element of a tile in memory at the lanes of `loops`, one for each of its axes."""
        dtype = self.dtype(tile)
        return Read(tile_reference(tile, loops), dtype, dtype, tile)

    def version_read(self, version: str, loops: Loops, domain: ir.Domain) -> Read:
        """The element of a tile's version at the lanes of `loops`, one for each of its axes."""
        load = self.versions.source(version)
        if load is not None:
            return self.tensor_read(load, loops, version, load.text)
        return attrs.evolve(self.tile_read(version, loops), pinned=pinned(domain, loops))

    def tensor_read(self, load: ir.Load, loops: Loops, version: str, note: str) -> Read:
        """The element that a load gives to the lanes of `loops`."""
        stored, pad = self.sketch.tensor(load.access.tensor).dtype, load.pad
        return Read(
            self.reference(load, load.access, loops),
            stored,
            self.dtype(version),
            version,
            note,
            pinned(load.domain, loops),
            (*self._bounds(load, loops), *self.guards(load, loops)),
            pad.value if isinstance(pad, ir.ScalarOperand) else 0 if pad is None else pad,
            load.span,
        )

    def reference(self, statement: ir.Statement, access: ir.Access, loops: Loops) -> Reference:
        """The element of a tensor at the lanes of `loops`, one for each axis of the tile."""
        terms: list[Term] = []
        axis = 0
        for subscript in access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    terms.append(Term(None, index))
                case ir.SliceSubscript(lower, _, _, step):
                    loop = loops[axis]
                    terms.append(Term(loop, lower) if loop is None else Term(loop, lower, step))
                    axis += 1
                case ir.IndexSubscript(value, extents, _, place):
                    own = aligned_loops(extents, loops)
                    lanes = self.lane_source(statement, value, DType.I64, own)
                    terms.append(_term(lanes))
                    axis += place is not None
                case _:
                    assert_never(subscript)
        base = self.sketch.tensor(access.tensor).name
        return Reference(access.tensor, tuple(terms), tensor=True, base=base)

    # ------------------------------------------------------------ guards

    def guards(
        self, statement: ir.Load | ir.Store | ir.Atomic, loops: Loops
    ) -> tuple[LaneSource, ...]:
        """What must hold at the lanes of `loops` for the element to be touched."""
        conditions = (*self._in_range(statement.access), *statement.guards)
        found = [
            self.lane_source(statement, condition, DType.BOOL, loops) for condition in conditions
        ]
        return tuple(dict.fromkeys(found))

    def _in_range(self, access: ir.Access) -> list[ir.Expr]:
        """Scalar subscripts that were fetched from memory are inside the tensor."""
        extents = self.sketch.extents(access.tensor)
        found: list[ir.Expr] = []
        for subscript, extent in zip(access.subscripts, extents, strict=True):
            if isinstance(subscript, ir.ScalarSubscript):
                index = subscript.index
                if not self.loaded.isdisjoint(names(index)):
                    found += (ir.Binary("<=", ZERO, index), ir.Binary("<", index, extent))
        return found

    def _bounds(self, load: ir.Load, loops: Loops) -> tuple[LaneSource, ...]:
        """That a lane lies in `read`, as far as `domain` does not say so."""
        if load.pad is None or not load.read:
            return ()
        domain = load.domain or (ir.FULL,) * len(load.read)
        found: list[LaneSource] = []
        for loop, lanes, known in zip(loops, load.read, domain, strict=True):
            lane: ir.Expr = ZERO if loop is None else lane_variable(loop)
            tests: list[tuple[str, ir.Expr, ir.Expr]]
            tests = [("<=", b, lane) for b in lanes.lower if b not in known.lower]
            tests += [("<", lane, b) for b in lanes.upper if b not in known.upper]
            found += [
                LaneSource(ir.Binary(operator, left, right), DType.BOOL)
                for operator, left, right in tests
            ]
        return tuple(found)

    def fetched(self, statement: ir.Fetch) -> Read:
        """The element that a `fetch` reads."""
        access = statement.access
        stored = self.sketch.tensor(access.tensor).dtype
        guards = [LaneSource(c, DType.BOOL) for c in self._in_range(access)]
        reference = self.reference(statement, access, ())
        return Read(reference, stored, stored, statement.name, guards=tuple(guards))


def fetched_scalars(sketch: ir.Sketch) -> frozenset[str]:
    """The names of scalars that were fetched, or made of fetched ones."""
    found: set[str] = set()
    for statement in (*statements(sketch.steps), *in_phases(sketch.phases)):
        match statement:
            case ir.Fetch(name):
                found.add(name)
            case ir.Bind(name, value) if not found.isdisjoint(names(value)):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def map_tiles(value: ir.Expr, change: Callable[[ir.TileLanes], ir.Expr]) -> ir.Expr:
    """The expression with the lanes of tiles replaced."""
    if isinstance(value, ir.TileLanes):
        return change(value)
    return changed(value, lambda part: map_tiles(part, change))


def tile_reference(tile: str, loops: Loops) -> Reference:
    """The element of a tile at the lanes of `loops`, one for each of its axes."""
    return Reference(tile, tuple(Term(loop) for loop in loops))


def aligned_loops(extents: tuple[ir.Expr, ...], loops: Loops) -> Loops:
    """The loop of each operand axis, aligned to the right; axes of extent 1 are repeated."""
    own = loops[len(loops) - len(extents) :] if extents else ()
    return tuple(
        None if constant_value(extent) == 1 else loop
        for extent, loop in zip(extents, own, strict=True)
    )


def pinned(domain: ir.Domain, loops: Loops) -> bool:
    """Whether lanes that the loops do not run over may be void."""
    return any(loop is None and not lanes.full for lanes, loop in zip(domain, loops, strict=False))


def _term(lanes: LaneSource) -> Term:
    """An index tile's value as a plain term where it is `lane`, `lane + offset` or a scalar."""
    value = lanes.value
    if not lanes.axes and not lanes.reads:
        return Term(None, value)
    if not lanes.reads and len(lanes.axes) == 1:
        (axis,) = lanes.axes
        lane = lane_variable(axis)
        if value == lane:
            return Term(axis)
        if isinstance(value, ir.Binary) and value.operator == "+":
            for offset, rest in ((value.left, value.right), (value.right, value.left)):
                if rest == lane and not LaneSource(offset, DType.I64).axes:
                    return Term(axis, offset)
    return Term(None, lanes=lanes)


def statement_axes(statement: ir.Compute, attribute: str = "axis") -> tuple[int, ...]:
    """The axes that an attribute of a statement names."""
    axes = statement.attributes[attribute]
    if not isinstance(axes, tuple):
        msg = "axes are a tuple after elaboration"
        raise InternalError(msg)
    return axes
