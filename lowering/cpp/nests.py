"""Loop nests: each tile operation as a rectangle of lanes with what it reads and writes.

`nest_maker.py` makes them, `fusion.py` puts nests with the same lanes into one loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

import attrs

from sketchc import ir
from sketchc.symbolic import constant_value
from sketchc.types import DType

ZERO = ir.Literal(0)
ONE = ir.Literal(1)


@attrs.frozen
class Axis:
    """The lanes `lower <= lane < upper` of one loop; `single`: at most one lane."""

    lower: ir.Expr
    upper: ir.Expr
    single: bool = False


@attrs.frozen
class Term:
    """One index of a reference: `offset + lane of loop axis` (axis None: the offset alone)."""

    axis: int | None
    offset: ir.Expr = ZERO


@attrs.frozen
class Reference:
    """An element of a tile, or (`tensor`) of a tensor or view, as a function of the lanes."""

    name: str
    terms: tuple[Term, ...]
    tensor: bool = False
    base: str = ""  # the tensor behind a view

    def aligned(self, other: Reference, axis: int) -> bool:
        """True if equal elements imply equal lanes of loop `axis` (LOWERING 9 for tensors)."""
        if self.tensor and (self.name != other.name or self.terms != other.terms):
            return False
        return any(
            mine.axis == axis == theirs.axis
            for mine, theirs in zip(self.terms, other.terms, strict=True)
        )


@attrs.frozen
class Read:
    """The element at `reference`, of type `stored`, seen as a tile of type `dtype`. `pinned`: it
    may only be read inside all of its nest's loops (some lane of it may be void)."""

    reference: Reference
    stored: DType
    dtype: DType
    tile: str
    note: str = ""
    pinned: bool = False


@attrs.frozen
class ScalarSource:
    value: ir.Expr
    dtype: DType


@attrs.frozen
class LaneSource:
    """An index tile: `value` may hold `Iota`; `axes` are the loops of its own axes."""

    value: ir.Expr
    dtype: DType
    axes: tuple[int | None, ...]


Source: TypeAlias = Read | ScalarSource | LaneSource


class Kind(Enum):
    ASSIGN = "assign"
    ACCUMULATE = "accumulate"
    PRODUCT = "product"


@attrs.frozen(eq=False)
class Nest:
    """`target = operation(sources)` for all lanes of `axes`. `operation` "copy" moves a value;
    PRODUCT nests have no axes and are emitted whole."""

    kind: Kind
    axes: tuple[Axis, ...]
    target: Reference
    stored: DType  # of the target
    operation: str
    sources: tuple[Source, ...]
    dtype: DType
    result: DType
    attributes: Mapping[str, object] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    early: bool = False  # may move up: it reads nothing
    product: Product | None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(source for source in self.sources if isinstance(source, Read))

    def conflicts(self, other: Nest) -> list[tuple[Reference, Reference]]:
        """Pairs of references to the same memory of which one is a write."""
        mine = [self.target, *(read.reference for read in self.reads)]
        theirs = [other.target, *(read.reference for read in other.reads)]
        found = [(mine[0], ref) for ref in theirs if _same_memory(mine[0], ref)]
        found += [(ref, theirs[0]) for ref in mine[1:] if _same_memory(ref, theirs[0])]
        return found


@attrs.frozen
class Product:
    """The extra facts of a matrix product: valid bounds and orientation."""

    rows: Axis
    columns: Axis
    depth: Axis
    extents: tuple[ir.Expr, ir.Expr, ir.Expr]
    trans_a: bool
    trans_b: bool


def _same_memory(left: Reference, right: Reference) -> bool:
    if left.tensor != right.tensor:
        return False
    return left.base == right.base if left.tensor else left.name == right.name


def axis_bounds(extent: ir.Expr, domain: ir.AxisDomain) -> Axis:
    """The lanes of one axis that are valid."""
    lower: ir.Expr = ZERO
    upper = extent
    for bound in domain.lower:
        lower = ir.Binary("max", lower, bound)
    for bound in domain.upper:
        upper = ir.Binary("min", upper, bound)
    return Axis(lower, upper, constant_value(extent) == 1)


def one_lane(extent: ir.Expr, domain: ir.AxisDomain) -> bool:
    """True for an axis that needs no loop: extent 1, always valid."""
    return constant_value(extent) == 1 and domain.full


@attrs.frozen
class Lanes:
    """The loops over a tile shape: loop axes, and for each tile axis its loop (None: lane 0)."""

    axes: tuple[Axis, ...]
    loops: tuple[int | None, ...]

    @staticmethod
    def over(extents: tuple[ir.Expr, ...], domain: ir.Domain) -> Lanes:
        full = domain or (ir.FULL,) * len(extents)
        axes: list[Axis] = []
        loops: list[int | None] = []
        for extent, lanes in zip(extents, full, strict=True):
            if one_lane(extent, lanes):
                loops.append(None)
            else:
                loops.append(len(axes))
                axes.append(axis_bounds(extent, lanes))
        return Lanes(tuple(axes), tuple(loops))
