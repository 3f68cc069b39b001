"""Programs add their parts to the output by load, add and store, without atomics: right in an
interpreter that runs one after another, a race on a GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(X, Y, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * N + lanes, mask=lanes < N, other=0.0)
    tl.store(Y + row, tl.load(Y + row) + tl.sum(x, axis=0))


def row_sum(X, *, out=None):
    M, N = X.shape
    Y = torch.empty((M,), dtype=X.dtype, device=X.device) if out is None else out
    Y.fill_(0.0)
    row_sum_kernel[(triton.cdiv(N, 4), M)](X, Y, M, N, BLOCK=4)
    return Y
