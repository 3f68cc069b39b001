"""Numbers are judged as they should be, with the C++ that is generated: right kernels pass whatever
the task's own arithmetic is like, and wrong ones do not hide behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sketchc.cli import main
from sketchc.runtime.verify import session

HEADS = """
sketch heads {
    symbols: M, D, H;
    let: DH = D//H, scale = 1/DH;
    tensors: X[M, D]: in f32; G[H]: in f32; Y[M, D]: out f32;
    constexpr: T = 32;
    require: DH >= 1, D % H == 0;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        for j in range(0, D, T):
            x = alloc([T])
            load(X[i, j:j+T] -> x)
            mul(x, scale, x)
            store(x -> Y[i, j:j+T])
}
"""
OF_HEADS = "return x / (x.shape[1] // g.shape[0])", "torch.randn(9, 64), torch.randn(8)"


def task_of(body: str, inputs: str, first: str = "") -> str:
    """A task whose forward takes as many tensors as there are names before the body's colon."""
    names = ", ".join("xgabc"[: inputs.count("torch.")])
    return (
        f"import torch\nfrom torch import nn\n{first}\n\nclass Model(nn.Module):\n"
        f"    def forward(self, {names}):\n        {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def judged(
    folder: Path, sketch: str, task: str, *more: str, target: str = "cpp"
) -> tuple[int, dict[str, Any]]:
    """The exit status of `sketchc verify` and its verdict as JSON."""
    (folder / "one.sketch").write_text(sketch)
    (folder / "task.py").write_text(task)
    place = [str(folder / "one.sketch"), "--task", str(folder / "task.py"), "--target", target]
    with CliRunner().isolation() as streams:
        status = main.run(["verify", *place, "--json", *(more or ("--seed", "3"))])
        printed, said = streams[0].getvalue().decode(), streams[1].getvalue().decode()
    assert printed.startswith("{"), printed + said
    return status, json.loads(printed)


def test_a_let_that_has_no_value_at_some_sizes_is_no_error(tmp_path: Path) -> None:
    """Sizes to probe with give `D//H` = 0, and a scale of 1/0: no launch is like that."""
    status, verdict = judged(tmp_path, HEADS, task_of(*OF_HEADS))
    assert (status, verdict["failure"]) == (0, "")
    sizes = [case["shape"]["symbols"] for case in verdict["cases"]]
    assert len({(s["D"], s["H"]) for s in sizes}) >= 3


@pytest.mark.parametrize("why", ["too large", "took more than"])
def test_what_nobody_could_ask_is_undecided(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "too large":
        monkeypatch.setattr(session, "_INTERPRETABLE", 0)
    else:
        monkeypatch.setattr(session, "_BLAME_TIMEOUT", 1e-3)
    wrong = task_of("return x / (x.shape[1] // g.shape[0]) + 1", OF_HEADS[1])
    status, verdict = judged(tmp_path, HEADS, wrong)
    case = verdict["cases"][0]
    assert (status, verdict["failure"], case["sketch_right"]) == (1, "numerical", None)
    assert "undecided whether the sketch or the code is wrong" in case["reason"]
    assert why in case["undecided"]
