"""Cross-lane operations along the last axis of a tile that holds whole rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from random_sketches.draft import Tile
from sketchc.base.types import DType
from sketchc.ops.table import OPS, Category

if TYPE_CHECKING:
    from random_sketches.operations import Operations

_SUMS = ("reduce_sum", "reduce_prod", "cumsum", "cumprod", "softmax", "layer_norm", "rms_norm")


def across(operations: Operations, operation: str) -> Tile | None:
    """One cross-lane operation on a suitable tile, or None."""
    row = OPS[operation]
    match row.category:
        case Category.REDUCTION:
            return _reduction(operations, operation)
        case Category.SCAN:
            return _scan(operations, operation)
        case Category.INDEX:
            return _extremum(operations, operation)
        case Category.SORTING:
            return _sort(operations) if operation == "sort" else _topk(operations)
        case Category.COMPOSITE:
            return _composite(operations, operation)
        case Category.RANDOM:
            return _random(operations, operation)
        case Category.LAYOUT:
            return _layout(operations, operation)
        case _:
            return None


def _whole(operations: Operations, exact: bool = False, floats: bool = False) -> Tile | None:
    """A tile whose last axis is longer than 1 and holds a whole row."""
    return operations.pick(
        lambda t: (
            _is_whole(t)
            and t.dtype is not DType.BOOL
            and (t.exact or not exact)
            and (t.dtype.is_float or not floats)
            and t.depth < 3
            and not t.padded
        )
    )


def _is_whole(tile: Tile) -> bool:
    """Whether the last axis holds whole rows, whatever the tile sizes."""
    return tile.extents[-1] == "N" or (tile.extents[-1].isdigit() and tile.extents[-1] != "1")


def _small(operations: Operations, tile: Tile) -> Tile:
    """The tile clamped to moderate values, for products of many."""
    operations.draft.use("op:clamp")
    low, high = ("-1.25", "1.25") if tile.dtype.is_float else ("-2", "2")
    if not tile.dtype.is_signed:
        low = "1"
    call = f"clamp({tile.name}, {{}}, low={low}, high={high})"
    return operations.emit(attrs.evolve(tile, partial=tile.partial), call)


def _reduction(operations: Operations, operation: str) -> Tile | None:
    truth = operation in ("reduce_any", "reduce_all")
    if truth:
        source = operations.pick(lambda t: t.dtype is DType.BOOL and _is_whole(t) and not t.padded)
    else:
        source = _whole(operations)
    if source is None:
        return None
    if operation == "reduce_prod":
        source = _small(operations, source)
    rank = len(source.extents)
    keep = rank > 1 and operations.draft.rng.random() < 0.6
    extents = (*source.extents[:-1], "1") if keep else (source.extents[:-1] or ("1",))
    dtype = source.dtype
    if operation in ("reduce_sum", "reduce_prod") and dtype in (DType.F16, DType.BF16):
        dtype = DType.F32
    sums = operation in _SUMS and dtype.is_float
    made = Tile("", extents, dtype, source.exact and not sums, source.depth + sums, source.partial)
    return operations.emit(made, f"{operation}({source.name}, {rank - 1}, {{}})")


def _scan(operations: Operations, operation: str) -> Tile | None:
    source = _whole(operations)
    if source is None:
        return None
    if operation == "cumprod":
        source = _small(operations, source)
    floats = source.dtype.is_float
    dtype = DType.F32 if source.dtype in (DType.F16, DType.BF16) else source.dtype
    reverse = operations.draft.rng.random() < 0.4
    operations.draft.use("scan:reverse" if reverse else "scan:forward")
    more = ", reverse=True" if reverse else ""
    if operations.draft.rng.random() < 0.3:
        operations.draft.use("scan:carry")
        extents = (*source.extents[:-1], "1")
        carry = operations.draft.alloc(extents, dtype, str(int(operation == "cumprod")))
        more += f", carry={carry}"
    made = Tile(
        "",
        source.extents,
        dtype,
        source.exact and not floats,
        source.depth + floats,
        source.partial,
    )
    axis = len(source.extents) - 1
    return operations.emit(made, f"{operation}({source.name}, {axis}, {{}}{more})")


def _extremum(operations: Operations, operation: str) -> Tile | None:
    source = _whole(operations, exact=True)
    if source is None:
        return None
    rank = len(source.extents)
    extents = (*source.extents[:-1], "1") if rank > 1 else ("1",)
    made = Tile("", extents, DType.I64, True, 0, source.partial)
    return operations.emit(made, f"{operation}({source.name}, {rank - 1}, {{}})")


def _indices(source: Tile) -> str:
    """Lane numbers along the last axis, as an index tile."""
    return f"iota({source.extents[-1]})"


def _sort(operations: Operations) -> Tile | None:
    source = _whole(operations, exact=True)
    if source is None or source.partial:
        return None
    indices = operations.draft.alloc(source.extents, DType.I64)
    more = ", descending=True" if operations.draft.rng.random() < 0.5 else ""
    axis = len(source.extents) - 1
    made = attrs.evolve(source, name="", exact=True)
    values = operations.emit(
        made, f"sort({source.name}, {_indices(source)}, {axis}, {{}}, {indices}{more})"
    )
    operations.tiles.append(Tile(indices, source.extents, DType.I64, True, 0, source.partial))
    return values


def _topk(operations: Operations) -> Tile | None:
    source = _whole(operations, exact=True, floats=True)
    if source is None:
        return None
    count = operations.draft.rng.choice("124")
    extents = (*source.extents[:-1], count)
    largest = operations.draft.rng.random() < 0.6
    indices = operations.draft.alloc(extents, DType.I64, "-1")
    made = Tile("", extents, source.dtype, True, 0, source.partial)
    axis = len(source.extents) - 1
    more = "" if largest else ", largest=False"
    values = operations.emit(
        made,
        f"topk({source.name}, {_indices(source)}, {axis}, {{}}, {indices}{more})",
        "-inf" if largest else "inf",
    )
    operations.tiles.append(Tile(indices, extents, DType.I64, True, 0, source.partial))
    return values


def _rank(operations: Operations) -> Tile | None:
    """How many lanes of a row come before each of its lanes."""
    source = _whole(operations, exact=True)
    if source is None:
        return None
    more = ", descending=True" if operations.draft.rng.random() < 0.5 else ""
    made = Tile("", source.extents, DType.I64, True, 0, source.partial)
    beside = f"{source.name}, {_indices(source)}"
    axis = len(source.extents) - 1
    return operations.emit(made, f"rank({beside}, {beside}, {axis}, {{}}{more})", "0")


def _composite(operations: Operations, operation: str) -> Tile | None:
    if operation == "rank":
        return _rank(operations)
    source = _whole(operations, floats=True)
    if source is None:
        return None
    made = attrs.evolve(source, name="", exact=False, depth=source.depth + 2)
    return operations.emit(made, f"{operation}({source.name}, {{}})")


def _random(operations: Operations, operation: str) -> Tile | None:
    like = operations.pick(lambda t: t.dtype is DType.F32 and _is_whole(t))
    if like is None:
        return None
    seed = operations.draft.rng.randrange(1 << 40)
    number = operations.emit(
        Tile("", like.extents, DType.F32), f"{operation}({seed}, iota({like.extents[-1]}), {{}})"
    )
    exact = operation == "rand"
    made = attrs.evolve(like, name="", exact=like.exact and exact, depth=like.depth + (not exact))
    return operations.emit(made, f"max({like.name}, {number.name}, {{}})")


def _layout(operations: Operations, operation: str) -> Tile | None:
    if operation == "concat":
        left = operations.pick(lambda t: t.extents[-1].isdigit() and t.extents[-1] != "1")
        right = left and operations.pick(
            lambda t: (
                t.extents[:-1] == left.extents[:-1]
                and t.extents[-1].isdigit()
                and t.dtype is left.dtype
            )
        )
        if left is None or right is None or left.partial or right.partial:
            return None
        extents = (*left.extents[:-1], str(int(left.extents[-1]) + int(right.extents[-1])))
        exact = left.exact and right.exact
        padded = left.padded or right.padded
        depth = max(left.depth, right.depth)
        made = Tile("", extents, left.dtype, exact, depth, padded=padded)
        axis = len(extents) - 1
        return operations.emit(made, f"concat({left.name}, {right.name}, {axis}, {{}})")
    source = operations.pick(
        lambda t: len(t.extents) == 2 and t.extents[-1] != "1" and not t.padded
    )
    if source is None:
        return None
    if operation == "transpose":
        made = attrs.evolve(source, name="", extents=source.extents[::-1])
        return operations.emit(made, f"transpose({source.name}, {{}})")
    if operation == "permute":
        made = attrs.evolve(source, name="", extents=source.extents[::-1])
        return operations.emit(made, f"permute({source.name}, [1, 0], {{}})")
    last = source.extents[-1]
    if not last.isdigit() or int(last) % 2 or source.partial:
        return None
    extents = (source.extents[0], "2", str(int(last) // 2))
    made = attrs.evolve(source, name="", extents=extents)
    return operations.emit(made, f"reshape({source.name}, {{}})")
