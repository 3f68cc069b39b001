"""Elementary functions, element by element."""

import torch
from torch import nn

points = 100003


class Model(nn.Module):
    """Functions of x, which is an angle among others, and of a positive base."""

    def forward(self, x: torch.Tensor, base: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.exp2(x),
            torch.tan(x),
            torch.atan(x),
            torch.tanh(x),
            torch.erf(x),
            torch.expm1(x),
            torch.log2(base),
            torch.log1p(base),
            torch.pow(base, x),
        )

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Angles stay away from the poles of the tangent; bases are positive."""
        x, base = inputs
        return [1.5 * torch.tanh(x), torch.clamp(base.abs(), 0.01, 100)]


def get_inputs() -> list[torch.Tensor]:
    return [3 * torch.rand(points) - 1.5, 0.1 + 10 * torch.rand(points)]


def get_init_inputs() -> list[object]:
    return []
