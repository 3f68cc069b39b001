"""CUDA-C: products of f32 that matrix units do in three parts of tf32, where a sketch asks for no
more, compiled by nvcc and run on the CPU, are the interpreter's as those of f32 are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from cpp_cases import Array, assert_equal, inputs, reference
from cuda_c_products import product
from test_cuda_c import TOOLCHAIN, check_fault, lowered, with_fault
from test_cuda_c_groups import check

SPLIT = {"dtype": "f32", "precision": "tf32x3"}
MARK = "sketch::in_tf32>"


@pytest.mark.sweep(12)
@pytest.mark.parametrize("turned", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize(("rows", "columns"), [(128, 256), (64, 64), (48, 80), (32, 16)])
def test_products_of_floats_in_three_parts(
    rows: int, columns: int, turned: tuple[bool, bool], tmp_path: Path
) -> None:
    text = product(rows, columns, turned, **SPLIT)
    assert MARK in lowered(text, {}).source
    check(text, rows, columns, "by_warps", tmp_path)


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    "other", [{"precision": "tf32"}, {"init": "1"}, {"to": "f16"}, {"precision": "ieee"}]
)
def test_what_is_asked_for_is_a_floor(other: dict[str, str], tmp_path: Path) -> None:
    """One product of tf32 would be less exact than what `verify` compares with."""
    text = product(33, 48, **{**SPLIT, **other})
    exact = other.get("precision") == "ieee"
    assert (MARK in lowered(text, {}).source) != exact
    check(text, 33, 48, "by_threads" if exact else "by_warps", tmp_path)


@pytest.mark.sweep(12)
def test_other_types_are_multiplied_as_ever(tmp_path: Path) -> None:
    text = product(64, 64, precision="tf32x3")
    assert MARK not in lowered(text, {}).source
    check(text, 64, 64, "by_groups", tmp_path)


#: A product without a bias: rows of numbers that no part may turn into others.
PLAIN = """sketch plain {
    symbols: M, K;
    tensors: A[M, K]: in f32; B[K, 32]: in f32; C[M, 32]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 32)):
        c = alloc([32, 32], init=0.0)
        for k in range(ceil(K, 32)):
            a = alloc([32, 32])
            b = alloc([32, 32])
            load(A[i*32:(i+1)*32, k*32:(k+1)*32] -> a)
            load(B[k*32:(k+1)*32, 0:32] -> b)
            gemm(a, b, c, precision="tf32x3")
        store(c -> C[i*32:(i+1)*32, 0:32])
}
"""
LARGEST = float(np.finfo(np.float32).max)


def answer(
    text: str,
    tensors: Mapping[str, Array],
    symbols: dict[str, int],
    folder: Path,
    fault: tuple[str, str] = ("", ""),
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What a kernel gives, with a fault put into it, and what it should."""
    kernel = with_fault(text, *fault)
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, folder)) as session:
        found = session.run(tensors, symbols, {})
    return found, reference(kernel.sketch, tensors, symbols, {})


def special() -> tuple[dict[str, Array], dict[str, int]]:
    """Rows with infinities, NaN, the largest and the smallest numbers, times powers of two."""
    special = [np.inf, -np.inf, np.nan, LARGEST, -LARGEST, 1e-38, 1.0 + 2.0**-23, 0.1, np.nan]
    left = np.zeros((len(special), 9), np.float32)
    left[:, 4] = special
    left.view(np.uint32)[-1, 4] = 0x7F800001  # NaN that 11 bits do not tell from infinity
    right = np.zeros((9, 32), np.float32)
    right[4] = np.resize([1.0, -0.5, 0.25, 1.0 + 2.0**-12], 32)
    out = np.full((len(special), 32), np.nan, np.float32)
    return {"A": left, "B": right, "C": out}, {"M": len(special), "K": 9}


def test_special_numbers_are_those_of_f32(tmp_path: Path) -> None:
    tensors, symbols = special()
    found, expected = answer(PLAIN, tensors, symbols, tmp_path)
    with np.errstate(over="ignore", invalid="ignore"):
        # Of numbers near the smallest normal one, what the leading bits leave is denormal.
        np.testing.assert_allclose(found["C"], expected["C"], rtol=2.0**-21, atol=2.0**-137)


