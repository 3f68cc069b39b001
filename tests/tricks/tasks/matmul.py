"""A product of matrices."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(20, 96), torch.randn(96, 24)]


def get_init_inputs() -> list[object]:
    return []
