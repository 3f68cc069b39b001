"""Memory of one kernel: addresses, masks, loads, stores, atomic updates and scalar reads.

The lanes of a tile are addressed by a pointer and offsets. An offset is the sum of a scalar (that
of lane 0, as far as it is known apart) and one vector for every dimension that lanes vary along.
Slices of step 1 are *plain*: their vectors are lane numbers, which the Ascend front end needs in
order to see blocks of memory.

An atomic extremum of floats is one of integers: bits with the sign 0 are ordered as the numbers
are, bits with the sign 1 the other way round, as unsigned numbers. NaN wins (R11) as the positive
NaN in a maximum and the negative one in a minimum: those are beyond the infinities in either order.
NaN that is in memory before must have that form as well; the wrapper sees to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias, assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import is_plain
from sketchc.lowering.precedence import PYTHON, Code, parenthesised
from sketchc.lowering.python_host.expressions import is_literal
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.lanes import along_last, turned
from sketchc.lowering.triton.scope import (
    Scope,
    Shape,
    broadcast,
    broadcast_to,
    chosen,
    index_shape,
    joined,
    kernel_expression,
    raised,
    spread,
)
from sketchc.lowering.triton.values import conditions, conjunction, convert, fill_code, scalar_value


@attrs.frozen
class Place:
    """Where an access reads or writes: at `pointer` plus the sum of the offsets `parts`. `shape` is
    what the vectors among `parts` broadcast to; `extents` are the tensor's, and so are `strides`,
    None for those of a dense tensor."""

    tensor: str
    pointer: Code
    parts: tuple[Code, ...]
    shape: Shape
    extents: tuple[ir.Expr, ...]
    strides: tuple[Code, ...] | None

    @property
    def address(self) -> Code:
        """The pointer with its offsets."""
        return PYTHON.fold("+", [self.pointer, *self.parts])

    def inside(self, stem: str, scope: Scope) -> Code:
        """The address with offsets clamped to the inside of the tensor; the wrapper passes one
        element in place of a tensor that has none."""
        scope.read_anyway[self.tensor] = None
        if not self.parts:
            return self.address
        last = self._last(scope)
        offset = PYTHON.call("tl.minimum", PYTHON.fold("+", list(self.parts)), last)
        offset = PYTHON.call("tl.maximum", offset, Code("0"))
        return PYTHON.binary("+", self.pointer, scope.bind(f"{stem}_at", offset))

    def _last(self, scope: Scope) -> Code:
        """The largest offset inside of the tensor."""
        one = Code("1")
        if self.strides is None:
            product = _product(self.extents, scope)
            return Code("0") if product is None else PYTHON.binary("-", product, one)
        reaches = [
            PYTHON.binary("*", PYTHON.binary("-", kernel_expression(e, scope), one), stride)
            for e, stride in zip(self.extents, self.strides, strict=True)
        ]
        return PYTHON.fold("+", reaches) if reaches else Code("0")


def place(access: ir.Access, tile: str | None, scope: Scope) -> Place:
    """Where an access reads or writes; `tile` is None for a scalar (all subscripts are)."""
    tensor = scope.plan.sketch.tensor(access.tensor)
    scope.tensors[tensor.name] = None
    pointer = Code(scope.names[f"{tensor.name}_ptr"])
    origin, vectors, shape = _split(access, tile, scope)
    extents = scope.plan.sketch.extents(access.tensor)
    strides: tuple[Code, ...] | None = None
    if any(tensor.broadcast) and access.tensor == tensor.name:
        # An axis of extent 1 that is broadcast has stride 0.
        names = [scope.names[f"{tensor.name}_stride_{axis}"] for axis in range(len(extents))]
        scope.strides |= {(tensor.name, axis): name for axis, name in enumerate(names)}
        strides = tuple(map(Code, names))
        parts = [
            PYTHON.binary("*", kernel_expression(index, scope), stride)
            for index, stride in zip(origin, strides, strict=True)
            if not is_literal(index, 0)
        ]
    else:
        parts = _dense_origin(origin, extents, scope)
    offsets: list[tuple[Shape, Code]] = []
    for dimension, lane, lanes in vectors:
        if strides is None:
            stride = _product(extents[dimension + 1 :], scope)
            if stride is not None and stride.level == PYTHON.binary_levels["*"]:
                stride = parenthesised(stride)
        else:
            stride = strides[dimension]
        offsets.append((lanes, lane if stride is None else PYTHON.binary("*", lane, stride)))
    parts += _by_shape(offsets, scope)
    return Place(tensor.name, pointer, tuple(parts), shape, extents, strides)


def _by_shape(offsets: list[tuple[Shape, Code]], scope: Scope) -> list[Code]:
    """Offsets whose vectors lie along the same axes added up first, those of fewer elements than
    the tile has among them: each addition else is one of all lanes."""
    if not scope.dialect.launch_options:
        return [code for _, code in offsets]
    groups: dict[Shape, list[Code]] = {}
    for lanes, code in offsets:
        groups.setdefault(lanes, []).append(code)
    sums = (PYTHON.fold("+", codes) for codes in groups.values())
    return [
        parenthesised(code) if code.level == PYTHON.binary_levels["+"] and len(groups) > 1 else code
        for code in sums
    ]


def _split(
    access: ir.Access, tile: str | None, scope: Scope
) -> tuple[list[ir.Expr], list[tuple[int, Code, Shape]], Shape]:
    """The scalar part of each dimension's index, the vectors by dimension with the shape of each,
    and their joint shape."""
    shape = scope.shape(tile) if tile is not None else ()
    reached: Shape = ()
    origin: list[ir.Expr] = []
    vectors: list[tuple[int, Code, Shape]] = []
    axis = 0
    for dimension, subscript in enumerate(access.subscripts):
        match subscript:
            case ir.ScalarSubscript(index):
                origin.append(index)
            case ir.SliceSubscript(lower, _, _, step):
                origin.append(lower)
                assert tile is not None
                if shape and scope.plan.tiles[tile].extents[axis].value != 1:
                    lane = spread(scope.lane(shape[axis]), axis, len(shape))
                    if not is_literal(step, 1):
                        lane = PYTHON.binary("*", lane, kernel_expression(step, scope))
                    ones = [Code("1")] * len(shape)
                    ones[axis] = shape[axis]
                    vectors.append((dimension, lane, tuple(ones)))
                    reached = broadcast(reached, tuple(ones))
                axis += 1
            case ir.IndexSubscript(value, _, _, where):
                for lanes, part in _parts(value, scope).items():
                    if lanes:
                        vectors.append((dimension, kernel_expression(part, scope), lanes))
                        reached = broadcast(reached, lanes)
                    else:
                        origin.append(part)
                axis += where is not None
            case _:
                assert_never(subscript)
    return origin, vectors, reached


def _parts(value: ir.Expr, scope: Scope) -> dict[Shape, ir.Expr]:
    """The terms of an index tile, those whose lanes lie along the same axes added up; among them
    the sum of scalars, 0 for none. Each sum that a loop does not change is computed before it, and
    only the last additions are made for all lanes."""
    if not scope.dialect.launch_options:
        lanes = index_shape(value, scope)
        return {(): ir.Literal(0), lanes: value} if lanes else {(): value}
    found: dict[Shape, ir.Expr] = {(): ir.Literal(0)}
    for sign, term in _terms(value):
        lanes = index_shape(term, scope)
        before = found.get(lanes)
        if before is None or (before == ir.Literal(0) and sign == "+"):
            found[lanes] = term if sign == "+" else ir.Unary("-", term)
        else:
            found[lanes] = ir.Binary(sign, before, term)
    found[()] = simplify(found[()])
    return found


def _terms(value: ir.Expr, sign: str = "+") -> Iterator[tuple[str, ir.Expr]]:
    """The terms of a sum, each with its sign."""
    match value:
        case ir.Binary("+" | "-" as operator, left, right):
            yield from _terms(left, sign)
            yield from _terms(right, sign if operator == "+" else "-" if sign == "+" else "+")
        case _:
            yield sign, value


def _product(extents: tuple[ir.Expr, ...], scope: Scope) -> Code | None:
    codes = [kernel_expression(e, scope) for e in extents if not is_literal(e, 1)]
    return PYTHON.fold("*", codes) if codes else None


def _dense_origin(origin: list[ir.Expr], extents: tuple[ir.Expr, ...], scope: Scope) -> list[Code]:
    """Offset of lane 0 by Horner's rule: `((b * F + f) * D1 + d) * D2`."""
    total: Code | None = None
    for index, extent in zip(origin, extents, strict=True):
        if total is not None and not is_literal(extent, 1):
            total = PYTHON.binary("*", total, kernel_expression(extent, scope))
        if not is_literal(index, 0):
            code = kernel_expression(index, scope)
            total = code if total is None else PYTHON.binary("+", total, code)
    if total is None:
        return []
    # Kept apart from the vectors: one scalar addition instead of one per lane.
    return [parenthesised(total) if total.level == PYTHON.binary_levels["+"] else total]


