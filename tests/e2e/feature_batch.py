"""Worker handler of the feature tests: `triton_cuda`'s own, on tensors that are not contiguous."""

from __future__ import annotations

from typing import Any

from sketchc.runtime.process.messages import Arrays
from sketchc.runtime.toolchains import guarded_call
from sketchc.runtime.toolchains.triton_cuda import worker


def run_strided(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """`run_kernel` with every tensor of two or more axes stored column by column, and every other
    one with a gap behind each element."""
    plain = guarded_call.placement

    def spread(array: Any, device: str) -> Any:
        placed = plain(array, device)
        placed.tensor = _spread(placed.tensor)
        return placed

    guarded_call.placement = spread
    return worker.run_kernel(request, arrays)


def _spread(tensor: Any) -> Any:
    import torch

    if tensor.dim() >= 2:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]
