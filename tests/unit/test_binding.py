"""Binding: other values of constants by substitution, exactly where elaborating again gives no
other sketch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sketchc.base.diagnostics import DiagnosticError, Source
from sketchc.checker.elaboration.elaborate import elaborate, elaboration, tuning_points
from sketchc.lowering.passes.pipeline import Planner, planner
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.sketch"))

SCALE = """
sketch scale {
    symbols: M;
    tensors: A[M]: in f32; B[M]: out f32;
    constexpr: TM = 64 in [16, 32, 64, 128], HALF = TM // 2, K = 3, EPS = 0.5;
    params: S = 2.0;
    require: M >= 1;

    @llm_hint("parallel")
    for m in range(ceil(M, TM)):
        x = alloc([TM])
        load(A[m*TM:(m+1)*TM] -> x)
        BODY
        store(x -> B[m*TM:(m+1)*TM])
}
"""
BRANCH = "if TM >= 64:\n            mul(x, 2.0, x)\n        else:\n            mul(x, 3.0, x)"
LOOP = "for k in range(0, 8, TM - 32):\n            mul(x, S, x)"
QUOTIENT = "for k in range(8 // (TM - 16)):\n            mul(x, S, x)"
LANES = "w = alloc([HALF])\n        fill(0.0, w)"


def _sketches(path: Path) -> tuple[syntax.Sketch, ...]:
    tree, _ = parse(Source(str(path), path.read_text()))
    assert tree is not None
    return tree.sketches


def _sketch(text: str) -> syntax.Sketch:
    tree, found = parse(Source("x.sketch", text))
    assert tree is not None, found
    return tree.sketches[0]


def _odd_points(tree: syntax.Sketch) -> list[dict[str, Any]]:
    """Sizes that no plan would choose: one, an odd one, and one that is too large."""
    sketch = elaborate(tree, {})[0]
    names = [c.name for c in sketch.constants] if sketch is not None else []
    return [dict.fromkeys(names, size) for size in (0, 1, 3, 1000)] + [
        {name: size} for name in names for size in (-1, 2, 48)
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_binding_gives_what_elaborating_again_gives(path: Path) -> None:
    for tree in _sketches(path):
        done = elaboration(tree, {})
        for point in [{}, *tuning_points(tree, {}), *_odd_points(tree)]:
            bound = done.bind(point)
            if bound is not None:
                sketch, found = elaborate(tree, point)
                assert bound == sketch
                assert repr(bound.constants) == repr(sketch.constants)
                assert found == done.diagnostics


@pytest.mark.parametrize("name", ["rms", "matmul", "causal_attention", "conv2d"])
def test_tile_sizes_are_substituted(name: str) -> None:
    tree = _sketches(Path(__file__).parents[2] / "examples" / f"{name}.sketch")[0]
    points = tuning_points(tree, {})
    assert points
    assert all(elaboration(tree, {}).bind(point) is not None for point in points)


@pytest.mark.parametrize(
    ("body", "point", "substituted"),
    [
        pytest.param("mul(x, S, x)", {"TM": 16}, True, id="a tile size"),
        pytest.param(LANES, {"TM": 32}, True, id="a size made from it"),
        pytest.param(LANES, {"TM": 1}, False, id="that leaves no lanes"),
        pytest.param(BRANCH, {"TM": 128}, True, id="the same branch"),
        pytest.param(BRANCH, {"TM": 32}, False, id="the other branch"),
        pytest.param(LOOP, {"TM": 128}, True, id="the same direction"),
        pytest.param(LOOP, {"TM": 16}, False, id="the other direction"),
        pytest.param(QUOTIENT, {"TM": 32}, True, id="a divisor of the same sign"),
        pytest.param(QUOTIENT, {"TM": 16}, False, id="a divisor of nothing"),
        pytest.param("mul(x, EPS, x)", {"EPS": 0.25}, False, id="data"),
        pytest.param("mul(x, S, x)", {"K": 4}, False, id="a fixed constant"),
        pytest.param("mul(x, S, x)", {"S": 3.0}, False, id="a param"),
        pytest.param("mul(x, S, x)", {"NOTHING": 3}, True, id="no name of the sketch"),
    ],
)
def test_only_what_elaboration_did_not_decide_on_is_substituted(
    body: str, point: dict[str, Any], substituted: bool
) -> None:
    tree = _sketch(SCALE.replace("BODY", body))
    done = elaboration(tree, {})
    assert done.sketch is not None, done.diagnostics
    bound = done.bind(point)
    assert (bound is not None) == substituted
    if bound is not None:
        assert bound == elaborate(tree, point)[0]


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["triton_cuda", "triton_ascend", "cpp"])
@pytest.mark.parametrize("name", ["rms", "softmax", "matmul", "causal_attention"])
def test_a_planner_gives_the_plans_of_its_points(name: str, target: str) -> None:
    tree = _sketches(Path(__file__).parents[2] / "examples" / f"{name}.sketch")[0]
    many = planner(tree, target)
    for point in [{}, *tuning_points(tree, {})[:4], {}]:
        assert _outcome(many, point) == _outcome(planner(tree, target), point)


def _outcome(many: Planner, point: dict[str, Any]) -> object:
    try:
        return many.plan(point)
    except DiagnosticError as error:
        return error.diagnostics


def test_a_planner_takes_the_sizes_of_the_blocks_that_it_makes() -> None:
    many = planner(
        _sketches(Path(__file__).parents[2] / "examples" / "rms.sketch")[0], "triton_cuda"
    )
    sketch = many.plan({"TILE_SIZE": 4, "D2_BLOCK": 256}).plan.sketch
    assert [(c.name, c.value, c.chosen_by) for c in sketch.constants] == [
        ("TILE_SIZE", 4, "user"),
        ("D2_BLOCK", 256, "user"),
    ]
