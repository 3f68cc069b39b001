"""precision="f32_split" in plans: products in parts where a chip has these faster than f32, what
they take of registers and shared memory, and their class."""

from __future__ import annotations

import re

import pytest
from triton_cases import example

from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.ir import walk
from sketchc.ir.evaluate import host_values
from sketchc.lowering.cost.predict import predict
from sketchc.lowering.launches import product_options
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan, is_product
from sketchc.lowering.precisions import precision_class
from sketchc.lowering.registry import built_in_targets, load_target
from sketchc.parsing.parser import parse

#: Chips whose products in bf16 make six times as many as those of f32, with a margin; and others.
FASTER, NOT_FASTER = ("h200", "a100", "b200"), ("rtx4090", "l40s", "l20")


def planned(
    text: str, target: str = "triton_cuda", hardware: str | None = None, **tiles: int
) -> Plan:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    return build_plan(tree.entries[0], target, hardware, tiles).plan


def asking(name: str, precision: str = "f32_split") -> str:
    """An example whose products ask for this precision."""
    text = re.sub(r', precision="\w+"', "", example(name))
    calls = re.compile(r"\b(gemm|matmul|dot)\(([^()]*)\)")
    return calls.sub(lambda m: f'{m[1]}({m[2]}, precision="{precision}")', text)


def kind_of(plan: Plan) -> set[str]:
    return {precision_class(plan, s) for s in walk.in_phases(plan.phases) if is_product(s)}


@pytest.mark.parametrize("target", [target.name for target in built_in_targets()])
def test_every_target_takes_it_and_has_nothing_to_say(target: str) -> None:
    plan = planned(asking("matmul"), target)
    split = target in ("triton_cuda", "cuda_c")
    assert kind_of(plan) == {"f32_split" if split else "ieee f32"}
    assert "f32_split" not in " ".join(plan.notes)


@pytest.mark.parametrize("hardware", FASTER + NOT_FASTER)
@pytest.mark.parametrize("target", ["triton_cuda", "cuda_c"])
def test_parts_are_multiplied_where_that_is_faster(target: str, hardware: str) -> None:
    plan = planned(asking("matmul"), target, hardware)
    mark = {"triton_cuda": "split_product(a, b)", "cuda_c": "sketch::in_tf32>"}[target]
    split = hardware in FASTER
    assert kind_of(plan) == {"f32_split" if split else "ieee f32"}
    assert (mark in load_target(target).emit(plan).source) == split


@pytest.mark.parametrize("asked", ["ieee", "tf32x3", "tf32"])
def test_others_stay_what_they_are(asked: str) -> None:
    source = load_target("triton_cuda").emit(planned(asking("matmul", asked))).source
    assert "split_product" not in source
    assert f'input_precision="{asked}"' in source


def test_halves_are_not_split() -> None:
    plan = planned(asking("matmul_half"))
    assert kind_of(plan) == {"f16"}
    source = load_target("triton_cuda").emit(plan).source
    assert 'input_precision="ieee"' in source
    assert "split_product" not in source


@pytest.mark.parametrize("sides", [(128, 128, 32), (128, 128, 64), (64, 64, 32), (32, 128, 64)])
def test_shared_memory_has_room_for_the_parts_of_the_right_operand(
    sides: tuple[int, int, int],
) -> None:
    """n stages take n - 1 copies of both operands, and three parts of 2 bytes of the right one."""
    rows, columns, depth = sides
    plan = planned(asking("matmul"), TM=rows, TN=columns, TK=depth)
    stages = product_options(plan, plan.phases[0])["num_stages"]
    taken = (stages - 1) * (rows + columns) * depth * 4 + columns * depth * 6
    assert stages > 1
    assert taken <= plan.hardware.facts["memory"]["shared"]["bytes"]


def test_tiles_whose_parts_do_not_fit_are_refused() -> None:
    wide = asking("matmul").replace("TN in [32, 64, 128]", "TN = 256")
    assert planned(wide.replace("f32_split", "ieee"), TM=32, TK=128)
    with pytest.raises(DiagnosticError) as refused:
        planned(wide, TM=32, TK=128)
    (found,) = refused.value.diagnostics
    assert found.code == "SK0701"
    assert any("also in parts" in note for note in found.notes)


def test_a_thread_has_no_more_than_its_registers_hold() -> None:
    """128 x 128 x 32 by 4 warps left 500 bytes of a thread in memory, and 128 deep 400."""
    options = product_options
    for sides in ((128, 128, 32), (128, 64, 64)):
        plan = planned(asking("matmul"), **dict(zip(("TM", "TN", "TK"), sides, strict=True)))
        assert options(plan, plan.phases[0])["num_warps"] == 8
    chosen = {c.name: c.value for c in planned(asking("triangular_matmul")).sketch.constants}
    assert chosen["T"] == 64


def test_the_cost_model_knows_its_rate() -> None:
    """Between f32, which no matrix unit multiplies, and a sixth of bf16."""
    sizes = {"M": 4096, "N": 4096, "K": 4096}
    found = {}
    for precision in ("ieee", "f32_split", "tf32"):
        plan = planned(asking("matmul", precision), TM=128, TN=128, TK=32)
        cost = predict(plan, host_values(plan.sketch, sizes, {}))
        found[precision] = cost.seconds
    assert found["tf32"] < found["f32_split"] < found["ieee"]
    rates = planned(asking("matmul")).hardware.facts["flops"]
    assert 2 * 4096**3 / found["f32_split"] < rates["bf16"] / 6


@pytest.mark.parametrize(
    "sides",
    [(64, 64, 32), (64, 64, 64), (64, 128, 16), (64, 128, 64), (128, 64, 32), (128, 128, 32)],
)
def test_more_than_four_warps_have_sixteen_rows_each(sides: tuple[int, int, int]) -> None:
    plan = planned(asking("matmul"), **dict(zip(("TM", "TN", "TK"), sides, strict=True)))
    (phase,) = plan.phases
    warps = product_options(plan, phase)["num_warps"]
    assert warps == 4 or 16 * warps <= sides[0]
