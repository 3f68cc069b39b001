"""Sums of long rows in two launches: pieces into a workspace, then the pieces."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def pieces_kernel(X_ptr, PART_ptr, M, N, pieces, PIECE: tl.constexpr):
    lanes = tl.arange(0, PIECE)
    for program in range(tl.program_id(0), M * pieces, tl.num_programs(0)):
        m = tl.cast(program // pieces, tl.int64)
        start = program % pieces * PIECE
        x = tl.load(X_ptr + (m * N + start) + lanes, mask=lanes < N - start, other=0.0)
        tl.store(PART_ptr + program, tl.sum(x, axis=0))


@triton.jit
def rows_kernel(PART_ptr, Y_ptr, M, pieces, STEP: tl.constexpr):
    lanes = tl.arange(0, STEP)
    for m in range(tl.program_id(0), M, tl.num_programs(0)):
        first = tl.cast(m, tl.int64) * pieces
        total = tl.zeros((STEP,), tl.float32)
        for j in range(tl.cdiv(pieces, STEP)):
            at = PART_ptr + (first + j * STEP) + lanes
            total += tl.load(at, mask=lanes < pieces - j * STEP, other=0.0)
        tl.store(Y_ptr + m, tl.sum(total, axis=0))


from sketchc.docspec.shared.launch import check, require, result


def split_sum(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M,), (X,))
    X = X.contiguous()
    pieces = triton.cdiv(N, 8192)
    require(M * max(pieces, 1) < 2**30 and N < 2**30, "too large for one launch")
    PART = torch.empty((M, pieces), dtype=torch.float32, device=X.device)
    # The second launch sees all that the first wrote; a grid of 0 is not launched.
    if M * pieces > 0:
        pieces_kernel[(min(M * pieces, 40),)](X, PART, M, N, pieces, PIECE=8192)
    if M > 0:
        rows_kernel[(min(M, 40),)](PART, Y, M, pieces, STEP=1024)
    if Y is not out:
        out.copy_(Y)
    return out
