"""What a plan aims at where a sketch leaves tile sizes open, from a chip's physical facts.

Elements are counted as f32. The factors that no fact gives were measured with the examples on an
H200, on a CPU and taken from the tile generator of triton-ascend; a chip's own facts do the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

_FLOAT_BYTES = 4

#: Seconds between asking a GPU's memory for data and having them that one of the programs on a core
#: has to bridge: the latency of some 500 ns, over two programs.
_LATENCY_SHARE = 252e-9
#: What a pipelined loop keeps on its way, in tiles of a loop.
_PIPELINED_TILES = 6
#: 32 threads of a warp with 16 bytes each.
_WARP_BYTES = 512
#: The share of a core's registers that hold a product's accumulators.
_ACCUMULATORS = 4
#: How many stages of a product's operands shared memory has room for.
_MATRIX_STAGES = 4

#: Ascend: tiles that are alive together, times their double buffers.
_LIVE_TILES = 6
#: Ascend: what a row of a tile should have at least, in elements of f16.
_ALIGNED_BYTES = 512


@attrs.frozen
class Aims:
    """Sizes that a plan aims at, powers of two, in elements: of the largest tile of a program that
    streams once, and of one with a sequential loop; of a tile's last axis, at least; of a matrix
    product. `pipeline_bytes` is what a pipelined loop keeps on its way; None where the chip's
    compiler does not pipeline loads."""

    tile_elements: int
    loop_elements: int
    inner_elements: int
    matrix_rows: int
    matrix_columns: int
    matrix_depth: int
    pipeline_bytes: int | None = None


def aims_of(facts: Mapping[str, Any]) -> Aims:
    """The aims for the chip with these facts (lowering/hardware/*.toml)."""
    return {"nvidia": _gpu, "ascend": _npu}.get(facts["family"], _cpu)(facts)


def _gpu(facts: Mapping[str, Any]) -> Aims:
    """Enough bytes on their way to a core to hide the memory's latency (Little's law): half as many
    for each program where it streams once. Accumulators take a part of the registers, operands a
    part of shared memory."""
    on_the_way = facts["memory_bandwidth"] / facts["cores"] * _LATENCY_SHARE
    loop = _nearest(on_the_way / _FLOAT_BYTES)
    side = _square(facts["memory"]["register"]["bytes"] / _ACCUMULATORS)
    stage = facts["memory"]["shared"]["bytes"] / _MATRIX_STAGES
    return Aims(
        tile_elements=max(loop // 2, _WARP_BYTES // _FLOAT_BYTES),
        loop_elements=loop,
        inner_elements=_WARP_BYTES // _FLOAT_BYTES,
        matrix_rows=side,
        matrix_columns=side,
        matrix_depth=_floor(stage / (2 * side * _FLOAT_BYTES)),
        pipeline_bytes=_PIPELINED_TILES * loop * _FLOAT_BYTES,
    )


def _npu(facts: Mapping[str, Any]) -> Aims:
    """Live tiles and their double buffers fill the unified buffer, a product's accumulator its own
    memory, and two buffers of operands theirs."""
    memory = facts["memory"]
    tile = _floor(memory["unified_buffer"]["bytes"] / (_FLOAT_BYTES * _LIVE_TILES))
    side = _square(memory["l0c"]["bytes"])
    return Aims(
        tile_elements=tile,
        loop_elements=tile,
        inner_elements=_ALIGNED_BYTES // 2,
        matrix_rows=side,
        matrix_columns=side,
        matrix_depth=_floor(memory["l0a"]["bytes"] / 2 / (side * _FLOAT_BYTES)),
    )


def _cpu(facts: Mapping[str, Any]) -> Aims:
    """Two tiles fill the first-level cache, a row takes a quarter of it; a product's tile takes a
    sixteenth of the second-level cache, its operands a quarter."""
    tile = _floor(facts["l1_bytes"] / 2 / _FLOAT_BYTES)
    side = _square(facts["l2_bytes"] / 16)
    return Aims(
        tile_elements=tile,
        loop_elements=tile,
        inner_elements=tile // 2,
        matrix_rows=side,
        matrix_columns=side,
        matrix_depth=_floor(facts["l2_bytes"] / 4 / (2 * side * _FLOAT_BYTES)),
    )


def _nearest(number: float) -> int:
    """The power of two whose logarithm is nearest."""
    return 1 << max(round(math.log2(number)), 0)


def _floor(number: float) -> int:
    """The largest power of two that is not larger."""
    return 1 << max(math.floor(math.log2(number)), 0)


def _square(size: float) -> int:
    """The side of the largest square of f32 in so many bytes that is a power of two."""
    return _floor(math.sqrt(size / _FLOAT_BYTES))
