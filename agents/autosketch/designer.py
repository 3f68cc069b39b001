"""The built-in Designer: from a task to a sketch by rules, with no language model.

Four stages, each with a type of its own: the traced operations (`graph`), each value as a function
of its index (`loops`, made by `operations`), what is computed together (`phases`), and the text
(`sketch`). The sketch goes through the same gate as one that a model designed: it is checked,
proved, interpreted at small sizes and compared with the task.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.autosketch.cuts import unknown
from sketchc.agents.autosketch.graph import (
    DiffersError,
    Graph,
    Traces,
    params_of,
    read_traces,
)
from sketchc.agents.autosketch.loops import Loops
from sketchc.agents.autosketch.operations import NoFormError, build_loops
from sketchc.agents.autosketch.phase import Phases
from sketchc.agents.autosketch.phases import build_phases
from sketchc.agents.autosketch.program import write_program
from sketchc.agents.autosketch.sketch import write_sketch, written_phases
from sketchc.agents.autosketch.templates.doubles import Doubles
from sketchc.agents.autosketch.templates.kept import Kept
from sketchc.agents.designer.design_check import design_check
from sketchc.agents.designer.messages import sketch_name
from sketchc.agents.state.state import RunState, Turn
from sketchc.base.diagnostics import InternalError, UsageError
from sketchc.lowering.registry import load_target
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.signature import Signature, read_signature

if TYPE_CHECKING:
    from sketchc.agents.state.state import RunContext


@attrs.frozen
class Design:
    """A sketch, or an earlier stage of it, as text. `held`: the reason why all sizes, or some, are
    fixed at the task's own ("" where none is)."""

    text: str
    held: str = ""


#: The signature as these sketches declare it.
_signature = partial(read_signature, windows=False, copied=True)

#: With so many symbols, each single one is fixed at the task's own size before all are.
_FEW = (2, 3)


def design(
    task: TaskClient, stage: str = "sketch", *, doubles: bool = True, planes: bool = False
) -> str:
    """The sketch of a task, or an earlier stage as text; `doubles`: for a target that has f64;
    `planes`: for one on which lanes along all axes of an image cost no more than along one.

    Raises `TaskFailure` where the task cannot be traced, and `UsageError` that names the operations
    for which there is no form.
    """
    return next(designs(task, stage, doubles=doubles, planes=planes)).text


def designs(task: TaskClient, stage: str, *, doubles: bool, planes: bool) -> Iterator[Design]:
    """Designs, the most general first: for all sizes that may vary (with `stage` "program", as a
    program where that is shorter, and then as one sketch); then, where the task runs other
    operations at other sizes, with some symbols fixed; then for the task's own sizes. Raises what
    `design` raises where there is none."""
    name = sketch_name(task.path.stem)
    first: UsageError | None = None
    symbols: int | None = None
    try:
        signature = _signature(task, name)
        symbols = len(signature.groups)
        yield from map(Design, _texts(signature, stage, doubles, planes))
        held = "the sketch for all sizes does not pass"
    except NoFormError:
        raise
    except UsageError as error:
        first, held = error, str(error)
    for varies in _fewer(symbols, first):
        with suppress(UsageError):
            signature = _signature(task, name, varies=varies)
            for text in _texts(signature, stage, doubles, planes):
                first = None
                yield Design(text, held)
    if first is not None:
        raise _with_unknown(task, first)


def _with_unknown(task: TaskClient, error: UsageError) -> UsageError:
    """The error that ends the design of a task, with what there is no form for besides."""
    with suppress(UsageError):
        more = [name for name in unknown(task) if name not in str(error)]
        if more:
            return UsageError(f"{error}; the built-in Designer has no form for: {', '.join(more)}")
    return error


def _fewer(symbols: int | None, error: UsageError | None) -> Iterator[Callable[[int], bool]]:
    """Predicates on symbol numbers, true for those that vary, where not all can: all but those that
    change what the task runs, or all but one where they are not known; then none."""
    if isinstance(error, DiffersError):
        if error.symbols:
            yield lambda number: number not in error.symbols
        elif symbols in _FEW:
            yield from (partial(operator.ne, number) for number in range(symbols))
    if symbols != 0:
        yield lambda _: False


