"""Formulas of PyTorch's attention, in which the Designer finds the form that keeps scores out of
memory: two products, and between them a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
#: PyTorch's own functions, while a formula stands in their place.
_ATTENTION = F.scaled_dot_product_attention
_LAYER = F.multi_head_attention_forward


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention`. Of half floats, scores and their softmax are in f32."""
    if dropout_p or (is_causal and attn_mask is not None) or not query.is_floating_point():
        return NotImplemented
    if enable_gqa:
        key, value = (_for_heads(each, query) for each in (key, value))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    if query.dtype in (torch.float32, torch.float64):
        # Queries are scaled, not scores: a score may overflow where a scaled one does not.
        scores = (query * factor) @ key.transpose(-2, -1)
    else:
        scores = (query.float() @ key.transpose(-2, -1).float()) * factor
    if is_causal:
        row, column = torch.arange(query.shape[-2]), torch.arange(key.shape[-2])
        scores = torch.where(row[:, None] >= column, scores, -torch.inf)
    if attn_mask is None:
        weights = torch.softmax(scores, -1)
    elif attn_mask.dtype == torch.bool:
        weights = _of_the_seen(torch.where(attn_mask, scores, -torch.inf))
    else:
        weights = _of_the_seen(scores + attn_mask.to(scores.dtype))
    return weights.to(value.dtype) @ value


def _for_heads(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values with as many heads as queries have: each is that of several."""
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _of_the_seen(scores: Tensor) -> Tensor:
    """The softmax of each row; 0 in rows that a mask hides whole, where a softmax is NaN."""
    largest = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - torch.where(largest == -torch.inf, 0.0, largest))
    total = powers.sum(-1, keepdim=True)
    return powers / torch.where(total == 0, 1.0, total)


def attention_layer(*arguments: Any, **named: Any) -> Any:
    """`multi_head_attention_forward`, in which `attention` is the attention; calls that a function
    of PyTorch makes itself are not replaced otherwise."""
    with _in_place(_either):
        return _LAYER(*arguments, **named)


def _either(*arguments: Any, **named: Any) -> Any:
    found = attention(*arguments, **named)
    return _ATTENTION(*arguments, **named) if found is NotImplemented else found


@contextmanager
def _in_place(function: Any) -> Iterator[None]:
    F.scaled_dot_product_attention = function
    try:
        yield
    finally:
        F.scaled_dot_product_attention = _ATTENTION
