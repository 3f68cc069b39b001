"""Channels become pixels: twice the rows, twice the columns."""

import torch
from torch import nn

batch_size = 8
channels = 32
size = 40


class Model(nn.Module):
    """torch.nn.PixelShuffle(2)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pixel_shuffle(x, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, size, size + 3)]


def get_init_inputs() -> list[object]:
    return []
