"""The part of a drop-in module that checks what it is given, where kernels compute only parts of a
task. `partial_dropin` copies the text between the two marks into the drop-in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


# ---- copied from here ----
def require_construction(given: tuple[Sequence[Any], Mapping[str, Any]], wanted: Any) -> None:
    """Refuse other constructor arguments than those that the kernels were made for."""
    if given[1] or list(given[0]) != list(wanted):
        raise ValueError(f"these kernels were made and verified for the arguments {wanted!r}")


def bound(
    forward: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    shapes: Sequence[Any],
) -> list[Any]:
    """Forward's arguments by position. Raises `ValueError` for tensors of another type or shape
    than these kernels were made for, and `TypeError` for what is no tensor."""
    found = inspect.signature(forward).bind(None, *args, **kwargs)
    found.apply_defaults()
    names = list(found.arguments)[1:]
    values = list(found.arguments.values())[1:]
    for name, value, wanted in zip(names, values, shapes, strict=False):
        if wanted is None:
            continue
        dtype, shape = wanted
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is no tensor")
        if value.dtype != dtype or list(value.shape) != shape:
            told = f"{str(value.dtype)[6:]} {list(value.shape)}"
            raise ValueError(f"{name} is {told}; these kernels take {str(dtype)[6:]} {shape} alone")
    return values


# ---- to here ----
