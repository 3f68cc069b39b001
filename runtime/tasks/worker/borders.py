"""Other answers that a PyTorch task's own arithmetic allows, found by moving what it rounds.

A kernel's value before a rounding (`round`, `floor`, a cast to an integer, `bucketize`, a
comparison) is off by rounding errors, as the task's own is; near a border it may fall on the other
side. `Borders` runs a task with every such value moved by its tolerance, down or up, so that its
outputs hold what lies on the other side, whatever the task computes from it; nothing moves by more
than one step. Among elements that are as large within tolerance, argmax, topk and sort then name
the first or the last. Without a move it notes the values before roundings, and those of which
places are named. What follows from inputs by selecting, copying and changing signs alone is exact,
and never moved.

For the task's own process only: it imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ROUNDINGS = frozenset({"round", "floor", "ceil", "trunc", "sign"})
BUCKETS = frozenset({"bucketize", "searchsorted"})
COMPARISONS = frozenset({"lt", "le", "gt", "ge"})
#: Their quotient is what is rounded.
_QUOTIENTS = frozenset({"floor_divide", "remainder", "fmod"})
#: Operations that name places -> whether they name the largest; None: an argument says it.
_PLACES: dict[str, bool | None] = {
    "argmax": True,
    "argmin": False,
    "max": True,
    "min": False,
    "topk": None,
    "sort": None,
}
#: What gives elements of its operands (or no new ones), so that exact operands stay exact.
EXACT = (
    _ROUNDINGS
    | BUCKETS
    | COMPARISONS
    | frozenset(_PLACES)
    | frozenset(
        {
            *("clone", "detach", "alias", "lift_fresh", "copy", "_to_copy", "contiguous", "fill"),
            *("view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "permute", "t"),
            *("transpose", "slice", "select", "unsqueeze", "squeeze", "as_strided", "diagonal"),
            *("split", "split_with_sizes", "unbind", "unfold", "flip", "roll", "repeat", "cat"),
            *("stack", "index", "gather", "index_select", "embedding", "take", "constant_pad_nd"),
            *("neg", "abs", "relu", "clamp", "clamp_min", "clamp_max", "maximum", "minimum"),
            *("amax", "amin", "where", "masked_fill", "tril", "triu", "zeros", "zeros_like"),
            *("ones", "ones_like", "full", "full_like", "new_zeros", "new_ones", "arange"),
            *("index_put", "scatter", "index_copy", "slice_scatter", "masked_select"),
        }
    )
)
_INTEGERS = frozenset(
    {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32}
)
#: Elements up to which values are noted.
_NOTED = 1 << 22
#: Half a unit in the last place of f32 at 1, for a constant that f32 cannot hold.
_HALF_UNIT = 2.0**-24


@attrs.frozen
class Place:
    """What an operation named places of, and whether that is exact."""

    values: torch.Tensor
    exact: bool


class Borders(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves what is rounded by `move` (-1, 0 or 1) times its tolerance; `rtol` of an element's
    magnitude and of the root mean square."""

    def __init__(self, exact: Sequence[torch.Tensor], move: int, rtol: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.move, self.rtol = move, rtol
        #: Where exact elements are kept.
        self.kept = {storage_of(tensor) for tensor in exact}
        self.rounded: list[torch.Tensor] = []
        self.places: list[Place] = []
        #: Whether anything that is not exact was rounded.
        self.open = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler, for seconds, to keep it away from here."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        name = func._schema.name.split("::")[-1]
        plain = name.rstrip("_")
        exact = self._follows(plain, [*args, *given.values()])
        if name.endswith("_") and plain != "copy" and self._looked_at(plain, args, given):
            copied = args[0].clone()
            found = args[0].copy_(self._moved(func, plain, (copied, *args[1:]), given))
        else:
            found = self._moved(func, plain, args, given)
        self._mark(found, exact=exact)
        return found

    # ------------------------------------------------------------ what is exact

    def _is_exact(self, value: object) -> bool:
        if not isinstance(value, torch.Tensor):
            return not isinstance(value, float) or _representable(value)
        if not value.is_floating_point() or storage_of(value) in self.kept:
            return True
        return not value.dim() and _representable(float(value))  # a number, wrapped

    def _follows(self, name: str, given: Sequence[Any]) -> bool:
        """Whether what an operation gives is exact; integers are, whatever was rounded."""
        if name in _ROUNDINGS or name == "lift_fresh":
            return True
        if name not in EXACT and not (name in ("mul", "div") and _by_power_of_two(given)):
            return False
        return all(self._is_exact(value) for value in flat_values(given))

    def _mark(self, found: Any, *, exact: bool) -> None:
        for value in flat_values([found]):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                change = self.kept.add if exact else self.kept.discard
                change(storage_of(value))

    # ------------------------------------------------------------ what is moved

    def _looked_at(self, name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
        """Whether an operation rounds floats."""
        at = _rounded_argument(name)
        value = args[at] if len(args) > at else None
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return False
        if name in ("_to_copy", "copy"):
            target = given.get("dtype") if name == "_to_copy" else args[0].dtype
            return target in _INTEGERS
        return _is_quotient(name, given) or name in _ROUNDINGS | BUCKETS | COMPARISONS

    def _moved(self, func: Any, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The operation on what is moved."""
        if name in _PLACES and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            return self._placed(func, name, args, given)
        if not self._looked_at(name, args, given):
            return func(*args, **given)
        at = _rounded_argument(name)
        value, quotient = args[at], _is_quotient(name, given)
        exact = all(self._is_exact(one) for one in flat_values([*args, *given.values()]))
        self.open |= quotient or not exact
        if value.numel() <= _NOTED and not (self.move or quotient or exact):
            self.rounded.append(value.detach().clone())
        if not self.move or (exact and not quotient):
            return func(*args, **given)
        if name == "copy":
            target = args[0].dtype
            return func(args[0], self._one_step(value.to(target), self._pushed(value).to(target)))
        if name in COMPARISONS or quotient:
            by = self.rtol * value.abs()
            if name in COMPARISONS:
                by = torch.maximum(self._tolerance_of(value), self._tolerance_of(args[1]))
            return func(value + self.move * by, *args[1:], **given)
        moved = func(*args[:at], self._pushed(value), *args[at + 1 :], **given)
        return self._one_step(func(*args, **given), moved, given.get("decimals", 0))

    def _pushed(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.move * self._tolerance(value)

    def _tolerance(self, value: torch.Tensor) -> torch.Tensor:
        magnitude = value.abs()
        finite = value[torch.isfinite(value)]
        scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        return self.rtol * (magnitude + scale)

    def _tolerance_of(self, side: Any) -> torch.Tensor:
        """Of one side of a comparison."""
        if self._is_exact(side):
            return torch.zeros(())
        if isinstance(side, torch.Tensor):
            return self._tolerance(side)
        return torch.tensor(_HALF_UNIT * abs(float(side)))

    @staticmethod
    def _one_step(found: torch.Tensor, moved: torch.Tensor, decimals: int = 0) -> torch.Tensor:
        """What is moved, at most one step from what was found."""
        step = 10.0**-decimals if decimals else 1
        if found.dtype is torch.bool:
            return moved
        return torch.where(
            moved > found, torch.minimum(moved, found + step), torch.maximum(moved, found - step)
        ).to(found.dtype)

    # ------------------------------------------------------------ places

    def _placed(self, func: Any, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """argmax and its like: the first or the last of what is as large within tolerance."""
        found = func(*args, **given)
        parts = found if isinstance(found, tuple) else (found,)
        places, value = parts[-1], args[0]
        if places.is_floating_point() or not value.numel():
            return found  # the maximum of all, or of two
        axis = _axis(func, name, args, given)
        exact = self._is_exact(value)
        self.open |= not exact
        if not self.move:
            if value.numel() <= _NOTED:
                self.places.append(Place(value.detach().clone(), exact))
            return found
        if exact:
            return found
        largest = _PLACES[name]
        if largest is None:
            wanted = "largest" if name == "topk" else "descending"
            largest = bool(_argument(func, wanted, args, given))
        flat = value.reshape(-1) if axis is None else value
        along = -1 if axis is None else axis
        ramp = torch.linspace(0.0, 1.0, flat.shape[along], dtype=flat.dtype)
        shape = [1] * max(flat.dim(), 1)
        shape[along] = -1
        ramp = ramp.reshape(shape) if flat.dim() else torch.zeros(())
        prefer = self.move if largest else -self.move
        bent = flat + prefer * ramp * self._tolerance(flat)
        again = func(bent.reshape(value.shape), *args[1:], **given)
        if not isinstance(again, tuple):
            return again
        parts = (_picked(flat, again[-1], along), again[-1])
        return parts if type(found) is tuple else type(found)(parts)


def _picked(value: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
    """The elements at places, whose axis may be gone."""
    if not value.dim() or places.dim() == value.dim():
        return value.gather(axis, places) if value.dim() else value
    return value.gather(axis, places.unsqueeze(axis)).squeeze(axis)


def _argument(func: Any, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> int | None:
    """An argument by the name that the operation's schema gives it."""
    for place, known in enumerate(func._schema.arguments):
        if known.name == name:
            default = args[place] if place < len(args) else known.default_value
            found: int | None = given.get(name, default)
            return found
    return None


def _axis(func: Any, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> int | None:
    axis = _argument(func, "dim", args, given)
    if axis is None:
        return None
    return axis % max(int(args[0].dim()), 1)


def _rounded_argument(name: str) -> int:
    """The place of what is rounded."""
    return 1 if name in ("searchsorted", "copy") else 0


def _is_quotient(name: str, given: Mapping[str, Any]) -> bool:
    return name in _QUOTIENTS or (name == "div" and given.get("rounding_mode") is not None)


def storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _representable(value: float) -> bool:
    """Whether f32 holds a constant as it is."""
    return bool(torch.tensor(value, dtype=torch.float32).double().item() == value)


def _by_power_of_two(given: Sequence[Any]) -> bool:
    numbers = [
        float(value) for value in given if not isinstance(value, torch.Tensor) or not value.dim()
    ]
    one = numbers[0] if len(numbers) == 1 and len(given) == 2 else 0.0
    return abs(math.frexp(one)[0]) == 0.5


def flat_values(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += flat_values(value) if isinstance(value, list | tuple) else [value]
    return found


def explored(
    run: Callable[[Callable[[Sequence[torch.Tensor]], Borders]], list[torch.Tensor]], rtol: float
) -> tuple[list[list[torch.Tensor]], list[torch.Tensor], list[Place]]:
    """The outputs of runs with what is rounded moved down, and up; the values before roundings; and
    what places were named of. `run` makes one run within what it is given for exact tensors."""
    made: list[Borders] = []

    def around(move: int) -> Callable[[Sequence[torch.Tensor]], Borders]:
        def chosen(exact: Sequence[torch.Tensor]) -> Borders:
            made.append(Borders(exact, move, rtol))
            return made[-1]

        return chosen

    run(around(0))
    noted = made[-1]
    outputs = [run(around(move)) for move in (-1, 1)] if noted.open else []
    return outputs, noted.rounded, noted.places
