"""Accesses, operands and statements of the typed sketch.

Part of `sketchc.ir`, which exports every name here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from sketchc import records as attrs
from sketchc.ir_expressions import Domain, Expr, Literal
from sketchc.source import NOWHERE, Span
from sketchc.types import DType


def _span() -> Span:
    return attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


@attrs.frozen
class ScalarSubscript:
    """A scalar index: drops the axis. Proved in range, or a generated require (R13)."""

    index: Expr


@attrs.frozen
class SliceSubscript:
    """`lower:upper:step`: lane j reads element `lower + j*step` while it is inside the slice
    (before `upper` in the direction of `step`). `step` is a scalar whose sign is proved, never 0.
    `exact`: the slice has as many elements as the tile axis has lanes."""

    lower: Expr
    upper: Expr
    exact: bool = True
    step: Expr = Literal(1)


@attrs.frozen
class IndexSubscript:
    """An index tile: lane -> element index. `value` broadcasts, right-aligned, to the tile's shape.

    `axis`: in the mixed form, the tile axis that it takes; `value` is then laid out there already
    (`m[:, None]` for axis 0 of 2). None in the lane form. `extents` is the shape of `value`.
    `loaded`: some index comes from memory (a tile), so nothing about its range can be proved:
    generated code masks lanes out of range, the interpreter reports them (R13)."""

    value: Expr
    extents: tuple[Expr, ...]
    loaded: bool = False
    axis: int | None = None


Subscript: TypeAlias = ScalarSubscript | SliceSubscript | IndexSubscript


@attrs.frozen
class Access:
    """`tensor[subscripts]`; `tensor` names a tensor or a view.

    Three forms: only scalars (the tile's extents are all 1) or scalars and slices, which map to the
    tile's axes in order; *mixed*: slices and index tiles of rank 1, each of which takes one tile
    axis, in order; *lane form*: no slice, and the index tiles, of any rank, broadcast pointwise to
    the tile's shape, as in NumPy. `lanes.element_indices` writes every form as one index per
    dimension."""

    tensor: str
    subscripts: tuple[Subscript, ...]
    span: Span = _span()

    @property
    def lane_form(self) -> bool:
        """Index tiles and no slice. (With one index tile of rank 1 both readings agree.)"""
        kinds = {type(subscript) for subscript in self.subscripts}
        return IndexSubscript in kinds and SliceSubscript not in kinds


@attrs.frozen
class TileOperand:
    """A tile read by an operation, with the domain of the version read. `layout` as in `Ref`, for
    `t[:, None]`: the same tile with axes of extent 1 added, of which `domain` speaks, too. Only
    element-wise operations, `broadcast` and random numbers read a tile so."""

    tile: str
    domain: Domain = ()
    layout: tuple[bool, ...] | None = None
    span: Span = _span()


@attrs.frozen
class ScalarOperand:
    """A scalar expression (no Iota): literals, symbols, params, lets, loop variables. Integer
    scalars next to float tiles take the tile's type."""

    value: Expr
    dtype: DType
    span: Span = _span()


@attrs.frozen
class IndexOperand:
    """An index tile or predicate over Iota: i64 or bool lanes, `extents` its broadcast shape."""

    value: Expr
    dtype: DType
    extents: tuple[Expr, ...]
    domain: Domain = ()
    span: Span = _span()


Operand: TypeAlias = TileOperand | ScalarOperand | IndexOperand


@attrs.frozen
class Alloc:
    tile: str
    span: Span = _span()


@attrs.frozen
class Load:
    """The tile's version afterwards is valid on `domain`.

    A lane of `domain` holds the element where it also lies in `read` and all `guards` hold, and
    `pad` elsewhere. Without `pad`, `read` equals `domain`, and only loaded indices leave guards
    (a lane that fails one is not read, and its value is unspecified: R13). Domain inference fills
    in `domain`, `read` and `guards`: what separates by axis goes into the domains, the rest of
    `where` and of the bounds becomes guards: bool index tiles that broadcast to the tile's shape.
    `where` is as written.
    """

    access: Access
    tile: str
    domain: Domain = ()
    pad: int | float | bool | ScalarOperand | None = None  # a constant, or known at run time
    where: Expr | None = None
    read: Domain = ()
    guards: tuple[Expr, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class Store:
    """Lanes in `domain` (valid and in bounds) for which all `guards` hold are written. `unique`:
    the promise that no two lanes or iterations hit one element; `covers`: that every element is
    written. `guards` as in Load."""

    tile: str
    access: Access
    domain: Domain = ()
    where: Expr | None = None
    unique: bool = False
    covers: bool = False
    guards: tuple[Expr, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class Atomic:
    """`atomic_add | atomic_max | atomic_min (tile -> tensor[...])`: each written lane is combined
    with the element, indivisibly; lanes that hit one element all count. `operation` is "add",
    "max" or "min"."""

    operation: str
    tile: str
    access: Access
    domain: Domain = ()
    where: Expr | None = None
    guards: tuple[Expr, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class Fetch:
    """`name = fetch(tensor[scalars])`: a scalar (i64 for integers, bool, else f32 or f64), known
    by `name` (BINDING) in the statements that follow. In a phase it is a scalar load; among
    the host steps a read by the host, and the name is HOST in the phases."""

    name: str
    access: Access
    dtype: DType
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class Compute:
    """`operation(operands) -> destination`.

    `attributes` holds every attribute of the op's row, defaults filled in (`axis` as a sorted tuple
    of non-negative ints). `dtype` is the type in which the operation is evaluated; the result is
    rounded to the destination's type at the write (R6). `domain` is the destination version's
    domain after the write; with `masked` (destination has `init=` and the operands' domain does not
    provably cover the tile's) only lanes in `written` change, all others keep their value (R2).
    `others` are the further destinations of an operation with several (topk, sort: the indices);
    they have the first one's shape and `domain`.
    """

    operation: str
    operands: tuple[Operand, ...]
    destination: str
    dtype: DType
    attributes: Mapping[str, object] = attrs.field(factory=dict)
    domain: Domain = ()
    masked: bool = False
    written: Domain = ()
    others: tuple[str, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()

    @property
    def destinations(self) -> tuple[str, ...]:
        """All tiles written, in order."""
        return (self.destination, *self.others)


@attrs.frozen
class Bind:
    """`name = value`, an immutable integer or index tile."""

    name: str
    value: Expr
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class For:
    """`for variable in range(start, stop, step)`; step is a positive or negative non-zero integer
    expression. `carried` names the tiles that are live-in at the header
    and written in the body, in order of first write (LOWERING 6)."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]
    parallel: bool = False
    hints: tuple[str, ...] = ()
    stages: int | None = None
    carried: tuple[str, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class If:
    """`condition` is uniform: a scalar, the same for all lanes. A condition that is known at
    compile time leaves no If, only the branch taken. `carried` names the tiles that a
    branch writes and that are read afterwards, in order of first write."""

    condition: Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    carried: tuple[str, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


Statement: TypeAlias = Alloc | Load | Store | Atomic | Fetch | Compute | Bind | For | If


def inside(statement: Statement) -> tuple[Statement, ...]:
    """The statements directly inside one."""
    match statement:
        case For(body=body):
            return body
        case If(body=body, orelse=orelse):
            return (*body, *orelse)
        case _:
            return ()


def walk(body: Iterable[Statement]) -> Iterator[Statement]:
    """All statements in program order, a loop or branch before what is inside it."""
    for statement in body:
        yield statement
        yield from walk(inside(statement))
