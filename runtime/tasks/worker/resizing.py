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
        aten._adaptive_avg_pool2d.default: _mean,
        aten._adaptive_avg_pool3d.default: _mean,
        aten.adaptive_max_pool2d.default: _largest,
        aten.adaptive_max_pool3d.default: _largest,
        aten.upsample_bicubic2d.default: _bicubic,
    }


def _across(*values: Tensor) -> tuple[Tensor, ...]:
    """Values by window and place in it, [windows, places] for each axis of an image, shaped to
    broadcast over the windows of all axes and then the places of all axes."""
    return tuple(_across_one(value, axis, len(values)) for axis, value in enumerate(values))


def _across_one(value: Tensor, axis: int, axes: int) -> Tensor:
    shape = [1] * (2 * axes)
    shape[axis], shape[axes + axis] = value.shape
    return value.reshape(shape)


def _taken(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """The elements in the windows at these places along the last axes: [..., windows, places]."""
    index: tuple[Any, ...] = (..., *_across(*places))
    return x[index]


def _largest(x: Tensor, size: Sequence[int]) -> Any:
    """`adaptive_max_pool2d` and 3d, the maximum of each window and its index: window i of n begins
    at i*N // n and ends before (i + 1)*N / n. All windows are as long as the longest: shorter ones
    have their last element several times."""
    axes, extents = len(size), x.shape[-len(size) :]
    places = [
        _window(torch.arange(count).unsqueeze(-1), extent, count)
        for extent, count in zip(extents, size, strict=True)
    ]
    found = _taken(x, places).flatten(-axes)
    left, index, scale = found.argmax(-1), torch.zeros((), dtype=torch.int64), 1
    for axis in reversed(range(axes)):
        shape = [-1 if other == axis else 1 for other in range(axes)]
        window, longest = torch.arange(size[axis]).reshape(shape), places[axis].shape[-1]
        place = _place(window, left % longest, extents[axis], size[axis])
        left, index, scale = left // longest, place * scale + index, scale * extents[axis]
    return found.amax(-1), index


def _mean(x: Tensor, size: Sequence[int]) -> Tensor:
    """`adaptive_avg_pool2d` and 3d, the mean of each window, which lie as those of `_largest`."""
    axes, extents = len(size), x.shape[-len(size) :]
    if not any(extent % count for extent, count in zip(extents, size, strict=True)):
        pool = {2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d}[axes]
        return pool(x, [extent // count for extent, count in zip(extents, size, strict=True)])
    own = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    numbers = [torch.arange(count).unsqueeze(-1) for count in size]
    given = list(zip(numbers, extents, size, strict=True))
    found = _taken(own, [_window(*each) for each in given])
    counted = torch.ones((), dtype=own.dtype)
    for axis, each in enumerate(given):
        length = _end(*each) - _begin(*each)
        inside = torch.arange(found.shape[axis - axes]) < length
        found = torch.where(_across_one(inside, axis, axes), found, 0.0)
        counted = counted * length.reshape([-1 if n == axis else 1 for n in range(axes)])
    return (found.sum(tuple(range(-axes, 0))) / counted).to(x.dtype)


def _window(number: Tensor, extent: int, count: int) -> Tensor:
    longest = extent if count == 1 else -(-extent // count) + 1
    return _place(number, torch.arange(longest), extent, count)


def _place(number: Tensor, offset: Tensor, extent: int, count: int) -> Tensor:
    """The index in the image of an offset in a window; of its last element for larger offsets."""
    return torch.minimum(_begin(number, extent, count) + offset, _end(number, extent, count) - 1)


def _begin(number: Tensor, extent: int, count: int) -> Tensor:
    """The first index of a window."""
    return number * extent // count


def _end(number: Tensor, extent: int, count: int) -> Tensor:
    """The index behind the last one of a window."""
    return ((number + 1) * extent + count - 1) // count


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
