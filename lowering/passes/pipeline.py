"""The passes, in order, and `build_plan`, which runs them: from a checked sketch to a plan."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import attrs

from sketchc.base.diagnostics import Diagnostic, DiagnosticError, UsageError, has_errors
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import Capabilities, Hardware, Plan
from sketchc.lowering.target import Target
from sketchc.parsing import syntax


class Pass(Protocol):
    """One file, one frozen class; valid before, valid after."""

    def run(self, plan: Plan) -> Plan:
        """A new plan. Raises `DiagnosticError` for what the user must change."""


#: The passes over a plan, in order: one line each.
PASSES: tuple[str, ...] = (
    "sketchc.lowering.passes.check_capabilities:CheckCapabilities",
    "sketchc.lowering.passes.map_grid:MapGrid",
    "sketchc.lowering.passes.place_tiles:PlaceTiles",
    "sketchc.lowering.passes.check_scratch:CheckScratch",
    "sketchc.lowering.passes.choose_fills:ChooseFills",
    "sketchc.lowering.passes.estimate_cost:EstimateCost",
    "sketchc.lowering.passes.settle_tiles:SettleTiles",
    "sketchc.lowering.passes.answer_hints:AnswerHints",
)


def passes(target: Target) -> Iterator[Pass]:
    """The passes, in order. A pass that needs what only the target can say has a field for it, of
    the name that it has in the target's record."""
    for path in PASSES:
        module, _, name = path.partition(":")
        made = getattr(importlib.import_module(module), name)
        yield made(**{field.name: getattr(target, field.name) for field in attrs.fields(made)})


@attrs.frozen
class PlannedSketch:
    """A plan with the proofs of the sketch it stands for, those bounds that its scratch sets among
    them, and the warnings met on the way."""

    plan: Plan
    proofs: tuple[ir.Proof, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def build_plan(
    tree: syntax.Sketch,
    target: str,
    hardware: str | None = None,
    constants: Mapping[str, int | float | bool] | None = None,
    allow_unproved: bool = False,
) -> PlannedSketch:
    """Check `tree` for `target` and map it onto the chip.

    `hardware` defaults to the target's own; `constants` binds constexprs and params' defaults.
    Raises `UsageError` for an unknown target or chip, `DiagnosticError` with every finding when the
    sketch does not check, a proof fails, or the target cannot do it.
    """
    from sketchc.lowering.hardware import chips_like, load_hardware
    from sketchc.lowering.passes.answer_hints import ignored
    from sketchc.lowering.registry import load_target

    record = load_target(target)
    capabilities = record.capabilities
    chip = load_hardware(hardware or capabilities.default_hardware)
    known = chips_like(capabilities.default_hardware)
    if chip.name not in [other.name for other in known]:
        names = ", ".join(other.name for other in known)
        msg = f"target {target} does not run on {chip.name}; it has: {names}"
        raise UsageError(msg)
    sketch, proofs, diagnostics, notes = _prepare(
        tree, capabilities, chip, constants or {}, allow_unproved
    )
    plan = Plan(sketch, capabilities, chip, (), {}, notes=notes)
    for step in passes(record):
        plan = step.run(plan)
    plan = attrs.evolve(plan, answers=(*plan.answers, *ignored(tree, plan)))
    bounds = tuple(
        ir.Proof("scratch", "tiles without a bound", ir.Tier.CHECKED_AT_LAUNCH, require.text)
        for require in plan.sketch.requires[len(sketch.requires) :]
    )
    return PlannedSketch(plan, (*proofs, *bounds), diagnostics)


def _prepare(
    tree: syntax.Sketch,
    capabilities: Capabilities,
    chip: Hardware,
    constants: Mapping[str, int | float | bool],
    allow_unproved: bool,
) -> tuple[ir.Sketch, tuple[ir.Proof, ...], tuple[Diagnostic, ...], tuple[str, ...]]:
    """Elaborate, choose open constants, split symbolic axes, infer domains and prove."""
    from sketchc.checker.claims.proofs import prove
    from sketchc.checker.domains.inference import infer_domains
    from sketchc.checker.elaboration.elaborate import elaborate
    from sketchc.lowering.passes.choose_constants import ChooseConstants

    sketch, found = elaborate(tree, constants)
    if sketch is None or has_errors(found):
        raise DiagnosticError(found)
    choice, notes = ChooseConstants(capabilities, chip).run(_split(sketch, capabilities, chip, {}))
    chosen = {name: value for name, value in choice.items() if _declared(sketch, name)}
    sketch, found = elaborate(tree, {**constants, **chosen})
    if sketch is None or has_errors(found):
        raise DiagnosticError(found)
    sketch = _mark_chosen(_split(sketch, capabilities, chip, choice), chosen)
    sketch, more = infer_domains(sketch)
    found += more
    if has_errors(found):
        raise DiagnosticError(found)
    sketch, proofs, more = prove(sketch, allow_unproved, test=True)
    found += more
    if has_errors(found):
        raise DiagnosticError(found)
    return sketch, tuple(proofs), tuple(found), notes


def _declared(sketch: ir.Sketch, name: str) -> bool:
    return any(constant.name == name for constant in sketch.constants)


def _mark_chosen(sketch: ir.Sketch, chosen: Mapping[str, int]) -> ir.Sketch:
    """Record that the plan, not the user, bound these constants."""
    return attrs.evolve(
        sketch,
        constants=tuple(
            attrs.evolve(c, chosen_by="plan") if c.name in chosen else c for c in sketch.constants
        ),
    )


def _split(
    sketch: ir.Sketch, capabilities: Capabilities, chip: Hardware, blocks: Mapping[str, int]
) -> ir.Sketch:
    """Split symbolic axes over the grid where the target has no run-time extents."""
    from sketchc.lowering.passes.strip_mine import StripMine

    if capabilities.symbolic_extents:
        return sketch
    inner = int(chip.facts["tuning"]["inner_elements"])
    return StripMine(inner, tuple(blocks.items())).run(sketch)
