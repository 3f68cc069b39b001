"""Products whose factors leave a type's range where the whole does not: running and whole ones, on
every target, whatever the order in which lanes are multiplied."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sketchc  # noqa: E402
from sketchc.agents.autosketch.designer import has_f64  # noqa: E402
from sketchc.lowering.registry import built_in_targets  # noqa: E402

from every_target import agreement, disagreements  # noqa: E402 isort: skip

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
    return signed(rng, powers)


def waves(rows: int, columns: int) -> np.ndarray:
    """As `factors`; along a row, running products reach 1e200 and then 1e-200, or the other way
    round: what lies between the two leaves the range of f64."""
    reached = 200.0 * np.sin(np.linspace(0.0, 2 * np.pi, columns + 1))
    powers = np.diff(reached) * (-1.0) ** np.arange(rows)[:, None]
    return signed(np.random.default_rng(rows * columns), powers)


def signed(rng: np.random.Generator, powers: np.ndarray) -> np.ndarray:
    """Powers of ten with signs; among many of them a zero and an infinity."""
    rows, columns = powers.shape
    numbers = rng.choice([-1.0, 1.0], powers.shape) * 10.0**powers
    if rows > 3:
        numbers[1, columns // 2] = 0
        numbers[3, columns // 2] = np.inf
    return numbers


@pytest.mark.parametrize("target", [target.name for target in built_in_targets()])
@pytest.mark.parametrize(("text", "name"), [(RUNNING, "running"), (WHOLE, "whole")])
def test_products_are_those_of_f64(target: str, text: str, name: str, tmp_path: Path) -> None:
    runs = [
        ({"M": m, "N": n}, {"A": factors(m, n, largest=30).astype(np.float32)}) for m, n in SIZES
    ]
    wrong = disagreements(
        target, {name: (text, runs)}, tmp_path, lambda case, found: agreement(case, found, terms=64)
    )
    assert not wrong


@pytest.mark.parametrize("target", [t.name for t in built_in_targets() if has_f64(t.name)])
@pytest.mark.parametrize(("text", "name"), [(RUNNING, "running"), (WHOLE, "whole")])
def test_products_of_f64(target: str, text: str, name: str, tmp_path: Path) -> None:
    wide = re.sub(
        r"f32|(?<=alloc)\((\[.*\])\)", lambda m: f"({m[1]}, f64)" if m[1] else "f64", text
    )
    runs = [({"M": m, "N": n}, {"A": waves(m, n)}) for m, n in SIZES]
    wrong = disagreements(
        target, {name: (wide, runs)}, tmp_path, lambda case, found: agreement(case, found, terms=64)
    )
    assert not wrong


@pytest.mark.parametrize("dim", [0, 1])
def test_what_leaves_the_range_comes_back(dim: int) -> None:
    """As in PyTorch, whose running products of f32 are carried in f64: from tile to tile, too."""
    running = sketchc.compile(
        lambda x: torch.cumprod(x, dim), target="cpp", inputs=[torch.rand(70, 90)]
    )
    x = torch.ones(5, 9000)
    x[:, 900:920], x[:, 8100:8120] = 1e5, 1e-5
    x[1, 8500], x[2, 1000] = 0.0, -1.0
    x = x if dim else x.T.contiguous()
    expected = torch.cumprod(x, dim)
    assert bool(expected.isinf().any())
    torch.testing.assert_close(running(x), expected, rtol=1e-5, atol=0.0)


def test_rows_of_many_terms_are_added_up_as_exactly_as_by_pytorch() -> None:
    """Of nearly equal terms, a norm shows what their sum lost."""
    x = torch.cat((torch.full((2, 1 << 20), 0.9), torch.full((2, 1 << 20), 1.1)), dim=1)
    norm = sketchc.compile(lambda x: x - x.mean(1, keepdim=True), target="cpp", inputs=[x])
    exact = (x.double() - x.double().mean(1, keepdim=True)).float()
    torch.testing.assert_close(norm(x), exact, rtol=2e-6, atol=0.0)


@pytest.mark.sweep
def test_columns_of_many_terms_are_added_up_as_exactly_as_by_pytorch() -> None:
    """Terms of a column are added one after the other; a mean that is asked for is not that of
    differences to a first term which is much larger."""
    x = torch.randn(3000, 33, generator=torch.Generator().manual_seed(4))
    x[0] = 40.0
    centred = sketchc.compile(lambda x: (x - x.mean(0), x.mean(0)), target="cpp", inputs=[x])
    rest, mean = centred(x)
    exact = x.double().mean(0)
    torch.testing.assert_close(mean, exact.float(), rtol=2e-6, atol=2e-7)
    # The differences' mean, -40 or so, has one rounding.
    torch.testing.assert_close(rest, (x - exact).float(), rtol=2e-6, atol=4e-6)

    long = torch.full((16_000, 33), 0.9)
    total = sketchc.compile(lambda x: x.sum(0), target="cpp", inputs=[long])
    torch.testing.assert_close(total(long), long.double().sum(0).float(), rtol=1e-6, atol=0.0)


def test_what_is_left_of_elu_below_zero_keeps_its_digits() -> None:
    """Of elu(x) + 1, the feature map of linear attention, nothing but exp(x) is left there."""
    x = torch.linspace(-60.0, 3.0, 999)
    kernel = sketchc.compile(lambda x: torch.nn.functional.elu(x) + 1, target="cpp", inputs=[x])
    exact = torch.where(x > 0, x.double() + 1, x.double().exp())
    torch.testing.assert_close(kernel(x), exact.float(), rtol=3e-7, atol=0.0)
