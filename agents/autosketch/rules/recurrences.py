"""Rules for loops whose steps need a state that the step before left: recurrent layers.

A trace has a loop as four operations (`runtime.tasks.worker.recurrent`), and `steps::joined` of
`rolling`. What is computed between them depends on the step, a name to which the host gives values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sketchc.agents.autosketch.builder import Builder, Rule, integer, linear, value_name
from sketchc.agents.autosketch.graph import Node, Use, step_name
from sketchc.agents.autosketch.loops import (
    Axis,
    Element,
    Index,
    Loops,
    Number,
    Stepped,
    Value,
    computed_from,
    elements,
    is_expanded,
    names_below,
)
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir


def _step(builder: Builder, counter: Use) -> Axis:
    """The axis of the steps of the loop with this counter."""
    nodes = builder.graph.nodes
    name = step_name([node.operation for node in nodes], counter.node)
    return Axis(name, nodes[counter.node].arguments["count"])


def _states(before: Use) -> str:
    """The name of the value that holds the state that `before` reads, for all steps."""
    return f"{value_name(before.node, 0)}_states"


def _counter(builder: Builder, node: Node) -> None:
    step = _step(builder, Use(builder.number))
    builder.filled.append(step.extent)
    builder.map(node, lambda index: Number(step.ref, DType.I64))


def _at(builder: Builder, node: Node) -> None:
    step = _step(builder, node.arguments["counter"])
    place: ir.Expr = step.ref
    if node.arguments["backwards"]:
        place = linear((step.extent, 1), (place, -1), shift=-1)
    builder.view(node, node.arguments["sequence"], lambda index: (place, *index))


def _before(builder: Builder, node: Node) -> None:
    step = _step(builder, node.arguments["counter"])
    (result,) = node.results
    name = _states(Use(builder.number))
    builder.map(node, lambda index: Element(name, (step.ref, *index), result.dtype))


def _after(builder: Builder, node: Node) -> None:
    """The value of each state after every step, then after the last step. A result without a state
    before the step is no state; it is kept for each step."""
    arguments = node.arguments
    pairs = list(zip(arguments["before"], arguments["after"], strict=True))
    states = [before for before, _ in pairs if before is not None]
    step = _step(builder, builder.graph.nodes[states[0].node].arguments["counter"])
    for kind, (before, after) in enumerate(pairs):
        own = builder.axes(builder.shape(after), f"i{kind}_")
        index = tuple(axis.ref for axis in own)
        body, first = builder.element(after, index), None
        if before is None:
            name = f"{value_name(builder.number, kind)}_kept"
        else:
            name, begun = _states(before), builder.graph.nodes[before.node]
            if body.dtype is not begun.results[0].dtype:
                refuse("the built-in Designer has no form for a state that changes its type")
            first = builder.element(begun.arguments["initial"], index)
        kept = Stepped(name, own, body.dtype, step, first, body)
        builder.values[name] = kept

        def behind(index: Index, kept: Stepped = kept) -> Element:
            place = index[0]
            if arguments["backwards"]:
                place = linear((step.extent, 1), (place, -1), shift=-1)
            place = linear((place, 1), shift=kept.ahead)
            return Element(kept.name, (place, *index[1:]), kept.dtype)

        def last(index: Index, kept: Stepped = kept) -> Element:
            place = linear((step.extent, 1), shift=kept.ahead - 1)
            return Element(kept.name, (place, *index), kept.dtype)

        builder.map(node, behind, kind)
        builder.map(node, last, len(pairs) + kind)


def _joined(builder: Builder, node: Node) -> None:
    """The results of all steps concatenated along an axis, or stacked along a new one."""
    arguments = node.arguments
    sequence = arguments["sequence"]
    count, *shape = builder.shape(sequence)
    dim = integer(arguments["dim"]) % len(node.results[0].shape)

    def index(own: Index) -> Index:
        place, rest = own[dim], [*own]
        if arguments["stacked"]:
            del rest[dim]
        elif shape[dim] == ir.Literal(1):
            rest[dim] = ir.Literal(0)
        else:
            place, rest[dim] = (ir.Binary(o, own[dim], shape[dim]) for o in ("//", "%"))
        if arguments["backwards"]:
            place = linear((count, 1), (place, -1), shift=-1)
        return (place, *rest)

    builder.view(node, sequence, index)


def kept_from_steps(loops: Loops, states: Sequence[Stepped]) -> Iterator[Value]:
    """The values that memory holds and that the steps of a loop read but that depend on no step."""
    follows: dict[str, bool] = {}
    step = states[0].step.name
    for name, each in loops.values.items():
        scalars = () if isinstance(each, Stepped) else computed_from(each)
        own = any(step in names_below(scalar) for scalar in scalars)
        sources = {e.source for scalar in scalars for e in elements(scalar)}
        follows[name] = own or any(follows.get(source, False) for source in sources)
    seen: set[str] = set()
    left = [element.source for state in states for element in elements(state.body)]
    while left:
        name = left.pop()
        value = loops.values.get(name)
        if value is None or name in seen or value in states:
            continue
        seen.add(name)
        if is_expanded(value) or follows[name]:
            left += [e.source for scalar in computed_from(value) for e in elements(scalar)]
    return (
        v for n, v in loops.values.items() if n in seen and not follows[n] and not is_expanded(v)
    )


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    "steps::counter": _counter,
    "steps::at": _at,
    "steps::before": _before,
    "steps::after": _after,
    "steps::joined": _joined,
}
