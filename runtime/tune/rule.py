"""A short rule that says which point serves which sizes: a decision tree on single symbols.

As Helion's ahead-of-time tuning does, the rule is learned from few sizes and is to be read by
people: the fewest questions that lead each measured size to a point that serves it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import attrs


@attrs.frozen
class Leaf:
    """A point, by its place in the table."""

    point: int


@attrs.frozen
class Question:
    """Whether `symbol` is at most `most`, and where either answer leads."""

    symbol: str
    most: int
    yes: Rule
    no: Rule


Rule = Leaf | Question


@attrs.frozen
class Served:
    """A size that was measured, and the points that serve it, the best first."""

    symbols: Mapping[str, int]
    points: tuple[int, ...]


def learn(sizes: Sequence[Served]) -> Rule:
    """A rule that leads every one of `sizes` (at least one, no two alike) to a point that serves
    it. Each question is the one after which the fewest further ones seem to be needed: the sides'
    sizes that no single point serves; of equals the first, and of one symbol the threshold whose
    neighbours are farthest apart. A threshold is the geometric mean of its neighbours."""
    if not _left(sizes):
        return Leaf(_lead(sizes))
    symbol, most = min(_questions(sizes), key=lambda asked: _cost(sizes, *asked))
    yes, no = _sides(sizes, symbol, most)
    return Question(symbol, most, learn(yes), learn(no))


def follow(rule: Rule, symbols: Mapping[str, int]) -> int:
    """The point that the rule gives for a size."""
    while isinstance(rule, Question):
        rule = rule.yes if symbols[rule.symbol] <= rule.most else rule.no
    return rule.point


def lines(rule: Rule, names: Sequence[str], indent: str = "") -> Iterator[str]:
    """The rule as text, a line for each question and point; `names` are those of the points."""
    match rule:
        case Leaf(point):
            yield f"{indent}{names[point]}"
        case Question(symbol, most, yes, no):
            yield f"{indent}{symbol} <= {most}:"
            yield from lines(yes, names, f"{indent}  ")
            yield f"{indent}else:"
            yield from lines(no, names, f"{indent}  ")


def _lead(sizes: Sequence[Served]) -> int:
    """The point that serves most of the sizes; of equals, that which is best for most of them, then
    the first one."""
    every = sorted({point for size in sizes for point in size.points})

    def key(point: int) -> tuple[int, int]:
        serves = sum(point in size.points for size in sizes)
        return serves, sum(size.points[0] == point for size in sizes)

    return max(every, key=key)


def _left(sizes: Sequence[Served]) -> int:
    """How many of the sizes the point that serves most of them does not serve."""
    lead = _lead(sizes)
    return sum(lead not in size.points for size in sizes)


def _questions(sizes: Sequence[Served]) -> Iterator[tuple[str, int]]:
    for symbol in sizes[0].symbols:
        values = sorted({size.symbols[symbol] for size in sizes})
        for low, high in itertools.pairwise(values):
            yield symbol, min(max(math.isqrt(low * high), low), high - 1)


def _sides(sizes: Sequence[Served], symbol: str, most: int) -> tuple[list[Served], list[Served]]:
    yes = [size for size in sizes if size.symbols[symbol] <= most]
    return yes, [size for size in sizes if size.symbols[symbol] > most]


def _cost(sizes: Sequence[Served], symbol: str, most: int) -> tuple[int, float]:
    yes, no = _sides(sizes, symbol, most)
    low = max(size.symbols[symbol] for size in yes)
    high = min(size.symbols[symbol] for size in no)
    return _left(yes) + _left(no), low / high
