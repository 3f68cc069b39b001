"""The diagnostics of domain inference, and domains as text."""

from __future__ import annotations

from typing import assert_never

from sketchc.base.diagnostics import Diagnostic, Label, Span, error
from sketchc.checker.domains.bounds import Trouble
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.symbolic import simplify
from sketchc.ops.table import OPS, Fact, Layout


def describe(domain: ir.Domain) -> str:
    """A domain as text: `all lanes`, or `[lane < M - i*T, all]`."""
    if all(axis.full for axis in domain):
        return "all lanes"
    return f"[{', '.join(_axis(axis) for axis in domain)}]"


def _axis(axis: ir.AxisDomain) -> str:
    terms = [f"{show(bound)} <= lane" for bound in axis.lower]
    terms += [f"lane < {show(bound)}" for bound in axis.upper]
    return " and ".join(terms) or "all"


def stretch(span: Span, tile: ir.Tile | None, valid: ir.AxisDomain) -> Diagnostic:
    """The error for a tile of one lane that is broadcast where the lane may be void."""
    limit = show(simplify((*valid.upper, *valid.lower)[0]))
    name = f"`{tile.source_name}`" if tile is not None else "this index tile"
    return error(
        span,
        "SK0424",
        f"the only lane of {name} may be void where it is broadcast",
        "broadcast here",
        notes=(
            f"the lane is valid only while `{limit}` is positive; "
            "a void lane has no value to repeat",
        ),
        help="bound the loop, or the slice, so that the element is always inside",
    )


def drift(tile: ir.Tile, before: ir.Domain, after: ir.Domain) -> Diagnostic:
    """The error for a tile carried around a loop that changes its domain."""
    return error(
        tile.span,
        "SK0421",
        f"the valid lanes of `{tile.source_name}` change from one iteration to the next",
        "carried around the loop",
        notes=(
            f"valid before the loop: {describe(before)}; after its body: {describe(after)}",
            "at the head of a loop the domain of a tile must not change (R12)",
        ),
        help="initialise the tile with `init=`, which gives it one domain for life",
    )


def torn(
    tile: ir.Tile, branch: ir.If, domains: tuple[ir.Domain, ir.Domain], span: Span
) -> Diagnostic:
    """The error for a tile read after an `if` whose branches left it with different valid lanes."""
    return error(
        span,
        "SK0427",
        f"the valid lanes of `{tile.source_name}` depend on the branch taken",
        "read here",
        labels=(Label(branch.span, "written in a branch of this `if`"),),
        notes=(
            f"valid after one branch: {describe(domains[0])}; after the other: "
            f"{describe(domains[1])}",
            "where branches join, the domains of a tile must agree (R12)",
        ),
        help="load through the same slice in both branches, or initialise the tile with `init=`",
    )


def trouble(
    statement: ir.Load | ir.Store | ir.Atomic, found: Trouble, sketch: ir.Sketch
) -> Diagnostic:
    """The error for something about an access that its domain cannot express."""
    span = statement.access.span
    match found.kind:
        case "stretched":
            return stretch(span, None, ir.AxisDomain((), (found.expression,)))
        case "step":
            step = show(found.expression)
            return error(
                found.expression.span if found.expression.span.end else span,
                "SK0318",
                f"the sign of the step `{step}` is not known",
                "may be positive or negative",
                notes=("which lanes lie inside the slice depends on its direction (R1)",),
                help=f"state it: `require: {step} >= 1;`",
            )
        case "needs-pad" | "where-needs-pad":
            return _needs_pad(statement, found, sketch)
        case _:
            assert_never(found.kind)


def _needs_pad(
    statement: ir.Load | ir.Store | ir.Atomic, found: Trouble, sketch: ir.Sketch
) -> Diagnostic:
    name = statement.access.tensor
    if found.dimension is None:
        message = f"which lanes this load of `{name}` leaves out does not separate by axis"
        what = f"`where={show(found.expression)}` does not say for each axis which lanes are read"
        mark = "does not separate by axis"
        help_text = "say with `pad=` what the lanes hold that are left out"
    else:
        index, extent = show(found.expression), show(sketch.extents(name)[found.dimension])
        message = f"the index `{index}` may leave axis {found.dimension} of `{name}`"
        what = "on which lanes does not separate by axis"
        match found.sides:
            case ("low",):
                mark = "not proved to be 0 or more"
            case ("high",):
                mark = f"not proved to be less than {extent}"
            case _:
                mark = f"not proved to stay in 0 .. {extent} - 1"
        help_text = (
            "if it never leaves, the index, a bound of its `iota`, or a `require:` must say so; "
            "if it does, `pad=` says what those lanes hold"
        )
    return error(
        found.expression.span if found.expression.span.end else statement.access.span,
        "SK0425",
        message,
        mark,
        notes=(
            what,
            "without `pad=` a tile's valid lanes are an interval on each of its axes (R5)",
        ),
        help=help_text,
    )


def padded(
    compute: ir.Compute, operand: ir.TileOperand | ir.IndexOperand, tile: ir.Tile, axis: int
) -> Diagnostic:
    """The error for lanes valid only by `pad=` that meet others in a cross-lane operation: those of
    `tile`, which is the operand or a part of it."""
    return error(
        operand.span,
        "SK0428",
        f"`{compute.operation}` combines lanes of `{tile.source_name}` that are valid only by "
        "`pad=`",
        f"axis {axis} reaches outside the tensor",
        labels=(Label(tile.span, "padded by a load"),),
        notes=(
            "padding would count as data; lanes that are void instead count as nothing (R5, R3)",
        ),
        help="leave out `pad=`, or bound the axis: `lower:min(lower+T, N)` or `iota(T, lower, N)`",
    )


def partial(
    compute: ir.Compute,
    operand: ir.TileOperand | ir.IndexOperand,
    tile: ir.Tile | None,
    axis: int,
    valid: ir.AxisDomain,
) -> Diagnostic:
    """The error for an axis that must be valid whole, or from its first lane on, and is not."""
    name = f"`{tile.source_name}`" if tile is not None else "the index tile"
    row = OPS[compute.operation]
    if Fact.FROM_THE_FIRST in row.facts:
        code, wanted = "SK0426", "from the first lane on"
        help_text = "load the lanes from the start of the tile"
    else:
        code, wanted = "SK0429", "as a whole"
        if valid.lower and row.layout is Layout.JOINED:
            wanted = "from the first lane on" if operand != compute.operands[0] else wanted
        help_text = "choose tiles whose extents divide the tensor's, or pad the load"
    return error(
        operand.span,
        code,
        f"`{compute.operation}` needs axis {axis} of {name} valid {wanted}",
        f"valid: {_axis(valid)}",
        notes=("the lanes of the result would not be an interval on each axis (R1)",),
        help=help_text,
    )
