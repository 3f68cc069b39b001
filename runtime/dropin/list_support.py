"""The part of a drop-in module that chooses the kernel for its inputs, where the lists of inputs of
a task need different kernels. `lists_dropin` copies the text between the two marks into the
drop-in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch


# ---- copied from here ----
def names_of(forward: Callable[..., Any]) -> list[str]:
    """The names of the parameters of `forward` after self."""
    return list(inspect.signature(forward).parameters)[1:]


def parts_of(values: Sequence[Any]) -> Iterator[Any]:
    """The values; a container with tensors or arrays in it is replaced by what it holds."""
    for value in values:
        inner = list(value.values()) if isinstance(value, dict) else value
        held = isinstance(inner, (list, tuple)) and list(parts_of(inner))
        if held and any(isinstance(form_of(part), tuple) for part in held):
            yield from held
        else:
            yield value


def form_of(value: Any) -> Any:
    """What a kernel is chosen by: the dtype of a tensor or an array and, for each axis, "1" for
    extent 1 and "n" for others; None and numbers as they are; the `repr` of other values."""
    if isinstance(value, torch.Tensor):
        return value.dtype, *("1" if size == 1 else "n" for size in value.shape)
    if type(value).__name__ == "ndarray":
        ones = ["1" if size == 1 else "n" for size in value.shape]
        return getattr(torch, value.dtype.name, None), *ones
    return value if value is None or isinstance(value, (bool, int, float)) else repr(value)


def ranks_of(forms: Sequence[Any]) -> list[Any]:
    """The forms, with those of tensors reduced to (dtype, rank)."""
    return [(form[0], len(form) - 1) if isinstance(form, tuple) else form for form in forms]


def alike(forms: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether both lists of forms are equal, also in the types of numbers."""
    pairs = list(zip(forms, others, strict=False))
    return len(forms) == len(others) and all(type(a) is type(b) and a == b for a, b in pairs)


def tensors_of(forms: Sequence[Any]) -> list[Any]:
    """The forms of tensors and arrays, without those of other values."""
    return [form for form in forms if isinstance(form, tuple)]


def chosen(
    order: Sequence[str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    served: Sequence[tuple[int, Sequence[Any]]],
) -> int:
    """The number of the kernel made for such inputs: in `served` (kernel, forms) the first with
    equal forms, else with equal types, ranks and constants, else with tensors of equal types and
    ranks. `order` are the names of forward's arguments. Raises `TypeError` where there is none."""
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
