"""Measure a kernel against its task in PyTorch: interleaved, verified, against the roofline.

The parent makes the inputs, says what is timed when, keeps a clock of its own, and checks outputs
of timed calls against float64 references; two child processes with pinned threads, one for the
baselines and one for the kernel, time the calls on the same inputs (`driver`, `server`).
docs/MEASUREMENT.md says why each step is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sketchc.ir.evaluate import constants_of
from sketchc.runtime.bench import driver
from sketchc.runtime.bench.child import KERNEL, Job, StateMismatchError
from sketchc.runtime.bench.driver import Progress, Run
from sketchc.runtime.bench.judgement import outdone, problems
from sketchc.runtime.bench.machine import (
    Machine,
    OtherWork,
    better,
    busy_note,
    this_machine,
    versions,
)
from sketchc.runtime.bench.measurement import (
    Baseline,
    Measurement,
    speedup,
    summarise,
    surroundings,
)
from sketchc.runtime.bench.prepared import OutputCheck, Prepared, build, prepare
from sketchc.runtime.bench.roofline import Floor, Precision, Work, floor_of, precision_of, work_of
from sketchc.runtime.bench.schedule import Settings
from sketchc.runtime.cases.lists import OwnList
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.verify import Candidate

#: A note says that the baseline is slower beside the kernel's process when it takes so much longer.
_SLOWED = 1.5
_IDLE = "{name} only makes a view, and computes nothing: no speedup is quoted"
_SEEDED = "the parameters of ModelNew are not the task's: both models draw theirs after one seed"


def bench(
    candidate: Candidate,
    task: TaskClient,
    folder: Path,
    settings: Settings,
    machine: Machine,
    progress: Progress | None = None,
    own_list: OwnList | None = None,
) -> Measurement:
    """Compile, time and verify; `progress` is called with what is being done, never while something
    is timed. `own_list`: which of the task's lists of inputs is measured; by default the first that
    fits. Raises `UsageError` where sketch and task do not fit or cannot run, `TaskFailure` for a
    task that is broken or not deterministic, and `MeasurementFailedError` where the kernel does not
    compile or ends the process."""
    say = progress or (lambda doing: None)
    task_text = task.path.read_text("utf-8", errors="replace")
    kernel, toolchain = candidate.kernel, candidate.toolchain
    prepared, code = prepare(
        candidate, task, settings, say, lambda: build(toolchain, kernel, folder), own_list
    )
    made = _Bench(prepared, settings, machine, say)
    measured = made.measured(code)
    name = "" if own_list is None else own_list.name
    return attrs.evolve(measured, task_text=task_text, own_list=name)


@attrs.define
class _Bench:
    """One measurement. `prepared` has the inputs that are timed, and times are compared with
    `machine`; both may be replaced: inputs where models draw their own parameters, `machine` where
    it is measured again."""

    prepared: Prepared
    settings: Settings
    machine: Machine
    say: Progress

    def measured(self, code: Path) -> Measurement:
        """Time the kernel in `code`, compare its outputs, and judge."""
        driver.prepare(self.settings.threads)
        before = surroundings()
        others = OtherWork(driver.processors(self.settings.threads))
        prepared = self.prepared
        kernel = prepared.candidate.kernel
        run = self._run(prepared.job(kernel, code, self.machine.cache_bytes))
        surrounding = {"before": before, "after": surroundings(), "other_work": others.share()}
        check = OutputCheck(self.prepared, self.prepared.length())
        work = work_of(prepared.candidate.plan, prepared.binding, prepared.symbols)
        floor = self._floor(work, run)
        self.say("verifies timed outputs")
        return self._result(run, surrounding, work, floor, check)

    def _run(self, job: Job) -> Run:
        """Time all contenders. Where the parameters of `ModelNew` do not match the task's, times
        again with both models drawing their own, after the same seed."""
        sent, turned = self.prepared.sent, self.prepared.turned
        try:
            return driver.run(job, sent, self.settings, turned, self.say)
        except StateMismatchError:
            run = driver.run(attrs.evolve(job, seeded=True), sent, self.settings, turned, self.say)
            inputs = self.prepared.inputs
            sets = tuple(attrs.evolve(one, state={}) for one in inputs.sets)
            self.prepared = attrs.evolve(self.prepared, inputs=attrs.evolve(inputs, sets=sets))
            return attrs.evolve(run, notes=(*run.notes, _SEEDED))

    def _floor(self, work: Work, run: Run) -> Floor:
        """The floor that times are compared with. Where a time is shorter than the machine seems to
        allow, the machine is measured again: other work may have slowed the first measurement."""
        candidate = self.prepared.candidate
        precision = precision_of(candidate.plan, candidate.kernel).name
        cold = self.settings.schedule.cold
        floor = floor_of(work, self.machine, precision, cold)
        if outdone(floor, run):
            self.say("measures the machine again, since it is faster than it was")
            now = this_machine(self.settings.device, measure=True)
            self.machine = better(self.machine, now)
            floor = floor_of(work, self.machine, precision, cold)
        return floor

    # ------------------------------------------------------------ the result

    def _baseline(
        self, name: str, run: Run, precision: Precision, floor: Floor, check: OutputCheck
    ) -> Baseline:
        seconds = run.seconds(name)
        times = summarise(seconds)
        idle = name in run.idle
        return Baseline(
            name,
            precision.of_baseline,
            times,
            speedup(seconds, run.seconds(KERNEL)) if precision.comparable and not idle else None,
            floor.roofline / times.median,
            _comparisons(run, name, check),
            idle,
        )

    def _result(
        self,
        run: Run,
        surrounding: Mapping[str, Any],
        work: Work,
        floor: Floor,
        check: OutputCheck,
    ) -> Measurement:
        """Reduce the samples, compare the outputs, and judge."""
        prepared = self.prepared
        candidate, binding = prepared.candidate, prepared.binding
        plan = candidate.plan
        precision = precision_of(plan, candidate.kernel)
        kernel = summarise(run.seconds(KERNEL))
        comparisons = _comparisons(run, KERNEL, check)
        baselines = {
            name: self._baseline(name, run, precision, floor, check) for name in run.baselines
        }
        busy = busy_note(surrounding["other_work"])
        notes = _notes(run, baselines, precision.comparable)
        return Measurement(
            plan.sketch.name,
            plan.target,
            plan.hardware.name,
            str(prepared.task.path),
            candidate.path,
            candidate.kernel.source,
            _text(candidate),
            self.machine,
            prepared.symbols,
            binding.shapes(prepared.symbols),
            constants_of(plan.sketch),
            dict(binding.params),
            self.settings,
            len(prepared.inputs.sets),
            precision,
            kernel,
            baselines,
            work,
            floor,
            floor.roofline / kernel.median,
            comparisons,
            problems(run, comparisons, floor),
            attrs.evolve(run, kept=()),
            surrounding,
            versions(self.settings.device),
            (*filter(None, [busy]), *binding.notes, *prepared.task.notes, *notes),
        )


def _comparisons(run: Run, contender: str, check: OutputCheck) -> tuple[Comparison, ...]:
    """The comparisons of every kept output of one contender. Raises `TaskFailure`."""
    kept = (one for one in run.kept if one.contender == contender)
    return tuple(found for one in kept for found in check.compare(one))


def _notes(run: Run, baselines: Mapping[str, Baseline], comparable: bool) -> list[str]:
    """The notes that readers of these numbers need: on wrong outputs, missing speedups, and a
    baseline that was slower beside the kernel's process."""
    found = list(run.notes)
    for baseline in baselines.values():
        wrong = next((c for c in baseline.comparisons if not c.passed), None)
        if wrong is not None:
            found.append(f"an output of {baseline.name} breaks the rule, too: {wrong.reason}")
        if baseline.idle:
            found.append(_IDLE.format(name=baseline.name))
        elif not comparable:
            found.append(f"{baseline.name} runs in {baseline.precision}: no speedup is quoted")
    if run.alone:
        alone = summarise([s.seconds for s in run.alone]).median
        beside = baselines[run.baselines[0]].times.median
        if beside > _SLOWED * alone:
            found.append(
                f"{run.baselines[0]} took {alone:.3g} s before the kernel's process was there and "
                f"{beside:.3g} s beside it"
            )
    return found


def _text(candidate: Candidate) -> str:
    """The text of the sketch's file; "" for a kernel without a sketch, or a file that is gone."""
    path = Path(candidate.path)
    if candidate.kernel.foreign or not candidate.path or not path.is_file():
        return ""
    return path.read_text("utf-8", errors="replace")
