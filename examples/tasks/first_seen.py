"""The earliest time of each user's events."""

import torch
from torch import nn

events = 100000
users = 300
never = 2**31 - 1


class Model(nn.Module):
    """first[u] = min of first[u] and of time[n] over the events n of user u."""

    def forward(self, time: torch.Tensor, user: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return first.scatter_reduce(0, user.long(), time, "amin")

    def valid_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Random inputs of any shapes, made such that forward takes them."""
        time, user, first = inputs
        return [time, user % first.shape[0], first]


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randint(1000000, (events,), dtype=torch.int32),
        torch.randint(users, (events,), dtype=torch.int32),
        torch.full((users,), never, dtype=torch.int32),
    ]


def get_init_inputs() -> list[object]:
    return []
