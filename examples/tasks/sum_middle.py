"""Sum over the middle axis of a three-dimensional tensor."""

import torch
from torch import nn

batch_size = 16
rows = 1024
columns = 1536


class Model(nn.Module):
    """x[B, M, N] summed over M gives y[B, N]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, rows, columns)]


def get_init_inputs() -> list[object]:
    return []
