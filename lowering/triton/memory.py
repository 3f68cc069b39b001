"""Masks, loads and stores of one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton.accesses import is_plain, place
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.expressions import (
    index_shape,
    joined,
    kernel_expression,
    laid_out,
    truth,
)
from sketchc.lowering.triton.scope import Scope, shape_code, spread


def conditions(
    domain: ir.Domain, tile: str, scope: Scope, axes: tuple[int, ...] | None = None
) -> list[Code]:
    """The conditions under which a lane of `tile` lies in `domain`, axis by axis.

    `axes` restricts them; a lane beyond the logical extent (padding) is never inside.
    """
    planned = scope.plan.tiles[tile]
    rank = len(planned.extents)
    single = not scope.shape(tile)
    found: list[Code] = []
    for axis in range(rank) if axes is None else axes:
        part = domain[axis] if domain else ir.FULL
        physical, logical = planned.extents[axis], planned.tile.extents[axis]
        if physical.value == 1:
            # The one lane is lane 0.
            for symbol, bounds in ((">", part.upper), ("<=", part.lower)):
                for bound in bounds:
                    code = PYTHON.binary(symbol, kernel_expression(bound, scope), Code("0"))
                    found.append(truth(code, (), scope))
            continue
        assert not single
        lane = spread(Code(scope.lane(scope.extent_code(physical, logical))), axis, rank)
        upper = (*part.upper, logical) if physical.padded else part.upper
        if _nothing_between(part.lower, upper):
            # Said in two halves, it crashes compilers that see blocks of memory in masks.
            found.append(PYTHON.binary("<", lane, Code("0")))
            continue
        found += [PYTHON.binary(">=", lane, kernel_expression(b, scope)) for b in part.lower]
        found += [PYTHON.binary("<", lane, kernel_expression(b, scope)) for b in upper]
    return found


def _nothing_between(lower: Sequence[ir.Expr], upper: Sequence[ir.Expr]) -> bool:
    """True where the bounds that are numbers leave no lane."""
    least = [value for bound in lower if (value := constant_value(bound)) is not None]
    most = [value for bound in upper if (value := constant_value(bound)) is not None]
    return bool(least and most) and max(least) >= min(most)


def conjunction(found: list[Code]) -> Code | None:
    """All conditions at once; None for none."""
    return PYTHON.fold("&", found) if found else None


def guard_conditions(guards: tuple[ir.Expr, ...], rank: int, scope: Scope) -> list[Code]:
    """The conditions that do not separate by axis, each of the tile's rank or a scalar."""
    found = []
    for guard in guards:
        lanes = index_shape(guard, scope)
        code = joined(guard, scope)
        if lanes and len(lanes) < rank:
            code = laid_out(code, (False,) * (rank - len(lanes)) + (True,) * len(lanes))
        found.append(code)
    return found


def is_block(
    access: ir.Access, tile: str, guards: tuple[ir.Expr, ...], mask: Code | None, scope: Scope
) -> bool:
    """True where a masked access is right as it stands. The Ascend front end reads and writes
    blocks: elsewhere it needs addresses that are inside the tensor on every lane, and not plain."""
    if not scope.dialect.interval_masks:
        return True
    scalar = not scope.shape(tile)
    return is_plain(access) and not guards and not (scalar and mask is not None)


def _whole(address: Code, reached: tuple[Code, ...], tile: str, scope: Scope) -> Code:
    """An address for every lane, also along axes where all lanes have the same."""
    shape = scope.shape(tile)
    if reached == shape:
        return address
    missing = len(shape) - len(reached)
    if reached and missing:
        # What lies before the index tiles are slices of one element: they have no lanes.
        address = laid_out(address, (False,) * missing + (True,) * len(reached))
    return PYTHON.call("tl.broadcast_to", address, shape_code(shape))


def load(
    statement: ir.Load, fill: int | float | bool | None, moving: Code | None, scope: Scope
) -> Code:
    """The value of a load, in the tile's type; so is `moving`, a padding known at run time."""
    tile = scope.plan.sketch.tile(statement.tile)
    padded = statement.pad is not None
    found = conditions(statement.read if padded else statement.domain, tile.name, scope)
    found += guard_conditions(statement.guards, len(scope.shape(tile.name)), scope)
    old = Code(scope.names[tile.name]) if tile.initial is not None else None
    if not padded:
        return _read(statement, conjunction(found), old, fill, scope)
    pad = statement.pad
    if isinstance(pad, ir.ScalarOperand):
        mask = _named(conjunction(found), scope.names[tile.name], scope)
        value = _read(statement, mask, None, None, scope)
        if mask is not None and moving is not None:
            value = PYTHON.call("tl.where", mask, value, moving)
    else:
        value = _read(statement, conjunction(found), None, pad, scope)
    outer = conjunction(conditions(statement.domain, tile.name, scope))
    if old is None or outer is None:
        return value
    return PYTHON.call("tl.where", outer, value, old)


