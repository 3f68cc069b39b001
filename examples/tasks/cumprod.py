"""Running products along rows."""

import torch
from torch import nn

rows = 512
columns = 1000


class Model(nn.Module):
    """y[i, j] = x[i, 0] * ... * x[i, j]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, dim=1)

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        return [torch.sign(inputs[0]) * torch.clamp(inputs[0].abs(), 0.5, 1.5)]


def get_inputs() -> list[torch.Tensor]:
    return [1 + 0.1 * torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return []
