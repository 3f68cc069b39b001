"""Faults that only some values, numbers or branches show: no seed lets them pass.

Bounds that are left out, constants where a number was meant, modes that read the wrong rows, roots
that forget to add: planted in sketches, which run in the interpreter and on each target, and in C++
of which only the text is known. What is right passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toolchains import require

from sketchc.base.diagnostics import Source
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.signature import signature_of, signature_plan
from sketchc.runtime.tasks.task import load_task
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.design import check_design
from sketchc.runtime.verify.verdict import Verdict
from sketchc.runtime.verify.verify import Candidate, verify

SEEDS = (1, 2, 3)

TASK = """import torch
from torch import nn


class Histogram(nn.Module):
    def forward(self, x, lo, hi):
        inside = (x >= lo) & (x <= hi)
        k = ((x - lo) / (hi - lo) * 16).floor().clamp(0, 15).long()
        out = torch.zeros(16, dtype=torch.int64)
        return out.index_add(0, torch.where(inside, k, 0), inside.long()).to(torch.int32)

def get_inputs():
    return [torch.rand(1500) * 2, 0.25, 1.75]
"""
ROOT = """import torch


def root(x):
    return torch.sqrt(x.sum(dim=1))

def get_inputs():
    return [torch.rand(7, 200)]
"""
MODE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, repeats):
        super().__init__()
        self.repeats = repeats

    def forward(self, x, mode, scale):
        if mode not in (0, 1, 2):
            raise ValueError("mode")
        rows = (x, x.flip(0), x.roll(1, 0))[mode]
        return (rows * scale).repeat(1, self.repeats)

def get_inputs():
    return [torch.randn(20, 90), 0, 1.5]

def get_init_inputs():
    return [3]
"""
KEPT = """import torch


def kept(index, padding):
    return torch.where(index != padding, index, 0)

def get_inputs():
    return [torch.randint(0, 20, (500,)), 7]
"""
TASKS = {"histogram": TASK, "root": ROOT, "mode": MODE, "kept": KEPT}

HISTOGRAM = """sketch histogram {
    symbols: N;
    params: lo: f32; hi: f32;
    tensors: X[N]: in f32; COUNTS[B]: out i32 = 0;
    constexpr: B: i64 = 16, T in [256, 512];

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        k = alloc([T])
        bin = alloc([T], i64)
        ones = alloc([T], i32)
        load(X[i*T:(i+1)*T] -> x)
        fill(1, ones)
        inside = x >= lo and x <= hi
        sub(x, lo, k)
        div(k, hi - lo, k)
        mul(k, 16.0, k)
        floor(k, k)
        clamp(k, k, low=0.0, high=15.0)
        cast(k, bin)
        atomic_add(ones -> COUNTS[bin], where=inside)
}
"""
ROOTS = """sketch root {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    constexpr: T in [32, 64];

    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], f32, init=0)
        y = alloc([1])
        for j in range(ceil(N, T)):
            x = alloc([T])
            part = alloc([1])
            load(X[i, j*T:(j+1)*T] -> x)
            reduce_sum(x, 0, part)
            add(total, part, total)
        sqrt(total, y)
        store(y -> Y[i:i+1])
}
"""
MODES = """sketch mode {
    symbols: M, N;
    params: mode: i64; scale: f32; repeats: i64;
    tensors: X[M, N]: in f32; Y[M, N*repeats]: out f32;
    constexpr: T in [32, 64];
    require: repeats >= 1;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        for r in range(repeats):
            for j in range(ceil(N, T)):
                x = alloc([T])
                if mode == 0:
                    load(X[i, j*T:min((j+1)*T, N)] -> x)
                else:
                    row = M - 1 - i if mode == 1 else i - 1 if i > 0 else M - 1
                    load(X[row, j*T:min((j+1)*T, N)] -> x)
                mul(x, scale, x)
                store(x -> Y[i, r*N + j*T:r*N + min((j+1)*T, N)])
}
"""
KEEPS = """sketch kept {
    symbols: N;
    params: padding: i64;
    tensors: INDEX[N]: in i64; Y[N]: out i64;
    constexpr: T in [64, 128];

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        index = alloc([T])
        found = alloc([T], i64)
        load(INDEX[i*T:(i+1)*T] -> index)
        where(index != padding, index, 0, found)
        store(found -> Y[i*T:(i+1)*T])
}
"""
SKETCHES = {"histogram": HISTOGRAM, "root": ROOTS, "mode": MODES, "kept": KEEPS}

#: name of the task, what is replaced, and by what.
FAULTS = {
    "lt for le": ("histogram", "x <= hi", "x < hi"),
    "gt for ge": ("histogram", "x >= lo", "x > lo"),
    "the last bin": ("histogram", "high=15.0", "high=16.0"),
    "another bound": ("histogram", "x <= hi", "x <= 1.75"),
    "nothing added": ("root", "add(total, part, total)", "mul(part, 1.0, total)"),
    "rows of mode 1": ("mode", "M - 1 - i if", "i if"),
    "rows of mode 2": ("mode", "i - 1 if i > 0 else M - 1", "i + 1 if i < M - 1 else 0"),
    "a constant scale": ("mode", "mul(x, scale, x)", "mul(x, 1.5, x)"),
    "7 for padding": ("kept", "index != padding", "index != 7"),
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TaskClient]]:
    folder = tmp_path_factory.mktemp("tasks")
    found = {}
    for name, text in TASKS.items():
        path = folder / f"{name}.py"
        path.write_text(text)
        found[name] = load_task(f"{path}:Histogram" if name == "histogram" else str(path))
    yield found
    for task in found.values():
        task.close()


