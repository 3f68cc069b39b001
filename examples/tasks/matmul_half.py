"""A matrix product in half precision."""

import torch
from torch import nn

rows = 1024
columns = 1024
inner = 1024


class Model(nn.Module):
    """a[M, K] @ b[K, N]."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(rows, inner, dtype=torch.float16),
        torch.randn(inner, columns, dtype=torch.float16),
    ]


def get_init_inputs() -> list[object]:
    return []
