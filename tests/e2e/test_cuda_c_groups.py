"""CUDA-C: products of groups of warps (`wgmma`) and what is done with sums in registers, compiled
by nvcc and run on the CPU, equal the interpreter; what would be wrong on a GPU is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpp_cases import assert_equal, inputs, reference
from cuda_c_products import product
from test_cuda_c import TOOLCHAIN, check_fault, lowered

from sketchc.base.types import DType
from sketchc.runtime.toolchains.cuda_c.toolchain import run_nvcc

#: How many rows and columns more than a block there are, and the depth: whole blocks, ragged ones,
#: hardly any depth, and ragged ones whose lines begin on 16 bytes.
_SIZES = ((0, 0, 192), (1, -1, 131), (-30, 8, 1), (8, -8, 200))


def check(text: str, rows: int, columns: int, how: str, folder: Path) -> None:
    kernel = lowered(text, {})
    way = "multiply_mapped" if how == "by_groups" else "multiply_along"
    assert f"{way}<sketch::{how}<" in kernel.source
    artefact = TOOLCHAIN.compile(kernel, folder)
    assert artefact.details["warnings"] == ""
    with TOOLCHAIN.open(artefact) as session:
        for seed, (m, n, k) in enumerate(_SIZES):
            symbols = {"M": max(rows + m, 1), "N": columns + n, "K": k}
            tensors = inputs(kernel.sketch, symbols, {}, seed)
            expected = reference(kernel.sketch, tensors, symbols, {})
            # Terms of 16-bit operands are exact in f32, those of f32 are rounded one by one.
            exact = kernel.sketch.tensor("A").dtype is not DType.F32
            ulps = 16.0 if exact else max(16.0, 2.0 * k**0.5)
            assert_equal(kernel.sketch, session.run(tensors, symbols, {}), expected, ulps)


@pytest.mark.sweep
@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize(
    ("rows", "columns"), [(128, 256), (256, 128), (128, 128), (64, 64), (100, 72)]
)
def test_products_of_groups_of_warps(
    rows: int, columns: int, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    check(product(rows, columns, turned), rows, columns, "by_groups", tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("rows", "columns", "how", "other"),
    [
        (64, 128, "by_groups", {"dtype": "bf16", "to": "bf16"}),
        (64, 128, "by_groups", {"init": "1"}),  # sums begin in memory
        (256, 256, "by_groups", {"to": "f16"}),  # more than one block of sums
        (48, 40, "by_warps", {"to": "f16"}),
        (48, 40, "by_threads", {"dtype": "f32"}),
        (33, 20, "by_threads", {"dtype": "f32", "init": "1"}),
    ],
)
def test_what_is_done_with_sums(
    rows: int, columns: int, how: str, other: dict[str, str], tmp_path: Path
) -> None:
    check(product(rows, columns, **other), rows, columns, how, tmp_path)


#: A vector that is read from its beginning: no row of anything.
_SCALED = """sketch scaled {{
    symbols: M, N <= 72, K;
    tensors: A[M, K]: in f16; B[K, N]: in f16; Z[N]: in {kind}; C[M, N]: out f16;

    for i in range(ceil(M, 64)):
        c = alloc([64, 72], f32, init=0)
        for k in range(ceil(K, 64)):
            a = alloc([64, 64])
            b = alloc([64, 72])
            load(A[i*64:(i+1)*64, k*64:(k+1)*64] -> a)
            load(B[k*64:(k+1)*64, 0:N] -> b)
            gemm(a, b, c)
        z = alloc([72], {kind})
        load(Z[0:N] -> z)
        d = alloc([64, 72], {kind})
        mul(c, z, d)
        store(d -> C[i*64:(i+1)*64, 0:N])
}}
"""


@pytest.mark.parametrize(("kind", "width"), [("f16", 8), ("f32", 4), ("f64", 2)])
def test_a_vector_beside_sums_is_read_at_once_where_it_may_be(
    kind: str, width: int, tmp_path: Path
) -> None:
    """Of all that lies in memory, 16 bytes at most at a time, and only where each begins there:
    callers may hand over a vector that begins anywhere."""
    kernel = lowered(_SCALED.format(kind=kind), {})
    told = kernel.source.partition("sums_for<float, ")[2].partition("[&]")[0]
    assert told.startswith(f"{width}>(sketch::aligned<{width}>(")
    assert "Z" in told.replace("(", " ").replace(",", " ").split()
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        for seed, (m, n, k) in enumerate(((64, 72, 64), (129, 64, 8), (65, 71, 72))):
            symbols = {"M": m, "N": n, "K": k}
            tensors = inputs(kernel.sketch, symbols, {}, seed)
            expected = reference(kernel.sketch, tensors, symbols, {})
            assert_equal(kernel.sketch, session.run(tensors, symbols, {}), expected, 16.0)


#: Two launches: the operands of the first begin on borders that the second does not ask for.
_SUMMED = """sketch summed {
    symbols: M, N, K;
    tensors: A[M, K]: in f16; B[K, N]: in f16; C[M, N]: out f32; S[M]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 64)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, 64)):
            c = alloc([64, 64], f32, init=0)
            for k in range(ceil(K, 64)):
                a = alloc([64, 64])
                b = alloc([64, 64])
                load(A[i*64:(i+1)*64, k*64:(k+1)*64] -> a)
                load(B[k*64:(k+1)*64, j*64:(j+1)*64] -> b)
                gemm(a, b, c)
            store(c -> C[i*64:(i+1)*64, j*64:(j+1)*64])

    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], f32, init=0)
        for j in range(ceil(N, 128)):
            c = alloc([128], f32)
            part = alloc([1], f32)
            load(C[i, j*128:(j+1)*128] -> c)
            reduce_sum(c, 0, part)
            add(total, part, total)
        store(total -> S[i:i+1])
}
"""


def test_kernels_of_one_file_agree_on_the_border_of_their_memory(tmp_path: Path) -> None:
    """nvcc refuses a file whose kernels ask for different ones."""
    check(_SUMMED, 64, 64, "by_groups", tmp_path)


@pytest.mark.parametrize(
    ("rows", "columns", "turned"), [(64, 16, (False, False)), (16, 64, (True, False))]
)
def test_sides_of_one_part_lie_in_longer_lines(
    rows: int, columns: int, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    """An operand that lies across the depth has 64 bytes of shared memory a line at least."""
    check(product(rows, columns, turned), rows, columns, "by_warps", tmp_path)


def test_a_library_for_a_gpu_has_them(tmp_path: Path) -> None:
    """What runs kernels where there is a GPU is built without PTX for other chips."""
    source = tmp_path / "product.cu"
    source.write_text(lowered(product(64, 64), {}).source, "utf-8")
    library = tmp_path / "product.so"
    assert run_nvcc(source, "h200", library, 120, ("-shared", "-Xcompiler", "-fPIC")) == ""
    assert library.stat().st_size > 0


#: Text of the library, what takes its place, and what the CPU's stand-in says, where it says it.
FAULTS = {
    "products that are not a group": ("            commit_products();\n", "", ""),
    "a wait for products left out": ("            wait_for_sums(sums[r]);\n", "", ""),
    "lines at another distance": ("lines = 8 * 128", "lines = 4 * 128", ""),
    "panels at another distance": ("deep ? 16 : bytes", "deep ? 16 : bytes / 2", ""),
    "operands that are not moved": ("moved = uint64_t{1} << 62", "moved = 0", "moved"),
    "another part of the depth": ("inner * 2 :", "inner :", ""),
    "the rows of another warp": (
        "top + threadIdx.x / 32 % 4 * 16",
        "top + threadIdx.x / 32 % 2 * 16",
        "",
    ),
}
#: The same where threads copy the operands.
FAULTS_OF_COPIES = {
    "a wait for copies left out": ("wait_for_chunks<stages - 3>();", "", ""),
    "copies that the units do not know of": (
        "stages - 3>();\n        show_to_units();\n",
        "stages - 3>();\n",
        "shown",
    ),
    "a barrier before a step left out": (
        "show_to_units();\n        __syncthreads();\n    }\n    // Once",
        "show_to_units();\n    }\n    // Once",
        "shown|",
    ),
}
#: The same where the copy engine brings them.
FAULTS_OF_MAPS = {
    "a wait for a full stage left out": (
        "void wait(int number) { wait_for_phase(full(number), phase); }",
        "void wait(int) {}",
        "",
    ),
    "a wait for an empty stage left out": ("wait_for_phase(empty(free), phase);", "", ""),
    "a stage that is empty too early": (
        "wait_for_products<1>();\n        if (threadIdx.x % 32 == 0) {",
        "if (threadIdx.x % 32 == 0) {",
        "",
    ),
    "a warp that says nothing": (
        "if (threadIdx.x % 32 == 0) {\n            arrive",
        "if (threadIdx.x % 64 == 0) {\n            arrive",
        "does not end",
    ),
    "fewer bytes than come": (
        "arrive_expecting(full(number), bytes)",
        "arrive_expecting(full(number), left_bytes)",
        "expect",
    ),
    "more bytes than come": (
        "arrive_expecting(full(number), bytes)",
        "arrive_expecting(full(number), bytes + 16)",
        "does not end",
    ),
    "another phase": ("phase ^= number == stages - 1 ?", "phase ^= number == stages - 2 ?", ""),
    "barriers that nobody may use yet": (
        "memory\n        __syncthreads();\n        int ahead",
        "memory\n        int ahead",
        "not begun|",
    ),
    "barriers that the engine does not know of": (
        "show_to_units(); // the barriers",
        "// the barriers",
        "shown",
    ),
    "barriers that do not end": ("end_barrier(empty(number));", "", "block ends before"),
    "barriers that end too early": (
        "void end()\n    {\n        __syncthreads();",
        "void end()\n    {",
        "",
    ),
    "rows for columns": (
        "along_columns ? from.column : from.row",
        "along_columns ? from.row : from.column",
        "",
    ),
    "sums of another thread": ("sent, count / 2)", "sent, count)", ""),
    "the same panel twice": ("inner + each * 64, static", "inner, static", ""),
    "lines of a box": (
        "uint32_t box[4] = {64, 1, lines, 1}",
        "uint32_t box[4] = {64, 1, 32, 1}",
        "",
    ),
    "lines along another axis": (
        "static_cast<int>(from.between), line,",
        "line, static_cast<int>(from.between),",
        "",
    ),
}


def check_product_fault(fault: tuple[str, str, str], columns: int, folder: Path) -> None:
    text = product(64, 128)
    assert "multiply_mapped<sketch::by_groups<" in lowered(text, {}).source
    check_fault(text, {"M": 65, "N": columns, "K": 328}, *fault, folder)


def test_faults_stand_in_the_text() -> None:
    """All of them in every run, of which the tests below try a part."""
    source = lowered(product(64, 128), {}).source
    everything = {**FAULTS, **FAULTS_OF_COPIES, **FAULTS_OF_MAPS}
    assert [name for name, (old, *_) in everything.items() if old not in source] == []


@pytest.mark.sweep(4)
@pytest.mark.parametrize("columns", [130, 136])
@pytest.mark.parametrize("name", list(FAULTS))
def test_an_injected_fault_is_found(name: str, columns: int, tmp_path: Path) -> None:
    """Where threads copy lines of 130 elements, and where maps describe those of 136."""
    check_product_fault(FAULTS[name], columns, tmp_path)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", list(FAULTS_OF_COPIES))
def test_an_injected_fault_of_copies_is_found(name: str, tmp_path: Path) -> None:
    check_product_fault(FAULTS_OF_COPIES[name], 130, tmp_path)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", list(FAULTS_OF_MAPS))
def test_an_injected_fault_of_maps_is_found(name: str, tmp_path: Path) -> None:
    check_product_fault(FAULTS_OF_MAPS[name], 136, tmp_path)
