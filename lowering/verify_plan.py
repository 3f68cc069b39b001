"""The guarantees of each pass as one table of rules, and the check of a plan against them.

A rule holds from the pass that it names on, after every later pass too. The rules run between the
passes where `sketchc.base.verification` is switched on: in all tests, and with `--verify-ir`. A
broken rule is a mistake of this project, never of a sketch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import attrs

from sketchc.base.diagnostics import NOWHERE, InternalError
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.conditions import launch_conditions
from sketchc.lowering.plan import ARENA, IGNORED, Plan, source_loops, stores
from sketchc.ops.table import OPS

#: Where `SettleTiles` leaves a tile that takes no memory.
FUSED = "fused"


@attrs.frozen
class Rule:
    """An invariant of plans past the pass `after`; `broken` describes each violation in a plan."""

    after: str
    text: str
    broken: Callable[[Plan], Iterator[str]]


def verify_plan(plan: Plan, done: Collection[str]) -> None:
    """Check the rules of the passes that are `done`, by the names of their classes. Raises
    `InternalError` with every rule that is broken, and where."""
    found = [
        f"{rule.text} ({rule.after}): {broken}"
        for rule in RULES
        if rule.after in done
        for broken in rule.broken(plan)
    ]
    if found:
        msg = f"the plan of {plan.sketch.name} for {plan.target} is broken:\n" + "\n".join(found)
        raise InternalError(msg)


# ---------------------------------------------------------------- StripMine, ChooseConstants


def _blocks(plan: Plan) -> Iterator[str]:
    for loop in walk.in_phases(plan.sketch.phases):
        if isinstance(loop, ir.For) and loop.span == NOWHERE:
            if not loop.parallel:
                yield f"the loop over {loop.variable}"
            for store in (s for s in walk.statements(loop.body) if isinstance(s, ir.Store)):
                if not any(loop.variable in walk.names(each) for each in walk.expressions(store)):
                    yield f"the loop over {loop.variable} stores {store.tile} in every turn"


def _chosen(plan: Plan) -> Iterator[str]:
    for constant in plan.sketch.constants:
        if constant.chosen_by == "plan":
            power = int(constant.value).bit_count() == 1
            if not (constant.value in constant.choices if constant.choices else power):
                yield f"{constant.name} = {constant.value}"


# ---------------------------------------------------------------- CheckCapabilities


def _dtypes(plan: Plan) -> Iterator[str]:
    named: tuple[ir.Tensor | ir.Tile, ...] = (*plan.sketch.tensors, *plan.sketch.tiles)
    for declared in named:
        if declared.dtype.value not in plan.capabilities.dtypes:
            yield f"{declared.name} is {declared.dtype.value}"


def _operations(plan: Plan) -> Iterator[str]:
    for statement in walk.in_phases(plan.sketch.phases):
        operation = statement.operation if isinstance(statement, ir.Compute) else ""
        if operation in plan.capabilities.ops_missing:
            yield operation


def _constants(plan: Plan) -> Iterator[str]:
    bound = {constant.name for constant in plan.sketch.constants}
    for statement in walk.in_phases(plan.sketch.phases):
        for expression in walk.expressions(statement):
            for name in walk.references(expression):
                if name.kind is ir.NameKind.CONSTANT and name.name not in bound:
                    yield name.name


# ---------------------------------------------------------------- MapGrid


def _phases(plan: Plan) -> Iterator[str]:
    indices = [phase.index for phase in plan.phases]
    if indices != sorted(set(indices)):
        yield f"phases {indices}"
    for phase in plan.phases:
        if phase.index >= len(plan.sketch.phases):
            yield f"the sketch has no phase {phase.index}"


def _effects(plan: Plan) -> Iterator[str]:
    return (f"{phase.name} stores nothing" for phase in plan.phases if not stores(phase.body))


def _grid(plan: Plan) -> Iterator[str]:
    for phase in plan.phases:
        outer: set[str] = set()
        for axis in phase.grid:
            for expression in (axis.start, axis.step):
                for name in walk.references(expression):
                    if not name.kind.on_host and name.name not in outer:
                        yield f"axis {axis.variable} of {phase.name} names {name.name}"
            for name in walk.references(axis.count):
                if name.kind is ir.NameKind.LOOP:
                    yield f"the count of axis {axis.variable} of {phase.name} names {name.name}"
            outer.add(axis.variable)


def _loop_variables(plan: Plan) -> Iterator[str]:
    for phase in plan.phases:
        around = {step.variable for step in walk.around(plan.sketch.schedule, phase.index)
                  if isinstance(step, ir.HostFor)}  # fmt: skip
        yield from _unbound(phase.body, around | {axis.variable for axis in phase.grid})


def _unbound(body: tuple[ir.Statement, ...], bound: set[str]) -> Iterator[str]:
    for statement in body:
        for expression in walk.expressions(statement):
            for name in walk.references(expression):
                if name.kind is ir.NameKind.LOOP and name.name not in bound:
                    yield name.name
        variable = {statement.variable} if isinstance(statement, ir.For) else set()
        yield from _unbound(walk.inside(statement), bound | variable)


# ---------------------------------------------------------------- PlaceTiles, CheckScratch


def _placed(plan: Plan) -> Iterator[str]:
    memories = {*plan.capabilities.memories(plan.hardware.facts)}
    if plan.capabilities.loops is not None:
        memories |= {plan.capabilities.loops.near, ARENA}
    for tile in plan.sketch.tiles:
        placed = plan.tiles.get(tile.name)
        if placed is None:
            yield f"{tile.name} has no place"
        elif placed.tile.name != tile.name or len(placed.extents) != len(tile.extents):
            yield f"{tile.name} has the place of another tile"
        elif placed.home not in memories or placed.memory not in (FUSED, *memories):
            yield f"{tile.name} is in {placed.memory}, which {plan.hardware.name} does not have"


def _extents(plan: Plan) -> Iterator[str]:
    capabilities = plan.capabilities
    for name, placed in plan.tiles.items():
        for extent in placed.extents:
            value = extent.value
            if value is not None:
                power = value & (value - 1) == 0 or not capabilities.power_of_two_extents
                if extent.bucket_of is not None or value < 1 or not power:
                    yield f"{name} has an axis of {value}"
            elif extent.bucket_of is not None:
                if not extent.name:
                    yield f"{name} has a bucket without a name"
            elif not capabilities.symbolic_extents:
                yield f"{name} has a run-time extent"


def _bytes(plan: Plan) -> Iterator[str]:
    for name, placed in plan.tiles.items():
        sizes = [extent.value for extent in placed.extents if extent.value is not None]
        fixed = len(sizes) == len(placed.extents)
        size = math.prod((placed.tile.dtype.bytes, *sizes)) if fixed else None
        expected = 0 if placed.memory == FUSED else size
        if placed.bytes != expected:
            yield f"{name} takes {placed.bytes}, not {expected}"


def _account(plan: Plan) -> Iterator[str]:
    for phase in plan.phases:
        for use in phase.memory_use:
            if use.bytes != sum(size for _, size in use.parts):
                yield f"{use.memory} of {phase.name}"


def _fitting(plan: Plan) -> Iterator[str]:
    memories = plan.capabilities.memories(plan.hardware.facts)
    for name, placed in plan.tiles.items():
        if placed.bytes is None or placed.memory not in memories:
            continue
        if placed.bytes > memories[placed.memory]["bytes"]:
            yield f"{name} takes {placed.bytes} bytes of {placed.memory}"
        if placed.bytes // placed.tile.dtype.bytes > plan.capabilities.maximum_elements:
            yield f"{name} has too many elements"


# ---------------------------------------------------------------- ChooseFills, EstimateCost


def _fills(plan: Plan) -> Iterator[str]:
    wanted = {place for place, statement in plan.positions if isinstance(statement, ir.Load)}
    for position in sorted(wanted ^ set(plan.fills)):
        yield _at(position)


def _neutral(plan: Plan) -> Iterator[str]:
    known = {
        place: set(range(len(statement.operands)))
        for place, statement in plan.positions
        if isinstance(statement, ir.Compute)
        and (OPS[statement.operation].identity is not None or statement.masked)
    }
    for place, operands in plan.neutral.items():
        if place not in known or not operands <= known[place]:
            yield _at(place)


def _at(place: tuple[int, int]) -> str:
    return f"statement {place[1]} of phase {place[0]}"


def _costs(plan: Plan) -> Iterator[str]:
    for what, cost in (
        ("bytes", plan.bytes_moved),
        ("traffic", plan.traffic),
        ("operations", plan.flops),
    ):
        if cost is None:
            yield f"no {what}"
        else:
            yield from (
                f"the {what} name {name.name}"
                for name in walk.references(cost)
                if not name.kind.on_host
            )
    for phase in plan.phases:
        work = () if phase.work is None else walk.references(phase.work)
        yield from (
            f"the work of phase {phase.index} names {name.name}"
            for name in work
            if not name.kind.on_host
        )


# ---------------------------------------------------------------- FuseTiles, SettleTiles


def _storages(plan: Plan) -> Iterator[str]:
    for phase in plan.phases:
        storages = phase.storages or ()
        sizes = [name for s in storages for e in s.extents for name in walk.references(e)]
        names = {storage.name for storage in storages}
        if len(names) < len(storages) or any(not name.kind.on_host for name in sizes):
            yield phase.name


def _settled(plan: Plan) -> Iterator[str]:
    if any(phase.storages is None for phase in plan.phases):
        return
    storages = [each for phase in plan.phases for each in phase.storages or ()]
    for name, placed in plan.tiles.items():
        reserved = {storage.memory for storage in storages if storage.tile == name} or {FUSED}
        if placed.memory not in reserved:
            yield f"{name} is in {placed.memory}"


# ---------------------------------------------------------------- AnswerHints


def _hints(plan: Plan) -> Iterator[str]:
    answered = [answer.hint for answer in plan.answers if answer.became != IGNORED]
    given = [hint for loop in source_loops(plan.sketch) for hint in loop.hints]
    given += [hint for tile in plan.sketch.tiles for hint in tile.hints]
    for hint in dict.fromkeys(given):
        if answered.count(hint) != given.count(hint):
            yield f"{hint}: {given.count(hint)} given, {answered.count(hint)} answered"


def _conditions(plan: Plan) -> Iterator[str]:
    numbers = [condition.number for condition in launch_conditions(plan.sketch)]
    if numbers != sorted(set(numbers)):
        yield f"numbers of launch conditions: {numbers}"
    if plan.capabilities.symbolic_extents:
        return
    sized = {name for tile in plan.sketch.tiles for e in tile.extents for name in walk.names(e)}
    bounded = {name for require in plan.sketch.requires for name in walk.names(require.condition)}
    named: tuple[ir.Symbol | ir.Let, ...] = (*plan.sketch.symbols, *plan.sketch.lets)
    for declared in named:
        if declared.name in sized - bounded and declared.upper_bound is None:
            yield f"{declared.name} sizes a tile and has no bound"


#: The rules, in the order of the passes: one line each.
RULES: tuple[Rule, ...] = (
    Rule("StripMine", "a loop that splits an axis is parallel, and in each store", _blocks),
    Rule("ChooseConstants", "a constant that the plan chose has a value to choose", _chosen),
    Rule("CheckCapabilities", "every dtype is one that the target has", _dtypes),
    Rule("CheckCapabilities", "every operation is one that the target has", _operations),
    Rule("CheckCapabilities", "every compile-time constant is bound", _constants),
    Rule("MapGrid", "launches are phases of the sketch, each once, in order", _phases),
    Rule("MapGrid", "a launch stores", _effects),
    Rule("MapGrid", "grid axes name host scalars and axes further out", _grid),
    Rule("MapGrid", "loop variables are of a loop around, or of the grid", _loop_variables),
    Rule("FuseTiles", "storages have names of their own, and sizes of the host", _storages),
    Rule("PlaceTiles", "every tile has one place, in a memory of the chip", _placed),
    Rule("PlaceTiles", "physical extents are such as the target has", _extents),
    Rule("PlaceTiles", "a tile's bytes are those of its physical extents", _bytes),
    Rule("PlaceTiles", "a memory's use is the sum of its parts", _account),
    Rule("CheckScratch", "every tile of fixed size fits its memory", _fitting),
    Rule("CheckScratch", "what sizes a tile is bounded by a launch condition", _conditions),
    Rule("SettleTiles", "a tile is where something is reserved for it, else fused", _settled),
    Rule("ChooseFills", "every load has a fill, and nothing else has", _fills),
    Rule("ChooseFills", "neutral operands are those of operations with an identity", _neutral),
    Rule("EstimateCost", "bytes and operations are counted over host scalars", _costs),
    Rule("AnswerHints", "every hint has its answer", _hints),
)
