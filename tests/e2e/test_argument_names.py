"""Tensors of the built-in Designer's sketches have the names of forward's arguments, which decide
nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sketchc.cli.main import run

#: Names that sketches, their language, the Designer and targets use, one that is not ASCII, and two
#: that are one in capitals.
ARGUMENTS = "m, T, out, y, total, exp, running_f64, block, i_tile, interim, größe, Mask, mask, _x"
NAMES = "M X2 OUT Y TOTAL EXP RUNNING_F64 BLOCK I_TILE INTERIM X11 MASK MASK_2 X"
TASK = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, {ARGUMENTS}):
        z = torch.softmax({ARGUMENTS.replace(",", " -")}, 0) @ exp.T
        return torch.cumprod(torch.tanh(z), 1) + total.sum(1)

def get_inputs():
    return [torch.randn(20, 30) for _ in range({len(ARGUMENTS.split())})]

def get_init_inputs():
    return []
"""


@pytest.mark.sweep
def test_names_of_arguments_are_copied_and_decide_nothing(tmp_path: Path) -> None:
    path, folder = tmp_path / "named.py", tmp_path / "out"
    path.write_text(TASK)
    options = ["--target", "cpp", "--no-store", "--no-bench", "-q", "-o", str(folder)]
    assert run(["gen", str(path), *options]) == 0
    text = (folder / "named.sketch").read_text()
    assert re.findall(r"(\w+)\[.*\]: in", text) == NAMES.split()
