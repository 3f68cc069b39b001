"""Layer normalisation of every row, with weight and bias."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def layer_norm_kernel(WIDTH):
    M, N = T.dynamic("M, N", "int64")

    @T.prim_func
    def kernel(
        X: T.Tensor((M, N), "float32"),
        WEIGHT: T.Tensor((N,), "float32"),
        BIAS: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(T.cast(M, "int32"), threads=128) as i:
            x = T.alloc_fragment((WIDTH,), "float32")
            square = T.alloc_fragment((WIDTH,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            variance = T.alloc_fragment((1,), "float32")
            for lane in T.Parallel(WIDTH):
                x[lane] = T.if_then_else(lane < N, X[i, lane], 0.0)
            T.reduce_sum(x, mean)
            for lane in T.Parallel(WIDTH):
                x[lane] = x[lane] - mean[0] / T.cast(N, "float32")
                # Lanes past the row now hold -mean: they must not enter the sum of squares.
                square[lane] = T.if_then_else(lane < N, x[lane] * x[lane], 0.0)
            T.reduce_sum(square, variance)
            for lane in T.Parallel(WIDTH):
                if lane < N:
                    scale = T.rsqrt(variance[0] / T.cast(N, "float32") + eps)
                    Y[i, lane] = x[lane] * scale * WEIGHT[lane] + BIAS[lane]

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def layer_norm(
    X: torch.Tensor,
    WEIGHT: torch.Tensor,
    BIAS: torch.Tensor,
    *,
    eps: float = 1e-5,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """X: [M, N] f32, 0 < N <= 8192; WEIGHT, BIAS: [N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes, [M, N]")
    M, N = X.shape
    require(0 < N <= 8192, f"N must be in 1 ... 8192, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    check("WEIGHT", WEIGHT, torch.float32, (N,), X.device)
    check("BIAS", BIAS, torch.float32, (N,), X.device)
    out, Y = result(out, torch.float32, (M, N), (X, WEIGHT, BIAS))
    require(M < 2**31, "too many rows for one launch")
    if M > 0:
        width = max(1 << (N - 1).bit_length(), 128)
        given = (X.contiguous(), WEIGHT.contiguous(), BIAS.contiguous())
        layer_norm_kernel(width)(*given, Y, eps)
    if Y is not out:
        out.copy_(Y)
    return out
