"""Views: the result at an index is the source at another one, or one of several sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.autosketch.builder import Builder, Rule, broadcast, integer, linear
from sketchc.agents.autosketch.graph import Made, Node, Use
from sketchc.agents.autosketch.loops import Apply, Element, Index, Number, Scalar
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic

#: They hand on what they are given.
_SAME = ("clone", "view_of", "alias", "detach", "detach_copy", "lift_fresh_copy", "contiguous")


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
    """Any change of shape: the row-major place, taken apart by the extents of the source. Axes that
    stay, in front and at the end, keep their index."""
    source = next(v for v in node.arguments.values() if isinstance(v, Use | Made))
    old, new = builder.shape(source), node.results[0].shape
    builder.view(node, source, lambda index: _regrouped(index, new, old))


def _as_strided(builder: Builder, node: Node) -> None:
    """A change of shape, where the strides are those of dense rows. Raises `UsageError`."""
    stride: ir.Expr = ir.Literal(1)
    dense = node.arguments["storage_offset"] in (None, ir.Literal(0))
    for size, own in zip(
        reversed(node.arguments["size"]), reversed(node.arguments["stride"]), strict=True
    ):
        dense = dense and (size == ir.Literal(1) or symbolic.equal(own, stride))
        stride = ir.Binary("*", stride, size)
    if not dense:
        refuse(
            "the built-in Designer has no form for as_strided of other strides than a tensor's own"
        )
    _reshape(builder, node)


def _regrouped(index: Index, new: Sequence[ir.Expr], old: Sequence[ir.Expr]) -> Index:
    first = 0
    while first < min(len(new), len(old)) and new[first] == old[first]:
        first += 1
    last = 0
    while last < min(len(new), len(old)) - first and new[-1 - last] == old[-1 - last]:
        last += 1
    middle_new, middle_old = new[first : len(new) - last], old[first : len(old) - last]
    place: ir.Expr = ir.Literal(0)
    for own, extent in zip(index[first : len(index) - last], middle_new, strict=True):
        place = ir.Binary("+", ir.Binary("*", place, extent), own)
    digits: list[ir.Expr] = []
    for number, extent in reversed(list(enumerate(middle_old))):
        digits.append(place if number == 0 else ir.Binary("%", place, extent))
        place = ir.Binary("//", place, extent)
    return (*index[:first], *reversed(digits), *index[len(index) - last :])


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
    """Each part where its indices are, told apart by the index."""
    given = node.arguments["tensors"]
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


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(
        ("collapse_view", "split_dim", "reshape", "view", "view_copy", "unsqueeze"),
        _reshape,
    ),
    "as_strided": _as_strided,
    "constant_pad_nd": _constant_pad,
    "cat": _cat,
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "slice_copy": _slice,
    "select_copy": _select,
    "rev": _rev,
}
