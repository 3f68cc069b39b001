"""The largest element of every segment."""

import torch
from torch import nn

elements = 100000
segments = 300


class Model(nn.Module):
    """y[s] = max of x[i] * weight[s] over the elements i of segment s."""

    def forward(self, x: torch.Tensor, segment: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        lowest = torch.full_like(weight, float("-inf"))
        places = segment.long()
        return lowest.scatter_reduce(0, places, x * weight[places], "amax")

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        x, segment, weight = inputs
        return [x, segment % weight.shape[0], weight]


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(elements),
        torch.randint(segments, (elements,), dtype=torch.int32),
        torch.randn(segments),
    ]


def get_init_inputs() -> list[object]:
    return []
