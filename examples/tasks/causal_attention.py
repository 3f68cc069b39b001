"""Causal attention with grouped queries and an additive mask."""

import math

import torch
from torch import nn

batch_size = 2
heads = 8
key_heads = 2
queries = 200
keys = 250
width = 64


class Model(nn.Module):
    """softmax(q k^T / sqrt(width) + mask) v, where query i sees the keys up to its own place."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        shared = q.shape[1] // k.shape[1]
        k = torch.repeat_interleave(k, shared, dim=1)
        v = torch.repeat_interleave(v, shared, dim=1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores + mask
        above = k.shape[2] - q.shape[2] + 1
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(above)
        return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(batch_size, heads, queries, width),
        torch.randn(batch_size, key_heads, keys, width),
        torch.randn(batch_size, key_heads, keys, width),
        torch.randn(queries, keys),
    ]


def get_init_inputs() -> list[object]:
    return []
