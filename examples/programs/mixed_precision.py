"""The task of mixed_precision.sketch: what the program means, in PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Two scaled activations, the first of them computed in f32."""

    def forward(self, x: torch.Tensor, wide_gain: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        wide = F.leaky_relu(x.float() * wide_gain, 0.25).clamp(max=1000)
        return F.leaky_relu(wide.half() * gain, 0.125).clamp(max=1000)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(20, 150).half(), torch.randn(150), torch.randn(150).half()]


def get_init_inputs() -> list[int]:
    return []
