"""TileLang: kernels compile to CUDA source and cubins; and faults in their text are found where it
runs on the CPU. That examples equal PyTorch there, `test_examples.py` shows."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import attrs
import numpy as np
import pytest
from cpp_cases import example, inputs, reference
from every_target import run_everything
from toolchains import require
from triton_cases import lower, make_case

from sketchc.runtime.toolchains.base import Artefact, ToolchainError

TOOLCHAIN = require("tilelang_cuda")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["matmul_half", "softmax", "sort_rows", "histogram"])
def test_it_compiles_to_cubins(name: str, tmp_path: Path) -> None:
    kernels = TOOLCHAIN.compile(lower(example(name), "tilelang_cuda")[1], tmp_path).details[
        "kernels"
    ]
    assert {kernel["architecture"] for kernel in kernels} == {"sm_80", "sm_90a"}
    assert all(Path(kernel["cubin"]).stat().st_size > 0 for kernel in kernels)


@pytest.mark.sweep
def test_a_half_product_streams_tiles_to_matrix_units(tmp_path: Path) -> None:
    """By the copy engine on Hopper, which Ampere does not have."""
    tiles = {"TM": 128, "TN": 256, "TK": 64}
    text = example("matmul_half").replace(
        "TM = 64, TN = 64, TK = 32", "TM = 128, TN = 256, TK = 64"
    )
    kernels = TOOLCHAIN.compile(lower(text, "tilelang_cuda", tiles)[1], tmp_path).details["kernels"]
    sources = {k["architecture"]: Path(k["source"]).read_text("utf-8") for k in kernels}
    assert "tma_load" in sources["sm_90a"]
    assert "wgmma" in sources["sm_90a"]
    assert "tma_store" in sources["sm_90a"]
    assert "tma_load" not in sources["sm_80"]
    assert "mma_sync" in sources["sm_80"]


def test_the_stand_in_is_short_enough_to_be_read() -> None:
    folder = importlib.resources.files("sketchc.runtime.toolchains.tilelang_cuda")
    text = folder.joinpath("standin.py").read_text("utf-8")
    assert text.count("\n") < 150


def test_a_long_chain_of_choices_is_compiled(tmp_path: Path) -> None:
    """For the compiler, each choice that lies in another one doubles the work."""
    steps = "".join(
        f"        t{n + 1} = alloc([16])\n"
        f"        clamp(t{n}, t{n + 1}, low={n - 9}.5, high={9 - n})\n"
        for n in range(12)
    )
    text = f"""sketch chain {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32; Z[N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, 16):
        t0 = alloc([16])
        load(X[i:i+16] -> t0)
{steps}        relu(t12, t0)
        leaky_relu(t7, t1, slope=0.5)
        store(t0 -> Y[i:i+16])
        store(t1 -> Z[i:i+16])
}}"""
    x = np.linspace(-20, 20, 37, dtype=np.float32)
    x[5] = np.nan
    case = make_case(lower(text, "tilelang_cuda")[1], {"N": 37}, tensors={"X": x})
    (found,) = run_everything("tilelang_cuda", [case], tmp_path)
    assert isinstance(found, dict), found
    for name, expected in case.expected.items():
        np.testing.assert_array_equal(found[name], expected)


#: A sketch that sums rows, and updates some of them in place between two loops over lanes.
SKETCH = """sketch faults {
    symbols: M;
    tensors: X[M, 300]: in f32; Y[M, 300]: out f32; S[M]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([300])
        y = alloc([300])
        s = alloc([1])
        load(X[i, 0:300] -> x)
        reduce_sum(x, 0, s)
        store(s -> S[i])
        cumsum(x, 0, y)
        store(y -> Y[i, 0:300])
}
"""
#: What is replaced in a kernel's source, and by what.
FAULTS = {
    "a turn that is left out": ("T.ceildiv(300, 128)", "T.ceildiv(200, 128)"),
    "lanes that are left out": ("if number < 300:", "if number < 299:"),
    "a reduction that starts elsewhere": ("= T.float32(0.0)", "= T.float32(1.0)"),
    "another row": ("X_row_start = i * 300", "X_row_start = i * 301"),
    "a scan that is exclusive": (
        "before if exclusive else total",
        "total if exclusive else before",
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(FAULTS))
def test_an_injected_fault_is_found(name: str, tmp_path: Path) -> None:
    old, new = FAULTS[name]
    kernel = lower(SKETCH, "tilelang_cuda")[1]
    assert old in kernel.source
    faulty = attrs.evolve(kernel, source=kernel.source.replace(old, new))
    symbols = {"M": 3}
    tensors = inputs(kernel.sketch, symbols, {})
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(Artefact(faulty, tmp_path)) as session:
        try:
            found = session.run(tensors, symbols, {})
        except ToolchainError:
            return
    assert not all(np.allclose(found[key], value, 1e-5) for key, value in expected.items())


def agrees(text: str, name: str, symbols: dict[str, int], old: str, new: str, at: Path) -> bool:
    """Whether a kernel, with `old` replaced in its text, gives what the interpreter does."""
    kernel = lower(text, "tilelang_cuda")[1]
    assert old in kernel.source
    kernel = attrs.evolve(kernel, source=kernel.source.replace(old, new))
    tensors = inputs(kernel.sketch, symbols, {})
    expected = reference(kernel.sketch, tensors, symbols, {})[name]
    with TOOLCHAIN.open(Artefact(kernel, at)) as session:
        found = session.run(tensors, symbols, {})[name]
    return np.allclose(found.astype("f8"), expected.astype("f8"), rtol=2e-3, atol=2e-3)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("columns", "old", "new"),
    [
        (1100, "", ""),
        (301, "", ""),
        (9000, "", ""),
        (1100, "= X_held[thread, turn * width + v]", "= X_held[thread, v]"),
        (1100, "= x_exp_held[thread, turn * width + v]", "= x_exp_held[0, turn * width + v]"),
        (9000, "start + number + v] = x_exp_lanes", "start + number] = x_exp_lanes"),
    ],
)
def test_threads_hold_rows_that_are_short_enough(
    columns: int, old: str, new: str, tmp_path: Path
) -> None:
    """Lanes four and one at a time, and a row that is too long; each with a fault that is found."""
    text = example("softmax").replace("N <= 8192", "N <= 20000")
    assert agrees(text, "Y", {"M": 3, "N": columns}, old, new, tmp_path) is (old == "")


#: A row that is read twice, so that 256 threads share it.
_MAXIMA = """sketch maxima {
    symbols: M, N <= 20000;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; Z[M]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        z = alloc([1])
        load(X[i, 0:N] -> x)
        reduce_max(x, 0, z)
        store(z -> Z[i])
        sub(x, z, x)
        store(x -> Y[i, 0:N])
}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("columns", [1100, 9000])
def test_a_maximum_is_nan_whichever_thread_has_it(columns: int, tmp_path: Path) -> None:
    _, kernel = lower(_MAXIMA, "tilelang_cuda")
    assert "threads=256" in kernel.source
    symbols = {"M": 5, "N": columns}
    tensors = inputs(kernel.sketch, symbols, {})
    for row, column in ((0, 0), (1, 127 * 4), (2, 128 * 4), (3, columns - 1)):
        tensors["X"][row, column] = np.nan
    with TOOLCHAIN.open(Artefact(kernel, tmp_path)) as session:
        missing = np.isnan(session.run(tensors, symbols, {})["Z"])
    assert missing.tolist() == [True, True, True, True, False]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("columns", "old", "new"),
    [
        (136, "", ""),
        (131, "", ""),
        (136, "T.copy(C_tile, C_matrix[", "T.copy(C_tile, C_matrix[1 + "),
        (131, "C[C_row_start + lane] =", "C[C_row_start] ="),
    ],
)
def test_results_of_a_half_product_are_delivered_as_tiles(
    columns: int, old: str, new: str, tmp_path: Path
) -> None:
    """Where rows begin at multiples of 16 bytes; beyond the ends of the tensor nothing is written,
    by either form."""
    symbols = {"M": 70, "N": columns, "K": 72}
    found = agrees(example("matmul_half"), "C", symbols, old, new, tmp_path)
    assert found is (old == "")


