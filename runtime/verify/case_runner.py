"""One candidate bound to one task: builds it, runs cases, and finds who is to blame.

The outcome of a case is a `Finding`; `verify` makes a verdict of the findings.

NaN agrees with NaN: where most of a case's reference is the root of a negative sum, a kernel that
adds up nothing passes. So a case of which most elements are NaN or infinite is drawn again, like
the task's own inputs; it counts as telling nothing where that does not help.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from sketchc.base.types import numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.lowering.registry import load_language
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.drawing import (
    PLANTED,
    RISING,
    Inputs,
    Plants,
    draw,
    neighbour,
    plants_of,
)
from sketchc.runtime.cases.reach import UNKNOWN_REACH, Freedom, Reach, find_reach
from sketchc.runtime.cases.shapes import ShapeCase, effort
from sketchc.runtime.cases.sums import adds_in_any_order, reduction_lengths
from sketchc.runtime.guards.binary import NotElfError, in_libc, inspect_elf, refusal
from sketchc.runtime.process import pool
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import (
    Scalar,
    TaskFailure,
    TaskKilledError,
    TensorSpec,
    Thresholds,
    fail,
)
from sketchc.runtime.tasks.inputs import LIKE, poison
from sketchc.runtime.tasks.repeat import ONLY_NAN, only_nan
from sketchc.runtime.tasks.task import Task
from sketchc.runtime.toolchains import base as toolchains
from sketchc.runtime.toolchains.base import Artefact, ToolchainError
from sketchc.runtime.toolchains.interpreter import interpret_apart
from sketchc.runtime.verify import machine
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.evidence import LOG_CHARACTERS, classify, headline
from sketchc.runtime.verify.kernel_file import (
    explanation,
    inspect_kernel,
    refusal_of,
    without_comments,
)
from sketchc.runtime.verify.references import EXTREME_KINDS, References, nudged
from sketchc.runtime.verify.verdict import CaseResult

if TYPE_CHECKING:
    from sketchc.runtime.verify.running import Cases
    from sketchc.runtime.verify.verify import Candidate

#: Bytes on either side of every tensor, and what they hold. 128 keeps the tensor aligned.
_GUARD_BYTES = 4096
_PATTERN = 0xA5


class Buffers:
    """The tensors of one run, with guard zones around each: a toolchain that runs the kernel in
    this process passes the addresses of these tensors to it. `tensors` maps in, inout (filled) and
    out (poisoned) by name."""

    def __init__(
        self,
        binding: Binding,
        symbols: Mapping[str, int],
        values: Mapping[str, Array],
        second: bool = False,
    ) -> None:
        """`values` are the in and inout tensors that are given; `second`: of a second run."""
        shapes = binding.shapes(symbols)
        self.tensors: dict[str, Array] = {}
        self._whole: dict[str, npt.NDArray[np.uint8]] = {}
        self._inputs: dict[str, Array] = {}
        for tensor in binding.sketch.tensors:
            if tensor.role is ir.Role.WORKSPACE:
                continue
            if tensor.name in values:
                content = values[tensor.name]
            elif tensor.role is ir.Role.IN:
                continue  # an optional tensor that is absent
            else:
                content = poison(tensor.dtype, shapes[tensor.name], second=second)
            whole = np.full(content.nbytes + 2 * _GUARD_BYTES, _PATTERN, np.uint8)
            inner = whole[_GUARD_BYTES : _GUARD_BYTES + content.nbytes]
            array = inner.view(numpy_dtype(tensor.dtype)).reshape(content.shape)
            array[...] = content
            self.tensors[tensor.name], self._whole[tensor.name] = array, whole
            if tensor.name in values:
                # The kernel never sees `values`: whatever differs from it later was written.
                self._inputs[tensor.name] = content

    def stray_writes(self) -> str:
        """What the kernel wrote where it must not, as a sentence; "" for nothing.

        A toolchain returns inout tensors as copies, so these buffers too must be unchanged.
        """
        for name, whole in self._whole.items():
            before, after = whole[:_GUARD_BYTES], whole[whole.size - _GUARD_BYTES :]
            if (before != _PATTERN).any():
                return f"memory before {name} was overwritten"
            if (after != _PATTERN).any():
                return f"memory after {name} was overwritten"
        for name, content in self._inputs.items():
            if not np.array_equal(_bits(self.tensors[name]), _bits(content)):
                return f"the input {name} was changed"
        return ""


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    """The bytes of an array, so that NaNs compare equal to themselves."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


