"""The Gram matrix of the columns."""

import torch
from torch import nn

rows = 2000
columns = 500


class Model(nn.Module):
    """x.T @ x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x.T, x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return []
