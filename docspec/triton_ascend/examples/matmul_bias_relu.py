"""A matrix product of f16 with f32 accumulator, bias and relu in the epilogue."""

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
    # INDEX is tl.int64 where an offset may reach 2**31.
    M = tl.cast(M, INDEX)
    N = tl.cast(N, INDEX)
    K = tl.cast(K, INDEX)
    rows = tl.arange(0, TM).to(INDEX)
    columns = tl.arange(0, TN).to(INDEX)
    depths = tl.arange(0, TK).to(INDEX)
    blocks = tl.cdiv(N, TN)
    # One program per cube core; each takes every num_programs-th block.
    for program in range(tl.program_id(0), tl.cdiv(M, TM) * blocks, tl.num_programs(0)):
        row = tl.cast(program, INDEX) // blocks * TM
        column = tl.cast(program, INDEX) % blocks * TN
        c = tl.zeros((TM, TN), tl.float32)
        for k in range(tl.cdiv(K, TK)):
            a = tl.load(
                A_ptr + (row * K + k * TK) + rows[:, None] * K + depths[None, :],
                mask=(rows[:, None] < M - row) & (depths[None, :] < K - k * TK),
                other=0.0,
            )
            b = tl.load(
                B_ptr + (k * TK * N + column) + depths[:, None] * N + columns[None, :],
                mask=(depths[:, None] < K - k * TK) & (columns[None, :] < N - column),
                other=0.0,
            )
            c = tl.dot(a, b, c)
        bias = tl.load(BIAS_ptr + column + columns, mask=columns < N - column, other=0.0)
        c = tl.maximum(c + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(
            C_ptr + (row * N + column) + rows[:, None] * N + columns[None, :],
            c.to(tl.float16),
            mask=(rows[:, None] < M - row) & (columns[None, :] < N - column),
        )


from sketchc.docspec.shared.launch import check, require, result


def matmul_bias_relu(
    A: torch.Tensor, B: torch.Tensor, BIAS: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A: [M, K] f16; B: [K, N] f16; BIAS: [N] f32. Returns C: [M, N] f16."""
    require(A.dim() == 2 and B.dim() == 2, "A has 2 axes, [M, K], and B has 2, [K, N]")
    M, K = A.shape
    N = B.shape[1]
    check("A", A, torch.float16, (M, K), A.device)
    check("B", B, torch.float16, (K, N), A.device)
    check("BIAS", BIAS, torch.float32, (N,), A.device)
    out, C = result(out, torch.float16, (M, N), (A, B, BIAS))
    A, B, BIAS = A.contiguous(), B.contiguous(), BIAS.contiguous()
    TM, TN, TK = 128, 128, 64
    programs = triton.cdiv(M, TM) * triton.cdiv(N, TN)
    require(programs < 2**30 and max(M, N, K) < 2**30, "too large for one launch")
    # The largest offset, lanes past the edges included.
    reach = max((M + TM) * (K + TK), (K + TK) * (N + TN), (M + TM) * (N + TN))
    if programs > 0:
        matmul_bias_relu_kernel[(min(programs, 20),)](
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
        )
    if C is not out:
        out.copy_(C)
    return out