#: A case tells something where this share of its reference's elements are numbers.
LEAST_SHARE = 0.5
#: The task's own inputs are made up to so many elements, where parts of them are wanted.
_MOST = 1 << 26


def share_of_numbers(references: Sequence[Array]) -> float:
    """The share of elements, over all outputs, that are neither NaN nor infinite."""
    total = sum(array.size for array in references)
    floats = [array for array in references if array.dtype.kind not in "iub"]
    strange = sum(int(np.count_nonzero(~np.isfinite(array))) for array in floats)
    return 1.0 - strange / total if total else 1.0


def has_own(binding: Binding) -> bool:
    """Whether the task's own inputs are few enough to be made where only parts are wanted."""
    specs = [v for v in binding.description.inputs if isinstance(v, TensorSpec)]
    return sum(prod(spec.shape) for spec in specs) <= _MOST


def too_few(results: Sequence[CaseResult]) -> str:
    """Why the cases that ran show too little; "" where they show enough."""
    ran = [result for result in results if result.failure != "skipped"]
    silent = [result for result in ran if not result.telling]
    if not silent or 2 * len(silent) <= len(ran):
        return ""
    return (
        f"in {len(silent)} of {len(ran)} cases most of the reference is NaN or infinite, also on "
        "inputs like the task's own: they show little. A `# @hint: x in [..]` beside the task says "
        "which values it is meant for"
    )


#: Failures for which either side may be to blame.
_BLAMED = frozenset({"numerical", "wrong_shape", "nondeterministic", "illegal_access"})
#: The interpreter is asked about cases up to this size (elements over all tensors), and up to this
#: effort: what is above takes minutes.
_INTERPRETABLE, _MOST_EFFORT = 1 << 22, 1 << 31
#: How a kernel's text says that its additions come in any order: atomics, OpenMP's reductions.
_ANY_ORDER = r"\batomic|atomic(Add|_add)\b|\breduction\s*\("
#: Seconds that the question who is to blame may take.
_BLAME_TIMEOUT = 120.0


@attrs.frozen
class Finding:
    """What one case showed so far; `outputs` are those of the code where they are wrong."""

    failure: str = ""
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()
    outputs: Mapping[str, Array] | None = attrs.field(default=None, repr=False)
    log: str = ""
    sketch_right: bool | None = None
    code_as_sketch: bool | None = None
    #: Why the interpreter could not say who is to blame.
    undecided: str = ""
    #: The process was killed from outside, maybe not for the kernel's doing (see `machine`).
    killed: bool = False


@attrs.frozen
class Trial:
    """One case to run: its inputs, the task's outputs on them, how many terms may be added up
    behind one element of each output, and how often the kernel is run."""

    case: ShapeCase
    inputs: Inputs
    references: References
    lengths: Mapping[str, int]
    runs: int