def _read(
    statement: ir.Load,
    mask: Code | None,
    old: Code | None,
    fill: int | float | bool | None,
    scope: Scope,
) -> Code:
    """The elements where `mask` holds; `old` or the fill on other lanes, where one is given."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.plan.sketch.tile(statement.tile)
    where = place(statement.access, tile.name, scope)
    stem = scope.names[tile.name]
    block = is_block(statement.access, tile.name, statement.guards, mask, scope)
    # A plain access with `pad=` may begin before the tensor, where the front end wants no block.
    block = block and not (scope.dialect.interval_masks and statement.pad is not None)
    address = where.address if block else where.inside(stem, scope)
    if not block or statement.guards:
        mask = _named(mask, stem, scope)
    arguments: list[Code | str] = [
        address if is_plain(statement.access) else _whole(address, where.shape, tile.name, scope)
    ]
    same = tile.dtype is tensor.dtype
    late_fill = mask is not None and (
        not block
        or (old is not None and (not same or scope.dialect.interval_masks))
        or (old is None and not same and not _simple(fill))
    )
    if mask is not None and block:
        arguments.append(f"mask={mask}")
        if old is not None and not late_fill:
            arguments.append(f"other={old}")
        elif old is None and fill is not None and not late_fill:
            arguments.append(f"other={fill_code(fill, tensor.dtype)}")
    value = convert(loaded(arguments, tensor.dtype, scope), tensor.dtype, tile.dtype)
    if not late_fill or mask is None or (old is None and fill is None):
        return value
    other = old if old is not None else fill_code(fill or 0, tile.dtype)
    return PYTHON.call("tl.where", mask, value, other)


#: A condition longer than this gets a line of its own.
LONGEST_MASK = 50


def _named(mask: Code | None, stem: str, scope: Scope) -> Code | None:
    if mask is None or len(mask.text) <= LONGEST_MASK:
        return mask
    return scope.bind(f"{stem}_mask", mask)


def loaded(arguments: list[Code | str], dtype: DType, scope: Scope) -> Code:
    """The call that reads memory of a type."""
    value = PYTHON.call("tl.load", *arguments)
    if dtype is DType.BOOL and scope.dialect.byte_bools:
        return PYTHON.postfix(value, ".to(tl.int1)")
    return value


def _simple(fill: int | float | bool | None) -> bool:
    """True where a fill means the same in every type."""
    return fill is None or fill in (0, 1) or (isinstance(fill, float) and math.isinf(fill))


def fill_code(value: int | float | bool, dtype: DType) -> Code:
    """A fill or initial value as a literal of the type's kind."""
    if dtype.is_float:
        return literal(float(value))
    return literal(bool(value) if dtype is DType.BOOL else int(value))


def store(statement: ir.Store, scope: Scope) -> Code:
    """The call that writes a tile."""
    address, mask = target_lanes(statement, scope)
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.plan.sketch.tile(statement.tile)
    value = convert(Code(scope.names[tile.name]), tile.dtype, tensor.dtype)
    arguments: list[Code | str] = [address, value]
    if mask is not None:
        arguments.append(f"mask={mask}")
    return PYTHON.call("tl.store", *arguments)


def target_lanes(
    statement: ir.Store | ir.Atomic, scope: Scope, pointer: Code | None = None
) -> tuple[Code, Code | None]:
    """The addresses that a tile's lanes go to, and which do. `pointer` stands for the tensor's,
    where the caller has further conditions on the lanes."""
    tile = statement.tile
    rank = len(scope.shape(tile))
    found = conditions(statement.domain, tile, scope)
    found += guard_conditions(statement.guards, rank, scope)
    mask = conjunction(found)
    where = place(statement.access, tile, scope)
    stem = scope.names[tile]
    if pointer is not None:
        where = attrs.evolve(where, pointer=pointer)
    # A scalar's mask is honoured when it is written.
    block = is_block(statement.access, tile, statement.guards, mask, scope) and pointer is None
    block = block or not rank
    address = where.address if block else where.inside(stem, scope)
    if not is_plain(statement.access):
        address = _whole(address, where.shape, tile, scope)
    if not block or statement.guards:
        mask = _named(mask, stem, scope)
    return address, mask


def convert(code: Code, source: DType, target: DType) -> Code:
    """A tensor value in another type; to bool it tests against zero."""
    if source is target:
        return code
    if target is DType.BOOL:
        return PYTHON.binary("!=", code, Code("0"))
    return PYTHON.postfix(code, f".to({TL[target]})")
