"""Gradients in bf16, divided by their scale, and which rows of them are finite."""

import torch
from torch import nn

rows = 2000
columns = 1000


class Model(nn.Module):
    """gradient / scale, where all rows may share one scale."""

    def forward(
        self, gradient: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return (gradient / scale).to(gradient.dtype), torch.isfinite(gradient).all(1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns, dtype=torch.bfloat16), torch.full((1, 1), 1024.0)]


def get_init_inputs() -> list[object]:
    return []
