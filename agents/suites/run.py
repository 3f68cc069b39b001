"""One run of a suite: its folder, its options on disk, its samples in processes of their own.

    DIR/suite.json       what was asked for: written once, compared when the run goes on
    DIR/results.jsonl    a line for each sample that ended, synced before the next one starts
    DIR/results.json     the same with what is counted of it, written when the run ends or stops
    DIR/tasks/           the task files of the suites that are our own
    DIR/kernels/TASK/N/  the folder of `gen` for the N-th sample of a task
    DIR/lock             held while a process works on the run

The same command goes on with a run that was stopped or killed: samples whose results stand are not
made again, and a sample that was cut off goes on from the last checkpoint of `gen`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs

from sketchc.agents.run.run import RunFolder, locked, read_object, replace_json
from sketchc.agents.suites.bounded import INTERRUPTED, Bounds, run_bounded
from sketchc.agents.suites.metrics import TaskResult, Totals, totals
from sketchc.agents.suites.samples import AGAIN, Sample, read_sample
from sketchc.agents.suites.sources import Suite, SuiteTask, write_task
from sketchc.base.diagnostics import refuse
from sketchc.base.files import written_for
from sketchc.base.json_form import from_plain, to_plain

VERSION = 1
_OPTIONS, _LINES, _RESULTS = "suite.json", "results.jsonl", "results.json"


@attrs.frozen
class SuiteOptions:
    """What the results depend on. `only` selected the tasks; `passed_on` are further arguments of
    `gen`; `seed` is that of each task's first sample, None for fresh ones."""

    suite: str
    target: str
    hardware: str = ""
    only: str = ""
    bench: bool = False
    seed: int | None = None
    passed_on: tuple[str, ...] = ()


@attrs.frozen
class Effort:
    """What may change when a run goes on: `samples` of each task, so many at once, each within its
    bounds."""

    samples: int
    jobs: int
    bounds: Bounds


