"""The passes, in order, and `build_plan`, which runs them: from a checked sketch to a plan."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs

from sketchc.base import verification
from sketchc.base.diagnostics import Diagnostic, DiagnosticError, has_errors, refuse
from sketchc.base.memo import Named, memoised
from sketchc.base.types import Scalar
from sketchc.checker.api import Elaboration
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import Hardware, LaunchOption, Plan
from sketchc.lowering.target import Target
from sketchc.lowering.verify_plan import verify_plan
from sketchc.parsing import syntax


class Pass(Protocol):
    """One file with one frozen class: it takes a valid plan and returns a valid plan."""

    def run(self, plan: Plan) -> Plan:
        """A new plan. Raises `DiagnosticError` for what the user must change."""


class Stage(enum.Enum):
    """A point in `PASSES` where the planner itself changes a plan before the next passes run."""

    ELABORATED = "elaborated"  # constants may have the values of any point that elaborates alike
    BOUND = "bound"  # constants have the values of one point of the tuning space
    PROVED = "proved"  # with domains and proofs; only constants below 0 have the point's values
    SIZED = "sized"  # all constants have the point's values again


#: The passes over a plan, in order, one line each, with the stages that they belong to. The plans
#: after the stages ELABORATED and PROVED are kept for all points of a tuning space that share them.
#: Where a pass that follows BOUND chooses values of constants, all passes up to PROVED run again
#: with these values.
PASSES: tuple[Stage | str, ...] = (
    Stage.ELABORATED,
    "sketchc.lowering.passes.strip_mine:StripMine",
    "sketchc.lowering.passes.hold_lanes:HoldLanes",
    Stage.BOUND,
    "sketchc.lowering.passes.choose_constants:ChooseConstants",
    Stage.PROVED,
    "sketchc.lowering.passes.check_capabilities:CheckCapabilities",
    "sketchc.lowering.passes.map_grid:MapGrid",
    "sketchc.lowering.passes.choose_fills:ChooseFills",
    "sketchc.lowering.passes.estimate_cost:EstimateCost",
    "sketchc.lowering.passes.place_tiles:FuseTiles",
    Stage.SIZED,
    "sketchc.lowering.passes.place_tiles:PlaceTiles",
    "sketchc.lowering.passes.place_tiles:CheckScratch",
    "sketchc.lowering.passes.place_tiles:SettleTiles",
    "sketchc.lowering.passes.answer_hints:AnswerHints",
)


def names(entries: Iterable[Stage | str]) -> frozenset[str]:
    """The names of the passes in `entries`, some of `PASSES`: those of their classes."""
    return frozenset(entry.partition(":")[2] for entry in entries if isinstance(entry, str))


@attrs.frozen(eq=False)
class Program:
    """What points of a tuning space share that differ in the values of constants alone: the
    elaborated sketch and its plan after the stage ELABORATED. `mapped` pairs each sketch with
    domains that these give (values may show in them) with its plan after the stage PROVED."""

    elaboration: Elaboration
    plan: Plan
    mapped: list[tuple[ir.Sketch, Plan]] = attrs.field(factory=list)


@attrs.frozen
class PlannedSketch:
    """A plan with the proofs of its sketch, bounds that its scratch memory sets included, and the
    warnings met on the way. While the planner still works on it, proofs or phases may be
    missing."""

    plan: Plan
    program: Program = attrs.field(eq=False, repr=False)
    proofs: tuple[ir.Proof, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def build_plan(
    tree: syntax.Sketch,
    target: str,
    hardware: str | None = None,
    constants: Mapping[str, Scalar] | None = None,
    allow_unproved: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> PlannedSketch:
    """Check `tree` for `target` and map it onto the chip: see `planner` and `Planner.plan`."""
    known = None if sizes is None else Named(sizes)
    return _planned(tree, target, hardware, Named(constants or {}), allow_unproved, known)


@memoised
def _planned(
    tree: syntax.Sketch,
    target: str,
    hardware: str | None,
    constants: Named[Scalar],
    allow_unproved: bool,
    sizes: Named[int] | None,
) -> PlannedSketch:
    return planner(tree, target, hardware, allow_unproved, sizes).plan(constants)


def planner(
    tree: syntax.Sketch,
    target: str,
    hardware: str | None = None,
    allow_unproved: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Planner:
    """The `Planner` of `tree` for `target`, which plans any number of points of the tuning space.

    `sizes`: of the symbols, where they are known: what stays open is chosen for them. `hardware`
    defaults to the target's own. Raises `UsageError` for an unknown target or chip.
    """
    from sketchc.lowering.hardware import chips_like, load_hardware
    from sketchc.lowering.registry import load_target

    record = load_target(target)
    capabilities = record.capabilities
    chip = load_hardware(hardware or capabilities.default_hardware)
    known = chips_like(capabilities.default_hardware)
    if chip.name not in [other.name for other in known]:
        names = ", ".join(other.name for other in known)
        refuse(f"target {target} does not run on {chip.name}; it has: {names}")
    return Planner(tree, record, chip, allow_unproved, sizes)


@attrs.frozen(eq=False)
class Planner:
    """Makes the plans of one sketch for one chip.

    The sketch is elaborated, its axes are split and its loops are mapped once for all points whose
    programs differ in the values of constants alone; a further point is a substitution of these.
    """

    tree: syntax.Sketch
    target: Target
    hardware: Hardware
    allow_unproved: bool = False
    sizes: Mapping[str, int] | None = None
    #: options of launches that were decided on
    settled: frozenset[str] = frozenset()
    #: each program found so far
    _programs: list[Program] = attrs.field(factory=list, kw_only=True)

    def plan(self, constants: Mapping[str, Scalar]) -> PlannedSketch:
        """The plan for these constants; the hardware decides on those that stay open.

        `constants` binds constexprs, params' defaults, the sizes of blocks into which the plan
        splits axes, and options of launches. Raises `DiagnosticError` with every finding when the
        sketch does not check, a proof fails, or the target cannot do it, and `UsageError` for an
        option that cannot have its value.
        """
        try:
            return self.mapped(self.proved(self.bound(constants)))
        except DiagnosticError:
            if self.sizes is None:
                raise
        # What was chosen for the sizes cannot be proved, or fits nowhere.
        return self._without_sizes.plan(constants)

    @property
    def _without_sizes(self) -> Planner:
        """This planner, with its programs, where all is chosen whatever the sizes."""
        return attrs.evolve(self, sizes=None)

    def bound(self, constants: Mapping[str, Scalar]) -> PlannedSketch:
        """The plan of the sketch with a value for every constant, still without domains. Raises
        `UsageError` for an option of launches that cannot have its value."""
        options = _options(self.launch_options, constants)
        names = frozenset(option.name for option in self.launch_options) & constants.keys()
        constants = {name: value for name, value in constants.items() if name not in names}
        return attrs.evolve(self, settled=names)._with_constants(constants, options)

    @property
    def launch_options(self) -> tuple[LaunchOption, ...]:
        """The options of launches whose names the sketch does not use itself."""
        from sketchc.checker.api import bindable

        own = bindable(self.tree)
        options = self.target.capabilities.launch_options
        return tuple(option for option in options if option.name not in own)

    @property
    def free_options(self) -> tuple[LaunchOption, ...]:
        """The options of launches on which nobody has decided, be it for the emitter's rule."""
        return tuple(option for option in self.launch_options if option.name not in self.settled)

    @property
    def listed(self) -> tuple[Mapping[str, Scalar], ...]:
        """The points of `available_tiling` beside the default one, where sizes choose."""
        known = self.sizes is not None and self.tree.tilings
        return self.listed_points({}) if known else ()

    def listed_points(self, fixed: Mapping[str, Scalar]) -> tuple[Mapping[str, Scalar], ...]:
        """The points of `available_tiling` beside the default one, by the plan's names of constants
        and without those `fixed`, once a plan was begun. A point that names a param is none of
        them: it has other results."""
        from sketchc.checker.api import tuning_points

        context = self._programs[-1].elaboration.context
        spelt = {name: own for own, name in context.sources.items()}
        params = {param.name for param in context.params}
        points = (
            {spelt.get(name, name): value for name, value in point.items()}
            for point in tuning_points(self.tree, fixed)
        )
        return tuple(point for point in points if params.isdisjoint(point))

    def _with_constants(
        self, constants: Mapping[str, Scalar], options: Mapping[str, int]
    ) -> PlannedSketch:
        found = self._bound(constants, options)
        chosen = {c.name: c for c in found.plan.sketch.constants if c.chosen_by == "plan"}
        if not chosen:
            return found
        choice = {name: constant.value for name, constant in chosen.items()}
        again = self._without_sizes._bound({**constants, **choice}, found.plan.options)
        settled = tuple(chosen.get(c.name, c) for c in again.plan.sketch.constants)
        sketch = attrs.evolve(again.plan.sketch, constants=settled)
        notes = tuple(dict.fromkeys((*found.plan.notes, *again.plan.notes)))
        return attrs.evolve(again, plan=attrs.evolve(again.plan, sketch=sketch, notes=notes))

    def _bound(self, constants: Mapping[str, Scalar], options: Mapping[str, int]) -> PlannedSketch:
        """The plan after the stage BOUND, with the values of constants in `constants` and the
        `options` of launches that are settled."""
        declared, program = self._program(constants)
        sketch = _with_values(program.plan.sketch, declared, constants)
        asked = attrs.evolve(program.plan, sketch=sketch, options=options)
        plan = self._run(Stage.BOUND, asked)
        return PlannedSketch(plan, program, diagnostics=program.elaboration.diagnostics)

    def _program(self, constants: Mapping[str, Scalar]) -> tuple[tuple[ir.Constant, ...], Program]:
        """The declared constants with the values in `constants`, and their `Program`."""
        from sketchc.checker.api import elaboration

        for program in self._programs:
            bound = program.elaboration.bind(constants)
            if bound is not None:
                return bound.constants, program
        done = elaboration(self.tree, constants)
        if done.sketch is None or has_errors(done.diagnostics):
            raise DiagnosticError(done.diagnostics)
        plan = Plan(done.sketch, self.target.capabilities, self.hardware, (), {})
        program = Program(done, self._run(Stage.ELABORATED, plan))
        self._programs.append(program)
        return done.sketch.constants, program

    def proved(self, bound: PlannedSketch) -> PlannedSketch:
        """The bound sketch with domains and proofs. Raises `DiagnosticError` with all errors."""
        from sketchc.checker.api import infer_domains, prove

        sketch, more = infer_domains(bound.plan.sketch)
        found = (*bound.diagnostics, *more)
        if has_errors(found):
            raise DiagnosticError(found)
        sketch, proofs, more = prove(sketch, self.allow_unproved, test=True)
        found += more
        if has_errors(found):
            raise DiagnosticError(found)
        plan = attrs.evolve(bound.plan, sketch=sketch)
        return PlannedSketch(plan, bound.program, proofs, found)

    def mapped(self, proved: PlannedSketch) -> PlannedSketch:
        """The finished plan of a sketch with domains: after the stages PROVED and SIZED."""
        plan = self._run(Stage.SIZED, self._mapped(proved.plan, proved.program))
        scratch = tuple(
            ir.Proof("scratch", "tiles without a bound", ir.Tier.CHECKED_AT_LAUNCH, require.text)
            for require in plan.sketch.requires[len(proved.plan.sketch.requires) :]
        )
        return attrs.evolve(proved, plan=plan, proofs=(*proved.proofs, *scratch))

    def _mapped(self, plan: Plan, program: Program) -> Plan:
        """The plan after the stage PROVED, made once for all points of `program` that share it."""
        sketch = plan.sketch
        below = tuple(constant for constant in sketch.constants if constant.value < 0)
        key = attrs.evolve(sketch, constants=below)
        mapped = next((mapped for known, mapped in program.mapped if known == key), None)
        if mapped is None:
            mapped = self._run(Stage.PROVED, attrs.evolve(plan, notes=()))
            program.mapped.append((key, mapped))
        sketch = attrs.evolve(mapped.sketch, constants=sketch.constants)
        notes = (*plan.notes, *mapped.notes)
        return attrs.evolve(mapped, sketch=sketch, notes=notes, options=plan.options)

    def _run(self, stage: Stage, plan: Plan) -> Plan:
        """The plan after the passes of `stage`; `plan` has come past the passes before these."""
        start = PASSES.index(stage) + 1
        for end, entry in enumerate(PASSES[start:], start + 1):
            if isinstance(entry, Stage):
                break
            plan = self._made(entry).run(plan)
            if verification.enabled():
                verify_plan(plan, names(PASSES[:end]))
        return plan

    def _made(self, path: str) -> Pass:
        """The pass at `path`. Each field of its class is filled with the attribute of that name of
        this planner, or else of the target's record."""
        module, _, name = path.partition(":")
        kind = getattr(importlib.import_module(module), name)
        fields = [field.name for field in attrs.fields(kind)]
        known = {f: getattr(self if hasattr(self, f) else self.target, f) for f in fields}
        made: Pass = kind(**known)
        return made


def _with_values(
    split: ir.Sketch, declared: tuple[ir.Constant, ...], values: Mapping[str, Scalar]
) -> ir.Sketch:
    """The sketch with the constants `declared`, and its block sizes as given in `values`."""
    blocks = (
        attrs.evolve(block, value=values[block.name], chosen_by="user")
        if block.name in values
        else block
        for block in split.constants[len(declared) :]
    )
    return attrs.evolve(split, constants=(*declared, *blocks))


def _options(known: Iterable[LaunchOption], constants: Mapping[str, Scalar]) -> dict[str, int]:
    """The options among `constants` that are not left to the emitter's rules."""
    found = {}
    for option in known:
        value = constants.get(option.name, 0)
        if isinstance(value, bool) or value not in (0, *option.values):
            numbers = ", ".join(map(str, option.values))
            refuse(f"{option.name} is one of {numbers}, or 0 for sketchc's choice, not {value}")
        if value:
            found[option.name] = int(value)
    return found
