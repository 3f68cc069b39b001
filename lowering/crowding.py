"""What the matrix products of a launch take of a thread's registers, beyond what is good for them.

A compiler that runs out of registers for a product keeps operands in memory, and kernels are then
two to thirty times slower: so were points of the tuning spaces recorded on an H200 (docs/COST.md).
"""

from __future__ import annotations

import math

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.plan import Plan, is_product
from sketchc.lowering.precisions import SPLIT, precision_class
from sketchc.lowering.sample_sizes import Values

THREADS_PER_WARP = 32
#: Accumulators of a product that a thread may have.
_ACCUMULATORS = 128
#: Accumulators of a product in parts, whose sum is beside that of the step, and elements of both
#: operands that a thread splits: with more, kernels for an H200 kept some of them in memory.
_ACCUMULATORS_IN_PARTS, _OPERANDS_IN_PARTS = 64, 64
#: Rows of the result of a product in parts that each warp needs, where there are more warps than
#: one group of four and no operand comes from several computed indices: with fewer, kernels for an
#: H200 took twice as long and longer (docs/COST.md).
_ROWS_IN_PARTS, _GROUP_OF_WARPS = 16, 4
#: Elements of both operands that a thread reads for a product that no matrix unit takes: its rows
#: and columns of the result over all the depth. Where an operand is read across its rows, all of
#: them are held at once.
_OPERANDS, _OPERANDS_ACROSS = 768, 512
#: Elements of a tile that a thread loads for a product from places of several computed indices,
#: each of which takes registers, too. (8 until addresses were added up along each axis first:
#: with four warps, convolutions on an H200 were then up to 1.9 times as fast as with eight.)
_INDEXED = 16


def crowding(plan: Plan, body: tuple[ir.Statement, ...], values: Values, warps: int) -> float:
    """By how much the products in `body` exceed what is good for the registers of a thread, in
    powers of two, where a program has so many `warps`; 0 where they do not. `values` are those of
    the host's scalars."""
    statements = list(walk.statements(body))
    products = [statement for statement in statements if is_product(statement)]
    threads = warps * THREADS_PER_WARP
    shares = [share for each in products for share in _shares(plan, each, values, threads)]
    read = {tile for statement in products for tile in walk.reads(statement)}
    indexed = [
        math.prod(_extents(plan, statement.tile, values)) / threads / _INDEXED
        for statement in statements
        if isinstance(statement, ir.Load) and statement.tile in read and _computed(statement) > 1
    ]
    if not indexed and warps > _GROUP_OF_WARPS:
        shares += [
            warps * _ROWS_IN_PARTS / _extents(plan, each.destination, values)[-2]
            for each in products
            if precision_class(plan, each) == SPLIT
        ]
    shares += indexed
    return math.log2(max([1.0, *shares]))


def _shares(plan: Plan, product: ir.Compute, values: Values, threads: int) -> list[float]:
    """What a product takes of each limit."""
    accumulators = math.prod(_extents(plan, product.destination, values)) / threads
    kind = precision_class(plan, product)
    found = [accumulators / (_ACCUMULATORS_IN_PARTS if kind == SPLIT else _ACCUMULATORS)]
    if kind == SPLIT:
        operands = [each.tile for each in product.operands if isinstance(each, ir.TileOperand)]
        split = sum(math.prod(_extents(plan, each, values)) for each in operands)
        found.append(split / threads / _OPERANDS_IN_PARTS)
        warps, rows = threads / THREADS_PER_WARP, _extents(plan, product.destination, values)[-2]
        if warps > _GROUP_OF_WARPS:
            found.append(warps * _ROWS_IN_PARTS / rows)
    left = product.operands[0]
    if isinstance(left, ir.TileOperand) and kind.startswith("ieee"):
        turned = product.attributes.get("trans_a")
        depth = _extents(plan, left.tile, values)[-2 if turned else -1]
        across = turned or product.attributes.get("trans_b")
        elements = 2 * math.sqrt(max(accumulators, 1.0)) * depth
        found.append(elements / (_OPERANDS_ACROSS if across else _OPERANDS))
    return found


def _computed(load: ir.Load) -> int:
    """The axes of the tensor on which each lane of a load has an index of its own."""
    return sum(isinstance(each, ir.IndexSubscript) for each in load.access.subscripts)


def _extents(plan: Plan, tile: str, values: Values) -> list[int]:
    return [int(evaluate(extent, values)) for extent in plan.sketch.tile(tile).extents]
