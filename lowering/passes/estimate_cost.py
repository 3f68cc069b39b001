"""Count the bytes that must move and the operations that must be done, as host expressions."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ir.symbolic import constant_value, product
from sketchc.ir.walk import references, substitute
from sketchc.lowering.abi import passed
from sketchc.lowering.loop_bounds import (
    Range,
    extreme,
    loop_range,
    negative_constants,
    resolved,
    simplest,
    trip_count,
    varies,
)
from sketchc.lowering.plan import Plan, literals
from sketchc.ops.table import OPS, Category

#: The factors of a product.
Factors: TypeAlias = tuple[ir.Expr, ...]


@attrs.frozen
class EstimateCost:
    """Fill in `Plan.bytes_moved`, `Plan.traffic`, `Plan.flops`, and `PhasePlan.work` for a CPU.

    Why: a time means something beside the floor that physics sets. Bytes are the compulsory
    traffic: each input read once, each output written once, in-out both; workspace is not
    compulsory. `traffic` counts whole tiles, each time that a statement loads or stores one, so
    that a plan which reads its inputs over and over shows. Operations count one per lane of an
    element-wise result, one per lane read by a reduction, two per multiply-add of a matrix product,
    at logical extents. Both branches of an `if` count, a triangular loop as its hull, and a loop
    whose bounds are fetched once. The work of one launch decides how many threads a CPU takes for
    it: lanes of tiles at the edges count there only as far as they are valid.
    Requires: phases mapped.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        sketch = plan.sketch
        moved: list[ir.Expr] = []
        for tensor in passed(sketch):
            ways = 2 if tensor.role is ir.Role.INOUT else 1
            moved.append(_product((*tensor.extents, ir.Literal(tensor.dtype.bytes * ways))))
        traffic: list[Factors] = []
        operations: list[Factors] = []
        works: dict[int, ir.Expr | None] = {}
        for index, phase in enumerate(sketch.phases):
            ranges: dict[str, Range] = {}
            launches: Factors = ()
            for step in walk.around(sketch.steps, index):
                if isinstance(step, ir.HostFor):
                    loop = resolved(step, negative_constants(sketch))
                    launches = (*launches, *(_trips(loop, ranges) or ()))
                    _enter(loop, ranges)
            cost = _Cost([], [])
            _count(sketch, phase.body, (), ranges, cost)
            traffic += ((*launches, *term) for term in cost.traffic)
            operations += ((*launches, *term) for term in cost.operations)
            if plan.capabilities.loops is not None and plan.capabilities.loops.on_cores:
                works[index] = _work_of_launch(cost, literals(sketch))
        return attrs.evolve(
            plan,
            bytes_moved=simplest(_sum(moved)),
            traffic=simplest(_sum(map(_product, traffic))),
            flops=simplest(_sum(map(_product, operations))),
            phases=tuple(attrs.evolve(p, work=works.get(p.index)) for p in plan.phases),
        )


@attrs.define
class _Cost:
    """The costs of one launch's statements, one term for each: bytes of traffic, and operations.
    `known` is false where a loop runs as often as only the kernel finds out."""

    traffic: list[Factors]
    operations: list[Factors]
    known: bool = True


def _count(
    sketch: ir.Sketch,
    body: tuple[ir.Statement, ...],
    trips: Factors,
    ranges: dict[str, Range],
    cost: _Cost,
) -> None:
    for statement in body:
        match statement:
            case ir.For():
                loop = resolved(statement, negative_constants(sketch))
                most = _trips(loop, ranges)
                cost.known = cost.known and most is not None
                inner = (*trips, *(most or ()))
                _enter(loop, ranges)
                _count(sketch, statement.body, inner, ranges, cost)
            case ir.If(_, then, orelse):
                _count(sketch, then, trips, ranges, cost)
                _count(sketch, orelse, trips, ranges, cost)
            case ir.Compute():
                cost.operations.append((*trips, *_work(sketch, statement)))
            case ir.Load() | ir.Store() | ir.Atomic():
                tile = sketch.tile(statement.tile)
                lanes, size = (*trips, *tile.extents), tile.dtype.bytes
                if isinstance(statement, ir.Atomic):
                    cost.operations.append(lanes)
                    size *= 2
                cost.traffic.append((*lanes, ir.Literal(size)))
            case ir.Fetch():
                cost.traffic.append((*trips, ir.Literal(statement.dtype.bytes)))
            case ir.Bind(name, value):
                value = substitute(value, negative_constants(sketch))
                low, high = (extreme(value, ranges, upper) for upper in (False, True))
                if low is not None and high is not None:
                    ranges[name] = Range(low, high)
            case ir.Alloc():
                pass
            case _:
                assert_never(statement)


def _trips(loop: ir.For | ir.HostFor, ranges: dict[str, Range]) -> Factors | None:
    """The most iterations of a loop, as factors; None where the host knows no bound."""
    count = trip_count(loop)
    zero = ir.Literal(0)
    if loop.step != ir.Literal(1) and loop.start != zero:
        count = ir.Binary("max", count, zero)
    most = extreme(count, ranges, upper=True) if varies(count, ranges) else count
    return None if most is None or _fetched(most, ranges) else (most,)