#: Not of a tile of each kind of type.
NEGATED = """sketch negated {
    symbols: N;
    tensors: A[N]: in u8; B[N]: in i64; C[N]: in f32; D[N]: in bool; Y[4, N]: out bool;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, 16)):
@BODY@}
"""
NEGATION = """        {0} = alloc([16], {1})
        load({2}[i*16:(i+1)*16] -> {0})
        not_{0} = alloc([16], bool)
        logical_not({0}, not_{0})
        store(not_{0} -> Y[{3}, i*16:(i+1)*16])
"""


#: What may leave the type of narrow operands, and how a wider result gets it.
_NARROW = (
    "add(u, v, {0})",
    "sub(u, v, {0})",
    "mul(u, v, {0})",
    "neg(u, {0})",
    "bitwise_not(u, {0})",
)


@pytest.mark.parametrize(("kind", "wide"), [("u8", "u32"), ("i8", "i32"), ("i16", "i64")])
def test_narrow_integers_stay_within_their_type(kind: str, wide: str, tmp_path: Path) -> None:
    """C computes with int; a result is in the operands' type before it is converted, and so is
    what a row's extremes begin with."""
    names = [f"w{number}" for number in range(len(_NARROW))]
    tiles = "".join(f"        {name} = alloc([16], {wide})\n" for name in names)
    calls = "".join(f"        {op.format(n)}\n" for n, op in zip(names, _NARROW, strict=True))
    stores = "".join(f"        store({name} -> {name.upper()}[i, 0:16])\n" for name in names)
    outputs = "".join(f"        {name.upper()}[N, 16]: out {wide};\n" for name in names)
    text = f"""sketch narrow {{
    symbols: N;
    tensors:
        U[N, 16]: in {kind}; V[N, 16]: in {kind}; LEAST[N]: out {kind}; MOST[N]: out {kind};
{outputs}
    @llm_hint("parallel", "grididx")
    for i in range(N):
        u = alloc([16])
        v = alloc([16])
        least = alloc([1], {kind})
        most = alloc([1], {kind})
{tiles}        load(U[i, 0:16] -> u)
        load(V[i, 0:16] -> v)
{calls}        reduce_min(u, 0, least)
        reduce_max(u, 0, most)
{stores}        store(least -> LEAST[i:i+1])
        store(most -> MOST[i:i+1])
}}
"""
    kernel = lower(text, "tilelang_cuda")[1]
    symbols = {"N": 7}
    tensors = inputs(kernel.sketch, symbols, {})
    rng = np.random.default_rng(0)
    for name in "UV":
        limits = np.iinfo(tensors[name].dtype)
        drawn = rng.integers(limits.min, limits.max + 1, tensors[name].shape)
        tensors[name] = drawn.astype(tensors[name].dtype)
    tensors["U"][0], tensors["U"][1] = limits.min, limits.max
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, symbols, {})
    for name, want in expected.items():
        np.testing.assert_array_equal(found[name], want, err_msg=name)


