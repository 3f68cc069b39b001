"""Probes of a task at other sizes end where loops over them make far more calls than the task."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

pytest.importorskip("torch")

from sketchc.runtime.tasks.description import TaskFailure
from sketchc.runtime.tasks.task import TorchTask

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y = x[:, 0]
        {loops}
        return y


def get_inputs():
    return [torch.randn(4, {size})]


def get_init_inputs():
    return []
"""
CUBIC = """
        for i in range(x.shape[1]):
            for j in range(i):
                for k in range(j):
                    y = y + 1.0
"""
LONG = """
        for i in range(20000):
            y = y + 1.0
"""


def written(folder: Path, loops: str, size: int) -> Path:
    path = folder / "task.py"
    path.write_text(TASK.format(loops=loops.strip(), size=size))
    return path


def test_a_loop_of_loops_ends(tmp_path: Path) -> None:
    with TorchTask(written(tmp_path, CUBIC, 6)) as task:
        (own,) = task.describe().inputs
        assert task.probe([attrs.evolve(own, shape=(5, 11))], {})[0][0].shape == (5,)
        with pytest.raises(TaskFailure, match="too many calls"):
            task.probe([attrs.evolve(own, shape=(5, 90))], {})


def test_a_task_that_makes_many_calls_may_make_them(tmp_path: Path) -> None:
    with TorchTask(written(tmp_path, LONG, 6)) as task:
        (own,) = task.describe().inputs
        assert task.probe([attrs.evolve(own, shape=(5, 7))], {})[0][0].shape == (5,)
