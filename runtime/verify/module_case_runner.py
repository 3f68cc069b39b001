"""Runs the cases of a `ModelNew`: one process, the task's own inputs, addresses used again.

A model's parameters are those drawn for the case, by name, where the names and shapes of its state
agree with the task's; else both models are built after the same seed, and a note says so. The first
case is run again at fresh addresses and must give the same bits. One more case has inputs that are
not contiguous: the model must be right on them, or raise.

No program can be started while forward has the inputs of a case. A model that compiles there gets a
new process, which has not seen these inputs, and a run on other inputs before each case of new
shapes (a rehearsal).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.runtime.cases.drawing import Inputs, draw
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import OtherSpec, Scalar, TensorSpec
from sketchc.runtime.tasks.inputs import NON_CONTIGUOUS
from sketchc.runtime.tasks.layout import is_text
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.torch_module.toolchain import (
    BUILDS,
    COMPILER_ERROR,
    Call,
    TorchModules,
)
from sketchc.runtime.verify.case_runner import CaseRunner, Finding, Trial
from sketchc.runtime.verify.references import References
from sketchc.runtime.verify.verdict import CaseResult

if TYPE_CHECKING:
    from sketchc.runtime.verify.running import Cases

#: A longer text of an init input may have been cut.
_LONGEST_LITERAL = 199
#: From the seed of a case to that of its rehearsal: further than any two cases are apart.
_REHEARSAL = 1 << 20


@attrs.define
class ModuleCaseRunner(CaseRunner):
    """Runs the cases of one candidate that is a `ModelNew`; see the module."""

    strided: bool = False
    turn: int = -1
    judge_writes: bool = False
    #: The model's own parameters are used, since its state is not the task's.
    seeded: bool = False
    #: Tensors of the task that this model has no place for: the task keeps its own values of them.
    left: frozenset[str] = frozenset()
    #: The seed of the case that runs.
    seed: int = 0
    #: Whether forward starts compilers, and for which inputs it has been rehearsed in this process.
    builds: bool = False
    rehearsed: set[str] = attrs.field(factory=set)

    @property
    def modules(self) -> TorchModules:
        """The candidate's toolchain, which runs a `ModelNew`."""
        toolchain = self.candidate.toolchain
        assert isinstance(toolchain, TorchModules)
        return toolchain

    def build(self, folder: Path, timeout: float) -> Finding | None:
        """Check the kernel's text, then import it and build a first model; returns what is wrong,
        if one fails. Raises `UsageError` for an input that cannot be passed on."""
        if (refused := super().build(folder, timeout)) is not None:
            return refused
        kernel, init = self.candidate.kernel, self._init({})
        for position, value in enumerate(self.binding.description.inputs):
            if isinstance(value, OtherSpec) and not is_text(value.text):
                where = self.binding.description.name_of(position)
                refuse(f"{where} of the task is a {value.type}, which cannot be passed on")
        try:
            inputs, layout = self._own_inputs(), self.binding.description.layout
            self.modules.build_launches(kernel, init, inputs, layout, timeout)
            self.modules.load(kernel, init, timeout)
            if not self.modules.shuts:
                self.notes.append("nothing on this machine keeps forward from starting programs")
        except ToolchainError as error:
            return self._failed(error)
        except OSError as error:
            return Finding("infrastructure", f"the worker cannot be started: {error}")
        self._compare_states()
        self.notes += [
            f"{name} is tuned: its {count} configurations are not timed, each case takes the next"
            for name, count in self.modules.tuned.items()
        ]
        return None

    def _own_inputs(self) -> list[dict[str, Any]]:
        """Forward's inputs at the task's own sizes: shapes and types, or values."""
        return [
            {"shape": list(value.shape), "dtype": value.dtype.numpy_name}
            if isinstance(value, TensorSpec)
            else {"value": value}
            if isinstance(value, bool | int | float)
            else {"text": value.text}
            for value in self.binding.description.inputs
        ]

    def _arguments(self, inputs: Inputs) -> list[Any]:
        """Forward's inputs by position: the task's own, where the sketch has nothing for them."""
        found: list[Any] = list(inputs.arguments)
        for position in self.binding.nothing:
            found[position] = self.binding.description.inputs[position]
        return found

    def _compare_states(self) -> None:
        """Set `seeded` and `left`: whether the model takes the parameters drawn for the task's."""
        given, description = self.modules.state, self.binding.description
        missing = [s.name for s in description.state if given.get(s.name) != s.shape]
        # For example a mask that is an attribute of the task's model, and no parameter.
        self.left = description.unregistered & set(missing)
        self.seeded = len(missing) > len(self.left)
        if missing and not self.seeded:
            self.notes.append(
                f"ModelNew has no {', '.join(missing)} as the task's model has: the task keeps the "
                "values that it gives them"
            )
        elif missing:
            self.notes.append(
                f"ModelNew has no {', '.join(missing)} as the task's model has: both are built "
                "after the same seed, and keep the parameters that this gives them"
            )

    def _init(self, substitutes: Mapping[int, Scalar]) -> list[str]:
        """The init inputs as Python text. Raises `UsageError` for one that has none."""
        texts = []
        for position, value in enumerate(self.binding.description.init_inputs):
            if position in substitutes or not isinstance(value, OtherSpec | TensorSpec):
                texts.append(repr(substitutes.get(position, value)))
            elif isinstance(value, OtherSpec) and len(value.text) <= _LONGEST_LITERAL:
                texts.append(value.text)
            else:
                what = value.type if isinstance(value, OtherSpec) else "tensor"
                where = f"init input {position + 1} of the task"
                refuse(f"{where} is a {what}, which cannot be passed on")
        return texts

    def more_cases(self, cases: Cases) -> Cases:
        """The last case that is not drawn, again with inputs that are not contiguous."""
        known = [case for case, _ in cases if not case.drawn] or [case for case, _ in cases]
        return [(case, NON_CONTIGUOUS) for case in known[-1:]]

    def run(self, case: ShapeCase, kind: str, seed: int, runs: int) -> CaseResult:
        """Run one case; a model may refuse inputs that are not contiguous."""
        self.strided = kind == NON_CONTIGUOUS
        self.turn += 1
        self.seed = seed
        # Elsewhere a result may happen to be what the memory held before.
        self.judge_writes = kind == "task" or (self.strided and case.own)
        drawn = "normal" if self.strided else kind
        found = super().run(case, drawn, seed, runs)
        if not self.strided:
            return found
        reason = found.reason
        if found.failure in ("launch", "api_misuse", "compile"):
            refused = f"it refuses inputs that are not contiguous: {found.reason}"
            return attrs.evolve(found, kind=kind, failure="skipped", reason=refused)
        if found.failed:
            reason = f"{found.reason}, on inputs that are not contiguous"
        return attrs.evolve(found, kind=kind, reason=reason)

    def _references(self, case: ShapeCase, kind: str, inputs: Inputs) -> References:
        return super()._references(case, kind, attrs.evolve(inputs, state=self._given(inputs)))

    def _given(self, inputs: Inputs) -> dict[str, Array]:
        """The drawn parameters that both models take."""
        state = {} if self.seeded else inputs.state
        return {name: array for name, array in state.items() if name not in self.left}

    def _launch(
        self, case: ShapeCase, inputs: Inputs, number: int
    ) -> tuple[Mapping[str, Array], str]:
        if not self.modules.alive:  # a case before this one has ended it
            self._load()
        call = self._call(case, inputs, fresh=number > 0)
        try:
            self._rehearse(case, call)
            return self.modules.call(call, self.timeout), ""
        except ToolchainError as error:
            if BUILDS not in error.kinds or self.builds:
                raise
        self.builds = True
        self._load()  # what has seen these inputs must not start programs any more
        self._rehearse(case, call)
        return self.modules.call(call, self.timeout), ""

    def _load(self) -> None:
        """Start another process that loads the file."""
        self.rehearsed.clear()
        self.modules.load(self.candidate.kernel, self._init({}), self.timeout)

    def _call(self, case: ShapeCase, inputs: Inputs, *, fresh: bool) -> Call:
        return Call(
            self._init(self._substitutes(case)),
            self._arguments(inputs),
            self._given(inputs),
            [tensor.name for tensor in self.binding.outputs],
            fresh=fresh,
            strided=self.strided,
            turn=self.turn,
            judge_writes=self.judge_writes,
            layout=self.binding.description.layout,
        )

    def _rehearse(self, case: ShapeCase, call: Call) -> None:
        """Run forward, if it starts compilers, on other inputs of the shapes of `call` first."""
        shapes = [getattr(value, "shape", value) for value in call.inputs]
        like = repr((call.init, shapes, call.strided))
        if not self.builds or like in self.rehearsed:
            return
        seed, substitutes = self.seed + _REHEARSAL, self._substitutes(case)
        others = draw(self.binding, self.task, case, "normal", seed, substitutes)
        rehearsal = attrs.evolve(self._call(case, others, fresh=True), judge_writes=False)
        self.modules.rehearse(rehearsal, self.timeout)
        self.rehearsed.add(like)

    def _decide(self, trial: Trial) -> Finding:
        """The finding of one case; if numbers are wrong, it is run again at fresh addresses."""
        found = super()._decide(trial)
        if found.failure != "numerical" or self.strided or not self.modules.alive:
            return found
        outputs, _ = self._launch(trial.case, trial.inputs, number=1)
        if all(one.passed for one in self._compare(outputs, trial.references, trial.lengths)):
            reason = (
                f"{found.reason}; at fresh addresses it is right, so that it keeps what it has "
                "computed from other contents of the same tensors"
            )
            return attrs.evolve(found, failure="policy", reason=reason)
        return found

    def _language(self, error: ToolchainError) -> str:
        """The language of the code that failed: "c++" where a compiler of C++ has complained."""
        return "c++" if COMPILER_ERROR.search(str(error)) else "python"

    def close(self) -> None:
        """End the model's process, too."""
        super().close()
        self.modules.close()
