"""What a process that holds no wrapper is asked to launch, and what it would accept.

Whether the results are right is the matter of the tests of each target; on a GPU, of tests/device.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cubin_folders import parameters
from toolchains import require
from triton_cases import example, lower, make_case
from triton_sketches import SKETCHES

from sketchc.lowering.kernel import Kernel
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.base import Artefact, ToolchainError
from sketchc.runtime.toolchains.triton_ascend import toolchain as triton_ascend
from sketchc.runtime.toolchains.triton_cuda import toolchain as triton_cuda

Arrays = dict[str, Any]
#: Sketches whose kernels take buffers, workspaces, strides and numbers.
KINDS = ("phases", "in_place", "scalar_tiles", "reductions")
#: Bytes that a launcher's scalar has.
_WIDTHS = {"i1": 1, "i32": 4, "i64": 8, "fp32": 4}


class Noted:
    """Stands in for the process that launches on a GPU: notes what it is asked."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []

    def __call__(self, asked: Mapping[str, Any], arrays: Arrays, left: float) -> tuple[Any, Arrays]:
        del left
        self.launches += asked["launches"]
        return {}, arrays


def traced(kernel: Kernel, symbols: dict[str, int], params: Any, folder: Path) -> Noted:
    """What a run on an H100 would launch."""
    case = make_case(kernel, symbols, params)
    noted = Noted()
    session = triton_cuda.LaunchedSession(Artefact(kernel, folder), architecture=90, launch=noted)
    with session:
        session.run(case.tensors, symbols, params)
    return noted


@pytest.mark.parametrize("name", KINDS)
def test_a_launch_fits_its_cubin(name: str, tmp_path: Path) -> None:
    require("triton_cuda")
    text, assignments, params = SKETCHES[name]
    kernel = lower(text)[1]
    launches = traced(kernel, assignments[-1], params, tmp_path).launches
    for launch in launches:
        given = [8 if "buffer" in a else _WIDTHS[a["scalar"]] for a in launch["arguments"]]
        sizes, threads = parameters(launch["artefact"]["cubin"])
        # Behind the kernel's own: memory for scratch and for profiling.
        assert sizes[: len(given)] == given, launch["kernel"]
        assert sizes[len(given) :] in ([8], [8, 8]), launch["kernel"]
        assert threads == launch["artefact"]["threads"]


def test_an_argument_of_one_is_compiled_in_as_by_the_users_launcher(tmp_path: Path) -> None:
    require("triton_cuda")
    kernel = lower(example("softmax"))[1]

    def scalars(size: int) -> list[str]:
        (launch,) = traced(kernel, {"M": 3, "N": size}, {}, tmp_path).launches
        return [a["name"] for a in launch["arguments"] if "scalar" in a]

    assert scalars(1) == []
    assert scalars(2) == ["N"]


#: What its first phase leaves takes far more memory than its inputs and outputs.
OUTER = """
sketch outer {
    symbols: M, N;
    tensors: A[M]: in f32; B[N]: in f32; Y[M]: out f32;
    workspace: W[M, N]: f32;
    constexpr: T = 1024;

    @llm_hint("parallel")
    for i in range(M):
        @llm_hint("parallel")
        for j in range(ceil(N, T)):
            a = alloc([1])
            load(A[i] -> a)
            b = alloc([T])
            load(B[j*T:(j+1)*T] -> b)
            store(a*b -> W[i, j*T:(j+1)*T])

    @llm_hint("parallel")
    for i in range(M):
        total = alloc([1], init=0)
        for j in range(ceil(N, T)):
            w = alloc([T])
            load(W[i, j*T:(j+1)*T] -> w)
            block = alloc([1])
            reduce_sum(w, 0, block)
            add(total, block, total)
        store(total -> Y[i])
}
"""


