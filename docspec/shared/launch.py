"""What the host functions of examples in Python share: the checks of a launch, and where its
output is computed. The loader writes the definitions into each kernel that imports them."""

from __future__ import annotations

import torch


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
