"""Softmax of every row: a block a row, the row in a fragment."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def softmax_kernel(WIDTH):
    M, N = T.dynamic("M, N", "int64")

    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.cast(M, "int32"), threads=128) as i:
            row = T.alloc_fragment((WIDTH,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            # Lanes beyond the row hold -inf, and 0 after exp.
            for lane in T.Parallel(WIDTH):
                row[lane] = T.if_then_else(lane < N, X[i, lane], -T.infinity("float32"))
            T.reduce_max(row, largest)
            for lane in T.Parallel(WIDTH):
                row[lane] = T.exp(row[lane] - largest[0])
            T.reduce_sum(row, total)
            for lane in T.Parallel(WIDTH):
                if lane < N:
                    Y[i, lane] = row[lane] / total[0]

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32, N <= 8192. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    M, N = X.shape
    require(N <= 8192, f"N must be at most 8192, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        # The row's next power of two, so that few kernels serve all sizes.
        softmax_kernel(max(1 << (N - 1).bit_length(), 128))(X.contiguous(), Y)
    if Y is not out:
        out.copy_(Y)
    return out
