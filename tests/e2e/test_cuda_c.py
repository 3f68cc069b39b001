"""CUDA-C: every example, compiled by nvcc and run on the CPU, equals the interpreter; and the CPU's
stand-in for a GPU finds what would be wrong there."""

from __future__ import annotations

import ctypes
import re
import shlex
from pathlib import Path

import attrs
import numpy as np
import pytest
from cpp_cases import NAMES, PARAMS, TILES, assert_equal, example, inputs, reference, sizes
from example_sizes import params_for
from toolchains import require

from sketchc.base.diagnostics import Source
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.process.peer import run_compiler
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.cuda_c.toolchain import run_nvcc
from sketchc.runtime.toolchains.native.compiler import find_compiler
from sketchc.runtime.toolchains.nvcc import find_nvcc

TOOLCHAIN = require("cuda_c")


def lowered(text: str, constants: dict[str, int], hardware: str = "h200") -> Kernel:
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], "cuda_c", hardware, constants).plan
    return load_target("cuda_c").emit(plan)


@pytest.mark.sweep(24)
@pytest.mark.parametrize("name", NAMES)
def test_an_example_equals_the_interpreter(name: str, tmp_path: Path) -> None:
    kernel = lowered(example(name), TILES.get(name, {}))
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    assert artefact.details["warnings"] == ""
    params = PARAMS.get(name) or params_for(kernel.sketch)
    with TOOLCHAIN.open(artefact) as session:
        for seed, symbols in enumerate(sizes(kernel, params)):
            tensors = inputs(kernel.sketch, symbols, params, seed)
            expected = reference(kernel.sketch, tensors, symbols, params)
            found = session.run(tensors, symbols, params)
            assert_equal(kernel.sketch, found, expected, 256.0)


def test_a_compiler_that_fortifies_whatever_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {find_compiler()} -D_FORTIFY_SOURCE=2 "$@"\n', "utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    kernel, extents = lowered(example("cumsum"), {}), {"M": 3, "N": 70}
    tensors = inputs(kernel.sketch, extents, {}, 0)
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, extents, {})
    assert_equal(kernel.sketch, found, reference(kernel.sketch, tensors, extents, {}), 256.0)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["matmul_half", "softmax", "sort_rows", "histogram", "cumprod"])
def test_it_compiles_for_ampere(name: str, tmp_path: Path) -> None:
    TOOLCHAIN.compile(lowered(example(name), {}, "a100"), tmp_path)


@pytest.mark.parametrize(("dtype", "units"), [("f16", True), ("bf16", True), ("f32", False)])
def test_what_the_plan_says_of_matrix_units_is_what_the_code_has(
    dtype: str, units: bool, tmp_path: Path
) -> None:
    text = PRODUCT.replace("f16", dtype).replace(
        "for k", '@llm_hint("tensor_core")\n            for k'
    )
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], "cuda_c").plan
    said = {answer.hint: answer.became for answer in plan.answers}["tensor_core"]
    kernel = load_target("cuda_c").emit(plan)
    source = tmp_path / "product.cu"
    source.write_text(kernel.source, "utf-8")
    run_nvcc(source, kernel.hardware, tmp_path / "product.ptx", 120, ("-ptx",))
    assert ("mma.sync" in (tmp_path / "product.ptx").read_text("utf-8")) is units
    assert ("mma.sync" in said) is units


