"""Softmax of rows that fit one tile: one program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger; NaN wins, which `tl.max` does not do."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def row_softmax_kernel(X_ptr, Y_ptr, N, N_BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    # -inf is the identity of the maximum; after exp it is 0, the identity of the sum.
    x = tl.load(X_ptr + first + lanes, mask=inside, other=float("-inf"))
    x = tl.exp(x - tl.reduce(x, 0, nan_maximum))
    total = tl.sum(tl.where(inside, x, 0.0), axis=0)
    tl.store(Y_ptr + first + lanes, x / total, mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def row_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    require(N <= 8192, f"N must be at most 8192, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        N_BLOCK = triton.next_power_of_2(N)
        with torch.cuda.device_of(X):
            row_softmax_kernel[(M,)](
                X, Y, N, N_BLOCK=N_BLOCK, num_warps=min(max(N_BLOCK // 256, 1), 16)
            )
    if Y is not out:
        out.copy_(Y)
    return out
