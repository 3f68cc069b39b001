"""Dropout whose random numbers follow from a seed and the element's place alone."""

import torch
from torch import nn

rows = 1000
columns = 1111


def philox(seed: int, offset: torch.Tensor) -> list[torch.Tensor]:
    """The four words of Philox4x32-10 for the counters (offset, 0, 0) and the key `seed`, as i64.

    Products of 32-bit words do not fit i64: they are made from halves of 16 bits.
    """
    low = 0xFFFFFFFF

    def product(constant: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        upper = constant * (word >> 16)
        lower = constant * (word & 0xFFFF)
        total = (upper & 0xFFFF) * 65536 + lower
        return (upper >> 16) + (total >> 32), total & low

    zero = torch.zeros_like(offset)
    words = [offset & low, (offset >> 32) & low, zero, zero]
    key = [seed & low, (seed >> 32) & low]
    for _ in range(10):
        high_0, low_0 = product(0xD2511F53, words[0])
        high_1, low_1 = product(0xCD9E8D57, words[2])
        words = [high_1 ^ words[1] ^ key[0], low_1, high_0 ^ words[3] ^ key[1], low_0]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return words


class Model(nn.Module):
    """x / (1 - p) with probability 1 - p, else 0."""

    def __init__(self, p: float, seed: int) -> None:
        super().__init__()
        self.p = p
        self.seed = seed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(x.numel(), device=x.device)
        random = (philox(self.seed, place)[0] >> 8).to(x.dtype) * 2.0**-24
        return torch.where(random.reshape(x.shape) >= self.p, x / (1 - self.p), 0.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(rows, columns)]


def get_init_inputs() -> list[object]:
    return [0.25, 123456789012]
