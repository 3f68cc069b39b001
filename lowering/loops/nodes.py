"""The loop IR: what a phase becomes after its tile operations are fused into loops.

C++, CUDA-C and TileLang print it: hence lane loops and storage are nodes of their own.
Index and bound expressions are the scalar expressions of `sketchc.ir.nodes` over host scalars, grid
and loop variables and lane variables (`Ref` of kind LOOP); values are the small typed language
below. A value of type f16 or bf16 is a stored one: arithmetic happens on f32 or f64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import attrs

from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import scalar_dtype
from sketchc.launch.conditions import Condition
from sketchc.lowering.plan import Storage
from sketchc.lowering.source_map import Traced

# ---------------------------------------------------------------- values


@attrs.frozen
class Number:
    """A constant of a data type (inf and nan allowed)."""

    value: int | float | bool
    dtype: DType


@attrs.frozen
class Local:
    """A scalar local of the loop body."""

    name: str
    dtype: DType


@attrs.frozen
class Scalar:
    """An integer, float or bool expression over names in scope, in the type it is printed in."""

    value: ir.Expr
    dtype: DType


@attrs.frozen
class Element:
    """`buffer[index]`; `index` counts elements from the start of the buffer."""

    buffer: str
    index: ir.Expr
    dtype: DType


@attrs.frozen
class Convert:
    """`value` in another type; `rounding` and `saturate` are those of `cast`."""

    value: Value
    dtype: DType
    rounding: str = "default"
    saturate: bool = False


@attrs.frozen
class Apply:
    """An operation of the op table on values of the type `operands`; `dtype` is the result type."""

    operation: str
    arguments: tuple[Value, ...]
    operands: DType
    dtype: DType
    attributes: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Select:
    """`value` where the condition holds, else `otherwise`; only the one chosen is evaluated."""

    condition: ir.Expr
    value: Value
    otherwise: Value
    dtype: DType


Value: TypeAlias = Number | Local | Scalar | Element | Convert | Apply | Select

# ---------------------------------------------------------------- statements


@attrs.frozen
class Note(Traced):
    """A comment: a statement of the sketch, or why something is done."""

    text: str


@attrs.frozen
class Define(Traced):
    """A new scalar local. `mutable` when `Assign` or `Accumulate` follow; `spare` when perhaps
    nothing reads it."""

    name: str
    dtype: DType
    value: Value
    mutable: bool = False
    spare: bool = False


@attrs.frozen
class Row(Traced):
    """`name` points to `buffer[base]`, for a loop over lanes, or, where the lanes of a block are
    streamed and the buffer is too large for the caches, to the small local buffer `block`, whose
    elements are then written to `buffer` past the caches."""

    name: str
    buffer: str
    base: ir.Expr
    dtype: DType
    writable: bool = False
    block: str = ""


@attrs.frozen
class Assign(Traced):
    """`name = value` for a local that is defined already."""

    name: str
    value: Value


@attrs.frozen
class Write(Traced):
    """`buffer[index] = value`; the value has the buffer's type."""

    buffer: str
    index: ir.Expr
    value: Value


@attrs.frozen
class AtomicUpdate(Traced):
    """`buffer[index] = buffer[index] (operation) value`, indivisibly: "add", "max" or "min"; the
    value has the buffer's type."""

    operation: str
    buffer: str
    index: ir.Expr
    value: Value
    dtype: DType


@attrs.frozen
class Accumulate(Traced):
    """`target = target (operation) value` for a reduction row; the target is a local or an
    element, and the enclosing lane loop names a local target in its `reductions`."""

    operation: str
    target: Local | Element
    value: Value


@attrs.frozen
class MatrixView:
    """A rectangle of a buffer: element (r, c) is `buffer[origin + r * row + c * column]`. Where it
    is one of a tensor (or view) without repeated axes, `window` has the tensor's index of the first
    element, `shape` the tensor's extents, and `axes` those along which r and c run."""

    buffer: str
    dtype: DType
    origin: ir.Expr
    row: ir.Expr
    column: ir.Expr
    writable: bool = False
    window: tuple[ir.Expr, ...] = ()
    shape: tuple[ir.Expr, ...] = ()
    axes: tuple[int, ...] = ()


