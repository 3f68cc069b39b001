"""How a drop-in module finds the kernel for the inputs that it is given, where a task has lists of
them that need different kernels: `lists_dropin` copies this file's text into it. The text between
the two marks is what is copied.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch


# ---- copied from here ----
def names_of(forward: Callable[..., Any]) -> list[str]:
    """What `forward` takes behind self."""
    return list(inspect.signature(forward).parameters)[1:]


def parts_of(values: Sequence[Any]) -> Iterator[Any]:
    """Tensors and arrays, those within containers by themselves, and whatever else is given."""
    for value in values:
        inner = list(value.values()) if isinstance(value, dict) else value
        held = isinstance(inner, (list, tuple)) and list(parts_of(inner))
        if held and any(isinstance(form_of(part), tuple) for part in held):
            yield from held
        else:
            yield value


def form_of(value: Any) -> Any:
    """Of a tensor or an array its type and, of each axis, whether it has one place or more; other
    values stand for themselves."""
    if isinstance(value, torch.Tensor):
        return value.dtype, *("1" if size == 1 else "n" for size in value.shape)
    if type(value).__name__ == "ndarray":
        ones = ["1" if size == 1 else "n" for size in value.shape]
        return getattr(torch, value.dtype.name, None), *ones
    return value if value is None or isinstance(value, (bool, int, float)) else repr(value)


def ranks_of(forms: Sequence[Any]) -> list[Any]:
    """Of tensors type and rank alone."""
    return [(form[0], len(form) - 1) if isinstance(form, tuple) else form for form in forms]


def alike(forms: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether they are equal, numbers in their types, too."""
    pairs = list(zip(forms, others, strict=False))
    return len(forms) == len(others) and all(type(a) is type(b) and a == b for a, b in pairs)


def tensors_of(forms: Sequence[Any]) -> list[Any]:
    """What the tensors are."""
    return [form for form in forms if isinstance(form, tuple)]


def chosen(
    order: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    served: Sequence[tuple[int, Sequence[Any]]],
) -> int:
    """The kernel that was made for such inputs: for a list that is like them, else for one with the
    same types, ranks and constants, else for one with tensors of these types and ranks. `order` are
    the names of forward's arguments."""
    by_name = [kwargs[name] for name in order if name in kwargs]
    forms = [form_of(part) for part in parts_of([*args, *by_name])]
    for kernel, wanted in served:
        if alike(forms, wanted):
            return kernel
    given = ranks_of(forms)
    for kernel, wanted in served:
        if alike(given, ranks_of(wanted)):
            return kernel
    tensors = tensors_of(given)
    for kernel, wanted in served:
        if tensors == tensors_of(ranks_of(wanted)):
            return kernel
    told = ", ".join(f"{dtype} of rank {rank}" for dtype, rank in tensors)
    raise TypeError(f"there is no kernel here for {told or 'no tensor'}")


# ---- to here ----