#: What each part is for: without it, an answer is not that of f32.
LOSSES = {
    "the rests of the left operand": ("multiply_leading(now, left_rest, right);", ""),
    "the rests of the right operand": ("multiply_leading(now, left, right_rest);", ""),
    "what is left": ("bits_of(x - lead)", "bits_of(x)"),
    "sums that are rounded": ("float now[4] = {};", "float (&now)[4] = sums;"),
}


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", list(LOSSES))
def test_each_part_counts(name: str, tmp_path: Path) -> None:
    text = product(32, 48, **SPLIT)
    symbols = {"M": 33, "N": 50, "K": 70}
    tensors = inputs(lowered(text, {}).sketch, symbols, {})
    found, expected = answer(text, tensors, symbols, tmp_path, LOSSES[name])
    with pytest.raises(AssertionError):
        assert_equal(lowered(text, {}).sketch, found, expected, 16.0)


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    "fault",
    [
        ("isfinite(now[part]) ? now[part] : 0.0F", "now[part]"),
        ("isfinite(rounded) ? rounded :", "true ? rounded :"),
        ("isfinite(x) ? finite : x + x", "finite"),
    ],
)
def test_infinity_needs_care(fault: tuple[str, str], tmp_path: Path) -> None:
    tensors, symbols = special()
    found, expected = answer(PLAIN, tensors, symbols, tmp_path, fault)
    assert not np.allclose(found["C"], expected["C"], equal_nan=True)


#: A product whose operands are results in shared memory.
INNER = """sketch inner {{
    symbols: M, N;
    tensors: A[M, 32]: in f32; B[32, N]: in f32; C[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 32)):
        a = alloc([32, 32], {dtype})
        c = alloc([32, 64], init=0.0)
        load(A[i*32:(i+1)*32, 0:32] -> a)
        relu(a, a)
        for j in range(ceil(N, 64)):
            b = alloc([32, 64], {dtype})
            load(B[0:32, j*64:(j+1)*64] -> b)
            abs(b, b)
            matmul(a, b, c, precision="tf32x3")
            store(c -> C[i*32:(i+1)*32, j*64:(j+1)*64])
}}
"""
#: What asks whether operands may be copied without a thread.
QUESTIONS = (
    "!__isShared(from)",
    "!__isShared(now.left.data) && !__isShared(now.right.data)",
)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_operands_in_shared_memory_are_copied_by_threads(dtype: str, tmp_path: Path) -> None:
    """Copies that run by themselves read the device's memory alone."""
    text, symbols = INNER.format(dtype=dtype), {"M": 70, "N": 140}
    sketch = lowered(text, {}).sketch
    found, expected = answer(text, inputs(sketch, symbols, {}), symbols, tmp_path)
    assert_equal(sketch, found, expected, 16.0)
    for number, question in enumerate(QUESTIONS):
        check_fault(text, symbols, question, "true", "reads shared", tmp_path / str(number))


FAULTS = {
    "another element of the left operand": ("across * 8 + lane / 4", "across * 8"),
    "another part of the depth": ("inner * 8 + along * 4", "inner * 8 + (1 - along) * 4"),
    "a wait for copies left out": ("wait_for_chunks<stages - 2>();", ""),
    "halves of a right operand for one another": (
        "rights[c].parts + 2, left",
        "rights[c].parts, left",
    ),
}


def test_faults_stand_in_the_text() -> None:
    """All of them in every run, of which another test tries a part."""
    source = lowered(product(32, 48, (True, False), **SPLIT), {}).source
    assert [name for name, (old, _) in FAULTS.items() if old not in source] == []


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", list(FAULTS))
def test_an_injected_fault_is_found(name: str, tmp_path: Path) -> None:
    text = product(32, 48, (True, False), **SPLIT)
    check_fault(text, {"M": 33, "N": 50, "K": 170}, *FAULTS[name], "", tmp_path)
