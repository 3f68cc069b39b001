"""Formulas of gathers and sums for operations that resize images, the same at all sizes: PyTorch
has no decomposition for these operations, or another one at other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
#: The free parameter of the cubic that PyTorch resizes with.
_CUBIC = -0.75


def resizing() -> dict[Any, Callable[..., Any]]:
    """The formulas by operation, as `make_fx` takes them."""
    aten = torch.ops.aten
    return {
        aten.adaptive_max_pool2d.default: _largest,
        aten.upsample_bicubic2d.default: _bicubic,
    }


def _across(down: Tensor, across: Tensor) -> tuple[Tensor, Tensor]:
    """Values by row and by column of a window, shaped to broadcast over all windows."""
    return down[:, None, :, None], across[None, :, None, :]


def _largest(x: Tensor, size: Sequence[int]) -> Any:
    """`adaptive_max_pool2d`, the maximum of each window and its index: window i of n begins at
    i*N // n and ends before (i + 1)*N / n. All windows are as long as the longest: shorter ones
    have their last element several times."""
    rows, columns = (
        _window(torch.arange(count).unsqueeze(-1), extent, count)
        for extent, count in zip(x.shape[-2:], size, strict=True)
    )
    down, across = _across(rows, columns)
    found = x[..., down, across].flatten(-2)
    chosen = found.argmax(-1)
    width = columns.shape[-1]
    window = torch.arange(size[0])[:, None], torch.arange(size[1])[None, :]
    row = _place(window[0], chosen // width, x.shape[-2], size[0])
    column = _place(window[1], chosen % width, x.shape[-1], size[1])
    return found.amax(-1), row * x.shape[-1] + column


def _window(number: Tensor, extent: int, count: int) -> Tensor:
    longest = extent if count == 1 else -(-extent // count) + 1
    return _place(number, torch.arange(longest), extent, count)


def _place(number: Tensor, offset: Tensor, extent: int, count: int) -> Tensor:
    """The index in the image of an offset in a window; of its last element for larger offsets."""
    end = ((number + 1) * extent + count - 1) // count
    return torch.minimum(number * extent // count + offset, end - 1)


def _bicubic(
    x: Tensor,
    size: Sequence[int],
    align_corners: bool,
    scale_down: float | None = None,
    scale_across: float | None = None,
) -> Tensor:
    """`upsample_bicubic2d`: each pixel is a sum over four rows and four columns around it."""
    own = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    taps = [
        _taps(own, extent, count, align_corners, scale)
        for extent, count, scale in zip(x.shape[-2:], size, (scale_down, scale_across), strict=True)
    ]
    down, across = _across(taps[0][0], taps[1][0])
    weights = _across(taps[0][1], taps[1][1])
    found = own[..., down, across] * (weights[0] * weights[1])
    return found.sum((-2, -1)).to(x.dtype)


def _taps(
    x: Tensor, extent: int, count: int, align_corners: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The four places along an axis that each new pixel is made of, and their weights."""
    number = torch.arange(count, dtype=x.dtype)
    if align_corners:
        place = number * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    else:
        place = (number + 0.5) * (1 / scale if scale else extent / count) - 0.5
    low = torch.floor(place).unsqueeze(-1)
    tap = torch.arange(4, dtype=x.dtype)
    taken = torch.clamp(low + tap - 1, 0, extent - 1).to(torch.int64)
    far = torch.abs(place.unsqueeze(-1) - low + 1 - tap)
    inner = ((_CUBIC + 2) * far - (_CUBIC + 3)) * far * far + 1
    outer = ((_CUBIC * far - 5 * _CUBIC) * far + 8 * _CUBIC) * far - 4 * _CUBIC
    return taken, torch.where(far <= 1, inner, outer)
