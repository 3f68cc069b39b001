"""How often each value of a range occurs."""

import torch
from torch import nn

elements = 1000000
levels = 100


class Model(nn.Module):
    """counts[k] = number of elements equal to first + k."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        level = x.long() - self.first
        inside = level[(level >= 0) & (level < levels)]
        return torch.bincount(inside, minlength=levels).to(torch.int32)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(-128, 128, (elements,), dtype=torch.int32)]


def get_init_inputs() -> list[object]:
    return [-50]
