"""Rotary position embedding, with the halves of a head as coordinates."""

import torch
from torch import nn

batch_size = 4
length = 500
heads = 8
width = 128


class Model(nn.Module):
    """x * cos + rotated(x) * sin."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        cos, sin = cos[:, None, :], sin[:, None, :]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(batch_size, length, heads, width),
        torch.randn(length, width // 2),
        torch.randn(length, width // 2),
    ]


def get_init_inputs() -> list[object]:
    return []
