"""Rules for views: the result at an index is the source at another, or one of several sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq
from typing import Any

import attrs

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    broadcast,
    converted,
    integer,
    linear,
    plain,
)
from sketchc.agents.autosketch.graph import Made, Node, Use
from sketchc.agents.autosketch.loops import Apply, Element, Index, Number, Scalar, row_major
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import substitute

#: Operations whose result is their operand.
_SAME = ("clone", "view_of", "alias", "detach", "detach_copy", "lift_fresh_copy", "contiguous")


#: An end beyond this is "to the end".
_FARTHEST = 1 << 40


def _same(builder: Builder, node: Node) -> None:
    source = next(v for v in node.arguments.values() if isinstance(v, Use | Made))
    builder.view(node, source, lambda index: index)


def _broadcast_in_dim(builder: Builder, node: Node) -> None:
    source = node.arguments["a"]
    places = [integer(place) for place in node.arguments["broadcast_dimensions"]]
    shape = builder.shape(source)
    builder.view(
        node, source, lambda index: broadcast(tuple(index[place] for place in places), shape)
    )


def _transpose(builder: Builder, node: Node) -> None:
    source = node.arguments["a"]
    order = [integer(place) for place in node.arguments["permutation"]]
    builder.view(
        node, source, lambda index: tuple(index[order.index(n)] for n in range(len(order)))
    )


def _squeeze(builder: Builder, node: Node) -> None:
    source = node.arguments["a"]
    rank = len(builder.shape(source))
    gone = {integer(place) % rank for place in node.arguments["dimensions"]}

    def index(own: Index) -> Index:
        rest = iter(own)
        return tuple(ir.Literal(0) if place in gone else next(rest) for place in range(rank))

    builder.view(node, source, index)


def _reshape(builder: Builder, node: Node) -> None:
    """Any change of shape: the row-major number of a place is taken apart by the extents of the
    source. Axes that stay, in front and at the end, keep their index."""
    source = next(v for v in node.arguments.values() if isinstance(v, Use | Made))
    old, new = builder.shape(source), node.results[0].shape
    builder.view(node, source, lambda index: _regrouped(index, new, old))


def _slice_scattered(builder: Builder, node: Node) -> None:
    """A tensor with a slice of it written over."""
    arguments = node.arguments
    base, source = arguments["self"], arguments["src"]
    shape, dtype = builder.shape(base), node.results[0].dtype
    dim = integer(arguments["dim"]) % len(shape)
    extent, step = shape[dim], integer(arguments["step"])
    start, end = (
        _end(arguments[name], extent, default)
        for name, default in (("start", ir.Literal(0)), ("end", extent))
    )

    def body(index: Index) -> Scalar:
        here = index[dim]
        left = symbolic.simplify(ir.Binary("-", here, start))
        place = left if step == 1 else ir.Binary("//", left, ir.Literal(step))
        inner = builder.element(source, (*index[:dim], place, *index[dim + 1 :]))
        conditions: list[Scalar] = []
        if start != ir.Literal(0):
            conditions.append(_compared("ge", here, start))
        if not symbolic.equal(end, extent):
            conditions.append(_compared("lt", here, end))
        if step > 1:
            rest = ir.Binary("%", left, ir.Literal(step))
            conditions.append(_compared("eq", rest, ir.Literal(0)))
        if not conditions:
            return inner
        inside = conditions.pop()
        for each in conditions:
            inside = Apply("logical_and", (each, inside), DType.BOOL)
        if isinstance(inner, Element):
            inner = attrs.evolve(inner, pad=0, ignored=True)
        return Apply("where", (inside, inner, builder.element(base, index)), dtype)

    builder.map(node, body)


def _select_scattered(builder: Builder, node: Node) -> None:
    """A tensor with one place of an axis written over."""
    arguments = node.arguments
    base, source = arguments["self"], arguments["src"]
    shape, dtype = builder.shape(base), node.results[0].dtype
    dim = integer(arguments["dim"]) % len(shape)
    place = _end(arguments["index"], shape[dim], ir.Literal(0))

    def body(index: Index) -> Scalar:
        inner = builder.element(source, (*index[:dim], *index[dim + 1 :]))
        here = _compared("eq", index[dim], place)
        return Apply("where", (here, inner, builder.element(base, index)), dtype)

    builder.map(node, body)


def _end(given: Any, extent: ir.Expr, default: ir.Expr) -> ir.Expr:
    """An end of a slice: a negative one counts from the axis's end, a large one is that end."""
    if given is None:
        return default
    if isinstance(given, ir.Literal):
        number = integer(given)
        if number < 0:
            return symbolic.simplify(ir.Binary("+", extent, given))
        if number > _FARTHEST:
            return extent
    found: ir.Expr = given
    return found


