"""What the operations of a PyTorch task's run tell: which other answers its arithmetic allows
(`Borders`), at which numbers its results may change abruptly (`Thresholds`), whether it draws
random numbers (`RandomOperations`) and whether it looks at elements (`Reads`).

A kernel's value before a rounding (`round`, `floor`, a cast to an integer, `bucketize`, a
comparison) is off by rounding errors, as the task's own is; near a border it may fall on the other
side. `Borders` runs a task with every such value moved by its tolerance, down or up, so that its
outputs hold what lies on the other side, whatever the task computes from it; no result moves by
more than one step. Among elements that are equal within tolerance, argmax, topk and sort then give
the index of the first or the last. Without a move, `Borders` notes the values before roundings, and
the operands of operations that give indices. What follows from inputs by selecting, copying and
changing signs alone is exact, and never moved.

`lt` in place of `le` shows only where an element equals the bound. `Thresholds` notes the numbers
that operations take beside values that follow from the inputs, those of comparisons first: scalars,
their defaults, small tensors that follow from no input (the borders of `bucketize`), and the places
at which an operation's own definition changes (0 of relu, 3 of hardswish). It also tells whether a
task does nothing but select, compare and copy: then no value of the inputs can overflow.

A task that draws random numbers in `forward` has no reference: every kernel would differ from it,
and the blame would fall on the sketch or the code.

For the task's own process only: it imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sketchc.runtime.tasks.worker.rng_audit import Event, first_that_differs

_ROUNDINGS = frozenset({"round", "floor", "ceil", "trunc", "sign"})
BUCKETS = frozenset({"bucketize", "searchsorted"})
COMPARISONS = frozenset({"lt", "le", "gt", "ge"})
#: Operations that round the quotient of their operands.
_QUOTIENTS = frozenset({"floor_divide", "remainder", "fmod"})
#: Operations that give indices -> whether those of the largest; None: an argument says it.
_PLACES: dict[str, bool | None] = {
    "argmax": True,
    "argmin": False,
    "max": True,
    "min": False,
    "topk": None,
    "sort": None,
}
#: Operations that give elements of their operands, or constants: exact operands stay exact.
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
#: Elements that are squared at a time.
_BLOCK = 1 << 22
#: Elements up to which values are noted.
_NOTED = 1 << 22
#: Half a unit in the last place of f32 at 1, for a constant that f32 cannot hold.
_HALF_UNIT = 2.0**-24
#: Elements up to which a tensor that follows from no input counts as constants.
_FEW = 64
#: Operations whose small tensors are indices, and no constants to note.
_BY_PLACE = frozenset({"index", "index_select", "gather", "scatter", "index_put", "take",
                       "embedding", "index_copy", "index_add", "scatter_add"})  # fmt: skip
#: The numbers at which an operation's own definition changes.
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
#: Operations whose results change at the numbers that they take: these numbers come first.
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
#: Operations that draw random numbers whatever their arguments are. Not every operation that torch
#: marks as random is: rrelu and attention are marked without training and dropout, too.
_RANDOM = frozenset(
    {
        *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm"),
        *("bernoulli", "bernoulli_", "normal", "normal_", "uniform", "uniform_", "random_"),
        *("random", "exponential", "exponential_", "multinomial", "poisson", "native_dropout"),
        *("cauchy_", "log_normal_", "geometric_"),
    }
)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of a run, by `seen`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: else torch would import its compiler and Triton, for seconds, to skip them."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.seen(func, args, dict(kwargs or {}))

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The result of one operation for its arguments."""
        raise NotImplementedError


@attrs.frozen
class Place:
    """The operand of an operation that gave indices, and whether it is exact."""

    values: torch.Tensor
    exact: bool