@pytest.mark.parametrize(("name", "chip"), [("matmul_half", "h200"), ("softmax", "a100")])
def test_the_command_in_a_file_makes_a_library_of_it(
    name: str, chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the C function, which refuses sizes; and with instructions that only this chip has."""
    kernel = lowered(example(name), {}, chip)
    source, sketch = kernel.source, kernel.sketch
    monkeypatch.chdir(tmp_path)
    Path(f"{name}.cu").write_text(source, "utf-8")
    lines = [line.removeprefix("//") for line in source.splitlines()[1:3]]
    compiler, *flags = shlex.split(" ".join(lines))
    assert compiler == "nvcc"
    status, said = run_compiler([str(find_nvcc()), *flags], 120)
    assert (status, said) == (0, "")
    function = getattr(ctypes.CDLL(str(tmp_path / f"{name}.so")), kernel.entry)
    sizes_below_zero = [ctypes.c_int64(-1)] * len(sketch.symbols)
    assert function(*[None] * len(sketch.tensors), *sizes_below_zero) == 1


#: Elements whose places are computed from their numbers.
GATHER = """sketch gather {
    symbols: M, Q;
    tensors: X[M, Q]: in f32; Y[M*Q]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M*Q, 256)):
        x = alloc([256])
        k = iota(256, i*256, M*Q)
        load(X[k//Q, k % Q] -> x)
        store(x -> Y[i*256:(i+1)*256])
}
"""


@pytest.mark.parametrize("symbols", [{"M": 3, "Q": 5}, {"M": 7, "Q": 37}, {"M": 1, "Q": 1}])
def test_nothing_is_read_at_lanes_that_are_not_there(
    symbols: dict[str, int], tmp_path: Path
) -> None:
    kernel = lowered(GATHER, {})
    tensors = inputs(kernel.sketch, symbols, {}, 0)
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, symbols, {})
    assert_equal(kernel.sketch, found, reference(kernel.sketch, tensors, symbols, {}), 0.0)


#: Rows divided by a number each, of any scale.
QUOTIENTS = """sketch quotients {
    symbols: M, N <= 4096;
    tensors: X[N]: in f32; D[M]: in f32; Y[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        d = alloc([1])
        load(X[0:N] -> x)
        load(D[i:i+1] -> d)
        div(x, d, x)
        store(x -> Y[i, 0:N])
}
"""


def test_quotients_by_a_number_of_the_whole_row_are_right_at_all_scales(tmp_path: Path) -> None:
    kernel = lowered(QUOTIENTS, {})
    assert "/ divisor;" in kernel.source
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1.2e-38, 3.4e38, -3.4e38, 3.0]
    bits = rng.integers(0, 2**32, 2100, dtype=np.uint64).astype(np.uint32).view(np.float32)
    some = np.concatenate([np.array(special, np.float32), bits])
    tensors = {"X": some, "D": some[:40].copy(), "Y": np.zeros((40, some.size), np.float32)}
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, {"M": 40, "N": some.size}, {})["Y"]
    with np.errstate(all="ignore"):
        expected = some[None, :] / some[:40, None]
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    there = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[there]), np.signbit(expected[there]))
    steps = found[there].view(np.int32).astype(np.int64) - expected[there].view(np.int32)
    assert np.abs(steps).max() <= 1


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "normalise_rows"])
def test_rows_of_many_and_ragged_turns(name: str, tmp_path: Path) -> None:
    """Of all loops over a thread's groups of lanes: several at a time, one, and the rest."""
    kernel = lowered(example(name), {})
    params = PARAMS.get(name) or params_for(kernel.sketch)
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        for extent in (1, 1540, 2048, 2051, 3080):
            tensors = inputs(kernel.sketch, {"M": 2, "N": extent}, params, extent)
            expected = reference(kernel.sketch, tensors, {"M": 2, "N": extent}, params)
            found = session.run(tensors, {"M": 2, "N": extent}, params)
            assert_equal(kernel.sketch, found, expected, 256.0)


#: The same for what follows, in a kernel whose rows are read several times.
ROW_FAULTS = {
    "a turn that is run again": ("turn(first + each * step,", "turn(first,", ""),
    "a turn left out": ("first += turns * step)", "first += (turns + 1) * step)", ""),
    "lanes that are not left": ("turn(first, end - first);", "turn(first, 2);", ""),
    "a copy left out": ("x_exp_lanes[part] = x;", "x_exp_lanes[part] = 0;", ""),
    "a quotient that is not mended": ("::fmaf(rest, -by.inverse_, near)", "near * 1.01F", ""),
}


@pytest.mark.parametrize("name", list(ROW_FAULTS))
def test_an_injected_fault_in_a_row_is_found(name: str, tmp_path: Path) -> None:
    check_fault(example("softmax"), {"M": 2, "N": 3077}, *ROW_FAULTS[name], tmp_path)


#: A sketch whose kernel sums rows, turns tiles and scans them: with barriers of each kind.
SKETCH = """sketch faults {
    symbols: M;
    tensors: X[M, 256]: in f32; Y[M, 256]: out f32; S[M]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([256])
        y = alloc([256])
        s = alloc([1])
        load(X[i, 0:256] -> x)
        reduce_sum(x, 0, s)
        store(s -> S[i])
        cumsum(x, 0, y)
        store(y -> Y[i, 0:256])
}
"""
#: A product whose operands pass through shared memory in several steps, in matrix units.
PRODUCT = """sketch faults {
    symbols: M, N, K;
    tensors: A[M, K]: in f16; B[K, N]: in f16; C[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 32)):
        for j in range(ceil(N, 32)):
            c = alloc([32, 32], f32, init=0)
            for k in range(ceil(K, 32)):
                a = alloc([32, 32])
                b = alloc([32, 32])
                load(A[i*32:(i+1)*32, k*32:(k+1)*32] -> a)
                load(B[k*32:(k+1)*32, j*32:(j+1)*32] -> b)
                gemm(a, b, c)
            store(c -> C[i*32:(i+1)*32, j*32:(j+1)*32])
}
"""
#: What is replaced in a kernel's source, and by what; what a launch says, where it is found there.
FAULTS = {
    "a shuffle that not all lanes reach": (
        "0xffffffffU, value, distance",
        "0x0000ffffU, value, distance",
        "mask|meet",
    ),
    "a distance of lanes left out": ("int distance = 16", "int distance = 8", ""),
    "a barrier before the exchange left out": (
        "        parts[threadIdx.x / 32] = value;\n    }\n    __syncthreads();",
        "        parts[threadIdx.x / 32] = value;\n    }",
        "",
    ),
    "a part of another warp": (
        "value = parts[threadIdx.x % warps];",
        "value = parts[(threadIdx.x + 1) % 2];",
        "",
    ),
    "a warp left out": ("distance = warps / 2;", "distance = warps / 4;", ""),
    "one leader for all warps": ("if (threadIdx.x % 32 == 0) {", "if (threadIdx.x == 0) {", ""),
    "a barrier that not all threads reach": (
        "    value = combined_in_warp<How>(value);\n    __syncthreads();",
        "    value = combined_in_warp<How>(value);\n    if (threadIdx.x < 64) __syncthreads();",
        "barrier",
    ),
    "lanes that are dealt out twice": ("thread * 2, threads * 2", "thread * 2, threads", ""),
    "lanes that are left out": ("thread * 2, threads * 2", "thread * 2 + 1, threads * 2", ""),
}


#: The same for a product.
PRODUCT_FAULTS = {
    "a wait left out": ("wait_for_chunks<stages - 2>();", "wait_for_chunks<stages>();", ""),
    "a barrier before a step left out": (
        "wait_for_chunks<stages - 2>();\n            __syncthreads();",
        "wait_for_chunks<stages - 2>();",
        "",
    ),
    "a part of another fragment": ("% 2 : lane / 16;", "% 2 : lane / 8 % 2;", ""),
    "halves of a fragment exchanged": (
        "right[c].parts + 2 * side, T{}",
        "right[c].parts, T{}",
        "",
    ),
    "a chunk that is not moved": (
        "return Stage::at(first + line,",
        "return 8 ^ Stage::at(first + line,",
        "",
    ),
    "a copy of one element too many": (
        "min(left - chunk * size, int64_t{size}) : 0;",
        "min(left - chunk * size + 1, int64_t{size}) : 0;",
        "",
    ),
}


def test_faults_stand_in_the_text() -> None:
    """All of them in every run, of which the tests below try a part."""
    for text, faults in ((SKETCH, FAULTS), (PRODUCT, PRODUCT_FAULTS)):
        source = lowered(text, {}).source
        assert [name for name, (old, *_) in faults.items() if old not in source] == []


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(FAULTS))
def test_an_injected_fault_is_found(name: str, tmp_path: Path) -> None:
    """In one of a few launches, whose threads run in another order each."""
    check_fault(SKETCH, {"M": 3}, *FAULTS[name], tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(PRODUCT_FAULTS))
def test_an_injected_fault_in_a_product_is_found(name: str, tmp_path: Path) -> None:
    check_fault(PRODUCT, {"M": 35, "N": 40, "K": 200}, *PRODUCT_FAULTS[name], tmp_path)


def test_operands_take_the_place_of_sums_after_a_barrier(tmp_path: Path) -> None:
    """Of a product whose sums have as much memory as its operands, which threads copy: lines of 127
    elements have no map. Where the copy engine brings them, all wait for its barriers as well."""
    new = "        placed.begin(to);\n"
    old = f"{new}        __syncthreads();\n"
    text = PRODUCT.replace("32", "128").replace("f128", "f32").replace("init=0", "init=1")
    check_fault(text, {"M": 128, "N": 128, "K": 127}, old, new, "", tmp_path)


def test_a_barrier_is_refused_where_the_host_does_not_ask_for_errors(tmp_path: Path) -> None:
    """As in kernels by others, whose C function returns 0 whatever happened."""
    last = "        __syncthreads();\n    }\n}\n"
    kernel = with_fault(SKETCH, last, last.replace("__sync", "if (threadIdx.x < 64) __sync"))
    source = kernel.source.replace("cudaGetLastError() != cudaSuccess", "false")
    assert source != kernel.source
    kernel = attrs.evolve(kernel, source=source)
    tensors = inputs(kernel.sketch, {"M": 3}, {})
    with (
        TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session,
        pytest.raises(ToolchainError, match="barrier"),
    ):
        session.run(tensors, {"M": 3}, {})


def test_a_launch_of_no_block_does_nothing(tmp_path: Path) -> None:
    """As on a GPU, which refuses it: kernels by others launch none where nothing is left to do."""
    kernel = lowered(SKETCH, {})
    asks = "if (cudaGetLastError() != cudaSuccess)"
    assert asks in kernel.source
    source = kernel.source.replace(asks, "rest<<<0, 32>>>();\n    if (false)")
    own = 'extern "C" __global__'
    source = source.replace(own, f"__global__ void rest() {{}}\n\n{own}", 1)
    tensors = inputs(kernel.sketch, {"M": 3}, {})
    expected = reference(kernel.sketch, tensors, {"M": 3}, {})
    kernel = attrs.evolve(kernel, source=source)
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, {"M": 3}, {})
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, 1e-3, 1e-3)


def with_fault(text: str, old: str, new: str) -> Kernel:
    """The kernel of a sketch with a part of its source replaced."""
    kernel = lowered(text, {})
    assert old in kernel.source
    return attrs.evolve(kernel, source=kernel.source.replace(old, new))


def check_fault(
    text: str, symbols: dict[str, int], old: str, new: str, says: str, folder: Path
) -> None:
    kernel = with_fault(text, old, new)
    tensors = inputs(kernel.sketch, symbols, {})
    expected = reference(kernel.sketch, tensors, symbols, {})
    said, right = "", True
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, folder)) as session:
        try:
            for _ in range(6):
                found = session.run(tensors, symbols, {})
                same = (
                    np.allclose(found[key], value, 1e-3, 1e-3) for key, value in expected.items()
                )
                right = right and all(same)
        except ToolchainError as error:
            said = str(error)
    assert re.search(says, said) if says else said or not right
