"""`sketchc explain-plan` and `lower --symbols`, as a user calls them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from example_targets import EXAMPLES

from sketchc.cli.main import cli

MATMUL = str(EXAMPLES / "matmul.sketch")


def told(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["explain-plan", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend", "cuda_c"])
def test_more_work_takes_longer(target: str) -> None:
    small, large = (
        told(MATMUL, "-t", target, "--symbols", f"M={size},N={size},K={size}", "--set", "TM=32")
        for size in (512, 4096)
    )
    assert large["symbols"] == {"M": 4096, "N": 4096, "K": 4096}
    assert large["constants"]["TM"] == 32
    (launch,) = large["launches"]
    assert launch["operations"]["ieee f32"] == 2 * 4096**3
    assert launch["bytes"] >= 3 * 4 * 4096**2
    assert large["seconds"] > 20 * small["seconds"]


def test_the_table_says_what_bounds_each_launch() -> None:
    file = str(EXAMPLES / "cumsum_two_phase.sketch")
    result = CliRunner().invoke(cli, ["explain-plan", file, "-t", "triton_cuda"])
    assert result.exit_code == 0, result.output
    phases = told(file, "-t", "triton_cuda")["launches"]
    assert len(phases) == 2
    for phase in phases:
        line = next(one for one in result.stdout.splitlines() if one.startswith(phase["name"]))
        assert line.rstrip().endswith(phase["bound"])


def test_faster_chips_take_less_time() -> None:
    arguments = (MATMUL, "-t", "triton_cuda", "--symbols", "M=4096,N=4096,K=4096")
    slow, fast = (told(*arguments, "--hardware", chip)["seconds"] for chip in ("a100", "h200"))
    assert fast < slow


@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul", "conv2d", "topk"])
def test_tensors_without_elements_have_a_time(name: str, target: str) -> None:
    file = str(EXAMPLES / f"{name}.sketch")
    for symbol in told(file, "-t", target)["symbols"]:
        found = told(file, "-t", target, "--symbols", f"{symbol}=0")
        assert 0 <= found["seconds"] < math.inf


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_the_roofline_is_drawn(target: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "roofline.png"
    told(MATMUL, "-t", target, "--plot", str(file))
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--symbols", "Q=3"), "the sketch's symbols are M, N, K"),
        (("--symbols", "M=-3"), "no tensor has an extent of -3"),
        (("--plot", "/nowhere/x.png"), "cannot write /nowhere/x.png"),
        (("--plot", "x.doc"), "cannot write x.doc"),
        (("--hardware", "h200"), "does not run on h200"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], said: str) -> None:
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    result = CliRunner().invoke(cli, ["explain-plan", MATMUL, "-t", "cpp", *arguments])
    assert said in str(result.exception)


@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
def test_sizes_that_no_sketch_has_are_refused_on_all_targets(target: str) -> None:
    for sizes, said in (("Q=3", "the sketch's symbols are M, N, K"), ("M=-1", "no tensor has")):
        words = ["lower", MATMUL, "-t", target, "--set", "TM=32", "--symbols", sizes]
        assert said in str(CliRunner().invoke(cli, words).exception)


def test_a_kernel_is_lowered_for_sizes() -> None:
    def lowered(*sizes: str) -> str:
        result = CliRunner().invoke(cli, ["lower", MATMUL, "-t", "cpp", *sizes])
        assert result.exit_code == 0, result.output
        return result.stdout

    thin = lowered("--symbols", "M=2048,N=8,K=64")
    assert thin != lowered()
    # The comment that `sketchc migrate` reads has the choice, so that the code can be made again.
    head = next(line for line in thin.splitlines() if '"settings"' in line)
    settings = json.loads(head.removeprefix("// "))["settings"]
    assert f"constexpr int64_t TN = {settings['TN']};" in thin
    assert settings["TN"] == 32
