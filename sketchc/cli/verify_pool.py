"""`sketchc verify` of several files at once, in the processes of a pool.

Every process loads the task once. Progress goes to the terminal's error stream; results come back
in the order of the files.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.cli.consoles import make_progress
from sketchc.cli.verify_files import Outcome, VerifyRequest, verify_one

if TYPE_CHECKING:
    from sketchc.runtime.process.pool import Event, LocalEngine
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.verify.verdict import CaseResult

_JOB = "sketchc.cli.verify_pool:perform"


@attrs.frozen
class VerifyJob:
    """One file, the task it is held against, and where the verdict is kept."""

    request: VerifyRequest
    task: str
    patience: float
    store: Path | None


@attrs.frozen
class TaskBroken:
    """What a process found instead of an outcome: the task itself does not do."""

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
    with _progress([job.name for job in jobs]) as bars:
        for result in engine.run(jobs, None if bars is None else bars.event):
            if isinstance(result.value, TaskBroken):
                raise TaskFailure(result.value.message)
            request = requests[result.job]
            outcome = result.value or Outcome(request, error=f"not verified: {result.error}")
            found[result.job] = outcome
            if bars is not None:
                bars.done(result.job, outcome.word)
    return [found[number] for number in range(len(requests))]


# ---------------------------------------------------------------- in a process of the pool

_tasks: dict[tuple[str, float], TaskClient] = {}


def perform(job: VerifyJob) -> Outcome | TaskBroken:
    """One file; what the user did wrong is in the outcome."""
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


def _task(name: str, patience: float) -> TaskClient:
    from sketchc.runtime.tasks.task import load_task

    key = (name, patience)
    if key not in _tasks:
        _tasks[key] = load_task(name, patience)
    return _tasks[key]


@atexit.register
def _close_tasks() -> None:
    for task in _tasks.values():
        task.close()
    _tasks.clear()


# ---------------------------------------------------------------- progress


class _Bars:
    """A bar for all files, and what the running ones are at."""

    def __init__(self, progress: Any, names: list[str]) -> None:
        self._progress = progress
        self._names = names
        self._all = progress.add_task("verify", total=len(names), note="")
        self._rows: dict[int, Any] = {}
        self._passed, self._done = 0, set[int]()
        self._lock = threading.Lock()  # events come from a thread of their own

    def event(self, event: Event) -> None:
        """A case of a file is done."""
        with self._lock:
            if event.job in self._done:
                return
            if event.job not in self._rows:
                name = Path(self._names[event.job]).name
                self._rows[event.job] = self._progress.add_task(name, total=None, note="")
            note = f"case {event.done}: {event.text}"
            self._progress.update(self._rows[event.job], note=note, completed=event.done)

    def done(self, job: int, word: str) -> None:
        """Show that a file is done."""
        with self._lock:
            self._done.add(job)
            if job in self._rows:
                self._progress.remove_task(self._rows.pop(job))
            self._passed += word == "passed"
            self._progress.update(self._all, advance=1, note=f"{self._passed} passed")


@contextmanager
def _progress(names: list[str]) -> Iterator[_Bars | None]:
    """Bars for these files; none where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    with make_progress() as progress:
        yield _Bars(progress, names)
