"""Whether a task gives the same outputs twice. For the task's own process only: it imports torch.

A task that draws random numbers in `forward` has no reference: every kernel would differ from it,
and the blame would fall on the sketch or the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Two runs may differ by so much of the output's largest value (8 units in the last place of f32):
#: threads may add in another order each time.
RELATIVE = 8 * 2.0**-23
#: And by so much anyhow, for outputs that are nothing but rounding errors (runs are in float64).
ABSOLUTE = 1e-12
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


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the name of the first operation that draws from torch's common random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.first = ""

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
        # A generator of the task's own may well be seeded each time.
        if not self.first and name in _RANDOM and given.get("generator") is None:
            self.first = name
        return func(*args, **given)


def random_operation(run: Callable[[], object]) -> str:
    """The first operation in `run` that draws random numbers; "" for none, and where the task
    seeds them itself."""
    seed = 0x5EED
    torch.manual_seed(seed)
    with _Draws() as draws:
        run()
    return draws.first if torch.initial_seed() == seed else ""


def difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> str:
    """Where two runs differ, with both values; "" where they agree but for rounding."""
    if len(first) != len(second):
        return f"{len(first)} outputs and then {len(second)}"
    for position, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            forms = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (one, other)]
            return f"output {position} is {forms[0]} and then {forms[1]}"
        wrong = ~_alike(one.detach().cpu(), other.detach().cpu())
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            values = [_number(tensor[index].item()) for tensor in (one, other)]
            return f"output {position}, element {list(index)}: {values[0]} and then {values[1]}"
    return ""


def _alike(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Element by element: equal, both NaN, or as near as threads of another order come."""
    if not one.is_floating_point():
        return one == other
    one, other = one.double(), other.double()
    finite = one[one.isfinite()].abs()
    tolerance = ABSOLUTE + RELATIVE * (finite.max().item() if finite.numel() else 0.0)
    both_nan = one.isnan() & other.isnan()
    return (one == other) | both_nan | ((one - other).abs() <= tolerance)


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
