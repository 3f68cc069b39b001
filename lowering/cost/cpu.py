"""The time of a launch on a CPU whose targets run loop programs (`lowering.loops`).

The time is a sum over what the busiest thread does (`Part`), each amount times the cycles that one
unit of it takes. The cycles were fitted to measured times of whole tuning spaces
(`benchmarks/cost_model.py`); the amounts are counted from the plan, at the sizes at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from sketchc.lowering.cost.reuse import Traffic, traffic
from sketchc.lowering.cost.work import Access, LaunchWork, Loop, Node, Operation
from sketchc.ops.table import OPS

#: Rows and vectors of the block of a product's results that stays in registers, and the depth up
#: to which operands are packed at a time (lowering/cpp/library/matrix.hpp).
_BLOCK_ROWS = {64: 12, 32: 6, 16: 4}  # by the bytes of vectors
_BLOCK_VECTORS, _BLOCK_DEPTH = 2, 256
#: Pages that a core's prefetchers follow at a time, and how many lines of a run come late until
#: they do.
_STREAMS, _LATE_LINES = 48, 8
_LINE = 64
#: The share of the first-level cache that what is used again may take: the rest streams through.
_NEAR_SHARE = 0.5
#: Facts of chips whose files do not say them.
_CLOCK, _VECTOR = 2.5e9, 32


class Part(Enum):
    """What the time of a launch on a CPU is made of."""

    VECTORS = "arithmetic"  # simple operations on whole vectors
    ROWS = "loops over rows"
    STATEMENTS = "loop nests"
    PROGRAMS = "programs"
    MULTIPLY = "multiply-adds"  # vectors of them, in blocks of a product
    BLOCKS = "blocks of products"
    EDGES = "edges of products"  # lanes of blocks that stick out
    PACKED = "packing"  # elements of operands
    GATHERED = "gathers"  # lanes with an index of their own
    ATOMICS = "atomics"  # lanes
    NEAR = "second-level cache"  # bytes
    FAR = "memory"  # bytes
    LATE = "latency of short runs"  # cache lines written
    RUNS = "runs"  # that reads begin
    LAUNCH = "launches"


#: Cycles for each unit of a part.
CYCLES: Mapping[Part, float] = {
    Part.VECTORS: 0.1,
    Part.ROWS: 3.8,
    Part.STATEMENTS: 0.8,
    Part.PROGRAMS: 60.0,
    Part.MULTIPLY: 0.56,
    Part.BLOCKS: 250.0,
    Part.EDGES: 0.47,
    Part.PACKED: 0.34,
    Part.GATHERED: 1.2,
    Part.ATOMICS: 25.0,
    Part.NEAR: 0.027,
    Part.FAR: 0.14,
    Part.LATE: 4.8,
    Part.RUNS: 3.0,
    Part.LAUNCH: 12000.0,
}


def memory_traffic(work: LaunchWork, facts: Mapping[str, Any]) -> Traffic:
    """The bytes between a core's second-level cache and the memory in one launch."""
    return traffic(work, facts["l2_bytes"], tiles=True)


def amounts(
    work: LaunchWork, far: Traffic, facts: Mapping[str, Any], threads: int
) -> dict[Part, float]:
    """How much of each part the busiest of `threads` threads does in all launches of `work`, whose
    `memory_traffic` is `far`, on a chip with the `Hardware.facts`."""
    found = dict.fromkeys(Part, 0.0)
    lanes = facts.get("vector_bytes", _VECTOR)
    for node in work.body:
        _add(node, work.programs, lanes, found)
    found[Part.PROGRAMS] = work.programs
    near = traffic(work, facts["l1_bytes"] * _NEAR_SHARE, tiles=True)
    found[Part.NEAR] = near.bytes
    found[Part.FAR] = far.bytes
    found[Part.LATE], found[Part.RUNS] = _late(work, far)
    share = _largest_share(work.programs, threads) * work.times
    found = {part: amount * share for part, amount in found.items()}
    found[Part.LAUNCH] = work.times
    return found


