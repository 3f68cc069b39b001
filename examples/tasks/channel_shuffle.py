"""Channels of several groups, interleaved."""

import torch
from torch import nn

batch_size = 8
channels = 30
size = 40


class Model(nn.Module):
    """torch.nn.ChannelShuffle(groups)."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        return x.reshape(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(x.shape)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, size, size + 3)]


def get_init_inputs() -> list[int]:
    return [3]
