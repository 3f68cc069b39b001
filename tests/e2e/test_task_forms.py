"""Tasks through `sketchc verify`: broken ones are told in one line, and sizes keep to the hints."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from toolchains import require_mindspore

from sketchc.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RELU = str(EXAMPLES / "relu.sketch")
MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {body}
def get_inputs():
    return [{inputs}]
"""
FUNCTION = """
import random
import time
import numpy as np
calls = []
def f(x: "f32[M, N]"):
    {body}
"""


def model(body: str, inputs: str = "torch.randn(6, 8)") -> str:
    return MODEL.format(body=body, inputs=inputs)


def function(body: str) -> str:
    return FUNCTION.format(body=body)


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on a task's text; returns its status, what it printed as data, and stderr."""

    def call(
        text: str, *options: str, sketch: str = RELU, name: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "task.py"
        path.write_text(dedent(text))
        arguments = [sketch, "--task", f"{path}{name}", "--target", "cpp", "--json", "--no-store"]
        status = run(["verify", *arguments, *options])
        shown = capsys.readouterr()
        return status, json.loads(shown.out), shown.err

    return call


BROKEN = {
    "import raises": ("import numpy as np\n1 / 0\ndef f(x: 'f32[N]'): return x", "(line 2: 1 / 0)"),
    "a syntax error": ("import numpy as np\ndef f(:\n", "SyntaxError"),
    "no Python of a task": ("import numpy as np\nx = 3\n", "defines no `Model`"),
    "several functions": ("def f(x): return x\ndef g(x): return x\n", "task.py:f"),
    "an undeclared argument": (
        "import numpy as np\ndef f(x): return x\n",
        "`# @hint: x: f32[M, N]`",
    ),
    "a number without a value": (
        "import numpy as np\ndef f(x: 'f32[M, N]', a: float): return x * a\n",
        "`# @hint: a in [0, 1]`",
    ),
    "the function raises": (
        function("raise ValueError('too bad')"),
        "f raised ValueError: too bad",
    ),
    "get_inputs raises": (
        "import numpy as np\ndef f(x): return x\ndef get_inputs(): return [np.ones(-1)]",
        "get_inputs raised ValueError",
    ),
    "get_inputs gives no list": (
        "import numpy as np\ndef f(x): return x\ndef get_inputs(): return np.ones(3)",
        "get_inputs must return a list",
    ),
    "get_inputs names no argument": (
        "import numpy as np\ndef f(x): return x\ndef get_inputs(): return {'y': np.ones(3)}",
        "gives `y`; the arguments are x",
    ),
    "an empty list of lists": (
        "import numpy as np\ndef f(x): return x\ndef get_inputs_dyn_list(): return []",
        "must return a list of lists",
    ),
    "it ends its process": (function("import os; os._exit(7)"), "exit status 7"),
    "it is killed": (function("import os; os.kill(os.getpid(), 9)"), "was killed (SIGKILL) while"),
    "it hangs": (function("time.sleep(1000)"), "no answer within 0.5 s"),
    "nothing comes out": (function("pass"), "returns nothing and changes none of its inputs"),
    "text comes out": (function("return 'text'"), "must return a tensor or several"),
    "complex numbers": (function("return x + 1j"), "complex64 has no counterpart"),
    "NumPy's random numbers": (function("return x + np.random.rand()"), "not deterministic"),
    "Python's random numbers": (function("return x + random.random()"), "not deterministic"),
    "a generator of NumPy": (
        function("return x + np.random.default_rng().random()"),
        "not deterministic",
    ),
    "a count of calls": (function("calls.append(1); return x * len(calls)"), "not deterministic"),
    "the time": (function("return x * (time.time() // 86400 % 7)"), "not deterministic"),
    "memory that nobody wrote": (function("return x + np.empty(x.shape)"), "not deterministic"),
    "memory that torch did not write": (
        model("return x + torch.empty(x.shape)"),
        "not deterministic",
    ),
    "a task of another sketch": (
        "import numpy as np\ndef f(x: 'f32[N]'): return x",
        "has rank 1",
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_task_is_one_line(name: str, verify: Any) -> None:
    text, words = BROKEN[name]
    limit = ("--task-timeout", "0.5") if name == "it hangs" else ()
    status, found, said = verify(text, *limit)
    assert status == 2
    assert words in found["error"]["reason"]
    assert found["error"]["class"] == ("usage" if name == "a task of another sketch" else "task")
    assert said == f"error: {found['error']['reason']}\n"
    assert "Traceback" not in said


def test_what_a_task_makes_for_itself_joins_its_reference(verify: Any) -> None:
    status, verdict, err = verify(model("return torch.relu(x) @ torch.eye(x.shape[1])"))
    assert (status, verdict["failure"], err) == (0, "", ""), verdict


def test_a_large_task_is_found_out_at_small_sizes(verify: Any) -> None:
    """At its own sizes it is never run twice, nor with data before the last cases."""
    text = "import random\n" + model("return x + random.random()", "torch.randn(8192, 4096)")
    status, found, _ = verify(text)
    assert (status, found["error"]["class"]) == (2, "task")
    assert "not deterministic: two runs on the same inputs differ" in found["error"]["reason"]


BAD_HINTS = {
    "# @hint: M between 1 and 9": "line 1: the hint `M between 1 and 9` cannot be read; write",
    "# @hint: x in [9, 1]": "cannot be read",
    "# @hint: x: f33[M, N]": "cannot be read",
    "# @hint: y: f32[M, N]": "speaks of `y`, and the arguments of f are x",
    "# @hint: M in [0.2, 0.7]": "leaves no size for M",
    "# @hint: Q in [1, 8]": "speaks of Q, which is no argument of the task (x)",
    "# @hint: M in [1, 8]; M in [2, 4]": "speaks of M again, after line 1",
}


@pytest.mark.parametrize("hint", BAD_HINTS)
def test_a_bad_hint_is_told_with_its_line(hint: str, verify: Any) -> None:
    text = f"{hint}\nimport numpy as np\n\ndef f(x: 'f32[M, N]'): return np.maximum(x, 0)\n"
    status, found, _ = verify(text)
    assert (status, found["error"]["class"]) == (2, "task")
    assert BAD_HINTS[hint] in found["error"]["reason"]
    assert "line 1" in found["error"]["reason"]


def test_own_sizes_that_break_a_hint_are_told(verify: Any) -> None:
    text = model("return torch.relu(x)", "torch.randn(rows, 8)")
    status, found, _ = verify("# @hint: rows in [8, 64]\nrows = 6\n" + text)
    assert status == 2
    assert "does not allow the task's own size 6" in found["error"]["reason"]


def sizes(found: dict[str, Any], symbol: str) -> set[int]:
    return {case["shape"]["symbols"][symbol] for case in found["cases"]}


def test_cases_keep_to_the_hints_and_try_their_ends(verify: Any) -> None:
    """`batch` is only used by get_inputs, and doubled there; the sketch's M is its rows."""
    text = """
    # @hint: width in range(5, 300, step=7)
    # @hint: batch in {2, 6, 34}
    import numpy as np
    batch, width = 6, 26
    def f(x):
        return np.maximum(x, 0)
    def get_inputs():
        return [np.ones((batch, width), np.float32)]
    """
    status, found, _ = verify(text)
    assert (status, found["passed"]) == (0, True)
    assert sizes(found, "M") == {2, 6, 34}
    assert sizes(found, "N") <= set(range(5, 300, 7))
    assert {5, 26, 299} <= sizes(found, "N")


def test_values_keep_to_the_hints(verify: Any) -> None:
    """In every case; no case is skipped for values that the task refuses."""
    text = """
    import numpy as np
    # @hint: x in (0, 1]
    def f(x: 'f32[M, N]'):
        assert (x > 0).all() and (x <= 1).all()
        return np.maximum(x, 0)
    """
    status, found, _ = verify(text)
    assert status == 0
    assert {case["failure"] for case in found["cases"]} == {""}
    text = text.replace("# @hint: x in (0, 1]", "")
    assert verify(text)[0] == 2


def test_every_list_of_inputs_is_a_case(verify: Any) -> None:
    text = """
    import numpy as np
    def f(x):
        return np.maximum(x, 0)
    def get_inputs_dyn_list():
        return [[np.full(shape, -1, np.float32)] for shape in ((3, 5), (16, 2), (7, 77))]
    """
    status, found, _ = verify(text)
    assert status == 0
    own = [case["shape"]["symbols"] for case in found["cases"] if case["kind"] == "task"]
    assert own == [{"M": 16, "N": 2}, {"M": 7, "N": 77}, {"M": 3, "N": 5}]


def test_a_list_that_does_not_fit_is_a_note(verify: Any) -> None:
    text = """
    import numpy as np
    def f(x):
        return np.maximum(x, 0)
    def get_inputs_dyn_list():
        return [[np.ones((3, 5), np.float32)], [np.ones(4, np.float32)]]
    """
    status, found, _ = verify(text)
    assert status == 0
    assert any("list 2 of get_inputs_dyn_list is not tried" in note for note in found["notes"])


def test_nan_on_the_tasks_own_inputs_is_a_note(verify: Any) -> None:
    text = function("return np.maximum(x, 0)") + (
        "def get_inputs():\n"
        "    return [np.where(np.arange(15) < 14, np.nan, 1).reshape(3, 5).astype(np.float32)]\n"
    )
    _, found, _ = verify(text)
    assert any("holds NaN in 14 of 15 elements" in note for note in found["notes"])


def test_a_kernel_that_is_wrong_for_a_function_fails(verify: Any) -> None:
    status, found, _ = verify(function("return np.maximum(x, 0.01)"))
    assert (status, found["failure"]) == (1, "design")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul_bias_gelu"])
def test_cells_of_mindspore(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    require_mindspore()
    sketch, task = EXAMPLES / f"{name}.sketch", EXAMPLES / "tasks" / "mindspore" / f"{name}.py"
    options = ["--target", "cpp", "--json", "--no-store"]
    assert run(["verify", str(sketch), "--task", str(task), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert len(found["cases"]) >= 10
    assert not any("own precision" in note for note in found["notes"])


CELL = """
import mindspore
import numpy as np
from mindspore import nn
class Cell(nn.Cell):
    calls = 0
    def construct(self, x):
        {body}
def get_inputs():
    return [mindspore.Tensor(np.random.randn(6, 8), mindspore.float32)]
"""
BROKEN_CELLS = {
    "a count of calls": ("Cell.calls += 1; return x * Cell.calls", "not deterministic"),
}


@pytest.mark.parametrize("name", BROKEN_CELLS)
def test_a_broken_cell_is_one_line(name: str, verify: Any) -> None:
    require_mindspore()
    body, words = BROKEN_CELLS[name]
    status, found, _ = verify(CELL.format(body=body))
    assert (status, found["error"]["class"]) == (2, "task")
    assert words in found["error"]["reason"]


ACCUMULATE = """
sketch accumulate {
    symbols: M, N;
    tensors: TOTAL[M, N]: inout f32; X[M, N]: in f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            total = alloc([T], llm_hint=["fast", "input_cache"])
            x = alloc([T], llm_hint=["fast", "input_cache"])
            load(TOTAL[i, j*T:(j+1)*T] -> total)
            load(X[i, j*T:(j+1)*T] -> x)
            add(total, x, total)
            store(total -> TOTAL[i, j*T:(j+1)*T])
}
"""
ON_THE_SIDE = {
    "torch": model("x.mul_(2); return x + 1"),
    "numpy": function("x *= 2; return x + 1"),
    "mindspore": CELL.format(body="x.mul_(2); return x + 1"),
}
SIDE = """
sketch side {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; AFTER[M, N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            x = alloc([T], llm_hint=["fast", "input_cache"])
            load(X[i, j*T:(j+1)*T] -> x)
            mul(x, 2, x)
            store(x -> AFTER[i, j*T:(j+1)*T])
            add(x, 1, x)
            store(x -> Y[i, j*T:(j+1)*T])
}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("framework", ON_THE_SIDE)
@pytest.mark.parametrize("right", [True, False])
def test_what_is_written_and_not_returned_is_an_output(
    framework: str, right: bool, verify: Any, tmp_path: Path
) -> None:
    if framework == "mindspore":
        require_mindspore()
    path = tmp_path / "side.sketch"
    path.write_text(
        SIDE if right else SIDE.replace("add(x, 1, x)\n            store(x -> Y", "store(x -> Y")
    )
    status, found, said = verify(ON_THE_SIDE[framework], sketch=str(path))
    assert (status, found.get("passed")) == ((0, True) if right else (1, False)), said
    assert any("changes inputs" in note for note in found["notes"])


IN_PLACE_CELLS = {
    "a method": "total.add_(x)",
    "an operator": "total += x",
    "what is returned, too": "return total.add_(x)",
    "rows": "for i in range(total.shape[0]): total[i].add_(x[i])",
    "several": "x = x + total; total.zero_(); total.add_(x)",
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", IN_PLACE_CELLS)
def test_a_cell_in_place(name: str, verify: Any, tmp_path: Path) -> None:
    require_mindspore()
    (tmp_path / "accumulate.sketch").write_text(ACCUMULATE)
    text = CELL.format(body=IN_PLACE_CELLS[name]).replace("self, x", "self, total, x")
    text = text.replace("float32)]", "float32) for _ in range(2)]")
    status, found, said = verify(text, sketch=str(tmp_path / "accumulate.sketch"))
    assert (status, found.get("passed")) == (0, True), said


def test_mindspore_that_is_missing_is_told(
    verify: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKETCHC_MINDSPORE_ENV", str(tmp_path / "nowhere"))
    status, found, _ = verify(CELL.format(body="return x"))
    assert (status, found["error"]["class"]) == (2, "task")
    assert "sketchc toolchain install mindspore" in found["error"]["reason"]


def test_gen_takes_a_function_and_says_that_there_is_no_dropin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.py").write_text(function("return np.maximum(x, 0)") + "def g(x): return x\n")
    options = ["--target", "cpp", "--workflow", "coder-only", "--no-bench", "-q"]
    assert run(["gen", "two.py", *options, "--sketch", RELU]) == 2
    assert "several functions (f, g)" in capsys.readouterr().err
    assert run(["gen", "two.py:f", *options, "--sketch", RELU, "-o", "out"]) == 0
    summary = Path("out/SUMMARY.md").read_text()
    assert "There is no drop-in module: the task is a numpy function" in summary
    assert "sketchc gen two.py:f --target cpp" in summary


def test_a_kernel_in_place_needs_no_sketch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, kernel = tmp_path / "scaled.py", tmp_path / "scaled.cpp"
    task.write_text("import numpy as np\ndef scaled(x: 'f32[M, N]'): x *= 3\n")
    kernel.write_text(
        "#include <cstdint>\n"
        'extern "C" int64_t scaled(float *X, int64_t M, int64_t N) {\n'
        "    for (int64_t i = 0; i < M * N; i++) X[i] *= 3;\n    return 0;\n}\n"
    )
    options = ["--task", str(task), "--target", "cpp"]
    assert run(["verify", "--print-signature", *options]) == 0
    assert "scaled(float *X, int64_t M, int64_t N)" in capsys.readouterr().out
    assert run(["verify", str(kernel), *options, "--no-store", "--json"]) == 0
    kernel.write_text(kernel.read_text().replace("i < M * N", "i < M * N - 1"))
    capsys.readouterr()
    assert run(["verify", str(kernel), *options, "--no-store", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failure"] == "numerical"
