"""Transposed convolution in two dimensions."""

import torch
from torch import nn

batch_size = 8
channels = 32
size = 14
out_channels = 24


class Model(nn.Module):
    """Every input pixel spreads over a window of the output."""

    def __init__(self, stride: int, padding: int, output_padding: int, dilation: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = padding
        self.output_padding = output_padding
        self.dilation = dilation

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv_transpose2d(
            x,
            weight,
            None,
            self.stride,
            self.padding,
            self.output_padding,
            dilation=self.dilation,
        )


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(batch_size, channels, size, size + 3),
        torch.randn(channels, out_channels, 3, 4),
    ]


def get_init_inputs() -> list[int]:
    return [2, 1, 1, 1]
