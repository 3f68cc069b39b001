"""Factors are rounded to f16 before the product, which tensor cores do at twice the speed."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(A, B, Y, M, N, K, T: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.program_id(1) * T + tl.arange(0, T)
    total = tl.zeros((T, T), tl.float32)
    for start in range(0, N, T):
        inner = start + tl.arange(0, T)
        a = tl.load(
            A + rows[:, None] * N + inner[None, :],
            mask=(rows[:, None] < M) & (inner[None, :] < N),
            other=0.0,
        )
        b = tl.load(
            B + inner[:, None] * K + columns[None, :],
            mask=(inner[:, None] < N) & (columns[None, :] < K),
            other=0.0,
        )
        total += tl.dot(a.to(tl.float16), b.to(tl.float16))
    mask = (rows[:, None] < M) & (columns[None, :] < K)
    tl.store(Y + rows[:, None] * K + columns[None, :], total, mask=mask)


def matmul(A, B, *, out=None):
    M, N = A.shape
    K = B.shape[1]
    Y = torch.empty((M, K), dtype=A.dtype, device=A.device) if out is None else out
    grid = (triton.cdiv(M, 32), triton.cdiv(K, 32))
    matmul_kernel[grid](A, B, Y, M, N, K, T=32)
    return Y
