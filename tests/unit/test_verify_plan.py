"""The rules between the passes: each is broken once, and seen."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from example_targets import EXAMPLES

from sketchc.base import verification
from sketchc.base.diagnostics import NOWHERE, InternalError, Source
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.passes import pipeline
from sketchc.lowering.passes.pipeline import PASSES, build_plan, names
from sketchc.lowering.plan import MemoryUse, PhysicalExtent, Plan
from sketchc.lowering.verify_plan import RULES, Rule, verify_plan
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

DONE = names(PASSES)


def tree_of(name: str) -> syntax.Sketch:
    tree, _ = parse(Source("test.sketch", (EXAMPLES / f"{name}.sketch").read_text("utf-8")))
    assert tree is not None
    return tree.sketches[0]


def planned(name: str, target: str) -> Plan:
    return build_plan(tree_of(name), target).plan


def phase(plan: Plan, **changes: object) -> Plan:
    return attrs.evolve(plan, phases=(attrs.evolve(plan.phases[0], **changes), *plan.phases[1:]))


def tile(plan: Plan, **changes: object) -> Plan:
    name, placed = next((n, t) for n, t in plan.tiles.items() if t.extents and t.bytes)
    return attrs.evolve(plan, tiles={**plan.tiles, name: attrs.evolve(placed, **changes)})


def capabilities(plan: Plan, **changes: object) -> Plan:
    return attrs.evolve(plan, capabilities=attrs.evolve(plan.capabilities, **changes))


def sketch(plan: Plan, **changes: object) -> Plan:
    return attrs.evolve(plan, sketch=attrs.evolve(plan.sketch, **changes))


def used_operations(plan: Plan) -> frozenset[str]:
    return frozenset(s.operation for s in walk.in_phases(plan.phases) if isinstance(s, ir.Compute))


def without_a_bound(plan: Plan) -> Plan:
    symbols = tuple(attrs.evolve(s, upper_bound=None) for s in plan.sketch.symbols)
    extents = tuple(ir.Ref(s.name, ir.NameKind.SYMBOL) for s in symbols[:1])
    first = attrs.evolve(plan.sketch.tiles[0], extents=extents)
    return sketch(plan, symbols=symbols, requires=(), tiles=(first, *plan.sketch.tiles[1:]))


def serial_blocks(plan: Plan) -> Plan:
    def changed(body: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        return tuple(
            attrs.evolve(each, body=changed(each.body), parallel=each.span != NOWHERE)
            if isinstance(each, ir.For)
            else each
            for each in body
        )

    phases = (attrs.evolve(each, body=changed(each.body)) for each in plan.sketch.phases)
    return sketch(plan, phases=tuple(phases))


def odd_choice(plan: Plan) -> Plan:
    first, *rest = plan.sketch.constants
    return sketch(plan, constants=(attrs.evolve(first, value=3, chosen_by="plan"), *rest))


def twice_reserved(plan: Plan) -> Plan:
    storages = plan.phases[0].storages
    assert storages
    return phase(plan, storages=(*storages, storages[0]))


def own_axis(plan: Plan) -> Plan:
    axis = plan.phases[0].grid[0]
    variable = ir.Ref(axis.variable, ir.NameKind.LOOP)
    return phase(plan, grid=(attrs.evolve(axis, start=variable),))


F32 = DType.F32.value
STRANGE = ir.Ref("strange", ir.NameKind.LOOP)

#: The rule -> how a plan of `rms` is made to break it.
BREAKS: dict[str, Callable[[Plan], Plan]] = {
    "a loop that splits an axis is parallel, and in each store": serial_blocks,
    "a constant that the plan chose has a value to choose": odd_choice,
    "every dtype is one that the target has": lambda plan: capabilities(
        plan, dtypes=plan.capabilities.dtypes - {F32}
    ),
    "every operation is one that the target has": lambda plan: capabilities(
        plan, ops_missing=used_operations(plan)
    ),
    "every compile-time constant is bound": lambda plan: sketch(plan, constants=()),
    "launches are phases of the sketch, each once, in order": lambda plan: phase(plan, index=7),
    "a launch stores": lambda plan: phase(plan, body=()),
    "grid axes name host scalars and axes further out": own_axis,
    "loop variables are of a loop around, or of the grid": lambda plan: phase(plan, grid=()),
    "storages have names of their own, and sizes of the host": twice_reserved,
    "every tile has one place, in a memory of the chip": lambda plan: tile(plan, memory="attic"),
    "physical extents are such as the target has": lambda plan: tile(
        plan, extents=(PhysicalExtent(value=3),), bytes=12
    ),
    "a tile's bytes are those of its physical extents": lambda plan: tile(plan, bytes=1),
    "a memory's use is the sum of its parts": lambda plan: phase(
        plan, memory_use=(MemoryUse("register", 8, 16, (("x", 4),)),)
    ),
    "every tile of fixed size fits its memory": lambda plan: capabilities(plan, maximum_elements=1),
    "what sizes a tile is bounded by a launch condition": without_a_bound,
    "a tile is where something is reserved for it, else fused": lambda plan: attrs.evolve(
        plan,
        tiles={name: attrs.evolve(placed, memory="attic") for name, placed in plan.tiles.items()},
    ),
    "every load has a fill, and nothing else has": lambda plan: attrs.evolve(plan, fills={}),
    "neutral operands are those of operations with an identity": lambda plan: attrs.evolve(
        plan, neutral={(0, 999): frozenset({0})}
    ),
    "bytes and operations are counted over host scalars": lambda plan: attrs.evolve(
        plan, flops=STRANGE
    ),
    "every hint has its answer": lambda plan: attrs.evolve(plan, answers=()),
}


def test_every_rule_is_broken_here() -> None:
    assert list(BREAKS) == [rule.text for rule in RULES]


def test_rules_name_passes() -> None:
    assert {rule.after for rule in RULES} <= DONE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text)
def test_a_broken_rule_is_seen(rule: Rule) -> None:
    fuses = rule.after in ("FuseTiles", "SettleTiles")
    plan, text = planned("rms", "cpp" if fuses else "triton_cuda"), rule.text
    verify_plan(plan, DONE)
    with pytest.raises(InternalError) as raised:
        verify_plan(BREAKS[text](plan), DONE)
    assert text in str(raised.value)


@attrs.frozen
class Noting:
    """A pass that does something to each part of a plan that any pass may change."""

    def run(self, plan: Plan) -> Plan:
        require = ir.Require(ir.Literal(True), "seen")
        seen = attrs.evolve(plan.sketch, requires=(*plan.sketch.requires, require))
        return attrs.evolve(plan, sketch=seen, notes=(*plan.notes, "seen"))


@pytest.mark.parametrize("place", range(1, len(PASSES) + 1))
def test_a_pass_may_stand_anywhere_in_the_list(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    noting = f"{__name__}:Noting"
    monkeypatch.setattr(pipeline, "PASSES", (*PASSES[:place], noting, *PASSES[place:]))
    many = pipeline.planner(tree_of("matmul"), "cpp")
    sizes = [{c.name: 32 for c in many.plan({}).plan.sketch.constants}, {}]
    for point in sizes:
        plan = many.plan(point).plan
        assert plan.notes.count("seen") == 1
        assert [require.text for require in plan.sketch.requires].count("seen") == 1


def test_a_rule_waits_for_its_pass() -> None:
    plan = attrs.evolve(planned("rms", "triton_cuda"), fills={})
    verify_plan(plan, DONE - {"ChooseFills"})


def test_the_switch_is_on_in_tests() -> None:
    assert verification.enabled()
