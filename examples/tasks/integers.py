"""Pairs of integers: one divided, both compared, and the bits of the smaller one flipped."""

import torch
from torch import nn

pairs = 100003


class Model(nn.Module):
    """Division rounds down, so that no remainder is negative."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        smaller = torch.minimum(a, b)
        return (
            torch.div(a, self.step, rounding_mode="floor"),
            torch.remainder(a, self.step),
            smaller,
            torch.bitwise_not(smaller),
            torch.eq(a, b),
            torch.ne(a, b),
            torch.lt(a, b),
            torch.le(a, b),
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(-50, 50, (pairs,), dtype=torch.int32) for _ in range(2)]


def get_init_inputs() -> list[object]:
    return [12]
