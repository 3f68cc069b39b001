"""One matrix product for every entry of a batch."""

import torch
from torch import nn

batch_size = 16
rows = 384
columns = 384
inner = 384


class Model(nn.Module):
    """x[B, M, K] @ w[B, K, N]."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, w)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, rows, inner), torch.randn(batch_size, inner, columns)]


def get_init_inputs() -> list[object]:
    return []
