"""The task of residual_mlp.sketch: what the program means, in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Residual layers between two linear ones."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.w_in = nn.Parameter(torch.randn(hidden, width) / width**0.5)
        self.b_in = nn.Parameter(torch.randn(hidden))
        self.ws = nn.Parameter(torch.randn(depth, hidden, hidden) / hidden**0.5)
        self.gains = nn.Parameter(torch.rand(depth, hidden) + 0.5)
        self.w_out = nn.Parameter(torch.randn(width, hidden) / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.leaky_relu(F.linear(x, self.w_in, self.b_in), 0.1)
        for weight, gain in zip(self.ws, self.gains, strict=True):
            scale = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6)
            hidden = hidden + F.linear(hidden * scale * gain, weight)
        return F.linear(hidden, self.w_out) + x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(20, 40)]


def get_init_inputs() -> list[int]:
    return [40, 50, 3]
