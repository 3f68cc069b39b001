"""Rows added to the rows that an index names."""

import torch
from torch import nn

targets = 300
rows = 5000
columns = 200


class Model(nn.Module):
    """total[index[n]] += src[n], for all n."""

    def forward(self, total: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        return torch.index_add(total, 0, index, src)

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        total, index, src = inputs
        return [total, index % total.shape[0], src]


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(targets, columns),
        torch.randint(targets, (rows,)),
        torch.randn(rows, columns),
    ]


def get_init_inputs() -> list[object]:
    return []
