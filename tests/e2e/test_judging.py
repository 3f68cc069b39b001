"""Numbers are judged as they should be, with the C++ that is generated: right kernels pass whatever
the task's own arithmetic is like, and wrong ones do not hide behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sketchc.cli import main
from sketchc.runtime.report.results import relaxed
from sketchc.runtime.verify import case_runner
from sketchc.runtime.verify.verdict import from_json

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
        monkeypatch.setattr(case_runner, "_INTERPRETABLE", 0)
    else:
        monkeypatch.setattr(case_runner, "_BLAME_TIMEOUT", 1e-3)
    wrong = task_of("return x / (x.shape[1] // g.shape[0]) + 1", OF_HEADS[1])
    status, verdict = judged(tmp_path, HEADS, wrong)
    case = verdict["cases"][0]
    assert (status, verdict["failure"], case["sketch_right"]) == (1, "numerical", None)
    assert "undecided whether the sketch or the code is wrong" in case["reason"]
    assert why in case["undecided"]


PUT = """
sketch put {
    symbols: M, D, K;
    tensors: X[M, D]: in f32; I[K]: in i64; V[K, D]: in f32; Y[M, D]: out f32;
    constexpr: T = 32;

    @llm_hint("parallel", "grididx")
    for j in range(ceil(D, T)):
        x = alloc([1, T])
        k = alloc([1], i64)
        for i in range(M):
            load(X[i:i+1, j*T:j*T+T] -> x)
            store(x -> Y[i:i+1, j*T:j*T+T])
        for r in range(K):
            load(I[r:r+1] -> k)
            load(V[r:r+1, j*T:j*T+T] -> x)
            store(x -> Y[k, j*T:j*T+T])
}
"""
PUT_TASK = """
import torch

def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor):
    BODY

def get_inputs():
    return [torch.randn(600, 700), PLACES, torch.randn(500, 700)]
"""


@pytest.mark.parametrize("body", ["return x.index_copy(0, i, v)", "y = x + 0; y[i] = v; return y"])
def test_a_task_that_races_where_indices_are_drawn_twice_passes(body: str, tmp_path: Path) -> None:
    """Its own indices are all different; those that are drawn are not."""
    task = PUT_TASK.replace("BODY", body).replace("PLACES", "torch.randperm(600)[:500]")
    status, verdict = judged(tmp_path, PUT, task)
    assert (status, verdict["failure"]) == (0, "")


def verified(folder: Path, sketch: str, task: str) -> tuple[int, str]:
    """The exit status of `sketchc verify`, and what it says."""
    (folder / "one.sketch").write_text(sketch)
    (folder / "task.py").write_text(task)
    place = [str(folder / "one.sketch"), "--task", str(folder / "task.py"), "--target", "cpp"]
    with CliRunner().isolation() as streams:
        status = main.run(["verify", *place, "--seed", "3"])
        return status, streams[0].getvalue().decode() + streams[1].getvalue().decode()


def test_a_task_that_races_on_its_own_inputs_is_never_the_sketchs_fault(tmp_path: Path) -> None:
    """Refused where its runs differ; where they happen to agree, the sketch is right."""
    body = "return x.index_copy(0, i, v)"
    task = PUT_TASK.replace("BODY", body).replace("PLACES", "torch.arange(500) % 7")
    status, said = verified(tmp_path, PUT, task)
    assert status == 0 or (status == 2 and "the task is not deterministic" in said), said


def test_a_task_that_follows_the_number_of_threads_is_refused(tmp_path: Path) -> None:
    body = "return x.index_copy(0, i, v) + torch.get_num_threads()"
    task = PUT_TASK.replace("BODY", body).replace("PLACES", "torch.randperm(600)[:500]")
    status, said = verified(tmp_path, PUT, task)
    assert status == 2
    assert "the task is not deterministic" in said


TOP_TWO = """
sketch top_two {
    symbols: M, N <= 1024;
    tensors: X[M, N]: in f32; V[M, 2]: out f32; P[M, 2]: out i64;
    require: N >= 2;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        e = alloc([N])
        m = alloc([1])
        s = alloc([1])
        v = alloc([1])
        k = alloc([1], i64)
        load(X[i, 0:N] -> x)
        reduce_max(x, 0, m)
        sub(x, m, e)
        exp(e, e)
        reduce_sum(e, 0, s)
        div(e, s, e)
        reduce_max(e, 0, v)
        argmax(e, 0, k)
        store(v -> V[i, 0:1])
        store(k -> P[i, 0:1])
        where(iota(N) == k, -1.0, e, e)
        reduce_max(e, 0, v)
        argmax(e, 0, k)
        store(v -> V[i, 1:2])
        store(k -> P[i, 1:2])
}
"""
OF_TOP_TWO = "return torch.softmax(x, 1).topk(2, dim=1)", "torch.randn(64, 100)"


@pytest.mark.parametrize("target", ["cpp", "triton_cuda"])
def test_top_two_of_a_softmax_passes_where_values_underflow(target: str, tmp_path: Path) -> None:
    for seed in ("1", "2", "3") if target == "cpp" else ("1",):
        more = ("--seed", seed)
        status, verdict = judged(tmp_path, TOP_TWO, task_of(*OF_TOP_TWO), *more, target=target)
        assert (status, verdict["failure"]) == (0, ""), seed
    ties = [
        c for case in verdict["cases"] for c in case["comparisons"] if "indices of" in c["reason"]
    ]
    assert ties, "no case has a tie: this tests nothing"


def test_top_two_that_names_one_place_twice_fails(tmp_path: Path) -> None:
    wrong = TOP_TWO.replace("where(iota(N) == k, -1.0, e, e)", "where(iota(N) == k, -1.0, e, x)")
    status, verdict = judged(tmp_path, wrong, task_of(*OF_TOP_TWO))
    assert (status, verdict["failure"]) == (1, "design")


def test_the_report_says_what_was_relaxed_and_by_how_much(tmp_path: Path) -> None:
    """How many elements, why, and the one that is furthest off; nothing says that all are within
    tolerance."""
    _, verdict = judged(tmp_path, TOP_TWO, task_of(*OF_TOP_TWO))
    found = [c for case in verdict["cases"] for c in case["comparisons"] if c["waivers"]]
    assert found
    waiver = found[0]["waivers"][0]
    assert waiver["count"] >= 1
    assert "equal within tolerance" in waiver["why"]
    assert waiver["expected"] != waiver["actual"]
    assert all("furthest off" in why for *_, why in relaxed(from_json(verdict)))
    _, said = verified(tmp_path, TOP_TWO, task_of(*OF_TOP_TWO))
    assert "relaxed at" in said
    assert "by a relaxed rule" in said
    assert "every element within tolerance" not in said
