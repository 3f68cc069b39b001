"""The finding on a claim, and the text of its counter-example."""

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


#: The label of a claim that is open: neither proved nor refuted.
OPEN = "could be neither proved nor refuted"

#: The text for a counter-example that needs too many iterations to be tried.
RECHECKED = "a counter-example was found that takes too long to try"


@records.frozen
class Finding:
    """The verdict on one claim, with its diagnostics and the launch checks to generate.

    `testable`: running the sketch at small sizes says something about the claim where it is not
    proved; for a claim about arbitrary data it does not."""

    proof: ir.Proof
    diagnostics: tuple[Diagnostic, ...] = ()
    requires: tuple[ir.Require, ...] = ()
    testable: bool = True

    @property
    def about(self) -> tuple[str, str]:
        """The claim and its subject, such as a tensor's name."""
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
    """The finding on a claim that holds at every launch that passes the checks `requires`."""
    return Finding(ir.Proof(claim, subject, tier, words, span=span), (), requires)


def contested(
    claim: str,
    subject: str,
    diagnostic: Diagnostic,
    example: ir.CounterExample | None = None,
    detail: str = "",
) -> Finding:
    """The finding on a claim that `example` refutes, or that is unproved where `example` is None;
    the proof's text is `detail`, or the diagnostic's label where no detail is given."""
    tier = ir.Tier.UNPROVED if example is None else ir.Tier.REFUTED
    told = detail or diagnostic.label
    proof = ir.Proof(claim, subject, tier, told, example, span=diagnostic.span)
    return Finding(proof, (diagnostic,))


#: Claim -> the code and message of its diagnostic where it is open; `{}` is the subject.
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
    """A claim that is neither proved nor refuted: an error, unless `prove` is told to allow it. Its
    notes say what can be decided and what was tried: `tried`, or what `budget` has noted."""
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
    """A counter-example at these sizes, params and iterations; `told` says what happens there."""
    text = f"{for_sizes({**symbols, **params})}{told}"
    return ir.CounterExample(symbols, tuple(filter(None, iterations)), element, text, params)


def in_iteration(where: Mapping[str, object], verb: str) -> str:
    """`iteration i = 2 reads`, or `the sketch reads` where there are no loops."""
    return f"iteration {assignments(where)} {verb}" if where else f"the sketch {verb}"


def for_sizes(symbols: Mapping[str, object]) -> str:
    """`for M = 300, ` or nothing where a sketch has no symbols."""
    return f"for {assignments(symbols)}, " if symbols else ""


def severity(allow_unproved: bool) -> Severity:
    """The severity of an unproved claim: an error, or a warning where the user allowed it."""
    return Severity.WARNING if allow_unproved else Severity.ERROR
