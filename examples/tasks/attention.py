"""Scaled dot-product attention over heads."""

import math

import torch
from torch import nn

batch = 2
heads = 8
queries = 512
keys = 512
width = 64


class Model(nn.Module):
    """softmax(Q Kᵀ / sqrt(width)) V, for every batch and head."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return torch.softmax(scores, dim=-1) @ v


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(batch, heads, queries, width),
        torch.randn(batch, heads, keys, width),
        torch.randn(batch, heads, keys, width),
    ]


def get_init_inputs() -> list[object]:
    return []
