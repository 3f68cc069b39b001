"""Sketches judged by interpretation, code judged by its sketch, kernels judged by a signature."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from click.testing import CliRunner
from foreign_kernels import CPP, TRITON, base, candidate, tree
from toolchains import require

from sketchc.api import sketches
from sketchc.base.diagnostics import Source, UsageError
from sketchc.cli import main
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.sizes import refusal
from sketchc.runtime.tasks.signature import signature_of, signature_plan
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.toolchains.interpreter import interpret_apart
from sketchc.runtime.verify import design
from sketchc.runtime.verify.design import SketchTask, check_design, verify_against_sketch
from sketchc.runtime.verify.evidence import evidence
from sketchc.runtime.verify.kernel_file import entry_point
from sketchc.runtime.verify.verify import Candidate, verify

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def plan_of(text: str, target: str = "cpp", **constants: int) -> Plan:
    parsed, found = parse(Source("test.sketch", text))
    assert parsed is not None, found
    return build_plan(parsed.sketches[0], target, None, constants).plan


def example(name: str, target: str = "cpp") -> Plan:
    return build_plan(sketches.load_sketch(str(EXAMPLES / f"{name}.sketch"))[1], target).plan


# ---------------------------------------------------------------- the design


@pytest.mark.parametrize("name", ["softmax", "matmul_bias_gelu"])
def test_a_right_sketch_passes(name: str, tmp_path: Path) -> None:
    with TorchTask(EXAMPLES / "tasks" / f"{name}.py") as task:
        verdict = check_design(example(name), task, tmp_path, seed=3)
    assert verdict.passed, verdict.failures
    assert "interpreter" in verdict.how_it_runs


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("add(x, bias, y)", "sub(x, bias, y)", "elements are wrong"),
        ("add(x, bias, y)", "add(x, x, y)", "elements are wrong"),
        ("Y[M, N]: out f32", "Y[M, N]: out f16", "Y is f16, and the task returns f32"),
    ],
)
def test_a_wrong_sketch_is_a_wrong_design(old: str, new: str, word: str, tmp_path: Path) -> None:
    text = (EXAMPLES / "add.sketch").read_text()
    if old not in text:
        text = text.replace("Y[M, N]: f32", "Y[M, N]: out f32")
    changed = text.replace(old, new)
    assert changed != text
    with TorchTask(EXAMPLES / "tasks" / "add.py") as task:
        verdict = check_design(plan_of(changed), task, tmp_path, seed=3)
    assert verdict.failure == ("design" if "elements" in word else "wrong_shape")
    found = evidence(verdict)
    assert word in found["reason"]
    assert found["sketch_right"] is False
    if "elements" in word:
        assert found["first_wrong"]["expected"] != found["first_wrong"]["actual"]


def test_a_rule_that_is_broken_at_run_time_is_a_wrong_design(tmp_path: Path) -> None:
    text = """sketch divide {
    symbols: N;
    tensors: X[N]: in i32; Y[N]: out i32;
    @llm_hint("parallel", "coreidx")
    for i in range(N):
        x = alloc([1], i32)
        load(X[i:i+1] -> x)
        sub(x, x, x)
        floordiv(100, x, x)
        store(x -> Y[i:i+1])
}"""
    task_text = TASK.replace("torch.randn(1000)", "torch.ones(1000, dtype=torch.int32)")
    path = tmp_path / "task.py"
    path.write_text(task_text)
    with TorchTask(path) as task:
        verdict = check_design(plan_of(text), task, tmp_path, seed=3)
    assert verdict.failure == "design", verdict
    assert "SK08" in verdict.failures[0].reason


def test_a_sketch_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    plan = example("matmul")
    with TorchTask(EXAMPLES / "tasks" / "matmul.py") as task:
        verdict = check_design(plan, task, tmp_path, seed=3, timeout=0.01)
    assert verdict.failure == "timeout"
    assert "0.01 s" in verdict.failures[0].reason


def test_a_sketch_that_takes_too_much_memory_is_no_wrong_design(tmp_path: Path) -> None:
    """The interpreter keeps shadow memory of all that a workspace has, whatever part is used."""
    text = (EXAMPLES / "add.sketch").read_text()
    assert "tensors:" in text
    large = text.replace("tensors:", "workspace: W[40000, 40000]: f32;\n    tensors:", 1)
    with TorchTask(EXAMPLES / "tasks" / "add.py") as task:
        verdict = check_design(plan_of(large), task, tmp_path, seed=3)
    assert verdict.failure == "resource", verdict
    assert "GiB in the interpreter" in verdict.failures[0].reason


def test_patience_ends_with_what_was_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLES / "add.sketch").read_text()
    wrong = text.replace("add(x, bias, y)", "add(x, x, y)")
    assert wrong != text
    monkeypatch.setattr(design, "_PATIENCE", 0.0)
    with TorchTask(EXAMPLES / "tasks" / "add.py") as task:
        right = check_design(plan_of(text), task, tmp_path / "right", seed=3)
        assert right.passed
        assert len(right.cases) == 1
        verdict = check_design(plan_of(wrong), task, tmp_path / "wrong", seed=3)
    assert verdict.failure in ("design", "numerical"), verdict


def test_a_sketch_for_another_task_is_misuse(tmp_path: Path) -> None:
    with TorchTask(EXAMPLES / "tasks" / "softmax.py") as task, pytest.raises(UsageError):
        check_design(example("matmul"), task, tmp_path, seed=3)


def test_the_worker_computes_what_the_interpreter_does() -> None:
    from sketchc.interpreter.api import interpret

    plan = example("softmax")
    x = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
    apart = interpret_apart(plan.sketch, {"X": x}, {"M": 3, "N": 70}, {}, 60.0)
    np.testing.assert_array_equal(apart["Y"], interpret(plan.sketch, {"X": x}).outputs["Y"])


# ---------------------------------------------------------------- code against its sketch


def copy_sketch(dtype: str, more: str = "") -> str:
    return f"""sketch copy {{
    symbols: M, N;
    tensors: X[M, N]: in {dtype}; Y[M, N]: out {dtype};
    constexpr: T = 16;
    {more}
    @llm_hint("parallel", "coreidx")
    for i in range(M):
        for j in range(ceil(N, T)):
            x = alloc([T], {dtype})
            load(X[i, j*T:(j+1)*T] -> x)
            store(x -> Y[i, j*T:(j+1)*T])
}}"""


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "i64", "i32", "bool"])
def test_every_element_type(dtype: str, tmp_path: Path) -> None:
    require("cpp")
    plan = plan_of(copy_sketch(dtype))
    made = Candidate(plan, load_target("cpp").emit(plan), toolchain("cpp"))
    verdict = verify_against_sketch(made, tmp_path, seed=4)
    assert verdict.passed, verdict.failures
    assert len(verdict.cases) >= 6


@pytest.mark.sweep
@pytest.mark.parametrize(
    "condition",
    ["require: N % 64 == 0;", "require: M == N;", "require: N >= 100;", "require: M * N == 1024;"],
)
def test_only_sizes_that_the_sketch_takes_are_tried(condition: str, tmp_path: Path) -> None:
    require("cpp")
    plan = plan_of(copy_sketch("f32", condition))
    task = SketchTask(plan)
    assert not refusal(plan.sketch, task.symbols, task.params)
    made = Candidate(plan, load_target("cpp").emit(plan), toolchain("cpp"))
    verdict = verify_against_sketch(made, tmp_path, seed=4)
    assert verdict.passed, verdict.failures
    for case in verdict.cases:
        assert not refusal(plan.sketch, case.shape.symbols, {})


def test_own_sizes_go_beyond_the_tiles() -> None:
    plan = plan_of(copy_sketch("f32"))
    assert SketchTask(plan).symbols["N"] > 16
    assert SketchTask(plan).symbols["N"] % 16
    with pytest.raises(UsageError, match="no sizes"):
        SketchTask(plan_of(copy_sketch("f32", "require: N > 10000000;")))


def test_params_have_the_values_that_are_set(tmp_path: Path) -> None:
    require("cpp")
    plan = example("rms")
    made = Candidate(plan, load_target("cpp").emit(plan), toolchain("cpp"))
    verdict = verify_against_sketch(made, tmp_path, seed=4, settings={"eps": 0.125})
    assert verdict.passed
    assert verdict.params["eps"] == 0.125


@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
def test_code_that_differs_is_to_blame(target: str, tmp_path: Path) -> None:
    require(target)
    source = base(target).replace("X[i] + X[i]", "X[i]").replace("x + x", "x")
    verdict = verify_against_sketch(candidate(target, source), tmp_path, seed=4)
    assert verdict.failure == "numerical"
    assert "the code differs from the sketch" in verdict.failures[0].reason


# ---------------------------------------------------------------- without a sketch


TASK = (
    "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x + x\n\n\ndef get_inputs():\n    return [torch.randn(1000)]\n"
)


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpp", "triton_cuda", "triton_ascend"])
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_a_kernel_file_without_a_sketch(target: str, right: bool, tmp_path: Path) -> None:
    require(target)
    (tmp_path / "task.py").write_text(TASK)
    path = tmp_path / "kernel.txt"
    source = CPP if target == "cpp" else TRITON
    path.write_text(source if right else source.replace("X[i] +", "").replace("x + x", "x"))
    with TorchTask(tmp_path / "task.py") as task:
        sketch = signature_of(task, "anything")
        assert [symbol.name for symbol in sketch.symbols] == ["M"]
        plan = signature_plan(sketch, target)
        text, language = path.read_text("utf-8"), load_target(target).language.name
        entry = entry_point(text, language, sketch.name)
        called = (target, plan.hardware.name, sketch.name, entry, language)
        kernel = Kernel(*called, text, sketch, foreign=True)
        verdict = verify(
            Candidate(plan, kernel, toolchain(target)), task, tmp_path / "build", seed=4, small=True
        )
    assert verdict.passed is right, verdict.failures
    if not right:
        assert verdict.failure == "numerical"
        assert "sketch_right" not in evidence(verdict)
    else:
        assert len({case.shape.symbols["M"] for case in verdict.cases}) >= 4


# ---------------------------------------------------------------- time-outs


def test_the_time_limit_reaches_the_kernel(tmp_path: Path) -> None:
    require("cpp")
    made = candidate("cpp", CPP.replace("++i", "i += 0"))
    verdict = verify_against_sketch(made, tmp_path, seed=4, timeout=0.5)
    assert verdict.failure == "timeout"
    assert "0.5 s" in verdict.failures[0].reason


def test_the_command_line_takes_a_time_limit() -> None:
    require("cpp")
    arguments = ["verify", str(EXAMPLES / "relu.sketch"), "--task"]
    arguments += [str(EXAMPLES / "tasks" / "relu.py"), "--target", "cpp", "--timeout"]
    with CliRunner().isolation() as streams:
        assert main.run([*arguments, "0.001"]) == 1
        printed = streams[0].getvalue().decode()
        assert main.run([*arguments, "-1"]) == 2
    assert "timeout" in printed


def test_a_foreign_kernel_that_is_the_built_in_one_passes(tmp_path: Path) -> None:
    require("cpp")
    plan = build_plan(tree(), "cpp").plan
    kernel = attrs.evolve(load_target("cpp").emit(plan), foreign=True)
    verdict = verify_against_sketch(Candidate(plan, kernel, toolchain("cpp")), tmp_path, seed=4)
    assert verdict.passed, verdict.failures