def test_not_takes_tiles_of_every_kind_of_type(tmp_path: Path) -> None:
    kinds = [("a", "u8", "A", 0), ("b", "i64", "B", 1), ("c", "f32", "C", 2), ("d", "bool", "D", 3)]
    text = NEGATED.replace("@BODY@", "".join(NEGATION.format(*kind) for kind in kinds))
    kernel = lower(text, "tilelang_cuda")[1]
    symbols = {"N": 40}
    tensors = inputs(kernel.sketch, symbols, {})
    for name in "ABC":
        tensors[name][::3] = 0
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(Artefact(kernel, tmp_path)) as session:
        found = session.run(tensors, symbols, {})
    np.testing.assert_array_equal(found["Y"], expected["Y"])


#: A product of transposed bf16 matrices, and the largest of each row and of a bound.
WRITTEN_FOR = """sketch turned_product {
    symbols: M, N, K;
    tensors: A[K, M]: in bf16; B[N, K]: in bf16; C[M, N]: out bf16; TOP[M]: out f32;
    constexpr: TM = 16, TN = 32, TK = 16;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, TM)):
        top = alloc([TM], f32, init=-1)
        for j in range(ceil(N, TN)):
            c = alloc([TM, TN], f32, init=0)
            part = alloc([TM], f32)
            for k in range(ceil(K, TK)):
                a = alloc([TK, TM], bf16)
                b = alloc([TN, TK], bf16)
                load(A[k*TK:(k+1)*TK, i*TM:(i+1)*TM] -> a)
                load(B[j*TN:(j+1)*TN, k*TK:(k+1)*TK] -> b)
                gemm(a, b, c, trans_a=True, trans_b=True)
            store(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            reduce_max(c, 1, part)
            max(top, part, top)
        store(top -> TOP[i*TM:(i+1)*TM])
}
"""
WRITTEN = """import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def turned_product_kernel(TM, TN, TK):
    M, N, K = T.dynamic("M, N, K")

    @T.prim_func
    def kernel(
        A: T.Tensor((K, M), "bfloat16"),
        B: T.Tensor((N, K), "bfloat16"),
        C: T.Tensor((M, N), "bfloat16"),
        TOP: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, TM), threads=128) as i:
            a = T.alloc_shared((TK, TM), "bfloat16")
            b = T.alloc_shared((TN, TK), "bfloat16")
            c = T.alloc_fragment((TM, TN), "float32")
            rest = T.alloc_fragment((TM, TN), "float32")
            top = T.alloc_fragment((TM,), "float32")
            T.fill(top, -1.0)
            for j in T.serial(T.ceildiv(N, TN)):
                T.clear(rest)
                for k in T.Pipelined(T.ceildiv(K, TK), num_stages=2):
                    T.copy(A[k * TK, i * TM], a)
                    T.copy(B[j * TN, k * TK], b)
                    T.gemm(a, b, c, transpose_A=True, transpose_B=True, clear_accum=True)
                    for row, column in T.Parallel(TM, TN):
                        rest[row, column] = rest[row, column] + c[row, column]
                T.copy(rest, C[i * TM, j * TN])
                for row, column in T.Parallel(TM, TN):
                    if j * TN + column >= N:
                        rest[row, column] = -1.0
                T.reduce_max(rest, top, dim=1, clear=False)
            T.copy(top, TOP[i * TM])

    return kernel


class LaunchError(ValueError):
    pass


def turned_product(A, B, *, out=None):
    (K, M), N = A.shape, B.shape[0]
    C = torch.empty((M, N), dtype=torch.bfloat16, device=A.device)
    TOP = torch.empty(M, dtype=torch.float32, device=A.device)
    C, TOP = out or (C, TOP)
    turned_product_kernel(16, 32, 16)(A.contiguous(), B.contiguous(), C, TOP)
    return C, TOP
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("transpose_B=True, clear_accum=True", "transpose_B=True"),
        ("dim=1, clear=False", "dim=1"),
        ("A[k * TK, i * TM], a", "A[k * TK, i * TM + 1], a"),
    ],
)
def test_tile_operations_mean_on_the_cpu_what_they_say(old: str, new: str, tmp_path: Path) -> None:
    """Windows of tensors with a conversion to bf16, transposed products, maxima that go on."""
    kernel = lower(WRITTEN_FOR, "tilelang_cuda")[1]
    kernel = attrs.evolve(kernel, source=WRITTEN.replace(old, new) if old else WRITTEN)
    symbols = {"M": 35, "N": 45, "K": 21}
    tensors = inputs(kernel.sketch, symbols, {})
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(Artefact(kernel, tmp_path)) as session:
        found = session.run(tensors, symbols, {})
    same = [
        np.allclose(found[key].astype("f8"), value.astype("f8"), rtol=1e-2, atol=1e-2)
        for key, value in expected.items()
    ]
    assert all(same) is (old == "")
