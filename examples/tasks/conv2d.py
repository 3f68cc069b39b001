"""Convolution in two dimensions, with all its settings."""

import torch
from torch import nn

batch_size = 8
channels = 32
size = 28
out_channels = 48
groups = 2


class Model(nn.Module):
    """y = conv(x, weight) + bias."""

    def __init__(self, stride: int, padding: int, dilation: int, groups: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return nn.functional.conv2d(
            x, weight, bias, self.stride, self.padding, self.dilation, self.groups
        )


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(batch_size, channels, size, size + 3),
        torch.randn(out_channels, channels // groups, 3, 5),
        torch.randn(out_channels),
    ]


def get_init_inputs() -> list[int]:
    return [2, 1, 2, groups]
