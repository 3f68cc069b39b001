"""A task cut into parts: those that kernels can compute, and operations that have no form, which
PyTorch computes between them (`gen --allow-partial`).

A part is a task by itself, at the sizes of the whole task's own inputs; its code is the trace, one
operation of PyTorch a line.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from sketchc.agents.autosketch.builder import plain
from sketchc.agents.autosketch.graph import Traces, foreign_types
from sketchc.agents.autosketch.operations import without_form
from sketchc.agents.autosketch.rolling import live
from sketchc.agents.autosketch.rules import views
from sketchc.agents.designer.messages import sketch_name
from sketchc.base.diagnostics import refuse
from sketchc.ir.walk import free_name
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec
from sketchc.runtime.tasks.layout import paths
from sketchc.runtime.tasks.signature import read_signature

#: A value of a trace: ("node", number, which of its results), ("input", position) or
#: ("state", name).
Value = tuple[Any, ...]


#: A view by strides, whose source is first laid out as it was in the trace.
_STRIDED = (
    "{x}.new_empty_strided({x}.shape, {{source_stride}}).copy_({x})"
    ".as_strided({{size}}, {{stride}}, {{storage_offset}})"
)
#: Views as methods of tensors.
_VIEWS = {
    "as_strided": _STRIDED.format(x="{self}"),
    "prims::as_strided": _STRIDED.format(x="{a}"),
    "prims::transpose": "{a}.permute({permutation})",
    "prims::collapse_view": "{a}.flatten({start}, {end})",
    "prims::split_dim": "{a}.unflatten({dim}, [{outer_length}, -1])",
    "prims::squeeze": "{a}.squeeze({dimensions})",
    "prims::clone": "{self}.clone()",
}


@attrs.frozen
class Piece:
    """Operations that run together, by their numbers in the trace: in a kernel, or in PyTorch.
    `takes` are the values that others computed, `gives` those that others need."""

    kernel: bool
    nodes: tuple[int, ...]
    takes: tuple[Value, ...]
    gives: tuple[Value, ...]


@attrs.frozen
class Cut:
    """A task's trace at its own sizes, in pieces in the order in which they run. `missing`: what
    there is no form for, in words; `names`: what values are called in Python code."""

    description: TaskDescription
    trace: Mapping[str, Any]
    pieces: tuple[Piece, ...]
    missing: tuple[str, ...]
    names: Mapping[Value, str]

    @property
    def kernels(self) -> tuple[Piece, ...]:
        """The pieces that kernels compute."""
        return tuple(piece for piece in self.pieces if piece.kernel)

    @property
    def returned(self) -> tuple[Value, ...]:
        """The values that the task returns."""
        return tuple(_values(self.trace["returned"]))

    def operations(self, pieces: Collection[Piece]) -> list[str]:
        """The operations of some pieces in words, each with its number of times."""
        nodes = [self.trace["nodes"][n]["operation"] for piece in pieces for n in piece.nodes]
        counts = Counter(map(plain, nodes))
        return [f"{name} ({n} times)" if n > 1 else name for name, n in sorted(counts.items())]

    def name(self, value: Value) -> str:
        """The name of a value in Python code."""
        return self.names[value]

    def code(self, piece: Piece) -> Iterator[str]:
        """The statements of a piece, one operation of PyTorch a line."""
        for number in piece.nodes:
            node = self.trace["nodes"][number]
            results = [self.names["node", number, of] for of in range(len(node["tensors"]))]
            yield f"{', '.join(results)} = {self._call(node, self._device(piece))}"

    def _device(self, piece: Piece) -> str:
        """Where a piece makes tensors of its own: where those are that it takes."""
        for value in piece.takes:
            kind, place, *_ = value
            if kind != "input" or isinstance(self.description.inputs[place], TensorSpec):
                return f"{self.names[value]}.device"
        return 'torch.device("cpu")'

    def _call(self, node: Mapping[str, Any], device: str) -> str:
        """The call of an operation: `torch.ops.aten.mm(...)`, and methods of tensors for views,
        which PyTorch does not trace as operations of `prims`. One that takes no tensor makes one on
        a `device`."""
        given = node["arguments"].items()
        told = {name: _code(value, self.names) for name, value in given if value is not None}
        if not any(_values(list(node["arguments"].values()))):
            told["device"] = device
        view = _VIEWS.get(node["operation"])
        if view is not None:
            return view.format(**told)
        if node["operation"] == "prims::broadcast_in_dim":
            (source,) = _values(node["arguments"]["a"])
            sizes = iter(self._shape(source))
            dims = node["arguments"]["broadcast_dimensions"]
            shape = node["arguments"]["shape"]
            placed = [next(sizes) if axis in dims else 1 for axis in range(len(shape))]
            return f"{told['a']}.reshape({placed}).expand({shape})"
        space, _, operation = node["operation"].rpartition("::")
        listed = ", ".join(f"{name}={text}" for name, text in told.items())
        return f"torch.ops.{space or 'aten'}.{operation}({listed})"

    def _shape(self, value: Value) -> Sequence[int]:
        match value:
            case ("node", number, of):
                found: Sequence[int] = self.trace["nodes"][number]["tensors"][of]["shape"]
                return found
            case ("input", position):
                given = self.description.inputs[position]
                return given.shape if isinstance(given, TensorSpec) else ()
        return next(state.shape for state in self.description.state if state.name == value[1])


def cut(task: TaskClient) -> Cut | None:
    """The task in pieces; None where every operation has a form, or none that computes has one.
    Raises `UsageError` for a task that cannot be cut, and `TaskFailure` for one that cannot be
    traced."""
    description, trace, missing, foreign = _traced(task)
    missing |= foreign
    pieces = tuple(_pieces(trace, missing))
    if not missing or not any(piece.kernel for piece in pieces):
        return None
    nested = any(len(path) > 1 for path in paths(description.layout))
    returns = description.returns in ("tensor", "tuple", "list")
    if nested or not returns or description.kind != "class":
        refuse("--allow-partial takes classes whose inputs and results are tensors, no containers")
    return Cut(description, trace, pieces, _words(trace, missing), _names(description, trace))


def unknown(task: TaskClient) -> tuple[str, ...]:
    """What there is no form for in a task at its own sizes, in words, but for what takes or gives
    types that sketches do not have. Raises what `cut` raises."""
    _, trace, missing, foreign = _traced(task)
    return _words(trace, {n: why for n, why in missing.items() if n not in foreign})


def _traced(
    task: TaskClient,
) -> tuple[TaskDescription, Mapping[str, Any], dict[int, str], dict[int, str]]:
    """A task's description and its trace at its own sizes; the numbers of operations without a
    form, with what they have none for; and of those that take or give foreign types."""
    signature = read_signature(
        task, sketch_name(task.path.stem), windows=False, varies=lambda _: False, copied=True
    )
    inputs, substitutes = signature.prober.given({})
    trace = live(task.trace(inputs, substitutes))
    stand_in, foreign = _of_types(trace)
    missing = without_form(Traces(signature, [()], [stand_in], (), {}).graph())
    return signature.prober.description, trace, missing, foreign


def _words(trace: Mapping[str, Any], missing: Mapping[int, str]) -> tuple[str, ...]:
    """What there is no form for: an operation, or what it has none for."""
    found = (why or plain(trace["nodes"][number]["operation"]) for number, why in missing.items())
    return tuple(dict.fromkeys(found))


#: Names that the files of parts and the drop-in use themselves.
_TAKEN = frozenset(
    {
        *keyword.kwlist,
        *["self", "torch", "given", "args", "kwargs", "model", "found", "part", "number", "shape"],
    }
)


def _names(description: TaskDescription, trace: Mapping[str, Any]) -> dict[Value, str]:
    """What the values of a trace are called in Python code: forward's arguments, parameters and
    buffers by their own names, results of operations by number."""
    found: dict[Value, str] = {}
    taken = {*_TAKEN}

    def give(value: Value, wanted: str) -> None:
        found[value] = free_name(wanted, taken)
        taken.add(found[value])

    known = description.names
    for position in range(len(description.inputs)):
        name = known[position] if position < len(known) else f"x{position}"
        give(("input", position), _identifier(name))
    for state in description.state:
        give(("state", state.name), _identifier(state.name))
    for number, node in enumerate(trace["nodes"]):
        for of in range(len(node["tensors"])):
            give(("node", number, of), f"v{number}" + (f"_{of}" if of else ""))
    return found


def _of_types(trace: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[int, str]]:
    """The trace with f32 in place of types that sketches do not have, and the operations that take
    or give such values, each with the types."""
    foreign: dict[int, str] = {}
    nodes = []
    for number, node in enumerate(trace["nodes"]):
        types = foreign_types(node)
        before = {v[1] for v in _values(list(node["arguments"].values())) if v[0] == "node"}
        if types or any(foreign_types(trace["nodes"][n]) for n in before):
            foreign[number] = ""
        tensors = [
            {**each, "dtype": "float32"} if each["dtype"] in types else each
            for each in node["tensors"]
        ]
        nodes.append({**node, "tensors": tensors})
    return {**trace, "nodes": nodes}, foreign


def _identifier(name: str) -> str:
    plain_name = re.sub(r"\W+", "_", name).strip("_").lower()
    return plain_name if plain_name and plain_name[0].isalpha() else f"p_{plain_name}"


def _values(value: Any) -> Iterator[Value]:
    """The values in an argument of the trace, however deep."""
    match value:
        case list():
            for each in value:
                yield from _values(each)
        case {"node": number, "of": of}:
            yield "node", number, of
        case {"input": position}:
            yield "input", position
        case {"state": name}:
            yield "state", name


def _code(value: Any, names: Mapping[Value, str]) -> str:
    """An argument as Python text. Raises `UsageError` for one that has none."""
    match value:
        case list():
            return f"[{', '.join(_code(each, names) for each in value)}]"
        case {"dtype": dtype} if len(value) == 1:
            return f"torch.{dtype}"
        case {"made": made}:
            shape = ", ".join(map(str, made["shape"]))
            values = ", ".join(map(_number, made["values"]))
            return f"torch.tensor([{values}], dtype=torch.{made['dtype']}).reshape([{shape}])"
        case dict():
            found = next(_values(value), None)
            if found is None:
                refuse(f"--allow-partial has no code for {next(iter(value.values()))}")
            return names[found]
        case _:
            return _number(value)


def _number(value: Any) -> str:
    text = repr(value)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text


def _pieces(trace: Mapping[str, Any], missing: Collection[int]) -> Iterator[Piece]:
    """The operations in pieces, as few as can be: all kernels between two turns of PyTorch are one.
    Kernels of views alone are left to PyTorch."""
    nodes: Sequence[Mapping[str, Any]] = trace["nodes"]
    turns: list[int] = []
    used = [list(_values(list(node["arguments"].values()))) for node in nodes]
    for number in range(len(nodes)):
        # PyTorch's turn n is behind the kernel n; what needs its results is of a later kernel.
        before = [each[1] for each in used[number] if each[0] == "node"]
        alone = number in missing
        turns.append(max((turns[n] + (n in missing and not alone) for n in before), default=0))
    readers: dict[Value, set[tuple[int, bool]]] = {}
    for number, values in enumerate(used):
        for value in values:
            readers.setdefault(value, set()).add((turns[number], number in missing))
    returned = {*_values(trace["returned"])}
    for turn, left in sorted({(turn, number in missing) for number, turn in enumerate(turns)}):
        own = [n for n in range(len(nodes)) if turns[n] == turn and (n in missing) == left]
        made: list[Value] = [("node", n, of) for n in own for of in range(len(nodes[n]["tensors"]))]
        takes = dict.fromkeys(v for n in own for v in used[n] if v not in made)
        gives = [v for v in made if v in returned or readers.get(v, set()) - {(turn, left)}]
        computes = any(plain(nodes[n]["operation"]) not in views.RULES for n in own)
        yield Piece(not left and computes, tuple(own), tuple(takes), tuple(gives))
