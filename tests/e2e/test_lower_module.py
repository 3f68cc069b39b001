"""`sketchc lower --module`: what it leaves behind imports and computes, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toolchains import require

from sketchc.cli.main import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "softmax.sketch"
USE = """
import torch
import {module}
x = 3 * torch.randn(7, 37)
torch.testing.assert_close({module}.softmax(x), torch.softmax(x, -1))
print("equal")
"""


@pytest.mark.parametrize(
    ("target", "module"), [("cpp", "softmax_module"), ("triton_cuda", "softmax")]
)
def test_the_module_is_a_drop_in(
    target: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(target)
    folder = tmp_path / "made"
    code = str(tmp_path / "code")
    assert run(["lower", str(EXAMPLE), "-t", target, "-o", code, "--module", str(folder)]) == 0
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    ran = subprocess.run(
        [sys.executable, "-c", USE.format(module=module)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout == "equal\n", ran.stderr


def test_a_folder_that_refuses_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "below")
    status = run(
        ["lower", str(EXAMPLE), "-t", "triton_cuda", "-o", "/dev/null", "--module", folder]
    )
    assert status == 2
    assert "cannot write to" in capsys.readouterr().err