@attrs.frozen
class TileView:
    """The valid rectangle of a tile in memory: per axis its first lane, the one after its last, and
    the elements from one lane to the next."""

    buffer: str
    dtype: DType
    lower: tuple[ir.Expr, ...]
    upper: tuple[ir.Expr, ...]
    strides: tuple[ir.Expr, ...]
    writable: bool = False


@attrs.frozen
class Keeping:
    """The storage `pack` keeps the packed panels of an operand, of `depth` terms each, for later
    products of the launch: these are in slot `number` of `slots`. They are met again by the same
    thread where it runs more than `between` programs one after the other."""

    pack: str
    depth: ir.Expr
    slots: ir.Expr
    number: ir.Expr
    between: ir.Expr


@attrs.frozen
class Call(Traced):
    """A call of a library function on tiles in memory, with the template arguments `parameters`:
    `extents` are the valid extents of its work, where the views do not have them, `packs` the
    storages that it packs panels into, `kept` those that keep them, and `precision` the floor of a
    product's precision."""

    name: str
    views: tuple[MatrixView | TileView, ...]
    parameters: tuple[str, ...] = ()
    extents: tuple[ir.Expr, ...] = ()
    packs: tuple[str, ...] = ()
    precision: str = "ieee"
    kept: tuple[Keeping, ...] = ()


@attrs.frozen
class Reduction:
    """A local into which a reduction operation combines the lanes of a loop."""

    name: str
    operation: str
    dtype: DType


@attrs.frozen
class Loop(Traced):
    """A loop over the lanes of one tile axis, run in order; `unrolled` asks for copies of the body
    in place of iterations (the bounds are compile-time constants then). The turns of an
    `independent` one may run at the same time."""

    variable: str
    lower: ir.Expr
    upper: ir.Expr
    body: tuple[Statement, ...]
    step: int = 1
    unrolled: bool = False
    independent: bool = False


@attrs.frozen
class LaneLoop(Traced):
    """An innermost loop whose lanes are independent but for `reductions`: SIMD lanes on a CPU, the
    threads of a block on a GPU. `rows` are defined before the loop."""

    variable: str
    lower: ir.Expr
    upper: ir.Expr
    body: tuple[Statement, ...]
    reductions: tuple[Reduction, ...] = ()
    rows: tuple[Row, ...] = ()


@attrs.frozen
class StreamedLoop(Traced):
    """`loop` in blocks of `size` lanes: `variable` is the first of a block and `end` (another name)
    the one after its last. Writes to streamed rows, those with a `block`, count from the first."""

    variable: str
    end: str
    size: int
    loop: LaneLoop


@attrs.frozen
class SerialLoop(Traced):
    """A sequential loop of the sketch; `direction` is the sign of its step, 0 where that is only
    known when the kernel runs."""

    variable: str
    start: ir.Expr
    stop: ir.Expr
    step: ir.Expr
    body: tuple[Statement, ...]
    text: str = ""
    direction: int = 1


@attrs.frozen
class Branch(Traced):
    """`body` where the condition holds, else `orelse`: a branch of the sketch, or a guard of single
    lanes in a loop over them."""

    condition: ir.Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    text: str = ""


@attrs.frozen
class Program:
    """One phase: `body` runs for every grid point with its own storage."""

    storages: tuple[Storage, ...]
    body: tuple[Statement, ...]


@attrs.frozen
class Barrier(Traced):
    """All threads of a block wait here for each other."""


@attrs.frozen
class Refusal(Traced):
    """The host function returns the number of `condition` unless it holds."""

    condition: Condition


@attrs.frozen
class Launch(Traced):
    """All programs of the phase of this number: `program` at each point of the grid, whose loops
    (outermost first) have no bodies of their own; `variables` are defined inside all loops of the
    grid."""

    grid: tuple[SerialLoop, ...]
    variables: tuple[Define, ...]
    program: Program
    alone: bool  # no other phase is launched
    phase: int


Statement: TypeAlias = (
    Note
    | Define
    | Assign
    | Write
    | AtomicUpdate
    | Accumulate
    | Call
    | Loop
    | LaneLoop
    | StreamedLoop
    | SerialLoop
    | Branch
    | Barrier
    | Refusal
    | Launch
)


