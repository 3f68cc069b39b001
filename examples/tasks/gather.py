"""Elements picked by an index for each place."""

import torch
from torch import nn

rows = 512
columns = 3000
picked = 1000


class Model(nn.Module):
    """y[i, k] = x[i, index[i, k]]."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 1, index)

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        x, index = inputs
        return [x, index % x.shape[1]]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randint(columns, (rows, picked))]


def get_init_inputs() -> list[object]:
    return []
