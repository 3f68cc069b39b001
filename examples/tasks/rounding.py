"""Numbers rounded in four ways, their fractions and signs."""

import torch
from torch import nn

elements = 100003


class Model(nn.Module):
    """floor, ceil, round (ties to even), trunc, frac, sign."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.floor(x),
            torch.ceil(x),
            torch.round(x),
            torch.trunc(x),
            torch.frac(x),
            torch.sign(x),
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.round(100 * torch.randn(elements)) / 4]


def get_init_inputs() -> list[object]:
    return []