def _enter(loop: ir.For | ir.HostFor, ranges: dict[str, Range]) -> None:
    span = loop_range(loop, ranges)
    if span is not None:
        ranges[loop.variable] = span


def _fetched(count: ir.Expr, ranges: dict[str, Range]) -> bool:
    """True where a count depends on a name that host steps fetch or bind without a known range."""
    return any(
        reference.kind is ir.NameKind.HOST and reference.name not in ranges
        for reference in references(count)
    )


def _work(sketch: ir.Sketch, statement: ir.Compute) -> Factors:
    row = OPS[statement.operation]
    extents = sketch.tile(statement.destination).extents
    operand = statement.operands[0] if statement.operands else None
    if isinstance(operand, ir.TileOperand):
        source = sketch.tile(operand.tile).extents
        if row.category is Category.MATRIX:
            depth = source[-2 if statement.attributes.get("trans_a") else -1]
            return (*extents, depth, ir.Literal(2))
        if row.category is Category.REDUCTION:
            return source
    return extents


def _work_of_launch(cost: _Cost, constants: Mapping[str, ir.Expr]) -> ir.Expr | None:
    """Operations and bytes of a launch together, as few terms as may be; None where the host does
    not know them, or could divide by zero to find out. Constants keep their names: the plans of
    many points share this one."""
    terms = (*cost.traffic, *cost.operations)
    # Terms share their factors, as objects, too; to hash an expression takes long.
    each = {id(factor): factor for term in terms for factor in term}
    settled = {key: simplest(factor) for key, factor in each.items()}
    work = _factored(*_gathered(_valid([settled[id(f)] for f in term]) for term in terms))
    divisors = (
        part.right
        for part in walk.parts(work)
        if isinstance(part, ir.Binary) and part.operator in ("/", "//", "%", "cdiv")
    )
    plain = all(constant_value(substitute(divisor, constants)) for divisor in divisors)
    on_host = all(name.kind.on_host for name in references(work))
    return work if cost.known and plain and on_host else None


def _valid(factors: list[ir.Expr]) -> list[ir.Expr]:
    """The factors of a number of lanes with `cdiv(X, T)` blocks of T lanes counted as X lanes."""
    for factor in factors:
        match factor:
            case ir.Binary("cdiv", extent, size) if size in factors:
                rest = list(factors)
                rest.remove(factor)
                rest.remove(size)
                return _valid([extent, *rest])
    return factors


def _gathered(
    terms: Iterable[list[ir.Expr]],
) -> tuple[Mapping[tuple[int, ...], int], Sequence[ir.Expr]]:
    """Products as the places of their factors in the list behind, with how often each is there."""
    distinct: dict[ir.Expr, int] = {}
    places: dict[int, int] = {}
    counts: Counter[tuple[int, ...]] = Counter()
    for term in terms:
        number = math.prod(int(f.value) for f in term if isinstance(f, ir.Literal))
        others = [f for f in term if not isinstance(f, ir.Literal)]
        for factor in others:
            if id(factor) not in places:
                places[id(factor)] = distinct.setdefault(factor, len(distinct))
        counts[tuple(sorted(places[id(factor)] for factor in others))] += number
    return counts, list(distinct)


def _factored(terms: Mapping[tuple[int, ...], int], factors: Sequence[ir.Expr]) -> ir.Expr:
    """The sum of products as `_gathered` has them, common factors taken out, the one of most terms
    first."""
    counts = Counter(factor for term in terms for factor in dict.fromkeys(term))
    if not counts:
        return ir.Literal(sum(terms.values()))
    common, _ = counts.most_common(1)[0]
    inside: dict[tuple[int, ...], int] = {}
    outside: dict[tuple[int, ...], int] = {}
    for term, number in terms.items():
        if common in term:
            place = term.index(common)
            inside[term[:place] + term[place + 1 :]] = number
        else:
            outside[term] = number
    found = _times(factors[common], _factored(inside, factors))
    return ir.Binary("+", found, _factored(outside, factors)) if outside else found


def _times(factor: ir.Expr, rest: ir.Expr) -> ir.Expr:
    """A product without brackets and ones."""
    match rest:
        case ir.Literal(1):
            return factor
        case ir.Binary("*", left, right):
            return ir.Binary("*", _times(factor, left), right)
        case _:
            return ir.Binary("*", factor, rest)


def _product(factors: Factors) -> ir.Expr:
    return product([factor for factor in factors if factor != ir.Literal(1)])


def _sum(terms: Iterable[ir.Expr]) -> ir.Expr:
    """The sum, equal terms gathered into one with a factor."""
    alike: dict[str, list[ir.Expr]] = {}
    for term in terms:
        alike.setdefault(show(term), []).append(term)
    gathered = [
        same[0] if len(same) == 1 else _product((ir.Literal(len(same)), same[0]))
        for same in alike.values()
    ]
    return functools.reduce(functools.partial(ir.Binary, "+"), gathered or [ir.Literal(0)])
