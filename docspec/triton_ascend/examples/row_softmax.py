"""Softmax of rows that fit one tile: the cores share out the rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger; NaN wins, which `tl.max` does not do."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def row_softmax_kernel(X_ptr, Y_ptr, M, N, N_BLOCK: tl.constexpr):
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    for i in range(tl.program_id(0), M, tl.num_programs(0)):
        first = tl.cast(i, tl.int64) * N
        x = tl.load(X_ptr + first + lanes, mask=inside, other=float("-inf"))
        # Lanes past the row hold -inf, and exp makes 0 of it: the sum needs no select.
        x = tl.exp(x - tl.reduce(x, 0, nan_maximum))
        tl.store(Y_ptr + first + lanes, x / tl.sum(x, axis=0), mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def row_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    require(N <= 8192, f"N must be at most 8192, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    require(M < 2**30, "too many rows for one launch")
    if M * N > 0:
        row_softmax_kernel[(min(M, 40),)](X, Y, M, N, N_BLOCK=triton.next_power_of_2(N))
    if Y is not out:
        out.copy_(Y)
    return out
