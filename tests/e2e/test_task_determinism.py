"""Outputs that nothing can be judged by: drawn, of one process alone, or NaN."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from sketchc.cli.main import run
from sketchc.runtime.tasks.description import TaskFailure
from sketchc.runtime.tasks.task import TorchTask

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RELU = str(EXAMPLES / "relu.sketch")
TASK = """
import os
import random
import secrets
import uuid
import numpy as np
import torch
from random import random as python_number
from numpy.random import rand, seed
numbers = np.random.default_rng(3)
old_numbers = np.random.RandomState(3)
bits = np.random.Generator(np.random.Philox(3))
own = random.Random(3)
of_torch = torch.Generator().manual_seed(3)
class Model(torch.nn.Module):
    def forward(self, x):
{body}
def get_inputs():
    return [torch.randn({shape})]
"""
FUNCTION = """
import os
import numpy as np
def f(x: "f32[M, N]"):
{body}
"""
SOMETIMES = "return torch.relu(x) + ({} < 1e-9) * 1.0"
#: What is drawn is hardly ever seen in the outputs.
RARE = {
    "torch": ("torch.rand(())", "rand"),
    "a generator of torch": ("torch.rand((), generator=of_torch)", "rand"),
    "dropout": ("torch.nn.functional.dropout(x).sum() * 0 + 1", "bernoulli_"),
    "NumPy": ("np.random.rand()", "numpy.random"),
    "NumPy, imported by name": ("rand()", "numpy.random"),
    "a generator of NumPy": ("numbers.random()", "a generator of NumPy"),
    "an old generator of NumPy": ("old_numbers.rand()", "a generator of NumPy"),
    "another generator of NumPy": ("bits.random()", "a generator of NumPy"),
    "Python": ("random.random()", "random"),
    "Python, imported by name": ("python_number()", "random"),
    "a generator of Python": ("own.random()", "a generator of `random`"),
    "the system": ("1 + os.urandom(1)[0]", "os.urandom"),
    "secrets": ("1 + secrets.randbelow(9)", "os.urandom"),
    "a name for everything": ("1 + uuid.uuid4().int", "os.urandom"),
}
#: Draws that are followed by a seed, or taken back.
HIDDEN = {
    "torch, seeded too late": "y = torch.rand(()) < 1e-9\ntorch.manual_seed(3)\n",
    "torch, taken back": (
        "kept = torch.get_rng_state()\ny = torch.rand(()) < 1e-9\ntorch.set_rng_state(kept)\n"
    ),
    "NumPy, seeded too late": "y = rand() < 1e-9\nseed(3)\n",
    "NumPy, taken back": (
        "kept = np.random.get_state()\ny = rand() < 1e-9\nnp.random.set_state(kept)\n"
    ),
    "Python, seeded too late": "y = random.random() < 1e-9\nrandom.seed(3)\n",
}
SEEDED = {
    "torch": "torch.manual_seed(3)\nreturn torch.relu(x) + 0 * torch.rand_like(x)",
    "a generator of torch": (
        "made = torch.Generator().manual_seed(3)\n"
        "return torch.relu(x) + 0 * torch.rand((), generator=made)"
    ),
    "torch, and back": (
        "with torch.random.fork_rng(devices=[]):\n"
        "    torch.manual_seed(3)\n"
        "    return torch.relu(x) + 0 * torch.rand_like(x)"
    ),
    "NumPy": "np.random.seed(3)\nreturn torch.relu(x) + 0 * np.random.rand()",
    "generators of NumPy": (
        "made = np.random.default_rng(3).random() + np.random.RandomState(3).rand()\n"
        "return torch.relu(x) + 0 * made"
    ),
    "Python": "random.seed(3)\nreturn torch.relu(x) + 0 * random.random()",
    "a generator of Python": "return torch.relu(x) + 0 * random.Random(3).random()",
    "dropout that draws nothing": "return torch.relu(torch.nn.Dropout(0.5).eval()(x))",
}
#: In each run of one process the same.
ELSEWHERE = {
    "a process's number": "return torch.relu(x) + os.getpid() % 2",
    "the order of a set": (
        "names = sorted(map(str, range(9)))\n"
        "return torch.relu(x) + names.index(list(set(names))[0])"
    ),
    "a hash": "return torch.relu(x) + hash('sketch') % 1009",
}


def model(body: str, shape: str = "24, 40") -> str:
    return TASK.format(body=indent(body, " " * 8), shape=shape)


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on a task's text; returns its status, and what it printed as data."""

    def call(text: str) -> tuple[int, dict[str, Any]]:
        path = tmp_path / "task.py"
        path.write_text(text)
        options = ["--task", str(path), "--target", "cpp", "--json", "--no-store"]
        status = run(["verify", RELU, *options])
        return status, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def reason(verify: Any) -> Any:
    """Why a task is refused."""

    def call(text: str) -> str:
        status, found = verify(text)
        assert (status, found.get("error", {}).get("class")) == (2, "task"), found
        return str(found["error"]["reason"])

    return call


