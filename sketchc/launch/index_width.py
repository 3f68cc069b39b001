"""The launch condition that 64 bits hold every integer (R10): one, for every target.

Proofs reason over all integers, and code computes in 64 bits. `magnitudes` bounds every index,
bound and intermediate of the host and the kernels by polynomials; this module makes of them the
condition that each stays below 2^63. The interpreter and all generated hosts evaluate the same
condition, so that they accept the same launches.

A bound that sizes alone cannot break is left out: a tensor has fewer than 2^48 elements (an extent
of 0 counted as 1), which a launch checks by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.memo import per_sketch
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, constants_of, evaluate
from sketchc.ir.show import show
from sketchc.ir.symbolic import product
from sketchc.launch.magnitudes import (
    LARGEST,
    Magnitudes,
    Polynomial,
    by_degree,
    constant,
    multiply,
    never_negative,
    see_body,
    upper,
)

#: A tensor has fewer elements: 256 TiB of bytes, more than any memory that programs address.
MOST_ELEMENTS = 2**48

#: Conditions of more characters than this are described in words.
_LONGEST_TEXT = 60

#: A factor, and the host values whose magnitudes it is multiplied by.
Term: TypeAlias = tuple[int, tuple[ir.Expr, ...]]


@records.frozen
class IndexWidth:
    """The condition that the sum of `terms`, which are never negative, is below `limit`; without
    terms it always holds. `hopeless` is the place of an integer that no launch keeps in 64 bits."""

    terms: tuple[Term, ...]
    limit: int
    place: Span = NOWHERE  # of the first integer that may leave 64 bits
    hopeless: Span | None = None

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether a launch with these host values stays within 64 bits."""
        return self.total(values) < self.limit

    def total(self, values: Mapping[str, Value]) -> int:
        """The sum at a launch, in integers without limits."""
        return sum(
            factor * math.prod(abs(int(evaluate(atom, values))) for atom in atoms)
            for factor, atoms in self.terms
        )

    @property
    def sum(self) -> ir.Expr:
        """The sum as an expression of the host."""
        total: ir.Expr | None = None
        for factor, atoms in self.terms:
            factors = [ir.Literal(factor)] if factor != 1 or not atoms else []
            term = product([*factors, *atoms])
            total = term if total is None else ir.Binary("+", total, term)
        return ir.Literal(0) if total is None else total

    @property
    def condition(self) -> ir.Expr:
        """The condition as an expression of the host, in integers without limits."""
        return ir.Binary("<", self.sum, ir.Literal(self.limit))

    @property
    def text(self) -> str:
        """The condition as text, such as `N*k + k < 2**63`, or in words where that is long."""
        text = f"{show(self.sum)} < {power_text(self.limit)}"
        return text if len(text) <= _LONGEST_TEXT else "integers that stay within 64 bits"


def power_text(limit: int) -> str:
    """A limit as Python text: `2**63 - 2**50`."""
    less = LARGEST - limit
    return "2**63" + (f" - 2**{less.bit_length() - 1}" if less else "")


def existing(sketch: ir.Sketch) -> tuple[tuple[ir.Expr, ...], ...]:
    """The tensors whose number of elements a launch must check, each as the names that its extents
    multiply: two names at least, and not all of them among those of another tensor. (A single
    axis is no longer than memory, so it needs no check.)"""
    found = [
        tuple(records.evolve(extent, span=NOWHERE) for extent in names)
        for names in map(_sizes, sketch.tensors)
        if len(names) > 1
    ]
    kept: list[tuple[ir.Expr, ...]] = []
    for extents in sorted(found, key=len, reverse=True):
        if not any(Counter(extents) <= Counter(other) for other in kept):
            kept.append(extents)
    return tuple(extents for extents in dict.fromkeys(found) if extents in kept)


def exists(extents: tuple[ir.Expr, ...]) -> ir.Expr:
    """The condition that memory can hold the elements of a tensor; 0 counts as extent 1."""
    counts: list[ir.Expr] = [ir.Binary("max", extent, ir.Literal(1)) for extent in extents]
    return ir.Binary("<", product(counts), ir.Literal(MOST_ELEMENTS))


