"""Designs for GPUs of tensors that are turned, in blocks of two axes, are proved and mean what
PyTorch computes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from test_autosketch import Task, proved_and_right, written

from sketchc.agents.autosketch.designer import design
from sketchc.runtime.tasks.task import load_task

#: An image with its channels last and back, a sum of a matrix and another one turned, one that is
#: turned and converted, and one read both ways.
TURNED: dict[str, Task] = {
    "channels_last": ("x.permute(0, 2, 3, 1).contiguous()", ((2, 20, 7, 9),)),
    "channels_first": ("x.permute(0, 3, 1, 2).contiguous()", ((2, 7, 9, 20),)),
    "sum_of_both": ("torch.relu(x.t()) * 2.0 + w", ((19, 33), (33, 19))),
    "converted": ("x.transpose(1, 2).to(torch.float16).contiguous()", ((3, 37, 18),)),
    "symmetric": ("(x - x.t()) / 2.0", ((35, 35),)),
}


@pytest.mark.parametrize("name", TURNED)
def test_turned_tensors_mean_the_task(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, TURNED[name])
    with load_task(str(path)) as task:
        text = design(task, planes=True)
        assert "transpose(" in text
        assert "transpose(" not in design(task)
    proved_and_right(name, text, path)


def test_few_channels_are_not_blocks(tmp_path: Path) -> None:
    path = written(tmp_path, "pixels", ("x[..., :3].permute(0, 3, 1, 2) * 2.0", ((2, 7, 9, 3),)))
    with load_task(str(path)) as task:
        text = design(task, planes=True)
    assert "transpose(" not in text
    proved_and_right("pixels", text, path)
