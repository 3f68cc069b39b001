"""The predicted time of a plan at given sizes, launch by launch, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.types import Scalar
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_sample
from sketchc.launch.sizes import require_sizes
from sketchc.lowering.cost import cpu, gpu
from sketchc.lowering.cost.gpu import Occupancy
from sketchc.lowering.cost.work import LaunchWork, work_of
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.lowering.sample_sizes import Values, sample_values


@attrs.frozen
class LaunchCost:
    """What one launch of a plan costs. `parts`: seconds by what takes them, for all `times` that
    the host launches it; `moved`: bytes between the chip's last cache that the model knows and its
    memory, `operations`: FLOPs by precision class ("integer" for others), both of one launch.
    `scratch`: bytes of tiles of one program by memory. `occupancy`: None on a CPU."""

    name: str
    programs: float
    times: float
    moved: float
    operations: Mapping[str, float]
    scratch: Mapping[str, int]
    parts: Mapping[str, float]
    seconds: float
    occupancy: Occupancy | None = None

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda part: self.parts[part], default="nothing")


@attrs.frozen
class Prediction:
    """What a plan costs at given sizes, launch by launch."""

    launches: tuple[LaunchCost, ...]

    @property
    def seconds(self) -> float:
        """The predicted time."""
        return sum(launch.seconds for launch in self.launches)


def predict(plan: Plan, values: Values, threads: int | None = None) -> Prediction:
    """What a finished plan costs where the host's scalars have these `values`
    (`ir.evaluate.host_values`). `threads` of a CPU: all cores of the chip by default."""
    return predicted(plan, work_of(plan, values), threads)


def predicted(plan: Plan, works: tuple[LaunchWork, ...], threads: int | None = None) -> Prediction:
    """As `predict`, where the work of each launch (`work_of`) is known."""
    costs = []
    for phase, work in zip(plan.phases, works, strict=True):
        operations = _operations(work)
        if plan.hardware.family == "cpu":
            costs.append(_on_cpu(plan, work, operations, threads or plan.hardware.cores))
        else:
            costs.append(_on_gpu(plan, phase, work, operations))
    return Prediction(tuple(costs))


def sized_values(sketch: ir.Sketch, sizes: Mapping[str, int]) -> dict[str, Scalar]:
    """The values of the host's scalars at the `sizes` of symbols, among which there may be values
    of params; samples where nothing is said. Raises `UsageError` as `require_sizes` does."""
    sampled = sample_values(sketch)
    params = {param.name: sizes.get(param.name, sampled[param.name]) for param in sketch.params}
    require_sizes(sketch.symbol_bounds, {n: size for n, size in sizes.items() if n not in params})
    chosen = {symbol: sizes.get(symbol, int(sampled[symbol])) for symbol in sketch.symbol_bounds}
    return host_sample(sketch, chosen, params)


def _on_cpu(
    plan: Plan, work: LaunchWork, operations: Mapping[str, float], threads: int
) -> LaunchCost:
    facts = plan.hardware.facts
    far = cpu.memory_traffic(work, facts)
    taken = cpu.seconds(cpu.amounts(work, far, facts, threads), facts)
    parts = {part.value: each for part, each in taken.items()}
    own = (work.name, work.programs, work.times, far.bytes, operations, work.tile_bytes)
    return LaunchCost(*own, parts, sum(parts.values()))


def _on_gpu(
    plan: Plan, phase: PhasePlan, work: LaunchWork, operations: Mapping[str, float]
) -> LaunchCost:
    facts, cores = plan.hardware.facts, plan.cores(phase)
    filled = gpu.occupancy(work, facts, cores)
    at_once = gpu.programs_at_once(work, filled, cores)
    moved = gpu.memory_bytes(work, facts, at_once)
    parts = gpu.seconds(work, facts, cores, operations, at_once, moved)
    own = (work.name, work.programs, work.times, moved, operations, work.tile_bytes)
    return LaunchCost(*own, parts, gpu.together(parts), filled)


def _operations(work: LaunchWork) -> dict[str, float]:
    """The FLOPs of one launch by precision class, two for each multiply-add."""
    found: dict[str, float] = {}
    for operation, times in work.operations():
        number = operation.lanes * (2 * operation.depth if operation.depth else 1.0)
        found[operation.kind] = found.get(operation.kind, 0.0) + times * number
    return found
