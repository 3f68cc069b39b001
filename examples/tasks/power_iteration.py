"""Powers of a matrix applied to a vector."""

import torch
from torch import nn

size = 600


class Model(nn.Module):
    """v = a v / max |a v|, as often as `steps` says."""

    def forward(self, a: torch.Tensor, v: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        for _ in range(int(steps)):
            v = a @ v
            v = v / torch.clamp(v.abs().max(), min=1e-30)
        return v

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        a, v, steps = inputs
        return [a, v, steps % 5]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(size, size), torch.randn(size), torch.tensor(6)]


def get_init_inputs() -> list[object]:
    return []