def seconds(amounts: Mapping[Part, float], facts: Mapping[str, Any]) -> dict[Part, float]:
    """The seconds of each part."""
    clock = facts.get("clock", _CLOCK)
    return {part: amount * CYCLES[part] / clock for part, amount in amounts.items()}


def peaks(facts: Mapping[str, Any], cores: int) -> dict[str, float]:
    """FLOP/s by precision class of so many `cores`: two multiply-adds of vectors in a cycle."""
    vectors = cores * facts.get("clock", _CLOCK) * facts.get("vector_bytes", _VECTOR)
    return {"ieee f32": vectors, "ieee f64": vectors / 2}


def _largest_share(programs: float, threads: int) -> float:
    """The share of the programs that the busiest thread runs: a launch deals them out evenly."""
    if programs <= 1:
        return 1.0
    return math.ceil(round(programs, 6) / threads) / programs


def _add(node: Node, times: float, vector: int, found: dict[Part, float]) -> None:
    match node:
        case Loop():
            for inner in node.body:
                _add(inner, times * node.trips, vector, found)
        case Operation() if node.depth:
            _add_product(node, times, vector, found)
        case Operation():
            rows = node.lanes / max(node.run, 1.0)
            vectors = rows * math.ceil(node.run * node.dtype.bytes / vector)
            found[Part.VECTORS] += times * vectors * OPS[node.name].work
            if node.alone:
                found[Part.ROWS] += times * rows
                found[Part.STATEMENTS] += times
        case Access(tile=False):
            rows = node.lanes / max(node.run, 1.0)
            found[Part.VECTORS] += times * rows * math.ceil(node.run * node.element / vector)
            if node.gathers:
                found[Part.GATHERED] += times * node.lanes
            if node.atomic:
                found[Part.ATOMICS] += times * node.lanes
            if node.writes:
                found[Part.ROWS] += times * rows
                found[Part.STATEMENTS] += times


def _add_product(node: Operation, times: float, vector: int, found: dict[Part, float]) -> None:
    """A product packs its operands and works in blocks of registers, whole ones at the edges, too;
    what sticks out is added up lane by lane."""
    width, height = _BLOCK_VECTORS * vector // node.dtype.bytes, _BLOCK_ROWS.get(vector, 4)
    times *= node.lanes / max(node.rows * node.run, 1.0)
    parts = math.ceil(node.depth / _BLOCK_DEPTH)
    blocks = math.ceil(node.rows / height) * math.ceil(node.run / width)
    whole = math.floor(node.rows / height) * math.floor(node.run / width)
    found[Part.MULTIPLY] += times * blocks * height * _BLOCK_VECTORS * node.depth
    found[Part.BLOCKS] += times * blocks * parts
    found[Part.EDGES] += times * (node.rows * node.run - whole * height * width) * parts
    found[Part.PACKED] += times * (node.rows + node.run) * node.depth


def _late(work: LaunchWork, far: Traffic) -> tuple[float, float]:
    """The cache lines that are written late, and the runs that reads begin, where a launch goes
    through more rows of tensors than the prefetchers follow before it comes back to where a row
    goes on."""
    loops = tuple(work.grid)
    streams = [found for node in work.body for found in _streams(node, loops)]
    if sum(rows for _, rows in streams) <= _STREAMS:
        return 0.0, 0.0
    late = runs = 0.0
    for memory in {access.memory for access, _ in streams}:
        run = max(*(a.run * a.element for a, _ in streams if a.memory == memory), _LINE)
        late += far.written.get(memory, 0.0) / run * min(run / _LINE, _LATE_LINES)
        runs += far.read.get(memory, 0.0) / run
    return late, runs


def _streams(node: Node, loops: tuple[Loop, ...]) -> Iterator[tuple[Access, float]]:
    """The accesses to tensors in `node`, inside of `loops`, each with the rows that it goes through
    until one goes on."""
    match node:
        case Loop():
            for inner in node.body:
                yield from _streams(inner, (*loops, node))
        case Access(tile=False):
            rows = node.lanes / max(node.run, 1.0)
            for loop in reversed(loops):
                if loop.variable in node.along:
                    break
                if loop.variable in node.variables:
                    rows *= loop.trips
            yield node, rows
