"""Verify a kernel against a PyTorch task: many shapes, inputs that discriminate, a strict rule.

This process draws the inputs from a secret seed, holds the reference outputs and decides; the task
and the kernel run in processes of their own and see inputs only. Outputs start poisoned, buffers
are checked for stray writes, and one run is repeated. When the numbers differ, the interpreter
says whether the sketch or the generated code is to blame. A kernel that somebody else wrote must
also do its work itself (`policy`). Whatever its text, what comes out is a verdict.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sketchc.evaluate import constants_of
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import Plan
from sketchc.runtime.frontends.arrays import Array
from sketchc.runtime.frontends.binding import Binding, bind
from sketchc.runtime.frontends.sizes import refusal
from sketchc.runtime.frontends.task import Task
from sketchc.runtime.frontends.torch_task import Scalar, TaskFailure, TorchTask
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, Artefact, Toolchain, ToolchainError
from sketchc.runtime.toolchains.interpreter import interpret_apart
from sketchc.runtime.verify.buffers import Buffers
from sketchc.runtime.verify.chains import adds_in_any_order, reduction_length
from sketchc.runtime.verify.classify import classify, headline
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.drawing import Inputs, draw
from sketchc.runtime.verify.free import Freedom, find_freedom, tied_note
from sketchc.runtime.verify.policy import explanation, inspect_kernel, refusal_of
from sketchc.runtime.verify.references import EXTREME_KINDS, References
from sketchc.runtime.verify.shapes import (
    INTERPRETED,
    NATIVE,
    OWN,
    ShapeCase,
    own_case,
    ragged_cases,
)
from sketchc.runtime.verify.verdict import CaseResult, Verdict

#: Kinds for the task's own sizes ("task": its own get_inputs) and, in rotation, for the others.
_OWN_KINDS = ("task", "structured")
_KINDS = ("normal", "structured", "mixed_scale", "large", "non_negative")
#: After so many failures nothing new is learnt.
_ENOUGH_FAILURES = 3
#: How much of what a tool printed is kept.
LOG_CHARACTERS = 20_000
#: Failures for which either side may be to blame.
_BLAMED = frozenset({"numerical", "wrong_shape", "nondeterministic", "illegal_access"})
#: The interpreter is asked about cases up to this size (elements over all tensors).
_INTERPRETABLE = 1 << 22
#: Seconds that the question who is to blame may take.
_BLAME_TIMEOUT = 120.0

Progress = Callable[[CaseResult], None]
Cases = list[tuple[ShapeCase, str]]


@attrs.frozen
class Candidate:
    """What is verified: the plan, its code, and the toolchain that runs it.

    A plan without phases (`signature.signature_plan`) stands for a kernel without a sketch: nothing
    can be interpreted then, and sizes come from the signature alone.
    """

    plan: Plan
    kernel: Kernel
    toolchain: Toolchain


def verify(
    candidate: Candidate,
    task: Task,
    folder: Path,
    seed: int,
    settings: Mapping[str, Scalar] | None = None,
    progress: Progress | None = None,
    select: Callable[[Cases], Cases] | None = None,
    small: bool = False,
    timeout: float = 300.0,
    compile_timeout: float = COMPILE_TIMEOUT,
) -> Verdict:
    """Compile, run on every case and compare. `folder` takes the build; `settings` are `--set`.

    `progress` hears of every case that is done; `select` may drop cases (shapes with kinds of
    input, smallest first and the task's own sizes last); `small` scales the task's sizes down as
    for an interpreted target. `timeout` (seconds) bounds each run of the kernel, `compile_timeout`
    the build. Raises `UsageError` when the task cannot be bound to the sketch, raises at its own
    sizes, or is not deterministic.
    """
    plan = candidate.plan
    binding = bind(plan.sketch, task.describe(seed), settings)
    if isinstance(task, TorchTask):
        task.require_deterministic(seed % (1 << 31))
    freedom = find_freedom(binding, task)
    status = candidate.toolchain.status()
    notes = [*binding.notes, *filter(None, [tied_note(binding, freedom)])]
    cases = _cases(plan, binding, freedom, small or status.interpreted)
    cases = _without_some(binding, cases)
    if select is not None:
        cases = select(cases)
    if not any(case.own for case, _ in cases):
        notes.append(f"the task's own sizes are scaled down; runs: {status.how_it_runs}")
    session = _Session(candidate, binding, freedom, task, timeout)
    results: list[CaseResult] = []
    if (refused := session.build(folder, compile_timeout)) is not None and cases:
        case, kind = cases[0]
        failure, reason, log = refused
        results.append(CaseResult(case, kind, seed, failure, reason, log=log))
        cases = []
    for number, (case, kind) in enumerate(cases):
        result = session.run(case, kind, seed + number, runs=2 if number == 0 else 1)
        results.append(result)
        if progress is not None:
            progress(result)
        if _settled(results):
            break
    return Verdict(
        plan.sketch.name,
        plan.target,
        plan.hardware.name,
        str(task.path),
        status.how_it_runs,
        seed,
        tuple(results),
        tuple(notes),
        dict(status.versions),
        constants_of(plan.sketch),
        dict(binding.params),
    )


def _settled(results: list[CaseResult]) -> bool:
    """True when further cases would show nothing new; a kernel that hangs would hang again, for
    as long as it may."""
    failures = [result for result in results if result.failed]
    return len(failures) >= _ENOUGH_FAILURES or any(f.failure == "timeout" for f in failures)


def _cases(plan: Plan, binding: Binding, freedom: Freedom, interpreted: bool) -> Cases:
    """Shapes with kinds of input, smallest shapes first and the task's own last."""
    limits = INTERPRETED if interpreted else NATIVE
    found: Cases = []
    kinds = _rotation()
    for case in ragged_cases(plan, binding, freedom.free, limits):
        found += [(case, next(kinds)) for _ in range(1 if interpreted else 2)]
    own = own_case(plan, binding, freedom.free, limits if interpreted else OWN)
    own_kinds = _OWN_KINDS if own.own else ("normal", "structured")
    if refusal(plan.sketch, own.symbols, binding.params):
        return found  # no smaller sizes satisfy the sketch's requires
    return found + [(own, kind) for kind in own_kinds]


def _without_some(binding: Binding, cases: Cases) -> Cases:
    """Every second case, from the last on, goes without the optional tensors."""
    absent = binding.omissible
    if not absent:
        return cases
    return [
        (attrs.evolve(case, absent=absent if (len(cases) - place) % 2 else ()), kind)
        for place, (case, kind) in enumerate(cases)
    ]


def _rotation() -> Iterator[str]:
    while True:
        yield from _KINDS


@attrs.frozen
class _Finding:
    """What one case showed so far; `outputs` are the code's where they are wrong."""

    failure: str = ""
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()
    outputs: Mapping[str, Array] | None = attrs.field(default=None, repr=False)
    log: str = ""
    sketch_right: bool | None = None
    code_as_sketch: bool | None = None


@attrs.define
class _Session:
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

    def build(self, folder: Path, timeout: float) -> tuple[str, str, str] | None:
        """Look at a foreign kernel's text, and compile; (failure, reason, log) where that fails."""
        kernel = self.candidate.kernel
        findings = inspect_kernel(kernel) if kernel.foreign else ()
        if refused := refusal_of(findings):
            return "policy", refused, ""
        self.explanation = explanation(findings)
        self.folder = folder
        try:
            self.artefact = self.candidate.toolchain.compile(kernel, folder, timeout)
        except ToolchainError as error:
            found = self._failed(error)
            return found.failure, found.reason, found.log
        except OSError as error:
            return "infrastructure", f"the build failed: {error}", ""
        return None

    def _failed(self, error: ToolchainError) -> _Finding:
        failure = classify(error, self.candidate.kernel.language)
        log = self._placeless(error.log)
        if failure == "policy":
            log = f"{log}\n{self.explanation}".strip()
        message = headline(self._placeless(str(error)))
        return _Finding(failure, message, log=log[-LOG_CHARACTERS:])

    def _placeless(self, text: str) -> str:
        """Without the folders of this run, which `evidence` could not tell from other words."""
        for folder, name in ((self.folder, "/build"), (Path(tempfile.gettempdir()), "/tmp")):
            for spelling in {str(folder), str(folder.resolve())}:
                text = text.replace(spelling, name)
        return text

    def run(self, case: ShapeCase, kind: str, seed: int, runs: int) -> CaseResult:
        """One case, timed, with the blame settled."""
        started = time.monotonic()
        length = reduction_length(self.candidate.plan, self.binding, case.symbols)
        found = _Finding()
        try:
            inputs = draw(self.binding, self.task, case, kind, seed, self._substitutes(case))
            references = self._references(case, kind, inputs)
        except TaskFailure as error:
            if case.own and not self.task.is_sketch:
                raise
            found = _Finding("skipped", f"the task refuses these sizes: {error}")
        else:
            try:
                found = self._decide(case, inputs.values, references, length, runs)
            except ToolchainError as error:
                found = self._failed(error)
            except OSError as error:
                found = _Finding("infrastructure", f"the run failed: {error}")
            found = self._blame(case, inputs.values, references, length, found)
        return CaseResult(
            case,
            kind,
            seed,
            found.failure,
            found.reason,
            found.comparisons,
            runs,
            length,
            time.monotonic() - started,
            found.log,
            found.sketch_right,
            found.code_as_sketch,
        )

    # ------------------------------------------------------------ inputs and references

    def _references(
        self,
        case: ShapeCase,
        kind: str,
        inputs: Inputs,
    ) -> References:
        """The task's outputs in float64, and the way to ask it in its own precision."""
        arguments, state, substitutes = inputs.arguments, inputs.state, self._substitutes(case)
        references = self.task.reference(arguments, state, substitutes)
        if len(references) != len(self.binding.outputs):
            msg = f"it returns {len(references)} tensors at these sizes"
            raise TaskFailure(msg)
        if self.task.is_sketch:
            return References(references)

        def own() -> list[Array]:
            return self.task.reference(arguments, state, substitutes, double=False)

        return References(references, own, kind in EXTREME_KINDS)

    def _substitutes(self, case: ShapeCase) -> dict[int, int]:
        return {} if case.own else self.freedom.substitutes(case.symbols)

    # ------------------------------------------------------------ the decision

    def _decide(
        self,
        case: ShapeCase,
        values: dict[str, Array],
        references: References,
        length: int,
        runs: int,
    ) -> _Finding:
        """What one case shows, before anybody is blamed."""
        if misfit := self._misfit(case, references.arrays):
            return _Finding("design", misfit, sketch_right=False)
        first: Mapping[str, Array] | None = None
        for number in range(runs):
            outputs, stray = self._launch(case, values, second=number > 0)
            if stray:
                return _Finding("illegal_access", stray)
            missing = [t.name for t in self.binding.outputs if t.name not in outputs]
            if missing:
                return _Finding("wrong_shape", f"no output came back for {', '.join(missing)}")
            comparisons = self._compare(outputs, references, length)
            wrong = next((c for c in comparisons if not c.passed), None)
            if wrong is not None:
                reason = f"{wrong.name}: {wrong.reason}"
                return _Finding(wrong.failure, reason, comparisons, outputs)
            if first is not None and (different := self._unstable(first, outputs)):
                reason = f"{different} differs between two runs"
                return _Finding("nondeterministic", reason, comparisons)
            first = outputs
        return _Finding("", "", comparisons)

    def _unstable(self, first: Mapping[str, Array], second: Mapping[str, Array]) -> str:
        """The name of an output that changes from run to run, where it must not: the order of
        atomic additions is open, so that these are only compared with the reference."""
        return "" if adds_in_any_order(self.candidate.plan) else _difference(first, second)

    def _misfit(self, case: ShapeCase, references: list[Array]) -> str:
        """Where the sketch and the task disagree on an output's shape or type; "" for nowhere."""
        shapes = self.binding.shapes(case.symbols)
        declared = self.binding.description.outputs
        for tensor, reference, task_output in zip(
            self.binding.outputs, references, declared, strict=True
        ):
            if reference.shape != shapes[tensor.name]:
                return (
                    f"{tensor.name} has shape {list(shapes[tensor.name])} in the sketch and "
                    f"{list(reference.shape)} in the task"
                )
            if tensor.dtype is not task_output.dtype and not self._converted():
                return (
                    f"{tensor.name} is {tensor.dtype.value} in the sketch and "
                    f"{task_output.dtype.value} in the task"
                )
        return ""

    def _converted(self) -> bool:
        """True when inputs are rounded to the sketch's types, so that outputs may be others."""
        return any(s.specification.dtype is not s.tensor.dtype for s in self.binding.tensors)

    def _launch(
        self, case: ShapeCase, values: Mapping[str, Array], second: bool
    ) -> tuple[Mapping[str, Array], str]:
        """Run once in fresh, guarded buffers: the outputs, and what was written astray."""
        assert self.artefact is not None
        buffers = Buffers(self.binding, case.symbols, values, second)
        outputs = self.candidate.toolchain.run(
            self.artefact, buffers.tensors, case.symbols, self.binding.params, self.timeout
        )
        return outputs, buffers.stray_writes()

    def _compare(
        self, outputs: Mapping[str, Array], references: References, length: int
    ) -> tuple[Comparison, ...]:
        return tuple(
            references.compare(position, tensor.name, outputs[tensor.name], tensor.dtype, length)
            for position, tensor in enumerate(self.binding.outputs)
        )

    def _blame(
        self,
        case: ShapeCase,
        values: Mapping[str, Array],
        references: References,
        length: int,
        found: _Finding,
    ) -> _Finding:
        """Whether the code or the sketch is wrong: the interpreter decides, once per verdict for
        failures that show no wrong numbers."""
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
        if sum(array.size for array in values.values()) > _INTERPRETABLE:
            return found
        self.blamed = True
        sketch, params = self.candidate.plan.sketch, self.binding.params
        try:
            meant = interpret_apart(sketch, values, case.symbols, params, _BLAME_TIMEOUT)
        except ToolchainError as error:
            if error.stage != "design":
                return found
            reason = f"the sketch cannot be interpreted here: {error}"
            return attrs.evolve(found, failure="design", reason=reason, sketch_right=False)
        if found.outputs is not None:
            alike = self._compare(found.outputs, References(self._exact(meant)), length)
            found = attrs.evolve(found, code_as_sketch=all(c.passed for c in alike))
        for comparison in self._compare(meant, references, length):
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

    def _exact(self, outputs: Mapping[str, Array]) -> list[Array]:
        """Outputs of the interpreter as references: floats in float64."""
        return [
            outputs[tensor.name].astype(np.float64)
            if tensor.dtype.is_float
            else outputs[tensor.name]
            for tensor in self.binding.outputs
        ]


def _difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """The name of an output whose bits differ; "" when there is none."""
    for name, array in first.items():
        if array.tobytes() != second[name].tobytes():
            return name
    return ""
