"""`gen`, `verify` and `bench` choose what a sketch leaves open for the task's own sizes: it is what
`lower --symbols` chooses for these, and one kernel is generated, verified, timed and shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolchains import require

from sketchc.base.diagnostics import Source
from sketchc.cli.main import run
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_language, load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.store.origins import read_origin

SKETCHES = Path(__file__).resolve().parents[2] / "examples"
PRODUCT = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn({M}, {K}), torch.randn({K}, {N})]


def get_init_inputs():
    return []
"""
SUM = """
import torch


def add(x, bias):
    return x + bias


def get_inputs():
    return [torch.randn({M}, {N}), torch.randn({N})]
"""
#: Around the tiles of the plan's choice for all sizes, and far from it.
SMALL, WIDE = {"M": 33, "N": 31, "K": 65}, {"M": 4, "N": 2000, "K": 8}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


def task(text: str, sizes: dict[str, int]) -> str:
    path = Path("_".join(["task", *map(str, sizes.values())]) + ".py")
    path.write_text(text.format(**sizes))
    return str(path)


def chosen(sketch: Path, target: str, sizes: dict[str, int] | None) -> dict[str, Any]:
    tree, found = parse(Source(sketch.name, sketch.read_text()))
    assert tree is not None, found
    plan = build_plan(tree.entries[0], target, sizes=sizes).plan
    return {constant.name: constant.value for constant in plan.sketch.constants}


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    run([*words, "--json", "--no-store"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def code(path: Path, target: str) -> str:
    """The code of a kernel's file, without what it says of its sketch."""
    language = load_language(load_target(target).language.name)
    return read_origin(path.read_text(), language)[0].strip()


@pytest.mark.parametrize("sizes", [SMALL, WIDE], ids=["small", "wide"])
def test_verify_goes_by_the_tasks_sizes(
    sizes: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    sketch = SKETCHES / "matmul.sketch"
    found = told(["verify", str(sketch), "--task", task(PRODUCT, sizes), "-t", "cpp"], capsys)
    assert found["passed"]
    assert found["constants"] == chosen(sketch, "cpp", sizes) != chosen(sketch, "cpp", None)
    shapes = {tuple(case["shape"]["symbols"].values()) for case in found["cases"]}
    assert len(shapes) > 5  # other sizes are verified as ever
    assert any(case["shape"]["own"] for case in found["cases"])


def test_several_files_go_by_the_tasks_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    first, second = SKETCHES / "matmul.sketch", Path("again.sketch")
    second.write_text(first.read_text())
    files = [str(first), str(second)]
    found = told(["verify", *files, "--task", task(PRODUCT, SMALL), "-t", "cpp"], capsys)
    wanted = chosen(first, "cpp", SMALL)
    assert [one["constants"] for one in found["verdicts"]] == [wanted, wanted]


def test_what_the_user_sets_stays(capsys: pytest.CaptureFixture[str]) -> None:
    require("cpp")
    words = ["verify", str(SKETCHES / "matmul.sketch"), "--task", task(PRODUCT, SMALL), "-t", "cpp"]
    found = told([*words, "--set", "TM=128"], capsys)
    assert found["passed"]
    assert found["constants"]["TM"] == 128


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_what_is_generated_is_what_is_verified_and_shipped(target: str, tmp_path: Path) -> None:
    require(target)
    sizes = {"M": 7, "N": 90, "K": 600}
    given = task(PRODUCT, sizes)
    words = ["gen", given, "-t", target, "--designer", "builtin", "--no-bench", "-o", "out"]
    assert run([*words, "--quiet"]) == 0
    out, name = tmp_path / "out", Path(given).stem
    suffix = load_target(target).language.suffixes[0]
    sketch, kernel = out / f"{name}.sketch", out / f"{name}{suffix}"
    symbols = "M={M},N={K},K={N}".format(**sizes)  # as the Designer names them
    lowered = ["lower", str(sketch), "-t", target, "--quiet", "-o", "lowered"]
    assert run([*lowered, "--symbols", symbols]) == 0
    assert code(kernel, target) == code(Path("lowered"), target)
    assert run(lowered) == 0
    assert code(kernel, target) != code(Path("lowered"), target)
    verdict = json.loads((out / "verdict.json").read_text())["verdict"]
    assert verdict["passed"]
    by_symbol = dict(part.split("=") for part in symbols.split(","))
    wanted = chosen(sketch, target, {key: int(value) for key, value in by_symbol.items()})
    assert verdict["constants"] == wanted
    said = ", ".join(f"{key} = {value}" for key, value in wanted.items())
    assert f"{said}: picked for" in (out / f"{name}.plan").read_text()


def test_bench_times_the_kernel_that_verify_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """Also at other sizes than the task's, for which another kernel would be chosen."""
    require("cpp")
    sketch, sizes = SKETCHES / "add.sketch", {"M": 4, "N": 64}
    words = ["bench", str(sketch), "--task", task(SUM, sizes), "-t", "cpp", "--samples", "5"]
    words += ["--baseline", "eager"]
    other = {"M": 400, "N": 640}
    found = told(words, capsys)
    at_other = told([*words, "--symbols", "M=400,N=640"], capsys)
    assert found["constants"] == at_other["constants"] == chosen(sketch, "cpp", sizes)
    assert at_other["symbols"] == other
    assert chosen(sketch, "cpp", other) != found["constants"]


def test_a_task_that_the_sketch_does_not_fit_is_told_as_ever(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require("cpp")
    given = task(SUM, {"M": 4, "N": 64})
    assert run(["verify", str(SKETCHES / "matmul.sketch"), "--task", given, "-t", "cpp"]) == 2
    assert "rank" in capsys.readouterr().err


def test_an_option_set_to_zero_is_left_to_the_rule() -> None:
    """What was tuned with the rule's choice is verified and shipped with it."""
    text = (SKETCHES / "softmax.sketch").read_text()
    tree, _ = parse(Source("softmax.sketch", text))
    assert tree is not None
    names = [option.name for option in load_target("triton_cuda").capabilities.launch_options]
    for sizes in ({"M": 1, "N": 1}, {"M": 131072, "N": 8192}, {"M": 7, "N": 1 << 20}):
        zeros = dict.fromkeys(names, 0)
        plan = build_plan(tree.entries[0], "triton_cuda", constants=zeros, sizes=sizes).plan
        assert not set(names) & plan.options.keys()
