"""Measure a kernel against its task in PyTorch: interleaved, verified, against the roofline.

The parent makes the inputs, says what is timed when, keeps a clock of its own, and checks outputs
of timed calls against float64 references; two child processes with pinned threads, one for the
baselines and one for the kernel, time the calls on the same inputs (`driver`, `server`).
docs/MEASUREMENT.md says why each step is there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sketchc.base.diagnostics import refuse
from sketchc.base.types import numpy_dtype
from sketchc.ir.evaluate import constants_of
from sketchc.lowering.registry import load_language
from sketchc.runtime.bench import driver
from sketchc.runtime.bench.child import KERNEL, MODEL, Job, StateMismatchError
from sketchc.runtime.bench.driver import MeasurementFailedError, Progress, Run, SampleOutputs
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
from sketchc.runtime.bench.roofline import Floor, Precision, Work, floor_of, precision_of, work_of
from sketchc.runtime.bench.schedule import Settings, varied
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.drawing import Inputs, draw
from sketchc.runtime.cases.lists import OwnList, bind_task, bound_to
from sketchc.runtime.cases.reach import find_freedom, find_reach
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.cases.sums import reduction_length
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import Scalar
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.evidence import classify
from sketchc.runtime.verify.references import References
from sketchc.runtime.verify.verify import Candidate

#: The number of sets of input values, and of places in memory; the most bytes that all of them may
#: take together, in both of the processes that time.
INPUT_SETS = 3
_INPUT_BYTES = 4 << 30
#: Seeds of tasks are smaller than this.
_SEEDS = 1 << 31
#: A note says that the baseline is slower beside the kernel's process when it takes so much longer.
_SLOWED = 1.5
_IDLE = "{name} only makes a view, and computes nothing: no speedup is quoted"
_SEEDED = "the parameters of ModelNew are not the task's: both models draw theirs after one seed"


@attrs.frozen
class _Inputs:
    """The sets of input values, the init inputs that replace the task's (`substitutes`, by
    position), and the names of the tensors that change from sample to sample (`varied`)."""

    sets: tuple[Inputs, ...]
    substitutes: Mapping[int, int]
    varied: tuple[str, ...]


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
    if task.framework != "torch":
        refuse(f"{task.path} is a task in {task.framework}; kernels are timed against PyTorch")
    say = progress or (lambda doing: None)
    task_text = task.path.read_text("utf-8", errors="replace")
    say("checks the task")
    binding = _bound(candidate, task, settings, own_list)
    symbols, substitutes = sizes_of(binding, task, settings.sizes)
    task.require_deterministic(settings.seed % _SEEDS, wait=False)
    say("compiles")
    if load_language(candidate.kernel.language).by_runner:
        refuse(f"{candidate.plan.target} calls kernels by its runner, which times nothing")
    code = _build(candidate, folder)
    say("checks the task")
    task.settle()
    say("draws inputs")
    inputs = _draw(binding, task, symbols, substitutes, settings.seed)
    made = _Bench(candidate, task, settings, machine, say, binding, symbols, inputs)
    measured = made.measured(code)
    name = "" if own_list is None else own_list.name
    return attrs.evolve(measured, task_text=task_text, own_list=name)


def _build(candidate: Candidate, folder: Path) -> Path:
    """Compile the kernel; returns its library, or its Python file where its host code is Python.
    Raises `MeasurementFailedError`."""
    kernel = candidate.kernel
    try:
        artefact = candidate.toolchain.compile(kernel, folder / "build")
    except ToolchainError as error:
        msg = f"the kernel does not compile: {error}"
        raise MeasurementFailedError(msg, classify(error, kernel.language)) from error
    if load_language(kernel.language).hosted:
        code = folder / f"{kernel.name}.py"
        code.write_text(kernel.source)
        return code
    assert artefact.library is not None
    return artefact.library


def _bound(
    candidate: Candidate, task: TaskClient, settings: Settings, own_list: OwnList | None
) -> Binding:
    """The binding of sketch and task. Raises `UsageError` where they do not fit, also where types
    differ: no kernel of such a sketch computes the task."""
    sketch, seed = candidate.plan.sketch, settings.seed
    if own_list is None:
        binding = bind_task(sketch, task, seed, settings.values)
    else:
        binding = bound_to(sketch, task, own_list.number, seed, settings.values)
    if binding.other_types:
        refuse(f"nothing is measured, since types differ: {'; '.join(binding.other_types)}")
    return binding


def sizes_of(
    binding: Binding, task: TaskClient, sizes: Mapping[str, int]
) -> tuple[dict[str, int], dict[int, int]]:
    """The values of all symbols with `sizes` in place of the task's, and the init inputs that must
    replace the task's for them, by position. Raises `UsageError` for sizes that cannot be had."""
    if not sizes:
        return dict(binding.symbols), {}
    unknown = [name for name in sizes if name not in binding.symbols]
    if unknown:
        refuse(f"--symbols {unknown[0]}: the sketch's symbols are {', '.join(binding.symbols)}")
    freedom = find_freedom(binding, task)
    tied = [n for n, v in sizes.items() if n not in freedom.free and v != binding.symbols[n]]
    if tied:
        refuse(f"--symbols {tied[0]}: the task's model fixes this size")
    for symbol in binding.sketch.symbols:
        limit = symbol.upper_bound
        if limit is not None and sizes.get(symbol.name, 0) > limit:
            refuse(f"--symbols {symbol.name}: the sketch allows at most {limit}")
    symbols = {**binding.symbols, **sizes}
    return symbols, freedom.substitutes(symbols)


