"""Two questions about a sketch: does it mean the task, and does some code do what it says?

`check_design` runs the sketch itself, in the reference interpreter, against a task: what the
Designer's work is judged by before anything is generated. `verify_against_sketch` runs code against
the sketch's interpretation, where there is no task.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.runtime.tasks.task import Task
from sketchc.runtime.tasks.torch_task import Scalar
from sketchc.runtime.toolchains import interpreter
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT
from sketchc.runtime.verify.running import Progress
from sketchc.runtime.verify.sketch_task import SketchTask
from sketchc.runtime.verify.verdict import Verdict
from sketchc.runtime.verify.verify import Candidate, verify


def check_design(
    plan: Plan,
    task: Task,
    folder: Path,
    seed: int,
    settings: Mapping[str, Scalar] | None = None,
    progress: Progress | None = None,
    timeout: float = 60.0,
) -> Verdict:
    """Whether the plan's sketch, interpreted, computes the task at small sizes.

    The rules are those of `verify`; `timeout` (seconds) bounds each interpretation. A sketch that
    computes something else, or breaks a rule of the language on the way, fails as "design", one
    that takes too long as "timeout".

    Raises `UsageError` when the task cannot be bound to the sketch (another number of inputs or
    outputs, ranks, types, a size that the sketch refuses) or raises at its own sizes.
    """
    sketch = plan.sketch
    kernel = Kernel("interpreter", plan.hardware.name, sketch.name, sketch.name, "", "", sketch)
    candidate = Candidate(plan, kernel, interpreter.TOOLCHAIN)
    return verify(
        candidate, task, folder, seed, settings, progress, small=True, timeout=timeout, budget=None
    )


def verify_against_sketch(
    candidate: Candidate,
    folder: Path,
    seed: int,
    progress: Progress | None = None,
    timeout: float = 300.0,
    settings: Mapping[str, Scalar] | None = None,
    path: Path | None = None,
    compile_timeout: float = COMPILE_TIMEOUT,
) -> Verdict:
    """Whether the candidate's code computes what its plan's sketch says, at small sizes.

    `settings` are values of the sketch's params, `path` its file (for people). Raises `UsageError`
    when no sizes can be found at which the sketch may be launched.
    """
    task = SketchTask(candidate.plan, settings, path)
    return verify(
        candidate,
        task,
        folder,
        seed,
        progress=progress,
        small=True,
        timeout=timeout,
        compile_timeout=compile_timeout,
    )