def _compared(operation: str, one: ir.Expr, other: ir.Expr) -> Scalar:
    return Apply(operation, (Number(one, DType.I64), Number(other, DType.I64)), DType.BOOL)


def _copied(builder: Builder, node: Node) -> None:
    """The source of a copy, broadcast to the tensor that it is written over and in its type. (So is
    a write into an input of the task: what the task reads from the input afterwards is this.)"""
    source = node.arguments["src"]
    shape, dtype = builder.shape(source), node.results[0].dtype
    builder.map(
        node, lambda index: converted(builder.element(source, broadcast(index, shape)), dtype)
    )


def _parts(builder: Builder, node: Node) -> None:
    """The results of a split: the parts of an axis, one after the other, by their extents."""
    source = node.arguments["self"]
    dim = integer(node.arguments["dim"]) % len(builder.shape(source))
    start: ir.Expr = ir.Literal(0)
    for of, part in enumerate(node.results):
        first = start

        def body(own: Index, first: ir.Expr = first) -> Scalar:
            moved = symbolic.simplify(ir.Binary("+", own[dim], first))
            return builder.element(source, (*own[:dim], moved, *own[dim + 1 :]))

        builder.map(node, body, of)
        start = symbolic.simplify(ir.Binary("+", start, part.shape[dim]))


def _unbound(builder: Builder, node: Node) -> None:
    """The results of an unbind: the source at each index of an axis."""
    source = node.arguments["self"]
    dim = integer(node.arguments["dim"]) % len(builder.shape(source))
    for of in range(len(node.results)):
        place = ir.Literal(of)

        def body(own: Index, place: ir.Expr = place) -> Scalar:
            return builder.element(source, (*own[:dim], place, *own[dim:]))

        builder.map(node, body, of)


def _as_strided(builder: Builder, node: Node) -> None:
    """A change of shape, where the strides are those of a dense tensor; else windows along axes of
    the source, where they are that; else each element is read by its number in the memory of the
    source, whose axes may lie in another order, and have gaps, there."""
    arguments = node.arguments
    # ATen calls the source `self`, PyTorch's primitives call it `a`.
    source = next(v for v in arguments.values() if isinstance(v, Use | Made))
    strides, shape = arguments["stride"], builder.shape(source)
    offset, stored = arguments["storage_offset"], arguments["source_stride"]
    dense = _is_dense(arguments["size"], strides) and _is_dense(shape, stored)
    if dense and offset == ir.Literal(0):
        _reshape(builder, node)
        return
    axes, extents = _in_memory(shape, stored)
    lets = {let.name: let.value for let in builder.graph.declared.lets}
    sizes = [substitute(size, lets) for size in arguments["size"]]
    along = _along_axes(strides, sizes, offset, extents)

    def index(own: Index) -> Index:
        if along is not None:
            found: Sequence[ir.Expr] = [
                linear(*((own[number], step) for number, step in steps), shift=first)
                for first, steps in along
            ]
        else:
            place = offset
            for each, step in zip(own, strides, strict=True):
                place = ir.Binary("+", place, ir.Binary("*", each, step))
            found = _digits(symbolic.simplify(place), extents)
        placed = dict(zip(axes, found, strict=True))
        return tuple(placed.get(axis, ir.Literal(0)) for axis in range(len(shape)))

    builder.view(node, source, index)


def _is_dense(shape: Sequence[ir.Expr], strides: Sequence[ir.Expr]) -> bool:
    """Whether strides are those of a tensor of this shape whose elements lie in row-major order."""
    pitch: ir.Expr = ir.Literal(1)
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != ir.Literal(1) and not symbolic.equal(stride, pitch):
            return False
        pitch = ir.Binary("*", pitch, size)
    return True


def _in_memory(
    shape: Sequence[ir.Expr], strides: Sequence[ir.Expr]
) -> tuple[list[int], list[ir.Expr]]:
    """The axes of a tensor from the slowest to the fastest in its memory, and how many places each
    has there (of the slowest: its extent); axes that take no memory are left out. Raises
    `UsageError` where that is not to be told from the strides."""
    rest = [n for n, s in enumerate(strides) if s != ir.Literal(0) and shape[n] != ir.Literal(1)]
    axes: list[int] = []
    extents: list[ir.Expr] = []
    pitch: ir.Expr = ir.Literal(1)
    while rest:
        fitting = (n for n in reversed(rest) if symbolic.equal(strides[n], pitch))
        found = next(fitting, None)
        if found is None:
            # A gap: the elements between one place of the axis before and the next.
            if len(rest) > 1 or not axes or strides[axes[0]] != ir.Literal(1):
                refuse("the built-in Designer has no form for as_strided of a tensor with gaps")
            found, extents[0] = rest[0], strides[rest[0]]
        rest.remove(found)
        axes.insert(0, found)
        extents.insert(0, shape[found])
        pitch = symbolic.simplify(ir.Binary("*", strides[found], shape[found]))
    return axes, extents


