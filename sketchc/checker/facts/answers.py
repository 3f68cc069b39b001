"""What a claim's proof hands back, and the words in which a counter-example is told."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Severity, Span
from sketchc.checker.facts import budget
from sketchc.ir import nodes as ir

#: What the checker can decide, for those it could not.
UNDECIDED = (
    "sums of names with integer factors, quotients, remainders, and products of sizes are decided; "
    "squares and other products of loop variables are not"
)


#: What is told of a claim that is open.
OPEN = "could be neither proved nor refuted"

#: What is told of a counter-example that needs too many iterations to be tried.
RECHECKED = "a counter-example was found that takes too long to try"


@records.frozen
class Finding:
    """One verdict with what follows from it: diagnostics, and launch checks to generate.

    `testable`: running the sketch at small sizes says something about the claim where it is not
    proved; for one about arbitrary data it does not."""

    proof: ir.Proof
    diagnostics: tuple[Diagnostic, ...] = ()
    requires: tuple[ir.Require, ...] = ()
    testable: bool = True

    @property
    def about(self) -> tuple[str, str]:
        """The claim, and what it is about."""
        return self.proof.claim, self.proof.subject

    @property
    def proved(self) -> bool:
        """Whether the claim holds at every launch."""
        return self.proof.tier is ir.Tier.PROVED


def proved(claim: str, subject: str, words: str, span: Span) -> Finding:
    """A claim that holds at every launch."""
    return Finding(ir.Proof(claim, subject, ir.Tier.PROVED, words, span=span))


def contested(
    claim: str,
    subject: str,
    diagnostic: Diagnostic,
    example: ir.CounterExample | None = None,
    detail: str = "",
) -> Finding:
    """A claim that the example refutes, or that is open where there is none; told as at the
    diagnostic's carets where no detail is given."""
    tier = ir.Tier.UNPROVED if example is None else ir.Tier.REFUTED
    told = detail or diagnostic.label
    proof = ir.Proof(claim, subject, tier, told, example, span=diagnostic.span)
    return Finding(proof, (diagnostic,))


def assignments(values: Mapping[str, object]) -> str:
    """`M = 300, N = 520`."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def for_sizes(symbols: Mapping[str, object]) -> str:
    """`for M = 300, ` or nothing where a sketch has no symbols."""
    return f"for {assignments(symbols)}, " if symbols else ""


def element_text(name: str, element: tuple[int, ...]) -> str:
    """`C[5, 0]`."""
    return f"{name}[{', '.join(str(index) for index in element)}]"


def undecided() -> tuple[str, ...]:
    """The notes of a claim that is neither proved nor refuted: what can be decided, and what was
    tried here."""
    tried = budget.tried()
    return (UNDECIDED, f"tried: {tried}") if tried else (UNDECIDED,)


def severity(allow_unproved: bool) -> Severity:
    """An unproved claim is an error unless the user allowed it; it is never silent."""
    return Severity.WARNING if allow_unproved else Severity.ERROR
