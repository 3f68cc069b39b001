"""Depthwise convolution: one kernel for each channel."""

import torch
from torch import nn

batch_size = 8
channels = 64
size = 56


class Model(nn.Module):
    """y[:, c] = conv(x[:, c], weight[c])."""

    def __init__(self, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = padding
        self.dilation = dilation

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(
            x, weight, None, self.stride, self.padding, self.dilation, groups=x.shape[1]
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, size, size + 3), torch.randn(channels, 1, 3, 5)]


def get_init_inputs() -> list[int]:
    return [2, 1, 1]
