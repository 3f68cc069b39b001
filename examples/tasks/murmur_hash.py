"""MurmurHash3 of keys of four bytes each."""

import torch
from torch import nn

keys = 1000003
low = 0xFFFFFFFF


class Model(nn.Module):
    """The 32-bit hash with seed 0, in i64: a product that overflows keeps its low bits."""

    def forward(self, key: torch.Tensor) -> torch.Tensor:
        h = key.to(torch.int64) * 0xCC9E2D51 & low
        h = (h >> 17 | h << 15) & low
        h = h * 0x1B873593 & low
        h = (h >> 19 | h << 13) & low
        h = h * 5 + 0xE6546B64 & low
        h = h ^ 4
        h = (h ^ h >> 16) * 0x85EBCA6B & low
        h = (h ^ h >> 13) * 0xC2B2AE35 & low
        return (h ^ h >> 16).to(torch.uint32)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(2**32, (keys,)).to(torch.uint32)]


def get_init_inputs() -> list[object]:
    return []