@per_sketch
def index_width(sketch: ir.Sketch) -> IndexWidth:
    """The condition under which every integer of a launch of the sketch fits 64 bits."""
    seen = _magnitudes(sketch)
    return _condition(sketch, seen, seen.largest)


@per_sketch
def _magnitudes(sketch: ir.Sketch) -> Magnitudes:
    """The bounds of all integers of a sketch."""
    seen = Magnitudes(constants_of(sketch), padded=False, natural=_natural(sketch))
    _see_declarations(sketch, seen)
    see_body(sketch, sketch.steps, seen)
    return seen


def fetched_widths(sketch: ir.Sketch) -> dict[str, IndexWidth]:
    """For each scalar that the host fetches, by name: the condition on it, and on the scalars
    fetched before, under which the integers that depend on it fit 64 bits."""
    fetched = [step.name for step in walk.statements(sketch.steps) if isinstance(step, ir.Fetch)]
    if not fetched:
        return {}
    known = frozenset(fetched)
    seen = Magnitudes(constants_of(sketch), padded=False, natural=_natural(sketch), known=known)
    see_body(sketch, sketch.steps, seen)
    found: dict[str, IndexWidth] = {}
    for place, name in enumerate(fetched):
        later = set(fetched[place + 1 :])
        # A bound less the terms with later names still bounds all that uses none of those names.
        parts = []
        for bound in seen.largest:
            parts.append({m: c for m, c in bound.items() if not later & _names(m)})
            seen.places[id(parts[-1])] = seen.places.get(id(bound), NOWHERE)
        bounds = [part for part in parts if any(name in _names(monomial) for monomial in part)]
        found[name] = _condition(sketch, seen, bounds)
    return found


def _names(monomial: tuple[str, ...]) -> set[str]:
    return {atom.removeprefix("abs(").removesuffix(")") for atom in monomial}


def _condition(sketch: ir.Sketch, seen: Magnitudes, bounds: list[Polynomial]) -> IndexWidth:
    """One condition that keeps all `bounds` in 64 bits. Terms that the sizes of tensors bound by
    themselves are not in its sum, but lower its limit."""
    sizes = _Sizes.of(sketch)
    kept: Polynomial = {}
    most = 0
    place = NOWHERE
    for bound in bounds:
        implied = {m: sizes.most(m, c) for m, c in bound.items()}
        rest = {m: c for m, c in bound.items() if implied[m] is None}
        given = sum(value for value in implied.values() if value is not None)
        if given >= LARGEST // 2:  # so much that its terms must be looked at
            kept = upper(kept, bound)
        elif rest:
            kept = upper(kept, rest)
            most = max(most, given)
        else:
            continue
        place = seen.places.get(id(bound), NOWHERE) if place is NOWHERE else place
    limit = LARGEST - (1 << (most - 1).bit_length() if most > 0 else 0)
    return IndexWidth(_terms(kept, seen) if kept else (), limit, place, seen.hopeless)


def loaded_scalars(sketch: ir.Sketch) -> frozenset[str]:
    """The names of scalars and bindings whose values come from memory."""
    return frozenset(_magnitudes(sketch).wide)


# ---------------------------------------------------------------- what a sketch computes


def _see_declarations(sketch: ir.Sketch, seen: Magnitudes) -> None:
    for let in sketch.lets:
        seen.see(let.value)
        if let.dtype.is_integer:
            seen.see(ir.Ref(let.name, ir.NameKind.LET, let.dtype, span=let.span))
    for require in sketch.requires:
        seen.see(require.condition)
    for tensor in sketch.tensors:
        for extent in tensor.extents:
            seen.see(extent)
    for view in sketch.views:
        elements = constant(1)
        for extent in view.extents:
            elements = multiply(elements, seen.see(extent))
        seen.note(elements, view.span)  # it is compared with the number of its base's


