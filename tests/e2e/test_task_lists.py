"""Tasks with several lists of inputs: one signature for all that are alike, and others named."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from toolchains import require

from sketchc.cli.main import run
from sketchc.interpreter.launch import show_declaration
from sketchc.runtime.tasks.signature import signature_of
from sketchc.runtime.tasks.task import load_task
from sketchc.runtime.verify import case_runner

pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RELU = str(EXAMPLES / "relu.sketch")
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, {arguments}):
        return {result}
def {maker}():
    return [{lists}]
"""
MAKERS = ("get_inputs_dyn_list", "get_input_groups")


def task(folder: Path, arguments: str, result: str, *lists: str, maker: str = MAKERS[0]) -> Path:
    path = folder / "task.py"
    given = ", ".join(f"[{values}]" for values in lists)
    text = TASK.format(arguments=arguments, result=result, maker=maker, lists=given)
    path.write_text(dedent(text))
    return path


def signature(path: Path) -> list[str]:
    with load_task(str(path)) as loaded:
        return [show_declaration(tensor) for tensor in signature_of(loaded, "f").tensors]


def randn(*shapes: tuple[int, ...]) -> str:
    return ", ".join(f"torch.randn{shape}" for shape in shapes)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_square_first_list_makes_no_square_signature(tmp_path: Path, maker: str) -> None:
    lists = [randn(shape) for shape in ((64, 64), (32, 48), (128, 128), (16, 80))]
    path = task(tmp_path, "x", "torch.relu(x)", *lists, maker=maker)
    assert signature(path) == ["X[M, N]: f32", "Y[M, N]: f32"]


def test_extents_that_agree_in_all_lists_are_one_symbol(tmp_path: Path) -> None:
    lists = [randn((m, k), (k, k), (k,)) for m, k in ((64, 64), (32, 48))]
    path = task(tmp_path, "x, w, b", "x @ w + b", *lists)
    assert signature(path) == ["X[M, N]: f32", "X2[N, N]: f32", "X3[N]: f32", "Y[M, N]: f32"]


def test_extents_of_one_that_grow_in_another_list_are_symbols(tmp_path: Path) -> None:
    path = task(tmp_path, "x", "x * 2", randn((1, 64)), randn((8, 64)), randn((8, 96)))
    assert signature(path) == ["X[M, N]: f32", "Y[M, N]: f32"]


def test_extents_that_vary_in_steps(tmp_path: Path) -> None:
    path = task(
        tmp_path,
        "x",
        "x.view(x.shape[0], -1, 16).sum(2)",
        randn((4, 64)),
        randn((4, 96)),
    )
    assert signature(path) == ["X[M, N]: f32", "Y[M, (N - 16)//16 + 1]: f32"]


def test_lists_of_other_types_and_ranks_leave_the_signature_alone(tmp_path: Path) -> None:
    lists = [randn((64, 64)), randn((32, 48)), "torch.randn(3, 4, 5)", "torch.randn(8, 9).half()"]
    path = task(tmp_path, "x", "torch.relu(x)", *lists, maker=MAKERS[1])
    assert signature(path) == ["X[M, N]: f32", "Y[M, N]: f32"]


def verify(
    capsys: pytest.CaptureFixture[str], path: Path, candidate: str = RELU
) -> tuple[int, dict[str, Any]]:
    options = ["--task", str(path), "--json", "--no-store", "--target", "cpp"]
    status = run(["verify", candidate, *options])
    return status, json.loads(capsys.readouterr().out)


def own(found: dict[str, Any]) -> list[tuple[int, ...]]:
    cases = [case for case in found["cases"] if case["kind"] == "task"]
    return sorted(tuple(case["shape"]["symbols"].values()) for case in cases)


