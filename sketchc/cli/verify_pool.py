"""`sketchc verify` of several files at once, in the processes of a pool.

Every process loads the task once. Progress goes to the terminal's error stream; results come back
in the order of the files.
"""

from __future__ import annotations

import atexit
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from sketchc.cli.consoles import watching
from sketchc.cli.verify_files import Outcome, VerifyRequest, verify_one

if TYPE_CHECKING:
    from sketchc.runtime.process.pool import Event, LocalEngine
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.verify.verdict import CaseResult

_JOB = "sketchc.cli.verify_pool:perform"


@attrs.frozen
class VerifyJob:
    """One file to verify, its task, the task's timeout in seconds, and the verdict's store."""

    request: VerifyRequest
    task: str
    patience: float
    store: Path | None


@attrs.frozen
class TaskBroken:
    """What `perform` returns instead of an outcome where the task itself is broken."""

    message: str


def verify_all(
    requests: list[VerifyRequest],
    task: str,
    patience: float,
    store: Path | None,
    engine: LocalEngine,
) -> list[Outcome]:
    """The outcomes, in the order of the requests. Raises `TaskFailure` for a broken task."""
    from sketchc.runtime.process.pool import Job
    from sketchc.runtime.tasks.description import TaskFailure

    jobs = [Job(r.file, _JOB, VerifyJob(r, task, patience, store)) for r in requests]
    found: dict[int, Outcome] = {}
    with watching("verify", len(jobs)) as watch:

        def event(told: Event) -> None:
            note = f"case {told.done}: {told.text}"
            watch.runs(told.job, Path(jobs[told.job].name).name, note, told.done)

        for result in engine.run(jobs, None if watch.progress is None else event):
            if isinstance(result.value, TaskBroken):
                raise TaskFailure(result.value.message)
            request = requests[result.job]
            outcome = result.value or Outcome(request, error=f"not verified: {result.error}")
            found[result.job] = outcome
            watch.ends(result.job, passed=outcome.word == "passed")
    return [found[number] for number in range(len(requests))]


# ---------------------------------------------------------------- in a process of the pool


def perform(job: VerifyJob) -> Outcome | TaskBroken:
    """Verify one file; the outcome holds the user's mistakes, but for a broken task."""
    from sketchc.cli.options import recorder
    from sketchc.runtime.process import pool
    from sketchc.runtime.tasks.description import TaskFailure

    done = 0

    def progress(result: CaseResult) -> None:
        nonlocal done
        done += 1
        pool.tell(result.shape.text, done)

    try:
        task = _task(job.task, job.patience)
        return verify_one(job.request, task, progress, recorder(job.store, task))
    except TaskFailure as error:
        return TaskBroken(str(error))


@functools.cache
def _task(name: str, patience: float) -> TaskClient:
    """The task, loaded once; it is closed when the process ends."""
    from sketchc.runtime.tasks.task import load_task

    task = load_task(name, patience)
    atexit.register(task.close)
    return task
