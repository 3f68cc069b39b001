"""Runs of PyTorch tasks in float64 with tensors that the tasks make for themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map


class JoinsFloat64(TorchFunctionMode):
    """Converts tensors that a task makes in another type (a filter, a state of zeros) to float64
    where PyTorch wants one type of all operands: in the task's own run they have one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        try:
            return func(*args, **named)
        except RuntimeError:
            kinds = {v.dtype for v in tree_leaves((args, named)) if _is_float(v)}
            if torch.float64 not in kinds or len(kinds) == 1 or "out" in named:
                raise
        if not _writes(func):
            joined = _converted(torch.float64, (args, named))
            return func(*joined[0], **joined[1])
        rest = _converted(args[0].dtype, (args[1:], named))
        return func(args[0], *rest[0], **rest[1])


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _writes(func: Any) -> bool:
    """Whether a function changes its first operand."""
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _converted(dtype: torch.dtype, values: Any) -> Any:
    return tree_map(lambda value: value.to(dtype) if _is_float(value) else value, values)
