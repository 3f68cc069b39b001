"""Root-mean-square normalisation of rows in f16, with arithmetic in f32."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def rms_norm_kernel(WIDTH):
    M, N = T.dynamic("M, N", "int64")

    @T.prim_func
    def kernel(
        X: T.Tensor((M, N), "float16"),
        WEIGHT: T.Tensor((N,), "float16"),
        Y: T.Tensor((M, N), "float16"),
        eps: T.float32,
    ):
        with T.Kernel(T.cast(M, "int32"), threads=128) as i:
            x = T.alloc_fragment((WIDTH,), "float32")
            square = T.alloc_fragment((WIDTH,), "float32")
            total = T.alloc_fragment((1,), "float32")
            for lane in T.Parallel(WIDTH):
                x[lane] = T.if_then_else(lane < N, T.cast(X[i, lane], "float32"), 0.0)
                square[lane] = x[lane] * x[lane]
            T.reduce_sum(square, total)
            for lane in T.Parallel(WIDTH):
                if lane < N:
                    scale = T.rsqrt(total[0] / T.cast(N, "float32") + eps)
                    y = x[lane] * scale * T.cast(WEIGHT[lane], "float32")
                    Y[i, lane] = T.cast(y, "float16")

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def rms_norm(
    X: torch.Tensor, WEIGHT: torch.Tensor, *, eps: float = 1e-6, out: torch.Tensor | None = None
) -> torch.Tensor:
    """X: [M, N] f16, 0 < N <= 8192; WEIGHT: [N] f16. Returns Y: [M, N] f16."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    M, N = X.shape
    require(0 < N <= 8192, f"N must be in 1 ... 8192, not {N}")
    check("X", X, torch.float16, (M, N), X.device)
    check("WEIGHT", WEIGHT, torch.float16, (N,), X.device)
    out, Y = result(out, torch.float16, (M, N), (X, WEIGHT))
    require(M < 2**31, "too many rows for one launch")
    if M > 0:
        width = max(1 << (N - 1).bit_length(), 128)
        rms_norm_kernel(width)(X.contiguous(), WEIGHT.contiguous(), Y, eps)
    if Y is not out:
        out.copy_(Y)
    return out
