"""Which symbols may be tried at other sizes than the task's, and what the model is then built with.

A model's parameters tie symbols to its init inputs. Init inputs that equal a symbol's value may
stand for that symbol; which of them do is found by building and running the model at other sizes.
Symbols of parameters that cannot be followed keep the task's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product

import attrs
import numpy as np

from sketchc.base.types import numpy_dtype
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.sizes import nearest
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Scalar, TaskFailure
from sketchc.runtime.tasks.inputs import generate
from sketchc.runtime.tasks.task import Task

#: Distinct sizes to probe with.
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_MOST_TRIES = 64
#: How many of them are run.
_MOST_RUNS = 8


@attrs.frozen
class Freedom:
    """`free` symbols, and for each init input (by position) the symbol it follows."""

    free: frozenset[str]
    follows: Mapping[int, str]

    def substitutes(self, symbols: Mapping[str, int]) -> dict[int, int]:
        """The init inputs for these sizes."""
        return {position: symbols[name] for position, name in self.follows.items()}


def find_freedom(binding: Binding, task: Task) -> Freedom:
    """Probe the task's model with other sizes.

    Of the ways to let init inputs follow symbols, the one that ties the fewest is taken that gives
    the parameters the shapes that the sketch wants, and the outputs theirs: a kernel size that
    happens to equal the batch size stays as it is.
    """
    names = frozenset(binding.symbols)
    tied = Freedom(names - _state_symbols(binding), {})
    probe = _probe_sizes(binding)
    if len(probe) < len(names):
        return tied
    wanted = {
        source.state: binding.shapes(probe)[source.tensor.name]
        for source in binding.tensors
        if source.state is not None
    }
    fitting: list[Freedom] = []
    for follows in islice(_assignments(binding), _MOST_TRIES):
        freedom = Freedom(names, follows)
        try:
            shapes = task.state_shapes(freedom.substitutes(probe))
        except TaskFailure:
            continue
        if all(shapes.get(name) == shape for name, shape in wanted.items() if name):
            fitting.append(freedom)
    runs = (freedom for freedom in fitting[:_MOST_RUNS] if _runs(binding, task, freedom, probe))
    return next(runs, fitting[0] if fitting else tied)


def _probe_sizes(binding: Binding) -> dict[str, int]:
    """Distinct sizes where that is possible, within the task's hints."""
    found: dict[str, int] = {}
    for name, prime in zip(binding.symbols, _PRIMES, strict=False):
        domain = binding.sizes.get(name)
        size = prime if domain is None else domain.near(prime)
        while domain is not None and size in found.values():
            following = domain.at_least(size + 1)
            if following is None:
                break
            size = following
        found[name] = size
    # As near as the sketch may be launched: else neither it nor the task may give shapes at all.
    near = nearest(binding.sketch, found, binding.params, least=1)
    if (
        near is None
        or not binding.allows(near)
        or len(set(near.values())) < len(set(found.values()))
    ):
        return found
    return near


def _runs(binding: Binding, task: Task, freedom: Freedom, probe: Mapping[str, int]) -> bool:
    """Whether the task, built so, takes inputs of the probe's sizes and returns what the sketch
    returns at these sizes."""
    shapes = binding.shapes(probe)
    arguments: dict[int, Array | Scalar | None] = dict.fromkeys(binding.nothing)
    arguments |= {position: binding.number(position) for position in binding.param_inputs}
    arguments |= receiving(binding, shapes)
    state: dict[str, Array] = {}
    for source in binding.tensors:
        ones = np.ones(shapes[source.tensor.name], numpy_dtype(source.tensor.dtype))
        if source.position is not None:
            arguments[source.position] = ones
        elif source.state is not None:
            state[source.state] = ones
    try:
        inputs = [arguments[position] for position in sorted(arguments)]
        outputs = task.reference(inputs, state, freedom.substitutes(probe))
    except TaskFailure:
        return False
    return [o.shape for o in outputs] == [shapes[tensor.name] for tensor in binding.outputs]


def receiving(binding: Binding, shapes: Mapping[str, tuple[int, ...]]) -> dict[int, Array]:
    """What is in the inputs that the task only writes into, by position: numbers that show where
    the task reads them."""
    dtypes = {tensor.name: tensor.dtype for tensor in binding.outputs}
    random = np.random.default_rng(0)
    return {
        position: generate("normal", dtypes[name], shapes[name], random)
        for position, name in binding.receivers.items()
    }


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
    """Ways to let init inputs follow symbols of the same value, those that tie the fewest first."""
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
    return sorted(found, key=len)


def tied_note(binding: Binding, freedom: Freedom) -> str:
    """A note on the symbols that keep the task's size; "" when all are free."""
    tied = [s.name for s in binding.sketch.symbols if s.name not in freedom.free]
    if not tied:
        return ""
    return f"{', '.join(tied)} kept at the task's size: the model's parameters fix it"
