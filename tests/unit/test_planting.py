"""What is planted among inputs, what a task compares with, and the sides that branches take."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType, numpy_dtype
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.drawing import (
    Plants,
    fitted,
    literals,
    plant_floats,
    planted,
    plants_of,
)
from sketchc.runtime.cases.variants import Branches, other_values
from sketchc.runtime.tasks.description import Thresholds
from sketchc.runtime.tasks.task import load_task
from sketchc.runtime.verify.case_runner import share_of_numbers

SKETCH = """sketch f {
    symbols: M, N;
    params: mode: i64; flag: bool; scale: f32 = 2.0;
    tensors: X[M, N]: in f32; BIAS[N]: in f32?; Y[M, N]: out f32;
    constexpr: T = 32, LIMIT: f32 = 6.0;
    let: late = mode > 1 and flag;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            if late:
                min(x, LIMIT, x)
            else:
                if i == mode:
                    mul(x, scale, x)
            if present(BIAS):
                b = alloc([T])
                load(BIAS[j*T:(j+1)*T] -> b)
                add(x, b, x)
            row = i if flag else i
            store(x -> Y[row, j*T:(j+1)*T], where=row < 5000)
}
"""


@pytest.fixture(scope="module")
def sketch() -> ir.Sketch:
    tree, found = parse(Source("test.sketch", SKETCH))
    assert tree is not None, found
    made, found = elaborate(tree.sketches[0], {})
    assert made is not None, found
    return made


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16, DType.F64])
def test_numbers_and_their_neighbours_are_planted(dtype: DType) -> None:
    plants = Plants((0.25, 1.75), shown=True)
    random = np.random.default_rng(0)
    drawn = random.standard_normal(4000).astype(numpy_dtype(dtype))
    found = plant_floats(drawn, dtype, plants, [], lambda value: True, random, extremes=False)
    held = set(found.astype(np.float64))
    for number in (0.25, 1.75, -0.25, 1.5, 2.0, 0.0):
        assert number in held
    exact = np.asarray(1.75).astype(drawn.dtype)
    for way in (-np.inf, np.inf):
        assert float(np.nextafter(exact, np.asarray(way).astype(drawn.dtype))) in held
    assert np.count_nonzero(found != drawn) <= drawn.size // 4
    assert (np.signbit(found) & (found == 0)).any()


def test_what_a_type_cannot_hold_is_planted_where_the_task_shows_its_operations() -> None:
    """0.1 in f32 is above 0.1: a task that nobody looked into would compare with another number."""
    assert float(np.float32(0.1)) in Plants((0.1,), shown=True).floats(DType.F32)
    assert Plants((0.1,)).floats(DType.F32) == []
    assert 0.25 in Plants((0.25,)).floats(DType.F32)
    assert Plants((1e30, math.pi * 1e9), shown=True).floats(DType.F32) == []


def test_extremes_are_for_tasks_that_select() -> None:
    assert Plants(selects=False).extremes(DType.F32) == []
    assert float(np.finfo(np.float32).max) in Plants(selects=True).extremes(DType.F32)


def test_integers_stay_in_their_range() -> None:
    random = np.random.default_rng(1)
    drawn = random.integers(3, 40, 2000)
    found = planted(drawn, Plants((7, 100, 2.5)).integers(3, 40), random)
    assert found.min() == 3
    assert found.max() == 39
    assert {6, 7, 8} <= set(found.tolist())


def test_one_element_is_sometimes_left_as_it_was() -> None:
    plants = Plants((0.5,))
    kept = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        array = np.full(1, 9.0, np.float32)
        found = plant_floats(
            array, DType.F32, plants, [], lambda value: True, random, extremes=False
        )
        kept += int(found[0] == 9.0)
    assert 20 <= kept < 40


def test_literals_of_a_sketch(sketch: ir.Sketch) -> None:
    found = set(literals(sketch))
    assert {1, 6.0, 5000} <= found
    assert 32 not in found  # a tile size
    assert plants_of(sketch, {"mode": 9, "flag": True}, Thresholds((0.5,))).numbers[:2] == (9, 0.5)


def test_a_task_tells_its_thresholds(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n\n"
        "def f(x):\n"
        "    edges = torch.tensor([0.125, 0.5])\n"
        "    k = torch.bucketize(x, edges)\n"
        "    y = torch.nn.functional.hardswish(x).to(k.dtype)\n"
        "    return torch.where(x >= 0.75, k, -k) + y\n\n"
        "def select(x):\n"
        "    return x.clamp(-2.0, 3.0).amax(1)\n\n"
        "def get_inputs():\n    return [torch.randn(6, 7)]\n"
    )
    for name, numbers, selects in (
        ("f", {0.125, 0.5, 0.75, -3.0, 3.0}, False),
        ("select", {-2.0, 3.0}, True),
    ):
        with load_task(f"{path}:{name}") as task:
            task.describe()
            found = task.thresholds(task.own_inputs(0))
        assert numbers <= set(found.numbers)
        assert found.selects is selects
        assert found.shown


def test_a_task_in_numpy_tells_the_numbers_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import numpy as np\n\nLIMIT = 0.75\n\n"
        "def f(x):\n    return x * (x > 0.5) * LIMIT\n\n"
        "def get_inputs():\n    return [np.ones(11, np.float32)]\n"
    )
    with load_task(str(path)) as task:
        task.describe()
        found = task.thresholds(task.own_inputs(0))
    assert found.numbers == (0.75, 0.5)
    assert not found.shown


def test_sides_of_branches(sketch: ir.Sketch) -> None:
    """Those of params, through lets, in loops, of optional tensors and of choices."""
    branches = Branches(sketch)
    texts = {decision.text(holds=True) for decision in branches.decisions}
    assert any("BIAS" in text for text in texts)
    assert branches.names == {"mode", "flag", "BIAS"}
    assert 1 not in branches.literals("scale")

    def taken(mode: int, flag: bool, *absent: str) -> set[str]:
        found = branches.sides({"M": 3, "N": 40}, {"mode": mode, "flag": flag}, absent)
        return {branches.decisions[place].text(holds=holds) for place, holds in found}

    assert "`late` holds" in taken(2, True)
    assert "`late` does not hold" in taken(2, False)
    assert {"`i == mode` holds", "`i == mode` does not hold"} <= taken(1, True)
    assert "`i == mode` holds" not in taken(7, False)
    assert not any("i == mode" in text for text in taken(2, True))
    assert any("BIAS" in text and "not" in text for text in taken(0, True, "BIAS"))
    assert "`flag` holds" in taken(0, True)
    loops = {d.text(holds=True): d.alone for d in branches.decisions}
    assert not loops["`i == mode` holds"]
    assert loops["`late` holds"]


def test_other_values_of_a_number() -> None:
    assert other_values(True, []) == [False]
    assert other_values(3, [2])[:3] == [2, 1, 4]
    assert 3 not in other_values(3, [2, 3])
    assert other_values(0.5, [])[:2] == [0.75, 0.25]
    assert 0.0 not in other_values(0.0, [])


def test_numbers_among_references() -> None:
    assert share_of_numbers([np.array([1.0, np.nan, np.inf, 2.0])]) == 0.5
    assert share_of_numbers([np.array([np.nan]), np.array([1, 2, 3])]) == 0.75
    assert share_of_numbers([np.zeros((0, 3))]) == 1.0


def test_inputs_like_the_tasks_own_keep_their_structure() -> None:
    mask = np.tril(np.ones((4, 4)))
    assert np.array_equal(fitted(mask, (3, 3)), np.tril(np.ones((3, 3))))
    rows = fitted(np.arange(6.0).reshape(2, 3), (5, 2))
    assert np.array_equal(rows[:, 0], [0, 3, 0, 3, 0])
