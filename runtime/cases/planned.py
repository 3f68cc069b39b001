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
    """The plan of a sketch in which what stays open is chosen for the task's own sizes. It is
    chosen whatever the sizes where there is no `task`, where the sketch does not fit it or its
    tensors are empty, and where the cost model has not been compared with times of the target's
    kernels. Raises as `build_plan` does.
    """
    planned = build_plan(tree, target, hardware, constants)
    if task is None or planned.plan.capabilities.trusted_below is None:
        return planned
    try:
        own = bind(planned.plan.sketch, task, constants).symbols
    except UsageError:  # verification says what does not fit
        return planned
    if min(own.values(), default=0) < 1:
        return planned
    return build_plan(tree, target, hardware, constants, sizes=own)
