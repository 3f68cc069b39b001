"""A matrix plus one bias row, broadcast over the rows."""

import torch
from torch import nn

rows = 4096
columns = 6144


class Model(nn.Module):
    """x[M, N] + bias[N]."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return x + bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs() -> list[object]:
    return []
