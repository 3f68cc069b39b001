"""The launch condition that 64 bits hold every integer (R10): one, for every target.

Proofs reason over all integers, and code computes in 64 bits. `magnitudes` bounds every index,
bound and intermediate of the host and the kernels by polynomials; this module makes of them the
condition that each stays below 2^63. The interpreter and all generated hosts evaluate the same one,
so that they accept the same launches.

A bound that sizes alone cannot break is left out: a tensor has fewer than 2^48 elements (an extent
of 0 counted as 1), which a launch checks by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias, assert_never

from sketchc import ir
from sketchc import records as attrs
from sketchc.evaluate import Value, constants_of, evaluate
from sketchc.magnitudes import (
    LARGEST,
    Magnitudes,
    Polynomial,
    constant,
    multiply,
    never_negative,
    see_body,
    see_loop,
    upper,
)
from sketchc.source import Span

#: A tensor has fewer elements: 256 TiB of bytes, more than any memory that programs address.
MOST_ELEMENTS = 2**48

#: A factor and the host's values that it is multiplied with.
Term: TypeAlias = tuple[int, tuple[ir.Expr, ...]]


@attrs.frozen
class IndexWidth:
    """The condition that the sum of `terms`, which are never negative, is below `limit`; without
    terms every launch keeps it. `hopeless` is a place that leaves 64 bits at every launch."""

    terms: tuple[Term, ...]
    limit: int
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
            parts = [*([ir.Literal(factor)] if factor != 1 or not atoms else []), *atoms]
            product = parts[0]
            for part in parts[1:]:
                product = ir.Binary("*", product, part)
            total = product if total is None else ir.Binary("+", total, product)
        return ir.Literal(0) if total is None else total


def index_width(sketch: ir.Sketch) -> IndexWidth:
    """What a launch of the sketch must keep for every integer of it to fit 64 bits."""
    seen = Magnitudes(constants_of(sketch), padded=False, natural=_natural(sketch))
    _see_declarations(sketch, seen)
    _see_steps(sketch, sketch.steps, seen)
    sizes = _Sizes.of(sketch, seen)
    kept: Polynomial = {}
    most = 0
    for bound in seen.largest:
        implied = {m: sizes.most(m, c) for m, c in bound.items()}
        rest = {m: c for m, c in bound.items() if implied[m] is None}
        given = sum(value for value in implied.values() if value is not None)
        if given >= LARGEST // 2:  # so much that its terms must be looked at
            kept = upper(kept, bound)
        elif rest:
            kept = upper(kept, rest)
            most = max(most, given)
    limit = LARGEST - (1 << (most - 1).bit_length() if most > 0 else 0)
    return IndexWidth(_terms(kept, seen) if kept else (), limit, seen.hopeless)


def loaded_scalars(sketch: ir.Sketch) -> frozenset[str]:
    """The names of scalars and bindings whose values come from memory."""
    seen = Magnitudes(constants_of(sketch), padded=False)
    _see_steps(sketch, sketch.steps, seen)
    return frozenset(seen.wide)


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


def _see_steps(sketch: ir.Sketch, steps: tuple[ir.HostStep, ...], seen: Magnitudes) -> None:
    for step in steps:
        match step:
            case ir.Launch(phase):
                see_body(sketch, sketch.phases[phase].body, seen, constant(1))
            case ir.HostFor(body=body):
                see_loop(step, seen)
                _see_steps(sketch, body, seen)
            case ir.HostIf(condition, body, orelse):
                seen.see(condition)
                _see_steps(sketch, body, seen)
                _see_steps(sketch, orelse, seen)
            case ir.Fetch() | ir.Bind():
                see_body(sketch, (step,), seen)
            case _:
                assert_never(step)


def _natural(sketch: ir.Sketch) -> frozenset[str]:
    """The params and lets that no launch accepts below 0."""
    known = {name: value >= 0 for name, value in constants_of(sketch).items()}
    for require in sketch.requires:
        known.update(dict.fromkeys(_at_least_0(require.condition), True))
    for let in sketch.lets:
        if let.dtype.is_integer and never_negative(let.value, known):
            known[let.name] = True
    extents = [extent for tensor in sketch.tensors for extent in tensor.extents]
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


@attrs.frozen
class _Sizes:
    """What is known of the sizes of a launch: upper bounds of symbols, and for each tensor that is
    there the names that are multiplied in its number of elements."""

    limits: Mapping[str, int]
    tensors: tuple[Counter[str], ...]

    @staticmethod
    def of(sketch: ir.Sketch, seen: Magnitudes) -> _Sizes:
        limits = {s.name: s.upper_bound for s in sketch.symbols if s.upper_bound is not None}
        products = []
        for tensor in sketch.tensors:
            if tensor.optional or any(tensor.broadcast):
                continue
            bounds = [seen.see(extent) for extent in tensor.extents]
            single = (next(iter(bound)) for bound in bounds if len(bound) == 1)
            products.append(Counter(name for monomial in single for name in monomial))
        return _Sizes(limits, tuple(products))

    def most(self, monomial: tuple[str, ...], factor: Fraction) -> int | None:
        """The largest value of a term at launches whose tensors exist; None: there is none."""
        rest = [name for name in monomial if name not in self.limits]
        if rest and not any(Counter(rest) <= names for names in self.tensors):
            return None
        known = math.prod(self.limits[name] for name in monomial if name in self.limits)
        return math.ceil(factor) * known * (MOST_ELEMENTS if rest else 1)


def _terms(bound: Polynomial, seen: Magnitudes) -> tuple[Term, ...]:
    """Highest degree first; factors rounded up."""
    ordered = sorted(bound, key=lambda monomial: (-len(monomial), monomial))
    return tuple(
        (math.ceil(bound[monomial]), tuple(_atom(name, seen) for name in monomial))
        for monomial in ordered
    )


def _atom(name: str, seen: Magnitudes) -> ir.Expr:
    """The expression of an atom: a name, or the magnitude of one or of a call of `int`."""
    if not name.startswith("abs("):
        return ir.Ref(name, ir.NameKind.SYMBOL)
    inner = seen.functions.get(name, ir.Ref(name[4:-1], ir.NameKind.LET))
    return ir.Function("abs", (inner,))
