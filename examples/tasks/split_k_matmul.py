"""A matrix product with a long inner axis."""

import torch
from torch import nn

rows = 100
columns = 120
inner = 20000


class Model(nn.Module):
    """a @ b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, inner), torch.randn(inner, columns)]


def get_init_inputs() -> list[object]:
    return []
