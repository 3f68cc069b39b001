"""What a model is told of the sizes that its work will be verified at."""

from __future__ import annotations

from math import prod

from sketchc.runtime.cases.shapes import INTERPRETED, OWN
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.machine import memory_note, within_memory


def reach(task: TaskDescription, target: str) -> str:
    """Whether the task's own sizes will be run, in a sentence or two. Memory is named where there
    is too little of it, so that the same task is asked about in the same words elsewhere."""
    tensors = (*task.inputs, *task.state, *task.outputs)
    own = sum(prod(one.shape) for one in tensors if isinstance(one, TensorSpec))
    status = toolchain(target).status()
    limits = INTERPRETED if status.interpreted else within_memory(OWN)
    if own <= limits.elements:
        return "Verification runs the task's own sizes, too."
    scaled = (
        f"Verification scales the task's own sizes ({own:,} elements in all tensors) down to some "
        f"{limits.elements:,} elements"
    )
    short = "" if status.interpreted else memory_note(OWN, limits)
    return f"{scaled}: {short}." if short else f"{scaled}."
