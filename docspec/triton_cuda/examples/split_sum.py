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


class LaunchError(ValueError):
    """The arguments do not fit the kernel."""


def require(holds: bool, message: str) -> None:
    """Raise `LaunchError` unless `holds`."""
    if not holds:
        raise LaunchError(message)


def check(
    name: str,
    tensor: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Raise `LaunchError` unless the tensor has this type and shape and lies on this device."""
    fits = tensor.dtype == dtype and tuple(tensor.shape) == shape and tensor.device == device
    require(fits, f"{name} must be {dtype} of shape {shape} on {device}")


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first byte and of the byte after the last; equal for no elements."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * tensor.element_size()


def result(
    out: torch.Tensor | None,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    inputs: tuple[torch.Tensor, ...],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output (a new one, or `out` after its checks) and the dense buffer to compute in."""
    device = inputs[0].device
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=device)
    else:
        check("out", out, dtype, shape, device)
        low, high = span(out)
        for start, stop in map(span, inputs):
            require(high <= start or stop <= low, "out overlaps an input")
    dense = out if out.is_contiguous() else torch.empty(shape, dtype=dtype, device=device)
    return out, dense


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