def guard_conditions(guards: tuple[ir.Expr, ...], rank: int, scope: Scope) -> list[Code]:
    """The code of `guards`, which do not separate by axis: each has rank `rank` or is a scalar."""
    found = []
    for guard in guards:
        lanes = index_shape(guard, scope)
        code = joined(guard, scope)
        found.append(raised(code, len(lanes), rank) if lanes else code)
    return found


#: A condition longer than this gets a line of its own.
LONGEST_MASK = 50


def _named(mask: Code | None, stem: str, scope: Scope) -> Code | None:
    if mask is None or len(mask.text) <= LONGEST_MASK:
        return mask
    return scope.bind(f"{stem}_mask", mask)


_Transfer: TypeAlias = ir.Load | ir.Store | ir.Atomic


def _is_block(statement: _Transfer, mask: Code | None, scope: Scope) -> bool:
    """True where a masked access is right as it stands. The Ascend front end reads and writes
    blocks: elsewhere it needs addresses inside the tensor on every lane, in no block's form."""
    if not scope.dialect.interval_masks:
        return True
    scalar = not scope.shape(statement.tile)
    masked = scalar and mask is not None
    return is_plain(statement.access) and not statement.guards and not masked


def _addresses(
    statement: _Transfer, where: Place, block: bool, mask: Code | None, scope: Scope
) -> tuple[Code, Code | None]:
    """An address for every lane, inside the tensor unless this is a `block`, and the mask."""
    stem, shape = scope.names[statement.tile], scope.shape(statement.tile)
    address = where.address if block else where.inside(stem, scope)
    if not block or statement.guards:
        mask = _named(mask, stem, scope)
    if not is_plain(statement.access) and where.shape != shape:
        # Also along axes where all lanes have one address. Slices before the index tiles have one
        # element, and so no lanes.
        if where.shape:
            address = raised(address, len(where.shape), len(shape))
        address = broadcast_to(address, shape)
    return address, mask