def _natural(sketch: ir.Sketch) -> frozenset[str]:
    """The names of constants, params, lets and sizes that no accepted launch has below 0."""
    known = {name: value >= 0 for name, value in constants_of(sketch).items()}
    for require in sketch.requires:
        known.update(dict.fromkeys(_at_least_0(require.condition), True))
    for let in sketch.lets:
        if let.dtype.is_integer and never_negative(let.value, known):
            known[let.name] = True
    extents = [e for tensor in sketch.tensors if not tensor.optional for e in tensor.extents]
    found = {name for name, natural in known.items() if natural}
    return frozenset(found | {e.name for e in extents if isinstance(e, ir.Ref)})


def _at_least_0(condition: ir.Expr) -> list[str]:
    """The names that a condition bounds below by a literal of at least 0."""
    match condition:
        case ir.Binary("and", left, right):
            return [*_at_least_0(left), *_at_least_0(right)]
        case ir.Binary(">=" | ">" | "==", ir.Ref(name), ir.Literal(value)) if value >= 0:
            return [name]
        case ir.Binary("<=" | "<" | "==", ir.Literal(value), ir.Ref(name)) if value >= 0:
            return [name]
        case _:
            return []


# ---------------------------------------------------------------- what need not be checked


def _sizes(tensor: ir.Tensor) -> list[ir.Ref]:
    """The names that are multiplied in the number of elements of a tensor that every launch has."""
    if tensor.optional or any(tensor.broadcast):
        return []
    return [name for extent in tensor.extents for name in _factors(extent)]


def _factors(extent: ir.Expr) -> list[ir.Ref]:
    """The names of a product of names and positive literals; none of anything else."""
    match extent:
        case ir.Ref(kind=kind):
            return [] if kind is ir.NameKind.CONSTANT else [extent]
        case ir.Binary("*", ir.Literal(int(count)), ir.Ref() as name) if count > 0:
            return _factors(name)
        case ir.Binary("*", ir.Ref() as name, ir.Literal(int(count))) if count > 0:
            return _factors(name)
        case ir.Binary("*", ir.Ref() as left, ir.Ref() as right):
            return [*_factors(left), *_factors(right)]
        case _:
            return []


@records.frozen
class _Sizes:
    """What is known of the sizes of a launch: upper bounds of symbols, and for each tensor the
    names that are multiplied in its number of elements."""

    limits: Mapping[str, int]
    tensors: tuple[Counter[str], ...]

    @staticmethod
    def of(sketch: ir.Sketch) -> _Sizes:
        limits = {s.name: s.upper_bound for s in sketch.symbols if s.upper_bound is not None}
        names = ([extent.name for extent in _sizes(tensor)] for tensor in sketch.tensors)
        return _Sizes(limits, tuple(Counter(n for n in own if n not in limits) for own in names))

    def most(self, monomial: tuple[str, ...], factor: Fraction) -> int | None:
        """The largest value of a term at launches whose tensors exist; None if it is unbounded."""
        rest = Counter(name for name in monomial if name not in self.limits)
        if rest and not any(rest <= names for names in self.tensors):
            return None
        known = math.prod(self.limits[name] for name in monomial if name in self.limits)
        return math.ceil(factor) * known * (MOST_ELEMENTS if rest else 1)


def _terms(bound: Polynomial, seen: Magnitudes) -> tuple[Term, ...]:
    """The terms of a bound, highest degree first, with the factors rounded up."""
    return tuple(
        (math.ceil(bound[monomial]), tuple(_atom(name, seen) for name in monomial))
        for monomial in by_degree(bound)
    )


def _atom(name: str, seen: Magnitudes) -> ir.Expr:
    """The expression of an atom: a name, or the magnitude of one or of a call of `int`."""
    if not name.startswith("abs("):
        return ir.Ref(name, ir.NameKind.SYMBOL)
    inner = seen.functions.get(name, ir.Ref(name[4:-1], ir.NameKind.LET))
    return ir.Function("abs", (inner,))
