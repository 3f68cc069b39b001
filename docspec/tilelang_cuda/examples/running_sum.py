"""Running sums of rows: T.cumsum within a tile, a carry from tile to tile."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def running_sum_kernel(TILE):
    M, N = T.dynamic("M, N", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.cast(M, "int32"), threads=128) as i:
            x = T.alloc_shared((TILE,), "float32")
            carry = T.alloc_shared((1,), "float32")
            T.fill(carry, 0.0)
            for j in T.serial(T.ceildiv(N, TILE)):
                for lane in T.Parallel(TILE):
                    n = j * TILE + lane
                    x[lane] = T.if_then_else(n < N, X[i, n], 0.0)
                T.cumsum(x)
                for lane in T.Parallel(TILE):
                    x[lane] = x[lane] + carry[0]
                for lane in T.Parallel(TILE):
                    if j * TILE + lane < N:
                        Y[i, j * TILE + lane] = x[lane]
                # Every lane has read the old carry.
                T.sync_threads()
                for one in T.Parallel(1):
                    carry[one] = x[TILE - 1]

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def running_sum(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        running_sum_kernel(1024)(X.contiguous(), Y)
    if Y is not out:
        out.copy_(Y)
    return out
