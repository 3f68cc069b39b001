"""Rows stretched by a factor, zeros in between."""

import torch
from torch import nn

rows = 2000
columns = 1000


class Model(nn.Module):
    """y[:, ::factor] = x."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.new_zeros(x.shape[0], x.shape[1] * self.factor)
        y[:, :: self.factor] = x
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[int]:
    return [3]
