"""The plan: what the passes promise, on every example and target, and what is printed."""

from __future__ import annotations

import numpy as np
import pytest
from example_sizes import inputs_for, params_for, sizes_for
from example_targets import EXAMPLES, LOWERED

from sketchc.base.diagnostics import DiagnosticError, Source, UsageError
from sketchc.checker.api import check
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.passes.pipeline import PlannedSketch, build_plan
from sketchc.lowering.plan_text import print_plan, print_sketch
from sketchc.lowering.registry import TARGETS, load_target
from sketchc.parsing.parser import parse


def planned(text: str, target: str, **constants: int) -> PlannedSketch:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    return build_plan(tree.sketches[0], target, None, constants)


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.sketch").read_text("utf-8")


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "target"), LOWERED)
def test_the_printed_plan_is_a_sketch_with_the_same_meaning(name: str, target: str) -> None:
    plan = planned(example(name), target).plan
    params = params_for(plan.sketch)
    symbols = sizes_for(plan.sketch, (3, 7, 2, 11), params)
    inputs = inputs_for(plan.sketch, symbols, params, seed=7)
    expected = interpret(plan.sketch, inputs, symbols, params).outputs
    for text in (print_plan(plan), print_sketch(plan.sketch)):
        again = check(Source("printed.sketch", text))
        assert again.ok, [d.message for d in again.diagnostics]
        got = interpret(again.sketches[0].sketch, inputs, symbols, params).outputs
        assert got.keys() == expected.keys()
        for tensor, values in expected.items():
            np.testing.assert_array_equal(got[tensor], values)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "target"), LOWERED)
def test_no_parallel_loop_is_left_in_an_examples_body(name: str, target: str) -> None:
    plan = planned(example(name), target).plan
    for phase in plan.phases:
        nested = walk.statements(plan.sketch.phases[phase.index].body)
        parallel = any(isinstance(s, ir.For) and s.parallel for s in nested)
        assert bool(phase.grid) == parallel
        assert not any(isinstance(s, ir.For) and s.parallel for s in walk.statements(phase.body))
        assert set(plan.tiles) == {tile.name for tile in plan.sketch.tiles}


def test_a_symbolic_axis_without_cross_lane_operations_is_split_over_the_grid() -> None:
    plan = planned(example("rms"), "triton_cuda").plan
    assert [axis.variable for axis in plan.phases[0].grid] == ["b", "d1_outer", "d2_block"]
    assert all(e.value is not None for tile in plan.tiles.values() for e in tile.extents)


def test_an_axis_that_a_reduction_crosses_is_not_split() -> None:
    plan = planned(example("softmax"), "triton_cuda").plan
    assert [axis.variable for axis in plan.phases[0].grid] == ["i"]
    assert plan.tiles["x"].extents[0].bucket_of == ir.Ref("N", ir.NameKind.SYMBOL)


_UNBOUNDED = """
sketch row_sum {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        y = alloc([1])
        load(X[i, 0:N] -> x)
        reduce_sum(x, 0, y)
        store(y -> Y[i:i+1])
}
"""


def test_an_unbounded_tile_axis_is_bounded_at_launch_by_what_fits() -> None:
    """The generated bound fits and twice the bound does not."""
    plan = planned(_UNBOUNDED, "triton_ascend").plan
    bounds = [r for r in plan.sketch.requires if r.generated]
    assert len(bounds) == 1
    limit = next(n for n in (2**k for k in range(21)) if not evaluate(
        bounds[0].condition, {"N": n + 1}))  # fmt: skip
    declared = _UNBOUNDED.replace("symbols: M, N;", f"symbols: M, N <= {limit};")
    planned(declared, "triton_ascend")
    doubled = _UNBOUNDED.replace("symbols: M, N;", f"symbols: M, N <= {2 * limit};")
    with pytest.raises(DiagnosticError) as refused:
        planned(doubled, "triton_ascend")
    assert {d.code for d in refused.value.diagnostics} == {"SK0701"}


def test_a_users_constant_beats_the_plans_choice() -> None:
    plan = planned(example("rms"), "triton_ascend", TILE_SIZE=4).plan
    chosen = {c.name: (c.value, c.chosen_by) for c in plan.sketch.constants}
    assert chosen["TILE_SIZE"] == (4, "user")
    assert "TILE_SIZE" not in " ".join(plan.notes)


