"""Sums of long rows in two launches: pieces into a workspace, then the pieces."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def pieces_kernel(X_ptr, PART_ptr, N, pieces, PIECE: tl.constexpr):
    m = tl.program_id(0) // pieces
    p = tl.program_id(0) % pieces
    lanes = tl.arange(0, PIECE)
    first = m.to(tl.int64) * N + p * PIECE
    x = tl.load(X_ptr + first + lanes, mask=lanes < N - p * PIECE, other=0.0)
    tl.store(PART_ptr + tl.program_id(0), tl.sum(x, axis=0))


@triton.jit
def rows_kernel(PART_ptr, Y_ptr, pieces, STEP: tl.constexpr):
    m = tl.program_id(0)
    lanes = tl.arange(0, STEP)
    total = tl.zeros((STEP,), tl.float32)
    for j in range(0, pieces, STEP):
        at = PART_ptr + m.to(tl.int64) * pieces + j + lanes
        total += tl.load(at, mask=lanes < pieces - j, other=0.0)
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
    require(M * max(pieces, 1) < 2**31 and N < 2**30, "too large for one launch")
    PART = torch.empty((M, pieces), dtype=torch.float32, device=X.device)
    if M > 0:
        with torch.cuda.device_of(X):
            # The second launch sees all that the first wrote; a grid of 0 is not launched.
            if pieces > 0:
                pieces_kernel[(M * pieces,)](X, PART, N, pieces, PIECE=8192, num_warps=8)
            rows_kernel[(M,)](PART, Y, pieces, STEP=1024, num_warps=4)
    if Y is not out:
        out.copy_(Y)
    return out
