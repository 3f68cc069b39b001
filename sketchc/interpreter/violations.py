"""The options of a run of the interpreter, the violations that it finds, and its coverage."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Diagnostic, DiagnosticError, Span, error
from sketchc.ir.show import assignments

#: kind of violation -> (code, words at the carets, what to do about it)
KINDS: dict[str, tuple[str, str, str]] = {
    "in-bounds": ("SK0802", "out of range", "keep the subscript in range, or add a require"),
    "slice-fits": ("SK0803", "too long", "make the tile at least as long as the slice"),
    "initialised": (
        "SK0804",
        "reads what has no value",
        "assign or store it first, or give it an initial value",
    ),
    "covered": (
        "SK0805",
        "not covered",
        "store every element, or initialise the output with `= c`",
    ),
    "independent": (
        "SK0806",
        "conflicts with another iteration",
        "let every parallel iteration work on its own elements",
    ),
    "arithmetic": ("SK0807", "has no value", "guard the operand with where() before it"),
    "index-width": (
        "SK0811",
        "too large",
        "check or clamp what was loaded before it takes part in an index",
    ),
    "conversion": ("SK0808", "does not fit", "clamp the source first, or cast with sat=True"),
}


@records.frozen
class Violation:
    """One rule broken by one execution.

    `tensor` names the tensor (or the tile) concerned, `element` the first element or lane, and
    `iterations` the values of the loop variables: two for "independent" (the two parallel
    iterations), one or none otherwise. `promised`: the caller or the sketch promised the opposite.
    """

    kind: str
    tensor: str
    element: tuple[int, ...]
    iterations: tuple[Mapping[str, int], ...]
    text: str
    span: Span = records.field(default=NOWHERE, eq=False, repr=False)
    promised: bool = False

    def diagnostic(self, symbols: Mapping[str, int] | None = None) -> Diagnostic:
        """The violation as an error; a note lists `symbols`."""
        code, label, advice = KINDS[self.kind]
        notes = tuple(
            f"in the iteration {assignments(values)}"
            for values in self.iterations
            if values and self.kind != "independent"
        )
        if symbols:
            notes += (f"executed with {assignments(symbols)}",)
        return error(self.span, code, self.text, label=label, notes=notes, help=advice)


@records.define
class Violations:
    """Collects violations, the first of each kind, subject and place; raises at the first one
    when `collect` is false."""

    collect: bool
    symbols: Mapping[str, int]
    found: dict[tuple[str, str, Span, int], Violation] = records.field(factory=dict)

    def add(self, violation: Violation) -> None:
        """Keep a violation where they are collected, else raise it as `DiagnosticError`."""
        if not self.collect:
            raise DiagnosticError([violation.diagnostic(self.symbols)])
        key = (violation.kind, violation.tensor, violation.span, violation.span.start)
        self.found.setdefault(key, violation)


def launch_error(message: str, span: Span, *notes: str, advice: str = "") -> DiagnosticError:
    """The exception for a condition that does not hold at launch (SK0801)."""
    return DiagnosticError([error(span, "SK0801", message, notes=notes, help=advice)])


@records.define
class RunCoverage:
    """What a run reached. `trips`: the most iterations in a row of each loop; `sides`: branches
    with their outcome. `telling`: whether the tile sizes of the run differ from one another and
    from 1, so that a mistaken use of one for another shows."""

    trips: dict[int, int] = records.field(factory=dict)
    sides: set[tuple[int, bool]] = records.field(factory=set)
    telling: bool = True

    def loop(self, place: int, count: int) -> None:
        """Note that the loop at `place` ran `count` times."""
        if count > self.trips.get(place, -1):
            self.trips[place] = count

    def branch(self, place: int, taken: bool) -> None:
        """Note the outcome of the condition at `place`."""
        self.sides.add((place, taken))


@records.frozen
class Options:
    """Options of `interpret`.

    `collect`: return violations in the result instead of raising at the first one.
    `check_domains`: compare every static domain with the lanes found; a difference is an
    `InternalError`, for it is the checker's.
    `shuffle`: the seed by which the iterations of parallel loops are permuted; None keeps order.
    `poison`: what void float lanes and unwritten float elements hold (integers have a sentinel).
    `padding`: this many more lanes on every tile axis that is not of extent 1; operations then
    work on whole arrays, poison included, and mask as generated code does (LOWERING 1, 4, 19).
    `rounding`: False keeps all floats in float64, outputs too, so that only reassociation remains.
    `places`: note where stores with `unique=True` or `covers=True` write, and which lanes have an
    index from memory that lies outside the tensor.
    `memory_limit`: bytes that tensors (with their shadow) and each tile may take.
    """

    collect: bool = False
    check_domains: bool = False
    shuffle: int | None = None
    poison: float = math.nan
    padding: int = 0
    rounding: bool = True
    places: bool = False
    memory_limit: int = 4 * 2**30