@pytest.mark.parametrize("name", RARE)
def test_a_draw_that_hardly_shows_is_refused(name: str, reason: Any) -> None:
    drawn, words = RARE[name]
    said = reason(model(SOMETIMES.format(drawn)))
    assert f"not deterministic: forward draws random numbers ({words}), so" in said


@pytest.mark.parametrize("name", HIDDEN)
def test_a_draw_is_not_hidden_by_what_follows(name: str, reason: Any) -> None:
    said = reason(model(HIDDEN[name] + "return torch.relu(x) + y * 1.0"))
    assert "not deterministic: forward draws random numbers (" in said


@pytest.mark.sweep
@pytest.mark.parametrize("name", SEEDED)
def test_draws_that_are_seeded_in_forward_repeat(name: str, verify: Any) -> None:
    status, found = verify(model(SEEDED[name]))
    assert (status, found.get("passed")) == (0, True), found


@pytest.mark.parametrize("drawn", ["torch.rand(())", "random.random()", "numbers.random()"])
def test_a_large_task_is_refused_for_what_it_draws(drawn: str, reason: Any) -> None:
    said = reason(model(SOMETIMES.format(drawn), "4096, 2048"))
    assert "forward draws random numbers (" in said


def test_a_draw_at_some_sizes_is_refused(reason: Any) -> None:
    """Neither at its own sizes."""
    text = "return torch.relu(x) + (torch.rand(()) * 1e-30 if x.shape[0] != 24 else 0.0)"
    assert "forward draws random numbers (rand)" in reason(model(text))


@pytest.mark.sweep
@pytest.mark.parametrize("shape", ["24, 40", "4096, 2048"], ids=["small", "large"])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_another_process_would_not_repeat_is_refused(
    name: str, shape: str, reason: Any
) -> None:
    said = reason(model(ELSEWHERE[name], shape))
    assert "not deterministic: a run in another process differs (output 0, element [0, 0]" in said


def test_a_function_of_numpy_is_run_in_another_process(reason: Any) -> None:
    said = reason(FUNCTION.format(body="    return np.maximum(x, 0) + os.getpid() % 2"))
    assert "a run in another process differs" in said


def test_inputs_and_parameters_are_the_same_in_the_other_process(tmp_path: Path) -> None:
    """Also where no seed of torch makes them."""
    text = model("return torch.relu(x) + self.shift")
    text = text.replace(
        "    def forward",
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.shift = torch.nn.Parameter(torch.full((), float(rand())))\n"
        "    def forward",
    ).replace("torch.randn(24, 40)", "torch.full((24, 40), random.random())")
    path = tmp_path / "task.py"
    path.write_text(text)
    with TorchTask(path) as task:
        task.require_deterministic()
    path.write_text(text.replace("+ self.shift", "+ self.shift + os.getpid() % 2"))
    with TorchTask(path) as task, pytest.raises(TaskFailure, match="in another process differs"):
        task.require_deterministic()


@pytest.mark.parametrize("shape", ["24, 40", "4096, 2048"], ids=["small", "large"])
def test_a_task_that_gives_no_number_is_broken(shape: str, reason: Any) -> None:
    said = reason(model("return torch.sqrt(-1 - x * x)", shape))
    assert said.endswith(
        "task.py: the task is broken: every element of its outputs is NaN on its own inputs; a "
        "kernel can be judged only against a task that gives numbers"
    )


def test_a_task_that_gives_one_number_is_not(verify: Any) -> None:
    body = "y = torch.sqrt(-1 - x * x)\ny[0, 0] = 1\nreturn y"
    status, found = verify(model(body))
    assert (status, found["failure"]) == (1, "design")
    assert any("holds NaN in 959 of 960 elements" in note for note in found["notes"])
