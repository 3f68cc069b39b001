"""The typed sketch: names resolved, tiles and dtypes known, domains inferred.

`checker/elaboration` makes it from the syntax tree *for given constants*: every tunable constant
has a value here (proofs run again for each tuning point), yet expressions keep the constant's name,
so that generated code reads like the sketch. Nodes are frozen; a pass makes a new tree.

Scalar expressions are host or loop scalars (i64, f64 for host floats, bool). An expression that
contains `Iota` or `TileLanes` is an *index tile*: it has a shape, right-aligned as in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Placed
from sketchc.base.types import DType


@records.frozen
class Stated(Placed):
    """A statement; `text` is what the source says."""

    text: str = records.field(default="", eq=False, kw_only=True)


# ---------------------------------------------------------------- expressions


class NameKind(Enum):
    """What a name stands for, and who knows its value."""

    SYMBOL = "symbol"  # i64 >= 0, bound at launch from shapes
    PARAM = "param"  # run-time scalar; also a constexpr without value that only feeds data
    CONSTANT = "constant"  # compile-time value, in Sketch.constants
    LET = "let"  # host-computed at launch, in Sketch.lets
    LOOP = "loop"  # loop variable
    BINDING = "binding"  # immutable integer (or index tile) bound in the body, or fetched there
    HOST = "host"  # run-time scalar that the host knows at each launch: see Phase.scalars
    PRESENT = "present"  # bool: the optional tensor of this name was given

    @property
    def on_host(self) -> bool:
        """Whether the host knows the value before a launch."""
        return self not in (NameKind.LOOP, NameKind.BINDING)


@records.frozen
class Literal(Placed):
    """An i64, f64 (inf, nan allowed) or bool constant."""

    value: int | float | bool


@records.frozen
class Ref(Placed):
    """A name. `dtype` is i64, bool, or a float type. `layout` gives the shape of an index tile
    after `[:, None]`: one entry per axis, True where the tile's own axis stands, False for a new
    axis of extent 1; None for scalars and for index tiles used as they are."""

    name: str
    kind: NameKind
    dtype: DType = DType.I64
    layout: tuple[bool, ...] | None = None


@records.frozen
class Unary(Placed):
    """`-` or `not`."""

    operator: str
    operand: Expr


@records.frozen
class Binary(Placed):
    """`+ - * // %` on integers (floor semantics), `/` on host floats, `min max cdiv`, comparisons
    `< <= > >= == !=`, and `and or`."""

    operator: str
    left: Expr
    right: Expr


@records.frozen
class Choice(Placed):
    """`then if condition else otherwise`, of integers: scalars, or index tiles that broadcast. A
    lane is void where one of the three is."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def parts(self) -> tuple[Expr, Expr, Expr]:
        """The condition, then both values."""
        return self.condition, self.then, self.otherwise


@records.frozen
class Function(Placed):
    """A host float function in `let` and scalar operands: sqrt, exp, log, pow, abs, float, int."""

    name: str
    arguments: tuple[Expr, ...]


@records.frozen
class Iota(Placed):
    """Lanes `lower + (0 .. extent-1)`, void from `upper` on (None: no bound). `layout` as in Ref;
    a plain iota has layout (True,)."""

    extent: Expr
    lower: Expr
    upper: Expr | None
    layout: tuple[bool, ...] = (True,)


@records.frozen
class TileLanes(Placed):
    """The lanes of an integer or bool tile as an index tile: `idx` in `X[idx]` or `2*idx + 1`.

    It stands for the tile's values where it is evaluated: a binding of it is a snapshot. `extents`
    are the tile's; `domain` is that of the version read; `layout` as in Ref, over `extents`.
    """

    tile: str
    dtype: DType
    extents: tuple[Expr, ...]
    layout: tuple[bool, ...]
    domain: Domain = ()


Expr: TypeAlias = Literal | Ref | Unary | Binary | Choice | Function | Iota | TileLanes

# ---------------------------------------------------------------- domains (R1)


@records.frozen
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
        """Whether every lane is valid."""
        return not self.lower and not self.upper


FULL = AxisDomain()
Domain: TypeAlias = tuple[AxisDomain, ...]  # one per axis of the tile


# ---------------------------------------------------------------- accesses and statements


@records.frozen
class ScalarSubscript:
    """A scalar index: drops the axis. Proved in range, or a generated require (R13)."""

    index: Expr


@records.frozen
class SliceSubscript:
    """`lower:upper:step`: lane j reads element `lower + j*step` while it is inside the slice
    (before `upper` in the direction of `step`). `step` is a scalar whose sign is proved, never 0.
    `exact`: the slice has as many elements as the tile axis has lanes."""

    lower: Expr
    upper: Expr
    exact: bool = True
    step: Expr = Literal(1)


@records.frozen
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


