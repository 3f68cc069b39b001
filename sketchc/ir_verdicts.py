"""Verdicts of the checker (LANGUAGE section 6).

Part of `sketchc.ir`, which exports every name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from sketchc import records as attrs
from sketchc.source import NOWHERE, Span


def _span() -> Span:
    return attrs.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


class Tier(Enum):
    """How a verdict was reached (LANGUAGE section 6), best first."""

    PROVED = "proved"
    PROVED_FOR_SHAPES = "proved for these shapes"
    CHECKED_AT_LAUNCH = "checked at launch"
    TESTED = "tested"
    ASSUMED = "assumed"
    UNPROVED = "unproved"
    REFUTED = "refuted"


@attrs.frozen
class CounterExample:
    """Values that make a claim fail: symbols, the iterations involved, the element touched, and
    params where their defaults do not."""

    symbols: Mapping[str, int]
    iterations: tuple[Mapping[str, int], ...] = ()
    element: tuple[int, ...] = ()
    text: str = ""
    params: Mapping[str, int | float | bool] = attrs.field(factory=dict)


@attrs.frozen
class Proof:
    """One verdict. `claim` is one of "in-bounds", "covered", "independent", "initialised",
    "slice-fits", "scratch", and "tile-size" (R6b: results do not depend on tile sizes)."""

    claim: str
    subject: str
    tier: Tier
    detail: str = ""
    counter_example: CounterExample | None = None
    span: Span = _span()
