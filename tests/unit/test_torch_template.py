"""Tasks share a process that has imported torch, and nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

from sketchc.runtime.process import peer
from sketchc.runtime.tasks.task import TorchTask

TASK = """
import sys, torch
from torch import nn

LEFT = "left_behind" in sys.modules
sys.modules["left_behind"] = sys

class Model(nn.Module):
    def forward(self, x):
        return x * {factor} {more}

def get_inputs():
    return [torch.ones(3)]
"""


def write(folder: Path, name: str, factor: float, more: str = "") -> Path:
    path = folder / f"{name}.py"
    path.write_text(TASK.format(factor=factor, more=more))
    return path


def outputs(task: TorchTask) -> list[float]:
    (result,) = task.reference([np.ones(3, np.float32)])
    return [float(value) for value in result]


def test_tasks_live_side_by_side(tmp_path: Path) -> None:
    seen = "+ (1.0 if LEFT else 0.0)"
    with (
        TorchTask(write(tmp_path, "a", 2.0)) as first,
        TorchTask(write(tmp_path, "b", 3.0, seen)) as second,
    ):
        assert first.process.pid != second.process.pid
        assert os.getpgid(first.process.pid) == first.process.pid
        assert outputs(first) == [2.0] * 3
        assert outputs(second) == [3.0] * 3
    assert first.process.wait() == second.process.wait() == -signal.SIGKILL


def test_a_template_that_is_gone_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 2.0)
    with TorchTask(path) as task:
        assert isinstance(task.process, peer.ForkedProcess)
        template = task.process.template
        template.process.kill()
        template.process.wait()
        assert outputs(task) == [2.0] * 3
        assert task.process.template is not template
    with TorchTask(path) as task:
        assert outputs(task) == [2.0] * 3


def test_a_task_does_not_outlive_its_template(tmp_path: Path) -> None:
    with TorchTask(write(tmp_path, "a", 2.0)) as task:
        process = task.process
        peer.close_templates()
        assert process.wait() == -signal.SIGKILL
