"""The Designer's messages: a task and the context of a run, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

import attrs

from sketchc.agents.llm.messages import Message
from sketchc.agents.prompts.hardware import hardware
from sketchc.agents.prompts.language import language, reach
from sketchc.agents.prompts.rendering import message
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import is_name
from sketchc.runtime.tasks import signature
from sketchc.runtime.tasks.description import OtherSpec, Scalar, TensorSpec
from sketchc.runtime.tasks.inputs import KINDS
from sketchc.runtime.verify.design import SketchTask

if TYPE_CHECKING:
    from sketchc.agents.designer.design_check import Finding
    from sketchc.agents.state.state import RunContext, RunState

#: So many of the latest failures are told to the model when work comes back.
MOST_HISTORY = 6


def sketch_name(name: str) -> str:
    """The name that a task's sketch has: its file's stem, made a name where it is none."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "task"
    return word if re.match(r"[A-Za-z_]", word) and is_name(word) else f"task_{word}"


def system_message(context: RunContext, examples: bool = True) -> Message:
    """The system message: the same for all tasks of a target, so that a provider caches it."""
    return message(
        "system",
        "designer.jinja",
        block="system",
        language=language(examples),
        examples=examples,
        hardware=hardware(context.target, context.hardware),
        target=context.target,
        chip=context.hardware,
        kinds=list(KINDS.values()),
    )


def user_message(state: RunState, context: RunContext) -> Message:
    """The task, with the verdict on earlier work on it where there is any."""
    task = context.description
    failures = [
        {"attempt": s.attempt, "agent": s.agent, "failure": s.failure, "reason": s.reason}
        for s in state.history
        if s.failure
    ]
    return message(
        "user",
        "designer.jinja",
        block="user",
        name=sketch_name(context.name),
        source=context.task_source,
        inputs=[_value(value) for value in task.inputs],
        state=[f"{spec.name}: {_value(spec)}" for spec in task.state],
        scalars=sorted(task.scalars.items()),
        parts=list(task.constants.items()),
        outputs=[_value(value) for value in task.outputs],
        reach=reach(task, context.target),
        constants=[f"{name} = {value}" for name, value in sorted(context.constants.items())],
        migrated=_migrated(context),
        feedback=None if state.feedback is None else attrs.asdict(state.feedback),
        previous=state.sketch,
        history=failures[-MOST_HISTORY:],
    )


def _migrated(context: RunContext) -> dict[str, Any] | None:
    """The kernel that is migrated, as the template wants it; None where none is."""
    kernel, task = context.migration, context.task
    if kernel is None:
        return None
    called = signature.shown(task.sketch) if isinstance(task, SketchTask) else ""
    language = load_target(kernel.target).language
    told = {"target": kernel.target, "fence": language.fence, "text": kernel.text}
    return {**told, "alone": kernel.alone, "called": called}


def repair_message(
    finding: Finding, sketch: str, earlier: Sequence[tuple[int, str]], context: RunContext
) -> Message:
    """What is wrong with a sketch, with the sketch itself in numbered lines; `earlier` are numbers
    and summaries of what was refused before."""
    return message(
        "user",
        "designer_repair.jinja",
        stage=finding.stage,
        summary=finding.summary,
        evidence=finding.evidence,
        listing=numbered(sketch),
        earlier=[{"number": number, "summary": summary} for number, summary in earlier],
        name=sketch_name(context.name),
        target=context.target,
    )


def numbered(text: str) -> str:
    """The text with line numbers, as diagnostics count them."""
    lines = text.rstrip("\n").split("\n")
    width = len(str(len(lines)))
    return "\n".join(f"{number:{width}} | {line}" for number, line in enumerate(lines, 1))


def _value(value: TensorSpec | Scalar | OtherSpec) -> str:
    match value:
        case TensorSpec(dtype=dtype, shape=shape):
            return f"{dtype.value} tensor of shape [{', '.join(map(str, shape))}]"
        case bool() | int() | float():
            return f"the number {value}"
        case OtherSpec(is_none=True):
            return "None (an optional tensor that is absent, or a constant of the task)"
        case OtherSpec(text=text, type=kind):
            return f"{text} (a {kind}, a constant of the task: the sketch has no input for it)"
        case _:
            assert_never(value)
