"""What an execution can find wrong, as structured data, and the diagnostics made from it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.diagnostics import NOWHERE, Diagnostic, DiagnosticError, Severity, Span

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


@attrs.frozen
class Violation:
    """One rule broken by one execution.

    `tensor` names the tensor (or the tile) concerned, `element` the first element or lane, and
    `iterations` the values of the loop variables: two for "independent" (the two parallel
    iterations), one or none otherwise.
    """

    kind: str
    tensor: str
    element: tuple[int, ...]
    iterations: tuple[Mapping[str, int], ...]
    text: str
    span: Span = attrs.field(default=NOWHERE, eq=False, repr=False)
    promised: bool = False

    def diagnostic(self, symbols: Mapping[str, int] | None = None) -> Diagnostic:
        """The violation as an error; `symbols` are told in a note."""
        code, label, advice = KINDS[self.kind]
        notes = tuple(
            f"in the iteration {show_values(values)}"
            for values in self.iterations
            if values and self.kind != "independent"
        )
        if symbols:
            notes += (f"executed with {show_values(symbols)}",)
        return Diagnostic(
            code,
            Severity.ERROR,
            self.text,
            self.span,
            label=label,
            notes=notes,
            help=advice,
        )


@attrs.define
class Violations:
    """Collects violations, the first of each kind, subject and place; raises at the first one
    when `collect` is false."""

    collect: bool
    symbols: Mapping[str, int]
    found: dict[tuple[str, str, Span, int], Violation] = attrs.field(factory=dict)

    def add(self, violation: Violation) -> None:
        """Raises `DiagnosticError` unless collecting."""
        if not self.collect:
            raise DiagnosticError([violation.diagnostic(self.symbols)])
        key = (violation.kind, violation.tensor, violation.span, violation.span.start)
        self.found.setdefault(key, violation)


def launch_error(message: str, span: Span, *notes: str, advice: str = "") -> DiagnosticError:
    """A condition that does not hold at launch (SK0801)."""
    return DiagnosticError(
        [Diagnostic("SK0801", Severity.ERROR, message, span, notes=notes, help=advice)]
    )


def show_values(values: Mapping[str, object]) -> str:
    """`i = 0, j = 3`."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def show_element(tensor: str, element: tuple[int, ...]) -> str:
    """`X[0, 3]`."""
    return f"{tensor}[{', '.join(str(index) for index in element)}]"