def _along_axes(
    strides: Sequence[ir.Expr], sizes: Sequence[ir.Expr], offset: ir.Expr, shape: Sequence[ir.Expr]
) -> list[tuple[int, list[tuple[int, int]]]] | None:
    """Strides as steps along the axes of a dense source: for each of its axes where it starts, and
    which axes of the view move along it, with their steps (a diagonal moves along two). None where
    one moves along no axis, or where one may leave its axis (then it goes on in the next row)."""
    own: list[ir.Expr] = [ir.Literal(1)]
    for extent in reversed(shape[1:]):
        own.insert(0, symbolic.simplify(ir.Binary("*", extent, own[0])))
    starts = _steps_in(offset, own)
    if starts is None:
        return None
    steps: list[list[tuple[int, int]]] = [[] for _ in shape]
    for number, stride in enumerate(strides):
        found = _steps_in(stride, own)
        if found is None and sizes[number] != ir.Literal(1):
            return None
        for axis, by in enumerate(found or ()):
            steps[axis] += [(number, by)] if by else []
    along: list[tuple[int, list[tuple[int, int]]]] = []
    for extent, start, several in zip(shape, starts, steps, strict=True):
        ends = ((ir.Binary("-", sizes[number], ir.Literal(1)), by) for number, by in several)
        if not _above(extent, linear(*ends, shift=start)):
            return None
        along.append((start, several))
    return along


