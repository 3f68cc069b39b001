"""Kernels that the command line chose for sizes, under Triton's interpreter, at these and at
others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from toolchains import require
from triton_cases import EXAMPLES, Case, assert_close, example, lower, make_case, run_cases

from sketchc.cli.main import run

require("triton_cuda")

#: What kernels are made for, and what they run at: sizes of one, around the tiles, and primes.
MADE_FOR: dict[str, tuple[str, list[dict[str, int]]]] = {
    "causal_attention": (
        "B=2,HQ=16,HK=16,M=1024,N=1024,D=64",
        [
            {"B": 1, "HQ": 2, "HK": 1, "M": 65, "N": 67, "D": 17},
            {"B": 1, "HQ": 1, "HK": 1, "M": 1, "N": 1, "D": 1},
        ],
    ),
    "conv2d": (
        "N=32,C=64,H=56,W=56,O=128,CG=64,KH=3,KW=3",
        [{"N": 2, "C": 3, "H": 9, "W": 7, "O": 5, "CG": 3, "KH": 3, "KW": 2}],
    ),
    "depthwise_conv2d": (
        "N=8,C=64,H=128,W=512,KH=3,KW=3",
        [{"N": 1, "C": 2, "H": 17, "W": 19, "KH": 3, "KW": 3}],
    ),
    "matmul": ("M=2048,N=2048,K=2048", [{"M": 129, "N": 127, "K": 33}, {"M": 1, "N": 1, "K": 1}]),
    "matmul_half": ("M=4096,N=4096,K=4096", [{"M": 129, "N": 63, "K": 65}]),
    "max_pool2d": ("N=32,C=64,H=112,W=112", [{"N": 1, "C": 2, "H": 19, "W": 131}]),
    "softmax": ("M=16384,N=4096", [{"M": 3, "N": 101}, {"M": 1, "N": 1}]),
    "sum_middle": ("B=1,M=8191,N=64", [{"B": 2, "M": 17, "N": 257}, {"B": 1, "M": 1, "N": 1}]),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Case, Any]]]:
    """The lowered examples at all of their sizes, run in one worker."""
    folder = tmp_path_factory.mktemp("lowered")
    cases: list[tuple[str, Case]] = []
    for name, (made_for, several) in MADE_FOR.items():
        out = folder / f"{name}.py"
        words = ["lower", str(EXAMPLES / f"{name}.sketch"), "-t", "triton_cuda", "--quiet"]
        assert run([*words, "--symbols", made_for, "-o", str(out)]) == 0
        kernel = attrs.evolve(lower(example(name))[1], source=out.read_text("utf-8"))
        for symbols in several:
            cases.append((name, make_case(kernel, symbols, tensors=_small(name, symbols))))
    results = run_cases([case for _, case in cases], folder)
    found: dict[str, list[tuple[Case, Any]]] = {}
    for (name, case), result in zip(cases, results, strict=True):
        found.setdefault(name, []).append((case, result))
    return found


def _small(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Operands of f16, whose sums stay in the range of that type."""
    if name != "matmul_half":
        return {}
    rng = np.random.default_rng(1)
    shapes = {"A": (sizes["M"], sizes["K"]), "B": (sizes["K"], sizes["N"])}
    return {k: rng.standard_normal(shape).astype(np.float16) for k, shape in shapes.items()}


@pytest.mark.parametrize("name", sorted(MADE_FOR))
def test_numbers_are_those_of_the_interpreter(
    name: str, outcomes: dict[str, list[tuple[Case, Any]]]
) -> None:
    for case, result in outcomes[name]:
        assert not isinstance(result, str), result
        terms = max(1, *case.symbols.values()) * 9
        for key, expected in case.expected.items():
            assert_close(result[key], expected, terms=terms)


def test_the_kernel_says_what_was_chosen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(EXAMPLES / "group_norm.sketch")
    words = ["lower", path, "-t", "triton_cuda", "-o", str(tmp_path / "k.py")]
    assert run([*words, "--symbols", "N=32,C=256,H=64,W=64"]) == 0
    told = capsys.readouterr().err
    assert "at these sizes" in told
    assert "num_warps = " in told
    text = (tmp_path / "k.py").read_text()
    chosen = told.partition("num_warps = ")[2].split(":")[0]
    assert f"num_warps={chosen}," in text
    again = tmp_path / "again.py"
    settled = ["--set", f"num_warps={chosen}", "--quiet", "-o", str(again)]
    assert run([*words[:-2], *settled]) == 0
    assert again.read_text().partition("# sketch:")[0].count(f"num_warps={chosen}") == 1


def test_explain_plan_predicts_what_would_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    path, (sizes, _) = str(EXAMPLES / "max_pool2d.sketch"), MADE_FOR["max_pool2d"]
    assert run(["explain-plan", path, "-t", "triton_cuda", "--symbols", sizes]) == 0
    told = capsys.readouterr().out
    assert run(["lower", path, "-t", "triton_cuda", "--symbols", sizes]) == 0
    chosen = [line for line in capsys.readouterr().out.splitlines() if line.startswith("TH = ")]
    assert chosen[0].partition("  #")[0].replace(" ", "") in told.replace(" ", "")
