"""Retention: causal attention without a softmax, whose weights fade with distance."""

import torch
from torch import nn

heads = 16
positions = 500
width = 64


class Model(nn.Module):
    """y[n] = sum over m <= n of gamma**(n - m) * (q[n] . k[m]) * v[m], in every head."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gamma: torch.Tensor
    ) -> torch.Tensor:
        place = torch.arange(q.shape[1], device=q.device)
        back = place[:, None] - place[None, :]
        fade = gamma[:, None, None] ** back.clamp(min=0) * (back >= 0)
        return (q @ k.transpose(1, 2) * fade) @ v

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Older keys count for less, none for nothing."""
        q, k, v, gamma = inputs
        return [q, k, v, 1 - 0.3 * torch.sigmoid(gamma)]


def get_inputs() -> list[torch.Tensor]:
    q, k, v = torch.randn(3, heads, positions, width)
    return [q, k, v, 1 - 2.0 ** (-5 - torch.arange(heads) % 8)]


def get_init_inputs() -> list[object]:
    return []
