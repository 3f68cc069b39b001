"""A matrix product in ieee f32 with bias and relu in the epilogue."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_bias_relu_kernel(
    A_ptr,
    B_ptr,
    BIAS_ptr,
    C_ptr,
    M,
    N,
    K,
    TM: tl.constexpr,
    TN: tl.constexpr,
    TK: tl.constexpr,
    INDEX: tl.constexpr,
):
    # Groups of 8 rows of blocks: programs that run together share rows of A and columns of B.
    blocks = tl.cdiv(N, TN)
    program = tl.program_id(0)
    first = program // (8 * blocks) * 8
    height = tl.minimum(tl.cdiv(M, TM) - first, 8)
    row = (first + program % (8 * blocks) % height) * TM
    column = program % (8 * blocks) // height * TN
    rows = tl.arange(0, TM)
    columns = tl.arange(0, TN)
    depths = tl.arange(0, TK)
    # INDEX is tl.int64 where an offset may reach 2**31.
    a_rows = (row + rows).to(INDEX)[:, None] * K
    c_rows = (row + rows).to(INDEX)[:, None] * N
    row_inside = rows[:, None] < M - row
    column_inside = columns[None, :] < N - column
    c = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, TK):
        a = tl.load(
            A_ptr + a_rows + (k + depths)[None, :],
            mask=row_inside & (depths[None, :] < K - k),
            other=0.0,
        )
        b = tl.load(
            B_ptr + (k + depths).to(INDEX)[:, None] * N + (column + columns)[None, :],
            mask=(depths[:, None] < K - k) & column_inside,
            other=0.0,
        )
        c = tl.dot(a, b, c, input_precision="ieee")
    bias = tl.load(BIAS_ptr + column + columns, mask=columns < N - column, other=0.0)
    c = tl.maximum(c + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(C_ptr + c_rows + (column + columns)[None, :], c, mask=row_inside & column_inside)


from sketchc.docspec.shared.launch import check, require, result


def matmul_bias_relu(
    A: torch.Tensor, B: torch.Tensor, BIAS: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A: [M, K] f32; B: [K, N] f32; BIAS: [N] f32. Returns C: [M, N] f32."""
    require(A.dim() == 2 and B.dim() == 2, "A has 2 axes, [M, K], and B has 2, [K, N]")
    M, K = A.shape
    N = B.shape[1]
    check("A", A, torch.float32, (M, K), A.device)
    check("B", B, torch.float32, (K, N), A.device)
    check("BIAS", BIAS, torch.float32, (N,), A.device)
    out, C = result(out, torch.float32, (M, N), (A, B, BIAS))
    A, B, BIAS = A.contiguous(), B.contiguous(), BIAS.contiguous()
    TM, TN, TK = 128, 128, 32
    programs = triton.cdiv(M, TM) * triton.cdiv(N, TN)
    require(programs < 2**31 and max(M, N, K) < 2**30, "too large for one launch")
    # The largest offset, lanes past the edges included.
    reach = max((M + TM) * (K + TK), (K + TK) * (N + TN), (M + TM) * (N + TN))
    if programs > 0:
        with torch.cuda.device_of(A):
            matmul_bias_relu_kernel[(programs,)](
                A,
                B,
                BIAS,
                C,
                M,
                N,
                K,
                TM=TM,
                TN=TN,
                TK=TK,
                INDEX=tl.int64 if reach >= 2**31 else tl.int32,
                num_warps=8,
                num_stages=4,
            )
    if C is not out:
        out.copy_(C)
    return out
