"""The angle between points on a sphere, given by their latitudes and longitudes."""

import torch
from torch import nn

points = 100001


class Model(nn.Module):
    """Vincenty's formula for a sphere."""

    def forward(
        self, lat1: torch.Tensor, lon1: torch.Tensor, lat2: torch.Tensor, lon2: torch.Tensor
    ) -> torch.Tensor:
        turn = lon2 - lon1
        east = lat2.cos() * turn.sin()
        north = lat1.cos() * lat2.sin() - lat1.sin() * lat2.cos() * turn.cos()
        along = lat1.sin() * lat2.sin() + lat1.cos() * lat2.cos() * turn.cos()
        return torch.atan2(torch.sqrt(east * east + north * north), along)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(points, dtype=torch.float64) for _ in range(4)]


def get_init_inputs() -> list[object]:
    return []
