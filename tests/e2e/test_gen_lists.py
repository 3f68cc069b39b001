"""`sketchc gen` of tasks whose lists of inputs differ in types, ranks and constants: a kernel for
each kind, one drop-in for all."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from toolchains import require

from sketchc.cli.main import run

torch = pytest.importorskip("torch")

TASK = """
import torch


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)

    def forward(self, x, way, alpha, bias=None):
        y = self.norm(x.float()) * alpha if way == "up" else -x
        return y if bias is None else y + bias


def get_inputs():
    return [torch.randn(8, 9), "up", 0.5]


def get_inputs_dyn_list():
    return [
        [torch.randn(6, 9), "up", 0.5],
        [torch.randn(3, 5, 9), "up", 0.5],
        [torch.randn(4, 9), "down", 2.0, torch.randn(4, 9)],
    ]


def get_input_groups():
    return [
        [torch.randn(5, 9), "up", 2.0, torch.randn(1, 9)],
        [torch.randn(7, 9).half(), "up", 0.5],
        [torch.randn(7, 9), "up", 2.0, torch.randn(7, 9)],
    ]


def get_init_inputs():
    return [9]
"""


def gen(capsys: pytest.CaptureFixture[str], *options: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(["gen", *map(str, options), "-t", "cpp", "--no-bench", "--no-store", "-q"])
    return status, *capsys.readouterr()


def load(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on the task, whose drop-in is there."""
    require("cpp")
    folder: Path = tmp_path_factory.mktemp("lists")
    (folder / "affine.py").write_text(TASK)
    options = ["-t", "cpp", "--no-bench", "--no-store", "-q", "-o", str(folder / "out")]
    assert run(["gen", str(folder / "affine.py"), *options]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def models(made: Path) -> tuple[Any, Any, Any]:
    """The task's module, its model, and the drop-in's with the same state."""
    task, dropin = load(made.parent / "affine.py"), load(made / "affine_dropin.py")
    ours = dropin.ModelNew(*dropin.get_init_inputs()).eval()
    theirs = task.Model(*task.get_init_inputs()).eval()
    with torch.no_grad():
        theirs.norm.weight.normal_()
    ours.load_state_dict(theirs.state_dict())
    return task, theirs, ours


def agree(models: tuple[Any, Any, Any], *values: Any, **named: Any) -> None:
    _, theirs, ours = models
    with torch.no_grad():
        torch.testing.assert_close(ours(*values, **named), theirs(*values, **named))


@pytest.mark.sweep(3, together="lists")
def test_one_dropin_serves_every_list(models: tuple[Any, Any, Any]) -> None:
    task, _, _ = models
    for values in (task.get_inputs(), *task.get_inputs_dyn_list(), *task.get_input_groups()):
        agree(models, *values)


@pytest.mark.sweep(3, together="lists")
def test_it_serves_other_sizes_of_each_kind(models: tuple[Any, Any, Any]) -> None:
    agree(models, torch.randn(1, 9), "up", 0.5)
    agree(models, torch.randn(1, 9), "up", -0.25)
    agree(models, torch.randn(1, 9), "up", 2.0, torch.randn(1, 9))
    agree(models, torch.randn(67, 9), "up", alpha=2.0, bias=torch.randn(67, 9))
    agree(models, torch.randn(67, 9), "up", 2.0, bias=torch.randn(1, 9))
    agree(models, torch.randn(1, 9), "down", 2.0, torch.randn(1, 9))
    agree(models, torch.randn(1, 1, 9), "up", 0.5)
    agree(models, torch.randn(129, 9).half(), way="up", alpha=0.5)


@pytest.mark.sweep(3, together="lists")
def test_the_kernels_follow_the_constructors_sizes(models: tuple[Any, Any, Any]) -> None:
    task, theirs, ours = models
    wider = task, type(theirs)(33).eval(), type(ours)(33).eval()
    agree(wider, torch.randn(4, 33), "up", 0.5)
    agree(wider, torch.randn(2, 3, 33), "up", 0.5)
    agree(wider, torch.randn(4, 33), "down", 2.0, torch.randn(4, 33))


@pytest.mark.sweep(3, together="lists")
def test_what_no_list_has_is_refused_in_a_line(models: tuple[Any, Any, Any]) -> None:
    _, _, ours = models
    with pytest.raises(TypeError, match=r"^there is no kernel here for torch.float64 of rank 2$"):
        ours(torch.randn(3, 9).double(), "up", 0.5)
    with pytest.raises(ValueError, match=r"way.* is 'aside'; this kernel was made for 'up'"):
        ours(torch.randn(3, 9), "aside", 0.5)


@pytest.mark.sweep(3, together="lists")
def test_torch_compile_takes_it_whole(models: tuple[Any, Any, Any]) -> None:
    task, theirs, ours = models
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    with torch.no_grad():
        for values in (task.get_inputs(), *task.get_inputs_dyn_list()):
            torch.testing.assert_close(compiled(*values), theirs(*values))


@pytest.mark.sweep(3, together="lists")
def test_the_run_says_which_list_has_which_kernel(made: Path) -> None:
    verdict = json.loads((made / "verdict.json").read_text())
    assert verdict["outcome"] == "passed"
    own = [case for case in verdict["verdict"]["cases"] if case["kind"] == "task"]
    assert all(case["passed"] for case in own)
    # Each list in its own numbers: two of one kind, and one of each of the four others.
    assert len({json.dumps(case["shape"]["symbols"]) for case in own}) >= 5
    assert len(list(made.glob("*.sketch"))) == 6
    summary = (made / "SUMMARY.md").read_text()
    assert "| get_inputs, list 1 of get_inputs_dyn_list | [affine_1]" in summary
    assert (made / "kernels" / "affine_3" / "SUMMARY.md").exists()
    assert not any("is not tried" in note for note in verdict["verdict"]["notes"])
    assert run(["report", str(made), "-o", str(made.parent / "report.html")]) == 0


def test_a_run_in_the_same_folder_replaces_its_own_files_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    task, out = tmp_path / "two.py", tmp_path / "out"
    text = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return {}\n\n\ndef get_input_groups():\n"
        "    return [[torch.randn(3, 4)], [torch.randn(3, 4).half()]]\n"
    )
    task.write_text(text.format("torch.relu(x)"))
    assert gen(capsys, task, "-o", out)[0] == 0
    status, said, wrong = gen(capsys, task, "-o", out)
    assert status == 2, said
    assert "--resume" in wrong
    assert gen(capsys, task, "-o", out, "--resume")[0] == 0
    assert (out / "two_dropin.py").exists()
    (out / "mine.txt").write_text("mine")
    status, _, wrong = gen(capsys, task, "-o", out, "--resume")
    assert status == 2
    assert "mine.txt" in wrong


def test_a_kind_without_a_kernel_is_a_miss_of_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other kinds keep their kernels; there is no drop-in that would refuse a list."""
    require("cpp")
    task, out = tmp_path / "part.py", tmp_path / "out"
    task.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, way):\n"
        '        return torch.relu(x) if way == "plain" else torch.polygamma(2, x)\n\n\n'
        "def get_input_groups():\n"
        '    return [[torch.rand(3, 4) + 1, "plain"], [torch.rand(3, 4) + 1, "odd"]]\n'
    )
    status, _, _ = gen(capsys, task, "-o", out)
    assert status == 1
    found = json.loads((out / "verdict.json").read_text())
    assert "polygamma" in found["reason"]
    assert (out / "part_1_dropin.py").exists()
    assert not (out / "part_dropin.py").exists()


def test_each_kind_has_its_own_sketch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = tmp_path / "affine.py"
    task.write_text(TASK)
    status, printed, _ = gen(capsys, task, "--emit", "sketch")
    assert status == 0
    assert printed.count("\nsketch affine_") + printed.startswith("sketch affine_") == 6
