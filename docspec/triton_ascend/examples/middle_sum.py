"""Sum over the middle axis: rows are added lane by lane, lanes once at the end."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def middle_sum_kernel(X_ptr, Y_ptr, B, M, N, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.arange(0, TM)
    columns = tl.arange(0, TN)
    blocks = tl.cdiv(N, TN)
    for program in range(tl.program_id(0), B * blocks, tl.num_programs(0)):
        b = tl.cast(program // blocks, tl.int64)
        column = program % blocks * TN
        lanes = tl.zeros((TM, TN), tl.float32)
        for m in range(tl.cdiv(M, TM)):
            # The mask has one interval for each axis; a row's columns lie next to each other.
            lanes += tl.load(
                X_ptr + ((b * M + m * TM) * N + column) + rows[:, None] * N + columns[None, :],
                mask=(rows[:, None] < M - m * TM) & (columns[None, :] < N - column),
                other=0.0,
            )
        total = tl.sum(lanes, axis=0)
        tl.store(Y_ptr + (b * N + column) + columns, total, mask=columns < N - column)


from sketchc.docspec.shared.launch import check, require, result


def middle_sum(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [B, M, N] f32. Returns Y: [B, N] f32."""
    require(X.dim() == 3, "X has 3 axes: [B, M, N]")
    B, M, N = X.shape
    check("X", X, torch.float32, (B, M, N), X.device)
    out, Y = result(out, torch.float32, (B, N), (X,))
    X = X.contiguous()
    TM, TN = 16, 256
    programs = B * triton.cdiv(N, TN)
    require(programs < 2**30 and max(M, TM * N) < 2**30, "too large for one launch")
    # M = 0 launches too: the sum of nothing is 0, and has to be written.
    if programs > 0:
        middle_sum_kernel[(min(programs, 40),)](X, Y, B, M, N, TM=TM, TN=TN)
    if Y is not out:
        out.copy_(Y)
    return out