def _steps_in(total: ir.Expr, own: Sequence[ir.Expr]) -> list[int] | None:
    """A number of elements as whole numbers of the strides `own`, from the largest on; None where
    something is left."""
    rest = symbolic.normalize(total)
    found = []
    for stride in own:
        unit = symbolic.normalize(stride)
        term, each = next(iter(unit.items()), ((), 0))
        by = max(rest.get(term, 0) // each, 0) if each > 0 else 0
        rest = symbolic.add(rest, unit, -by)
        found.append(by)
    return None if any(rest.values()) else found


def _above(extent: ir.Expr, last: ir.Expr) -> bool:
    """Whether an extent is greater than `last`, as far as that is a matter of form: of sizes n,
    which are no less than 0, 4*(n//4) is at most n."""
    room = symbolic.normalize(ir.Binary("-", extent, last))
    for term, factor in [*room.items()]:
        match [atom.expression for atom in term]:
            case [ir.Binary("//", number, ir.Literal(int(divisor)))] if (
                factor < 0 < divisor and factor % divisor == 0
            ):
                room = symbolic.add(room, {term: 1}, -factor)
                room = symbolic.add(room, symbolic.normalize(number), factor // divisor)
    return room.keys() == {()} and room[()] > 0


def _digits(place: ir.Expr, extents: Sequence[ir.Expr]) -> Index:
    """The index, in a tensor of these extents, of the element with the row-major number `place`."""
    digits: list[ir.Expr] = []
    for number, extent in reversed(list(enumerate(extents))):
        digits.append(place if number == 0 else ir.Binary("%", place, extent))
        place = ir.Binary("//", place, extent)
    return tuple(reversed(digits))


def _regrouped(index: Index, new: Sequence[ir.Expr], old: Sequence[ir.Expr]) -> Index:
    first = 0
    while first < min(len(new), len(old)) and new[first] == old[first]:
        first += 1
    last = 0
    while last < min(len(new), len(old)) - first and new[-1 - last] == old[-1 - last]:
        last += 1
    middle_new, middle_old = new[first : len(new) - last], old[first : len(old) - last]
    place = row_major(index[first : len(index) - last], middle_new)
    return (*index[:first], *_digits(place, middle_old), *index[len(index) - last :])


def _slice(builder: Builder, node: Node) -> None:
    source, arguments = node.arguments["self"], node.arguments
    rank = len(builder.shape(source))
    dim = integer(arguments["dim"]) % rank
    start = arguments["start"] if arguments["start"] is not None else ir.Literal(0)
    if isinstance(start, ir.Literal) and integer(start) < 0:
        start = ir.Binary("+", builder.shape(source)[dim], start)
    step = arguments["step"]

    def index(own: Index) -> Index:
        moved = ir.Binary("+", ir.Binary("*", own[dim], step), start)
        return (*own[:dim], moved, *own[dim + 1 :])

    builder.view(node, source, index)


def _select(builder: Builder, node: Node) -> None:
    source, arguments = node.arguments["self"], node.arguments
    rank = len(builder.shape(source))
    dim, place = integer(arguments["dim"]) % rank, arguments["index"]
    if isinstance(place, ir.Literal) and integer(place) < 0:
        place = ir.Binary("+", builder.shape(source)[dim], place)
    builder.view(node, source, lambda own: (*own[:dim], place, *own[dim:]))


def _rev(builder: Builder, node: Node) -> None:
    source = node.arguments["a"]
    shape = builder.shape(source)
    dims = {integer(place) % len(shape) for place in node.arguments["dims"]}

    def index(own: Index) -> Index:
        last = [ir.Binary("-", extent, ir.Literal(1)) for extent in shape]
        return tuple(
            ir.Binary("-", last[n], each) if n in dims else each for n, each in enumerate(own)
        )

    builder.view(node, source, index)


def _constant_pad(builder: Builder, node: Node) -> None:
    source = node.arguments["self"]
    given = [integer(each) for each in node.arguments["pad"]]
    rank = len(builder.shape(source))
    value = builder.element(node.arguments["value"], ())
    if not isinstance(value, Number) or not isinstance(value.value, int | float):
        refuse("the built-in Designer has no form for padding with an element")
    outside = value.value
    before = [0] * rank
    for place, number in enumerate(given[::2]):
        before[rank - 1 - place] = number

    def body(index: Index) -> Scalar:
        spot = tuple(linear((own, 1), shift=-n) for own, n in zip(index, before, strict=True))
        found = builder.element(source, spot)
        assert isinstance(found, Element)
        return attrs.evolve(found, pad=outside)

    builder.map(node, body)


def _cat(builder: Builder, node: Node) -> None:
    """A concatenation: the index along the axis decides which part an element is of."""
    given = _after_an_earlier(builder, node)
    specification = node.results[0]
    dim = integer(node.arguments["dim"]) % len(specification.shape)
    dtype = specification.dtype

    def body(index: Index) -> Scalar:
        ends: list[ir.Expr] = [ir.Literal(0)]
        for each in given:
            ends.append(symbolic.simplify(ir.Binary("+", ends[-1], builder.shape(each)[dim])))
        parts = []
        for each, start in zip(given, ends, strict=False):
            spot = symbolic.simplify(ir.Binary("-", index[dim], start))
            part = builder.element(each, (*index[:dim], spot, *index[dim + 1 :]))
            if isinstance(part, Element):
                part = attrs.evolve(part, pad=0, ignored=True)
            parts.append(part)
        found = parts.pop()
        for part, end in zip(reversed(parts), reversed(ends[1:-1]), strict=True):
            operands = (Number(index[dim], DType.I64), Number(end, DType.I64))
            found = Apply("where", (Apply("lt", operands, DType.BOOL), part, found), dtype)
        return found

    builder.map(node, body)


def _after_an_earlier(builder: Builder, node: Node) -> Sequence[Any]:
    """The operands of a concatenation. The longest earlier one that begins as this one does stands
    for its operands: a dense block concatenates all that its layers gave, each time."""
    given: Sequence[Any] = node.arguments["tensors"]
    for number in reversed(range(builder.number)):
        earlier = builder.graph.nodes[number]
        if plain(earlier.operation) != "cat" or earlier.arguments["dim"] != node.arguments["dim"]:
            continue
        several = earlier.arguments["tensors"]
        if 1 < len(several) < len(given) and all(map(eq, several, given)):
            return (Use(number, 0), *given[len(several) :])
    return given


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(
        ("collapse_view", "split_dim", "reshape", "view", "view_copy", "unsqueeze"),
        _reshape,
    ),
    # PyTorch's `matmul` leaves out an axis of its result in place, which nobody else has seen.
    "squeeze_": _reshape,
    "as_strided": _as_strided,
    "constant_pad_nd": _constant_pad,
    "cat": _cat,
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "squeeze": _squeeze,
    # The formulas of composite operations have these as they are, tasks as copies.
    **dict.fromkeys(("slice_copy", "slice"), _slice),
    **dict.fromkeys(("select_copy", "select"), _select),
    "rev": _rev,
    **dict.fromkeys(("copy", "copy_"), _copied),
    "slice_scatter": _slice_scattered,
    "select_scatter": _select_scattered,
    **dict.fromkeys(("split_copy", "split_with_sizes_copy", "split_with_sizes"), _parts),
    "unbind_copy": _unbound,
}
