"""`gen --allow-partial`: kernels of what has a form, PyTorch between them; it never counts as
passed, and names what PyTorch computes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from toolchains import require

from sketchc.agents.autosketch.designer import design
from sketchc.base.diagnostics import UsageError
from sketchc.cli.main import run
from sketchc.runtime.tasks.task import load_task

TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.inner = torch.nn.Linear(columns, 9)

    def forward(self, x, given):
        square = torch.tanh(self.inner(x)).reshape(-1, 3, 3) * (given + torch.arange(3))
        outer = torch.einsum("nij,nkj->kin", square, square).diagonal()
        return square.sum((1, 2)) + torch.linalg.det(square), square, outer

def get_inputs():
    return [torch.randn(7, 20), torch.randn(3)]

def get_init_inputs():
    return [20]
"""
#: Compares the drop-in with the task, on inputs of its own, and tells what it refuses.
BESIDE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
import volumes_dropin as made
assert "sketchc" not in sys.modules
old, new = made.Model(20).eval(), made.ModelNew(20).eval()
new.load_state_dict(old.state_dict())
given = [torch.randn(7, 20) * 3.0, torch.randn(3)]
with torch.no_grad():
    for one, other in zip(old(*given), new(*given), strict=True):
        torch.testing.assert_close(other, one)
for wrong in ([torch.randn(8, 20), given[1]], [given[0].double(), given[1]]):
    try:
        new(*wrong)
    except ValueError as error:
        print(error)
"""


@pytest.mark.sweep
def test_parts_are_kernels_and_pytorch_computes_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    path, out = tmp_path / "volumes.py", tmp_path / "out"
    path.write_text(TASK)
    command = ["gen", str(path), "-t", "cpp", "--no-bench", "--no-store", "-q", "-o", str(out)]
    assert run(command) == 1
    assert "no form for: _linalg_det" in capsys.readouterr().out
    assert not list(out.glob("*_dropin.py"))
    whole = tmp_path / "whole"
    assert run([*command[:-1], str(whole), "--allow-partial"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "volumes for cpp: partial: PyTorch computes _linalg_det;" in told
    record = json.loads((whole / "trace.json").read_text())
    assert record["outcome"] == "partial"
    assert "This never counts as passed" in (whole / "SUMMARY.md").read_text()
    assert len(list(whole.glob("volumes_part_*.sketch"))) == 2
    beside = [sys.executable, "-I", "-c", BESIDE, str(whole)]
    done = subprocess.run(beside, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == [
        "x is float32 [8, 20]; these kernels take float32 [7, 20] alone",
        "x is float64 [7, 20]; these kernels take float32 [7, 20] alone",
    ]


LISTED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.fft.rfft(y).abs() + 1, torch.linalg.inv(x @ x.T)

def get_inputs():
    return [torch.randn(6, 8), torch.randn(4, 32)]
"""


def test_what_has_no_form_is_listed_beside_types_that_sketches_lack(tmp_path: Path) -> None:
    path = tmp_path / "listed.py"
    path.write_text(LISTED)
    with load_task(str(path)) as task, pytest.raises(UsageError) as raised:
        design(task)
    assert "complex64 (_fft_r2c)" in str(raised.value)
    assert "linalg_inv_ex" in str(raised.value)
    assert "abs" not in str(raised.value)
