"""The time of a launch on a GPU whose warps and stages are known.

A program lives as long as its loads take one after the other, as far as they are not asked for
ahead, and as its warps need to issue their instructions; programs share a core as far as warps,
registers and shared memory go. What a thread's registers do not hold goes to memory and back. The
constants were fitted to recorded times of tuning spaces on an H200 (docs/COST.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

import attrs

from sketchc.lowering.cost.work import Access, LaunchWork, Loop, Node, Operation, accesses
from sketchc.ops.table import OPS, Category

THREADS = 32
#: Of a core: warps, programs, schedulers (each issues an instruction a cycle), registers; cycles
#: a second.
MOST_WARPS, MOST_PROGRAMS, SCHEDULERS, REGISTERS, CLOCK = 64, 32, 4, 65536, 1.7e9
#: Registers that a thread may have, and those that it needs beside its tiles.
MOST_REGISTERS, OWN_REGISTERS = 255, 18
#: Seconds until a load has come, and of a program without any; seconds between two programs that
#: the whole chip starts.
LATENCY, START, BETWEEN = 9.2e-7, 7.7e-7, 3.4e-10
#: Instructions of a warp: of one iteration of a loop, of an access or of an operation for each
#: element of a thread; cycles of each where nothing else is there to be issued.
PER_LOOP, PER_ACCESS, PER_OPERATION, ALONE = 8.0, 0.8, 2.1, 4.0
#: Instructions and registers for each index beyond the first that a lane of an access has.
PER_INDEX, INDEX = 26.0, 0.65
#: Instructions of an operation in which the lanes of a program meet.
ACROSS = 44.0
#: Instructions of a product without matrix units for each multiply-add, and those that read its
#: operands, for each of a thread's multiply-adds at one depth.
#: And how much longer those are that read an operand across its rows, from banks of shared memory
#: that others want, too.
PER_PRODUCT, PER_FRAGMENT, CONFLICTS = 1.15, 9.0, 2.8
#: Registers for each register of tiles; those of operands of a product without matrix units, as a
#: share of what a thread multiplies.
HELD, HELD_OF_PRODUCTS, HELD_ON_UNITS, FRAGMENT = 0.9, 0.3, 1.1, 0.44
#: The elements of a thread that the compiler loads ahead by unrolling a loop, and how often it
#: does that at most; registers that are always left for loads.
UNROLLED, MOST_UNROLLED, LEAST_FREE = 5.5, 1.8, 16.0
#: The share of one of several waves in which the last programs do not fill the memory.
TAIL = 0.5
#: How much longer than its share of the second-level cache a register takes there and back, and
#: the registers too many for which a compiler spills as many.
SPILLED, COLLAPSE = 3.0, 20.0


@attrs.frozen
class Warps:
    """How a launch's programs fill a core: programs at a time, registers that a thread would need,
    and bytes of shared memory."""

    resident: int
    registers: float
    shared: float


def filled(work: LaunchWork, facts: Mapping[str, Any]) -> Warps:
    """What a program of the launch takes of a core."""
    assert work.warps is not None
    threads = work.warps * THREADS
    kinds = {node.kind.startswith("ieee") for node, _ in work.operations() if node.depth}
    share = (HELD_OF_PRODUCTS if True in kinds else HELD_ON_UNITS) if kinds else HELD
    held = share * work.tile_bytes.get("register", 0) / 4 / threads
    need = OWN_REGISTERS + held + _fragments(work, threads) + _indices(work.body, threads)
    given = min(max(need, 32.0), MOST_REGISTERS)
    shared = max((_staged(loop) for loop in loops(work.body)), default=0.0)
    shared = max(shared, work.tile_bytes.get("shared", 0))
    resident = min(MOST_WARPS // work.warps, MOST_PROGRAMS, int(REGISTERS / (given * threads)))
    if shared:
        resident = min(resident, int(facts["memory"]["shared"]["bytes"] // shared))
    return Warps(max(resident, 1), need, shared)


def loops(body: tuple[Node, ...]) -> Iterator[Loop]:
    """All loops of a program."""
    for node in body:
        if isinstance(node, Loop):
            yield node
            yield from loops(node.body)


def own_loads(loop: Loop) -> list[Access]:
    """The accesses of a loop's own body that read a tensor."""
    return [a for a in loop.body if isinstance(a, Access) and not a.writes and not a.tile]


def _multiplies(loop: Loop) -> bool:
    return any(isinstance(node, Operation) and node.depth for node in loop.body)


