"""Which symbols may be tried at other sizes than the task's, and what the model is then built with.

A model's parameters tie symbols to its init inputs. Init inputs that equal a symbol's value are
taken for that symbol when a model built with other values has parameters of the shapes that the
sketch then wants; symbols of parameters that cannot be followed keep the task's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product

import attrs

from sketchc.runtime.frontends.binding import Binding
from sketchc.runtime.frontends.task import Task
from sketchc.runtime.frontends.torch_task import TaskFailure

#: Distinct sizes to probe with.
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_MOST_TRIES = 64


@attrs.frozen
class Freedom:
    """`free` symbols, and for each init input (by position) the symbol it follows."""

    free: frozenset[str]
    follows: Mapping[int, str]

    def substitutes(self, symbols: Mapping[str, int]) -> dict[int, int]:
        """The init inputs for these sizes."""
        return {position: symbols[name] for position, name in self.follows.items()}


def find_freedom(binding: Binding, task: Task) -> Freedom:
    """Probe the task's model with other sizes."""
    names = frozenset(binding.symbols)
    state_symbols = _state_symbols(binding)
    probe = dict(zip(binding.symbols, _PRIMES, strict=False))
    if len(probe) < len(names):
        return Freedom(names - state_symbols, {})
    wanted = {
        source.state: binding.shapes(probe)[source.tensor.name]
        for source in binding.tensors
        if source.state is not None
    }
    for follows in islice(_assignments(binding), _MOST_TRIES):
        freedom = Freedom(names, follows)
        try:
            shapes = task.state_shapes(freedom.substitutes(probe))
        except TaskFailure:
            continue
        if all(shapes.get(name) == shape for name, shape in wanted.items() if name):
            return freedom
    return Freedom(names - state_symbols, {})


def _state_symbols(binding: Binding) -> frozenset[str]:
    """The symbols in the shapes of tensors that are parameters or buffers of the model."""
    found: set[str] = set()
    for source in binding.tensors:
        if source.state is None:
            continue
        first, second = binding.symbols, {n: v + 1 for n, v in binding.symbols.items()}
        for name in binding.symbols:
            changed = {**first, name: second[name]}
            if (
                binding.shapes(changed)[source.tensor.name]
                != binding.shapes(first)[source.tensor.name]
            ):
                found.add(name)
    return frozenset(found)


def _assignments(binding: Binding) -> list[dict[int, str]]:
    """Ways to let init inputs follow symbols of the same value, the fullest first."""
    choices: list[list[tuple[int, str | None]]] = []
    for position, value in enumerate(binding.description.init_inputs):
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        names = [name for name, size in binding.symbols.items() if size == value]
        if names:
            choices.append([*((position, name) for name in names), (position, None)])
    found = [
        {position: name for position, name in combination if name is not None}
        for combination in islice(product(*choices), _MOST_TRIES)
    ]
    return sorted(found, key=len, reverse=True)


def tied_note(binding: Binding, freedom: Freedom) -> str:
    """A note on the symbols that keep the task's size; "" when all are free."""
    tied = [s.name for s in binding.sketch.symbols if s.name not in freedom.free]
    if not tied:
        return ""
    return f"{', '.join(tied)} kept at the task's size: the model's parameters fix it"
