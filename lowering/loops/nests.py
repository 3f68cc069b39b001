"""Loop nests: each tile operation as a rectangle of lanes with what it reads and writes there.

`nest_maker.py` makes them, `fusion.py` puts nests with the same lanes into one loop.

Every access form becomes one term per dimension of the tensor: a lane with offset and step where
the subscript is a slice, else an index tile's value. Conditions that generated code must test (what
lies outside of the tensor, `where=`, indices that were loaded) become guards of the read or store.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property, partial
from typing import TypeAlias, assert_never

import attrs

from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType, holds
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import (
    changed,
    has_lanes,
    in_phases,
    map_tiles,
    names,
    own_axes,
    references,
    statements,
)
from sketchc.launch.conditions import actual_extent
from sketchc.lowering.loops.forwarding import Versions

ZERO = ir.Literal(0)
ONE = ir.Literal(1)


@attrs.frozen
class Axis:
    """The lanes `lower <= lane < upper` of one loop; `single`: at most one lane."""

    lower: ir.Expr
    upper: ir.Expr
    single: bool = False


@attrs.frozen(cache_hash=True)
class Term:
    """One index of a reference: `offset + step * lane of loop axis` (axis None: the offset alone),
    or, with `lanes`, the value of an index tile."""

    axis: int | None
    offset: ir.Expr = ZERO
    step: ir.Expr = ONE
    lanes: LaneSource | None = None

    @property
    def plain(self) -> bool:
        """Whether the index is the lane itself, or lane 0, as the index of a tile usually is."""
        return self.offset == ZERO and self.step == ONE and self.lanes is None

    @property
    def axes(self) -> frozenset[int]:
        """The loops on whose lanes the index depends."""
        own = frozenset() if self.axis is None else frozenset({self.axis})
        return own if self.lanes is None else own | self.lanes.axes


@attrs.frozen(cache_hash=True)
class Reference:
    """An element of a tile, or (`tensor`) of a tensor or view, as a function of the lanes."""

    name: str
    terms: tuple[Term, ...]
    tensor: bool = False
    base: str = ""  # the tensor behind a view

    def aligned(self, other: Reference, axis: int) -> bool:
        """True if equal elements imply equal lanes of loop `axis` (LOWERING 9 for tensors): an
        index of both is the same function of that lane alone, and maps no two lanes to one."""
        if self.tensor and (self.name != other.name or self.terms != other.terms):
            return False
        return any(
            mine.axis == axis and mine.lanes is None and mine == theirs
            for mine, theirs in zip(self.terms, other.terms, strict=True)
        )

    @property
    def memory(self) -> tuple[bool, str]:
        """Whether a tensor or a tile is accessed, and its name; a view is its tensor."""
        return self.tensor, self.base if self.tensor else self.name

    @property
    def axes(self) -> frozenset[int]:
        """The loops on whose lanes the element depends."""
        return frozenset().union(*(term.axes for term in self.terms))

    @property
    def lanes(self) -> tuple[LaneSource, ...]:
        """The index tiles among the indices."""
        return tuple(term.lanes for term in self.terms if term.lanes is not None)


@attrs.frozen(cache_hash=True)
class Read:
    """The element at `reference`, of type `stored`, seen as a tile of type `dtype`. `pinned`: it
    may only be read inside all of its nest's loops (some lane of it may be void). Where one of the
    `guards` is false nothing is read and the value is `pad`."""

    reference: Reference
    stored: DType
    dtype: DType
    tile: str
    note: str = ""
    pinned: bool = False
    guards: tuple[LaneSource, ...] = ()
    pad: int | float | bool | ir.Expr = 0
    origin: Span = attrs.field(default=NOWHERE, eq=False, repr=False)  # of the load

    @property
    def held(self) -> DType:
        """The type in which the element is kept: `stored`, unless it cannot hold the padding."""
        if not self.guards or (not isinstance(self.pad, ir.Expr) and holds(self.stored, self.pad)):
            return self.stored
        return self.dtype

    @property
    def inner(self) -> tuple[Read, ...]:
        """The reads that must come first, to know the indices and the guards; innermost first."""
        return reads_of((*self.reference.lanes, *self.guards))

    @property
    def axes(self) -> frozenset[int]:
        """The loops on whose lanes the value depends."""
        return self.reference.axes.union(*(guard.axes for guard in self.guards))

    @property
    def fixed(self) -> bool:
        """Whether this read is pinned, or one that it needs first."""
        return self.pinned or any(read.pinned for read in self.inner)


@attrs.frozen
class ScalarSource:
    """A scalar of the sketch, the same at all lanes."""

    value: ir.Expr
    dtype: DType


@attrs.frozen(cache_hash=True)
class LaneSource:
    """An index tile or predicate at the lanes of a nest: `value` is a scalar expression over lanes
    (`lane_variable`) and elements of tiles (`read_variable`, numbered as in `reads`)."""

    value: ir.Expr
    dtype: DType
    reads: tuple[Read, ...] = ()

    @property
    def axes(self) -> frozenset[int]:
        """The loops on whose lanes the value depends."""
        names = {reference.name for reference in references(self.value)}
        own = frozenset(int(name[1:]) for name in names if name.startswith(_LANE))
        return own.union(*(read.axes for read in self.reads))

    @property
    def loaded(self) -> bool:
        """Whether the value depends on elements of tiles."""
        return any(reference.name.startswith(_READ) for reference in references(self.value))


#: Marks of the stand-ins in lane expressions; no identifier begins with them.
_LANE, _READ = "#", "$"


def lane_variable(axis: int) -> ir.Ref:
    """The name that stands for the lane of loop `axis` in a `LaneSource`."""
    return ir.Ref(f"{_LANE}{axis}", ir.NameKind.LOOP)


def lane_axis(lane: ir.Expr) -> int | None:
    """The loop axis of a lane variable; None for lane 0."""
    return int(lane.name[1:]) if isinstance(lane, ir.Ref) else None


def read_variable(number: int, dtype: DType) -> ir.Ref:
    """The name that stands for the element of read `number` in a `LaneSource`."""
    kind = DType.BOOL if dtype is DType.BOOL else DType.I64
    return ir.Ref(f"{_READ}{number}", ir.NameKind.BINDING, kind)


def reads_of(sources: Iterable[Source]) -> tuple[Read, ...]:
    """All reads of `sources`; those that an index needs stand before the read at that index."""
    found: dict[Read, None] = {}
    for source in sources:
        match source:
            case Read():
                found.update(dict.fromkeys(source.inner))
                found[source] = None
            case LaneSource(reads=reads):
                found.update(dict.fromkeys(reads_of(reads)))
            case ScalarSource():
                pass
            case _:
                assert_never(source)
    return tuple(found)


Source: TypeAlias = Read | ScalarSource | LaneSource


class Kind(Enum):
    """What a nest does at each lane, or as a whole."""

    ASSIGN = "assign"
    ACCUMULATE = "accumulate"
    ATOMIC = "atomic"
    CALL = "call"


@attrs.frozen(eq=False)
class Nest:
    """`target = operation(sources)` for all lanes of `axes` where all `guards` hold. `operation`
    "copy" moves a value; ATOMIC nests combine it with an element of a tensor ("add", "max",
    "min"). CALL nests have no axes: their tiles are in memory."""

    kind: Kind
    axes: tuple[Axis, ...]
    target: Reference
    stored: DType  # of the target
    operation: str
    sources: tuple[Source, ...]
    #: the types of the operation's operands and result; by default the stored type
    dtype: DType = attrs.field(default=attrs.Factory(lambda nest: nest.stored, takes_self=True))
    result: DType = attrs.field(default=attrs.Factory(lambda nest: nest.dtype, takes_self=True))
    attributes: Mapping[str, object] = attrs.field(factory=dict)
    note: str = ""
    early: bool = False  # may move up: it reads nothing
    call: Product | LibraryCall | None = None
    guards: tuple[LaneSource, ...] = ()
    origin: Span = NOWHERE  # the statement of the sketch

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """All reads, those of indices and guards included; what is needed first stands first."""
        return reads_of((*self.sources, *self.target.lanes, *self.guards))

    @property
    def lanes(self) -> tuple[LaneSource, ...]:
        """All index tiles and predicates: operands, indices, guards."""
        own = [source for source in self.sources if isinstance(source, LaneSource)]
        inner = [lanes for read in self.reads for lanes in (*read.reference.lanes, *read.guards)]
        return (*own, *inner, *self.target.lanes, *self.guards)

    @property
    def targets(self) -> tuple[Reference, ...]:
        """The references to all elements that the nest writes."""
        if not isinstance(self.call, LibraryCall):
            return (self.target,)
        return tuple(self.call.blocks[n].reference for n in self.call.written)

    @property
    def scattered(self) -> bool:
        """Whether lanes are written in an order that matters, or to places only known when the
        kernel runs: such lanes are no SIMD lanes."""
        return self.kind is Kind.ATOMIC or any(lanes.reads for lanes in self.target.lanes)

    @cached_property
    def _wrote(self) -> frozenset[tuple[bool, str]]:
        """The memory that the nest writes; see `Reference.memory`."""
        return frozenset(target.memory for target in self.targets)

    @cached_property
    def _met(self) -> frozenset[tuple[bool, str]]:
        """The memory that the nest writes or reads."""
        return self._wrote.union(read.reference.memory for read in self.reads)

    def conflicts(self, other: Nest) -> list[tuple[Reference, Reference]]:
        """Pairs of references to the same memory of which one is a write."""
        if self._wrote.isdisjoint(other._met) and self._met.isdisjoint(other._wrote):
            return []
        read = [read.reference for read in self.reads]
        touched = [*other.targets, *(read.reference for read in other.reads)]
        pairs = [*itertools.product(self.targets, touched), *itertools.product(read, other.targets)]
        return [(mine, theirs) for mine, theirs in pairs if mine.memory == theirs.memory]


@attrs.frozen
class Block:
    """The valid rectangle of a tile in memory: per axis its lanes."""

    name: str
    dtype: DType
    lanes: tuple[Axis, ...]

    @property
    def reference(self) -> Reference:
        """The tile as a whole."""
        return Reference(self.name, (Term(None),) * len(self.lanes))


@attrs.frozen
class LibraryCall:
    """An operation on tiles in memory, one call of the library's function `name`: `blocks` are the
    operands and destinations in the function's order, `written` the numbers of those that change,
    `parameters` the template arguments."""

    name: str
    blocks: tuple[Block, ...]
    written: tuple[int, ...]
    parameters: tuple[str, ...]


@attrs.frozen
class Product:
    """The extra facts of a matrix product: valid bounds, orientation, and the floor of its
    precision."""

    rows: Axis
    columns: Axis
    depth: Axis
    extents: tuple[ir.Expr, ir.Expr, ir.Expr]
    trans_a: bool
    trans_b: bool
    precision: str


def axis_bounds(extent: ir.Expr, domain: ir.AxisDomain) -> Axis:
    """The lanes of one axis that are valid."""
    lower: ir.Expr = ZERO
    upper = extent
    for bound in domain.lower:
        lower = ir.Binary("max", lower, bound)
    for bound in domain.upper:
        upper = ir.Binary("min", upper, bound)
    return Axis(lower, upper, constant_value(extent) == 1)


@attrs.frozen
class Lanes:
    """The loops over a tile shape: loop axes, and for each tile axis its loop (None: lane 0)."""

    axes: tuple[Axis, ...]
    loops: tuple[int | None, ...]

    @staticmethod
    def over(extents: tuple[ir.Expr, ...], domain: ir.Domain) -> Lanes:
        """The loops over the valid lanes of a shape; an axis of one lane needs none."""
        bounds = list(zip(extents, domain or (ir.FULL,) * len(extents), strict=True))
        looped = [constant_value(extent) != 1 or not lanes.full for extent, lanes in bounds]
        axes = tuple(itertools.starmap(axis_bounds, itertools.compress(bounds, looped)))
        numbers = itertools.count()
        return Lanes(axes, tuple(next(numbers) if own else None for own in looped))


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
        case ir.Ref(name, layout=layout):
            if not has_lanes(expression, bindings):
                return expression
            return resolve_index(bindings[name], own_axes(lanes, layout), bindings, element)
        case ir.Literal() | ir.Unary() | ir.Binary() | ir.Choice() | ir.Function():
            return changed(expression, inner)
        case ir.Iota(extent, lower, _, layout):
            (lane,) = own_axes(lanes, layout)
            return _plus(lower, ZERO if constant_value(extent) == 1 else lane)
        case ir.TileLanes(extents=extents, layout=layout):
            own = own_axes(lanes, layout)
            return element(
                expression,
                tuple(
                    ZERO if constant_value(extent) == 1 else lane
                    for extent, lane in zip(extents, own, strict=True)
                ),
            )
        case _:
            assert_never(expression)


Loops = tuple[int | None, ...]


@attrs.define
class Tiles:
    """The tiles of one phase. `bindings` maps names bound so far to their expressions, in which
    the name of a tile stands for the version that was bound."""

    sketch: ir.Sketch
    versions: Versions
    bindings: dict[str, ir.Expr] = attrs.field(factory=dict)
    #: accumulators of reductions and temporaries, beside the sketch's own tiles
    temporaries: dict[str, ir.Tile] = attrs.field(factory=dict)

    def tile(self, name: str) -> ir.Tile:
        """A tile, by its name or that of one of its versions, or a temporary."""
        return self.temporaries.get(name) or self.sketch.tile(self.versions.origin(name))

    def extents(self, tile: str) -> tuple[ir.Expr, ...]:
        """The extents of a tile."""
        return self.tile(tile).extents

    def dtype(self, tile: str) -> DType:
        """The element type of a tile."""
        return self.tile(tile).dtype

    def temporary(self, stem: str, extents: tuple[ir.Expr, ...], dtype: DType) -> str:
        """The name of a new tile that the sketch does not have, made from `stem`."""
        name = self.versions.fresh(stem)
        self.temporaries[name] = ir.Tile(name, name, extents, dtype)
        return name

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The scalars that were fetched, or made of fetched ones: nothing is known about their
        range."""
        found: set[str] = set()
        for statement in (*statements(self.sketch.steps), *in_phases(self.sketch.phases)):
            match statement:
                case ir.Fetch(name):
                    found.add(name)
                case ir.Bind(name, value) if not found.isdisjoint(names(value)):
                    found.add(name)
        return frozenset(found)

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
        """The conditions at the lanes of `loops` under which the element is accessed."""
        conditions = (*self._in_range(statement.access), *statement.guards)
        found = [
            self.lane_source(statement, condition, DType.BOOL, loops) for condition in conditions
        ]
        return tuple(dict.fromkeys(found))

    def _in_range(self, access: ir.Access) -> list[ir.Expr]:
        """Conditions that scalar subscripts made of fetched values are inside the tensor."""
        extents = self.sketch.extents(access.tensor)
        found: list[ir.Expr] = []
        for subscript, extent in zip(access.subscripts, extents, strict=True):
            if isinstance(subscript, ir.ScalarSubscript):
                index = subscript.index
                if not self.loaded.isdisjoint(names(index)):
                    found += (ir.Binary("<=", ZERO, index), ir.Binary("<", index, extent))
        return found

    def _bounds(self, load: ir.Load, loops: Loops) -> tuple[LaneSource, ...]:
        """Conditions that a lane lies in `load.read`, as far as `load.domain` does not say so."""
        if load.pad is None or not load.read:
            return ()
        domain = load.domain or (ir.FULL,) * len(load.read)
        found: list[ir.Expr] = []
        for loop, lanes, known in zip(loops, load.read, domain, strict=True):
            lane: ir.Expr = ZERO if loop is None else lane_variable(loop)
            found += [ir.Binary("<=", b, lane) for b in lanes.lower if b not in known.lower]
            found += [ir.Binary("<", lane, b) for b in lanes.upper if b not in known.upper]
        return tuple(LaneSource(test, DType.BOOL) for test in found)

    def fetched(self, statement: ir.Fetch) -> Read:
        """The element that a `fetch` reads."""
        access = statement.access
        stored = self.sketch.tensor(access.tensor).dtype
        guards = [LaneSource(c, DType.BOOL) for c in self._in_range(access)]
        reference = self.reference(statement, access, ())
        return Read(reference, stored, stored, statement.name, guards=tuple(guards))


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
