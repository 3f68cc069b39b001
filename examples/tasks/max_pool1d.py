"""Maximum over windows, in one dimension."""

import torch
from torch import nn

batch_size = 8
channels = 16
size = 48


class Model(nn.Module):
    """max over windows; what lies outside counts as -inf."""

    def __init__(self, kernel_size: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool1d(
            x, self.kernel_size, self.stride, self.padding, self.dilation
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, size * size)]


def get_init_inputs() -> list[int]:
    return [3, 2, 1, 1]
