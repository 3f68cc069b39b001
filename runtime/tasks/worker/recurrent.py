"""Recurrent layers as steps of a loop, for traces and shapes: unrolled, a layer would be as many
operations as its sequence is long.

A loop is four operations. `counter` is its index, which runs from 0; `at` takes the element of a
sequence there; `before` is a state when the step begins, which is `initial` in the first step;
`after` takes what each state becomes, and gives the states behind all steps, then the last of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
_LIBRARY: Any = torch.library.Library("steps", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("counter(Tensor sequence, int count) -> Tensor")
_LIBRARY.define("at(Tensor sequence, Tensor counter, bool backwards) -> Tensor")
_LIBRARY.define("before(Tensor initial, Tensor counter) -> Tensor")
_LIBRARY.define("after(Tensor[] before, Tensor[] after, int count, bool backwards) -> Tensor[]")
_STEPS = torch.ops.steps

#: The states after a step, from its input (times its weights already) and the states before.
Cell = Callable[[Tensor, Sequence[Tensor], "Weights"], Sequence[Tensor]]


def _after(before: list[Tensor], after: list[Tensor], count: int, backwards: bool) -> list[Tensor]:
    histories = [each.new_empty((count, *each.shape)) for each in before]
    return [*histories, *map(torch.empty_like, before)]


# Traces run on tensors without data: no result is ever looked at.
for _name, _rule in {
    "counter": lambda sequence, count: sequence.new_empty((), dtype=torch.int64),
    "at": lambda sequence, counter, backwards: torch.empty_like(sequence[0]),
    "before": lambda initial, counter: torch.empty_like(initial),
    "after": _after,
}.items():
    _LIBRARY.impl(_name, _rule, "Meta")


class Weights:
    """The parameters of one direction of a layer, in PyTorch's order: `incoming` and `own` (for
    states) with their biases, and a projection of the state."""

    def __init__(self, given: Sequence[Tensor], biases: bool) -> None:
        self.incoming, self.own, *rest = given
        bias: list[Tensor | None] = [*rest[:2]] if biases else [None, None]
        self.incoming_bias, self.own_bias = bias
        left = rest[2:] if biases else rest
        self.projection = left[0] if left else None

    def of_incoming(self, data: Tensor) -> Tensor:
        """The linear part of a cell that its input gives: `data` times weights, plus bias."""
        return F.linear(data, self.incoming, self.incoming_bias)

    def of_states(self, states: Tensor) -> Tensor:
        """The linear part of a cell that its states give: `states` times weights, plus bias."""
        return F.linear(states, self.own, self.own_bias)


def _elman(activation: Callable[[Tensor], Tensor]) -> Cell:
    def cell(incoming: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
        return (activation(incoming + weights.of_states(states[0])),)

    return cell


def _gru(incoming: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
    (state,) = states
    reset, update, new = incoming.chunk(3, -1)
    own_reset, own_update, own_new = weights.of_states(state).chunk(3, -1)
    new = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
    update = torch.sigmoid(update + own_update)
    return (new + update * (state - new),)


def _lstm(incoming: Tensor, states: Sequence[Tensor], weights: Weights) -> Sequence[Tensor]:
    state, memory = states
    gates = incoming + weights.of_states(state)
    inward, forget, new, outward = gates.chunk(4, -1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(inward) * torch.tanh(new)
    state = torch.sigmoid(outward) * torch.tanh(memory)
    if weights.projection is not None:
        state = F.linear(state, weights.projection)
    return state, memory


def _layer(cell: Cell, kinds: int) -> Callable[..., Any]:
    """A recurrent function of PyTorch's, with `kinds` kinds of states, that runs as a loop."""

    def run(
        data: Tensor,
        states: Tensor | Sequence[Tensor],
        weights: Any,
        has_biases: Any = None,
        num_layers: Any = None,
        dropout: float = 0.0,
        train: bool = False,
        bidirectional: bool = False,
        batch_first: bool | None = None,
    ) -> Any:
        if batch_first is None or (dropout and train):
            return NotImplemented  # sequences of several lengths, packed
        directions = 2 if bidirectional else 1
        first = [states] if isinstance(states, Tensor) else list(states)
        each = len(weights) // (num_layers * directions)
        last: list[list[Tensor]] = [[] for _ in range(kinds)]
        sequence = data.transpose(0, 1) if batch_first else data
        for layer in range(num_layers):
            outputs = []
            for backwards in (False, True)[:directions]:
                number = layer * directions + backwards
                own = Weights(weights[number * each : (number + 1) * each], has_biases)
                initial = [kind[number] for kind in first]
                found, ends = _steps(cell, sequence, initial, own, backwards=backwards)
                outputs.append(found)
                for kind, end in zip(last, ends, strict=True):
                    kind.append(end)
            sequence = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        output = sequence.transpose(0, 1) if batch_first else sequence
        return output, *(torch.stack(kind) for kind in last)

    return run


def _steps(
    cell: Cell, sequence: Tensor, initial: Sequence[Tensor], weights: Weights, *, backwards: bool
) -> tuple[Tensor, Sequence[Tensor]]:
    """The first kind of state behind each step of a layer, and all states behind the last step."""
    count = sequence.shape[0]
    incoming = weights.of_incoming(sequence)
    counter = _STEPS.counter(sequence, count)
    before = [_STEPS.before(each, counter) for each in initial]
    now = _STEPS.at(incoming, counter, backwards)
    after = list(cell(now, before, weights))
    found = _STEPS.after(before, after, count, backwards)
    return found[0], found[len(before) :]


def _one_step(cell: Cell) -> Callable[..., Any]:
    """A function of PyTorch's that makes one step, without writes in place."""

    def run(data: Tensor, states: Tensor | Sequence[Tensor], *weights: Tensor | None) -> Any:
        given = [each for each in weights if each is not None]
        own = Weights(given, len(given) > 2)
        before = [states] if isinstance(states, Tensor) else states
        after = cell(own.of_incoming(data), before, own)
        return after[0] if isinstance(states, Tensor) else tuple(after)

    return run


#: The replacements, by function.
LAYERS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.rnn_tanh: _layer(_elman(torch.tanh), 1),
    torch.rnn_relu: _layer(_elman(torch.relu), 1),
    torch.gru: _layer(_gru, 1),
    torch.lstm: _layer(_lstm, 2),
    torch.rnn_tanh_cell: _one_step(_elman(torch.tanh)),
    torch.rnn_relu_cell: _one_step(_elman(torch.relu)),
    torch.gru_cell: _one_step(_gru),
    torch.lstm_cell: _one_step(_lstm),
}
