"""Functions that are replaced by formulas give what PyTorch's own give."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from sketchc.runtime.tasks.worker.functions import (  # noqa: E402
    Formulas,
    attention,
    correlation,
    covariance,
    embedding_bag,
    gaussian_nll_loss,
    quantile,
    table,
)

RANDOM = torch.Generator().manual_seed(3)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM, dtype=torch.float64)


def assert_same(formula: Callable[..., Any], own: Callable[..., Any], *given: Any, **named: Any):
    found, expected = formula(*given, **named), own(*given, **named)
    assert found is not NotImplemented
    torch.testing.assert_close(found, expected, equal_nan=True)
    with Formulas(table()):
        torch.testing.assert_close(own(*given, **named), found, equal_nan=True, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(dim: int | None, interpolation: str, keepdim: bool) -> None:
    x = drawn(7, 9)
    for q in (0.0, 0.1, 0.25, 0.5, 1.0):
        named = {"dim": dim, "keepdim": keepdim, "interpolation": interpolation}
        assert_same(quantile, torch.quantile, x, q, **named)
        assert_same(quantile, torch.Tensor.quantile, x, q, **named)
    x[2, 3] = torch.nan
    assert_same(quantile, torch.quantile, x, 0.3, dim=dim, interpolation=interpolation)


@pytest.mark.parametrize("shape", [(5, 9), (1, 9), (9,)])
def test_covariances(shape: tuple[int, ...]) -> None:
    x = drawn(*shape)
    for correction in (0, 1, 2):
        assert_same(covariance, torch.cov, x, correction=correction)
    assert_same(correlation, torch.corrcoef, x)


@pytest.mark.parametrize(
    ("reduction", "full"), list(itertools.product(("none", "mean", "sum"), (False, True)))
)
def test_gaussian_losses(reduction: str, full: bool) -> None:
    x, y, variance = drawn(5, 9), drawn(5, 9), drawn(5, 9).abs()
    variance[1, 2] = 0.0
    for given in (variance, variance[:, :1], variance[:, 0], 0.5):
        named = {"reduction": reduction, "full": full}
        assert_same(gaussian_nll_loss, F.gaussian_nll_loss, x, y, given, **named)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_length(mode: str) -> None:
    table, places = drawn(10, 3), torch.randint(0, 10, (4, 5), generator=RANDOM)
    assert_same(embedding_bag, F.embedding_bag, places, table, mode=mode)
    if mode == "sum":
        weights = drawn(4, 5)
        assert_same(
            embedding_bag, F.embedding_bag, places, table, mode=mode, per_sample_weights=weights
        )


def test_what_a_formula_has_no_answer_for_is_left_to_torch() -> None:
    x = drawn(4, 6)
    places, starts = torch.tensor([1, 2, 3]), torch.tensor([0, 2])
    weights = torch.tensor([1, 2, 1, 1, 3, 1])
    for formula, own, *given in (
        (quantile, torch.quantile, x, torch.tensor([0.1, 0.5], dtype=x.dtype)),
        (embedding_bag, F.embedding_bag, places, x, starts),
    ):
        assert formula(*given) is NotImplemented
        with Formulas(table()):
            found = own(*given)
        torch.testing.assert_close(found, own(*given))
    assert covariance(x, fweights=weights) is NotImplemented
    mask = torch.ones(4, 4, dtype=torch.bool)
    assert attention(x, x, x, mask, 0.1) is NotImplemented
    assert attention(x, x, x, mask, is_causal=True) is NotImplemented
