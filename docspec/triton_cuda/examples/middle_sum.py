"""Sum over the middle axis: rows are added lane by lane, lanes once at the end."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def middle_sum_kernel(X_ptr, Y_ptr, M, N, TM: tl.constexpr, TN: tl.constexpr):
    # One flat grid: neighbouring programs read neighbouring columns of one batch.
    blocks = tl.cdiv(N, TN)
    b = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * TN
    rows = tl.arange(0, TM)
    columns = tl.arange(0, TN)
    X_ptr += b.to(tl.int64) * M * N + column
    Y_ptr += b.to(tl.int64) * N + column
    inside = columns < N - column
    lanes = tl.zeros((TM, TN), tl.float32)
    for m in tl.range(0, M, TM, num_stages=6):
        x = tl.load(
            X_ptr + tl.cast(m, tl.int64) * N + rows[:, None] * N + columns[None, :],
            mask=(rows[:, None] < M - m) & inside[None, :],
            other=0.0,
        )
        lanes += x
    tl.store(Y_ptr + columns, tl.sum(lanes, axis=0), mask=inside)


from sketchc.docspec.shared.launch import check, require, result


def middle_sum(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [B, M, N] f32. Returns Y: [B, N] f32."""
    require(X.dim() == 3, "X has 3 axes: [B, M, N]")
    B, M, N = X.shape
    check("X", X, torch.float32, (B, M, N), X.device)
    out, Y = result(out, torch.float32, (B, N), (X,))
    X = X.contiguous()
    TM, TN = 16, 128
    programs = B * triton.cdiv(N, TN)
    require(programs < 2**31 and max(M, TM * N) < 2**30, "too large for one launch")
    # M = 0 launches too: the sum of nothing is 0, and has to be written.
    if programs > 0:
        with torch.cuda.device_of(X):
            middle_sum_kernel[(programs,)](X, Y, M, N, TM=TM, TN=TN, num_warps=4)
    if Y is not out:
        out.copy_(Y)
    return out
