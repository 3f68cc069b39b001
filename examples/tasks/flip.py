"""Rows from their last element to their first."""

import torch
from torch import nn

rows = 2000
columns = 3000


class Model(nn.Module):
    """y[i, j] = x[i, -1 - j]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.flip(x, [1])


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return []