class Borders(Operations):  # type: ignore[no-untyped-call]
    """Moves values before a rounding by `move` (-1, 0 or 1) times their tolerance: `rtol` of an
    element's magnitude and of the root mean square."""

    def __init__(self, exact: Sequence[torch.Tensor], move: int, rtol: float) -> None:
        super().__init__()
        self.move, self.rtol = move, rtol
        #: The addresses of the storages of exact elements.
        self.kept = {storage_of(tensor) for tensor in exact}
        self.rounded: list[torch.Tensor] = []
        self.places: list[Place] = []
        #: Whether anything that is not exact was rounded.
        self.open = False

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Runs one operation, its operand moved where it rounds."""
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
        """Whether the result of an operation is exact, as that of every rounding is."""
        if name in _ROUNDINGS or name == "lift_fresh":
            return True
        if name not in EXACT and not (name in ("mul", "div") and _by_power_of_two(given)):
            return False
        return all(self._is_exact(value) for value in flat_values(given))

    def _mark(self, found: Any, *, exact: bool) -> None:
        change = self.kept.add if exact else self.kept.discard
        for value in _tensors_in([found]):
            if value.is_floating_point():
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
        """The result of an operation, its operand moved where it rounds."""
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
        total, count = 0.0, 0
        # Not all at once: there may be gigabytes of them.
        for block in torch.split(value.reshape(-1), _BLOCK):
            finite = block[torch.isfinite(block)]
            total += float(finite.double().square().sum())
            count += finite.numel()
        return value.abs().add_(math.sqrt(total / count) if count else 0.0).mul_(self.rtol)

    def _tolerance_of(self, side: Any) -> torch.Tensor:
        """The tolerance of one side of a comparison; 0 where it is exact."""
        if self._is_exact(side):
            return torch.zeros(())
        if isinstance(side, torch.Tensor):
            return self._tolerance(side)
        return torch.tensor(_HALF_UNIT * abs(float(side)))

    @staticmethod
    def _one_step(found: torch.Tensor, moved: torch.Tensor, decimals: int = 0) -> torch.Tensor:
        """The result `moved`, limited to one step from the result `found`."""
        step = 10.0**-decimals if decimals else 1
        if found.dtype is torch.bool:
            return moved
        return torch.where(
            moved > found, torch.minimum(moved, found + step), torch.maximum(moved, found - step)
        ).to(found.dtype)

    # ------------------------------------------------------------ places

    def _placed(self, func: Any, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The result of argmax or its like: of elements equal within tolerance the first or
        last."""
        found = func(*args, **given)
        parts = found if isinstance(found, tuple) else (found,)
        places, value = parts[-1], args[0]
        if places.is_floating_point() or not value.numel():
            return found  # the maximum of all elements, or of two tensors
        along = _argument(func, "dim", args, given)
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
        flat = value.reshape(-1) if along is None else value
        along = -1 if along is None else along % max(value.dim(), 1)
        ramp = torch.linspace(0.0, 1.0, flat.shape[along], dtype=flat.dtype)
        shape = [1] * max(flat.dim(), 1)
        shape[along] = -1
        ramp = ramp.reshape(shape) if flat.dim() else torch.zeros(())
        prefer = self.move if largest else -self.move
        bent = self._tolerance(flat).mul_(prefer * ramp).add_(flat)
        again = func(bent.reshape(value.shape), *args[1:], **given)
        if not isinstance(again, tuple):
            return again
        parts = (_picked(flat, again[-1], along), again[-1])
        return parts if type(found) is tuple else type(found)(parts)


