"""Interleaved samples of 16 bits, as a plane of floats for each channel."""

import torch
from torch import nn

samples = 500001
channels = 2


class Model(nn.Module):
    """samples * gain / 32768, clipped to [-1, 1] and transposed."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return torch.clamp(samples.T.float() * (self.gain / 32768), -1.0, 1.0).contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(-32768, 32768, (samples, channels), dtype=torch.int16)]


def get_init_inputs() -> list[object]:
    return [1.5]
