"""Group normalisation of images, with a scale and a shift for each channel."""

import torch
from torch import nn

batch = 8
channels = 64
groups = 8
height = 96
width = 96


class Model(nn.Module):
    """(x - mean) / sqrt(variance + eps) over each group of channels, times weight, plus bias."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(batch, channels, height, width) + 1.0]


def get_init_inputs() -> list[object]:
    return [channels, groups]
