"""Integers that stand apart from the others, as the label that a loss ignores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from sketchc.runtime.cases.drawing import draw
from sketchc.runtime.cases.lists import bind_task
from sketchc.runtime.cases.marks import apart
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.tasks.inputs import LIKE
from sketchc.runtime.tasks.signature import signature_of
from sketchc.runtime.tasks.task import load_task

TASK = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, scores, labels):
        return {result}


def get_inputs():
    labels = torch.arange(60).reshape(4, 15) % 7
    return [torch.randn(4, 7, 15), torch.where(labels == 3, {mark}, labels)]


def get_init_inputs():
    return []
"""
LOSS = "F.cross_entropy(scores, labels, ignore_index={mark}, reduction='none')"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 2, 3, 4, 255], (255,)),
        ([-100, 0, 1, 2, 5, 6, 9], (-100,)),
        ([-1, 0, 1, 2, 3], ()),
        ([0, 255], ()),
        ([7], ()),
        ([3, 90, 201, 322, 480], ()),
        ([*range(20), *range(500, 520)], ()),
    ],
)
def test_few_numbers_far_from_the_others(values: list[int], expected: tuple[int, ...]) -> None:
    assert apart(np.array(values * 3)) == expected


@pytest.mark.parametrize("mark", [255, -100])
@pytest.mark.parametrize("kind", ["normal", "large", LIKE])
def test_a_loss_gets_labels_and_the_one_that_it_ignores(
    mark: int, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "loss.py"
    path.write_text(TASK.format(result=LOSS.format(mark=mark), mark=mark))
    with load_task(str(path)) as task:
        sketch = signature_of(task, "loss")
        binding = bind_task(sketch, task, 0)
        assert binding.marks == {1: (mark,)}
        symbols = {**binding.symbols, sketch.symbols[0].name: 40}
        inputs = draw(binding, task, ShapeCase("drawn", symbols), kind, 5, {})
        labels = inputs.arguments[1]
        assert isinstance(labels, np.ndarray)
        assert set(labels.reshape(-1)) <= {*range(7), mark}
        assert 0 < np.mean(labels == mark) < 0.5
        task.reference(inputs.arguments)  # which takes them


def test_a_task_that_takes_the_numbers_between_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "sum.py"
    path.write_text(TASK.format(result="scores.sum(1) + labels", mark=255))
    with load_task(str(path)) as task:
        binding = bind_task(signature_of(task, "sum_of"), task, 0)
        assert not binding.marks
        case = ShapeCase("drawn", binding.symbols)
        labels = draw(binding, task, case, "normal", 5, {}).arguments[1]
        assert isinstance(labels, np.ndarray)
        assert np.any((labels > 6) & (labels < 255))
