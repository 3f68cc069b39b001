"""Two matrices side by side."""

import torch
from torch import nn

rows = 2000
columns = 700


class Model(nn.Module):
    """[a b]."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a, b], dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randn(rows, columns + 99)]


def get_init_inputs() -> list[object]:
    return []
