"""Numbers that forward takes: params of the kernel where the task does the same with any number,
else constants of it, which the drop-in insists on."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from toolchains import require

from sketchc.cli.main import run

torch = pytest.importorskip("torch")

TASK = """
import math

import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]
"""
X = "torch.randn(33, 50)"
#: name -> forward's arguments, its body, its inputs, and other numbers to call it with.
FOLLOWED: dict[str, tuple[str, str, str, list[tuple[Any, ...]]]] = {
    "affine": (
        "x, scale, shift",
        "return torch.relu(x * scale + shift)",
        f"{X}, 0.5, 3",
        [(-2.0, 0), (0.0, -7), (1e-3, 100), (3, 4)],
    ),
    # Sketches call their loops i and j, their sums total, and `out` stands for the result.
    "names_of_the_sketch": (
        "x, i, j, total, step, max, T",
        "return (torch.softmax(x * i, -1) + j) * total + step * x.sum(1, keepdim=True) - max * T",
        f"{X}, 0.5, 1.5, 2.5, 3, 4.5, 5.5",
        [(1.5, -2.0, 0.25, -3, 7.0, 0.5)],
    ),
    # 1 - 0.999 has few digits left in f32.
    "optimiser": (
        "p, g, m, v, lr, beta1, beta2, eps, count, decay",
        "g = g + decay * p; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g; "
        "return p - lr * (m / (1 - beta1**count)) / ((v / (1 - beta2**count)).sqrt() + eps), m, v",
        f"{X}, {X}, {X}, {X}.abs(), 1e-3, 0.9, 0.999, 1e-8, 10, 0.01",
        [(1e-2, 0.8, 0.99, 1e-6, 1, 0.0), (0.1, 0.95, 0.9999, 1e-3, 1000, 0.1)],
    ),
    "half_and_integers": (
        "x, n, a, b, e",
        "z = x * a + x / b; "
        "return z, z.abs().mean() * a, (n + e) // e * e, a * b * z.sum(0), n > b",
        f"{X}.half(), torch.randint(-9, 9, (33, 50), dtype=torch.int32), 0.7, 3.0, 5",
        [(-0.25, 1.5, 2), (1.0, -1.0, 3)],
    ),
    "bounds": (
        "x, low, temperature",
        "return torch.clamp(x, min=low), F.log_softmax(x / temperature, -1) / temperature",
        f"{X}, -0.5, 0.7",
        [(0.5, 2.0), (-10.0, 0.1)],
    ),
}


def made(folder: Path, name: str, arguments: str, body: str, inputs: str) -> tuple[Any, Any, Path]:
    """The task's model, that of its drop-in, and the folder of the run."""
    path = folder / f"{name}.py"
    path.write_text(TASK.format(arguments=arguments, body=body, inputs=inputs))
    options = ["-t", "cpp", "--no-bench", "--no-store", "-q", "-o", str(folder / "out")]
    assert run(["gen", str(path), *options]) == 0
    models = []
    for file, kind in ((path, "Model"), (folder / "out" / f"{name}_dropin.py", "ModelNew")):
        specification = importlib.util.spec_from_file_location(file.stem, file)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        models.append(getattr(module, kind)().eval())
    models[0].inputs = module.get_inputs
    return models[0], models[1], folder / "out"


@pytest.mark.sweep
@pytest.mark.parametrize("name", FOLLOWED)
def test_kernels_take_numbers_as_they_come(name: str, tmp_path: Path) -> None:
    require("cpp")
    *task, others = FOLLOWED[name]
    theirs, ours, out = made(tmp_path, name, *task)
    inputs = theirs.inputs()
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    near = 2e-3 if any(tensor.dtype == torch.float16 for tensor in tensors) else 1e-5
    for numbers in (tuple(inputs[len(tensors) :]), *others):
        found, expected = ours(*tensors, *numbers), theirs(*tensors, *numbers)
        torch.testing.assert_close(found, expected, rtol=near, atol=near)
    assert "fills no param" not in (out / "SUMMARY.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "body", "inputs", "other"),
    [
        ("x, a", "return x * a if a > 0 else -x", f"{X}, 0.5", 0.75),
        ("x, k", "return torch.roll(x, k, 1) * k", f"{X}, 3", 4),
        ("x, a", "return x * float(a)", f"{X}, 0.5", 0.75),
        ("x, flag", "return torch.relu(x) if flag else x", f"{X}, True", False),
    ],
)
def test_what_a_task_looks_at_is_held(
    arguments: str, body: str, inputs: str, other: Any, tmp_path: Path
) -> None:
    require("cpp")
    theirs, ours, _ = made(tmp_path, "held", arguments, body, inputs)
    x, own = theirs.inputs()
    torch.testing.assert_close(ours(x, own), theirs(x, own))
    with pytest.raises(ValueError, match="this kernel was made for"):
        ours(x, other)


def test_lists_that_differ_in_numbers_share_a_kernel(tmp_path: Path) -> None:
    require("cpp")
    path, out = tmp_path / "shared.py", tmp_path / "out"
    text = TASK.format(arguments="x, a, k", body="return x * a + k", inputs=f"{X}, 0.5, 3")
    text += (
        f"\n\ndef get_inputs_dyn_list():\n    return [[{X}, -2.0, 0], [torch.randn(7, 9), 2, 4]]\n"
    )
    path.write_text(text)
    options = ["-t", "cpp", "--no-bench", "--no-store", "-q", "-o", str(out)]
    assert run(["gen", str(path), *options]) == 0
    assert [file.name for file in out.glob("*.sketch")] == ["shared.sketch"]
    cases = json.loads((out / "verdict.json").read_text())["verdict"]["cases"]
    numbers = [case["shape"]["numbers"] for case in cases if case["kind"] == "task"]
    assert {"a": -2.0, "number_3": 0} in numbers
    assert re.search(
        r"params: a: f32 = 0.5; number_3: f32 = 3.0;", (out / "shared.sketch").read_text()
    )
