"""A bias and the rectified linear unit."""

import torch
from torch import nn

rows = 4096
columns = 1000


class Model(nn.Module):
    """relu(x + bias)."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs() -> list[object]:
    return []
