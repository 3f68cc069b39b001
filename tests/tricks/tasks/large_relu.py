"""relu of a large matrix."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2048, 1700)]


def get_init_inputs() -> list[object]:
    return []
