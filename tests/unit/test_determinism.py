"""A task that gives other outputs each time is refused, and no other task is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from sketchc.cli.main import run
from sketchc.runtime.tasks.description import TaskFailure
from sketchc.runtime.tasks.task import TorchTask

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Check = Callable[[str, str], None]


class Refused(Exception):
    """The worker refuses the task."""


TASK = """
import random
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.noise = nn.Parameter(torch.from_numpy(np.random.randn(width)).float())
    def forward(self, x):
{body}
def get_inputs():
    return [torch.randn({shape})]
def get_init_inputs():
    return [8]
"""
SMALL, LARGE = "(4, 8)", "(1 << 20, 8)"
SAME = {
    "arithmetic": "return self.linear(x) + self.noise",
    "dropout, which does nothing outside of training": "return self.dropout(x)",
    "rrelu, which draws nothing outside of training": "return F.rrelu(x)",
    "no numbers": "return x * float('nan'), (x > 0) * float('inf')",
    "integers": "return x.argmax(-1), x > 0",
    "inputs that are overwritten": "return x.mul_(3.0).add_(1.0)",
    "a buffer that is overwritten": "self.calls += 1\nreturn x * self.calls",
    "a drawing that is seeded": "torch.manual_seed(3)\nreturn x + torch.randn_like(x)",
    "a generator of its own": (
        "own = torch.Generator().manual_seed(3)\nreturn x + torch.rand(8, generator=own)"
    ),
    "values of the input": "return x * 2 if x[0, 0].item() > 9 else x",
    "attention": "y = x.view(1, 1, -1, 8)[:, :, :4]\n"
    "return F.scaled_dot_product_attention(y, y, y)",
}
OTHER = {
    "noise": "return x + torch.randn_like(x)",
    "weak noise": "return x + 1e-5 * torch.rand_like(x)",
    "noise in one element": "y = x.clone()\ny[2, 3] = torch.rand(())\nreturn x, y",
    "dropout that is always on": "return F.dropout(x)",
    "random integers": "return torch.randint(0, 1 << 30, (4,))",
}
UNSEEDED = {
    "noise from NumPy": "return x + np.random.rand()",
    "noise from Python": "return x + random.random()",
    "a count that outlives the model": (
        "Model.count = getattr(Model, 'count', 0) + 1\nreturn x * Model.count"
    ),
    "another number of elements": "return x.new_zeros(random.randrange(1 << 20))",
}


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Ask the worker's code in this process; that it can be asked is tested elsewhere."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def ask(body: str, shape: str) -> None:
        from sketchc.runtime.tasks.worker import torch_worker
        from sketchc.runtime.tasks.worker.task_file import TaskError

        path = tmp_path / "task.py"
        path.write_text(TASK.format(body=indent(body, " " * 8), shape=shape))
        task = torch_worker.Task(path, "Model", makes_inputs=True)
        try:
            task.describe({"seed": 0})
            task.determinism({"seed": 5})
        except TaskError as error:
            raise Refused(str(error)) from None

    return ask


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("body", SAME.values(), ids=SAME)
def test_tasks_that_repeat_themselves_pass(body: str, shape: str, check: Check) -> None:
    check(body, shape)


@pytest.mark.parametrize("body", (OTHER | UNSEEDED).values(), ids=(OTHER | UNSEEDED))
def test_tasks_that_differ_are_refused(body: str, check: Check) -> None:
    with pytest.raises(Refused) as caught:
        check(body, SMALL)
    assert "not deterministic: two runs on the same inputs differ (output" in str(caught.value)
    assert " and then " in str(caught.value)


def test_the_element_that_differs_is_named(check: Check) -> None:
    with pytest.raises(Refused, match=r"output 1, element \[2, 3\]: 0\.\d+ and then 0\.\d+\)"):
        check(OTHER["noise in one element"], SMALL)


@pytest.mark.parametrize("body", OTHER.values(), ids=OTHER)
def test_large_tasks_are_looked_at_without_their_data(body: str, check: Check) -> None:
    with pytest.raises(Refused, match=r"not deterministic: forward draws random numbers \("):
        check(body, "(1 << 40, 8)")


def test_a_task_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(TASK.format(body=indent(OTHER["noise"], " " * 8), shape=SMALL))
    with TorchTask(path) as task, pytest.raises(TaskFailure) as caught:
        task.require_deterministic()
    assert str(caught.value).startswith(f"{path}: the task is not deterministic: two runs ")
    assert "\n" not in str(caught.value)


def test_gen_refuses_it_before_any_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES / "tasks" / "relu.py").read_text()
    assert "torch.relu(x)" in text
    Path("task.py").write_text(text.replace("torch.relu(x)", "torch.relu(x + torch.randn_like(x))"))
    arguments = ["gen", "task.py", "-t", "cpp", "--workflow", "coder-only", "-o", "out"]
    assert run([*arguments, "--sketch", str(EXAMPLES / "relu.sketch")]) == 2
    assert "the task is not deterministic" in capsys.readouterr().err
    assert not Path("out").exists()
