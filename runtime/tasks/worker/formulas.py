"""Formulas for ATen operations that PyTorch has no decomposition for.

Each is right to the last digits of the result's type, infinities and NaN included, but for sums
near zero, whose error is relative to the terms that cancel (`sinh`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from sketchc.runtime.tasks.worker.resizing import resizing
from sketchc.runtime.tasks.worker.special import special_functions

Tensor = torch.Tensor
_LARGE, _LOG_2 = 1e9, 0.6931471805599453


def table() -> dict[Any, Callable[..., Any]]:
    """The formulas by operation, as `make_fx` takes them."""
    aten = torch.ops.aten
    return {
        aten.sinh.default: lambda x: (torch.exp(x) - torch.exp(-x)) * 0.5,
        aten.cosh.default: lambda x: (torch.exp(x) + torch.exp(-x)) * 0.5,
        aten.asin.default: lambda x: torch.atan2(x, _other_leg(x)),
        aten.acos.default: lambda x: torch.atan2(_other_leg(x), x),
        aten.asinh.default: _asinh,
        aten.acosh.default: _acosh,
        aten.atanh.default: lambda x: torch.log((1 + x) / (1 - x)) * 0.5,
        aten.hypot.default: _hypot,
        aten.cummax.default: partial(_extremes_so_far, sign=1),
        aten.cummin.default: partial(_extremes_so_far, sign=-1),
        aten.logcumsumexp.default: _log_sums_so_far,
        aten.kthvalue.default: _kth_value,
        aten.median.dim: _median,
        aten.median.default: lambda x: _median(x.reshape(-1), 0)[0],
        # For many points PyTorch takes one of these, for few the other.
        aten._euclidean_dist.default: _distances,
        aten._cdist_forward.default: _distances,
        aten.index_put.default: _masked,
        aten.addbmm.default: _sum_of_products,
        aten.unbind.int: _unbound,
        **dict.fromkeys((aten.eye.default, aten.eye.m), _identity),
        **special_functions(),
        **resizing(),
    }


def _other_leg(x: Tensor) -> Tensor:
    """sqrt(1 - x^2), the other leg of a right triangle with a leg x and the hypotenuse 1."""
    # Near -1 and 1, 1 - x^2 has lost digits that its factors have.
    return torch.sqrt((1 - x) * (1 + x))


def _asinh(x: Tensor) -> Tensor:
    size = torch.abs(x)
    # Above `_LARGE`, the square may overflow, and the 1 beside it has no digit left.
    large = size > _LARGE
    within = torch.where(large, 1.0, size)
    near = torch.log(within + torch.sqrt(within * within + 1))
    return torch.sign(x) * torch.where(large, torch.log(size) + _LOG_2, near)


def _acosh(x: Tensor) -> Tensor:
    large = x > _LARGE
    within = torch.where(large, 1.0, x)
    # Two roots, of which one is NaN for every x below 1.
    near = torch.log(within + torch.sqrt(within - 1) * torch.sqrt(within + 1))
    return torch.where(large, torch.log(x) + _LOG_2, near)


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    x, y = torch.abs(x), torch.abs(y)
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = small / large
    scaled = large * torch.sqrt(1 + ratio * ratio)
    found = torch.where(large == 0, large, scaled)
    return torch.where((x == torch.inf) | (y == torch.inf), torch.inf, found)


def _so_far(x: Tensor, dim: int, nothing: float) -> tuple[Tensor, Tensor]:
    """For each element of axis `dim`, moved to the end: the elements up to it along a new last
    axis, and their indices; in place of those behind it are `nothing` and -1."""
    place = torch.arange(x.shape[dim])
    along = x.movedim(dim, -1)
    behind = place > place.unsqueeze(-1)
    seen = torch.where(behind, nothing, along.unsqueeze(-2))
    return seen, torch.where(behind, -1, place).expand(seen.shape)


def _extremes_so_far(x: Tensor, dim: int, *, sign: int) -> Any:
    """`cummax` (`sign` 1) or `cummin` (-1); of equal elements, and of NaN, the last index."""
    if x.dim() == 0 or x.dtype is torch.bool:
        return NotImplemented
    if x.is_floating_point():
        nothing = -sign * math.inf
    else:
        nothing = torch.iinfo(x.dtype).min if sign > 0 else torch.iinfo(x.dtype).max
    seen, places = _so_far(x, dim, nothing)
    best = seen.amax(-1) if sign > 0 else seen.amin(-1)
    found = seen == best.unsqueeze(-1)
    if x.is_floating_point():
        found = found | seen.isnan()
    place = torch.where(found, places, -1).amax(-1)
    return best.movedim(-1, dim), place.movedim(-1, dim)


def _log_sums_so_far(x: Tensor, dim: int) -> Any:
    if x.dim() == 0 or not x.is_floating_point():
        return NotImplemented
    return torch.logsumexp(_so_far(x, dim, -torch.inf)[0], -1).movedim(-1, dim)


def _kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _at(k - 1, dim, keepdim, torch.topk(x, k, dim, largest=False))


def _at(place: int, dim: int, keepdim: bool, found: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The elements at index `place` of axis `dim`, for each tensor of `found`."""
    return tuple(x.narrow(dim, place, 1) if keepdim else x.select(dim, place) for x in found)


def _median(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """`median` along `dim`: the lower one of two middle elements; NaN where any element is NaN."""
    if x.dim() == 0:
        return NotImplemented
    found = _at((x.shape[dim] - 1) // 2, dim, keepdim, torch.sort(x, dim=dim, stable=True))
    if not x.is_floating_point():
        return found
    # The index of a NaN is that of the first one.
    unknown = torch.isnan(x)
    some = unknown.any(dim, keepdim)
    first = unknown.to(torch.int32).argmax(dim, keepdim)
    return torch.where(some, torch.nan, found[0]), torch.where(some, first, found[1])


def _distances(x: Tensor, y: Tensor, p: float = 2.0, mode: int | None = None) -> Any:
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _masked(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    """`index_put` of one number at all that a mask selects; other uses are left to PyTorch."""
    given = [(place, index) for place, index in enumerate(indices) if index is not None]
    if len(given) != 1 or accumulate or values.numel() != 1:
        return NotImplemented
    place, mask = given[0]
    if mask.dtype is not torch.bool:
        return NotImplemented
    behind = x.dim() - place - mask.dim()
    mask = mask.reshape((*mask.shape, *(1,) * behind))
    return torch.where(mask, values.reshape(()).to(x.dtype), x)


def _unbound(x: Tensor, dim: int = 0) -> list[Tensor]:
    return [x.select(dim, place) for place in range(x.shape[dim])]


def _sum_of_products(
    x: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """`addbmm`: the products of a batch added up."""
    found = alpha * torch.bmm(left, right).sum(0)
    return found if beta == 0 else beta * x + found


def _identity(n: int, m: int | None = None, *, dtype: Any = None, **_: Any) -> Tensor:
    """As `eye`; PyTorch's own formula compares in integers of 8 or 16 bits, which may have no type
    in a sketch."""
    row, column = torch.arange(n).unsqueeze(-1), torch.arange(n if m is None else m)
    return (row == column).to(dtype or torch.get_default_dtype())
