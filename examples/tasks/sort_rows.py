"""Rows in descending order, and where each element came from."""

import torch
from torch import nn

rows = 500
columns = 1000


class Model(nn.Module):
    """A stable descending sort of every row."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(x, dim=1, descending=True, stable=True)
        return values, places


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return []
