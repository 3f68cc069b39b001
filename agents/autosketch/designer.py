"""The built-in Designer: from a task to a sketch by rules, with no language model.

Four stages, each with a type of its own: the traced operations (`graph`), each value as a function
of its index (`loops`, made by `operations`), what is computed together (`phases`), and the text
(`sketch`). The sketch goes through the same gate as one that a model designed: it is checked,
proved, interpreted at small sizes and compared with the task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.autosketch.graph import Graph, Traces, params_of, read_traces
from sketchc.agents.autosketch.loops import Loops
from sketchc.agents.autosketch.operations import build_loops
from sketchc.agents.autosketch.phase import Phases
from sketchc.agents.autosketch.phases import build_phases
from sketchc.agents.autosketch.program import write_program
from sketchc.agents.autosketch.sketch import write_sketch
from sketchc.agents.designer.design_check import design_check
from sketchc.agents.designer.messages import sketch_name
from sketchc.agents.state.state import RunState, Turn
from sketchc.base.diagnostics import UsageError
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.signature import read_signature

if TYPE_CHECKING:
    from sketchc.agents.state.state import RunContext


def design(task: TaskClient, stage: str = "sketch") -> str:
    """The sketch of a task, or an earlier stage as text.

    Raises `TaskFailure` where the task cannot be traced, and `UsageError` that names the operations
    for which there is no form.
    """
    return next(designs(task, stage))


def designs(task: TaskClient, stage: str = "sketch") -> Iterator[str]:
    """One that takes forward's numbers as they come, where there is one, and then one that holds
    the task's own. Raises as `design` does."""
    signature = read_signature(task, sketch_name(task.path.stem), windows=False)
    if params_of(signature):
        with suppress(UsageError):
            traces = read_traces(signature, numbers=True)
            if traces.params:
                yield _designed(traces, stage)
    yield _designed(read_traces(signature), stage)


def followed_numbers(task: TaskClient) -> Collection[int]:
    """Those of forward's numbers, by position, that the sketch of a task takes as they come."""
    with suppress(UsageError):
        traces = read_traces(read_signature(task, "followed", windows=False), numbers=True)
        _designed(traces, "sketch")
        return traces.params.keys()
    return ()


def _designed(traces: Traces, stage: str) -> str:
    name = traces.signature.sketch.name
    graph = traces.graph()
    if stage == "graph":
        return _text(graph)
    loops = build_loops(graph)
    if stage == "loops":
        return _text(loops)
    phases = build_phases(loops)
    if unnamed := phases.unnamed():
        phases = build_phases(build_loops(traces.graph(unnamed)))
    if stage == "phases":
        return _text(phases)
    return write_program(phases, name) if stage == "program" else write_sketch(phases, name)


def _text(stage: Graph | Loops | Phases) -> str:
    lines: Iterator[str] = stage.lines()
    return "\n".join(lines) + "\n"


class BuiltinDesigner:
    """The agent "autosketch": "designed" or "gave_up"."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """Design, and put the sketch through the gate."""
        context.progress.note("designer", "traces the task")
        turn: Turn | None = None
        try:
            for text in designs(context.task):
                turn = self._tried(text, state, context)
                if turn.outcome == "designed":
                    break
        except UsageError as error:
            return Turn(state, "gave_up", str(error), "design")
        assert turn is not None
        return turn

    def _tried(self, text: str, state: RunState, context: RunContext) -> Turn:
        context.progress.note("designer", "checks the sketch")
        finding = design_check(text, context)
        left = attrs.evolve(state, sketch=text, kernel=None, feedback=None, verdict=None)
        if finding is None:
            reason = "the sketch checks, fits the target, and means what the task means"
            return Turn(left, "designed", reason)
        details = {"evidence": dict(finding.evidence)}
        return Turn(left, "gave_up", finding.summary, finding.failure, details)
