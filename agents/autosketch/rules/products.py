"""Rules for sums of products (matrix products and convolutions) and for pooling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    as_float,
    broadcast,
    converted,
    integer,
    linear,
    place_if_found,
    plain,
    summed_in,
    value_name,
)
from sketchc.agents.autosketch.graph import Node, Specification
from sketchc.agents.autosketch.loops import Apply, Element, Index, Number, Scalar
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic


def _summed(
    builder: Builder,
    node: Node,
    over: Sequence[ir.Expr],
    factors: Callable[[Index, Index], tuple[Scalar, Scalar]],
    ended: Callable[[Scalar, Index], Scalar],
    digits: Mapping[int, tuple[ir.Expr, ir.Expr]] = {},
) -> None:
    """Define the result as the sum over axes of extents `over` of the product of two factors, which
    are functions of the result's index and that of these axes; `ended` is what becomes of a sum, of
    the result's index, too. Half precision is summed in f32.

    `digits`: the extents of the upper and lower digit of some of the result's axes, by their
    numbers; the index that `factors` gets has both digits in place of each of these axes."""
    specification = node.results[0]
    own = specification.dtype
    wide = summed_in(own)
    divided = (digits.get(n, (extent,)) for n, extent in enumerate(specification.shape))
    kept = tuple(itertools.chain.from_iterable(divided))
    rank = len(kept)
    name = f"{value_name(builder.number, 0)}_product"

    def body(index: Index) -> Scalar:
        given = factors(index[:rank], index[rank:])
        return Apply("mul", tuple(converted(factor, wide) for factor in given), wide)

    shape = (*kept, *over)
    dims = range(rank, len(shape))
    builder.reduce(Specification(wide, kept), dims, shape, "sum", body, name)

    def result(index: Index) -> Scalar:
        place: list[ir.Expr] = []
        for number, each in enumerate(index):
            if number in digits:
                lower = digits[number][1]
                place += [ir.Binary(operator, each, lower) for operator in ("//", "%")]
            else:
                place.append(each)
        return converted(ended(Element(name, tuple(place), wide), index), own)

    builder.map(node, result)


def _matmul(left: str, right: str, *, added: str = "") -> Rule:
    """The rule of a matrix product, in batches or not, times `alpha`, plus `beta` times the
    argument `added`, if it is named."""

    def rule(builder: Builder, node: Node) -> None:
        arguments, wide = node.arguments, summed_in(node.results[0].dtype)
        alpha, beta = (builder.element(arguments.get(n, 1.0), ()) for n in ("alpha", "beta"))

        def scaled(scalar: Scalar, scale: Scalar) -> Scalar:
            if _is(scale, 1):
                return scalar
            if not isinstance(scale, Number) or not wide.is_float:
                refuse(f"the built-in Designer has no form for {plain(node.operation)} that scales")
            return Apply("mul", (converted(scalar, wide), as_float(scale, wide)), wide)

        def factors(index: Index, inner: Index) -> tuple[Scalar, Scalar]:
            *batch, row, column = index
            return (
                builder.element(arguments[left], (*batch, row, *inner)),
                builder.element(arguments[right], (*batch, *inner, column)),
            )

        def ended(total: Scalar, index: Index) -> Scalar:
            found = scaled(total, alpha)
            if not added or _is(beta, 0):  # then PyTorch does not read the addend
                return found
            own = broadcast(index, builder.shape(arguments[added]))
            addend = scaled(builder.element(arguments[added], own), beta)
            return Apply("add", (found, addend), wide)

        over = builder.shape(arguments[left])[-1:]
        _summed(builder, node, over, factors, ended)

    return rule


def _is(scalar: Scalar, value: int) -> bool:
    """Whether a scalar is this number, whatever the sizes are."""
    return isinstance(scalar, Number) and scalar.value == value


@attrs.frozen
class _Window:
    """How windows stand over an image; each field has an entry for each of its dimensions."""

    kernel: tuple[ir.Expr, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def inputs(self, index: Index, inner: Index) -> Index:
        """The index of the image's element that the place `inner` of window `index` is over."""
        places = zip(index, inner, self.stride, self.padding, self.dilation, strict=True)
        return tuple(linear((i, s), (k, d), shift=-p) for i, k, s, p, d in places)

    def starts(self, index: Index) -> Index:
        """The index of the first element that window `index` is over, which may lie outside."""
        return self.inputs(index, (ir.Literal(0),) * len(index))

    # Transposed: place p of the result takes the element (p + padding - tap*dilation)/stride of the
    # image through each tap for which that is whole. These are the same for all places of one
    # phase, which is p % stride. A phase has none where p + padding is no multiple of what stride
    # and dilation have in common; else each `spacing`-th tap is one of them.

    def phases(self) -> tuple[int, ...]:
        """The axes along which a transposed convolution's taps depend on the phase of a place."""
        # Of a window of any extent, nobody proves that all places are stored. Along rows of memory,
        # places between those of a narrow window are stored together with these.
        last = len(self.kernel) - 1
        kernel = (symbolic.constant_value(each) for each in self.kernel)
        pairs = enumerate(zip(kernel, self.stride, strict=True))
        return tuple(
            n
            for n, (extent, stride) in pairs
            if stride > 1 and extent is not None and (n < last or extent >= stride)
        )

    def common(self, axis: int) -> int:
        """The largest number that divides stride and dilation along an axis."""
        return math.gcd(self.stride[axis], self.dilation[axis])

    def spacing(self, axis: int) -> int:
        """The steps from one tap of a phase to its next along an axis."""
        return self.stride[axis] // self.common(axis)

    def taps(self, axis: int) -> ir.Expr:
        """The most taps that places of one phase have along an axis."""
        return _over(self.kernel[axis], self.spacing(axis))

    def whole(self, axis: int) -> bool:
        """Whether places of all phases that have taps have as many along an axis."""
        rest = ir.Binary("%", self.kernel[axis], ir.Literal(self.spacing(axis)))
        return symbolic.constant_value(rest) == 0

    def rounds(self, axis: int, extent: ir.Expr, more: int) -> ir.Expr:
        """How many places one phase has along an axis: of an image with this extent and `more`
        elements behind the result."""
        stride = self.stride[axis]
        shift = more + 1 - 2 * self.padding[axis] - stride
        last = linear((self.kernel[axis], 1), (ir.Literal(-1), 1))
        places = linear((extent, stride), (last, self.dilation[axis]), shift=shift)
        return _over(places, stride)

    def first_tap(self, axis: int, phase: ir.Expr) -> tuple[ir.Expr, ir.Expr, list[ir.Expr]]:
        """The first tap of a phase along an axis, the image's element that place 0 of the phase
        takes through it, and the conditions for the phase to have taps."""
        stride, step = self.stride[axis], self.dilation[axis]
        common, spacing = self.common(axis), self.spacing(axis)
        moved = linear((phase, 1), shift=self.padding[axis])
        first: ir.Expr = ir.Literal(0)
        if spacing > 1:
            inverse = pow(step // common, -1, spacing)
            number = moved if common == 1 else ir.Binary("//", moved, ir.Literal(common))
            first = ir.Binary("%", linear((number, inverse)), ir.Literal(spacing))
        reached = moved if step == 1 else linear((moved, 1), (first, -step))
        rest = ir.Binary("%", moved, ir.Literal(common))
        conditions: list[ir.Expr] = [] if common == 1 else [ir.Binary("==", rest, ir.Literal(0))]
        return first, ir.Binary("//", reached, ir.Literal(stride)), conditions


def _over(extent: ir.Expr, stride: int) -> ir.Expr:
    """The quotient, rounded up."""
    above = linear((extent, 1), shift=stride - 1)
    return symbolic.simplify(ir.Binary("//", above, ir.Literal(stride)))


def _ints(value: Any, count: int, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """`count` integers: those of a list (`usual` for an empty one), or one that stands for all."""
    found = tuple(map(integer, value if isinstance(value, list) else [value])) or tuple(usual)
    return found * count if len(found) == 1 else found


def _convolution(builder: Builder, node: Node) -> None:
    arguments = node.arguments
    image, weight, bias = (arguments[name] for name in ("input", "weight", "bias"))
    first, second, *kernel = builder.shape(weight)
    count, groups = len(kernel), arguments["groups"]
    stride, padding, dilation = (
        _ints(arguments[name], count) for name in ("stride", "padding", "dilation")
    )
    window = _Window(tuple(kernel), stride, padding, dilation)
    transposed = bool(arguments["transposed"])
    each = symbolic.simplify(ir.Binary("//", first, groups))
    inputs, outputs = (each, second) if transposed else (second, each)
    outside = 0 if transposed or any(padding) else None
    phases = window.phases() if transposed else ()
    taps = [window.taps(axis) if axis in phases else e for axis, e in enumerate(kernel)]

    def factors(index: Index, inner: Index) -> tuple[Scalar, Scalar]:
        behind = len(index) - count - len(phases)
        batch, *channels, place = (*index[:behind], index[behind:])
        taken, *offset = inner
        offset = [
            ir.Literal(0) if e == ir.Literal(1) else n for e, n in zip(taps, offset, strict=True)
        ]
        # of one channel in each group, the group is the channel
        group, own = channels if len(channels) > 1 else (channels[0], ir.Literal(0))
        if groups == ir.Literal(1):
            group, own = ir.Literal(0), channels[0]
        source = ir.Binary("+", ir.Binary("*", group, inputs), taken)
        channel = ir.Binary("+", ir.Binary("*", group, outputs), own)
        kernels: Index = (channel, taken, *offset)
        where = None
        if transposed:
            spot, taken_taps, where = _spread(window, phases, place, tuple(offset))
            kernels = (source, own, *taken_taps)
        else:
            spot = window.inputs(place, tuple(offset))
        found = builder.element(image, (batch, source, *spot))
        if outside is not None:
            assert isinstance(found, Element)
            found = attrs.evolve(found, pad=outside, where=where)
        factor = builder.element(weight, kernels)
        if any(not window.whole(axis) for axis in phases):
            assert isinstance(factor, Element)
            factor = attrs.evolve(factor, pad=0)
        return found, factor

    def ended(total: Scalar, index: Index) -> Scalar:
        if bias is None:
            return total
        return Apply("add", (total, builder.element(bias, index[1:2])), total.dtype)

    builder.filled += node.results[0].shape[2:]
    grouped = ir.Literal(1) not in (groups, outputs)
    digits: dict[int, tuple[ir.Expr, ir.Expr]] = {1: (groups, outputs)} if grouped else {}
    for axis in phases:
        extent, whole = builder.shape(image)[2 + axis], node.results[0].shape[2 + axis]
        more = _ints(arguments["output_padding"], count)[axis]
        rounds = _rounds(builder, window.rounds(axis, extent, more), extent, whole, stride[axis])
        digits[2 + axis] = (rounds, ir.Literal(stride[axis]))
    _summed(builder, node, (inputs, *taps), factors, ended, digits)


def _rounds(
    builder: Builder, rounds: ir.Expr, extent: ir.Expr, whole: ir.Expr, stride: int
) -> ir.Expr:
    """The places that one phase has along an axis, `rounds`, as proofs take it as one number: fewer
    than the image's `extent` are a quotient of the result's, `whole`."""
    fewer = symbolic.constant_value(ir.Binary("-", rounds, extent))
    if fewer is not None and fewer < 0:
        return ir.Binary("cdiv", builder.spelled(whole), ir.Literal(stride))
    return builder.spelled(rounds)


def _spread(
    window: _Window, phases: Sequence[int], place: Index, offset: Index
) -> tuple[Index, Index, ir.Expr | None]:
    """What a place of a transposed convolution's result takes through the place `offset` among its
    taps: the index of the image's element, that in the window, and the condition for there being
    one. `place` has two digits for each axis in `phases`, along which all taps of a place are
    `spacing` steps apart; along others all places of the window are tried."""
    spot: list[ir.Expr] = []
    taps: list[ir.Expr] = []
    conditions: list[ir.Expr] = []
    left = list(place)
    for axis, inner in enumerate(offset):
        stride, padding, dilation = (
            each[axis] for each in (window.stride, window.padding, window.dilation)
        )
        own = left.pop(0)
        tap = inner
        if axis in phases:
            first, at, needed = window.first_tap(axis, left.pop(0))
            conditions += needed
            step = dilation // window.common(axis)
            moved: ir.Expr = ir.Binary("+", linear((own, 1), (inner, -step)), at)
            if inner == ir.Literal(0):
                tap = first
            else:
                tap = ir.Binary("+", first, linear((inner, window.spacing(axis))))
            if not window.whole(axis):
                conditions.append(ir.Binary("<", tap, window.kernel[axis]))
        else:
            moved = linear((own, 1), (inner, -dilation), shift=padding)
            if stride > 1:
                rest = ir.Binary("%", moved, ir.Literal(stride))
                conditions.append(ir.Binary("==", rest, ir.Literal(0)))
                moved = ir.Binary("//", moved, ir.Literal(stride))
        spot.append(moved)
        taps.append(tap)
    where = symbolic.conjunction(conditions) if conditions else None
    return tuple(spot), tuple(taps), where


def _window_of(node: Node) -> _Window:
    """The windows of an operation that pools."""
    arguments = node.arguments
    sizes = arguments["kernel_size"]
    count = len(sizes) if len(sizes) > 1 else int(plain(node.operation).partition("pool")[2][0])
    kernel = _ints(sizes, count)
    stride, padding, dilation = (
        _ints(arguments.get(name, ir.Literal(1)), count, usual)
        for name, usual in (("stride", kernel), ("padding", (0,)), ("dilation", (1,)))
    )
    return _Window(tuple(map(ir.Literal, kernel)), stride, padding, dilation)


def _pooled(operation: str) -> Rule:
    """The rule of the maximum ("max") or the mean ("sum") of windows."""

    def rule(builder: Builder, node: Node) -> None:
        arguments = node.arguments
        source = arguments["self"]
        window = _window_of(node)
        ceil = bool(arguments["ceil_mode"])
        sticks_out = ceil or any(window.padding)
        outside = float("-inf") if operation == "max" else 0
        specification = node.results[0]
        rank = len(specification.shape)
        lead = rank - len(window.kernel)
        image = builder.shape(source)[lead:]
        builder.filled += specification.shape[lead:]
        own = specification.dtype
        wide = summed_in(own) if operation == "sum" else own

        def body(index: Index) -> Scalar:
            spot = window.inputs(index[lead:rank], index[rank:])
            found = builder.element(source, (*index[:lead], *spot))
            if sticks_out:
                assert isinstance(found, Element)
                found = attrs.evolve(found, pad=outside)
            return converted(found, wide)

        shape = (*specification.shape, *window.kernel)
        name = f"{value_name(builder.number, 0)}_window"
        reduced = Specification(wide, specification.shape)
        over = range(rank, len(shape))
        builder.reduce(reduced, over, shape, operation, body, name)
        if len(node.results) > 1:

            def place(index: Index) -> Scalar:
                spot = window.inputs(index[lead:rank], index[rank:])
                best = Element(name, index[:rank], wide)
                found = place_if_found(body(index), best, spot, image)
                # What stands outside is as large as an element of minus infinity.
                return _only_inside(spot, image, found) if sticks_out else found

            first = f"{name}_first"
            builder.reduce(node.results[1], over, shape, "min", place, first)
            builder.named(node, first, 1)

        def result(index: Index) -> Scalar:
            found: Scalar = Element(name, index, wide)
            if operation == "sum":
                size = _counted(window, index[lead:], image, arguments, ceil=ceil)
                found = Apply("div", (found, Number(size, wide)), wide)
            return converted(found, own)

        builder.map(node, result)

    return rule


def _only_inside(spot: Index, image: Sequence[ir.Expr], place: Scalar) -> Scalar:
    """A number of an element of the image where `spot` is in it, elsewhere that behind the last."""
    for at, extent in zip(spot, image, strict=True):
        number, end = Number(at, DType.I64), Number(extent, DType.I64)
        low = Apply("ge", (number, Number(0, DType.I64)), DType.BOOL)
        inside = Apply("logical_and", (low, Apply("lt", (number, end), DType.BOOL)), DType.BOOL)
        behind = Number(symbolic.product(image), DType.I64)
        place = Apply("where", (inside, place, behind), DType.I64)
    return place


def _counted(
    window: _Window,
    index: Index,
    image: Sequence[ir.Expr],
    arguments: Mapping[str, Any],
    *,
    ceil: bool,
) -> float | ir.Expr:
    """What the mean over window `index` divides the sum by."""
    if arguments.get("divisor_override") is not None:
        return float(integer(arguments["divisor_override"]))
    included = bool(arguments["count_include_pad"])
    total: ir.Expr = ir.Literal(1)
    places = zip(window.starts(index), window.kernel, image, window.padding, strict=True)
    for start, size, extent, padding in places:
        if not ceil and (included or not padding):
            total = ir.Binary("*", total, size)
            continue
        margin = ir.Literal(padding if included else 0)
        end = ir.Binary("min", ir.Binary("+", start, size), ir.Binary("+", extent, margin))
        first = start if included else ir.Binary("max", start, ir.Literal(0))
        total = ir.Binary("*", total, ir.Binary("-", end, first))
    value = symbolic.constant_value(total)
    return total if value is None else float(value)


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    "convolution": _convolution,
    **{f"max_pool{n}d_with_indices": _pooled("max") for n in (2, 3)},
    **{f"avg_pool{n}d": _pooled("sum") for n in (2, 3)},
    "mm": _matmul("self", "mat2"),
    "bmm": _matmul("self", "mat2"),
    "addmm": _matmul("mat1", "mat2", added="self"),
    "baddbmm": _matmul("batch1", "batch2", added="self"),
}
