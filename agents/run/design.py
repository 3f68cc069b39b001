"""The sketch of the built-in Designer alone, for commands that want no kernel of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sketchc.agents.config.settings import Configuration
from sketchc.agents.run.run import RunOptions, context_of, first_state, load_agent
from sketchc.agents.workflows import load_workflow
from sketchc.base.diagnostics import refuse
from sketchc.base.types import Scalar

if TYPE_CHECKING:
    from sketchc.agents.state.state import Progress
    from sketchc.runtime.tasks.client import TaskClient


def designed(
    task: TaskClient,
    target: str,
    hardware: str,
    constants: Mapping[str, Scalar],
    seed: int,
    folder: Path,
    progress: Progress,
) -> str:
    """The text of a sketch that has passed the same gate as one of `sketchc gen`; `folder` is for
    what comparing it with the task needs. Raises `UsageError` where no design passes, and
    `TaskFailure`."""
    workflow = load_workflow("builtin")
    options = RunOptions(
        *(task.path.name, "", target, hardware, workflow.name, "builtin", seed), constants
    )
    context = context_of(
        options,
        task,
        description=task.describe(seed % (1 << 31)),
        task_source="",
        model=None,
        configuration=Configuration(),
        folder=folder,
        progress=progress,
        bench=False,
    )
    state = first_state(workflow, options)
    turn = load_agent(state.node).run(state, context)
    if turn.outcome != "designed":
        refuse(f"the built-in Designer makes no sketch of {task.specification}: {turn.reason}")
    return turn.state.sketch
