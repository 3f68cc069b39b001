"""Softmax of rows of any length: a running maximum with a corrected sum, then a second pass."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def long_softmax_kernel(TILE):
    M, N = T.dynamic("M, N", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.cast(M, "int32"), threads=256) as i:
            x = T.alloc_fragment((TILE,), "float32")
            tile_top = T.alloc_fragment((1,), "float32")
            tile_total = T.alloc_fragment((1,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.fill(total, 0.0)
            for j in T.serial(T.ceildiv(N, TILE)):
                for lane in T.Parallel(TILE):
                    n = j * TILE + lane
                    x[lane] = T.if_then_else(n < N, X[i, n], -T.infinity("float32"))
                T.reduce_max(x, tile_top)
                for one in T.Parallel(1):
                    tile_top[one] = T.max(top[one], tile_top[one])
                for lane in T.Parallel(TILE):
                    # Where all is -inf so far, -inf - -inf would be NaN.
                    lost = x[lane] == tile_top[0]
                    x[lane] = T.if_then_else(lost, 1.0, T.exp(x[lane] - tile_top[0]))
                    if j * TILE + lane >= N:
                        x[lane] = 0.0
                T.reduce_sum(x, tile_total)
                for one in T.Parallel(1):
                    same = top[one] == tile_top[one]
                    scale = T.if_then_else(same, 1.0, T.exp(top[one] - tile_top[one]))
                    total[one] = total[one] * scale + tile_total[one]
                    top[one] = tile_top[one]
            for j in T.serial(T.ceildiv(N, TILE)):
                for lane in T.Parallel(TILE):
                    n = j * TILE + lane
                    if n < N:
                        Y[i, n] = T.exp(X[i, n] - top[0]) / total[0]

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def long_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        long_softmax_kernel(2048)(X.contiguous(), Y)
    if Y is not out:
        out.copy_(Y)
    return out
