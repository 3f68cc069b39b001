"""Whether a PyTorch task draws random numbers. For the task's own process only: it imports torch.

A task that draws random numbers in `forward` has no reference: every kernel would differ from it,
and the blame would fall on the sketch or the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sketchc.runtime.tasks.worker.rng_audit import Event, first_that_differs

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


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation that draws random numbers, with the state of its generator: `events`.

    On meta tensors nothing is drawn, and the operation's name decides; elsewhere an operation that
    torch marks as random counts where its generator went on, too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[Event] = []

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
        named = name in _RANDOM
        if not named and torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **given)
        generator = given.get("generator")
        before = shared_state(generator)
        found = func(*args, **given)
        if named or shared_state(generator) != before:
            self.events.append((name, hash(before)))
        return found


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations that look at elements to know a shape, or to give a number to Python:
    `names`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See `Draws`."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
        if tags & set(func.tags):
            self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


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
        with Draws() as draws:
            run()
        found.append(draws.events)
        if not draws.events:
            return ""
    return first_that_differs(*found)
