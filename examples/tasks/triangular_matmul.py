"""The product of two lower triangular matrices."""

import torch
from torch import nn

size = 700


class Model(nn.Module):
    """tril(a) @ tril(b); what lies above the diagonals does not count."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tril(a) @ torch.tril(b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(size, size), torch.randn(size, size)]


def get_init_inputs() -> list[object]:
    return []
