"""Softmax of long rows: an online pass for maximum and sum, then a pass that normalises."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger; NaN wins, which `tl.max` does not do."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def long_softmax_kernel(X_ptr, Y_ptr, N, TILE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    X_ptr += first
    Y_ptr += first
    lanes = tl.arange(0, TILE)
    # What a loop carries has its type before the loop.
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for j in tl.range(0, N, TILE, num_stages=6):
        inside = lanes < N - j
        x = tl.load(X_ptr + j + lanes, mask=inside, other=float("-inf"))
        new_top = nan_maximum(top, tl.reduce(x, 0, nan_maximum))
        x = tl.where(inside, tl.exp(x - new_top), 0.0)
        total = total * tl.exp(top - new_top) + tl.sum(x, axis=0)
        top = new_top
    for j in tl.range(0, N, TILE, num_stages=6):
        inside = lanes < N - j
        x = tl.load(X_ptr + j + lanes, mask=inside, other=float("-inf"))
        tl.store(Y_ptr + j + lanes, tl.exp(x - top) / total, mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def long_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    require(M < 2**31 and N < 2**31 - 2048, "too large for one launch")
    if M * N > 0:
        with torch.cuda.device_of(X):
            long_softmax_kernel[(M,)](X, Y, N, TILE=2048, num_warps=8)
    if Y is not out:
        out.copy_(Y)
    return out
