"""The part of a drop-in module that chooses a kernel by the types of its tensors. `generic_dropin`
copies the text between the two marks into the drop-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


# ---- copied from here ----
def dtype_of(value: Any) -> Any:
    """The torch dtype of a tensor or an array; None for anything else."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    return getattr(torch, str(getattr(value, "dtype", "")), None)


def kernel_for(
    parts: Sequence[tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]],
    tensors: Sequence[Any],
    out: Any,
) -> Callable[..., Any]:
    """The kernel of `parts` (kernel, dtypes of its tensors, dtypes of its outputs) for such tensors
    and, where `out` is given, such outputs. Raises `TypeError` where there is none, and where only
    `out` would tell."""
    given = [dtype_of(value) for value in tensors]
    asked = [] if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
    results = [dtype_of(value) for value in asked]
    found = [
        (kernel, made)
        for kernel, wanted, made in parts
        if all(own is None or own == want for own, want in zip(given, wanted, strict=False))
        and all(own == want for own, want in zip(results, made, strict=False))
    ]
    if not found:
        told = ", ".join(str(own) for own in [*given, *results] if own is not None)
        raise TypeError(f"there is no kernel here for {told or 'no tensor'}")
    # Where several have the same outputs, they differ in a tensor that is absent.
    kinds = list(dict.fromkeys(", ".join(map(str, made)) for _, made in found))
    if len(kinds) > 1:
        raise TypeError(f"the outputs may be {' or '.join(kinds)}: pass out=")
    return found[0][0]


# ---- to here ----