def _picked(value: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
    """The elements of `value` at the indices `places`, which may lack the reduced axis."""
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


def _rounded_argument(name: str) -> int:
    """The position of the argument that an operation rounds."""
    return 1 if name in ("searchsorted", "copy") else 0


def _is_quotient(name: str, given: Mapping[str, Any]) -> bool:
    return name in _QUOTIENTS or (name == "div" and given.get("rounding_mode") is not None)


def storage_of(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def _representable(value: float) -> bool:
    """Whether f32 can hold a constant exactly."""
    return bool(torch.tensor(value, dtype=torch.float32).double().item() == value)


def _by_power_of_two(given: Sequence[Any]) -> bool:
    numbers = [
        float(value) for value in given if not isinstance(value, torch.Tensor) or not value.dim()
    ]
    one = numbers[0] if len(numbers) == 1 and len(given) == 2 else 0.0
    return abs(math.frexp(one)[0]) == 0.5


def flat_values(values: Sequence[Any]) -> list[Any]:
    """The values of nested lists and tuples, in order."""
    found: list[Any] = []
    for value in values:
        found += flat_values(value) if isinstance(value, list | tuple) else [value]
    return found


def _tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in flat_values(values) if isinstance(value, torch.Tensor)]


def explored(
    run: Callable[[Callable[[Sequence[torch.Tensor]], Borders]], list[torch.Tensor]], rtol: float
) -> tuple[list[list[torch.Tensor]], list[torch.Tensor], list[Place]]:
    """The outputs of runs with values before roundings moved down, and up; these values; and the
    operands of operations that gave indices. `run` runs in the mode that its argument makes."""
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


class Thresholds(Operations):  # type: ignore[no-untyped-call]
    """Notes the numbers that operations take beside tensors that follow from `given`."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        #: The addresses of the storages of values that follow from what was given.
        self.kept = {storage_of(tensor) for tensor in given}
        self.first: dict[float | int, None] = {}
        self.others: dict[float | int, None] = {}
        self.selecting = True

    @property
    def values(self) -> list[float | int]:
        """The numbers, first those at which results change abruptly."""
        return list({**self.first, **self.others})

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Notes the numbers of one operation."""
        name = func._schema.name.split("::")[-1].rstrip("_")
        tensors = _tensors_in([*args, *given.values()])
        follows = any(storage_of(tensor) in self.kept for tensor in tensors)
        if follows:
            self.selecting &= name in _SELECTS
            noted = self.first if name in _FIRST or name in _BENDS else self.others
            noted |= dict.fromkeys(self._beside(func, name, args, given, tensors))
        found = func(*args, **given)
        change = self.kept.add if follows else self.kept.discard
        for value in _tensors_in([found]):
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
        """The numbers that an operation takes beside tensors that follow from the inputs."""
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


class RandomOperations(Operations):  # type: ignore[no-untyped-call]
    """Notes every operation that draws random numbers, with the state of its generator: `events`.

    On meta tensors nothing is drawn, and the operation's name decides; elsewhere an operation that
    torch marks as random counts where its generator went on, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Notes one operation that draws."""
        name = func._schema.name.split("::")[-1]
        named = name in _RANDOM
        if not named and torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **given)
        generator = given.get("generator")
        before = shared_state(generator)
        found = func(*args, **given)
        if named or shared_state(generator) != before:
            self.events.append((name, hash(before)))
        return found


class Reads(Operations):  # type: ignore[no-untyped-call]
    """Notes the operations that look at elements to know a shape, or to give a number to Python:
    `names`."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def seen(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Notes one operation that looks at elements."""
        tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
        if tags & set(func.tags):
            self.names.append(func._schema.name)
        return func(*args, **given)


def shared_state(generator: torch.Generator | None = None) -> bytes:
    """The state of a generator; by default of the one that operations share."""
    state = torch.get_rng_state() if generator is None else generator.get_state()
    return state.cpu().numpy().tobytes()


def random_operation(run: Callable[[], object]) -> str:
    """The first operation in `run` that draws random numbers; "" for none, and where the task
    seeds them itself. `run` is called twice where it draws."""
    found: list[list[Event]] = []
    for seed in (0x5EED, 0xBEE5):
        torch.manual_seed(seed)
        with RandomOperations() as draws:
            run()
        found.append(draws.events)
        if not draws.events:
            return ""
    return first_that_differs(*found)
