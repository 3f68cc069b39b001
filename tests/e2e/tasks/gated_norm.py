"""Root-mean-square normalisation of rows, gated: a small task for runs that tests repeat."""

import torch
from torch import nn

rows = 37
columns = 130


class Model(nn.Module):
    """x / rms(x) * weight * silu(gate), and the rms of every row."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rms = torch.sqrt(x.pow(2).mean(dim=-1) + self.eps)
        y = x / rms[:, None] * self.weight * nn.functional.silu(gate)
        return y, rms


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return [columns]
