"""A linear layer, followed by the Gaussian error linear unit."""

import torch
from torch import nn

rows = 1024
in_features = 768
out_features = 1280


class Model(nn.Module):
    """gelu(x[M, K] @ weight[N, K].T + bias[N])."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, in_features)]


def get_init_inputs() -> list[int]:
    return [in_features, out_features]
