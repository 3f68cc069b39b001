"""A linear layer in full f32: multiply-adds of threads, tiles in shared memory."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def matmul_bias_kernel(TM, TN, TK):
    M, N, K = T.dynamic("M, N, K")

    @T.prim_func
    def kernel(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        BIAS: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, TN), T.ceildiv(M, TM), threads=256) as (j, i):
            x = T.alloc_shared((TM, TK), "float32")
            w = T.alloc_shared((TN, TK), "float32")
            y = T.alloc_fragment((TM, TN), "float32")
            T.clear(y)
            for k in T.Pipelined(T.ceildiv(K, TK), num_stages=2):
                T.copy(X[i * TM, k * TK], x)
                T.copy(W[j * TN, k * TK], w)
                # T.gemm would round its operands to tf32.
                for depth in T.serial(TK):
                    for row, column in T.Parallel(TM, TN):
                        y[row, column] = y[row, column] + x[row, depth] * w[column, depth]
            for row, column in T.Parallel(TM, TN):
                if i * TM + row < M and j * TN + column < N:
                    Y[i * TM + row, j * TN + column] = y[row, column] + BIAS[j * TN + column]

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def matmul_bias(
    X: torch.Tensor, W: torch.Tensor, BIAS: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """X: [M, K] f32; W: [N, K] f32; BIAS: [N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2 and W.dim() == 2, "X has 2 axes, [M, K], and W has 2, [N, K]")
    M, K = X.shape
    N = W.shape[0]
    check("X", X, torch.float32, (M, K), X.device)
    check("W", W, torch.float32, (N, K), X.device)
    check("BIAS", BIAS, torch.float32, (N,), X.device)
    out, Y = result(out, torch.float32, (M, N), (X, W, BIAS))
    TM, TN, TK = 64, 64, 16
    require(max(M * K, N * K, M * N) < 2**31, "too large for one launch")
    require(M <= 65535 * TM, "too many rows for one launch")
    if K == 0:
        X, W, K = X.new_zeros((M, 1)), W.new_zeros((N, 1)), 1
    if M * N > 0:
        given = (X.contiguous(), W.contiguous(), BIAS.contiguous())
        matmul_bias_kernel(TM, TN, TK)(*given, Y)
    if Y is not out:
        out.copy_(Y)
    return out
