"""Steps of heat conduction on a plate with cold edges."""

import torch
from torch import nn

rows = 500
columns = 600


class Model(nn.Module):
    """u + rate * (the four neighbours - 4 u), several times."""

    def __init__(self, steps: int, rate: float) -> None:
        super().__init__()
        self.steps = steps
        self.rate = rate

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        for _ in range(self.steps):
            cold = nn.functional.pad(u, (1, 1, 1, 1))
            around = cold[:-2, 1:-1] + cold[2:, 1:-1] + cold[1:-1, :-2] + cold[1:-1, 2:]
            u = u + self.rate * (around - 4 * u)
        return u


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return [5, 0.2]
