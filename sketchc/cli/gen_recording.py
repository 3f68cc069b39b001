"""What `sketchc gen` keeps in the store: the run, its ledger, and each verdict as it is reached.

The run stands there from its first step on, so that one that is killed has left everything behind
that was found until then; going on with it adds to the same row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.base.json_form import to_plain
from sketchc.runtime.store.writing import KernelRow, RunRow, RunStep, digest_of

if TYPE_CHECKING:
    from sketchc.agents.run.run import RunFolder, RunOptions
    from sketchc.agents.state.run_context import Session
    from sketchc.agents.state.state import RunState
    from sketchc.runtime.store.recording import Recorder


#: The agents that replace the kernel, or the sketch that it is made from.
_MAKERS = ("designer", "coder")


class RunRecorder:
    """Records one run, in `folder` and with options that are on disk."""

    def __init__(self, recorder: Recorder, folder: RunFolder, options: RunOptions) -> None:
        self.recorder = recorder
        self.folder = folder
        self.options = options
        self.session: Session | None = None

    def step(self, state: RunState, session: Session) -> None:
        """Keep the run as it is after a step; of the Verifier's, the verdict and the times."""
        self.session = session
        self._run(state, "")
        if state.history[-1].agent == "verifier":
            self._found(state, session)

    def end(self, state: RunState, stopped: str) -> None:
        """Keep how the run ended, with the trace that its folder got. A run that went on from its
        end, or was killed between its last step and here, has its last verdict kept again."""
        self._run(state, stopped)
        if self.session is not None and state.verdict is not None:
            self._found(state, self.session)

    def _found(self, state: RunState, session: Session) -> None:
        """The verdict that stands in the state, once per step of the Verifier; nothing where the
        kernel there may be a later one."""
        steps = [step.number for step in state.history if step.agent == "verifier"]
        verdict, measured = state.verdict, state.measurement
        if verdict is None or not steps or state.kernel is None:
            return
        if any(step.agent in _MAKERS for step in state.history if step.number > steps[-1]):
            return
        place = RunStep(self._identity(), steps[-1])
        self.recorder.plain_verdict(lambda: _kernel(state, session), lambda: verdict, place)
        if measured is not None and "not_measured" not in measured:
            self.recorder.plain_measurement(
                lambda: _kernel(state, session), lambda: measured, place
            )

    def _run(self, state: RunState, stopped: str) -> None:
        self.recorder.run(lambda: self._row(state, stopped), lambda: self._ledger()[1:])

    def _row(self, state: RunState, stopped: str) -> RunRow:
        asked = self.options
        return RunRow(
            self._identity(),
            asked.target,
            asked.hardware,
            asked.workflow,
            asked.coder,
            asked.seed,
            "stopped" if stopped else state.outcome,
            stopped or state.reason,
            state.attempt,
            str(self.folder.path.resolve()),
            self._ledger()[0],
            self._trace(state),
        )

    def _identity(self) -> str:
        """The same for all parts of a run, and no other run's: run.json is written once."""
        path = self.folder.inner / "run.json"
        made = str(path.stat().st_mtime_ns)
        return digest_of(str(self.folder.path.resolve()), made, path.read_text("utf-8"))[:32]

    def _ledger(self) -> list[dict[str, Any]]:
        lines = self.folder.ledger_path.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines if line]

    def _trace(self, state: RunState) -> Mapping[str, Any]:
        """The trace of the folder where it is of this state, else the steps."""
        steps = to_plain([attrs.asdict(step) for step in state.history])
        try:
            trace = json.loads((self.folder.path / "trace.json").read_text("utf-8"))
            same = trace["steps"] == steps
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        return trace if same else {"steps": steps}


def _kernel(state: RunState, session: Session) -> KernelRow:
    """The row of the kernel that the Verifier had before it."""
    from sketchc.agents.state.candidates import candidate_of
    from sketchc.runtime.store.recording import kernel_row, sketch_text

    assert state.kernel is not None
    candidate = candidate_of(state, session)
    text = state.sketch
    sketch = sketch_text(text, candidate.plan.sketch.name) if text else None
    return kernel_row(candidate, sketch, state.kernel.origin)
