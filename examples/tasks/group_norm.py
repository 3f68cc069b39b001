"""Group normalisation of images, with weight and bias."""

import torch
from torch import nn

batch_size = 8
channels = 32
size = 28
groups = 4


class Model(nn.Module):
    """Every group of channels of every image is normalised."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.eps = 1e-5

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.group_norm(x, self.groups, weight, bias, self.eps)


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(batch_size, channels, size, size + 1),
        torch.randn(channels),
        torch.randn(channels),
    ]


def get_init_inputs() -> list[int]:
    return [groups]
