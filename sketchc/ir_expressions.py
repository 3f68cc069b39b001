"""The scalar and index-tile expressions of the typed sketch, and the domains made of them.

Part of `sketchc.ir`, which exports every name here.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from sketchc import records as attrs
from sketchc.source import NOWHERE, Span
from sketchc.types import DType


def _span() -> Span:
    return attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


class NameKind(Enum):
    SYMBOL = "symbol"  # i64 >= 0, bound at launch from shapes
    PARAM = "param"  # run-time scalar; also a constexpr without value that only feeds data
    CONSTANT = "constant"  # compile-time value, in Sketch.constants
    LET = "let"  # host-computed at launch, in Sketch.lets
    LOOP = "loop"  # loop variable
    BINDING = "binding"  # immutable integer (or index tile) bound in the body, or fetched there
    HOST = "host"  # run-time scalar that the host knows at each launch: see Phase.scalars
    PRESENT = "present"  # bool: the optional tensor of this name was given


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
class Choice:
    """`then if condition else otherwise`, of integers: scalars, or index tiles that broadcast. A
    lane is void where one of the three is."""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span = _span()

    @property
    def parts(self) -> tuple[Expr, Expr, Expr]:
        return self.condition, self.then, self.otherwise

    def map(self, change: Callable[[Expr], Expr]) -> Choice:
        """The choice with each part changed."""
        condition, then, otherwise = map(change, self.parts)
        return Choice(condition, then, otherwise, span=self.span)


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


@attrs.frozen
class TileLanes:
    """The lanes of an integer or bool tile as an index tile: `idx` in `X[idx]` or `2*idx + 1`.

    It stands for the tile's values where it is evaluated: a binding of it is a snapshot. `extents`
    are the tile's; `domain` is that of the version read; `layout` as in Ref, over `extents`.
    """

    tile: str
    dtype: DType
    extents: tuple[Expr, ...]
    layout: tuple[bool, ...]
    domain: Domain = ()
    span: Span = _span()


Expr: TypeAlias = Literal | Ref | Unary | Binary | Choice | Function | Iota | TileLanes

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

    def meet(self, other: AxisDomain) -> AxisDomain:
        """The lanes that are valid in both."""
        return AxisDomain(
            tuple(dict.fromkeys((*self.lower, *other.lower))),
            tuple(dict.fromkeys((*self.upper, *other.upper))),
        )


FULL = AxisDomain()
Domain: TypeAlias = tuple[AxisDomain, ...]  # one per axis of the tile