def _staged(loop: Loop) -> float:
    """The bytes of shared memory that a pipelined loop's loads take: products read them there."""
    once = sum(access.lanes * access.element for access in own_loads(loop))
    stages = loop.stages or 1
    return once * (stages if _multiplies(loop) else stages - 1)


def _fragments(work: LaunchWork, threads: int) -> float:
    """Registers of the operands of products that no matrix unit takes and that read one of them
    across its rows: a thread has some rows and some columns of the result, over all the depth."""
    found = 0.0
    for node, _ in work.operations():
        if node.transposed and node.kind.startswith("ieee"):
            side = math.sqrt(max(node.lanes / threads, 1.0))
            found = max(found, FRAGMENT * 2 * side * node.depth)
    return found


def _indices(body: tuple[Node, ...], threads: int) -> float:
    """Registers of the indices of the accesses in `body` that have several for each lane."""
    found = [a for node in body for a in accesses(node) if a.indexed]
    return max((INDEX * (a.indexed - 1) * a.lanes / threads for a in found), default=0.0)


def issued(node: Node, threads: int, cycles: float = 1.0) -> float:
    """The instructions that a warp issues for one execution of `node`; all but those of products,
    which do not wait for each other, count `cycles`."""
    match node:
        case Loop():
            inner = sum(issued(one, threads, cycles) for one in node.body)
            return node.trips * (inner + (cycles * PER_LOOP if node.variable else 0.0))
        case Access():
            own = 0.0 if node.tile else PER_ACCESS + PER_INDEX * max(node.indexed - 1, 0)
            return cycles * own * max(node.lanes / threads, 1.0)
        case Operation():
            each = max(node.lanes / threads, 1.0)
            if node.depth:
                if not node.kind.startswith("ieee"):
                    return 0.0
                conflicts = CONFLICTS if node.transposed else 1.0
                return node.depth * conflicts * (each * PER_PRODUCT + PER_FRAGMENT)
            row = OPS[node.name]
            across = 0.0 if row.category is Category.ELEMENTWISE else ACROSS
            return cycles * (each * PER_OPERATION * row.work + across)
        case _:
            assert_never(node)


def waited(node: Loop, threads: int, registers: float) -> float:
    """The seconds for which a program waits for its loads: in each iteration of a loop with loads
    of its own, as far as these were not asked for ahead, by stages or by unrolling; the more often,
    the fewer `registers` are free for them."""
    found = sum(waited(one, threads, registers) for one in node.body if isinstance(one, Loop))
    loads = own_loads(node) if node.variable else []
    if loads:
        each = max(max(access.lanes for access in loads) / threads, 1.0)
        free = max(MOST_REGISTERS - registers, LEAST_FREE)
        if node.stages and node.stages > 1:
            found += LATENCY / (node.stages - 1)
        elif _multiplies(node):
            found += LATENCY
        else:
            ahead = min(max(UNROLLED / each, 1.0), MOST_UNROLLED)
            found += LATENCY * max(each / free, 1.0) / ahead
    return node.trips * found


def parts(
    work: LaunchWork, facts: Mapping[str, Any], cores: int, cache_rate: float
) -> dict[str, float]:
    """The seconds of one launch that its warps need, by what takes them. `cache_rate`: bytes that
    the second-level cache moves in a second."""
    assert work.warps is not None
    fill, threads = filled(work, facts), work.warps * THREADS
    body = Loop("", 1.0, work.body)
    instructions = issued(body, threads)
    each = work.programs / cores
    waves = max(math.ceil(round(each / fill.resident, 3)), 1.0)
    waits = waited(body, threads, fill.registers)
    life = START + waits + issued(body, threads, ALONE) / CLOCK
    over = max(fill.registers - MOST_REGISTERS, 0.0)
    spilled = min(over * over / COLLAPSE, 8.0 * over)
    turns = max((loop.trips for loop in loops(work.body)), default=1.0)
    moved = 8.0 * spilled * threads * work.programs * turns
    return {
        "latency": waves * life,
        "instructions": math.ceil(round(each, 6)) * work.warps * instructions / SCHEDULERS / CLOCK,
        "spilled registers": SPILLED * moved / cache_rate,
        "launches of programs": BETWEEN * work.programs,
    }


def tail(work: LaunchWork, facts: Mapping[str, Any], cores: int) -> float:
    """By how much the memory is used for longer than it takes to move all bytes, since programs of
    the last of several waves do not fill it."""
    waves = max(work.programs / cores / filled(work, facts).resident, 1.0)
    return 1.0 + TAIL * (waves - 1.0) / waves**2
