"""Means that are taken from their own terms, as norms and variances do.

What a term less its mean is, is as exact as the mean: of terms that are nearly equal, a sum divided
by their number is off by more than they differ. So such a mean is that of the differences to the
first term, plus the first term (Chan, Golub, LeVeque 1983, "shifted data"): exact where all terms
are equal, and without another pass over them. What reads a mean for its own sake has the plain one:
where the first term is much larger than the mean, the sum of differences is as much larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from sketchc.agents.autosketch.builder import as_float
from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Element,
    Loops,
    Map,
    Number,
    Reduction,
    Scalar,
    Scatter,
    Stepped,
    Value,
    at,
    computed_from,
    elements,
    is_expanded,
    is_product,
    names_below,
    parts,
    resolved,
)
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic

#: Parts that the first term may have: it is computed apart.
_MOST_PARTS = 8


def with_shifted_means(loops: Loops) -> Loops:
    """The values; sums whose mean is subtracted are sums of differences to the first term, unless
    an output would then need both sums."""
    scalars = [scalar for value in loops.values.values() for scalar in computed_from(value)]
    sums = {found.name: found for scalar in scalars for found in _subtracted(loops, scalar)}
    sums = {name: found for name, found in sums.items() if _is_simple(loops, found)}
    while sums:
        shifted = _shifted(loops, sums)
        reached = [_reached(shifted, name) for _, name in loops.outputs]
        twice = {name for name in sums for read in reached if {name, _twin(name)} <= read}
        if not twice:
            read = set().union(*reached)
            values = {name: value for name, value in shifted.values.items() if name in read}
            return attrs.evolve(shifted, values=values)
        sums = {name: found for name, found in sums.items() if name not in twice}
    return loops


def is_of_differences(term: Scalar, over: Iterable[Axis]) -> bool:
    """Whether a sum of such terms along these axes is one of differences to one number."""
    if not isinstance(term, Apply) or term.operation != "sub":
        return False
    return names_below(term.operands[1]).isdisjoint(axis.name for axis in over)


def number_of_squared(squared: Scalar, term: Scalar, total: Scalar, first: Scalar) -> Number | None:
    """The number n where `squared` is the square of `term` less the mean, which is total/n + first;
    None where it is none."""
    match squared:
        case Apply("mul", (Apply("sub", (same, mean)) as one, other)) if (one, same) == (
            other,
            term,
        ):
            match mean:
                case Apply("add", (Apply("div", (over, Number() as count)), shift)):
                    return count if (over, shift) == (total, first) else None
    return None


def _twin(name: str) -> str:
    """The name of the sum of differences beside a plain sum."""
    return f"{name}_differences"


def _shifted(loops: Loops, sums: Mapping[str, Reduction]) -> Loops:
    """The loops; means of these sums that are subtracted are values of their own."""

    def replaced(scalar: Scalar) -> Scalar:
        if not isinstance(scalar, Apply):
            return scalar
        operands = [*map(replaced, scalar.operands)]
        if (mean := _subtrahend(loops, scalar)) is not None and mean[0].name in sums:
            operands[1] = Element(f"{mean[0].name}_mean", mean[1].index, mean[0].dtype)
        return attrs.evolve(scalar, operands=tuple(operands))

    values: dict[str, Value] = {}
    for name, value in loops.values.items():
        if name in sums:
            values[name] = value
            values |= _of_differences(sums[name])
        elif isinstance(value, Scatter | Stepped):
            values[name] = value
        else:
            values[name] = attrs.evolve(value, body=replaced(value.body))
    return attrs.evolve(loops, values=values)


def _of_differences(total: Reduction) -> dict[str, Value]:
    """The sum of the differences to the first term, and the mean."""
    dtype = total.dtype
    first = at(total.body, {axis.name: ir.Literal(0) for axis in total.over})
    name, index = _twin(total.name), tuple(axis.ref for axis in total.axes)
    body = Apply("sub", (total.body, first), dtype)
    count = symbolic.product([axis.extent for axis in total.over])
    quotient = Apply(
        "div", (Element(name, index, dtype), as_float(Number(count, dtype), dtype)), dtype
    )
    mean = Map(f"{total.name}_mean", total.axes, dtype, Apply("add", (quotient, first), dtype))
    return {name: attrs.evolve(total, name=name, body=body), mean.name: mean}


def _reached(loops: Loops, output: str) -> set[str]:
    """The values that one needs, itself among them."""
    found: set[str] = set()
    left = [output]
    while left:
        name = left.pop()
        if name in found or name not in loops.values:
            continue
        found.add(name)
        sources = (e.source for s in computed_from(loops.values[name]) for e in elements(s))
        left += sources
    return found


def _subtracted(loops: Loops, scalar: Scalar) -> Iterator[Reduction]:
    """The sums whose mean is subtracted somewhere in a scalar."""
    for part in parts(scalar):
        if isinstance(part, Apply) and (found := _subtrahend(loops, part)) is not None:
            yield found[0]


def _subtrahend(loops: Loops, difference: Apply) -> tuple[Reduction, Element] | None:
    """The mean that is subtracted, as `_mean` gives it; None where none is."""
    if difference.operation != "sub":
        return None
    quotient = _read(loops, difference.operands[1])
    return _mean(loops, quotient) if isinstance(quotient, Apply) else None


def _is_simple(loops: Loops, total: Reduction) -> bool:
    """Whether a term of a sum takes little, of what memory holds."""
    extents = {axis.name: axis.extent for axis in (*total.axes, *total.over)}
    term = resolved(loops, total.body, extents)
    sources = (loops.values.get(element.source) for element in elements(term))
    return len([*parts(term)]) <= _MOST_PARTS and all(
        value is None or is_product(value) or isinstance(value, Map) for value in sources
    )


def _read(loops: Loops, scalar: Scalar) -> Scalar:
    """`scalar`, with elements of maps that memory does not hold replaced by what they are, as long
    as that is an element again."""
    while isinstance(scalar, Element) and scalar.pad is None and not scalar.fetched:
        value = loops.values.get(scalar.source)
        if value is None or not is_expanded(value):
            break
        names = (axis.name for axis in value.axes)
        scalar = at(value.body, dict(zip(names, scalar.index, strict=True)))
    return scalar


def _mean(loops: Loops, quotient: Apply) -> tuple[Reduction, Element] | None:
    """The sum that a quotient is the mean of, and the element of it that is divided; None where it
    is no mean."""
    if quotient.operation != "div":
        return None
    total, count = (_read(loops, operand) for operand in quotient.operands)
    if not isinstance(total, Element) or not isinstance(count, Number):
        return None
    if total.pad is not None or total.where is not None or total.fetched:
        return None
    found = loops.values.get(total.source)
    if not isinstance(found, Reduction) or found.operation != "sum" or not found.dtype.is_float:
        return None
    terms = symbolic.product([axis.extent for axis in found.over])
    if quotient.dtype is not found.dtype or not symbolic.equal(_whole(count), terms):
        return None
    return found, total


def _whole(number: Number) -> ir.Expr:
    """The number as an expression of integers; -1 for one that is none."""
    value = number.value.value if isinstance(number.value, ir.Literal) else number.value
    if isinstance(value, float):
        return ir.Literal(int(value) if value.is_integer() else -1)
    return value if isinstance(value, ir.Expr) else ir.Literal(int(value))
