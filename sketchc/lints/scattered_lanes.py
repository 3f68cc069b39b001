"""Accesses whose neighbouring lanes are not neighbours in memory (SK0652)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from sketchc import ir, syntax
from sketchc.diagnostics import Diagnostic, Severity
from sketchc.lints.uses import walk
from sketchc.symbolic import children, constant_value, show

_ONE = ir.Literal(1)
#: The bytes that memory moves at least; nearer neighbours share them.
_LINE = 32


def run(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Loads and stores of many lanes whose innermost dimension stands still, or jumps.

    Indices that come from memory are left alone: where they point is the data's affair.
    """
    del tree
    for phase in sketch.phases:
        statements = list(walk(phase.body))
        bound = {each.name: each.value for each in statements if isinstance(each, ir.Bind)}
        for statement in statements:
            match statement:
                case ir.Load(access=access, tile=tile) | ir.Store(access=access, tile=tile):
                    why = _scattered(sketch, access, sketch.tile(tile), bound)
                    if why:
                        yield _report(statement, why)
                case _:
                    pass


def _scattered(
    sketch: ir.Sketch, access: ir.Access, tile: ir.Tile, bound: Mapping[str, ir.Expr]
) -> str:
    """Why lanes lie apart, or nothing. Dimensions of extent 1 do not count."""
    dimensions = [
        (subscript, extent)
        for subscript, extent in zip(access.subscripts, sketch.extents(access.tensor), strict=True)
        if extent != _ONE
    ]
    if not dimensions or all(extent == _ONE for extent in tile.extents):
        return ""
    if any(isinstance(part, ir.IndexSubscript) and part.loaded for part, _ in dimensions):
        return ""
    *outer, (innermost, extent) = dimensions
    match innermost:
        case ir.ScalarSubscript():
            if any(not isinstance(part, ir.ScalarSubscript) for part, _ in outer):
                return f"neighbouring lanes lie {_apart(outer, extent)} apart"
            return ""
        case ir.SliceSubscript(step=step):
            apart = constant_value(step)
            near = (
                apart is not None and abs(apart) * sketch.tensor(access.tensor).dtype.bytes < _LINE
            )
            if tile.extents[-1] == _ONE or near:
                return ""
            return f"neighbouring lanes lie `{show(step)}` elements apart"
        case ir.IndexSubscript():
            axis = next(
                axis for axis in range(1, len(tile.extents) + 1) if tile.extents[-axis] != _ONE
            )
            if _varies(innermost, axis) or _takes_apart(innermost.value, bound):
                return ""
            still = [extent]
            for subscript, outer_extent in reversed(outer):
                if _varies(subscript, axis):
                    return f"neighbouring lanes lie {_product(still)} apart"
                still.insert(0, outer_extent)
            return ""
        case _:
            assert_never(innermost)


def _takes_apart(value: ir.Expr, bound: Mapping[str, ir.Expr]) -> bool:
    """Whether an index is a quotient or a remainder: one axis of the tile then stands for several
    dimensions, of which no other order need be better."""
    match value:
        case ir.Binary(operator="//" | "%" | "cdiv"):
            return True
        case ir.Ref(name=name) if name in bound:
            return _takes_apart(bound[name], bound)
        case _:
            return any(_takes_apart(part, bound) for part in children(value))


def _varies(subscript: ir.Subscript, axis: int) -> bool:
    """Whether an index in lane form varies along a tile's axis, counted from the last, 1."""
    return (
        isinstance(subscript, ir.IndexSubscript)
        and subscript.axis is None
        and len(subscript.extents) >= axis
        and subscript.extents[-axis] != _ONE
    )


def _apart(outer: list[tuple[ir.Subscript, ir.Expr]], innermost: ir.Expr) -> str:
    """The distance of neighbours along the last dimension that has lanes."""
    extents = [innermost]
    for subscript, extent in reversed(outer):
        if not isinstance(subscript, ir.ScalarSubscript):
            break
        extents.insert(0, extent)
    return _product(extents)


def _product(extents: list[ir.Expr]) -> str:
    return "`" + "*".join(show(extent) for extent in extents) + "` elements"


def _report(statement: ir.Load | ir.Store, why: str) -> Diagnostic:
    verb = "load" if isinstance(statement, ir.Load) else "store"
    return Diagnostic(
        "SK0652",
        Severity.WARNING,
        f"the {verb} is not contiguous: {why}",
        statement.access.span,
        "each lane touches a memory line of its own",
        notes=(
            "hardware moves whole lines (32 to 128 bytes); of such an access one element of each "
            "is used",
        ),
        help="let the tile's last axis run along the tensor's last dimension, and `transpose` the "
        "tile where the other order is wanted",
    )
