"""Tasks whose inputs are more than tensors: containers, texts, None, numbers that are left out."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sketchc.cli.main import run

pytest.importorskip("torch")

SKETCH = """
sketch weighted {
    symbols: M, N;
    params: scale: f32;
    tensors: A[M, N]: in f32; B[M, N]: in f32; W[N]: in f32; Y[M, N]: out f32; Z[M, N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            a = alloc([T], llm_hint=["fast", "input_cache"])
            b = alloc([T], llm_hint=["fast", "input_cache"])
            w = alloc([T], llm_hint=["fast", "input_cache"])
            load(A[i, j*T:(j+1)*T] -> a)
            load(B[i, j*T:(j+1)*T] -> b)
            load(W[j*T:(j+1)*T] -> w)
            add(a, b, a)
            mul(a, w, a)
            store(a -> Z[i, j*T:(j+1)*T])
            mul(a, scale, a)
            store(a -> Y[i, j*T:(j+1)*T])
}
"""
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, xs, kind, scale, weights, rows=(1, 1), bias=None, *, dim=1):
        assert isinstance(xs, list) and isinstance(xs[1], tuple) and isinstance(weights, dict)
        assert (kind, rows, bias, dim) == ("sum", (1, 1), None, 1)
        (a, (b,)) = xs
        z = (a + b).repeat(*rows) * weights["w"]
        return {"scaled": z * scale, "parts": [z]}

def get_inputs():
    parts = [torch.randn(24, 40), (torch.randn(24, 40),)]
    return [parts, "sum", 0.5, {"w": torch.randn(40), "order": 3}, (1, 1), None, 1]
"""
MODEL_NEW = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(a, b, w, y, z, M, N, scale, T: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, N, T):
        at = start + tl.arange(0, T)
        mask = at < N
        place = row * N + at
        total = tl.load(a + place, mask) + tl.load(b + place, mask)
        total *= tl.load(w + at, mask)
        tl.store(z + place, total, mask)
        tl.store(y + place, total * scale, mask)

class ModelNew(torch.nn.Module):
    def forward(self, xs, kind, scale, weights, rows=(1, 1), bias=None, dim=1):
        assert (kind, rows, bias, dim) == ("sum", (1, 1), None, 1)
        assert type(weights["order"]) is int
        (a, (b,)) = xs
        w = weights["w"]
        a, b, w = a.contiguous(), b.contiguous(), w.contiguous()
        y, z = torch.empty_like(a), torch.empty_like(a)
        kernel[(a.shape[0],)](a, b, w, y, z, a.shape[0], a.shape[1], scale, T=64)
        return {"scaled": y, "parts": [z]}
"""


def verify(
    folder: Path, capsys: pytest.CaptureFixture[str], candidate: str, task: str, *options: str
) -> tuple[int, dict[str, Any]]:
    path = folder / "task.py"
    path.write_text(dedent(task))
    common = ["--task", str(path), "--json", "--no-store", "--target"]
    status = run(["verify", candidate, *common, *(options or ("cpp",))])
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture
def sketch(tmp_path: Path) -> str:
    (tmp_path / "weighted.sketch").write_text(SKETCH)
    return str(tmp_path / "weighted.sketch")


def test_containers_texts_and_numbers(
    tmp_path: Path, sketch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = verify(tmp_path, capsys, sketch, TASK)
    assert status == 0, found
    assert any("`dim`) of the task fills no param: it is 1" in note for note in found["notes"])
    assert any("`weights['order']`) of the task fills no param" in note for note in found["notes"])


def test_containers_of_numpy(
    tmp_path: Path, sketch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TASK.replace("import torch", "import numpy as np").replace("torch.nn.Module", "")
    task = task.replace("class Model()", "class Model").replace("forward", "__call__")
    task = task.replace("torch.randn(24, 40)", "np.random.randn(24, 40).astype(np.float32)")
    task = task.replace("torch.randn(40)", "np.random.randn(40).astype(np.float32)")
    task = task.replace("(a + b).repeat(*rows)", "np.tile(a + b, rows)")
    status, found = verify(tmp_path, capsys, sketch, task)
    assert status == 0, found


def test_a_wrong_kernel_of_such_a_task_fails(
    tmp_path: Path, sketch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(sketch).write_text(SKETCH.replace("add(a, b, a)", "sub(a, b, a)"))
    status, found = verify(tmp_path, capsys, sketch, TASK)
    assert status == 1
    assert not found["passed"]


def test_a_module_gets_inputs_as_the_task_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model_new.py").write_text(MODEL_NEW)
    task = TASK.replace(" *, dim", " dim")
    status, found = verify(tmp_path, capsys, str(tmp_path / "model_new.py"), task, "triton_cuda")
    assert status == 0, found


def test_a_file_may_correct_such_inputs(
    tmp_path: Path, sketch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TASK.replace("(a, (b,)) = xs", "(a, (b,)) = xs\n        assert (a > 0).all()")
    task += dedent("""
        def valid_inputs(inputs):
            (a, (b,)), kind, *rest = inputs
            assert kind == "sum" and rest[-1] == 1
            return [[a.abs() + 1, (b,)], kind, *rest]
        """)
    task = task.replace("[torch.randn(24, 40), (", "[torch.rand(24, 40) + 1, (")
    status, found = verify(tmp_path, capsys, sketch, task)
    assert status == 0, found


SHAPES = {
    "chosen rows": "x[x[:, 0] > 0]",
    "where": "torch.nonzero(x > 0)",
    "what is there": "torch.unique(y)",
    "repeated": "torch.repeat_interleave(x, y[:24] % 3, dim=0)",
    "cut": "x[: int(y[0])]",
}


@pytest.mark.parametrize("what", SHAPES)
@pytest.mark.parametrize("columns", [40, 1 << 20])
def test_shapes_that_follow_values_are_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, columns: int
) -> None:
    task = f"""
        import torch
        class Model(torch.nn.Module):
            def forward(self, x, y):
                return {SHAPES[what]}
        def get_inputs():
            return [torch.randn(24, {columns}), torch.randint(0, 9, (24,))]
        """
    (tmp_path / "task.py").write_text(dedent(task))
    letters = tmp_path / "letters"
    options = ["--target", "cpp", "--llm", f"mailbox:{letters}", "--no-store"]
    assert run(["gen", str(tmp_path / "task.py"), *options]) == 2
    assert "no sketch can express" in capsys.readouterr().err
    assert not letters.exists() or not list(letters.iterdir())


@pytest.mark.parametrize("rows", ["24", "20 + torch.randint(4, 5, (1,)).item()"])
def test_values_that_change_no_shape_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    task = """
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                found = torch.relu(x).clone()
                found[x < 0] = 0
                return found if x.max().item() > 1e9 else found.reshape(x.shape)
        def get_inputs():
            return [torch.randn(ROWS, 40)]
        """.replace("ROWS", rows)
    relu = Path(__file__).resolve().parents[2] / "examples" / "relu.sketch"
    status, found = verify(tmp_path, capsys, str(relu), task)
    assert status == 0, found


@pytest.mark.parametrize("kind", ["torch.float16", "torch.float32"])
def test_a_sketch_of_another_type_fails_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    relu = Path(__file__).resolve().parents[2] / "examples" / "relu.sketch"
    task = f"""
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                return torch.relu(x)
        def get_inputs():
            return [torch.randn(24, 40, dtype={kind})]
        """
    status, found = verify(tmp_path, capsys, str(relu), task)
    if kind.endswith("32"):
        assert status == 0, found
        return
    assert status == 1
    assert [case["failure"] for case in found["cases"]] == ["wrong_shape"]
    assert "X is f32, and input 1 of the task f16" in found["cases"][0]["reason"]
    assert "Y is f32, and the task returns f16" in found["cases"][0]["reason"]


def test_a_hint_speaks_of_all_parts_of_an_argument(
    tmp_path: Path, sketch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TASK.replace("(a, (b,)) = xs", "(a, (b,)) = xs\n        assert (a > 0).all()")
    task = task.replace("(a > 0).all()", "(a > 0).all() and (b > 0).all()")
    task = "# @hint: xs in (0, 1]\n" + task.replace("torch.randn(24, 40)", "1 - torch.rand(24, 40)")
    status, found = verify(tmp_path, capsys, sketch, task)
    assert status == 0, found


@pytest.mark.parametrize(
    ("condition", "made", "said"),
    [
        ("(b >= 0).all() and (b <= 1).all()", "torch.rand(24, 40)", "in [0, 1]"),
        ("(b >= 0).all()", "3 * torch.rand(24, 40)", "in [0, inf]"),
    ],
)
def test_what_the_task_refuses_is_not_drawn(
    condition: str,
    made: str,
    said: str,
    tmp_path: Path,
    sketch: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = TASK.replace("(a, (b,)) = xs", f"(a, (b,)) = xs\n        assert {condition}")
    status, found = verify(tmp_path, capsys, sketch, task.replace("torch.randn(24, 40)", made))
    assert status == 0, found
    assert {case["kind"] for case in found["cases"]} > {"task", "normal", "mixed_scale"}
    assert any(said in note and "refuses" in note for note in found["notes"]), found["notes"]
