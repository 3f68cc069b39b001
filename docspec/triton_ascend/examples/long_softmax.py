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
def long_softmax_kernel(X_ptr, Y_ptr, M, N, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    for i in range(tl.program_id(0), M, tl.num_programs(0)):
        first = tl.cast(i, tl.int64) * N
        # What a loop carries has its type before the loop.
        top = tl.full((1,), float("-inf"), tl.float32)
        total = tl.full((1,), 0.0, tl.float32)
        for j in range(tl.cdiv(N, TILE)):
            x = tl.load(
                X_ptr + (first + j * TILE) + lanes,
                mask=lanes < N - j * TILE,
                other=float("-inf"),
            )
            new_top = nan_maximum(top, tl.reduce(x, 0, nan_maximum))
            # Lanes past the row hold -inf, and exp makes 0 of it.
            x = tl.exp(x - new_top)
            total = total * tl.exp(top - new_top) + tl.sum(x, axis=0)
            top = new_top
        for j in range(tl.cdiv(N, TILE)):
            inside = lanes < N - j * TILE
            x = tl.load(X_ptr + (first + j * TILE) + lanes, mask=inside, other=float("-inf"))
            y = tl.exp(x - top) / total
            tl.store(Y_ptr + (first + j * TILE) + lanes, y, mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def long_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    require(M < 2**30 and N < 2**30, "too large for one launch")
    if M * N > 0:
        long_softmax_kernel[(min(M, 40),)](X, Y, M, N, TILE=4096)
    if Y is not out:
        out.copy_(Y)
    return out
