"""Rows in descending order, and the rank of each element in its row, 0 for the largest."""

import torch
from torch import nn

rows = 16
columns = 5000


class Model(nn.Module):
    """A stable sort of every row, and the inverse of its permutation."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(x, dim=1, descending=True, stable=True)
        return values, torch.argsort(places, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return []
