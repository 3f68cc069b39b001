"""Activations of a matrix, element by element."""

import torch
from torch import nn

rows = 1000
columns = 1536


class Model(nn.Module):
    """Ten activations of the same input."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        functional = nn.functional
        return (
            torch.sigmoid(x),
            functional.silu(x),
            functional.gelu(x, approximate="tanh"),
            functional.softplus(x),
            functional.softsign(x),
            functional.hardsigmoid(x),
            functional.hardswish(x),
            functional.elu(x, alpha=0.5),
            functional.selu(x),
            functional.leaky_relu(x, negative_slope=0.2),
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return []
