"""Verification ends in the right class for every kind of fault, and passes what is right.

The toolchain here is the interpreter with a fault planted behind it, so that each verdict is
tested for what it claims and not for what a compiler happens to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from sketchc.api import sketches
from sketchc.cli import main
from sketchc.interpreter.api import interpret
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import TaskFailure
from sketchc.runtime.tasks.task import TorchTask
from sketchc.runtime.toolchains.base import Artefact, Toolchain, ToolchainError, ToolchainStatus
from sketchc.runtime.verify import text as report
from sketchc.runtime.verify.verdict import Verdict, to_json
from sketchc.runtime.verify.verify import Candidate, verify

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Arrays = Mapping[str, Array]
Fault = Callable[[Arrays, dict[str, Array]], dict[str, Array]]


class FaultyToolchain(Toolchain):
    """Interprets, then passes (given tensors, outputs) through `fault`."""

    target = "cpp"

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.runs = 0

    def status(self) -> ToolchainStatus:
        return ToolchainStatus("cpp", True, True, "in the interpreter", interpreted=True)

    def install(self) -> str:
        return ""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = 300.0) -> Artefact:
        return Artefact(kernel, folder)

    def run(
        self,
        artefact: Artefact,
        tensors: Arrays,
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool],
        timeout: float = 300.0,
    ) -> dict[str, Array]:
        self.runs += 1
        outputs = ("Y", "C")
        given = {name: array for name, array in tensors.items() if name not in outputs}
        found = interpret(artefact.kernel.sketch, given, symbols, params)
        return self.fault(tensors, dict(found.outputs))


@pytest.fixture(scope="module")
def tasks() -> Iterator[Callable[[str], TorchTask]]:
    """Tasks of the examples, loaded once."""
    loaded: dict[str, TorchTask] = {}

    def task(name: str) -> TorchTask:
        if name not in loaded:
            loaded[name] = TorchTask(EXAMPLES / "tasks" / f"{name}.py")
        return loaded[name]

    yield task
    for one in loaded.values():
        one.close()


def candidate(path: Path, fault: Fault, **constants: int) -> Candidate:
    _, tree = sketches.load_sketch(str(path))
    plan = build_plan(tree, "cpp", None, constants).plan
    kernel = Kernel("cpp", "cpu", plan.sketch.name, "f", "c++", "", plan.sketch)
    return Candidate(plan, kernel, FaultyToolchain(fault))


def right(_: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
    return outputs


@pytest.fixture
def judge(tasks: Callable[[str], TorchTask], tmp_path: Path) -> Callable[..., Verdict]:
    def run(name: str, fault: Fault = right, path: Path | None = None, **constants: int) -> Verdict:
        built = candidate(path or EXAMPLES / f"{name}.sketch", fault, **constants)
        return verify(built, tasks(name), tmp_path, seed=11)

    return run


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["add", "layer_norm", "matmul_bias_gelu", "rms", "softmax"])
def test_a_right_kernel_passes(name: str, judge: Callable[..., Verdict]) -> None:
    verdict = judge(name)
    assert verdict.passed, verdict.failures
    assert len(verdict.cases) >= 6
    assert all(case.passed for case in verdict.cases)
    assert any("scaled down" in note for note in verdict.notes)
    assert {case.kind for case in verdict.cases} >= {"normal", "structured", "mixed_scale"}


def test_every_symbol_meets_its_edges(judge: Callable[..., Verdict]) -> None:
    verdict = judge("add", TM=4, TN=64)
    sizes = {name: {case.shape.symbols[name] for case in verdict.cases} for name in ("M", "N")}
    assert sizes["M"] >= {1, 3, 4, 5, 7}
    assert sizes["N"] >= {1, 63, 64, 65, 97}


def change(name: str, index: Any, value: float) -> Fault:
    """Add `value` to one element of an output, when it has one."""

    def fault(_: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
        array = outputs[name].copy()
        if array.size > 1:
            array[index] += value
        return {**outputs, name: array}

    return fault


def test_one_wrong_element_is_numerical_with_its_evidence(judge: Callable[..., Verdict]) -> None:
    verdict = judge("add", change("Y", (0, -1), 0.5))
    assert verdict.failure == "numerical"
    case = verdict.failures[0]
    first = case.comparisons[0].first
    assert first is not None
    assert first.index == (0, case.shape.symbols["N"] - 1)
    assert first.actual == pytest.approx(first.expected + 0.5, abs=1e-3)
    assert "interpretation is right" in case.reason


def test_an_unwritten_element_shows_as_poison(judge: Callable[..., Verdict]) -> None:
    def forget(tensors: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
        array = outputs["Y"].copy()
        array[-1, -1] = tensors["Y"][-1, -1]
        return {"Y": array}

    verdict = judge("add", forget)
    assert verdict.failure == "numerical"
    assert "NaN" in verdict.failures[0].reason


def test_a_dropped_last_tile_of_k_is_numerical(judge: Callable[..., Verdict]) -> None:
    def drop(tensors: Arrays, _: dict[str, Array]) -> dict[str, Array]:
        inner = tensors["A"].shape[1] // 16 * 16
        return {"C": tensors["A"][:, :inner] @ tensors["B"][:inner]}

    assert judge("matmul", drop, TM=32, TN=32, TK=16).failure == "numerical"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lambda _, outputs: {"Y": outputs["Y"][:, :-1]}, "wrong_shape"),
        (lambda _, outputs: {"Y": outputs["Y"].astype(np.float64)}, "wrong_shape"),
        (lambda _, outputs: {"Y": np.full_like(outputs["Y"], np.nan)}, "numerical"),
        (lambda _, outputs: {"Y": np.zeros_like(outputs["Y"])}, "numerical"),
    ],
    ids=["too narrow", "double", "all NaN", "all zero"],
)
def test_wrong_outputs(fault: Fault, expected: str, judge: Callable[..., Verdict]) -> None:
    assert judge("add", fault).failure == expected


def test_writes_into_an_input_are_illegal(judge: Callable[..., Verdict]) -> None:
    def overwrite(tensors: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
        tensors["BIAS"][-1] = 0
        return outputs

    verdict = judge("add", overwrite)
    assert verdict.failure == "illegal_access"
    assert "BIAS" in verdict.failures[0].reason


def test_writes_past_a_buffer_are_illegal(judge: Callable[..., Verdict]) -> None:
    def past(tensors: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
        array = tensors["Y"]
        longer = np.lib.stride_tricks.as_strided(array, (array.size + 1,), (array.itemsize,))
        longer[-1] = 0
        return outputs

    verdict = judge("add", past)
    assert verdict.failure == "illegal_access"
    assert "after Y" in verdict.failures[0].reason


def test_two_runs_that_differ_are_nondeterministic(judge: Callable[..., Verdict]) -> None:
    count = iter(range(1000))

    def jitter(_: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
        return {"Y": np.nextafter(outputs["Y"], np.float32(next(count) % 2 * 1e9))}

    assert judge("add", jitter).failure == "nondeterministic"


@pytest.mark.parametrize("stage", ["compile", "launch", "timeout", "infrastructure"])
def test_what_a_toolchain_raises_is_the_class(stage: str, judge: Callable[..., Verdict]) -> None:
    def refuse(_: Arrays, outputs: dict[str, Array]) -> dict[str, Array]:
        raise ToolchainError(stage, "no", "line 1\nline 2")

    verdict = judge("add", refuse)
    assert verdict.failure == stage
    assert verdict.failures[0].log == "line 1\nline 2"
    tried = 1 if stage == "timeout" else 3
    assert len(verdict.failures) == tried, "it stops when nothing new is learnt"


def test_a_wrong_sketch_is_blamed_on_the_design(
    tmp_path: Path, judge: Callable[..., Verdict]
) -> None:
    text = (EXAMPLES / "add.sketch").read_text().replace("add(x, bias, y)", "sub(x, bias, y)")
    path = tmp_path / "wrong.sketch"
    path.write_text(text)
    assert judge("add", path=path).failure == "design"


def test_sizes_that_the_task_refuses_are_skipped_and_said(tmp_path: Path) -> None:
    text = (EXAMPLES / "tasks" / "add.py").read_text()
    refusing = text.replace("return x + bias", "return x + bias.reshape(3, -1).reshape(-1)")
    path = tmp_path / "task.py"
    path.write_text(refusing)
    with TorchTask(path) as task:
        verdict = verify(candidate(EXAMPLES / "add.sketch", right), task, tmp_path, seed=3)
    skipped = [case for case in verdict.cases if case.failure == "skipped"]
    assert verdict.passed
    assert skipped
    assert all(case.shape.symbols["N"] % 3 for case in skipped)
    assert "reshape" in skipped[0].reason


def test_a_task_that_raises_is_no_verdict(tmp_path: Path) -> None:
    text = (EXAMPLES / "tasks" / "add.py").read_text()
    path = tmp_path / "task.py"
    path.write_text(text.replace("return x + bias", "raise ValueError('never')"))
    with TorchTask(path) as task, pytest.raises(TaskFailure, match="never"):
        verify(candidate(EXAMPLES / "add.sketch", right), task, tmp_path, seed=3)


def test_a_task_that_differs_from_run_to_run_is_no_verdict(tmp_path: Path) -> None:
    text = (EXAMPLES / "tasks" / "add.py").read_text()
    path = tmp_path / "task.py"
    path.write_text(text.replace("return x + bias", "return x + bias + torch.randn_like(x)"))
    with TorchTask(path) as task, pytest.raises(TaskFailure, match="not deterministic"):
        verify(candidate(EXAMPLES / "add.sketch", right), task, tmp_path, seed=3)


def test_the_same_seed_gives_the_same_verdict(judge: Callable[..., Verdict]) -> None:
    first, second = (judge("rms", change("Y", (0, 0, 0, 0), 1.0)) for _ in range(2))
    assert first.failures[0].comparisons == second.failures[0].comparisons


def test_a_verdict_is_plain_json_and_readable(judge: Callable[..., Verdict]) -> None:
    verdict = judge("add", lambda _, outputs: {"Y": np.full_like(outputs["Y"], np.inf)})
    data = json.loads(json.dumps(to_json(verdict), allow_nan=False))
    assert data["passed"] is False
    assert data["failure"] == "numerical"
    assert data["cases"][0]["comparisons"][0]["first"]["actual"] == "inf"
    console = Console(width=120, record=True, file=None, quiet=False)
    with console.capture() as capture:
        report.show(verdict, console)
    text = capture.get()
    assert "first failure at" in text
    assert "should be" in text
    assert "failed (numerical" in text


def run_cli(*arguments: str) -> tuple[int, str]:
    """Exit status and everything printed."""
    status: list[int] = []

    def call() -> None:
        status.append(main.run(list(arguments)))

    result = CliRunner().isolation()
    with result as streams:
        call()
        output = streams[0].getvalue() + streams[1].getvalue()
    return status[0], output.decode()


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_misuse_is_one_line(command: str, tmp_path: Path) -> None:
    sketch = str(EXAMPLES / "add.sketch")
    missing = str(tmp_path / "missing.py")
    for arguments, message in (
        ((sketch, "--task", missing, "--target", "cpp"), "no task file"),
        ((sketch, "--task", missing, "--target", "nothing"), "unknown target"),
        (
            (sketch, "--task", missing, "--target", "cpp", "--set", "Q=1"),
            "no constexpr or param 'Q'",
        ),
        ((sketch, "--target", "cpp"), "--task"),
    ):
        status, output = run_cli(command, *arguments)
        assert status == 2, output
        assert message in output
        assert "Traceback" not in output
