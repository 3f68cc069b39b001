"""Softmax of rows that fit one tile: one program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger; NaN wins, which `tl.max` does not do."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def row_softmax_kernel(X_ptr, Y_ptr, N, N_BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    lanes = tl.arange(0, N_BLOCK)
    inside = lanes < N
    # -inf is the identity of the maximum; after exp it is 0, the identity of the sum.
    x = tl.load(X_ptr + first + lanes, mask=inside, other=float("-inf"))
    x = tl.exp(x - tl.reduce(x, 0, nan_maximum))
    total = tl.sum(tl.where(inside, x, 0.0), axis=0)
    tl.store(Y_ptr + first + lanes, x / total, mask=inside)


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
    require(M < 2**31, "too many rows for one launch")
    if M * N > 0:
        N_BLOCK = triton.next_power_of_2(N)
        with torch.cuda.device_of(X):
            row_softmax_kernel[(M,)](
                X, Y, N, N_BLOCK=N_BLOCK, num_warps=min(max(N_BLOCK // 256, 1), 16)
            )
    if Y is not out:
        out.copy_(Y)
    return out
