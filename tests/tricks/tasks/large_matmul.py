"""A product of large matrices."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1024, 600), torch.randn(600, 1400)]


def get_init_inputs() -> list[object]:
    return []
