"""Mean over windows of volumes, padding counted as zeros."""

import torch
from torch import nn

batch_size = 8
channels = 16
size = 24


class Model(nn.Module):
    """mean over windows."""

    def __init__(self, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool3d(x, self.kernel_size, self.stride, self.padding)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, 9, size, size + 5)]


def get_init_inputs() -> list[int]:
    return [3, 2, 1]