@attrs.frozen
class Results:
    """Everything that is known of a run: the tasks with all their samples, those that are left, and
    those that are excluded."""

    options: SuiteOptions
    tasks: tuple[TaskResult, ...]
    left: tuple[str, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()

    @property
    def totals(self) -> tuple[Totals, ...]:
        """The totals by category, and over all at the end."""
        return totals(self.tasks)

    @property
    def misses(self) -> tuple[TaskResult, ...]:
        """The tasks that did not pass."""
        return tuple(task for task in self.tasks if not task.best.passed)

    @property
    def scaled(self) -> tuple[str, ...]:
        """The tasks that passed at sizes smaller than their own."""
        return tuple(task.name for task in self.tasks if task.best.passed and not task.best.own)

    def to_json(self) -> dict[str, Any]:
        """The results as plain data, as in results.json."""
        data = attrs.asdict(self)
        for task, plain in zip(self.tasks, data["tasks"], strict=True):
            plain |= {"word": task.word, "best": task.best.number, "speedup": task.speedup}
        rows = [attrs.asdict(row) | {"shape_share": row.shape_share} for row in self.totals]
        plain_data: dict[str, Any] = to_plain({"version": VERSION, **data, "totals": rows})
        return plain_data


class SuiteFolder:
    """The folder of a run; `lock` it before anything is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out. Raises `UsageError` when one is at work here, and for a folder
        that holds other things."""
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        foreign = sorted(name for name in names if written_for(name) not in ("lock", _OPTIONS))
        if foreign and _OPTIONS not in names:
            refuse(f"{self.path} holds other files ({', '.join(foreign[:3])}): say -o")
        return locked(self.path / "lock", self.path, "suite")

    def settle(self, options: SuiteOptions) -> None:
        """Keep the options, or compare them. Raises `UsageError` for a folder of another run."""
        if not (self.path / _OPTIONS).exists():
            replace_json(self.path / _OPTIONS, {"version": VERSION, **attrs.asdict(options)})
            return
        stored = self.options()
        for field in attrs.fields(SuiteOptions):
            old, new = getattr(stored, field.name), getattr(options, field.name)
            if old != new:
                refuse(f"{self.path} holds a run with {field.name} = {old!r}, not {new!r}: say -o")

    def options(self) -> SuiteOptions:
        """The options of the run. Raises `UsageError` where there is no run of this version."""
        data = read_object(self.path / _OPTIONS)
        if data is None or data.get("version") != VERSION:
            refuse(f"{self.path} holds no run of a suite that this version of sketchc can read")
        return from_plain(SuiteOptions, data)

    def samples(self) -> dict[tuple[str, int], Sample]:
        """The samples that have ended, by task and number: of each the last line that is whole."""
        found = {}
        for data in _lines(self.path / _LINES):
            sample = from_plain(Sample, data)
            found[sample.task, sample.number] = sample
        return found

    def add(self, sample: Sample) -> None:
        """Keep a sample that has ended."""
        line = json.dumps(to_plain(attrs.asdict(sample))) + "\n"
        with (self.path / _LINES).open("a+b") as file:
            # A line that was cut off by a kill ends here.
            torn = file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write(b"\n" * bool(torn) + line.encode())
            file.flush()
            os.fsync(file.fileno())

    def kernel(self, task: str, number: int) -> Path:
        """The folder of one sample."""
        return self.path / "kernels" / task / str(number)

    def write(self, results: Results) -> None:
        """Write results.json: the results, with their totals."""
        replace_json(self.path / _RESULTS, results.to_json())

    def results(self) -> Results:
        """The results that the last command wrote. Raises `UsageError`."""
        data = read_object(self.path / _RESULTS)
        if data is None or data.get("version") != VERSION:
            refuse(f"{self.path} holds no results of a suite that this version of sketchc can read")
        return from_plain(Results, data)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of lines; one that was cut off is none."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


@attrs.frozen
class SuiteRun:
    """A run that is about to start or to go on. `function` runs a command line in a process of its
    own; `store` are the arguments of `gen` that say where results are kept besides; `started` and
    `ended` hear of samples, `started` in threads of their own."""

    folder: SuiteFolder
    suite: Suite
    options: SuiteOptions
    effort: Effort
    function: str
    store: tuple[str, ...]
    started: Callable[[str, int], None]
    ended: Callable[[Sample], None]

    def go(self) -> Results:
        """Make the samples that are missing, and write the results, also where the run is stopped.
        Raises `UsageError`, and `KeyboardInterrupt` when all processes have ended."""
        known = self._known()
        numbers = range(1, self.effort.samples + 1)
        wanted = [
            (task, number)
            for number in numbers
            for task in self.suite.tasks
            if not task.excluded and (task.name, number) not in known
        ]
        for sample in known.values():
            self.ended(sample)
        try:
            for sample in self._made(wanted):
                if sample.outcome != INTERRUPTED:
                    known[sample.task, sample.number] = sample
                    self.folder.add(sample)
                    self.ended(sample)
        finally:
            results = self._results(known)
            self.folder.write(results)
        return results

    def _known(self) -> dict[tuple[str, int], Sample]:
        """The samples that need not be made again. Raises `UsageError` for one of a task whose file
        has changed."""
        digests = {task.name: task.digest() for task in self.suite.tasks}
        known = {}
        for key, sample in self.folder.samples().items():
            if sample.task not in digests or sample.number > self.effort.samples:
                continue
            if sample.digest != digests[sample.task]:
                refuse(
                    f"the task {sample.task} is not the one whose result {self.folder.path} holds"
                )
            if sample.outcome not in AGAIN:
                known[key] = sample
        return known

    def _made(self, wanted: Sequence[tuple[SuiteTask, int]]) -> Iterator[Sample]:
        """The samples as they end."""
        stop = threading.Event()
        with ThreadPoolExecutor(self.effort.jobs) as pool:
            futures = [pool.submit(self._sample, task, number, stop) for task, number in wanted]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _sample(self, task: SuiteTask, number: int, stop: threading.Event) -> Sample:
        """The sample of one run of `gen`."""
        self.started(task.name, number)
        path = write_task(task, self.folder.path / "tasks")
        folder = self.folder.kernel(task.name, number)
        arguments = ["gen", str(path), "-t", self.options.target, "-o", str(folder), "--quiet"]
        if self.options.hardware:
            arguments += ["--hardware", self.options.hardware]
        if self.options.seed is not None:
            arguments += ["--seed", str(self.options.seed + number - 1)]
        arguments += [] if self.options.bench else ["--no-bench"]
        arguments += ["--resume"] if RunFolder(folder).exists() else []
        arguments += [*self.options.passed_on, *self.store]
        ended = run_bounded(self.function, arguments, self.effort.bounds, stop)
        return read_sample(folder, ended, task.name, number, task.digest())

    def _results(self, known: dict[tuple[str, int], Sample]) -> Results:
        """The tasks with all their samples; a task of which some are missing is left."""
        found, left, excluded = [], [], []
        for task in self.suite.tasks:
            keys = [(task.name, number) for number in range(1, self.effort.samples + 1)]
            if task.excluded:
                excluded.append((task.name, task.excluded))
            elif all(key in known for key in keys):
                samples = tuple(known[key] for key in keys)
                found.append(TaskResult(task.name, task.category, samples))
            else:
                left.append(task.name)
        return Results(self.options, tuple(found), tuple(left), tuple(excluded))
