"""Runs of PyTorch tasks whose sorts keep the order of equal elements."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_SORTS = frozenset({torch.sort, torch.argsort, torch.Tensor.sort, torch.Tensor.argsort})
#: What stands behind the operand, by position.
_ARGUMENTS = ("dim", "descending")


class InOrder(TorchFunctionMode):
    """Makes sorts stable. PyTorch leaves it open in which order a sort gives equal elements, and
    its own choice changes with their number; a task that goes on with the indices (a rank of
    ranks, the first few of them) would have as many results. The stable one is among them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func in _SORTS and named.get("stable") is None:
            source, *rest = args or (named.pop("input"),)
            return func(source, stable=True, **named, **dict(zip(_ARGUMENTS, rest, strict=False)))
        return func(*args, **named)