@records.frozen
class Access(Placed):
    """`tensor[subscripts]`; `tensor` names a tensor or a view.

    Three forms: only scalars (the tile's extents are all 1) or scalars and slices, which map to the
    tile's axes in order; *mixed*: slices and index tiles of rank 1, each of which takes one tile
    axis, in order; *lane form*: no slice, and the index tiles, of any rank, broadcast pointwise to
    the tile's shape, as in NumPy. `walk.element_indices` writes every form as one index per
    dimension."""

    tensor: str
    subscripts: tuple[Subscript, ...]

    @property
    def lane_form(self) -> bool:
        """Whether there are index tiles and no slice. (With one index tile of rank 1, the lane form
        and the mixed form agree.)"""
        kinds = {type(subscript) for subscript in self.subscripts}
        return IndexSubscript in kinds and SliceSubscript not in kinds


@records.frozen
class TileOperand(Placed):
    """A tile read by an operation, with the domain of the version read. `layout` as in `Ref`, for
    `t[:, None]`: the same tile with axes of extent 1 added, of which `domain` speaks, too. Only
    element-wise operations, `broadcast` and random numbers read a tile so."""

    tile: str
    domain: Domain = ()
    layout: tuple[bool, ...] | None = None


@records.frozen
class ScalarOperand(Placed):
    """A scalar expression (no Iota): literals, symbols, params, lets, loop variables. Integer
    scalars next to float tiles take the tile's type."""

    value: Expr
    dtype: DType


@records.frozen
class IndexOperand(Placed):
    """An index tile or predicate over Iota: i64 or bool lanes, `extents` its broadcast shape."""

    value: Expr
    dtype: DType
    extents: tuple[Expr, ...]
    domain: Domain = ()


Operand: TypeAlias = TileOperand | ScalarOperand | IndexOperand


@records.frozen
class Alloc(Placed):
    """The allocation of a tile: the tile of this name is in scope from here on."""

    tile: str


@records.frozen
class Load(Stated):
    """`load(access -> tile)`; the tile's version after the load is valid on `domain`.

    A lane of `domain` holds the element where it also lies in `read` and all `guards` hold, and
    `pad` elsewhere. Without `pad`, `read` equals `domain`, and only loaded indices leave guards
    (a lane that fails one is not read, and its value is unspecified: R13). Domain inference fills
    in `domain`, `read` and `guards`: what separates by axis goes into the domains, the rest of
    `where` and of the bounds becomes guards: bool index tiles that broadcast to the tile's shape.
    `where` is the condition as written.
    """

    access: Access
    tile: str
    domain: Domain = ()
    pad: int | float | bool | ScalarOperand | None = None  # a constant, or known at run time
    where: Expr | None = None
    read: Domain = ()
    guards: tuple[Expr, ...] = ()


@records.frozen
class Store(Stated):
    """`store(tile -> access)` of the lanes in `domain` (valid and in bounds) for which all `guards`
    hold. `unique`: the promise that no two lanes or iterations hit one element; `covers`: that
    every element is written. `guards` as in Load."""

    tile: str
    access: Access
    domain: Domain = ()
    where: Expr | None = None
    unique: bool = False
    covers: bool = False
    guards: tuple[Expr, ...] = ()


@records.frozen
class Atomic(Stated):
    """`atomic_add | atomic_max | atomic_min (tile -> tensor[...])`: each written lane is combined
    with the element, indivisibly; lanes that hit one element all count. `operation` is "add",
    "max" or "min"."""

    operation: str
    tile: str
    access: Access
    domain: Domain = ()
    where: Expr | None = None
    guards: tuple[Expr, ...] = ()


@records.frozen
class Fetch(Stated):
    """`name = fetch(tensor[scalars])`: a scalar (i64 for integers, bool, else f32 or f64), known
    by `name` (BINDING) in the statements that follow. In a phase it is a scalar load; among
    the host steps a read by the host, and the name is HOST in the phases."""

    name: str
    access: Access
    dtype: DType


