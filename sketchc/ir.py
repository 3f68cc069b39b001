"""The typed sketch: names resolved, tiles and dtypes known, domains inferred.

`checker/elaborate` makes it from the syntax tree *for given constants*: every tunable constant has
a value here (proofs run again for each tuning point), yet expressions keep the constant's name, so
that generated code reads like the sketch. Nodes are frozen; a pass makes a new tree.

Scalar expressions are host or loop scalars (i64, f64 for host floats, bool). An expression that
contains `Iota` or `TileLanes` is an *index tile*: it has a shape, right-aligned as in NumPy.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias, assert_never

from sketchc import records as attrs
from sketchc.ir_expressions import (
    FULL,
    AxisDomain,
    Binary,
    Choice,
    Domain,
    Expr,
    Function,
    Iota,
    Literal,
    NameKind,
    Ref,
    TileLanes,
    Unary,
)
from sketchc.ir_statements import (
    Access,
    Alloc,
    Atomic,
    Bind,
    Compute,
    Fetch,
    For,
    If,
    IndexOperand,
    IndexSubscript,
    Load,
    Operand,
    ScalarOperand,
    ScalarSubscript,
    SliceSubscript,
    Statement,
    Store,
    Subscript,
    TileOperand,
    inside,
    walk,
)
from sketchc.ir_verdicts import CounterExample, Proof, Tier
from sketchc.source import NOWHERE, Span
from sketchc.types import DType

__all__ = [
    "FULL",
    "Access",
    "Alloc",
    "Atomic",
    "AxisDomain",
    "Binary",
    "Bind",
    "Choice",
    "Compute",
    "Constant",
    "CounterExample",
    "Domain",
    "Expr",
    "Fetch",
    "For",
    "Function",
    "HostFor",
    "HostIf",
    "HostStep",
    "If",
    "IndexOperand",
    "IndexSubscript",
    "Iota",
    "Launch",
    "Let",
    "Literal",
    "Load",
    "NameKind",
    "Operand",
    "Param",
    "Phase",
    "Proof",
    "Ref",
    "Require",
    "Role",
    "ScalarOperand",
    "ScalarSubscript",
    "Sketch",
    "SliceSubscript",
    "Statement",
    "Store",
    "Subscript",
    "Symbol",
    "Tensor",
    "Tier",
    "Tile",
    "TileLanes",
    "TileOperand",
    "Unary",
    "View",
    "around",
    "inside",
    "walk",
]


def _span() -> Span:
    return attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


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
    """A host value. `upper_bound`: what an integer is at most at every launch, where known."""

    name: str
    dtype: DType  # I64, F64 or BOOL
    value: Expr
    upper_bound: int | None = None
    span: Span = _span()


@attrs.frozen
class Tensor:
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


# ---------------------------------------------------------------- phases


@attrs.frozen
class Phase:
    """One launch (R8): an outermost parallel nest, or a run of top-level statements without one.

    `scalars` names the HOST values that the body uses, in order of first use: variables of host
    loops around the launch, and what the host fetched or bound. They are further scalar arguments
    of the launch, after symbols and params."""

    body: tuple[Statement, ...]
    scalars: tuple[str, ...] = ()


# ---------------------------------------------------------------- what the host does


@attrs.frozen
class Launch:
    """Run the phase of this index once."""

    phase: int


@attrs.frozen
class HostFor:
    """A sequential loop around launches; its bounds are host-computable."""

    variable: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[HostStep, ...]
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


@attrs.frozen
class HostIf:
    """A branch around launches, on a host-computable condition."""

    condition: Expr
    body: tuple[HostStep, ...]
    orelse: tuple[HostStep, ...] = ()
    text: str = attrs.field(default="", eq=False)
    span: Span = _span()


#: In a host step, names bound by an outer step are HOST references, as they are in the phases.
HostStep: TypeAlias = Launch | HostFor | HostIf | Fetch | Bind


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
    schedule: tuple[HostStep, ...] = ()  # () for: launch each phase once, in order
    span: Span = _span()

    @property
    def steps(self) -> tuple[HostStep, ...]:
        """What the host does, in order; each phase is launched at exactly one place."""
        return self.schedule or tuple(Launch(index) for index in range(len(self.phases)))

    def around(self, phase: int) -> tuple[HostFor | HostIf | Fetch | Bind, ...]:
        """The host steps in force where a phase is launched."""
        return around(self.steps, phase)

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


def around(steps: tuple[HostStep, ...], phase: int) -> tuple[HostFor | HostIf | Fetch | Bind, ...]:
    """The host steps in force where a phase is launched, outermost first: the loops and branches
    around it, and the names bound or fetched before it at each level."""
    return _path(steps, phase) or ()


def _path(
    steps: tuple[HostStep, ...], phase: int
) -> tuple[HostFor | HostIf | Fetch | Bind, ...] | None:
    """The steps in force at the launch of `phase`, or None where it is not among `steps`."""
    bound: list[HostFor | HostIf | Fetch | Bind] = []
    for step in steps:
        match step:
            case Launch(index):
                if index == phase:
                    return tuple(bound)
            case Fetch() | Bind():
                bound.append(step)
            case HostFor():
                inner = _path(step.body, phase)
                if inner is not None:
                    return (*bound, step, *inner)
            case HostIf():
                inner = _path(step.body, phase)
                if inner is None:
                    inner = _path(step.orelse, phase)
                if inner is not None:
                    return (*bound, step, *inner)
            case _:
                assert_never(step)
    return None
