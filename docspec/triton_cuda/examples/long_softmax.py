"""Softmax of long rows: an online pass for maximum and sum, then a pass that normalises."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger; NaN wins, which `tl.max` does not do."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def long_softmax_kernel(X_ptr, Y_ptr, N, TILE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * N
    X_ptr += first
    Y_ptr += first
    lanes = tl.arange(0, TILE)
    # What a loop carries has its type before the loop.
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for j in tl.range(0, N, TILE, num_stages=6):
        inside = lanes < N - j
        x = tl.load(X_ptr + j + lanes, mask=inside, other=float("-inf"))
        new_top = nan_maximum(top, tl.reduce(x, 0, nan_maximum))
        x = tl.where(inside, tl.exp(x - new_top), 0.0)
        total = total * tl.exp(top - new_top) + tl.sum(x, axis=0)
        top = new_top
    for j in tl.range(0, N, TILE, num_stages=6):
        inside = lanes < N - j
        x = tl.load(X_ptr + j + lanes, mask=inside, other=float("-inf"))
        tl.store(Y_ptr + j + lanes, tl.exp(x - top) / total, mask=inside)


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


def long_softmax(X: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """X: [M, N] f32. Returns Y: [M, N] f32."""
    require(X.dim() == 2, "X has 2 axes: [M, N]")
    M, N = X.shape
    check("X", X, torch.float32, (M, N), X.device)
    out, Y = result(out, torch.float32, (M, N), (X,))
    X = X.contiguous()
    require(M < 2**31 and N < 2**31 - 2048, "too large for one launch")
    if M * N > 0:
        with torch.cuda.device_of(X):
            long_softmax_kernel[(M,)](X, Y, N, TILE=2048, num_warps=8)
    if Y is not out:
        out.copy_(Y)
    return out
