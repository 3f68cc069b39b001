"""From the state of a run to what the runtime verifies: plan, kernel, toolchain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.state.state import KernelText, RunContext, RunState
from sketchc.base.diagnostics import DiagnosticError, Source, has_errors, refuse
from sketchc.ir.evaluate import Value
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.planned import plan_for
from sketchc.runtime.store.origins import named
from sketchc.runtime.tasks import signature
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.design import SketchTask
from sketchc.runtime.verify.verify import Candidate

if TYPE_CHECKING:
    from sketchc.lowering.plan import Plan


def plan_of(text: str, context: RunContext, tiles: Mapping[str, Value] | None = None) -> Plan:
    """The plan of a sketch's text for the run's target, with these `tiles` where the sketch leaves
    them open; what stays open is chosen for the task's own sizes. Raises `DiagnosticError`."""
    tree, found = parse(Source(f"{context.name}.sketch", text))
    if tree is None or has_errors(found):
        raise DiagnosticError(found)
    meant = named(tree.sketches, context.picked) if context.picked else list(tree.entries)
    if len(meant) != 1:
        refuse(f"the sketch file holds {len(meant)} sketches; a run takes one")
    constants = {**context.constants, **(tiles or {})}
    # A sketch or a kernel that is its own task has sizes that were chosen for tests.
    task = context.description if isinstance(context.task, TaskClient) else None
    return plan_for(meant[0], context.target, context.hardware, constants, task).plan


def candidate_of(state: RunState, context: RunContext) -> Candidate:
    """Plan, kernel and toolchain of a run for the Verifier. Raises `UsageError` for a given sketch
    that has errors."""
    assert state.kernel is not None
    try:
        plan = plan_of(state.sketch, context) if state.sketch else signature_plan(context)
    except DiagnosticError as error:
        refuse(f"the sketch does not hold: {error}", error)
    kernel = kernel_of(state.kernel, plan)
    candidate = Candidate(plan, kernel, toolchain(context.target))
    if state.kernel.origin != "builtin":
        return candidate

    def lowered(tiles: Mapping[str, Value]) -> tuple[Plan, Kernel]:
        smaller = plan_of(state.sketch, context, tiles)
        return smaller, load_target(smaller.target).emit(smaller)

    return attrs.evolve(candidate, relower=lowered)


def kernel_of(text: KernelText, plan: Plan) -> Kernel:
    """The kernel that a state's text is, for `plan`. Raises `UsageError` for a given one of whose
    functions it is not clear which one is the kernel's."""
    if text.origin == "builtin":
        return load_target(plan.target).emit(plan)
    entry = text.entry or plan.sketch.name
    if text.origin == "given":
        from sketchc.runtime.verify.kernel_file import entry_point

        entry = entry_point(text.source, text.language, plan.sketch.name, wanted=text.entry or None)
    return foreign_kernel(plan, entry, text.language, text.source)


def foreign_kernel(plan: Plan, entry: str, language: str, source: str) -> Kernel:
    """Code that the built-in Coder did not write, for a plan."""
    named = (plan.target, plan.hardware.name, plan.sketch.name)
    return Kernel(*named, entry, language, source, plan.sketch, foreign=True)


def signature_plan(context: RunContext) -> Plan:
    """A plan without phases: what is known of a kernel that was written without a sketch."""
    task = context.task
    if isinstance(task, TaskClient):
        parameters = signature.signature_of(task, context.name)
    else:
        assert isinstance(task, SketchTask)
        parameters = attrs.evolve(task.sketch, phases=())
    return signature.signature_plan(parameters, context.target, context.hardware)
