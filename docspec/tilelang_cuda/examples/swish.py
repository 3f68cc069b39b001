"""Swish with a slope: a grid of blocks over all elements of a matrix."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def swish_kernel(TILE):
    N = T.dynamic("N", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), beta: T.float32):
        with T.Kernel(T.cast(T.ceildiv(N, TILE), "int32"), threads=128) as block:
            first = T.cast(block, "int64") * TILE
            for lane in T.Parallel(TILE):
                if first + lane < N:
                    x = X[first + lane]
                    Y[first + lane] = x / (1.0 + T.exp(-beta * x))

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def swish(X: torch.Tensor, *, beta: float = 1.0, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    check("X", X, torch.float32, tuple(X.shape), X.device)
    out, Y = result(out, torch.float32, tuple(X.shape), (X,))
    TILE = 1024
    require(X.numel() < 2**31 * TILE, "too many elements for one launch")
    if X.numel() > 0:
        swish_kernel(TILE)(X.contiguous().view(-1), Y.view(-1), beta)
    if Y is not out:
        out.copy_(Y)
    return out
