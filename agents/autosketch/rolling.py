"""Finds the loops of a task, which a trace has unrolled, and makes them loops again.

Iterations are the same operations again and again. What an iteration takes from the one before it
is a state of the loop, a number that grows by a constant is a function of the step, and results of
all iterations, in order, are kept as one tensor. The result is a trace with the operations of
`runtime.tasks.worker.recurrent`, and `steps::joined`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import attrs
import numpy as np

Trace = Mapping[str, Any]
T = TypeVar("T")
#: A loop has at least so many iterations.
_LEAST = 8
#: Views: a trace has them where they are made, and they are moved to where they are used.
_VIEWS = frozenset(
    {
        *("select", "select_copy", "slice_copy"),
        *(f"prims::{name}" for name in ("slice", "squeeze", "transpose", "clone", "view_of")),
        *(f"prims::{name}" for name in ("split_dim", "collapse_view", "broadcast_in_dim")),
    }
)
#: A chain of at most so many views is followed.
_FEW = 16
#: At most so many repetitions are tried as iterations.
_TRIED = 32


#: The results of a node without results.
_NOTHING = [{"dtype": "NoneType", "shape": []}]


class _NoLoopError(Exception):
    """Repeated operations that are no iterations of a loop."""


def live(trace: Trace) -> Trace:
    """The trace without the nodes that nothing needs."""
    return _Nodes(trace, late=False).trace()


def rolled(trace: Trace) -> Trace:
    """The trace with its loops rolled, and without the nodes that nothing needs."""
    # Nodes that nothing needs, as for a state after the last step, make that step like the others;
    # elsewhere they are in the way.
    return min((_rolled(trace, whole) for whole in (True, False)), key=_length)


def _rolled(trace: Trace, whole: bool) -> Trace:
    found = _Nodes(_Nodes(trace, whole).trace(), whole).trace()  # the first may end readers
    while (shorter := _roll(found)) is not None:
        found = _Nodes(shorter, whole).trace()
    return live(found)


def _length(trace: Trace) -> int:
    return len(trace["nodes"])


def _roll(trace: Trace) -> Trace | None:
    for start, period in _repetitions(trace["nodes"]):
        # An iteration may begin at any of its operations: where least is left beside the loop.
        each = (partial(_Loop, trace, begin, period) for begin in range(start, start + period))
        loops = [*_made(each)]
        for by_number in (False, True):
            if found := [*_made(partial(loop.trace, by_number) for loop in loops)]:
                return min(found, key=_length)
    return None


def _made(makers: Iterable[Callable[[], T]]) -> Iterator[T]:
    """The results of those `makers` that raise no `_NoLoopError`."""
    for make in makers:
        with suppress(_NoLoopError):
            yield make()


# ---------------------------------------------------------------- values of a trace


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.keys() & {"node", "input", "state", "made"})


def _is_use(value: Any) -> bool:
    return isinstance(value, dict) and "node" in value


def _uses(value: Any) -> Iterator[Mapping[str, int]]:
    """The results of nodes in a value."""
    return (each for each in _tensors(value) if _is_use(each))


def _tensors(value: Any) -> Iterator[Mapping[str, Any]]:
    """All tensors in a value."""
    if isinstance(value, list):
        for item in value:
            yield from _tensors(item)
    elif _is_tensor(value):
        yield value


def _given(node: Mapping[str, Any]) -> list[Any]:
    """The arguments of a node."""
    return list(node["arguments"].values())


def _moved(value: Any, places: Mapping[tuple[int, int], Any]) -> Any:
    """The value with results of nodes, given as (node, result), replaced as `places` says."""
    if _is_use(value):
        return places.get((value["node"], value["of"]), value)
    if isinstance(value, list):
        return [_moved(item, places) for item in value]
    if isinstance(value, dict) and "step" in value:
        return {**value, "step": places.get((value["step"], 0), {"node": value["step"]})["node"]}
    return value


def _with_moved(node: Mapping[str, Any], places: Mapping[tuple[int, int], Any]) -> dict[str, Any]:
    """The node with results of nodes in its arguments replaced as `places` says."""
    arguments = {name: _moved(value, places) for name, value in node["arguments"].items()}
    return {**node, "arguments": arguments}


class _Nodes:
    """The nodes of a trace in another order (`late`: views stand where they are used), and only
    those that are needed, but for a `whole` trace."""

    def __init__(self, trace: Trace, whole: bool = False, *, late: bool = True) -> None:
        self.old = trace["nodes"]
        self.returned = trace["returned"]
        self.late = late
        self.needed = self.all_needed(whole)
        self.nodes: list[dict[str, Any]] = []
        self.places: dict[tuple[int, int], Any] = {}
        every = [_given(node) for number, node in enumerate(self.old) if self.needed[number]]
        self.readers = Counter(use["node"] for use in _uses([*every, self.returned]))
        #: Views of results that are concatenated, as for a stack, by the node of the result: they
        #: come directly after it, so that they are a part of the iterations.
        self.early: dict[int, list[int]] = {}
        for number, node in enumerate(self.old):
            if late and self.needed[number] and node["operation"] == "prims::cat":
                for use in _uses(_given(node)):
                    self.early_view(use["node"])

    def all_needed(self, whole: bool) -> list[bool]:
        """For each node whether it stays; one without results stays for its effect."""
        found = [whole or node["tensors"] == _NOTHING for node in self.old]
        for use in _uses(self.returned):
            found[use["node"]] = True
        for number in reversed(range(len(found))):
            for use in _uses(_given(self.old[number])) if found[number] else ():
                found[use["node"]] = True
        return found

    def trace(self) -> Trace:
        """The new trace: views of the task's tensors that have one reader stand before that reader,
        and a copy that changes neither type nor extents is replaced by its source."""
        for number, node in enumerate(self.old):
            late = self.late and self.readers[number] == 1 and self.is_view(node)
            if not late and self.needed[number]:
                self.emit(number)
        for use in _uses(self.returned):
            self.emit(use["node"])
        return {"nodes": self.nodes, "returned": _moved(self.returned, self.places)}

    def early_view(self, number: int) -> None:
        node = self.old[number]
        sources = [use["node"] for use in _uses(_given(node))]
        if self.readers[number] == 1 and node["operation"] in _VIEWS and len(sources) == 1:
            self.early.setdefault(sources[0], []).append(number)

    def is_view(self, node: Mapping[str, Any]) -> bool:
        """Whether a node is a view of a tensor of the task, directly or through other views."""
        for _ in range(_FEW):
            if node["operation"] not in _VIEWS:
                return False
            (value,) = _tensors(_given(node))
            if not _is_use(value):
                return True
            node = self.old[value["node"]]
        return False

    def emit(self, number: int) -> None:
        if (number, 0) in self.places:
            return
        node = self.old[number]
        for use in _uses(_given(node)):
            self.emit(use["node"])
        moved = _with_moved(node, self.places)
        if node["operation"] == "copy" and self.copies(node):
            self.places[number, 0] = moved["arguments"]["src"]
            return
        for of in range(len(node["tensors"])):
            self.places[number, of] = {"node": len(self.nodes), "of": of}
        self.nodes.append(moved)
        for view in self.early.get(number, ()):
            self.emit(view)

    def copies(self, node: Mapping[str, Any]) -> bool:
        """Whether the source of a copy is a result with the type and extents of the copy."""
        source = node["arguments"]["src"]
        if not _is_use(source):
            return False
        given = self.old[source["node"]]["tensors"][source["of"]]
        return bool(given == node["tensors"][0])


# ---------------------------------------------------------------- what repeats


def _kind(value: Any) -> Any:
    """A key of an argument that is the same for all tensors, and for all integers."""
    if isinstance(value, dict):
        return "tensor" if _is_tensor(value) else str(value)
    if isinstance(value, list):
        return tuple(map(_kind, value))
    return "number" if type(value) is int else repr(value)


def _repetitions(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """(start, period): where nodes begin to repeat, and after how many; the longest run first."""
    numbers: dict[Any, int] = {}
    kinds = np.array(
        [
            numbers.setdefault(
                (
                    node["operation"],
                    *((name, _kind(value)) for name, value in node["arguments"].items()),
                    *((each["dtype"], len(each["shape"])) for each in node["tensors"]),
                ),
                len(numbers),
            )
            for node in nodes
        ]
    )
    found = []
    for period in range(1, len(kinds) // _LEAST + 1):
        same = np.concatenate([[False], kinds[period:] == kinds[:-period], [False]])
        turns = np.flatnonzero(np.diff(same.astype(np.int8)))
        for start, end in zip(turns[::2], turns[1::2], strict=True):
            if (end - start) // period + 1 >= _LEAST:
                found.append((int(end - start) // period * period, int(start), period))
    found.sort(key=lambda each: (-each[0], each[2], each[1]))
    return [(start, period) for _, start, period in found[:_TRIED]]


@attrs.frozen
class _Own:
    """Result `of` of node `place` of an iteration: of the current one, or of the one `before`."""

    place: int
    of: int
    before: bool = False


@attrs.frozen
class _Line:
    """A whole number: `factor` times the step, and `shift`."""

    factor: int
    shift: int


@attrs.frozen
class _Row:
    """The result `own` of all iterations in a row among the tensors that a node concatenates, from
    number `first` on; in reverse order where it is `backwards`."""

    first: int
    own: _Own
    backwards: bool


class _Loop:
    """Nodes from `start` on, `period` of them an iteration, as a loop. Raises `_NoLoopError`."""

    def __init__(self, trace: Trace, start: int, period: int) -> None:
        self.old, self.returned = trace["nodes"], trace["returned"]
        self.start, self.period = start, period
        self.initial: dict[_Own, Any] = {}
        self.count = self.iterations()
        if self.count < _LEAST:
            raise _NoLoopError
        self.body = [self.arguments(place) for place in range(period)]
        self.end = start + self.count * period
        #: By the place of an operation that writes a result of each step to the next index of an
        #: axis of a tensor: the result, the axis, and whether it begins with the last index.
        self.written = {
            place: found for place in range(period) if (found := self.writes(place)) is not None
        }
        for place in self.written:
            del self.initial[_Own(place, 0, before=True)]
        operations = {node["operation"] for node in self.old[self.start : self.start + period]}
        if not self.initial or operations <= _VIEWS:
            raise _NoLoopError

    def writes(self, place: int) -> tuple[_Own, int, bool] | None:
        """The entry of `written` for the operation at `place`; None where it is no such write."""
        node, given = self.old[self.start + place], self.body[place]
        state = _Own(place, 0, before=True)
        if node["operation"] != "select_scatter" or given["self"] != state:
            return None
        read = [own for given in self.body for own in _owns(list(given.values()))]
        source, line, dim = given["src"], given["index"], given["dim"]
        if read.count(state) > 1 or _Own(place, 0) in read or not isinstance(source, _Own):
            return None
        if node["tensors"][0]["shape"][dim] != self.count or source.before:
            return None
        ways = {_Line(1, 0): False, _Line(-1, self.count - 1): True}
        return (source, dim, ways[line]) if line in ways else None

    def iterations(self) -> int:
        """How many iterations have the same operations, on tensors of the same shapes."""
        first = self.steps_of(0)
        count = 1
        while self.steps_of(count) == first:
            count += 1
        return count

    def steps_of(self, turn: int) -> list[tuple[str, list[Any]]]:
        """The operations of an iteration, and the shapes of what they give."""
        begin = self.start + turn * self.period
        nodes = self.old[begin : begin + self.period]
        return [(n["operation"], [each["shape"] for each in n["tensors"]]) for n in nodes]

    def arguments(self, place: int) -> dict[str, Any]:
        each = [
            self.old[self.start + turn * self.period + place]["arguments"]
            for turn in range(self.count)
        ]
        return {name: self.value([one[name] for one in each]) for name in each[0]}

    def value(self, each: Sequence[Any]) -> Any:
        """An argument in terms of the step, from its values in `each` iteration."""
        first = each[0]
        if all(one == first for one in each):
            if any(use["node"] >= self.start for use in _uses(first)):
                raise _NoLoopError  # what the first iteration alone computes
            return first
        if all(isinstance(one, list) for one in each) and len({len(one) for one in each}) == 1:
            return [self.value(one) for one in zip(*each, strict=True)]
        if all(type(one) is int for one in each):
            factor = each[1] - first
            if list(each) != [first + factor * turn for turn in range(self.count)]:
                raise _NoLoopError
            return _Line(factor, first)
        if not all(map(_is_use, each[1:])):
            raise _NoLoopError
        owns = [self.own(use, turn) for turn, use in enumerate(each) if turn]
        if len(set(owns)) > 1 or (own := owns[0]) is None:
            raise _NoLoopError
        if not own.before:
            if self.own(first, 0) != own:
                raise _NoLoopError
        elif self.initial.setdefault(own, first) != first or self.own(first, 0) is not None:
            raise _NoLoopError
        return own

    def own(self, use: Any, turn: int) -> _Own | None:
        """A result as one of iteration number `turn` or of the one before it; None if neither."""
        if not _is_use(use):
            return None
        turn_of, place = divmod(use["node"] - self.start, self.period)
        if turn_of not in (turn, turn - 1) or use["node"] < self.start:
            return None
        return _Own(place, use["of"], before=turn_of == turn - 1)

    # ------------------------------------------------------------ the trace anew

    def trace(self, by_number: bool) -> Trace:
        """The whole trace, with the loop rolled. `by_number`: what follows the loop may read the
        result of a single iteration before the last."""
        nodes = list(self.old[: self.start])
        counter = len(nodes)
        step = {"node": counter, "of": 0}
        arguments = {"sequence": next(iter(self.initial.values())), "count": self.count}
        nodes.append(_node("steps::counter", arguments, [{"dtype": "int64", "shape": []}]))
        known: dict[_Own, Any] = {}
        for own, initial in self.initial.items():
            known[own] = {"node": len(nodes), "of": 0}
            begun = {"initial": initial, "counter": step}
            nodes.append(_node("steps::before", begun, [self.result(own)]))
        computed = [place for place in range(self.period) if place not in self.written]
        for number, place in enumerate(computed, len(nodes)):
            for of in range(len(self.old[self.start + place]["tensors"])):
                known[_Own(place, of)] = {"node": number, "of": of}
        for place in computed:
            given = self.body[place]
            node = self.old[self.start + place]
            arguments = {n: _in_terms(value, known, counter) for n, value in given.items()}
            nodes.append({**node, "arguments": arguments})
        return self.rest(nodes, known, by_number)

    def result(self, own: _Own) -> Any:
        """Type and extents of a result."""
        return self.old[self.start + own.place]["tensors"][own.of]

    def rest(self, nodes: list[Any], known: Mapping[_Own, Any], by_number: bool) -> Trace:
        """Add to `nodes` what follows the loop, which reads the last of the results or all of one;
        returns the whole trace."""
        states = list(self.initial)
        kept = [own for own in self.read_later() if attrs.evolve(own, before=True) not in states]
        wanted = [*(attrs.evolve(own, before=False) for own in states), *kept]
        after = len(nodes)
        results = [self.result(own) for own in wanted]
        arguments = {
            "before": [*(known[own] for own in states), *(None for _ in kept)],
            "after": [known[own] for own in wanted],
            "count": self.count,
            "backwards": False,
        }
        all_of = [{**each, "shape": [self.count, *each["shape"]]} for each in results]
        nodes.append(_node("steps::after", arguments, [*all_of, *results]))
        self.places: dict[tuple[int, int], Any] = {}
        last = self.end - self.period
        for number, own in enumerate(wanted):
            at = {"node": after, "of": len(wanted) + number}
            self.places[last + own.place, own.of] = at
        whole = {own: {"node": after, "of": number} for number, own in enumerate(wanted)}
        for place, (source, dim, backwards) in self.written.items():
            self.places[last + place, 0] = {"node": len(nodes), "of": 0}
            nodes.append(
                _joined(whole[source], dim, backwards, True, [self.result(_Own(place, 0))])
            )
        rows = {n: self.side_by_side(self.old[n]) for n in range(self.end, len(self.old))}
        self.indexed = self.read_by_number(rows)
        if self.indexed and not by_number:
            raise _NoLoopError
        for number, row in rows.items():
            self.later(nodes, self.old[number], row, whole)
            for of in range(len(self.old[number]["tensors"])):
                self.places[number, of] = {"node": len(nodes) - 1, "of": of}
        self.select(nodes, self.returned, whole)
        return {"nodes": nodes, "returned": _moved(self.returned, self.places)}

    def turn_of(self, use: Mapping[str, int]) -> tuple[int, _Own] | None:
        """The number of the iteration that gave a result, and which of its results that is; None
        for a result of no iteration."""
        if not self.start <= use["node"] < self.end:
            return None
        turn, place = divmod(use["node"] - self.start, self.period)
        return turn, _Own(place, use["of"])

    def read_by_number(self, rows: Mapping[int, _Row | None]) -> set[_Own]:
        """The results of the loop that something reads of a single iteration before the last."""
        alone = [self.outside(self.old[n], row) for n, row in rows.items()]
        turns = filter(None, map(self.turn_of, _uses([*alone, self.returned])))
        return {own for turn, own in turns if turn < self.count - 1}

    def outside(self, node: Mapping[str, Any], row: _Row | None) -> list[Any]:
        """The arguments of a node behind the loop, without those that are its `row`."""
        if row is None:
            return _given(node)
        parts = node["arguments"]["tensors"]
        return [*parts[: row.first], *parts[row.first + self.count :]]

    def select(self, nodes: list[Any], value: Any, whole: Mapping[_Own, Any]) -> None:
        """For each result of a single iteration in `value`, add a node that selects it from the
        tensor of all iterations (`whole`)."""
        for use in _uses(value):
            found = self.turn_of(use)
            if found is None or found[1] not in self.indexed:
                continue
            turn, own = found
            if own not in whole:
                raise _NoLoopError  # a tensor that is written place by place
            if turn < self.count - 1 and (use["node"], use["of"]) in self.places:
                continue
            arguments = {"self": whole[own], "dim": 0, "index": turn}
            self.places[use["node"], use["of"]] = {"node": len(nodes), "of": 0}
            nodes.append(_node("select_copy", arguments, [self.result(own)]))

    def read_later(self) -> list[_Own]:
        """The results of the loop that nodes behind it, or the task's outputs, read."""
        later = [_given(node) for node in self.old[self.end :]]
        owns = (own for _, own in filter(None, map(self.turn_of, _uses([*later, self.returned]))))
        found = (self.written[own.place][0] if own.place in self.written else own for own in owns)
        return list(dict.fromkeys(found))

    def later(
        self, nodes: list[Any], node: Mapping[str, Any], row: _Row | None, whole: Mapping[_Own, Any]
    ) -> None:
        """Add a node behind the loop. One that concatenates all of one result (its `row`), maybe
        with others around it, becomes a `steps::joined`, and a concatenation with the others."""
        others = self.outside(node, row)
        self.select(nodes, others, whole)
        if row is None:
            nodes.append(_with_moved(node, self.places))
            return
        dim, part, tensors = node["arguments"]["dim"], self.result(row.own), node["tensors"]
        if others:
            extents = list(part["shape"])
            extents[dim] *= self.count
            tensors = [{**part, "shape": extents}]
        nodes.append(_joined(whole[row.own], dim, row.backwards, False, tensors))
        if others:
            around = _moved(others, self.places)
            around.insert(row.first, {"node": len(nodes) - 1, "of": 0})
            nodes.append({**node, "arguments": {**node["arguments"], "tensors": around}})

    def side_by_side(self, node: Mapping[str, Any]) -> _Row | None:
        """The run of one result of all iterations among the tensors that a node concatenates; None
        where there is none."""
        if node["operation"] != "prims::cat":
            return None
        parts = node["arguments"]["tensors"]
        for first in range(len(parts) - self.count + 1):
            row = parts[first : first + self.count]
            for backwards in (False, True):
                order = reversed(row) if backwards else row
                owns = {self.own(use, turn) for turn, use in enumerate(order)}
                own = owns.pop()
                if not owns and own is not None and not own.before:
                    return _Row(first, own, backwards)
        return None


def _joined(
    sequence: Any, dim: int, backwards: bool, stacked: bool, tensors: list[Any]
) -> dict[str, Any]:
    """A node that concatenates the results of all steps along an axis, or stacks them."""
    arguments = {"sequence": sequence, "dim": dim, "backwards": backwards, "stacked": stacked}
    return _node("steps::joined", arguments, tensors)


def _owns(value: Any) -> Iterator[_Own]:
    """The results of iterations in an argument."""
    match value:
        case _Own():
            yield value
        case list():
            for item in value:
                yield from _owns(item)


def _in_terms(value: Any, known: Mapping[_Own, Any], counter: int) -> Any:
    """An argument of the loop's body in the form that a trace has."""
    match value:
        case _Own():
            return known[value]
        case _Line(factor, shift):
            return {"step": counter, "factor": factor, "shift": shift}
        case list():
            return [_in_terms(item, known, counter) for item in value]
        case _:
            return value


def _node(operation: str, arguments: dict[str, Any], tensors: list[Any]) -> dict[str, Any]:
    return {"operation": operation, "arguments": arguments, "tensors": tensors}