#: What statements are made of beside other statements.
Part: TypeAlias = Value | MatrixView | TileView | Reduction | ir.Expr

_Node = TypeVar("_Node")


def children(statement: Statement) -> tuple[Statement, ...]:
    """The statements directly inside; empty for a leaf."""
    match statement:
        case Loop() | LaneLoop() | SerialLoop():
            return statement.body
        case Branch(body=body, orelse=orelse):
            return (*body, *orelse)
        case StreamedLoop(loop=loop):
            return (loop,)
        case Launch(program=program):
            return program.body
        case _:
            return ()


def with_bodies(
    statement: Statement, change: Callable[[tuple[Statement, ...]], tuple[Statement, ...]]
) -> Statement:
    """The statement with the bodies of a loop or branch changed; any other statement as it is."""
    match statement:
        case Loop() | LaneLoop() | SerialLoop():
            return attrs.evolve(statement, body=change(statement.body))
        case Branch(body=body, orelse=orelse):
            return attrs.evolve(statement, body=change(body), orelse=change(orelse))
        case _:
            return statement


def expanded(
    body: tuple[Statement, ...],
    kind: type[_Node],
    change: Callable[[_Node], Iterable[Statement] | None],
) -> tuple[Statement, ...]:
    """The statements, nested ones included, with each of type `kind` replaced by what `change`
    gives for it; where that is None, the statement stays, with its own body expanded."""
    found: list[Statement] = []
    for statement in body:
        made = change(statement) if isinstance(statement, kind) else None
        if made is None:
            made = (with_bodies(statement, lambda inner: expanded(inner, kind, change)),)
        found += made
    return tuple(found)


def parts(node: Statement | Part) -> Iterator[Part]:
    """All that a node is made of, down to whole expressions, but not the statements inside."""
    for found in _fields(node).values():
        for part in found if isinstance(found, tuple) else (found,):
            if isinstance(part, Part):
                yield part
                if not isinstance(part, ir.Expr):
                    yield from parts(part)


def with_parts(node: _Node, change: Callable[[Any], Any]) -> _Node:
    """The statement or value with each of its direct parts changed."""
    made = _fields(node)
    for name, found in made.items():
        if isinstance(found, Part):
            made[name] = change(found)
        elif isinstance(found, tuple) and found and isinstance(found[0], Part):
            made[name] = tuple(map(change, found))
    return type(node)(**made)


def _fields(node: Any) -> dict[str, Any]:
    return {field.name: getattr(node, field.name) for field in attrs.fields(type(node))}


def walk(body: tuple[Statement, ...]) -> list[Statement]:
    """All statements in pre-order."""
    return [each for statement in body for each in (statement, *walk(children(statement)))]


def named_buffers(statement: Statement) -> set[str]:
    """The buffers that a statement itself names."""
    found = {
        part.buffer
        for part in parts(statement)
        if isinstance(part, Element | MatrixView | TileView)
    }
    match statement:
        case Write(buffer) | AtomicUpdate(buffer=buffer):
            found.add(buffer)
        case LaneLoop(rows=rows):
            found |= {row.buffer for row in rows}
    return found


def memory_writes(body: tuple[Statement, ...]) -> list[Statement]:
    """The statements that write memory."""
    return [
        each
        for each in walk(body)
        if isinstance(each, Write | AtomicUpdate)
        or (isinstance(each, Accumulate) and isinstance(each.target, Element))
    ]


def is_scatter(loop: Loop) -> bool:
    """Whether a loop writes memory, lane by lane, and leaves nothing in locals around it."""
    inside = walk(loop.body)
    own = {each.name for each in inside if isinstance(each, Define)}
    for each in inside:
        match each:
            case Loop() | LaneLoop() | SerialLoop() | Call():
                return False
            case Assign(name) | Accumulate(_, Local(name)) if name not in own:
                return False
    return loop.step == 1 and bool(memory_writes(loop.body))


LOGICAL = {"and": "&&", "or": "||"}


def bound(name: str, value: ir.Expr, origins: tuple[Span, ...], spare: bool = False) -> Define:
    """The definition of the local `name`, which holds the value bound to that name."""
    dtype = scalar_dtype(value)
    return Define(name, dtype, Scalar(value, dtype), spare=spare, origins=origins)
