"""The built-in Designer: from a task to a sketch by rules, with no language model.

Four stages, each with a type of its own: the traced operations (`graph`), each value as a function
of its index (`loops`, made by `operations`), what is computed together (`phases`), and the text
(`sketch`). The sketch goes through the same gate as one that a model designed: it is checked,
proved, interpreted at small sizes and compared with the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.autosketch.graph import Graph, read_traces
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
    name = sketch_name(task.path.stem)
    traces = read_traces(read_signature(task, name, windows=False))
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
        try:
            text = design(context.task)
        except UsageError as error:
            return Turn(state, "gave_up", str(error), "design")
        context.progress.note("designer", "checks the sketch")
        finding = design_check(text, context)
        left = attrs.evolve(state, sketch=text, kernel=None, feedback=None, verdict=None)
        if finding is None:
            reason = "the sketch checks, fits the target, and means what the task means"
            return Turn(left, "designed", reason)
        details = {"evidence": dict(finding.evidence)}
        return Turn(left, "gave_up", finding.summary, finding.failure, details)
