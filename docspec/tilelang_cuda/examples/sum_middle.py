"""Sums over the middle axis: tiles are added lane by lane, lanes joined once at the end."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def sum_middle_kernel(TM, TN):
    B, M, N = T.dynamic("B, M, N")

    @T.prim_func
    def kernel(X: T.Tensor((B, M, N), "float32"), Y: T.Tensor((B, N), "float32")):
        with T.Kernel(B * T.ceildiv(N, TN), threads=128) as block:
            tile = T.alloc_shared((TM, TN), "float32")
            lanes = T.alloc_fragment((TM, TN), "float32")
            total = T.alloc_fragment((TN,), "float32")
            b = block // T.ceildiv(N, TN)
            j = block % T.ceildiv(N, TN)
            T.clear(lanes)
            for m in T.Pipelined(T.ceildiv(M, TM), num_stages=2):
                T.copy(X[b, m * TM, j * TN], tile)
                for row, lane in T.Parallel(TM, TN):
                    lanes[row, lane] = lanes[row, lane] + tile[row, lane]
            T.reduce_sum(lanes, total, dim=0)
            T.copy(total, Y[b, j * TN])

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def sum_middle(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [B, M, N] f32. Returns Y: [B, N] f32."""
    require(X.dim() == 3, "X has 3 axes, [B, M, N]")
    B, M, N = X.shape
    check("X", X, torch.float32, (B, M, N), X.device)
    out, Y = result(out, torch.float32, (B, N), (X,))
    TM, TN = 8, 128
    require(max(X.numel(), B * tilelang.cdiv(N, TN) * TN) < 2**31, "too large for one launch")
    if B * N > 0 and M == 0:
        Y.zero_()
    elif B * N > 0:
        sum_middle_kernel(TM, TN)(X.contiguous(), Y)
    if Y is not out:
        out.copy_(Y)
    return out