def load(statement: ir.Load, fill: int | float | bool | None, scope: Scope) -> Code:
    """The value of a load, in the tile's type."""
    tile = scope.tile(statement.tile)
    lanes = statement.domain if statement.pad is None else statement.read
    found = conditions(lanes, tile.name, scope)
    found += guard_conditions(statement.guards, len(scope.shape(tile.name)), scope)
    mask, pad = conjunction(found), statement.pad
    old = Code(scope.names[tile.name]) if tile.initial is not None else None
    if pad is None:
        return _read(statement, mask, old, fill, scope)
    if isinstance(pad, ir.ScalarOperand):  # known at run time
        moving = scalar_value(pad.value, pad.dtype, tile.dtype, scope)
        mask = _named(mask, scope.names[tile.name], scope)
        value = _read(statement, mask, None, None, scope)
        value = chosen(mask, value, convert(moving.code, moving.dtype or tile.dtype, tile.dtype))
    else:
        value = _read(statement, mask, None, pad, scope)
    outer = conjunction(conditions(statement.domain, tile.name, scope))
    return value if old is None else chosen(outer, value, old)


def _read(
    statement: ir.Load,
    mask: Code | None,
    old: Code | None,
    fill: int | float | bool | None,
    scope: Scope,
) -> Code:
    """The elements where `mask` holds; `old` or the fill on other lanes, where one is given."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.tile(statement.tile)
    where = place(statement.access, tile.name, scope)
    # A plain access with `pad=` may begin before the tensor, where the front end wants no block.
    block = _is_block(statement, mask, scope)
    block = block and not (scope.dialect.interval_masks and statement.pad is not None)
    address, mask = _addresses(statement, where, block, mask, scope)
    across = old is None and along_last(statement, scope)
    arguments: list[Code | str] = [turned(address, False, tile.name, scope) if across else address]
    # A fill that means the same in every type.
    plain = fill is None or fill in (0, 1) or (isinstance(fill, float) and math.isinf(fill))
    # Whether the access itself fills void lanes.
    early = block and (tile.dtype is tensor.dtype or (old is None and plain))
    early = early and not (old is not None and scope.dialect.interval_masks)
    other = old if old is not None or fill is None else fill_code(fill, tile.dtype)
    if mask is not None and block:
        arguments.append(f"mask={_turned_mask(mask, statement, scope) if across else mask}")
        if early and other is not None:
            arguments.append(f"other={fill_code(fill or 0, tensor.dtype) if old is None else old}")
    read = loaded(arguments, tensor.dtype, scope)
    read = turned(read, False, tile.name, scope) if across else read
    value = convert(read, tensor.dtype, tile.dtype)
    return value if early or other is None else chosen(mask, value, other)


def _turned_mask(mask: Code, statement: ir.Load | ir.Store, scope: Scope) -> Code:
    """The mask of an access that is turned."""
    lanes = statement.domain
    if isinstance(statement, ir.Load) and statement.pad is not None:
        lanes = statement.read
    bounded = conditions(lanes, statement.tile, scope)
    scalar = not bounded and not any(index_shape(guard, scope) for guard in statement.guards)
    return turned(mask, scalar, statement.tile, scope)


def loaded(arguments: list[Code | str], dtype: DType, scope: Scope) -> Code:
    """The call that reads memory of a type."""
    value = PYTHON.call("tl.load", *arguments)
    if dtype is DType.BOOL and scope.dialect.byte_bools:
        return PYTHON.postfix(value, ".to(tl.int1)")
    return value


def store(statement: ir.Store, scope: Scope) -> Code:
    """The call that writes a tile."""
    address, mask = target_lanes(statement, scope)
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.tile(statement.tile)
    value = convert(Code(scope.names[tile.name]), tile.dtype, tensor.dtype)
    if along_last(statement, scope):
        address, value = (turned(each, False, tile.name, scope) for each in (address, value))
        mask = None if mask is None else _turned_mask(mask, statement, scope)
    arguments: list[Code | str] = [address, value]
    if mask is not None:
        arguments.append(f"mask={mask}")
    return PYTHON.call("tl.store", *arguments)


def target_lanes(
    statement: ir.Store | ir.Atomic, scope: Scope, pointer: Code | None = None
) -> tuple[Code, Code | None]:
    """The addresses that a tile's lanes are written to, and the mask. `pointer` takes the place of
    the tensor's where the caller adds conditions to the mask."""
    tile = statement.tile
    rank = len(scope.shape(tile))
    found = conditions(statement.domain, tile, scope)
    found += guard_conditions(statement.guards, rank, scope)
    mask = conjunction(found)
    where = place(statement.access, tile, scope)
    if pointer is not None:
        where = attrs.evolve(where, pointer=pointer)
    # A scalar's mask is honoured when it is written.
    block = not rank or (_is_block(statement, mask, scope) and pointer is None)
    return _addresses(statement, where, block, mask, scope)


