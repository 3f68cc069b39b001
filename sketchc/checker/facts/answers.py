"""What a claim's proof hands back, and the words in which a counter-example is told."""

from __future__ import annotations

from collections.abc import Mapping

import sketchc.checker.facts.budget as budget
from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Severity, Span, error
from sketchc.ir import nodes as ir
from sketchc.ir.show import assignments

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


def proved(
    claim: str,
    subject: str,
    words: str,
    span: Span,
    tier: ir.Tier = ir.Tier.PROVED,
    requires: tuple[ir.Require, ...] = (),
) -> Finding:
    """A claim that holds at every launch, or at those that are accepted with what it requires."""
    return Finding(ir.Proof(claim, subject, tier, words, span=span), (), requires)


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


#: Open claims by name: the code, and the message for the subject.
_UNPROVED = {
    "in-bounds": ("SK0502", "cannot prove that the subscripts of `{}` stay inside"),
    "slice-fits": ("SK0504", "cannot prove that the slices of `{}` fit their tiles"),
    "covered": ("SK0511", "cannot prove that every element of `{}` is written"),
    "initialised": ("SK0531", "cannot prove that an earlier phase writes what is loaded from `{}`"),
    "independent": ("SK0522", "cannot prove that parallel iterations are independent in `{}`"),
}


def unproved(
    claim: str,
    subject: str,
    span: Span,
    advice: str,
    message: str = "",
    label: str = OPEN,
    labels: tuple[Label, ...] = (),
    tried: str = "",
) -> Finding:
    """A claim that is neither proved nor refuted: an error, unless `prove` is told to allow it.
    Says what can be decided, and what was tried: here, unless another text is given."""
    code, usual = _UNPROVED[claim]
    tried = tried or budget.tried()
    diagnostic = error(
        span,
        code,
        message or usual.format(subject),
        label,
        labels=labels,
        notes=(UNDECIDED, f"tried: {tried}") if tried else (UNDECIDED,),
        help=advice,
    )
    return contested(claim, subject, diagnostic)


def counter_example(
    symbols: Mapping[str, int],
    params: Mapping[str, int | float | bool],
    iterations: tuple[Mapping[str, int], ...],
    element: tuple[int, ...],
    told: str,
) -> ir.CounterExample:
    """What happens at these sizes and params; in iterations where there are loops."""
    text = f"{for_sizes({**symbols, **params})}{told}"
    return ir.CounterExample(symbols, tuple(filter(None, iterations)), element, text, params)


def in_iteration(where: Mapping[str, object], verb: str) -> str:
    """`iteration i = 2 reads`, or `the sketch reads` where there are no loops."""
    return f"iteration {assignments(where)} {verb}" if where else f"the sketch {verb}"


def for_sizes(symbols: Mapping[str, object]) -> str:
    """`for M = 300, ` or nothing where a sketch has no symbols."""
    return f"for {assignments(symbols)}, " if symbols else ""


def severity(allow_unproved: bool) -> Severity:
    """An unproved claim is an error unless the user allowed it; it is never silent."""
    return Severity.WARNING if allow_unproved else Severity.ERROR