def planned(text: str, target: str = "cpp") -> Plan:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    return build_plan(tree.sketches[0], target, None, {}).plan


def told(verdict: Verdict) -> str:
    return f"{verdict.failures[:1]} {verdict.unreached}"


@pytest.mark.parametrize("name", SKETCHES)
def test_what_is_right_passes(name: str, tasks: dict[str, TaskClient], tmp_path: Path) -> None:
    for seed in SEEDS:
        verdict = check_design(planned(SKETCHES[name]), tasks[name], tmp_path, seed)
        assert verdict.passed, told(verdict)


@pytest.mark.sweep
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_with_every_seed(
    fault: str, tasks: dict[str, TaskClient], tmp_path: Path
) -> None:
    name, right, wrong = FAULTS[fault]
    assert right in SKETCHES[name]
    plan = planned(SKETCHES[name].replace(right, wrong))
    for seed in SEEDS:
        verdict = check_design(plan, tasks[name], tmp_path, seed)
        assert verdict.failures, (fault, seed, verdict.cases)


def test_a_constant_shape_does_not_follow_the_number(
    tasks: dict[str, TaskClient], tmp_path: Path
) -> None:
    """`N*3` for `N*repeats`."""
    text = MODES.replace("N*repeats", "N*3").replace("range(repeats)", "range(3)")
    verdict = check_design(planned(text), tasks["mode"], tmp_path, 1)
    assert "repeats" in verdict.failures[0].shape.numbers
    assert "has shape" in verdict.failures[0].reason


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("cpp", "lt for le"),
        ("cpp", "rows of mode 2"),
        ("triton_cuda", "lt for le"),
        ("triton_ascend", "lt for le"),
    ],
)
def test_on_each_target(
    target: str, fault: str, tasks: dict[str, TaskClient], tmp_path: Path
) -> None:
    """What was compiled of a wrong sketch is wrong, and is not blamed on the code."""
    require(target)
    name, right, wrong = FAULTS[fault]
    for text, passes in ((SKETCHES[name], True), (SKETCHES[name].replace(right, wrong), False)):
        plan = planned(text, target)
        kernel = load_target(target).emit(plan)
        verdict = verify(
            Candidate(plan, kernel, toolchain(target)), tasks[name], tmp_path, 5, budget=None
        )
        assert bool(verdict.failures) is not passes, told(verdict)
        assert passes or verdict.failure == "design"


FOREIGN = """#include <cmath>
#include <cstdint>

extern "C" int64_t kept(const int64_t *X, int64_t *Y, int64_t N, int64_t padding)
{
    for (int64_t i = 0; i < N; ++i) {
        Y[i] = X[i] != %s ? X[i] : 0;
    }
    return 0;
}
"""


@pytest.mark.parametrize(("number", "passes"), [("padding", True), ("7", False)])
def test_numbers_of_a_kernel_by_others(
    number: str, passes: bool, tasks: dict[str, TaskClient], tmp_path: Path
) -> None:
    require("cpp")
    plan = signature_plan(signature_of(tasks["kept"], "kept"), "cpp")
    kernel = Kernel(
        "cpp", "cpu", "kept", "kept", "c++", FOREIGN % number, plan.sketch, foreign=True
    )
    for seed in SEEDS:
        built = Candidate(plan, kernel, toolchain("cpp"))
        verdict = verify(built, tasks["kept"], tmp_path, seed, budget=None)
        assert verdict.passed is passes, told(verdict)


def test_branches_that_no_number_chooses_are_named(tmp_path: Path) -> None:
    """A param that the task does not have takes one side only: that is no pass."""
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n\ndef double(x):\n    return x + x\n\n"
        "def get_inputs():\n    return [torch.randn(50)]\n"
    )
    text = """sketch double {
    symbols: N;
    params: half: bool = false;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if half:
            mul(x, 0.5, x)
        else:
            mul(x, 2.0, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    with load_task(str(path)) as task:
        verdict = check_design(planned(text), task, tmp_path, 1)
    assert verdict.incomplete
    assert "`half` holds" in verdict.unreached[0]


def test_what_the_task_refuses_is_a_note(tasks: dict[str, TaskClient], tmp_path: Path) -> None:
    text = MODES.replace(
        "                mul(x, scale, x)",
        "                if mode == 3:\n                    mul(x, 0.0, x)\n"
        "                mul(x, scale, x)",
    )
    verdict = check_design(planned(text), tasks["mode"], tmp_path, 1)
    assert verdict.passed, told(verdict)
    assert any("never taken" in note and "mode == 3" in note for note in verdict.notes)


def test_too_few_telling_cases_are_no_pass(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(
        "import torch\n\ndef root(x):\n    return torch.sqrt(0.125 - x.abs())\n\n"
        "def get_inputs():\n    return [torch.randn(500)]\n"
    )
    text = """sketch root {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        abs(x, x)
        sub(0.125, x, x)
        sqrt(x, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    plan = planned(text)
    with load_task(str(path)) as task:
        verdict = check_design(plan, task, tmp_path, 1)
    assert verdict.incomplete
    assert any("NaN or infinite" in reason for reason in verdict.unreached)
