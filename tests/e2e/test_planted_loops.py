"""Loops cut to one iteration, and tiles that forget the next one: on no target do they pass.

What is wrong shows only behind the first tile, which may be larger than all sizes that an
interpreted target is tried at otherwise, and than the task's own; it may run along a `let`, a view
or all elements. The faults are planted in sketches, and in kernels of which nothing is known but
their text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from toolchains import require

from sketchc.cli.verify_files import VerifyRequest, candidate_of, lower
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.task import load_task
from sketchc.runtime.toolchains.base import COMPILE_TIMEOUT, Artefact
from sketchc.runtime.toolchains.triton_ascend.toolchain import TritonAscendToolchain
from sketchc.runtime.toolchains.triton_cuda.toolchain import TritonCuda
from sketchc.runtime.verify.verdict import Verdict
from sketchc.runtime.verify.verify import verify

TARGETS = ("cpp", "triton_cuda", "triton_ascend")

TASK = """import numpy as np


def largest(x):
    return x.max(1)


def half(x):
    return x[:, : x.shape[1] // 2].sum(1)


def whole(x):
    return x.sum(keepdims=True).reshape(1)


def get_inputs():
    return [np.random.randn(24, 3000).astype(np.float32)]
"""

ROWS = """sketch {name} {{
    symbols: M, D;
    {more}
    tensors: X[M, D]: in f32; Y[M]: out f32;
    constexpr: T = {tile} in [256, 1024, 4096];
    require: D >= 2;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        found = alloc([1], init={start})
        for j in range({trips}):
            x = alloc([T])
            part = alloc([1])
            {load}
            {reduce}(x, 0, part)
            {join}(found, part, found)
        store(found -> Y[i])
}}
"""
WHOLE = """sketch whole {{
    symbols: M, D;
    tensors: X[M, D]: in f32; Y[1]: out f32;
    views: XF[M*D] = X;
    constexpr: T = {tile} in [256, 1024, 4096];

    total = alloc([1], init=0)
    for j in range({trips}):
        x = alloc([T])
        part = alloc([1])
        load(XF[j*T:(j+1)*T] -> x)
        reduce_sum(x, 0, part)
        add(total, part, total)
    store(total -> Y[0:1])
}}
"""
PARTS = {
    "largest": {
        "more": "",
        "start": "-inf",
        "load": "load(X[i, j*T:(j+1)*T] -> x)",
        "reduce": "reduce_max",
        "join": "max",
    },
    "half": {
        "more": "let: H = D//2;",
        "start": "0",
        "load": "load(X[i, iota(T, j*T, H)] -> x)",
        "reduce": "reduce_sum",
        "join": "add",
    },
}
#: Name -> (trips as they should be, as they are planted). The tile holds all of the task's own row,
#: of the second, so that only larger sizes tell.
TRIPS = {
    "largest": ("ceil(D, T)", "1", 1024),
    "half": ("ceil(H, T)", "min(1, ceil(H, T))", 4096),
    "whole": ("ceil(M*D, T)", "1", 1024),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    (folder / "task.py").write_text(TASK)
    return folder


@pytest.fixture(scope="module", params=sorted(TRIPS))
def task(request: pytest.FixtureRequest, folder: Path) -> Iterator[TaskClient]:
    with load_task(f"{folder / 'task.py'}:{request.param}") as loaded:
        yield loaded


class Placed(TritonAscendToolchain):
    """For runs, which build what they launch."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        self.place(kernel, folder)
        return Artefact(kernel, folder)


class Interpreted(TritonCuda):
    """For runs in Triton's interpreter, which needs no cubins."""

    def compile(self, kernel: Kernel, folder: Path, timeout: float = COMPILE_TIMEOUT) -> Artefact:
        return Artefact(kernel, folder)


def judged(request: VerifyRequest, task: TaskClient, folder: Path) -> Verdict:
    candidate = candidate_of(request, task)
    if request.target == "triton_ascend":
        candidate = attrs.evolve(candidate, toolchain=Placed())
    elif candidate.toolchain.status().interpreted:
        candidate = attrs.evolve(candidate, toolchain=Interpreted())
    return verify(candidate, task, folder / "build", 11)


def sketch(name: str, *, planted: bool) -> str:
    right, wrong, tile = TRIPS[name]
    trips = wrong if planted else right
    if name == "whole":
        return WHOLE.format(trips=trips, tile=tile)
    return ROWS.format(name=name, trips=trips, tile=tile, **PARTS[name])


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("planted", [True, False])
def test_a_sketch_with_a_cut_loop_fails(
    task: TaskClient, target: str, planted: bool, tmp_path: Path
) -> None:
    require(target)
    name = task.specification.rpartition(":")[2]
    path = tmp_path / "it.sketch"
    path.write_text(sketch(name, planted=planted))
    found = judged(VerifyRequest(str(path), target), task, tmp_path)
    assert found.word == ("failed" if planted else "passed"), found.gaps


#: What a loop is cut to, in the generated code of each target, and what is written there instead.
CUTS = {"triton_cuda": ("range(tl.cdiv(", ")):"), "triton_ascend": ("range(tl.cdiv(", ")):")}
HAND = """#include <cmath>
#include <cstdint>
extern "C" int64_t {name}(const float *x, float *y, int64_t M, int64_t N) {{
    constexpr int64_t T = {tile};
    int64_t rows = {rows}, length = {length}, columns = {columns};
    for (int64_t i = 0; i < rows; ++i) {{
        float found = {start};
        for (int64_t j = 0; j < {trips}; ++j)
            for (int64_t k = j * T; k < j * T + T && k < length; ++k)
                found = {join};
        y[i] = found;
    }}
    return 0;
}}
"""
BY_HAND = {
    "largest": ("M", "N", "N", "-INFINITY", "std::fmax(found, x[i * columns + k])"),
    "half": ("M", "N / 2", "N", "0", "found + x[i * columns + k]"),
    "whole": ("1", "M * N", "N", "0", "found + x[i * columns + k]"),
}


def foreign(name: str, target: str, folder: Path) -> Path:
    """A kernel whose loop is cut, of which nothing is known but its text."""
    tile = TRIPS[name][2]
    if target == "cpp":
        rows, length, columns, start, join = BY_HAND[name]
        path = folder / "it.cpp"
        parts = {"rows": rows, "length": length, "columns": columns, "start": start, "join": join}
        path.write_text(HAND.format(name=name, tile=tile, trips=1, **parts))
        return path
    source = folder / "right.sketch"
    source.write_text(sketch(name, planted=False))
    text = lower(VerifyRequest(str(source), target)).kernel.source
    head, tail = CUTS[target]
    before, _, after = text.partition(f"for j in {head}")
    assert after, text
    path = folder / "it.py"
    path.write_text(f"{before}for j in range(1):{after.partition(tail)[2]}")
    return path


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_with_a_cut_loop_fails(task: TaskClient, target: str, tmp_path: Path) -> None:
    require(target)
    name = task.specification.rpartition(":")[2]
    path = foreign(name, target, tmp_path)
    found = judged(VerifyRequest(str(path), target, entry=name), task, tmp_path)
    assert found.word == "failed", (found.notes, found.gaps)
