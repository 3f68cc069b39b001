"""Loop nests: each tile operation as a rectangle of lanes with what it reads and writes.

`nest_maker.py` makes them, `fusion.py` puts nests with the same lanes into one loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeAlias, assert_never

import attrs

from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType, holds
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import references

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
        """The lane itself, or lane 0: what the index of a tile usually is."""
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
        """What it is an element of: views are of their tensor."""
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
        """The type in which the element is kept: its own, unless that lacks the padding."""
        if not self.guards or (not isinstance(self.pad, ir.Expr) and holds(self.stored, self.pad)):
            return self.stored
        return self.dtype

    @property
    def inner(self) -> tuple[Read, ...]:
        """What is read before, to know the element and the guards; innermost first."""
        return reads_of((*self.reference.lanes, *self.guards))

    @property
    def axes(self) -> frozenset[int]:
        """The loops on whose lanes the value depends."""
        return self.reference.axes.union(*(guard.axes for guard in self.guards))

    @property
    def fixed(self) -> bool:
        """Pinned, itself or what is read before."""
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
    """Stands for the lane of a loop in a `LaneSource`."""
    return ir.Ref(f"{_LANE}{axis}", ir.NameKind.LOOP)


def lane_axis(lane: ir.Expr) -> int | None:
    """The loop of a lane variable; None for lane 0."""
    return int(lane.name[1:]) if isinstance(lane, ir.Ref) else None


def read_variable(number: int, dtype: DType) -> ir.Ref:
    """Stands for an element of a tile in a `LaneSource`."""
    kind = DType.BOOL if dtype is DType.BOOL else DType.I64
    return ir.Ref(f"{_READ}{number}", ir.NameKind.BINDING, kind)


def reads_of(sources: Iterable[Source]) -> tuple[Read, ...]:
    """All that `sources` read, what an index needs before the element at that index."""
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
    #: of the operation: what it takes and gives; as stored if nothing else is said
    dtype: DType = attrs.field(default=attrs.Factory(lambda nest: nest.stored, takes_self=True))
    result: DType = attrs.field(default=attrs.Factory(lambda nest: nest.dtype, takes_self=True))
    attributes: Mapping[str, object] = attrs.field(factory=dict)
    note: str = ""
    early: bool = False  # may move up: it reads nothing
    call: Product | LibraryCall | None = None
    guards: tuple[LaneSource, ...] = ()
    origin: Span = NOWHERE  # the statement of the sketch

    @property
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
        """All that is written."""
        if not isinstance(self.call, LibraryCall):
            return (self.target,)
        return tuple(self.call.blocks[n].reference for n in self.call.written)

    @property
    def scattered(self) -> bool:
        """Whether lanes are written in an order that matters, or to places only known when the
        kernel runs: such lanes are no SIMD lanes."""
        return self.kind is Kind.ATOMIC or any(lanes.reads for lanes in self.target.lanes)

    def conflicts(self, other: Nest) -> list[tuple[Reference, Reference]]:
        """Pairs of references to the same memory of which one is a write."""
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
    """The extra facts of a matrix product: valid bounds and orientation."""

    rows: Axis
    columns: Axis
    depth: Axis
    extents: tuple[ir.Expr, ir.Expr, ir.Expr]
    trans_a: bool
    trans_b: bool


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
