"""The selected elements, moved to the front, zeros behind, and how many they are."""

import torch
from torch import nn

elements = 1000003


class Model(nn.Module):
    """x[mask], padded with zeros to the length of x, and its length."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = x[mask]
        return torch.cat([chosen, x.new_zeros(x.numel() - chosen.numel())]), mask.sum()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(elements), torch.rand(elements) < 0.4]


def get_init_inputs() -> list[object]:
    return []
