"""What operations of tasks are taken apart into is what they compute, on all kinds of numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from sketchc.runtime.tasks.worker.formulas import table  # noqa: E402

TABLE = table()
ATEN = torch.ops.aten
ENDS = [0.0, 0.5, 1.0, 2.0, 1e-30, 1e-5, 9e8, 1.1e9, 1e20, 1e200, float("inf")]
NUMBERS = torch.tensor([*ENDS, *(-end for end in ENDS), float("nan")], dtype=torch.float64)


def numbers() -> torch.Tensor:
    drawn = torch.randn(200, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return torch.cat([NUMBERS, drawn, drawn * 30])


@pytest.mark.parametrize("name", ["sinh", "cosh", "asinh", "acosh", "atanh"])
def test_functions_of_one_number(name: str) -> None:
    operation = getattr(ATEN, name).default
    x = numbers()
    torch.testing.assert_close(
        TABLE[operation](x), operation(x), rtol=1e-13, atol=1e-15, equal_nan=True
    )


def test_the_length_of_two_sides() -> None:
    x, y = torch.meshgrid(numbers(), NUMBERS, indexing="ij")
    operation = ATEN.hypot.default
    # C's hypot(inf, nan) is inf; vectorised PyTorch does not agree with itself there.
    known = ~(x.isnan() & y.isinf() | x.isinf() & y.isnan())
    found, expected = TABLE[operation](x, y), operation(x, y)
    torch.testing.assert_close(found[known], expected[known], rtol=1e-13, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("k", "dim"), [(1, 0), (3, 1), (7, -1)])
def test_the_kth_least(k: int, dim: int, keepdim: bool) -> None:
    x = torch.randn(9, 7, generator=torch.Generator().manual_seed(5))
    operation = ATEN.kthvalue.default
    for found, expected in zip(
        TABLE[operation](x, k, dim, keepdim), operation(x, k, dim, keepdim), strict=True
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_the_median(dim: int, keepdim: bool) -> None:
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(5))
    x[2, 3] = x[4, 3] = torch.nan
    for values in (x, (x.nan_to_num() * 9).to(torch.int32)):
        operation = ATEN.median.dim
        found, expected = (each(values, dim, keepdim) for each in (TABLE[operation], operation))
        torch.testing.assert_close(found[0], expected[0], rtol=0.0, atol=0.0, equal_nan=True)
        # Of equal ones PyTorch takes any.
        places = found[1] if keepdim else found[1].unsqueeze(dim)
        taken = values.gather(dim, places)
        taken = taken if keepdim else taken.squeeze(dim)
        torch.testing.assert_close(taken, expected[0], rtol=0.0, atol=0.0, equal_nan=True)
        everything = ATEN.median.default
        assert torch.equal(TABLE[everything](values.nan_to_num()), everything(values.nan_to_num()))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, torch.inf])
def test_distances(p: float) -> None:
    x, y = torch.randn(2, 7, 5, dtype=torch.float64), torch.randn(2, 9, 5, dtype=torch.float64)
    operation = ATEN._cdist_forward.default
    torch.testing.assert_close(TABLE[operation](x, y, p, None), operation(x, y, p, None))


@pytest.mark.parametrize("name", ["digamma", "erfc", "erfinv"])
def test_functions_to_single_precision(name: str) -> None:
    operation = getattr(ATEN, name).default
    x = torch.cat([numbers(), numbers() * 0.03, torch.arange(-4.0, 12.0)]).float()
    # Beside a pole the place itself is rounded.
    x = x[(x > 0) | ((x - x.round()).abs() > 1e-3) | (x == x.round())]
    found, expected = TABLE[operation](x), operation(x.double()).float()
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6, equal_nan=True)
    assert TABLE[operation](x.double()) is NotImplemented


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_extremes_so_far(dim: int) -> None:
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(5)).round(decimals=1)
    x[2, 3] = x[4, 3] = torch.nan
    x[5] = -torch.inf
    for values in (x, (x.nan_to_num() * 9).to(torch.int32)):
        for operation in (ATEN.cummax.default, ATEN.cummin.default):
            for found, expected in zip(
                TABLE[operation](values, dim), operation(values, dim), strict=True
            ):
                assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("dim", [0, 1])
def test_log_sums_so_far(dim: int) -> None:
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 300
    x[5] = -torch.inf
    operation = ATEN.logcumsumexp.default
    torch.testing.assert_close(TABLE[operation](x, dim), operation(x, dim))


X = torch.arange(60.0).reshape(3, 4, 5)
ONE = torch.tensor(-1)


@pytest.mark.parametrize(
    ("select", "indices"),
    [
        (lambda mask: mask, lambda mask: [mask]),
        (lambda mask: mask[:, 0, 0], lambda mask: [mask[:, 0, 0]]),
        (lambda mask: (slice(None), mask[0]), lambda mask: [None, mask[0]]),
        (lambda mask: (..., mask[0, 0]), lambda mask: [None, None, mask[0, 0]]),
    ],
    ids=["all axes", "the first", "the last two", "the last"],
)
def test_one_number_where_a_mask_says_so(
    select: Callable[[torch.Tensor], object], indices: Callable[[torch.Tensor], object]
) -> None:
    mask = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(7)) > 0.5
    expected = X.clone()
    expected[select(mask)] = -1.0
    assert torch.equal(TABLE[ATEN.index_put.default](X, indices(mask), ONE), expected)


@pytest.mark.parametrize(
    ("indices", "values", "accumulate"),
    [
        ([torch.tensor([0, 2])], ONE, False),
        ([torch.tensor([True, False, True])], ONE, True),
        ([torch.tensor([True, False, True])], torch.zeros(2, 4, 5), False),
        ([torch.tensor([True, False, True]), torch.tensor([0, 1])], ONE, False),
    ],
    ids=["numbers", "added up", "a tensor for each", "two"],
)
def test_other_indices_are_left_as_they_are(
    indices: list[torch.Tensor], values: torch.Tensor, accumulate: bool
) -> None:
    assert TABLE[ATEN.index_put.default](X, indices, values, accumulate) is NotImplemented
