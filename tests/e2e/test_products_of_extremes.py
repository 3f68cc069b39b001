"""Products whose factors leave a type's range where the whole does not: running and whole ones, on
every target, whatever the order in which lanes are multiplied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sketchc.lowering.registry import all_targets

from every_target import agreement, disagreements  # isort: skip

RUNNING = """sketch running {
    symbols: M, N <= 64;
    tensors: A[M, N]: in f32; ON[M, N]: out f32; BACK[M, N]: out f32; DOWN[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 4)):
        a = alloc([4, N])
        t = alloc([4, N])
        load(A[i*4:i*4+4, 0:N] -> a, pad=1)
        cumprod(a, 1, t)
        store(t -> ON[i*4:i*4+4, 0:N])
        cumprod(a, 1, t, reverse=True)
        store(t -> BACK[i*4:i*4+4, 0:N])
        cumprod(a, 0, t)
        store(t -> DOWN[i*4:i*4+4, 0:N])
}
"""
WHOLE = """sketch whole {
    symbols: M, N <= 64;
    tensors: A[M, N]: in f32; ROWS[M]: out f32; COLUMNS[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        a = alloc([1, N])
        load(A[i:i+1, 0:N] -> a)
        row = alloc([1])
        reduce_prod(a, 1, row)
        store(row -> ROWS[i:i+1])
        column = alloc([N])
        reduce_prod(a, 0, column)
        store(column -> COLUMNS[i, 0:N])
}
"""
SIZES = [(1, 1), (3, 31), (5, 32), (4, 33), (9, 64)]


def factors(rows: int, columns: int, largest: float) -> np.ndarray:
    """Numbers of both signs and of up to 10**`largest`, among them zeros, and infinities where no
    zero is; powers of ten of a row add up to little, in some rows one after the other, in others
    only after many of one sign."""
    rng = np.random.default_rng(rows * columns)
    powers = rng.uniform(-largest, largest, (rows, columns))
    powers -= powers.mean(axis=1, keepdims=True)
    powers[::2] = np.sort(powers[::2], axis=1) / np.sqrt(columns)
    numbers = rng.choice([-1.0, 1.0], powers.shape) * 10.0**powers
    if rows > 3:
        numbers[1, columns // 2] = 0
        numbers[3, columns // 2] = np.inf
    return numbers.astype(np.float32)


@pytest.mark.parametrize("target", [target.name for target in all_targets()])
@pytest.mark.parametrize(("text", "name"), [(RUNNING, "running"), (WHOLE, "whole")])
def test_products_are_those_of_f64(target: str, text: str, name: str, tmp_path: Path) -> None:
    runs = [({"M": m, "N": n}, {"A": factors(m, n, largest=30)}) for m, n in SIZES]
    wrong = disagreements(
        target, {name: (text, runs)}, tmp_path, lambda case, found: agreement(case, found, terms=64)
    )
    assert not wrong
