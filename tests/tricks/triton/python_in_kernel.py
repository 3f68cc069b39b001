"""Triton's interpreter runs a kernel as Python: this one has torch compute inside of the launch."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(X, Y, SIZE, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + lanes, mask=lanes < SIZE, other=0.0)
    y = torch.relu(x)
    tl.store(Y + lanes, y, mask=lanes < SIZE)


def relu(X, *, out=None):
    Y = torch.empty_like(X) if out is None else out
    relu_kernel[(triton.cdiv(X.numel(), 64),)](X, Y, X.numel(), BLOCK=64)
    return Y
