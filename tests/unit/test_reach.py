"""How many elements of an input reach one of an output, and what follows for the tolerance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sketchc.base.types import DType
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.cases.reach import Reach, find_freedom, find_reach
from sketchc.runtime.cases.sums import reduction_length
from sketchc.runtime.tasks.signature import signature_of, signature_plan
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.verify.compare import compare

pytest.importorskip("torch")

TASK = """import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def reach_of(folder: Path, forward: str, inputs: str, arguments: str = "x") -> Reach | None:
    path = folder / "task.py"
    path.write_text(TASK.format(forward=forward, inputs=inputs, arguments=arguments))
    with TorchTask(path) as task:
        binding = bind(signature_of(task, "f"), task.describe())
        return find_reach(binding, task, find_freedom(binding, task))


@pytest.mark.parametrize(
    ("forward", "inputs", "planes"),
    [
        ("torch.relu(x)", "torch.randn(4096, 6144)", {"X": (1, 1)}),
        ("torch.softmax(x, 1)", "torch.randn(60, 40)", {"X": (1, None)}),
        ("torch.cumsum(x, 0)", "torch.randn(60, 40)", {"X": (None, 1)}),
        ("x.max(1).values", "torch.randn(60, 40)", {"X": (1, None)}),
        ("torch.topk(x, 2, 1).values", "torch.randn(60, 40)", {"X": (1, None)}),
        ("F.max_pool2d(x, 3, 1)", "torch.randn(2, 9, 60, 40)", {"X": (1, 1, 3, 3)}),
        ("x.flip(1) * 2", "torch.randn(60, 40)", {"X": (1, 1)}),
        ("(x > 0).float() * x", "torch.randn(60, 40)", {"X": (1, 1)}),
        ("x.log()", "torch.rand(60, 40) + 1", {"X": (1, 1)}),
        ("x.log().sum(1)", "torch.rand(60, 40) + 1", {"X": (1, None)}),
        ("x.argmax(1)", "torch.randn(60, 40)", {"X": (0, 0)}),
    ],
)
def test_what_one_tensor_reaches(
    tmp_path: Path, forward: str, inputs: str, planes: dict[str, tuple[int | None, ...]]
) -> None:
    found = reach_of(tmp_path, forward, inputs)
    assert found is not None
    assert found.planes == planes


def test_two_tensors_and_indices(tmp_path: Path) -> None:
    product = reach_of(tmp_path, "x @ y", "torch.randn(60, 40), torch.randn(40, 50)", "x, y")
    assert product is not None
    assert product.planes == {"X": (1, None), "X2": (None, 1)}
    index = "torch.randn(50, 40), torch.randint(0, 50, (60,))"
    rows = reach_of(tmp_path, "x[y]", index, "x, y")
    assert rows is not None
    assert rows.planes["X"] == (1, 1)
    # Which rows meet in one is for the indices to say: any number of them.
    sums = reach_of(
        tmp_path,
        "torch.zeros_like(x).index_add(0, y, x)",
        "torch.randn(60, 40), torch.randint(0, 60, (60,))",
        "x, y",
    )
    assert sums is not None
    assert sums.planes["X"][0] is None


def test_a_task_that_takes_no_small_sizes_says_nothing(tmp_path: Path) -> None:
    forward = "torch.relu(x) if x.shape[0] > 400 else None.no"
    found = reach_of(tmp_path, forward, "torch.randn(500, 40)")
    assert found is None
    # NaN everywhere would hide what reaches.
    assert reach_of(tmp_path, "(x - 2).log()", "torch.rand(60) + 3") is None


def test_the_length_follows_the_sizes() -> None:
    reach = Reach({"X": (1, None, 3), "W": (None, 1)})
    assert reach.length({"X": (90, 7, 50), "W": (5, 900)}) == 21
    assert reach.length({"X": (90, 7, 2), "W": (50, 900)}) == 50
    assert reach.length({"X": (1, 1, 0), "W": (0, 0)}) == 1


def test_a_result_rounded_to_f16_fails_at_any_size(tmp_path: Path) -> None:
    """What passed when the tolerance allowed for a sum over all of the input."""
    path = tmp_path / "task.py"
    path.write_text(
        TASK.format(forward="torch.relu(x)", inputs="torch.randn(4096, 6144)", arguments="x")
    )
    with TorchTask(path) as task:
        plan = signature_plan(signature_of(task, "f"), "cpp")
        binding = bind(plan.sketch, task.describe())
        reach = find_reach(binding, task, find_freedom(binding, task))
    assert reduction_length(plan, binding, binding.symbols) == 4096 * 6144
    length = reduction_length(plan, binding, binding.symbols, reach)
    assert length == 1
    right = np.abs(np.random.default_rng(1).standard_normal(10_000)).astype(np.float32)
    narrow = right.astype(np.float16).astype(np.float32)
    assert compare("Y", right, right.astype(np.float64), DType.F32, length).passed
    assert not compare("Y", narrow, right.astype(np.float64), DType.F32, length).passed
    assert compare("Y", narrow, right.astype(np.float64), DType.F32, 4096 * 6144).passed


@pytest.mark.parametrize("length", [64, 4096, 65_536])
def test_plain_sums_in_f32_pass_at_their_length(length: int) -> None:
    """The order of a loop, whose error grows most with the length."""
    random = np.random.default_rng(length)
    for draw in (random.standard_normal, random.random):
        terms = np.asarray(draw((length, 64)), np.float32)
        total = np.zeros(64, np.float32)
        for row in terms:
            total += row
        exact = terms.astype(np.float64).sum(0)
        found = compare("Y", total, exact, DType.F32, length)
        assert found.passed, (draw, found.worst)
        assert math.isfinite(found.worst)
