"""`gen --emit program`: layers that are alike are one sketch, and the program means the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from toolchains import require
from triton_cases import mixed

from sketchc.agents.autosketch.designer import design
from sketchc.agents.autosketch.program import write_program
from sketchc.base.diagnostics import Source
from sketchc.checker.api import check, elaborate
from sketchc.cli.main import run
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse
from sketchc.runtime.tasks.task import load_task

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
MODEL = """class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return [{width}]
"""
LAYERS = "nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()"
#: Modules, what they compute, the input's shape, a width, and how many sketches there are for how
#: many calls.
TASKS = {
    "perceptron": (
        f"self.net = nn.Sequential(*(m for _ in range(4) for m in ({LAYERS})))",
        "return self.net(x)",
        "(12, 20)",
        20,
        (2, 8),
    ),
    "recurrent": (
        "self.net = nn.GRU(width, width, 3)",
        "return self.net(x)[0]",
        "(5, 6, 14)",
        14,
        (6, 13),
    ),
    # In each layer a norm, a product with what follows it, and one with the residual added.
    "residual": (
        "self.net = nn.ModuleList(\n"
        "            nn.ModuleList(\n"
        "                [nn.LayerNorm(width), nn.Linear(width, 9), nn.Linear(9, width)]\n"
        "            )\n            for _ in range(5)\n        )",
        "for norm, up, down in self.net:\n"
        "            x = x + down(F.silu(up(norm(x))))\n        return x",
        "(3, 7, 20)",
        20,
        (3, 15),
    ),
    # What follows a product goes on behind the cast to 16 bits.
    "halves": (
        "self.net = nn.ModuleList(\n"
        "            nn.ModuleList(\n"
        "                [nn.LayerNorm(width), nn.Linear(width, 9), nn.Linear(9, width)]\n"
        "            )\n            for _ in range(5)\n        ).half()",
        "for norm, up, down in self.net:\n"
        "            x = x + down(F.silu(up(norm(x))))\n        return x",
        "(3, 7, 20), dtype=torch.float16",
        20,
        (3, 15),
    ),
    "convolutions": (
        "self.net = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))",
        "for layer in self.net:\n            x = F.relu(layer(x))\n        return x",
        "(3, 5, 11, 13)",
        5,
        (1, 3),
    ),
}


@pytest.fixture
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    init, forward, shape, width, _ = TASKS[request.param]
    path = tmp_path / f"{request.param}.py"
    text = MODEL.format(init=init, forward=forward, shape=shape, width=width)
    path.write_text(HEAD + text, "utf-8")
    return path


def entry(text: str) -> syntax.Sketch:
    tree, found = parse(Source("designed.sketch", text))
    assert tree is not None, found
    (unit,) = tree.entries
    return unit


@pytest.mark.sweep
@pytest.mark.parametrize("task", TASKS, indirect=True)
def test_a_program_of_a_task_is_its_sketch_in_fewer_lines(task: Path) -> None:
    with load_task(str(task)) as loaded:
        sketch, program = design(loaded), design(loaded, "program")
    assert program.count("\n") < sketch.count("\n")
    result = check(Source("designed.sketch", program))
    assert result.ok, result.diagnostics
    unit = entry(program)
    assert unit.program is not None
    calls = [n for n in syntax.statements(unit.program.body) if isinstance(n, syntax.Invoke)]
    assert (len(unit.called), len(calls)) == TASKS[task.stem][4]

    one, other = (elaborate(entry(text), {})[0] for text in (sketch, program))
    assert one is not None
    assert other is not None
    rng = np.random.default_rng(2)
    for sizes in ((1, 2, 3), (4, 5, 7)):
        symbols = {s.name: sizes[n % 3] for n, s in enumerate(one.symbols)}
        host = host_values(one, symbols)
        inputs = {
            t.name: mixed(rng, tuple(int(evaluate(e, host)) for e in t.extents), t.dtype)
            for t in one.tensors
            if t.role is ir.Role.IN
        }
        found, expected = (interpret(s, inputs, symbols).outputs for s in (other, one))
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            # Each sketch has tile sizes of its own.
            half = array.dtype == np.float16
            rtol, atol = (4e-3, 4e-3) if half else (1e-5, 1e-6)
            np.testing.assert_allclose(found[name], array, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("task", ["perceptron"], indirect=True)
def test_gen_makes_the_kernel_of_the_program(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    assert run(["gen", str(task), "-t", "cpp", "--emit", "program"]) == 0
    printed = capsys.readouterr().out
    made = tmp_path / "made"
    options = ["--no-store", "--no-bench", "-q", "-o", str(made)]
    assert run(["gen", str(task), "-t", "cpp", *options]) == 0, capsys.readouterr()
    written = made / "perceptron.sketch"
    assert written.read_text("utf-8") == printed
    assert entry(printed).program is not None
    command = ["verify", str(written), "--task", str(task), "--target", "cpp", "--no-store"]
    assert run(command) == 0, capsys.readouterr()
    shown = ["report", str(made), "-o", str(tmp_path / "report.html")]
    assert run(shown) == 0, capsys.readouterr()


@pytest.mark.sweep
def test_where_the_program_does_not_hold_the_sketch_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    init, forward, shape, width, _ = TASKS["convolutions"]
    path = tmp_path / "convolutions.py"
    path.write_text(HEAD + MODEL.format(init=init, forward=forward, shape=shape, width=width))

    def wrong(*given: Any) -> str:
        text = write_program(*given)
        assert text is not None
        changed = text.replace("init=0", "init=1")  # sums that begin with 1
        assert changed != text
        return changed

    monkeypatch.setattr("sketchc.agents.autosketch.designer.write_program", wrong)
    require("cpp")
    made = tmp_path / "made"
    options = ["--no-store", "--no-bench", "-q", "-o", str(made)]
    assert run(["gen", str(path), "-t", "cpp", *options]) == 0
    assert entry((made / "convolutions.sketch").read_text("utf-8")).program is None
