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
torch.manual_seed(0)
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


FLAGS = """sketch flags {
    symbols: N;
    params: flag: bool = True; other: bool = False;
    tensors: X[N]: in f32; G[1]: in bool; Y[N]: out f32;
    constexpr: T = 16;
    given = fetch(G[0])

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if flag and not other or given:
            neg(x, x)
        where(other, 1.0, x, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
USE_FLAGS = """
import itertools, torch, flags
torch.manual_seed(0)
x = torch.randn(37)
for flag, other, given in itertools.product((True, False), repeat=3):
    expected = -x if flag and not other or given else x
    expected = torch.ones_like(x) if other else expected
    found = flags.flags(x, torch.tensor([given]), flag=flag, other=other)
    torch.testing.assert_close(found, expected)
print("equal")
"""


def test_bools_reach_a_kernel_in_tritons_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module runs where nothing of ours mends the interpreter."""
    require("triton_cuda")
    sketch, folder = tmp_path / "flags.sketch", tmp_path / "made"
    sketch.write_text(FLAGS, "utf-8")
    options = ["-t", "triton_cuda", "-o", str(tmp_path / "code"), "--module", str(folder)]
    assert run(["lower", str(sketch), *options]) == 0
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    ran = subprocess.run(
        [sys.executable, "-c", USE_FLAGS],
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