def _texts(signature: Signature, stage: str, doubles: bool, planes: bool) -> Iterator[str]:
    """The text of the stage with forward's numbers as params, where that is possible, and then with
    the task's own numbers as constants."""
    if params_of(signature):
        with suppress(UsageError):
            traces = read_traces(signature, numbers=True)
            if traces.params:
                yield from _designed(traces, stage, doubles, planes)
    yield from _designed(read_traces(signature), stage, doubles, planes)


def followed_numbers(task: TaskClient) -> Collection[int]:
    """The positions of those of forward's numbers that are params of the sketch of a task."""
    with suppress(UsageError):
        traces = read_traces(_signature(task, "followed"), numbers=True)
        next(_designed(traces, "sketch", doubles=True, planes=False))
        return traces.params.keys()
    return ()


def _designed(traces: Traces, stage: str, doubles: bool, planes: bool) -> Iterator[str]:
    """The text of the stage. That of "program" is followed by the single sketch, which is the only
    one where a program would not be shorter."""
    name = traces.signature.sketch.name
    graph = traces.graph()
    if stage == "graph":
        yield _text(graph)
        return
    loops = build_loops(graph)
    if stage == "loops":
        yield _text(loops)
        return
    symbols, groups = traces.signature.sketch.symbols, traces.signature.groups
    named = [(symbol.name, group) for symbol, group in zip(symbols, groups, strict=True)]
    sizes = {name: group.size for name, group in named}
    phases = build_phases(loops, sizes, planes)
    if unnamed := phases.unnamed():
        phases = build_phases(build_loops(traces.graph(unnamed)), sizes, planes)
    if stage == "phases":
        yield _text(phases)
        return
    most = {name: group.most for name, group in named}
    written = written_phases(phases, Doubles(doubles, most), Kept(planes, most), sizes)
    sketch = write_sketch(phases, name, written)
    program = write_program(phases, name, written, sketch) if stage == "program" else None
    if program is not None:
        yield program
    yield sketch


def _text(stage: Graph | Loops | Phases) -> str:
    lines: Iterator[str] = stage.lines()
    return "\n".join(lines) + "\n"


def has_f64(target: str) -> bool:
    """Whether sketches for a target may use f64."""
    return "f64" in load_target(target).capabilities.dtypes


def has_planes(target: str) -> bool:
    """Whether a target's kernels hold index tiles in registers of threads, which find the row and
    the column of a lane once, and load from any place."""
    capabilities = load_target(target).capabilities
    return capabilities.loops is None and bool(capabilities.launch_options)


class BuiltinDesigner:
    """The agent "autosketch"; its outcome is "designed" or "gave_up"."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """Put designs of the task through the gate until one passes."""
        context.progress.note("designer", "traces the task")
        turn: Turn | None = None
        task = context.task
        if not isinstance(task, TaskClient):
            raise InternalError("the built-in Designer needs a task that can be traced")
        try:
            doubles, planes = has_f64(context.target), has_planes(context.target)
            for found in designs(task, "program", doubles=doubles, planes=planes):
                turn = self._tried(found, state, context)
                if turn.outcome == "designed":
                    break
        except UsageError as error:
            return Turn(state, "gave_up", str(error), "design")
        assert turn is not None
        return turn

    def _tried(self, found: Design, state: RunState, context: RunContext) -> Turn:
        context.progress.note("designer", "checks the sketch")
        finding = design_check(found.text, context)
        left = attrs.evolve(state, sketch=found.text, kernel=None, feedback=None, verdict=None)
        if finding is None:
            reason = "the sketch checks, fits the target, and means what the task means"
            if found.held:
                reason += f", with sizes held at the task's own: {found.held}"
            return Turn(left, "designed", reason)
        details = {"evidence": dict(finding.evidence)}
        return Turn(left, "gave_up", finding.summary, finding.failure, details)
