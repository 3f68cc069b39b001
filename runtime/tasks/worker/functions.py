"""Formulas for PyTorch functions that look at values, or whose operations no sketch has.

A function that looks at values (`gaussian_nll_loss` at the least variance, `cov` at the number of
observations) cannot be traced on tensors without data; others become operations that a sketch has
no form for. They are replaced before PyTorch takes them apart. Calls that a formula does not cover
(it returns NotImplemented) are left to PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sketchc.runtime.tasks.worker.attention import attention, attention_layer
from sketchc.runtime.tasks.worker.recurrent import LAYERS

Tensor = torch.Tensor
Function: TypeAlias = Callable[..., Any]
#: PyTorch's name for rounding a quotient down.
_DOWN = "floor"


class Formulas(TorchFunctionMode):
    """Replaces calls, made within, of functions in a table by their formulas."""

    def __init__(self, table: Mapping[Function, Function]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(
        self,
        func: Function,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The function's result."""
        formula = self.table.get(func)
        if formula is not None:
            found = formula(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        return func(*args, **(kwargs or {}))


@cache
def table() -> dict[Function, Function]:
    """The formulas by function."""
    return {
        **LAYERS,
        F.scaled_dot_product_attention: attention,
        F.multi_head_attention_forward: attention_layer,
        F.gaussian_nll_loss: gaussian_nll_loss,
        F.embedding_bag: embedding_bag,
        torch.bilinear: bilinear,
        **dict.fromkeys((F.pad, torch._C._nn.pad), padded),
        **dict.fromkeys((torch.div, Tensor.div, torch.divide, Tensor.divide), floored),
        **dict.fromkeys((torch.quantile, Tensor.quantile), quantile),
        **dict.fromkeys((torch.cov, Tensor.cov), covariance),
        **dict.fromkeys((torch.corrcoef, Tensor.corrcoef), correlation),
    }


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """`gaussian_nll_loss` without the check that variances are not negative."""
    variance = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if variance.shape != input.shape:
        if input.shape[:-1] == variance.shape:
            variance = variance.unsqueeze(-1)
        elif variance.shape != (*input.shape[:-1], 1):
            return NotImplemented
    variance = variance.clamp(min=eps)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


def padded(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Any:
    """`pad` in the mode "circular", in which an axis goes on from its other end."""
    if mode != "circular":
        return NotImplemented
    for place, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = -1 - place
        extent = input.shape[axis]
        if before > extent or behind > extent:
            return NotImplemented
        around = torch.arange(-before, extent + behind) % extent
        input = input.index_select(axis, around)
    return input


def floored(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """`div` of integers with the quotient rounded down."""
    whole = all(
        not value.is_floating_point() if isinstance(value, Tensor) else type(value) is int
        for value in (input, other)
    )
    floors = whole and rounding_mode == _DOWN
    return torch.floor_divide(input, other) if floors else NotImplemented


def _reduced(loss: Tensor, reduction: str) -> Any:
    match reduction:
        case "none":
            return loss
        case "mean":
            return loss.mean()
        case "sum":
            return loss.sum()
        case _:
            return NotImplemented


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """`embedding_bag` of bags of one length each: the rows of each bag, reduced."""
    if input.dim() != 2 or max_norm is not None or padding_idx is not None:
        return NotImplemented
    weights = per_sample_weights
    if weights is not None and mode != "sum":
        return NotImplemented
    rows = F.embedding(input, weight)
    match mode:
        case "sum":
            return (rows if weights is None else rows * weights.unsqueeze(-1)).sum(1)
        case "mean":
            return rows.mean(1)
        case "max":
            return rows.amax(1)
        case _:
            return NotImplemented


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`bilinear` as a matrix product with the first input and a sum with the second."""
    outputs, first, second = weight.shape
    matrix = weight.permute(1, 0, 2).reshape(first, outputs * second)
    rows = (input1.reshape(-1, first) @ matrix).reshape(-1, outputs, second)
    found = (rows * input2.reshape(-1, 1, second)).sum(-1)
    found = found if bias is None else found + bias
    return found.reshape(*input1.shape[:-1], outputs)


def quantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: None = None,
) -> Any:
    """`quantile` for one number `q`, by sorting the elements; NaN where any element is NaN."""
    if isinstance(q, Tensor) or not input.dim() or interpolation not in _PLACES or out is not None:
        return NotImplemented
    source, axis = (input.reshape(-1), 0) if dim is None else (input, dim % input.dim())
    ordered = torch.sort(source, dim=axis, stable=True)[0]
    last = torch.arange(source.shape[axis])[source.shape[axis] - 1]
    rank = last.to(input.dtype) * q

    def at(place: Tensor) -> Tensor:
        shape = [1 if n == axis else extent for n, extent in enumerate(source.shape)]
        return torch.gather(ordered, axis, place.to(torch.int64).expand(shape))

    found = _PLACES[interpolation](at, rank)
    found = torch.where(torch.isnan(source).any(axis, True), torch.nan, found)
    if dim is None:
        return found.reshape([1] * input.dim() if keepdim else [])
    return found if keepdim else found.squeeze(axis)


def _between(at: Callable[[Tensor], Tensor], rank: Tensor) -> Tensor:
    lower = torch.floor(rank)
    return torch.lerp(at(lower), at(torch.ceil(rank)), rank - lower)


#: The value at a fractional rank, by the interpolation's name.
_PLACES: Mapping[str, Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]] = {
    "linear": _between,
    "lower": lambda at, rank: at(torch.floor(rank)),
    "higher": lambda at, rank: at(torch.ceil(rank)),
    "nearest": lambda at, rank: at(torch.round(rank)),
    "midpoint": lambda at, rank: (at(torch.floor(rank)) + at(torch.ceil(rank))) * 0.5,
}


def covariance(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Any:
    """`cov` of rows of observations, each of which counts once."""
    if fweights is not None or aweights is not None or not 0 < input.dim() <= 2:
        return NotImplemented
    if not input.is_floating_point():
        return NotImplemented
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    apart = rows - rows.mean(1, keepdim=True)
    found = apart @ apart.transpose(0, 1) / max(rows.shape[1] - correction, 0)
    return found.squeeze()  # one row has no axes


def correlation(input: Tensor) -> Any:
    """`corrcoef`: covariances over the deviations of both rows, within -1 and 1."""
    together = covariance(input)
    if together is NotImplemented:
        return NotImplemented
    if not together.dim():
        return together / together
    deviation = torch.sqrt(torch.diagonal(together))
    return torch.clamp(together / deviation.unsqueeze(1) / deviation, -1, 1)
