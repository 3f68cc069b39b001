"""A 1x1 convolution whose result has the channels last."""

import torch
from torch import nn

batch_size = 4
channels = 48
outputs = 100
height = 30
width = 41


class Model(nn.Module):
    """y[b, h, w, o] = sum over c of x[b, c, h, w] * weight[o, c]."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, weight).permute(0, 2, 3, 1).contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, height, width), torch.randn(outputs, channels, 1, 1)]


def get_init_inputs() -> list[object]:
    return []
