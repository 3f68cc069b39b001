"""The product of each row, and which rows have an infinite factor."""

import torch
from torch import nn

rows = 2000
columns = 500


class Model(nn.Module):
    """The product along each row; whether any element of it is infinite."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.prod(1), torch.isinf(x).any(1)

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Factors near 1 or -1, whose products stay in range; some rows have an infinite one."""
        x = inputs[0]
        factors = torch.where(x < 0, -1.0, 1.0) + 0.02 * torch.tanh(x)
        factors[1::3, -1] = torch.inf
        return [factors]


def get_inputs() -> list[torch.Tensor]:
    factors = 1 + 0.02 * torch.randn(rows, columns)
    factors[::100, 7] = -torch.inf
    return [factors]


def get_init_inputs() -> list[object]:
    return []