def test_a_kernel_is_verified_on_the_lists_of_its_signature(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = ["torch.randn(3, 4, 5)", "torch.randn(8, 9).half()", randn((33, 48)), randn((5, 7))]
    path = task(tmp_path, "x", "torch.relu(x)", *lists, maker=MAKERS[1])
    status, found = verify(capsys, path)
    assert status == 0, found
    assert own(found) == [(5, 7), (33, 48)]
    notes = "\n".join(found["notes"])
    assert "list 3 of get_input_groups leads" in notes
    assert "list 1 of get_input_groups is not tried" in notes
    assert "list 2 of get_input_groups is not tried: input 1 is f16 there" in notes


def test_a_sketch_that_fits_no_list_is_told_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = task(tmp_path, "x", "torch.relu(x)", "torch.randn(3, 4, 5)", "torch.randn(4)")
    status, found = verify(capsys, path)
    assert status == 2
    assert "rank 3" in found["error"]["reason"]


SQUARE = """
#include <cstdint>
extern "C" int64_t relu(const float *x, float *y, int64_t M, int64_t N) {
    for (int64_t i = 0; i < M * M; ++i) y[i] = x[i] > 0 ? x[i] : 0;
    return 0;
}
"""


def test_a_kernel_for_squares_alone_fails_where_only_the_first_list_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = task(tmp_path, "x", "torch.relu(x)", randn((64, 64)), randn((48, 64)))
    (tmp_path / "relu.cpp").write_text(SQUARE)
    status, found = verify(capsys, path, str(tmp_path / "relu.cpp"))
    assert status == 1, found
    (tmp_path / "relu.cpp").write_text(SQUARE.replace("M * M", "M * N"))
    status, found = verify(capsys, path, str(tmp_path / "relu.cpp"))
    assert status == 0, found
    assert own(found) == [(48, 64), (64, 64)]
    assert any("read off the task: X[M, N]: f32 in; Y[M, N]" in note for note in found["notes"])


def test_the_printed_signature_says_which_lists_it_is_not_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = task(tmp_path, "x", "torch.relu(x)", randn((64, 64)), "torch.randn(3, 4, 5)")
    assert run(["verify", "--print-signature", "--task", str(path), "--target", "cpp"]) == 0
    assert "// Not for list 2 of get_inputs_dyn_list: " in capsys.readouterr().out


def test_lists_of_other_constants_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = ["torch.randn(8, 9), 'up'", "torch.randn(4, 9), 'down'", "torch.randn(5, 9), 'up'"]
    path = task(tmp_path, "x, way", "torch.relu(x) if way == 'up' else -x", *lists)
    status, found = verify(capsys, path)
    assert (status, found["verdict"], found["passed"]) == (2, "incomplete", False), found
    assert own(found) == [(5, 9), (8, 9)]
    assert any("list 2 of get_inputs_dyn_list is not tried" in note for note in found["notes"])
    assert ["list 2 of get_inputs_dyn_list" in gap for gap in found["unreached"]] == [True]


def test_a_sketch_for_squares_alone_is_incomplete_where_a_list_holds_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    square = Path(RELU).read_text().replace("M, N;", "M;").replace("[M, N]", "[M, M]")
    (tmp_path / "relu.sketch").write_text(square.replace("M*N", "M*M"))
    path = task(tmp_path, "x", "torch.relu(x)", randn((64, 64)), randn((48, 64)))
    status, found = verify(capsys, path, str(tmp_path / "relu.sketch"))
    assert (status, found["verdict"], found["failure"]) == (2, "incomplete", ""), found
    assert "list 2 of get_inputs_dyn_list, which is not run" in found["unreached"][0]


SCALED = """
sketch scaled {
    symbols: M, N;
    params: alpha: f32; up: bool;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T], llm_hint=["fast", "input_cache"])
            load(X[i, j*T:(j+1)*T] -> x)
            if up:
                mul(x, alpha, x)
            store(x -> Y[i, j*T:(j+1)*T])
}
"""


def test_lists_with_other_numbers_are_run_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = [f"torch.randn({rows}, 9), {numbers}" for rows, numbers in
             ((8, "0.5, True"), (8, "2, True"), (4, "0.5, False"), (4, "0.5, True"))]  # fmt: skip
    path = task(tmp_path, "x, alpha, up", "x * alpha if up else x.clone()", *lists)
    sketch = tmp_path / "scaled.sketch"
    sketch.write_text(SCALED)
    status, found = verify(capsys, path, str(sketch))
    assert status == 0, found
    cases = [case["shape"] for case in found["cases"] if case["kind"] == "task"]
    assert [(case["symbols"]["M"], case["numbers"]) for case in cases] == [
        (8, {"alpha": 2}),
        (4, {"up": False}),
        (4, {}),
        (8, {}),
    ]
    sketch.write_text(SCALED.replace("if up:", "if up or M == 4:"))
    assert verify(capsys, path, str(sketch))[0] == 1
    sketch.write_text(SCALED.replace("mul(x, alpha, x)", "mul(x, 0.5, x)"))
    assert verify(capsys, path, str(sketch))[0] == 1


@pytest.mark.parametrize(
    ("arguments", "result", "shapes", "wanted", "asked"),
    [
        # Half of a row beside the row, in each list.
        (
            "x, c",
            "torch.cat([x[..., ::2] * c, x[..., 1::2] * c], -1)",
            (((6, 64), (6, 32)), ((9, 96), (9, 48))),
            ["X[M, 2*N]: f32", "X2[M, N]: f32", "Y[M, 2*N]: f32"],
            [],
        ),
        # The smallest step that the task takes, not the largest that its lists share.
        (
            "x",
            "torch.nn.functional.group_norm(x, 4)",
            (((3, 16, 10),), ((5, 48, 12),)),
            ["X[M, N, K]: f32", "Y[M, N, K]: f32"],
            ["N%4 == 0"],
        ),
        # An axis of one place would be none.
        (
            "x",
            "torch.squeeze(x)",
            (((8, 1, 12),), ((9, 1, 14),)),
            ["X[M, 1, N]: f32", "Y[M, N]: f32"],
            ["M >= 2", "N >= 2"],
        ),
    ],
)
def test_what_a_task_asks_of_its_sizes(
    arguments: str,
    result: str,
    shapes: tuple[tuple[tuple[int, ...], ...], ...],
    wanted: list[str],
    asked: list[str],
    tmp_path: Path,
) -> None:
    path = task(tmp_path, arguments, result, *(randn(*each) for each in shapes))
    with load_task(str(path)) as loaded:
        sketch = signature_of(loaded, "f")
    assert [show_declaration(tensor) for tensor in sketch.tensors] == wanted
    assert [condition.text for condition in sketch.requires] == asked


@pytest.mark.sweep
def test_a_list_that_is_too_large_for_any_run_has_no_data(
    tmp_path: Path,
) -> None:
    """Of 40 TB no machine has the memory; the other lists are run."""
    require("cpp")
    large = "torch.randn(10_000_000, 1_000_000) * 0.1"
    path = task(tmp_path, "x", "torch.relu(x)", randn((20, 30)), large, randn((7, 1)))
    with load_task(str(path)) as loaded:
        described = loaded.describe()
        (first,) = loaded.own_inputs(3)
        (last,) = loaded.own_inputs(3, 2)
    assert [values[0].shape for values in described.others] == [(10_000_000, 1_000_000), (7, 1)]  # type: ignore[union-attr]
    assert np.shape(first) == (20, 30)
    assert np.shape(last) == (7, 1)
    assert np.std(first) > 0.5  # type: ignore[type-var, arg-type]
    out = tmp_path / "out"
    assert run(["gen", str(path), "--target", "cpp", "--no-bench", "-o", str(out)]) == 0


def test_lists_may_be_drawn_around_tensors(tmp_path: Path) -> None:
    """`torch.normal` of two tensors takes no device, on which nothing has data."""
    drawn = "torch.normal(torch.zeros(20, 30), torch.ones(20, 30))"
    path = task(tmp_path, "x", "torch.relu(x)", drawn, randn((7, 9)))
    with load_task(str(path)) as loaded:
        (first,) = loaded.own_inputs(3)
    assert np.shape(first) == (20, 30)
    assert 0.5 < np.std(first) < 2.0  # type: ignore[type-var, arg-type, operator]


def test_one_sum_of_logarithms_is_judged_where_the_tasks_own_inputs_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One zero among the inputs makes all of its output infinite, and parts of the task's own
    inputs, which have none, are not made from so many elements on."""
    require("cpp")
    monkeypatch.setattr(case_runner, "_MOST", 100)
    path = task(tmp_path, "x", "torch.log(x).mean()", "torch.rand(20, 30) + 0.01")
    out = tmp_path / "out"
    assert run(["gen", str(path), "--target", "cpp", "--no-bench", "-o", str(out)]) == 0
