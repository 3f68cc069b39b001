"""Mean over windows of images, padding not counted."""

import torch
from torch import nn

batch_size = 8
channels = 16
size = 48


class Model(nn.Module):
    """mean over the part of each window that lies inside."""

    def __init__(self, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(
            x, self.kernel_size, self.stride, self.padding, count_include_pad=False
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, size, size + 5)]


def get_init_inputs() -> list[int]:
    return [3, 2, 1]
