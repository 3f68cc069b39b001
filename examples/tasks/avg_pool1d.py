"""Mean over windows of rows, padding not counted."""

import torch
from torch import nn

batch_size = 8
channels = 16
length = 2000


class Model(nn.Module):
    """mean over windows."""

    def __init__(
        self, kernel_size: int, stride: int, padding: int, count_include_pad: bool
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.count_include_pad = count_include_pad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool1d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            count_include_pad=self.count_include_pad,
        )


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs() -> list[object]:
    return [4, 3, 2, False]
