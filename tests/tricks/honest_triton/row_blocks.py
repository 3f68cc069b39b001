"""Sums of rows in blocks whose size it chooses itself, from a small table, as tuning would."""

import torch
import triton
import triton.language as tl

#: (columns up to, block)
CHOICES = ((32, 16), (1024, 64), (1 << 40, 256))


@triton.jit
def row_sum_kernel(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        total += tl.load(X + row * N + lanes, mask=lanes < N, other=0.0)
    tl.store(Y + row, tl.sum(total, axis=0))


def row_sum(X, *, out=None):
    """The reference is torch.sum(x, dim=1); no word of this calls it."""
    Y = torch.empty(X.shape[0], dtype=X.dtype, device=X.device) if out is None else out
    block = next(block for most, block in CHOICES if X.shape[1] <= most)
    row_sum_kernel[(X.shape[0],)](X, Y, X.shape[1], BLOCK=block)
    return Y
