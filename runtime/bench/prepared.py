"""What is timed, before it is timed: a task bound to a sketch, sets of inputs, and the check of the
outputs that timed calls return. `bench` and `runtime.tune` share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import numpy as np

from sketchc.base.diagnostics import refuse
from sketchc.base.types import numpy_dtype
from sketchc.launch.sizes import require_sizes
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_language
from sketchc.runtime.bench.child import MODEL, Job
from sketchc.runtime.bench.driver import MeasurementFailedError, Progress, SampleOutputs
from sketchc.runtime.bench.roofline import precision_of
from sketchc.runtime.bench.schedule import Settings, Variation, varied
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.drawing import Inputs, draw
from sketchc.runtime.cases.lists import OwnList, bind_task, bound_to
from sketchc.runtime.cases.reach import find_freedom, find_reach
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.cases.sums import reduction_length
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import Scalar
from sketchc.runtime.toolchains.base import Toolchain, ToolchainError
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.evidence import classify
from sketchc.runtime.verify.references import References
from sketchc.runtime.verify.verify import Candidate

#: The number of sets of input values, and of places in memory; the most bytes that all of them may
#: take together, in both of the processes that time.
INPUT_SETS = 3
_INPUT_BYTES = 4 << 30
#: Seeds of tasks are smaller than this.
SEEDS = 1 << 31

Made = TypeVar("Made")


@attrs.frozen
class InputSets:
    """The sets of input values, the init inputs that replace the task's (`substitutes`, by
    position), and the names of the tensors that change from sample to sample (`varied`)."""

    sets: tuple[Inputs, ...]
    substitutes: Mapping[int, int]
    varied: tuple[str, ...]


def build(toolchain: Toolchain, kernel: Kernel, folder: Path) -> Path:
    """Compile the kernel; returns its library, or its Python file where its host code is Python.
    Raises `MeasurementFailedError`."""
    try:
        artefact = toolchain.compile(kernel, folder / "build")
    except ToolchainError as error:
        msg = f"the kernel does not compile: {error}"
        raise MeasurementFailedError(msg, classify(error, kernel.language)) from error
    if load_language(kernel.language).hosted:
        code = folder / f"{kernel.name}.py"
        code.write_text(kernel.source)
        return code
    assert artefact.library is not None
    return artefact.library


def bound(
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
    require_sizes(binding.sketch.symbol_bounds, sizes)
    freedom = find_freedom(binding, task)
    tied = [n for n, v in sizes.items() if n not in freedom.free and v != binding.symbols[n]]
    if tied:
        refuse(f"size {tied[0]}={sizes[tied[0]]}: the task's model fixes this size")
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


def draw_sets(
    binding: Binding,
    task: TaskClient,
    symbols: Mapping[str, int],
    substitutes: Mapping[int, int],
    seed: int,
) -> InputSets:
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
    return InputSets(tuple(sets), substitutes, names)


@attrs.frozen
class Prepared:
    """A task and a candidate at the sizes `symbols` with inputs, ready to be timed."""

    candidate: Candidate
    task: TaskClient
    settings: Settings
    binding: Binding
    symbols: Mapping[str, int]
    inputs: InputSets

    def job(self, kernel: Kernel, code: Path, cache_bytes: int) -> Job:
        """The job of a process that times `kernel`, built as `code`, on a machine whose last-level
        cache has so many bytes."""
        task, settings, binding = self.task, self.settings, self.binding
        shapes = binding.shapes(self.symbols)
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
            precision_of(self.candidate.plan, kernel).of_baseline,
            settings.baselines,
            kernel.entry == MODEL,
            False,
            settings.schedule.warm_up_seconds,
            2 * cache_bytes if settings.schedule.cold else 0,
            task.lead,
        )

    @property
    def sent(self) -> list[dict[str, Array]]:
        """The sets of values by tensor name, as a process that times gets them."""
        tensors = [source.tensor for source in self.binding.tensors]
        return [
            {t.name: one.values[t.name].astype(numpy_dtype(t.dtype), copy=False) for t in tensors}
            for one in self.inputs.sets
        ]

    @property
    def turned(self) -> dict[str, tuple[int, bool]]:
        """The tensors that change from sample to sample: (elements, whether they are floats)."""
        if self.binding.description.corrects:
            return {}  # the task corrects its inputs: the sets alternate without variations
        return {
            s.tensor.name: (
                self.inputs.sets[0].values[s.tensor.name].size,
                s.tensor.dtype.is_float,
            )
            for s in self.binding.tensors
            if s.tensor.name in self.inputs.varied
        }

    def arguments(self, variation: Variation) -> list[Array | Scalar | None]:
        """The arguments of forward, by position, for inputs that are varied in this way."""
        values = {
            name: varied(array, variation.turns[name]) if name in variation.turns else array
            for name, array in self.inputs.sets[variation.base].values.items()
        }
        return [
            values[argument] if isinstance(argument, str) else argument
            for argument in arguments_of(self.binding)
        ]

    def length(self) -> int:
        """How many terms the task adds up, for the tolerance; where there is no sketch, this is
        found by running the task."""
        plan, binding, task = self.candidate.plan, self.binding, self.task
        reach = None if plan.phases else find_reach(binding, task, find_freedom(binding, task))
        return reduction_length(plan, binding, self.symbols, reach)


def prepare(
    candidate: Candidate,
    task: TaskClient,
    settings: Settings,
    say: Progress,
    meanwhile: Callable[[], Made],
    own_list: OwnList | None = None,
) -> tuple[Prepared, Made]:
    """Bind, check the task and draw inputs; returns them with the result of `meanwhile`, which is
    called while the task runs once more in another process. `say` is called with what is being
    done; `own_list` says which of the task's lists of inputs is meant. Raises `UsageError` where
    sketch and task do not fit, `TaskFailure` for a task that is broken or not deterministic."""
    if task.framework != "torch":
        refuse(f"{task.path} is a task in {task.framework}; kernels are timed against PyTorch")
    say("checks the task")
    binding = bound(candidate, task, settings, own_list)
    symbols, substitutes = sizes_of(binding, task, settings.sizes)
    task.require_deterministic(settings.seed % SEEDS, wait=False)
    say("compiles")
    if load_language(candidate.kernel.language).by_runner:
        refuse(f"{candidate.plan.target} calls kernels by its runner, which times nothing")
    made = meanwhile()
    say("checks the task")
    task.settle()
    say("draws inputs")
    inputs = draw_sets(binding, task, symbols, substitutes, settings.seed)
    return Prepared(candidate, task, settings, binding, symbols, inputs), made


@attrs.define
class OutputCheck:
    """Compares outputs of timed calls with the task's on the inputs of the same sample."""

    prepared: Prepared
    length: int
    _references: dict[int, References] = attrs.field(factory=dict)
    _certain: bool = False

    def compare(self, one: SampleOutputs) -> list[Comparison]:
        """Compare every output of one sample; references are kept by the sample's round. Raises
        `TaskFailure`."""
        prepared, outputs = self.prepared, self.prepared.binding.outputs
        if len(one.outputs) != len(outputs):
            reason = f"{len(one.outputs)} outputs came back for {len(outputs)}"
            return [Comparison("outputs", "wrong_shape", reason, 0)]
        if one.round not in self._references:
            self._references[one.round] = self._reference(one.variation)
        references = self._references[one.round]
        compared = [
            references.compare(position, tensor.name, array, tensor.dtype, self.length)
            for position, (tensor, array) in enumerate(zip(outputs, one.outputs, strict=True))
        ]
        if not all(comparison.passed for comparison in compared) and not self._certain:
            self._certain = True
            # A task that was too large to be run twice is checked before a failure is reported.
            task, inputs = prepared.task, prepared.inputs
            task.require_numbers(prepared.settings.seed % SEEDS)
            state = inputs.sets[one.variation.base].state
            task.require_same(prepared.arguments(one.variation), state, inputs.substitutes)
        return compared

    def _reference(self, variation: Variation) -> References:
        prepared, task = self.prepared, self.prepared.task
        arguments = prepared.arguments(variation)
        state = prepared.inputs.sets[variation.base].state
        substitutes = prepared.inputs.substitutes
        exact = task.reference(arguments, state, substitutes)
        own = partial(task.reference, arguments, state, substitutes, double=False)
        read = partial(task.readings, arguments, state, substitutes)
        given = tuple(value for value in arguments if isinstance(value, np.ndarray))
        return References(exact, own, inputs=given, read=read, path=str(task.path))