def test_what_the_chip_cannot_do_is_refused_before_emission() -> None:
    text = example("matmul").replace("in f32", "in f64").replace("out f32", "out f64")
    text = text.replace("f32, init", "f64, init")
    with pytest.raises(DiagnosticError) as refused:
        planned(text, "triton_ascend")
    assert {d.code for d in refused.value.diagnostics} == {"SK0703"}


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [("gelu(1.5, y)", False), ("gelu(p, y)", True), ("add(1.5, 2.5, y)", True)],
)
def test_operations_on_numbers_alone_need_the_type_of_numbers(
    statement: str, allowed: bool
) -> None:
    text = f"""sketch numbers {{
    params: p: f32;
    tensors: Y[8]: out f32;
    y = alloc([8], f32)
    {statement}
    store(y -> Y[:])
}}
"""
    planned(text, "triton_cuda")
    if allowed:
        planned(text, "triton_ascend")
        return
    with pytest.raises(DiagnosticError) as refused:
        planned(text, "triton_ascend")
    assert {d.code for d in refused.value.diagnostics} == {"SK0703"}


@pytest.mark.parametrize(("operand", "allowed"), [("half", False), ("p", True), ("1.5", True)])
def test_a_cast_looks_at_a_scalar_in_its_own_type(operand: str, allowed: bool) -> None:
    text = f"""sketch seen {{
    params: p: f32;
    let: half = p/2;
    tensors: Y[8]: out i32;
    y = alloc([8], i32)
    cast({operand}, y)
    store(y -> Y[:])
}}
"""
    if allowed:
        planned(text, "triton_ascend")
        return
    with pytest.raises(DiagnosticError) as refused:
        planned(text, "triton_ascend")
    assert {d.code for d in refused.value.diagnostics} == {"SK0703"}
    planned(text, "triton_cuda")


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_precision_is_a_floor(precision: str) -> None:
    """A target without it multiplies with more precision, and says so."""
    text = example("matmul").replace("gemm(a, b, c)", f'gemm(a, b, c, precision="{precision}")')
    assert precision in " ".join(planned(text, "triton_ascend").plan.notes)
    assert precision not in " ".join(planned(text, "triton_cuda").plan.notes)
    assert precision not in " ".join(planned(example("matmul"), "triton_ascend").plan.notes)


def test_unknown_targets_and_chips_are_named() -> None:
    with pytest.raises(UsageError, match="triton_ascend"):
        planned(example("relu"), "cuda_tile")
    tree, _ = parse(Source("x", example("relu")))
    assert tree is not None
    with pytest.raises(UsageError, match="ascend910b4"):
        build_plan(tree.sketches[0], "cpp", "a100000")


def test_a_chip_of_another_target_is_refused_with_those_that_fit() -> None:
    tree, _ = parse(Source("x", example("relu")))
    assert tree is not None
    with pytest.raises(UsageError, match=r"cpp does not run on h200; it has: cpu"):
        build_plan(tree.sketches[0], "cpp", "h200")


def test_the_cpp_plan_says_which_tiles_are_left_in_memory() -> None:
    """rms keeps what crosses loops, and nothing else."""
    tiles = planned(example("rms"), "cpp").plan.tiles
    fused = {name for name, placed in tiles.items() if placed.memory == "fused"}
    assert fused == {"x_row", "x_row_2", "square_row", "y_row"}
    assert all(tiles[name].bytes == 0 for name in fused)


@pytest.mark.parametrize("target", TARGETS)
def test_a_phase_that_stores_nothing_is_not_launched(target: str) -> None:
    text = (
        "sketch s {\n    symbols: M;\n    tensors: X[M]: in f32; Y[M]: out f32;\n"
        "    constexpr: T = 64;\n    idle = alloc([8], f32)\n    fill(1.0, idle)\n"
        '    @llm_hint("parallel")\n    for i in range(ceil(M, T)):\n'
        "        x = alloc([T], f32)\n        load(X[i*T:(i+1)*T] -> x)\n"
        "        store(x -> Y[i*T:(i+1)*T])\n}\n"
    )
    plan = planned(text, target).plan
    assert [phase.index for phase in plan.phases] == [1]
    assert any("stores nothing" in note for note in plan.notes)
    assert load_target(target).emit(plan).source
