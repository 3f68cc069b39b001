"""Swish on flat elements: one tile of 1,024 per program."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def swish_kernel(X_ptr, Y_ptr, total, TILE: tl.constexpr):
    # 64 bits where elements are counted; lanes within the tile stay at 32.
    start = tl.program_id(0).to(tl.int64) * TILE
    lanes = tl.arange(0, TILE)
    inside = lanes < total - start
    x = tl.load(X_ptr + start + lanes, mask=inside, other=0.0)
    y = x / (1.0 + tl.exp(-x))
    tl.store(Y_ptr + start + lanes, y, mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def swish(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    programs = triton.cdiv(M * N, 1024)
    require(programs < 2**31, "too many programs for one launch")
    if programs > 0:
        with torch.cuda.device_of(X):
            swish_kernel[(programs,)](X, Y, M * N, TILE=1024, num_warps=4)
    if Y is not out:
        out.copy_(Y)
    return out
