"""Modes for PyTorch's convolutions: checks without data, and float64 of large images in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: Transposed convolutions, with the number of axes of an image that windows move along.
_TRANSPOSED = {torch.conv_transpose1d: 1, torch.conv_transpose2d: 2, torch.conv_transpose3d: 3}
_PLAIN = frozenset({torch.conv1d, torch.conv2d, torch.conv3d})
#: Elements of all windows that are laid out at once: half a GiB in float64.
_WINDOWS = 1 << 26


class AsWithData(TorchFunctionMode):
    """Refuses convolutions that PyTorch refuses with data and may take without it: inputs of other
    channels than the weight of a transposed one has, and windows larger than the input."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dimensions = _TRANSPOSED.get(func)
        if dimensions is not None and len(args) > 1:
            given, wanted = args[0].shape[-dimensions - 1], args[1].shape[0]
            if given != wanted:
                raise RuntimeError(f"{given} channels for a transposed convolution of {wanted}")
        found = func(*args, **(kwargs or {}))
        if func in _PLAIN and args and 0 in found.shape and 0 not in args[0].shape:
            raise RuntimeError(f"no window of a convolution fits into {list(args[0].shape)}")
        return found


class InParts(TorchFunctionMode):
    """Runs convolutions in float64 on so few images, and in transposed ones on so few channels of
    the result, at a time that their memory stays reasonable.

    For want of a faster way, PyTorch lays out the windows of all images side by side, and then
    multiplies: 27 times the input for a window of 3 x 3 x 3, or as many times the result.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func not in _PLAIN and func not in _TRANSPOSED:
            return func(*args, **named)
        if len(args) < 2 or args[0].dtype != torch.float64 or args[0].dim() != args[1].dim():
            return func(*args, **named)
        images, weight, *rest = args
        if not images.numel():
            return func(*args, **named)
        if func in _PLAIN:
            windows = images[0].numel() * prod(weight.shape[2:])
            return _by_images(func, images, windows, (weight, *rest), named)
        return _by_channels(func, images, weight, rest, named)


def _by_channels(
    func: Any, images: torch.Tensor, weight: torch.Tensor, rest: list[Any], named: dict[str, Any]
) -> torch.Tensor:
    """A transposed convolution, a few channels of its result at a time where it has one group;
    `rest`: bias, stride, padding, output padding, groups, dilation."""
    bias = rest.pop(0) if rest else named.pop("bias", None)
    groups = rest[3] if len(rest) > 3 else named.get("groups", 1)
    channels = weight.shape[1]
    of_one = groups * prod(weight.shape[2:]) * prod(images.shape[2:])
    size = max(1, _WINDOWS // of_one) if groups == 1 else channels
    parts = [slice(start, start + size) for start in range(0, channels, size)]
    found = []
    for part in parts:
        own = bias if bias is None or len(parts) == 1 else bias[part]
        windows = min(size, channels) * of_one
        found.append(_by_images(func, images, windows, (weight[:, part], own, *rest), named))
    return torch.cat(found, 1) if len(found) > 1 else found[0]


def _by_images(
    func: Any, images: torch.Tensor, windows: int, rest: Sequence[Any], named: Mapping[str, Any]
) -> torch.Tensor:
    """A convolution, a few images at a time; `windows`: elements that are laid out for each."""
    most = max(1, _WINDOWS // max(1, windows))
    found = [func(part, *rest, **named) for part in torch.split(images, most)]
    return torch.cat(found) if len(found) > 1 else found[0]
