"""The typed sketch: names resolved, tiles and dtypes known, domains inferred.

`checker/elaborate` makes it from the syntax tree *for given constants*: every tunable constant has
a value here (proofs run again for each tuning point), yet expressions keep the constant's name, so
that generated code reads like the sketch. Nodes are frozen; a pass makes a new tree.

Scalar expressions are host or loop scalars (i64, f64 for host floats, bool). An expression that
contains `Iota` is an *index tile*: it has a shape, right-aligned as in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from sketchc import records as attrs
from sketchc.source import NOWHERE, Span
from sketchc.types import DType


def _span() -> Span:
    return attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


# ---------------------------------------------------------------- scalar and index expressions


class NameKind(Enum):
    SYMBOL = "symbol"  # i64 >= 0, bound at launch from shapes
    PARAM = "param"  # run-time scalar; also a constexpr without value that only feeds data
    CONSTANT = "constant"  # compile-time value, in Sketch.constants
    LET = "let"  # host-computed at launch, in Sketch.lets
    LOOP = "loop"  # loop variable
    BINDING = "binding"  # immutable integer (or index tile) bound in the body


@attrs.frozen
class Literal:
    """An i64, f64 (inf, nan allowed) or bool constant."""

    value: int | float | bool
    span: Span = _span()


@attrs.frozen
class Ref:
    """A name. `dtype` is i64, bool, or a float type. `layout` gives the shape of an index tile
    after `[:, None]`: one entry per axis, True where the tile's own axis stands, False for a new
    axis of extent 1; None for scalars and for index tiles used as they are."""

    name: str
    kind: NameKind
    dtype: DType = DType.I64
    layout: tuple[bool, ...] | None = None
    span: Span = _span()


@attrs.frozen
class Unary:
    """`-` or `not`."""

    operator: str
    operand: Expr
    span: Span = _span()


@attrs.frozen
class Binary:
    """`+ - * // %` on integers (floor semantics), `/` on host floats, `min max cdiv`, comparisons
    `< <= > >= == !=`, and `and or`."""

    operator: str
    left: Expr
    right: Expr
    span: Span = _span()


@attrs.frozen
class Function:
    """A host float function in `let` and scalar operands: sqrt, exp, log, pow, abs, float, int."""

    name: str
    arguments: tuple[Expr, ...]
    span: Span = _span()


@attrs.frozen
class Iota:
    """Lanes `lower + (0 .. extent-1)`, void from `upper` on (None: no bound). `layout` as in Ref;
    a plain iota has layout (True,)."""

    extent: Expr
    lower: Expr
    upper: Expr | None
    layout: tuple[bool, ...] = (True,)
    span: Span = _span()


Expr: TypeAlias = Literal | Ref | Unary | Binary | Function | Iota

# ---------------------------------------------------------------- domains (R1)


@attrs.frozen
class AxisDomain:
    """Which lanes `j` of one axis are valid: all `lower <= j` and all `j < upper` hold.

    Only bounds that are *not* implied by `0 <= j < logical extent` stand here, so an empty domain
    means that every lane is valid: no mask. Bounds are scalar expressions over the variables in
    scope. A lane beyond the logical extent (a target's padding) is never valid.
    """

    lower: tuple[Expr, ...] = ()
    upper: tuple[Expr, ...] = ()

    @property
    def full(self) -> bool:
        return not self.lower and not self.upper


FULL = AxisDomain()
Domain: TypeAlias = tuple[AxisDomain, ...]  # one per axis of the tile

# ---------------------------------------------------------------- declarations


class Role(Enum):
    IN = "in"
    OUT = "out"
    INOUT = "inout"
    WORKSPACE = "workspace"


@attrs.frozen
class Symbol:
    name: str
    upper_bound: int | None = None  # inclusive
    span: Span = _span()


@attrs.frozen
class Param:
    """A run-time scalar. `from_constexpr`: written as a valueless constexpr that only feeds data.
    A param without default must be given at launch."""

    name: str
    dtype: DType
    default: int | float | bool | None = None
    from_constexpr: bool = False
    span: Span = _span()


@attrs.frozen
class Constant:
    """A compile-time constant with its value at this tuning point.

    `tunable`: it shapes tiles or loops (R6b), so its value never changes results. `chosen_by` says
    where the value comes from: "sketch", "user" (--set), "plan" (picked for the hardware).
    """

    name: str
    dtype: DType
    value: int | float | bool
    choices: tuple[int | float | bool, ...] = ()
    tunable: bool = True
    chosen_by: str = "sketch"
    span: Span = _span()


@attrs.frozen
class Let:
    name: str
    dtype: DType  # I64, F64 or BOOL
    value: Expr
    span: Span = _span()


@attrs.frozen
class Tensor:
    """A tensor parameter or workspace, dense and row-major. `broadcast[a]`: extent may be 1
    (`M|1`, load-only). `initial`: value written before the first launch, or None."""

    name: str
    extents: tuple[Expr, ...]
    dtype: DType
    role: Role
    initial: int | float | bool | None = None
    broadcast: tuple[bool, ...] = ()
    span: Span = _span()


@attrs.frozen
class View:
    """A dense reinterpretation of a tensor's elements with other extents."""

    name: str
    extents: tuple[Expr, ...]
    base: str
    span: Span = _span()


@attrs.frozen
class Require:
    """A host check at launch: `condition` must hold. `generated` ones come from proofs (R13)."""

    condition: Expr
    text: str
    generated: bool = False
    span: Span = _span()


@attrs.frozen
class Tile:
    """One alloc. `name` is unique in the sketch (`x_row`, then `x_row_2`); `source_name` is as
    written. `extents` are logical. `initial` is not None for `init=` tiles (R4), whose `domain` is
    fixed for life. `depth` counts the loops around the alloc."""

    name: str
    source_name: str
    extents: tuple[Expr, ...]
    dtype: DType
    initial: int | float | bool | None = None
    hints: tuple[str, ...] = ()
    domain: Domain | None = None
    depth: int = 0
    span: Span = _span()


# ---------------------------------------------------------------- statements


@attrs.frozen
class ScalarSubscript:
    """A scalar index: drops the axis. Proved in range, or a generated require (R13)."""

    index: Expr


@attrs.frozen
class SliceSubscript:
    """`lower:upper`: tile lane j reads element lower + j. `exact`: upper - lower equals the tile's
    logical extent."""

    lower: Expr
    upper: Expr
    exact: bool = True


@attrs.frozen
class Access:
    """`tensor[subscripts]`; `tensor` names a tensor or a view. Slices map to the tile's axes in
    order. A tile whose access has only scalars has shape [1, ..., 1]."""

    tensor: str
    subscripts: tuple[ScalarSubscript | SliceSubscript, ...]
    span: Span = _span()


@attrs.frozen
class TileOperand:
    """A tile read by an operation, with the domain of the version read."""

    tile: str
    domain: Domain = ()
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
    """Lanes in `domain` are read; the tile's version afterwards has this domain."""

    access: Access
    tile: str
    domain: Domain = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class Store:
    """Lanes in `domain` (valid and in bounds) are written."""

    tile: str
    access: Access
    domain: Domain = ()
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
    """

    operation: str
    operands: tuple[Operand, ...]
    destination: str
    dtype: DType
    attributes: Mapping[str, object] = attrs.field(factory=dict)
    domain: Domain = ()
    masked: bool = False
    written: Domain = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


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
    expression (positive in this version). `carried` names the tiles that are live-in at the header
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


Statement: TypeAlias = Alloc | Load | Store | Compute | Bind | For


@attrs.frozen
class Phase:
    """One launch (R8): an outermost parallel nest, or a run of top-level statements without one."""

    body: tuple[Statement, ...]


@attrs.frozen
class Sketch:
    """One entry point, elaborated for given constants. Loop variables, bindings and tiles have
    unique names throughout the sketch (a second `f` becomes `f_2`); all are valid identifiers in
    Python and C++ and none collides with a declared name."""

    name: str
    symbols: tuple[Symbol, ...]
    params: tuple[Param, ...]
    constants: tuple[Constant, ...]
    lets: tuple[Let, ...]
    tensors: tuple[Tensor, ...]  # in call order; workspaces last
    views: tuple[View, ...]
    requires: tuple[Require, ...]
    tiles: tuple[Tile, ...]
    phases: tuple[Phase, ...]
    span: Span = _span()

    def tile(self, name: str) -> Tile:
        return next(tile for tile in self.tiles if tile.name == name)

    def tensor(self, name: str) -> Tensor:
        """The tensor of this name, views resolved to their base."""
        base = next((view.base for view in self.views if view.name == name), name)
        return next(tensor for tensor in self.tensors if tensor.name == base)

    def extents(self, name: str) -> tuple[Expr, ...]:
        """The extents under which `name` (a tensor or a view) is accessed."""
        for view in self.views:
            if view.name == name:
                return view.extents
        return self.tensor(name).extents


# ---------------------------------------------------------------- verdicts


class Tier(Enum):
    """How a verdict was reached (LANGUAGE section 6), best first."""

    PROVED = "proved"
    PROVED_FOR_SHAPES = "proved for these shapes"
    CHECKED_AT_LAUNCH = "checked at launch"
    TESTED = "tested"
    ASSUMED = "assumed"
    UNPROVED = "unproved"
    REFUTED = "refuted"


@attrs.frozen
class CounterExample:
    """Values that make a claim fail: symbols, the iterations involved, the element touched."""

    symbols: Mapping[str, int]
    iterations: tuple[Mapping[str, int], ...] = ()
    element: tuple[int, ...] = ()
    text: str = ""


@attrs.frozen
class Proof:
    """One verdict. `claim` is one of "in-bounds", "covered", "independent", "initialised",
    "slice-fits", "scratch"."""

    claim: str
    subject: str
    tier: Tier
    detail: str = ""
    counter_example: CounterExample | None = None
    span: Span = _span()
