"""The tuning space of a sketch: which constants vary, over which values, and what does not plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.base.types import Scalar
from sketchc.lowering.passes.choose_constants import POWERS
from sketchc.lowering.passes.pipeline import planner
from sketchc.lowering.passes.space import MOST_POINTS, Space
from sketchc.parsing.parser import parse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

OPEN = """sketch scale {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: TM, TN in [32, 64, 96];
    @llm_hint("parallel")
    for i in range(ceil(M, TM)):
        @llm_hint("parallel")
        for j in range(ceil(N, TN)):
            x = alloc([TM, TN])
            load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            mul(x, 2.0, x)
            store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}
"""
LISTED = OPEN.replace(" in [32, 64, 96]", "") + (
    "\navailable_tiling:\n    TM = 8, TN = 64\n    TM = 16, TN = 32\n"
)
_PARAM = "    params: P: f32 = 2.0;\n    tensors"


def space(text: str, target: str = "cpp", **fixed: Scalar) -> Space:
    tree, _ = parse(Source("x.sketch", text))
    assert tree is not None
    return Space(planner(tree.sketches[0], target), fixed)


def example(name: str, target: str = "cpp", **fixed: Scalar) -> Space:
    return space((EXAMPLES / f"{name}.sketch").read_text("utf-8"), target, **fixed)


def test_constants_take_their_sets_or_powers_of_two() -> None:
    found = space(OPEN)
    assert {axis.name: axis.values for axis in found.axes} == {"TM": POWERS, "TN": (32, 64, 96)}
    assert len(found.points) == 3 * len(POWERS)
    assert found.points[0] == found.default
    assert len({tuple(sorted(point.items())) for point in found.points}) == len(found.points)


def test_what_is_set_does_not_vary() -> None:
    found = space(OPEN, TM=5)
    assert [axis.name for axis in found.axes] == ["TN"]
    assert [set(point) for point in found.points] == [{"TN"}] * 3
    assert {c.name: c.value for c in found.plan({"TN": 96}).plan.sketch.constants} == {
        "TM": 5,
        "TN": 96,
    }
    assert space(OPEN, TM=5, TN=96).points == ({},)


def test_an_available_tiling_lists_its_points() -> None:
    found = space(LISTED)
    assert list(found.points) == [{"TM": 8, "TN": 64}, {"TM": 16, "TN": 32}]
    assert {axis.name: axis.values for axis in found.axes} == {"TM": (8, 16), "TN": (64, 32)}


def test_listed_points_have_the_names_of_the_plan_and_no_params() -> None:
    """`class` is a word of generated code, and another param has other results."""
    text = LISTED.replace("TM", "class").replace("2.0", "P").replace("    tensors", _PARAM, 1)
    found = space(f"{text}    class = 32, TN = 32, P = 3.0\n")
    assert list(found.points) == [{"class_": 8, "TN": 64}, {"class_": 16, "TN": 32}]
    assert [found.plan(point).plan.sketch.name for point in found.points] == ["scale"] * 2


def test_constants_that_are_data_do_not_vary() -> None:
    assert [axis.name for axis in example("pixel_shuffle").axes] == ["T"]
    assert example("softmax").points == ({},)


def test_sizes_of_blocks_that_the_plan_makes_vary_too() -> None:
    found = example("rms", "triton_cuda")
    names = [axis.name for axis in found.axes]
    assert names == ["TILE_SIZE", "D2_BLOCK", "num_warps", "num_stages"]
    chosen = found.plan({"TILE_SIZE": 4, "D2_BLOCK": 64}).plan.sketch.constants
    assert {c.name: c.value for c in chosen} == {"TILE_SIZE": 4, "D2_BLOCK": 64}


def test_a_point_that_does_not_fit_the_chip_does_not_plan() -> None:
    found = example("rms")
    assert found.plan({"TILE_SIZE": 1}).plan.phases
    with pytest.raises(DiagnosticError) as caught:
        found.plan({"TILE_SIZE": 4096})
    assert caught.value.diagnostics[0].code == "SK0701"


def test_vectors_double_as_sizes_do() -> None:
    found = space(OPEN)
    assert found.vector({"TM": 8, "TN": 32}) == [3.0, 5.0]


def test_of_a_large_product_the_same_part_is_taken_each_time() -> None:
    names = [f"T{number}" for number in range(4)]
    extents, sizes = ", ".join("ABCD"), ", ".join(names)
    slices = ", ".join(f"0:{name}" for name in names)
    text = f"""sketch large {{
        symbols: {extents};
        tensors: X[{extents}]: in f32; Y[{extents}]: out f32;
        constexpr: {sizes};
        @llm_hint("parallel")
        for i in range(ceil(A, T0)):
            for j in range(ceil(B, T1)):
                for k in range(ceil(C, T2)):
                    for l in range(ceil(D, T3)):
                        x = alloc([{sizes}])
                        load(X[{slices}] -> x)
                        store(x -> Y[{slices}])
    }}"""
    for name, loop in zip(names, "ijkl", strict=True):
        text = text.replace(f"0:{name}", f"{loop}*{name}:({loop}+1)*{name}")
    first, second = space(text).points, space(text).points
    assert first == second
    assert MOST_POINTS <= len(first) <= MOST_POINTS + 1
    assert first[0] == space(text).default


SIZES = {
    "matmul": {"M": 2048, "N": 2048, "K": 2048},
    "matmul_half": {"M": 40, "N": 4096, "K": 64},
    "sum_middle": {"B": 8, "M": 1024, "N": 1536},
    "rms": {"B": 16, "F": 64, "D1": 256, "D2": 256},
}


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
@pytest.mark.parametrize("name", SIZES)
def test_the_choice_at_sizes_is_a_point_and_plans_as_the_planner_does(
    name: str, target: str
) -> None:
    found = example(name, target)
    point = found.at_sizes(SIZES[name])
    assert point in found.points
    tree, _ = parse(Source("x.sketch", (EXAMPLES / f"{name}.sketch").read_text("utf-8")))
    assert tree is not None
    wanted = planner(tree.sketches[0], target, sizes=SIZES[name]).plan({}).plan
    plan = found.plan(point).plan
    assert {c.name: c.value for c in plan.sketch.constants} == {
        c.name: c.value for c in wanted.sketch.constants
    }
    asked = {name: value for name, value in plan.options.items() if value}
    assert asked == wanted.options


def test_what_is_set_is_no_choice_at_sizes() -> None:
    assert example("matmul", TM=32).at_sizes(SIZES["matmul"]).keys() == {"TN", "TK"}