@attrs.define
class CaseRunner:
    """One candidate bound to one task; runs cases."""

    candidate: Candidate
    binding: Binding
    freedom: Freedom
    task: Task
    timeout: float
    artefact: Artefact | None = None
    blamed: bool = False
    explanation: str = ""
    folder: Path = Path()
    notes: list[str] = attrs.field(factory=list)
    #: The numbers that the task compares with, and how many more cases look for some.
    thresholds: Thresholds = Thresholds()
    looks: int = 2
    #: The numbers that were planted among inputs, with their neighbours.
    planted: dict[Scalar, None] = attrs.field(factory=dict)
    #: Runs the kernel, in one process for all cases where the toolchain offers that.
    launcher: toolchains.Session | None = None
    #: Seconds that the compiler took.
    compiled: float = 0.0
    #: Why a verdict without a failure is incomplete: sentences on what was never tried.
    gaps: list[str] = attrs.field(factory=list)

    def build(self, folder: Path, timeout: float) -> Finding | None:
        """Check the sketch's types and a foreign kernel's text, and compile; returns what is wrong,
        where one of these fails."""
        if others := self.binding.other_types:
            return Finding("wrong_shape", f"types differ: {'; '.join(others)}")
        kernel = self.candidate.kernel
        if self.candidate.garbled:
            return Finding("syntax", self.candidate.garbled)
        findings = inspect_kernel(kernel) if kernel.foreign else ()
        if refused := refusal_of(findings):
            return Finding("policy", refused)
        self.explanation = explanation(findings)
        self.folder = folder
        found = self._compile(timeout)
        if found.killed:
            with machine.alone():
                found = self._compile(timeout)
        if self.artefact is None:
            return found
        if kernel.foreign and self.artefact.library is not None:
            # A library in another system's format is not inspected: the check of the text must do.
            own = (self.artefact.own_symbols, self.artefact.own_constructors)
            with suppress(NotElfError):
                library = inspect_elf(self.artefact.library).without(*own)
                if refused := refusal(library, exists=in_libc):
                    return Finding("policy", refused, log=self.explanation)
        return None

    def _compile(self, timeout: float) -> Finding:
        """Set `artefact`, or return what is wrong."""
        started = time.monotonic()
        try:
            with pool.slots().compiling():
                self.artefact = self.candidate.toolchain.compile(
                    self.candidate.kernel, self.folder, timeout
                )
            self.compiled = time.monotonic() - started
        except ToolchainError as error:
            return self._failed(error)
        except OSError as error:
            return Finding("infrastructure", f"the build failed: {error}", killed=True)
        return Finding()

    def more_cases(self, cases: Cases) -> Cases:
        """Cases to run besides the planned `cases`: none here, some in a subclass."""
        return []

    def close(self) -> None:
        """Close the session that runs the kernel."""
        if self.launcher is not None:
            self.launcher.close()

    def _failed(self, error: ToolchainError) -> Finding:
        failure = classify(error, self._language(error))
        log = self._placeless(error.log)
        if failure == "policy":
            log = f"{log}\n{self.explanation}".strip()
        message = headline(self._placeless(str(error)))
        killed = machine.was_killed(error) or failure == "infrastructure"
        return Finding(failure, message, log=log[-LOG_CHARACTERS:], killed=killed)

    def _language(self, error: ToolchainError) -> str:
        """The language of the code that failed."""
        return self.candidate.kernel.language

    def _placeless(self, text: str) -> str:
        """`text` without the folders of this run, which `evidence` cannot tell from other words."""
        for folder, name in ((self.folder, "/build"), (Path(tempfile.gettempdir()), "/tmp")):
            for spelling in {str(folder), str(folder.resolve())}:
                text = text.replace(spelling, name)
        return text

    def run(self, case: ShapeCase, kind: str, seed: int, runs: int) -> CaseResult:
        """Run one case; its result, timed, says who is to blame for a failure."""
        first = self.binding
        self.binding = first.with_numbers(case.numbers)
        try:
            return self._run(case, kind, seed, runs)
        finally:
            self.binding = first

    def _run(self, case: ShapeCase, kind: str, seed: int, runs: int) -> CaseResult:
        plan = self.candidate.plan
        lengths = reduction_lengths(plan, self.binding, case.symbols, self.reach)
        started = time.monotonic()
        found, telling, drawn = Finding(), True, kind
        try:
            drawn, inputs, references = self._inputs(case, kind, seed)
            telling = share_of_numbers(references.arrays) >= LEAST_SHARE
        except TaskKilledError as error:
            found = Finding("infrastructure", str(error))
        except TaskFailure as error:
            if case.own and not self.task.is_sketch:
                raise
            found = Finding("skipped", f"the task refuses these sizes: {error}")
        else:
            trial = Trial(case, inputs, references, lengths, runs)
            found = self._tried(trial)
            if found.killed:
                reason = found.reason
                with machine.alone():
                    found = self._tried(trial)
                then = "failed" if found.failure else "passed"
                again = f"it was run once more, alone, and {then}"
                self.notes.append(f"{case.text} ({kind}): {reason}; {again}")
            found = self._blame(trial, found)
        said = attrs.asdict(found, recurse=False)
        del said["outputs"], said["killed"]
        return CaseResult(
            case,
            kind,
            seed,
            runs=runs,
            reduction_length=max(lengths.values(), default=1),
            seconds=time.monotonic() - started,
            telling=telling,
            drawn_as="" if drawn == kind else drawn,
            **said,
        )

    def _tried(self, trial: Trial) -> Finding:
        """The finding of one case, also where running it fails."""
        try:
            return self._decide(trial)
        except ToolchainError as error:
            return self._failed(error)
        except OSError as error:
            return Finding("infrastructure", f"the run failed: {error}", killed=True)

    def _inputs(self, case: ShapeCase, kind: str, seed: int) -> tuple[str, Inputs, References]:
        """The kind, the inputs and the references of a case, drawn again as another kind where most
        of the references are no numbers. Raises `TaskFailure`."""
        drawn, _, change = kind.partition("/")
        plants = self._plants(case, drawn, seed)
        found: tuple[str, Inputs, References] | None = None
        best = -1.0
        # What comes nearest to the task's own inputs.
        again = [LIKE if has_own(self.binding) else "non_negative"]
        for tried in (drawn, *(again if drawn not in ("task", LIKE) else ())):
            substitutes = self._substitutes(case)
            # Where the task makes no numbers of its zeros, none are planted the second time.
            own = plants if tried in (drawn, LIKE) else None
            try:
                rising = change == RISING
                inputs = draw(
                    self.binding, self.task, case, tried, seed, substitutes, own, rising=rising
                )
                inputs = inputs if rising else neighbour(inputs, f"{tried}/{change}", seed)
                references = self._references(case, tried, inputs)
            except TaskFailure as error:
                if found is None or isinstance(error, TaskKilledError):
                    raise
                continue
            share = share_of_numbers(references.arrays)
            if share > best:
                found, best = (f"{tried}/{change}" if change else tried, inputs, references), share
            if share >= LEAST_SHARE:
                break
        assert found is not None
        return found

    def _plants(self, case: ShapeCase, kind: str, seed: int) -> Plants:
        """The values to plant among a case's inputs; `looks` cases ask the task for its numbers."""
        if self.looks and isinstance(self.task, TaskClient):
            substitutes = self._substitutes(case)
            with suppress(TaskFailure):
                inputs = draw(self.binding, self.task, case, kind, seed, substitutes)
                seen = self.task.thresholds(inputs.arguments, inputs.state, substitutes)
                self.thresholds = self.thresholds.joined(seen)
                self.looks -= 1
        found = plants_of(self.candidate.plan.sketch, self.binding.params, self.thresholds)
        self.planted |= dict.fromkeys(found.numbers if kind in PLANTED else ())
        return found

    @cached_property
    def reach(self) -> Reach | None:
        """For a kernel without a sketch: how many input elements reach one output element."""
        if self.candidate.plan.phases:
            return None
        found = find_reach(self.binding, self.task, self.freedom)
        if found is None:
            self.notes.append(UNKNOWN_REACH)
        return found

    # ------------------------------------------------------------ inputs and references

    def _references(self, case: ShapeCase, kind: str, inputs: Inputs) -> References:
        """The task's outputs in float64, and functions that run it in its own precision."""
        arguments, state, substitutes = inputs.arguments, inputs.state, self._substitutes(case)
        task = self.task
        references = task.reference(arguments, state, substitutes)
        if len(references) != len(self.binding.outputs):
            fail(f"it returns {len(references)} tensors at these sizes")
        given = tuple(inputs.values.values())
        if not isinstance(task, TaskClient):
            return References(references, inputs=given)
        if case.own and kind == "task" and only_nan(references):
            fail(f"{self.task.path}: {ONLY_NAN}")

        own = partial(task.reference, arguments, state, substitutes, double=False)
        read = partial(task.readings, arguments, state, substitutes)

        def near(number: int) -> tuple[list[Array], list[Array]]:
            values = [nudged(v, number) if isinstance(v, np.ndarray) else v for v in arguments]
            known = {name: nudged(value, number) for name, value in state.items()}
            exact = self.task.reference(values, known, substitutes)
            return exact, self.task.reference(values, known, substitutes, double=False)

        path = str(self.task.path)
        return References(references, own, kind in EXTREME_KINDS, given, read, path, near)

    def _substitutes(self, case: ShapeCase) -> dict[int, Scalar]:
        if case.own:
            return dict(case.init)
        return {**self.freedom.substitutes(case.symbols), **case.init}

    # ------------------------------------------------------------ the decision

    def _decide(self, trial: Trial) -> Finding:
        """The finding of one case, before blame is assigned."""
        if misfit := self._misfit(trial.case, trial.references.arrays):
            return Finding("design", misfit, sketch_right=False)
        first: Mapping[str, Array] | None = None
        for number in range(trial.runs):
            outputs, stray = self._launch(trial.case, trial.inputs, number)
            if stray:
                return Finding("illegal_access", stray)
            missing = [t.name for t in self.binding.outputs if t.name not in outputs]
            if missing:
                return Finding("wrong_shape", f"no output came back for {', '.join(missing)}")
            comparisons = self._compare(outputs, trial.references, trial.lengths)
            wrong = next((c for c in comparisons if not c.passed), None)
            if wrong is not None:
                reason = f"{wrong.name}: {wrong.reason}"
                return Finding(wrong.failure, reason, comparisons, outputs)
            if first is not None and (different := self._unstable(first, outputs)):
                reason = f"{different} differs between two runs"
                return Finding("nondeterministic", reason, comparisons)
            first = outputs
        return Finding("", "", comparisons)

    def _unstable(self, first: Mapping[str, Array], second: Mapping[str, Array]) -> str:
        """The name of an output that changes from run to run; "" for none, and for kernels that add
        in any order (atomics), whose outputs are only compared with the reference."""
        kernel = self.candidate.kernel
        if adds_in_any_order(self.candidate.plan):
            return ""
        if kernel.foreign:
            # A word in a comment of C or C++ does not count.
            in_c = load_language(kernel.language).syntax == "c"
            text = without_comments(kernel.source) if in_c else kernel.source
            if re.search(_ANY_ORDER, text):
                return ""
        changed = (n for n, array in first.items() if array.tobytes() != second[n].tobytes())
        return next(changed, "")

    def _misfit(self, case: ShapeCase, references: list[Array]) -> str:
        """Where the sketch and the task disagree on an output's shape or type; "" for nowhere."""
        shapes, outputs = self.binding.shapes(case.symbols), self.binding.outputs
        # Inputs may be rounded to the sketch's types, so that outputs may be others.
        converted = any(s.specification.dtype is not s.tensor.dtype for s in self.binding.tensors)
        declared = self.binding.description.outputs
        for tensor, reference, of_task in zip(outputs, references, declared, strict=True):
            name, here, there = tensor.name, shapes[tensor.name], reference.shape
            if there != here:
                said = f"has shape {list(here)} in the sketch and {list(there)} in the task"
                return f"{name} {said}"
            if tensor.dtype is not of_task.dtype and not converted:
                said = (
                    f"is {tensor.dtype.value} in the sketch and {of_task.dtype.value} in the task"
                )
                return f"{name} {said}"
        return ""

    def _launch(
        self, case: ShapeCase, inputs: Inputs, number: int
    ) -> tuple[Mapping[str, Array], str]:
        """Run once in fresh, guarded buffers: the outputs, and what was written astray. `number`
        counts the runs on these inputs."""
        assert self.artefact is not None
        buffers = Buffers(self.binding, case.symbols, inputs.values, second=number > 0)
        if self.launcher is None:
            self.launcher = self.candidate.toolchain.open(self.artefact)
        with pool.slots().running():
            outputs = self.launcher.run(
                buffers.tensors, case.symbols, self.binding.params, self.timeout
            )
        return outputs, buffers.stray_writes()

    def _compare(
        self, outputs: Mapping[str, Array], references: References, lengths: Mapping[str, int]
    ) -> tuple[Comparison, ...]:
        return tuple(
            references.compare(
                position, tensor.name, outputs[tensor.name], tensor.dtype, lengths[tensor.name]
            )
            for position, tensor in enumerate(self.binding.outputs)
        )

    def _blame(self, trial: Trial, found: Finding) -> Finding:
        """The finding with who is to blame, the code or the sketch: the interpreter decides, once
        per verdict for failures that show no wrong numbers."""
        if self.candidate.toolchain.target == "interpreter" and found.failure in _BLAMED:
            reason = f"{found.reason}, in the sketch's own interpretation"
            return attrs.evolve(found, failure="design", reason=reason, sketch_right=False)
        if self.task.is_sketch and found.failure in _BLAMED:
            differs = "; the code differs from the sketch" if found.comparisons else ""
            reason = f"{found.reason}{differs}"
            return attrs.evolve(found, reason=reason, sketch_right=True, code_as_sketch=False)
        if found.failure not in _BLAMED or not self.candidate.plan.phases:
            return found
        if found.outputs is None and self.blamed:
            return found
        values, lengths = trial.inputs.values, trial.lengths
        plan, params = self.candidate.plan, self.binding.params
        size = sum(array.size for array in values.values())
        if size > _INTERPRETABLE or effort(plan, trial.case.symbols, params) > _MOST_EFFORT:
            return _undecided(found, "the case is too large to interpret the sketch")
        self.blamed = True
        sketch = plan.sketch
        try:
            meant = interpret_apart(sketch, values, trial.case.symbols, params, _BLAME_TIMEOUT)
        except ToolchainError as error:
            if error.stage != "design":
                return _undecided(found, str(error))
            reason = f"the sketch cannot be interpreted here: {error}"
            return attrs.evolve(found, failure="design", reason=reason, sketch_right=False)
        if found.outputs is not None:
            exact = [
                meant[t.name].astype(np.float64) if t.dtype.is_float else meant[t.name]
                for t in self.binding.outputs
            ]
            alike = self._compare(found.outputs, References(exact), lengths)
            found = attrs.evolve(found, code_as_sketch=all(c.passed for c in alike))
        for comparison in self._compare(meant, trial.references, lengths):
            if not comparison.passed:
                # The element that is wrong in the sketch is the one to show.
                return attrs.evolve(
                    found,
                    failure="design",
                    reason=f"{comparison.name}: {comparison.reason}, in the sketch's own "
                    "interpretation",
                    sketch_right=False,
                )
        reason = f"{found.reason}; the sketch's own interpretation is right"
        return attrs.evolve(found, reason=reason, sketch_right=True)


def _undecided(found: Finding, why: str) -> Finding:
    """`found`, with `why` the sketch was not interpreted: it must not read as if it were right."""
    reason = f"{found.reason}; undecided whether the sketch or the code is wrong: {why}"
    return attrs.evolve(found, reason=reason, undecided=why)
