"""How much of each layer of paint shows."""

import torch
from torch import nn

pixels = 3000
layers = 40


class Model(nn.Module):
    """The opacity of a layer times (1 - opacity) of all layers above it."""

    def forward(self, opacity: torch.Tensor) -> torch.Tensor:
        through = torch.cumprod(1 - opacity.flip(1), dim=1).flip(1)
        above = torch.cat([through[:, 1:], torch.ones_like(through[:, :1])], dim=1)
        return opacity * above

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Opacities lie between 0 and 1."""
        return [torch.sigmoid(inputs[0])]


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(pixels, layers)]


def get_init_inputs() -> list[object]:
    return []
