"""Triplet margin loss."""

import torch
from torch import nn

rows = 4000
columns = 300


class Model(nn.Module):
    """mean of max(|a - p| - |a - n| + margin, 0)."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin
        self.eps = 1e-6

    def forward(
        self, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
    ) -> torch.Tensor:
        return nn.functional.triplet_margin_loss(
            anchor, positive, negative, self.margin, eps=self.eps
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns) for _ in range(3)]


def get_init_inputs() -> list[float]:
    return [0.7]