#: The integers as wide as a float: signed, unsigned, the bits of NaN in a maximum and a minimum.
BITS: dict[DType, tuple[str, str, int, int]] = {
    DType.F32: ("tl.int32", "tl.uint32", 0x7FC00000, 0xFFC00000 - (1 << 32)),
    DType.F64: (
        "tl.int64",
        "tl.uint64",
        0x7FF8000000000000,
        0xFFF8000000000000 - (1 << 64),
    ),
}


def needs_canonical_nan(statement: ir.Atomic, sketch: ir.Sketch) -> bool:
    """True for an extremum of floats, which needs NaN in the form that wins."""
    return statement.operation != "add" and sketch.tensor(statement.access.tensor).dtype.is_float


def atomic(statement: ir.Atomic, scope: Scope) -> list[tuple[Code | None, str]]:
    """Lines of code, each with the scalar condition under which it runs (None: always)."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.tile(statement.tile)
    value = convert(Code(scope.names[tile.name]), tile.dtype, tensor.dtype)
    function = f"tl.atomic_{statement.operation}"
    if not needs_canonical_nan(statement, scope.plan.sketch):
        address, mask = target_lanes(statement, scope)
        return [_update(function, address, value, mask, statement, scope)]
    if scope.dialect.float_extrema:
        address, mask = target_lanes(statement, scope)
        value = _canonical(value, statement.operation, tensor.dtype)
        return [_update(function, address, value, mask, statement, scope)]
    return _by_bits(statement, tensor, value, scope)


def _canonical(value: Code, operation: str, dtype: DType) -> Code:
    """The value with NaN in the form that wins."""
    signed, _, largest, smallest = BITS[dtype]
    nan = f"tl.full((), {largest if operation == 'max' else smallest}, {signed})"
    nan = f"{nan}.to({TL[dtype]}, bitcast=True)"
    return PYTHON.call("tl.where", PYTHON.binary("!=", value, value), nan, value)


def _update(
    function: str,
    address: Code,
    value: Code,
    mask: Code | None,
    statement: ir.Atomic,
    scope: Scope,
) -> tuple[Code | None, str]:
    arguments: list[Code | str] = [address, value]
    # The Ascend front end drops the mask of a scalar update.
    branch = mask is not None and scope.dialect.interval_masks and not scope.shape(statement.tile)
    if mask is not None and not branch:
        arguments.append(f"mask={mask}")
    if not scope.dialect.interval_masks:
        arguments.append('sem="relaxed"')
    return (mask if branch else None), str(PYTHON.call(function, *arguments))


def _by_bits(
    statement: ir.Atomic, tensor: ir.Tensor, value: Code, scope: Scope
) -> list[tuple[Code | None, str]]:
    """Two integer updates, through pointers to signed and unsigned integers from the wrapper."""
    signed, unsigned, largest, smallest = BITS[tensor.dtype]
    bits = scope.names.fresh(f"{scope.names[statement.tile]}_bits")
    nan = largest if statement.operation == "max" else smallest
    raw = PYTHON.postfix(value, f".to({signed}, bitcast=True)")
    chosen = PYTHON.call("tl.where", PYTHON.binary("!=", value, value), str(nan), raw)
    lines: list[tuple[Code | None, str]] = [(None, f"{bits} = {chosen}")]
    other = {"max": "min", "min": "max"}[statement.operation]
    unsigned_bits = Code(f"{bits}.to({unsigned}, bitcast=True)")
    for kind, function, operand, sign in (
        (signed, statement.operation, Code(bits), ">="),
        (unsigned, other, unsigned_bits, "<"),
    ):
        integer = kind.removeprefix("tl.")
        name = scope.names.derived(tensor.name, f"{integer}_ptr")
        scope.bit_pointers[tensor.name, integer] = name
        address, mask = target_lanes(statement, scope, Code(name))
        own = PYTHON.binary(sign, Code(bits), Code("0"))
        mask = own if mask is None else PYTHON.binary("&", mask, own)
        lines.append(_update(f"tl.atomic_{function}", address, operand, mask, statement, scope))
    return lines


def fetch(statement: ir.Fetch, scope: Scope) -> Code:
    """A scalar of memory: i64, bool, or a float."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    # The subscripts may come from memory themselves: never outside of the tensor (R13).
    address = place(statement.access, None, scope).inside(scope.names[statement.name], scope)
    return convert(loaded([address], tensor.dtype, scope), tensor.dtype, statement.dtype)