def test_a_workspace_may_be_larger_than_what_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a wrapper waits with is sent on: its process may write that much."""
    require("triton_cuda")
    monkeypatch.setattr(triton_cuda, "_COMPILER_FILE_BYTES", 16 << 20)
    noted, rows = Noted(), {"M": 9000, "N": 9000}  # 324 MB beside 108 KB
    artefact = Artefact(lower(OUTER)[1], tmp_path)
    tensors = {name: np.ones(9000, np.float32) for name in ("A", "B")}
    with triton_cuda.LaunchedSession(artefact, architecture=90, launch=noted) as session:
        for sizes in ({"M": 2, "N": 3}, rows):
            given = {n: a[: sizes["M" if n == "A" else "N"]] for n, a in tensors.items()}
            assert session.run(given, sizes, {})["Y"].shape == (sizes["M"],)
    assert len(noted.launches) == 4


def test_a_launch_that_only_compiles_has_a_tensor_of_many_fixed_elements() -> None:
    text = re.sub(r"\bN\b", "40000000", example("relu").replace("M, N;", "M;"))
    symbols, _ = triton_cuda.example_values(lower(text)[1].sketch)
    assert symbols == {"M": 1}


# ---------------------------------------------------------------- executed, for Ascend

#: A wrapper's own code reads what its first kernel wrote, and writes what its second one reads.
WRAPPER = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(X_ptr, Y_ptr, N, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    x = tl.load(X_ptr + lanes, mask=lanes < N, other=0.0)
    tl.store(Y_ptr + lanes, x + x, mask=lanes < N)


def twice(X, *, out=None):
    Y = torch.empty_like(X) if out is None else out
    (N,) = X.shape
    BLOCK = triton.next_power_of_2(N)
    between = torch.empty_like(X)
    double_kernel[(1,)](X, between, N, BLOCK=BLOCK)
    if between[0].item() > 6.0:
        between.fill_(between[1].item())
    double_kernel[(1,)](between, Y, N, BLOCK=BLOCK)
    return Y
"""
#: Its signature.
SKETCH = """sketch twice {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 8;

    @llm_hint("parallel", "grididx")
    for i in range(cdiv(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        add(x, x, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""


def twice(source: str, x: Any, folder: Path) -> Any:
    """Launched by a process of its own."""
    require("triton_ascend")
    import attrs

    kernel = attrs.evolve(lower(SKETCH)[1], source=source, entry="twice", target="triton_ascend")
    kernel = attrs.evolve(kernel, hardware="ascend910b4")
    triton_ascend.TOOLCHAIN.place(kernel, folder)
    symbols = {"N": len(x)}
    return triton_ascend.TOOLCHAIN.run(Artefact(kernel, folder), {"X": x}, symbols, {})["Y"]


@pytest.mark.parametrize("first", [3.0, 4.0])
def test_a_wrapper_sees_what_its_kernels_wrote(first: float, tmp_path: Path) -> None:
    x = np.array([first, -7.0, 0.5, 1e6], np.float32)
    expected = 4 * x if first == 3.0 else np.full(4, -28.0, np.float32)
    np.testing.assert_array_equal(twice(WRAPPER, x, tmp_path), expected)


def test_what_runs_beside_the_wrapper_is_nobodys_result(tmp_path: Path) -> None:
    """Results are what launches leave in the tensors that were given for them."""
    source = WRAPPER.replace("    return Y", "    return Y + 0")
    with pytest.raises(ToolchainError, match="other tensors than those that it was given"):
        twice(source, np.arange(4, dtype=np.float32), tmp_path)


def test_the_launcher_opens_nothing(tmp_path: Path) -> None:
    """A library that is not among those of the launches cannot be had any more."""
    require("triton_ascend")
    source = tmp_path / "open.c"
    source.write_text(
        "#include <stdint.h>\n#include <stdio.h>\n"
        "void sketchc_forget_buffers(void) {}\n"
        "void sketchc_name_buffer(size_t a, size_t b, const char *n) {(void)a; (void)b; (void)n;}\n"
        "int64_t sketchc_launch(void **p, int64_t *l, int64_t *n, int64_t c, int32_t *g) {\n"
        "    (void)l; (void)n; (void)c; (void)g;\n"
        '    *(float *)p[0] = fopen("/etc/hostname", "r") == NULL ? 1.0f : 2.0f;\n'
        "    return 0;\n}\n"
    )
    library = tmp_path / "open.so"
    compiler = shutil.which("gcc")
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    argument = {"name": "Y", "buffer": "Y", "offset": 0, "item": 4}
    launch = {"library": str(library), "kernel": "k", "grid": [1, 1, 1], "arguments": [argument]}
    result = run_worker(
        triton_ascend.LAUNCH,
        {"launches": [launch], "unchanged": [], "order": "forward"},
        {"Y": np.zeros(4, np.uint8)},
        readable=[library],
    )
    assert result.reply == {}, result.describe()
    assert result.arrays["Y"].view(np.float32)[0] == 1.0
