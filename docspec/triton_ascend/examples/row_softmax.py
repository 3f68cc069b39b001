"""Softmax of rows that fit one tile: the cores share out the rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger; NaN wins, which `tl.max` does not do."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def row_softmax_kernel(X_ptr, Y_ptr, M, N, N_BLOCK: tl.constexpr):
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    for i in range(tl.program_id(0), M, tl.num_programs(0)):
        first = tl.cast(i, tl.int64) * N
        x = tl.load(X_ptr + first + lanes, mask=inside, other=float("-inf"))
        # Lanes past the row hold -inf, and exp makes 0 of it: the sum needs no select.
        x = tl.exp(x - tl.reduce(x, 0, nan_maximum))
        tl.store(Y_ptr + first + lanes, x / tl.sum(x, axis=0), mask=inside)


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


def row_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    require(N <= 8192, f"N must be at most 8192, not {N}")
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    require(M < 2**30, "too many rows for one launch")
    if M * N > 0:
        row_softmax_kernel[(min(M, 40),)](X, Y, M, N, N_BLOCK=triton.next_power_of_2(N))
    if Y is not out:
        out.copy_(Y)
    return out
