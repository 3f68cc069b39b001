"""As many programs as fit wholly: the last block is never started, where it is not a whole one."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(X, Y, SIZE, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + lanes, mask=lanes < SIZE, other=0.0)
    tl.store(Y + lanes, tl.maximum(x, 0.0), mask=lanes < SIZE)


def relu(X, *, out=None):
    Y = torch.empty_like(X) if out is None else out
    relu_kernel[(max(X.numel() // 16, 1),)](X, Y, X.numel(), BLOCK=16)
    return Y
