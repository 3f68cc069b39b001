"""CUDA-C: several products to which one loop adds equal the interpreter, and their sums stay in
registers, unless one of them needs what another one writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import agreement, disagreements
from triton_cases import dtype_of, lower

from sketchc.base.types import DType

SIZES = [
    {"M": 1, "N": 1, "K": 1},
    {"M": 31, "N": 33, "K": 17},
    {"M": 32, "N": 32, "K": 16},
    {"M": 37, "N": 64, "K": 53},
]


def products(name: str, dtype: str, second: str = "two", more: str = "") -> str:
    """Two products with one left operand; `second`: where the sums of the second one are, `more`: a
    further statement of the loop."""
    last = "mul(one, two, one)" if second == "two" else ""
    return f"""sketch {name} {{
        symbols: M, N, K;
        tensors: X[M, K]: in {dtype}; V[N, K]: in {dtype}; W[K, N]: in {dtype}; Y[M, N]: out f32;
        @llm_hint("parallel", "grididx")
        for i in range(ceil(M, 32)):
            @llm_hint("parallel", "grididx")
            for j in range(ceil(N, 32)):
                one = alloc([32, 32], f32, init=0)
                {"two = alloc([32, 32], f32, init=0)" if last else ""}
                for k in range(ceil(K, 16)):
                    x = alloc([32, 16], {dtype})
                    v = alloc([32, 16], {dtype})
                    w = alloc([16, 32], {dtype})
                    load(X[i*32:(i+1)*32, k*16:(k+1)*16] -> x)
                    load(V[j*32:(j+1)*32, k*16:(k+1)*16] -> v)
                    load(W[k*16:(k+1)*16, j*32:(j+1)*32] -> w)
                    gemm(x, v, one, trans_b=True)
                    gemm(x, w, {second})
                    {more}
                silu(one, one)
                {last}
                store(one -> Y[i*32:(i+1)*32, j*32:(j+1)*32])
    }}"""


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_products_of_one_loop(dtype: str, tmp_path: Path) -> None:
    sketches = {}
    texts = [
        products("apart", dtype),
        products("together", dtype, second="one"),
        products("beside", dtype, more="mul(x, 2.0, x)"),
    ]
    for text in texts:
        runs = []
        for seed, sizes in enumerate(SIZES):
            generator = np.random.default_rng(seed)
            m, n, k = sizes.values()
            shapes = {"X": (m, k), "V": (n, k), "W": (k, n)}
            given = {
                name: (generator.standard_normal(shape) * 2.0 ** generator.integers(-3, 3, shape))
                for name, shape in shapes.items()
            }
            kind = dtype_of(DType(dtype))
            runs.append((sizes, {name: array.astype(kind) for name, array in given.items()}))
        sketches[text.split()[1]] = text, runs
    assert disagreements("cuda_c", sketches, tmp_path, lambda c, f: agreement(c, f, 128)) == []


def test_sums_begin_in_registers_where_products_are_apart() -> None:
    """A loop of its own for each product; where they add to the same sums, one loop for both."""
    apart = lower(products("apart", "bf16"), "cuda_c")[1].source
    together = lower(products("together", "bf16", second="one"), "cuda_c")[1].source
    assert apart.count("sums_in<float, true>") == 2
    assert together.count("sums_in<float, true>") == 0
