"""RMSNorm over the feature axis (axis 1) of a four-dimensional tensor."""

import torch
from torch import nn

batch_size = 8
features = 64
dim1 = 128
dim2 = 128


class Model(nn.Module):
    """x / sqrt(mean(x * x over the features) + eps)."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt(torch.mean(x * x, dim=1, keepdim=True) + self.eps)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, features, dim1, dim2)]


def get_init_inputs() -> list[float]:
    return [1e-5]
