"""The Coder: from a sketch (or, without one, from the task) to a kernel, and from evidence to a
repair. Two make kernels under one contract: the built-in Coder of the target (deterministic, needs
no model) and a model (`code_writer`). The built-in one cannot mend: it writes the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from sketchc.agents.coder.code_writer import KernelWriter, NothingWrongError, UnusableReplyError
from sketchc.agents.coder.messages import Assignment, for_plan
from sketchc.agents.designer.design_check import diagnostics_json
from sketchc.agents.prompts.language import reach
from sketchc.agents.state.candidates import plan_of, signature_plan
from sketchc.agents.state.state import Feedback, KernelText, RunContext, RunState, Turn
from sketchc.base.diagnostics import DiagnosticError, Severity, Source, refuse
from sketchc.docspec.loader import load
from sketchc.lowering.registry import load_target

if TYPE_CHECKING:
    from sketchc.docspec.schema import DocSpec
    from sketchc.lowering.kernel import Kernel

#: Diagnostics that say "too much memory": what the Designer must mend is the tiling.
_RESOURCE_CODES = ("SK0701", "SK0702")
#: How many diagnostics the reason of a refusal names.
_MOST_TOLD = 3


class Coder:
    """See the module; outcomes "coded", "refused" (the sketch does not lower: the Designer must
    act) and "gave_up" (the model gave no usable reply)."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """Write `state.kernel`, or mend it where feedback says what is wrong with it; one that was
        given is verified before anybody touches it.

        Raises `LlmError`; `UsageError` for a run without a sketch and without a model.
        """
        if state.feedback is None and state.kernel is not None and state.kernel.origin == "given":
            return Turn(state, "coded", "the kernel was given")
        mending = state.feedback is not None and state.kernel is not None
        by_model = context.coder == "llm" or not state.sketch
        if by_model and context.model is None:
            refuse(
                "without a sketch only a model can write the kernel: add --coder llm or --sketch"
            )
        try:
            assignment = _assignment(state, context)
            if not by_model:
                assert assignment.builtin is not None
                reason = "lowered by the built-in Coder"
                return _coded(state, assignment.builtin, "builtin", reason)
            return _by_model(state, context, assignment, mending)
        except DiagnosticError as error:
            return _refused(state, context, error)


def _by_model(state: RunState, context: RunContext, assignment: Assignment, mending: bool) -> Turn:
    assert context.model is not None
    documents = documents_of(context.target)
    tokens = context.configuration.docs_tokens
    writer = KernelWriter(assignment, context.model, documents, tokens)
    try:
        if not mending:
            context.progress.note("coder", "a model writes the kernel")
            return _coded(state, writer.write(), "llm", "written by a model")
        assert state.feedback is not None
        assert state.kernel is not None
        context.progress.note("coder", f"a model mends the kernel: {state.feedback.failure}")
        dispute = state.verdict is not None and not state.disputed
        source = state.kernel.source
        kernel = writer.repair(source, state.feedback, _earlier(state), dispute)
        return _coded(state, kernel, "llm", f"mended by a model after {state.feedback.failure}")
    except NothingWrongError as error:
        reason = f"a model says that nothing is wrong here: {error} (the evidence is taken again)"
        return Turn(attrs.evolve(state, feedback=None, disputed="asked"), "coded", reason)
    except UnusableReplyError as error:
        return _gave_up(state, str(error), mending)


def documents_of(target: str) -> DocSpec | None:
    """The documents of a target; None where it has none. Raises `UsageError` for broken ones."""
    return load(target) if load_target(target).documents else None


def _assignment(state: RunState, context: RunContext) -> Assignment:
    """The assignment of a run. Raises `DiagnosticError` for a sketch that does not lower."""
    # A kernel that somebody gave may have a name of its own.
    entry = "" if state.kernel is None else state.kernel.entry
    sizes = reach(context.description, context.target)
    if state.sketch:
        planned = for_plan(plan_of(state.sketch, context))
        return attrs.evolve(planned, entry=entry, reach=sizes)
    signature = signature_plan(context)
    return Assignment(
        context.target,
        signature.hardware.name,
        signature.sketch,
        task_source=context.task_source,
        parts=tuple(context.description.constants.items()),
        entry=entry,
        reach=sizes,
    )


def _coded(state: RunState, kernel: Kernel, origin: str, reason: str) -> Turn:
    text = KernelText(kernel.source, kernel.entry, kernel.language, origin)
    left = attrs.evolve(
        state, kernel=text, feedback=None, verdict=None, measurement=None, disputed=""
    )
    details = {"origin": origin, "lines": len(kernel.source.splitlines())}
    return Turn(left, "coded", reason, details=details)


def _gave_up(state: RunState, reason: str, mending: bool) -> Turn:
    """The turn after no usable reply. A kernel that was to be mended still is: the failure and the
    evidence are those that were to be mended."""
    if not mending:
        return Turn(attrs.evolve(state, kernel=None), "gave_up", reason)
    assert state.feedback is not None
    details = {"evidence": dict(state.feedback.evidence)}
    return Turn(state, "gave_up", reason, state.feedback.failure, details)


def _refused(state: RunState, context: RunContext, error: DiagnosticError) -> Turn:
    """The turn after a sketch that does not lower, with what the Designer must know."""
    found = diagnostics_json(Source(f"{context.name}.sketch", state.sketch), error.diagnostics)
    errors = [d for d in error.diagnostics if d.severity is Severity.ERROR]
    failure = "resource" if any(d.code in _RESOURCE_CODES for d in errors) else "design"
    told = "; ".join(f"{d.code}: {d.message}" for d in errors[:_MOST_TOLD])
    reason = f"the sketch does not lower for {context.target}: {told}"
    left = attrs.evolve(state, kernel=None, feedback=Feedback(failure, reason, found))
    return Turn(left, "refused", reason, failure, {"evidence": found})


def _earlier(state: RunState) -> list[str]:
    """One line on each failed candidate since the sketch was last written, before the one at
    hand: the class of failure, for reasons hold numbers that differ between machines."""
    lines: list[str] = []
    for step in state.history:
        if step.agent == "designer":
            lines = []
        elif step.agent == "verifier" and step.failure:
            lines.append(f"attempt {step.attempt}: {step.failure}")
    return lines[:-1]