def arguments_of(binding: Binding) -> tuple[str | Scalar | None, ...]:
    """Forward's inputs by position: the name of a tensor, a number, or None."""
    found: dict[int, str | Scalar | None] = dict.fromkeys(binding.nothing)
    for source in binding.tensors:
        if source.position is not None:
            found[source.position] = source.tensor.name
    found |= {position: binding.params[name] for position, name in binding.param_inputs.items()}
    return tuple(found[position] for position in sorted(found))


# ---------------------------------------------------------------- inputs and references


def _draw(
    binding: Binding,
    task: TaskClient,
    symbols: Mapping[str, int],
    substitutes: Mapping[int, int],
    seed: int,
) -> _Inputs:
    """Draw up to `INPUT_SETS` sets of signed, normally distributed inputs. Parameters of the model
    have the same values in all sets, since there is one model."""
    shapes = binding.shapes(symbols)
    total = sum(math.prod(shapes[s.tensor.name]) * s.tensor.dtype.bytes for s in binding.tensors)
    # As much again for the places in memory, and all of it in two processes.
    count = max(1, min(INPUT_SETS, _INPUT_BYTES // max(4 * total, 1)))
    case = ShapeCase("measured", symbols, own=not substitutes)
    fixed = {s.tensor.name: s.state for s in binding.tensors if s.state is not None}
    sets: list[Inputs] = []
    for number in range(count):
        one = draw(binding, task, case, "normal", seed + number, substitutes)
        if sets:
            values = {**one.values, **{name: sets[0].values[name] for name in fixed}}
            one = Inputs(values, one.arguments, sets[0].state)
        sets.append(one)
    names = tuple(s.tensor.name for s in binding.tensors if s.state is None)
    return _Inputs(tuple(sets), substitutes, names)


@attrs.define
class _Bench:
    """One measurement. `inputs` are those that are timed, and times are compared with `machine`;
    both may be replaced: `inputs` where models draw their own parameters, `machine` where it is
    measured again."""

    candidate: Candidate
    task: TaskClient
    settings: Settings
    machine: Machine
    say: Progress
    binding: Binding
    symbols: Mapping[str, int]
    inputs: _Inputs
    _length: int = 0
    _references: dict[int, References] = attrs.field(factory=dict)
    _certain: bool = False

    def measured(self, code: Path) -> Measurement:
        """Time the kernel in `code`, compare its outputs, and judge."""
        driver.prepare(self.settings.threads)
        before = surroundings()
        others = OtherWork(driver.processors(self.settings.threads))
        run = self._run(self._job(code))
        surrounding = {"before": before, "after": surroundings(), "other_work": others.share()}
        plan, binding, task = self.candidate.plan, self.binding, self.task
        # Where there is no sketch, the length of sums is found from the task.
        reach = None if plan.phases else find_reach(binding, task, find_freedom(binding, task))
        self._length = reduction_length(plan, binding, self.symbols, reach)
        work = work_of(plan, binding, self.symbols)
        floor = self._floor(work, run)
        self.say("verifies timed outputs")
        return self._result(run, surrounding, work, floor)

    # ------------------------------------------------------------ times

    def _job(self, code: Path) -> Job:
        candidate, task, settings, binding = self.candidate, self.task, self.settings, self.binding
        kernel, shapes = candidate.kernel, binding.shapes(self.symbols)
        return Job(
            kernel,
            code,
            task.path.resolve(),
            task.outline.subject,
            task.outline.makes_inputs,
            settings.device,
            settings.threads,
            self.symbols,
            binding.params,
            {str(position): value for position, value in self.inputs.substitutes.items()},
            len(self.inputs.sets),
            arguments_of(binding),
            {s.state: s.tensor.name for s in binding.tensors if s.state is not None},
            self.inputs.varied,
            tuple((tensor.dtype.value, shapes[tensor.name]) for tensor in binding.outputs),
            precision_of(candidate.plan, kernel).of_baseline,
            settings.baselines,
            kernel.entry == MODEL,
            False,
            settings.schedule.warm_up_seconds,
            2 * self.machine.cache_bytes if settings.schedule.cold else 0,
            task.lead,
        )

    def _run(self, job: Job) -> Run:
        """Time all contenders. Where the parameters of `ModelNew` do not match the task's, times
        again with both models drawing their own, after the same seed."""
        tensors = [source.tensor for source in self.binding.tensors]
        sent = [
            {t.name: one.values[t.name].astype(numpy_dtype(t.dtype), copy=False) for t in tensors}
            for one in self.inputs.sets
        ]
        turned = {
            t.name: (self.inputs.sets[0].values[t.name].size, t.dtype.is_float)
            for t in tensors
            # Where the task corrects its inputs, the sets alternate without variations.
            if t.name in self.inputs.varied and not self.binding.description.corrects
        }
        try:
            return driver.run(job, sent, self.settings, turned, self.say)
        except StateMismatchError:
            run = driver.run(attrs.evolve(job, seeded=True), sent, self.settings, turned, self.say)
            sets = tuple(attrs.evolve(one, state={}) for one in self.inputs.sets)
            self.inputs = attrs.evolve(self.inputs, sets=sets)
            return attrs.evolve(run, notes=(*run.notes, _SEEDED))

    def _floor(self, work: Work, run: Run) -> Floor:
        """The floor that times are compared with. Where a time is shorter than the machine seems to
        allow, the machine is measured again: other work may have slowed the first measurement."""
        precision = precision_of(self.candidate.plan, self.candidate.kernel).name
        cold = self.settings.schedule.cold
        floor = floor_of(work, self.machine, precision, cold)
        if outdone(floor, run):
            self.say("measures the machine again, since it is faster than it was")
            now = this_machine(self.settings.device, measure=True)
            self.machine = better(self.machine, now)
            floor = floor_of(work, self.machine, precision, cold)
        return floor

    # ------------------------------------------------------------ outputs

    def _comparisons(self, run: Run, contender: str) -> tuple[Comparison, ...]:
        """Compare every kept output of one contender's timed samples with the task's output on the
        inputs of that sample. Raises `TaskFailure`."""
        found: list[Comparison] = []
        for one in run.kept:
            if one.contender != contender:
                continue
            if len(one.outputs) != len(self.binding.outputs):
                reason = f"{len(one.outputs)} outputs came back for {len(self.binding.outputs)}"
                found.append(Comparison("outputs", "wrong_shape", reason, 0))
                continue
            if one.round not in self._references:
                self._references[one.round] = self._reference(one)
            references = self._references[one.round]
            compared = [
                references.compare(position, tensor.name, array, tensor.dtype, self._length)
                for position, (tensor, array) in enumerate(
                    zip(self.binding.outputs, one.outputs, strict=True)
                )
            ]
            if not all(comparison.passed for comparison in compared) and not self._certain:
                self._certain = True
                # A task that was too large to be run twice is checked before a failure is reported.
                state = self.inputs.sets[one.variation.base].state
                self.task.require_numbers(self.settings.seed % _SEEDS)
                self.task.require_same(self._arguments(one), state, self.inputs.substitutes)
            found += compared
        return tuple(found)

    def _arguments(self, one: SampleOutputs) -> list[Array | Scalar | None]:
        """The arguments of forward in the sample `one`, by position."""
        values = {
            name: varied(array, one.variation.turns[name]) if name in one.variation.turns else array
            for name, array in self.inputs.sets[one.variation.base].values.items()
        }
        return [
            values[argument] if isinstance(argument, str) else argument
            for argument in arguments_of(self.binding)
        ]

    def _reference(self, one: SampleOutputs) -> References:
        arguments = self._arguments(one)
        state, substitutes = self.inputs.sets[one.variation.base].state, self.inputs.substitutes
        exact = self.task.reference(arguments, state, substitutes)
        own = partial(self.task.reference, arguments, state, substitutes, double=False)
        read = partial(self.task.readings, arguments, state, substitutes)
        given = tuple(value for value in arguments if isinstance(value, np.ndarray))
        return References(exact, own, inputs=given, read=read, path=str(self.task.path))

    # ------------------------------------------------------------ the result

    def _baseline(self, name: str, run: Run, precision: Precision, floor: Floor) -> Baseline:
        seconds = run.seconds(name)
        times = summarise(seconds)
        idle = name in run.idle
        return Baseline(
            name,
            precision.of_baseline,
            times,
            speedup(seconds, run.seconds(KERNEL)) if precision.comparable and not idle else None,
            floor.roofline / times.median,
            self._comparisons(run, name),
            idle,
        )

    def _result(
        self, run: Run, surrounding: Mapping[str, Any], work: Work, floor: Floor
    ) -> Measurement:
        """Reduce the samples, compare the outputs, and judge."""
        candidate, plan, binding = self.candidate, self.candidate.plan, self.binding
        precision = precision_of(plan, candidate.kernel)
        kernel = summarise(run.seconds(KERNEL))
        comparisons = self._comparisons(run, KERNEL)
        baselines = {name: self._baseline(name, run, precision, floor) for name in run.baselines}
        busy = busy_note(surrounding["other_work"])
        notes = _notes(run, baselines, precision.comparable)
        return Measurement(
            plan.sketch.name,
            plan.target,
            plan.hardware.name,
            str(self.task.path),
            candidate.path,
            candidate.kernel.source,
            _text(candidate),
            self.machine,
            self.symbols,
            binding.shapes(self.symbols),
            constants_of(plan.sketch),
            dict(binding.params),
            self.settings,
            len(self.inputs.sets),
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
            (*filter(None, [busy]), *binding.notes, *self.task.notes, *notes),
        )


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
