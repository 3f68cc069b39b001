"""A product of f16 matrices on matrix units, summed in f32, at any size."""

from __future__ import annotations

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def half_matmul_kernel(TM, TN, TK):
    M, N, K = T.dynamic("M, N, K")

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, TN), T.ceildiv(M, TM), threads=128) as (j, i):
            a = T.alloc_shared((TM, TK), "float16")
            b = T.alloc_shared((TK, TN), "float16")
            c = T.alloc_fragment((TM, TN), "float32")
            T.clear(c)
            # What a tile has beyond its tensor is 0, and adds nothing.
            for k in T.Pipelined(T.ceildiv(K, TK), num_stages=3):
                T.copy(A[i * TM, k * TK], a)
                T.copy(B[k * TK, j * TN], b)
                T.gemm(a, b, c)
            # Only the elements that exist are written.
            T.copy(c, C[i * TM, j * TN])

    return kernel


from sketchc.docspec.shared.launch import check, require, result


def half_matmul(
    A: torch.Tensor, B: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A: [M, K] f16; B: [K, N] f16. Returns C: [M, N] f16."""
    require(A.dim() == 2 and B.dim() == 2, "A has 2 axes, [M, K], and B has 2, [K, N]")
    M, K = A.shape
    N = B.shape[1]
    check("A", A, torch.float16, (M, K), A.device)
    check("B", B, torch.float16, (K, N), A.device)
    out, C = result(out, torch.float16, (M, N), (A, B))
    TM, TN, TK = 128, 128, 32
    require(max(M * K, K * N, M * N) < 2**31, "too large for one launch")
    require(M <= 65535 * TM, "too many rows for one launch")
    if M * N > 0 and K == 0:
        C.zero_()
    elif M * N > 0:
        half_matmul_kernel(TM, TN, TK)(A.contiguous(), B.contiguous(), C)
    if C is not out:
        out.copy_(C)
    return out
