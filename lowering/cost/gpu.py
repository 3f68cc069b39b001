"""The time of a launch on a GPU, or on an NPU, whose programs share its cores in waves.

The time is the largest of what works side by side: the memory, the second-level cache, each kind of
arithmetic, and the loads that a program waits for one after the other. Too few bytes on their way
to hide the memory's latency (Little's law) stretch the first, cores that stand idle at the end the
next two. It has been compared with measured times of whole kernels, at one point each, but not yet
with those of tuning spaces: it explains, `aims` chooses. Where a target says with how many warps a
program runs, `warps` says more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.lowering.cost import warps
from sketchc.lowering.cost.reuse import traffic
from sketchc.lowering.cost.work import Access, LaunchWork, Loop, Operation
from sketchc.lowering.precisions import product_rates

#: The part of a time that nothing runs beside.
LAUNCHES = "launches"
#: Seconds between asking the memory for data and having them, and of a launch.
_LATENCY, _LAUNCH = 7e-7, 3e-6
#: Seconds of one iteration of a loop that loads what it then uses: asked for when it is needed, or
#: ahead.
_ITERATION, _ITERATION_AHEAD = 6e-7, 3.5e-7
#: The second-level cache's bandwidth as a multiple of the memory's, and the share of its bytes that
#: a core sees: each half of a large chip keeps copies of what the other half's memory holds.
_CACHE_RATE, _CACHE_SHARE = 2.5, 0.5
#: The most programs on a core, and the share of its registers that tiles may take: addresses and
#: counters take the rest.
_MOST_RESIDENT, _FOR_TILES = 16, 0.75
#: The iterations whose loads are on their way in a loop that streams, and the bytes that they take
#: at most; and the least share of the bandwidth that a launch gets.
_AHEAD, _AHEAD_BYTES, _LEAST_FULL = 6, 49152, 0.02
#: How little parts that work side by side hinder each other.
_SHARING = 4
#: The side of a square tile of a product at which half of the peak is reached.
_HALF_SIDE = 24


@attrs.frozen
class Occupancy:
    """How a launch fills a chip: programs that share a core, and waves of them over all cores."""

    resident: int
    waves: float


def occupancy(work: LaunchWork, facts: Mapping[str, Any], cores: int) -> Occupancy:
    """The occupancy of a launch, by what its tiles take of each memory of a core."""
    if work.warps is not None:
        resident = warps.filled(work, facts).resident
        return Occupancy(resident, work.programs / (cores * resident))
    resident = _MOST_RESIDENT
    for name, held in work.tile_bytes.items():
        memory = facts["memory"].get(name)
        if memory is not None and held:
            share = _FOR_TILES if name == "register" else 1.0
            resident = min(resident, int(memory["bytes"] * share // held))
    resident = max(resident, 1)
    return Occupancy(resident, work.programs / (cores * resident))


def programs_at_once(work: LaunchWork, filled: Occupancy, cores: int) -> float:
    """The number of programs that run at the same time."""
    return min(work.programs, cores * filled.resident)


def memory_bytes(work: LaunchWork, facts: Mapping[str, Any], at_once: float) -> float:
    """The bytes between the second-level cache and the memory in one launch of which so many
    programs run at once."""
    capacity = facts["l2_bytes"] * _CACHE_SHARE
    return traffic(work, capacity, tiles=False, at_once=at_once).bytes


def seconds(
    work: LaunchWork,
    facts: Mapping[str, Any],
    cores: int,
    operations: Mapping[str, float],
    at_once: float,
    moved: float,
) -> dict[str, float]:
    """The seconds that each part of a chip needs for all launches of `work`, by name; they work
    side by side, but for `LAUNCHES`. `operations`: FLOPs of one launch by precision class, of
    which those without a peak in the chip's file are left out; `at_once`: the `programs_at_once`;
    `moved`: the `memory_bytes`."""
    bandwidth = facts["memory_bandwidth"]
    all_bytes = traffic(work, 0.0, tiles=False).bytes
    on_the_way = at_once * _loaded(Loop("", 1.0, work.body))
    full = min(on_the_way / (bandwidth * _LATENCY), 1.0) if on_the_way else 1.0
    idle = _idle(work.programs, cores)
    waves = math.ceil(round(work.programs / at_once, 6)) if at_once else 0
    found = {
        "latency": waves * _waiting(Loop("", 1.0, work.body)),
        "memory": moved / bandwidth / max(full, _LEAST_FULL),
        "second-level cache": idle * all_bytes / (bandwidth * _CACHE_RATE),
    }
    if work.warps is not None:
        found["memory"] = moved / bandwidth * warps.tail(work, facts, cores)
        found |= warps.parts(work, facts, cores, bandwidth * _CACHE_RATE)
    peaks = product_rates(facts)
    for kind, number in operations.items():
        # Where warps are known, what no matrix unit does counts among their instructions.
        if kind in peaks and not (work.warps is not None and kind.startswith("ieee")):
            peak = peaks[kind] * _efficiency(work, kind)
            found[f"arithmetic ({kind})"] = idle * number * _padding(work, kind) / peak
    found = {part: taken * work.times for part, taken in found.items()}
    found[LAUNCHES] = _LAUNCH * work.times
    return found


def together(parts: Mapping[str, float]) -> float:
    """The seconds of all parts: what works side by side takes little more than the longest of it,
    the more so the more of it takes as long."""
    beside = [taken for part, taken in parts.items() if part != LAUNCHES]
    longest = max(beside, default=0.0)
    if not longest:
        return parts[LAUNCHES]
    sharing = sum((taken / longest) ** _SHARING for taken in beside) ** (1 / _SHARING)
    return float(longest * sharing + parts[LAUNCHES])


def _idle(programs: float, cores: int) -> float:
    """By how much cores without work stretch the time: all programs take about as long, and the
    busiest core has one more than it would have if they could be divided."""
    each = programs / cores
    return math.ceil(round(each, 6)) / each if each > 0 else 1.0


def _efficiency(work: LaunchWork, kind: str) -> float:
    """The share of a peak that products of the launch's tiles reach: small tiles read more operands
    for each multiply-add than they can be given."""
    sides = [_side(node) for node, _ in work.operations() if node.depth]
    if not sides or kind.startswith("ieee"):
        return 0.85
    side = min(sides)
    return side / (side + _HALF_SIDE)


def _padding(work: LaunchWork, kind: str) -> float:
    """What matrix units multiply for each multiply-add of a kind: whole blocks."""
    products = [(node, times) for node, times in work.operations() if node.kind == kind]
    wanted = sum(times * node.lanes * max(node.depth, 1.0) for node, times in products)
    done = sum(times * node.lanes * max(node.depth, 1.0) * node.padded for node, times in products)
    return done / wanted if wanted and work.warps is not None else 1.0


def _side(product: Operation) -> float:
    return 2.0 / (1.0 / max(product.rows, 1.0) + 1.0 / max(product.run, 1.0))


def _waiting(node: Loop) -> float:
    """The seconds for which a program waits for loads, one iteration after the other."""
    inner = sum(_waiting(one) for one in node.body if isinstance(one, Loop))
    own = any(isinstance(a, Access) and not a.writes and not a.tile for a in node.body)
    each = _ITERATION_AHEAD if node.streams else _ITERATION
    return node.trips * (inner + (each if own and node.variable else 0.0))


def _loaded(node: Loop) -> float:
    """The bytes that a program asks for before it waits: those of its innermost loop with loads,
    for several iterations where loads run ahead."""
    inner = max((_loaded(one) for one in node.body if isinstance(one, Loop)), default=0.0)
    own = [a for a in node.body if isinstance(a, Access) and not a.writes and not a.tile]
    once = inner or sum(access.lanes * access.element for access in own)
    return max(once, min(_AHEAD * once, _AHEAD_BYTES)) if node.streams and not inner else once
