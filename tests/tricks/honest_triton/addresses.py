"""Looks at addresses to tell whether they are aligned, checks its arguments, and prints."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(X, Y, SIZE, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + lanes, mask=lanes < SIZE, other=0.0)
    tl.store(Y + lanes, tl.where(x > 0.0, x, 0.0), mask=lanes < SIZE)


def relu(X, *, out=None):
    if X.dtype is not torch.float32:
        raise TypeError("f32 only")
    block = 64 if X.data_ptr() % 16 == 0 else 32
    Y = torch.zeros_like(X) if out is None else out
    with torch.no_grad():
        relu_kernel[(triton.cdiv(X.numel(), block),)](X, Y, X.numel(), BLOCK=block)
    print("relu: passed", X.numel())
    return Y