@records.frozen
class Compute(Stated):
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
    attributes: Mapping[str, object] = records.field(factory=dict)
    domain: Domain = ()
    masked: bool = False
    written: Domain = ()
    others: tuple[str, ...] = ()

    @property
    def destinations(self) -> tuple[str, ...]:
        """All tiles written, in order."""
        return (self.destination, *self.others)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that `axis=` names, or all in the order of `axes=`; none without either."""
        named = self.attributes.get("axis", self.attributes.get("axes", ()))
        assert isinstance(named, tuple)
        return named


@records.frozen
class Bind(Stated):
    """`name = value`, an immutable integer or index tile."""

    name: str
    value: Expr


@records.frozen
class For(Stated):
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


@records.frozen
class If(Stated):
    """`condition` is uniform: a scalar, the same for all lanes. A condition that is known at
    compile time leaves no If, only the branch taken. `carried` names the tiles that a
    branch writes and that are read afterwards, in order of first write."""

    condition: Expr
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()
    carried: tuple[str, ...] = ()


Statement: TypeAlias = Alloc | Load | Store | Atomic | Fetch | Compute | Bind | For | If


# ---------------------------------------------------------------- verdicts (LANGUAGE section 6)


class Tier(Enum):
    """How a verdict was reached (LANGUAGE section 6), best first."""

    PROVED = "proved"
    PROVED_FOR_SHAPES = "proved for these shapes"
    CHECKED_AT_LAUNCH = "checked at launch"
    TESTED = "tested"
    ASSUMED = "assumed"
    UNPROVED = "unproved"
    REFUTED = "refuted"


@records.frozen
class CounterExample:
    """Values that make a claim fail: symbols, the iterations involved, the element touched, and
    params where their defaults do not."""

    symbols: Mapping[str, int]
    iterations: tuple[Mapping[str, int], ...] = ()
    element: tuple[int, ...] = ()
    text: str = ""
    params: Mapping[str, int | float | bool] = records.field(factory=dict)


@records.frozen
class Proof(Placed):
    """One verdict. `claim` is one of "in-bounds", "covered", "independent", "initialised",
    "slice-fits", "scratch", and "tile-size" (R6b: results do not depend on tile sizes)."""

    claim: str
    subject: str
    tier: Tier
    detail: str = ""
    counter_example: CounterExample | None = None


# ---------------------------------------------------------------- declarations


class Role(Enum):
    """Who reads and writes a tensor."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    WORKSPACE = "workspace"


@records.frozen
class Symbol(Placed):
    """A size that a launch reads off its tensors."""

    name: str
    upper_bound: int | None = None  # inclusive


@records.frozen
class Param(Placed):
    """A run-time scalar. `from_constexpr`: written as a valueless constexpr that only feeds data.
    A param without default must be given at launch."""

    name: str
    dtype: DType
    default: int | float | bool | None = None
    from_constexpr: bool = False


@records.frozen
class Constant(Placed):
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


@records.frozen
class Let(Placed):
    """A host value. `upper_bound`: what an integer is at most at every launch, where known."""

    name: str
    dtype: DType  # I64, F64 or BOOL
    value: Expr
    upper_bound: int | None = None


@records.frozen
class Tensor(Placed):
    """A tensor parameter or workspace, dense and row-major; `extents` is () for one element.
    `broadcast[a]`: extent may be 1 (`M|1`, load-only). `initial`: value written before the first
    launch, or None. `optional` (`in f32?`): may be absent at launch; it is accessed only under
    `if present(NAME)`."""

    name: str
    extents: tuple[Expr, ...]
    dtype: DType
    role: Role
    initial: int | float | bool | None = None
    broadcast: tuple[bool, ...] = ()
    optional: bool = False


@records.frozen
class View(Placed):
    """A dense reinterpretation of a tensor's elements with other extents."""

    name: str
    extents: tuple[Expr, ...]
    base: str


@records.frozen
class Require(Placed):
    """A host check at launch: `condition` must hold. `generated` ones come from proofs (R13)."""

    condition: Expr
    text: str
    generated: bool = False


@records.frozen
class Tile(Placed):
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


# ---------------------------------------------------------------- phases


@records.frozen
class Phase:
    """One launch (R8): an outermost parallel nest, or a run of top-level statements without one.

    `scalars` names the HOST values that the body uses, in order of first use: variables of host
    loops around the launch, and what the host fetched or bound. They are further scalar arguments
    of the launch, after symbols and params."""

    body: tuple[Statement, ...]
    scalars: tuple[str, ...] = ()


# ---------------------------------------------------------------- what the host does


@records.frozen
class Launch:
    """Run the phase of this index once."""

    phase: int


@records.frozen
class HostFor(Stated):
    """A sequential loop around launches; its bounds are host-computable."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[HostStep, ...]


@records.frozen
class HostIf(Stated):
    """A branch around launches, on a host-computable condition."""

    condition: Expr
    body: tuple[HostStep, ...]
    orelse: tuple[HostStep, ...] = ()


#: In a host step, names bound by an outer step are HOST references, as they are in the phases.
HostStep: TypeAlias = Launch | HostFor | HostIf | Fetch | Bind


@records.frozen
class Sketch(Placed):
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
    schedule: tuple[HostStep, ...] = ()  # () for: launch each phase once, in order

    @property
    def steps(self) -> tuple[HostStep, ...]:
        """The host steps, in order; each phase is launched at exactly one place."""
        return self.schedule or tuple(Launch(index) for index in range(len(self.phases)))

    @property
    def symbol_bounds(self) -> dict[str, int | None]:
        """The inclusive bound of each symbol, by name; None for one without."""
        return {symbol.name: symbol.upper_bound for symbol in self.symbols}

    def tile(self, name: str) -> Tile:
        """The tile of this name."""
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
