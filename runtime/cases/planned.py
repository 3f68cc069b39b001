"""The plan of a sketch for the sizes of a task's own inputs."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import Scalar
from sketchc.lowering.passes.pipeline import PlannedSketch, build_plan
from sketchc.parsing import syntax
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.tasks.description import TaskDescription


def plan_for(
    tree: syntax.Sketch,
    target: str,
    hardware: str | None,
    constants: Mapping[str, Scalar],
    task: TaskDescription | None,
) -> PlannedSketch:
    """The plan of a sketch in which what stays open is chosen for the task's own sizes and whole
    numbers. It is chosen whatever the sizes where there is no `task`, where the sketch does not fit
    it or its tensors are empty, and where the cost model has not been compared with times of the
    target's kernels. Raises as `build_plan` does.
    """
    planned = build_plan(tree, target, hardware, constants)
    if task is None or planned.plan.capabilities.trusted_below is None:
        return planned
    try:
        own = bind(planned.plan.sketch, task, constants)
    except UsageError:  # verification says what does not fit
        return planned
    if min(own.symbols.values(), default=0) < 1:
        return planned
    return build_plan(tree, target, hardware, constants, sizes=known_sizes(own.symbols, own.params))


def known_sizes(symbols: Mapping[str, int], params: Mapping[str, Scalar]) -> dict[str, int]:
    """What is known of the work that inputs make: the sizes of symbols, and the params that are
    whole numbers, such as strides."""
    return {name: int(v) for name, v in params.items() if isinstance(v, int)} | dict(symbols)
