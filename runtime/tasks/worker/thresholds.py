"""What a PyTorch task compares with, clamps to and adds: found in its own run.

`lt` in place of `le` shows only where an element equals the bound. `Thresholds` watches the
operations of one run and notes the numbers that they take beside values that follow from the
inputs, those of comparisons first: scalars, their defaults, small tensors that follow from no
input (the borders of `bucketize`), and the places at which an operation bends by itself (0 of relu,
3 of hardswish). It also tells whether a task does nothing but select, compare and copy: then no
value of the inputs can overflow.

For the task's own process only: it imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sketchc.runtime.tasks.worker.borders import (
    BUCKETS,
    COMPARISONS,
    EXACT,
    flat_values,
    storage_of,
)

#: Elements up to which a tensor that follows from no input counts as constants.
_FEW = 64
#: What a tensor of places is no constant of.
_BY_PLACE = frozenset({"index", "index_select", "gather", "scatter", "index_put", "take",
                       "embedding", "index_copy", "index_add", "scatter_add"})  # fmt: skip
#: Where an operation bends by itself.
_BENDS: dict[str, tuple[float, ...]] = {
    "hardswish": (-3.0, 3.0),
    "hardsigmoid": (-3.0, 3.0),
    "leaky_relu": (0.0,),
    "prelu": (0.0,),
    "_prelu_kernel": (0.0,),
    "smooth_l1_loss": (-1.0, 1.0),
    "round": (-1.5, -0.5, 0.5, 1.5, 2.5),
    "floor": (-1.0, 1.0),
    "ceil": (-1.0, 1.0),
    "trunc": (-1.0, 1.0),
}
#: What bends at a number has its own arguments first in line.
_FIRST = COMPARISONS | BUCKETS | frozenset({"eq", "ne", "clamp", "clamp_min", "clamp_max", "histc",
                                            "hardtanh", "threshold", "where", "hardshrink",
                                            "softshrink", "maximum", "minimum"})  # fmt: skip
#: Types of arguments, as a schema spells them, that are numbers beside a tensor.
_NUMBERS = ("number", "float", "Optional[number]", "Optional[float]")
_SELECTS = EXACT | _FIRST | frozenset(
    {"relu", "hardtanh", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or",
     "bitwise_not", "isnan", "isinf", "nonzero", "max_pool2d_with_indices", "bincount", "any",
     "all", "empty", "empty_like", "new_empty", "new_full", "scalar_tensor", "view_as", "narrow",
     "broadcast_to", "movedim", "swapaxes", "argsort", "_local_scalar_dense", "resolve_conj"}
)  # fmt: skip


class Thresholds(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes numbers beside what follows from `given`."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Where values are kept that follow from what was given.
        self.kept = {storage_of(tensor) for tensor in given}
        self.first: dict[float | int, None] = {}
        self.others: dict[float | int, None] = {}
        self.selecting = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler, for seconds, to keep it away from here."""
        return False

    @property
    def values(self) -> list[float | int]:
        return list({**self.first, **self.others})

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        name = func._schema.name.split("::")[-1].rstrip("_")
        tensors = [v for v in flat_values([*args, *given.values()]) if _is_tensor(v)]
        follows = any(storage_of(tensor) in self.kept for tensor in tensors)
        if follows:
            self.selecting &= name in _SELECTS
            noted = self.first if name in _FIRST or name in _BENDS else self.others
            noted |= dict.fromkeys(self._beside(func, name, args, given, tensors))
        found = func(*args, **given)
        change = self.kept.add if follows else self.kept.discard
        for value in flat_values([found]):
            if _is_tensor(value):
                change(storage_of(value))
        return found

    def _beside(
        self,
        func: Any,
        name: str,
        args: Sequence[Any],
        given: Mapping[str, Any],
        tensors: Sequence[torch.Tensor],
    ) -> Iterator[float | int]:
        """The numbers that an operation takes beside its tensors."""
        for place, argument in enumerate(func._schema.arguments):
            if str(argument.type) in _NUMBERS:
                default = args[place] if place < len(args) else argument.default_value
                value = given.get(argument.name, default)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield value
        yield from _BENDS.get(name, ())
        if name in _BY_PLACE:
            return
        for tensor in tensors:
            small = 0 < tensor.numel() <= _FEW and tensor.dtype is not torch.bool
            if small and storage_of(tensor) not in self.kept and not tensor.is_complex():
                yield from tensor.detach().reshape(-1).tolist()


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)
