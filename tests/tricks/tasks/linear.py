"""A layer with parameters: x W^T + b."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inner, outer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(6, 24)]


def get_init_inputs() -> list[int]:
    return [24, 10]
