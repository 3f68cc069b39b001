"""Failures that are the machine's and no kernel's: processes killed because memory ran out.

A case whose process was killed is run once more, alone: no other candidate of this pool compiles or
runs meanwhile, and the run waits until there is memory again. A second kill while memory is free is
the kernel's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from sketchc.runtime.cases.shapes import Limits
from sketchc.runtime.process import memory, pool
from sketchc.runtime.sandbox.worker import KILLED, SHORT
from sketchc.runtime.tasks.client import wait_for_memory
from sketchc.runtime.tasks.description import TaskDescription
from sketchc.runtime.toolchains.base import ToolchainError

#: Bytes per element of the task's intermediate tensors: in float64 twice, while one becomes the
#: next, or in its own type in a kernel's workspace beside one in float64.
BETWEEN_BYTES = 16
_WORDS = frozenset({KILLED, SHORT})


def was_killed(error: ToolchainError) -> bool:
    """Whether the process was killed from outside, for no reason that its watcher knows."""
    return bool(_WORDS & set(error.kinds))


@contextmanager
def alone() -> Iterator[None]:
    """A context in which no other candidate of this pool works; it begins when there is memory, or
    when there was none for a while."""
    with pool.slots().alone():
        wait_for_memory()
        yield


def within_memory(
    limits: Limits, task: TaskDescription | None = None, left: Callable[[], int] = memory.allowed
) -> Limits:
    """`limits` with no more elements than fit into the memory that is free now, or that a suite
    allows, together with the intermediate tensors that `task` makes for them."""
    free = left()
    if not free:
        return limits
    more = 0.0
    if task is not None and task.between:
        more = BETWEEN_BYTES * task.between / max(1, task.elements)
    most = max(1 << 20, memory.elements(free, more))
    return attrs.evolve(limits, elements=min(limits.elements, most))


def memory_note(limits: Limits, bounded: Limits) -> str:
    """Why sizes are smaller than they would be; "" where they are not."""
    if bounded.elements >= limits.elements:
        return ""
    return (
        f"{memory.text(memory.allowed())} of memory are free: sizes of more than "
        f"{bounded.elements:,} elements in all tensors are scaled down"
    )
