"""How much work a check may do. Work is counted, never timed: a verdict must not depend on the
machine, nor on what else runs there.

One unit is about a microsecond of one processor core. `claim` gives one claim its share, `attempt`
one way to decide it; what is spent inside counts outside as well, so that a whole check ends. Where
nobody set a limit, as in the passes that lower a sketch, work is free.

Answers are kept from one tuning point of a sketch to the next, from its check to its plans, and
from one sketch to another: the systems of inequalities behind domains and proofs hold the values of
the constants that they use, and no others. Where a system comes back, so does its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from sketchc.base import records
from sketchc.base.memo import on_forget

Result = TypeVar("Result")
Given = ParamSpec("Given")

#: All of one sketch, at all of its tuning points: a share for each of the first phases, less for
#: each further one (most phases of a network are alike), up to the most of all.
PHASE = 4_000_000
FIRST_PHASES = 6
FURTHER_PHASE = 200_000
CHECK = 120_000_000
#: What elaboration takes, per character of a sketch.
ELABORATED_CHARACTER = 3
#: One claim, and the ways to decide it: exact questions, one point tried, many sizes tried.
CLAIM = 1_200_000
EXACT = 700_000
RECHECK = 200_000
SEARCH = 300_000
#: What runs of a sketch leave of the work for judging their results.
JUDGED = 50_000


class OutOfWorkError(Exception):
    """The granted work is used up."""


@records.define(eq=False)
class _Allowance:
    left: int
    tried: list[str]


_CURRENT: ContextVar[_Allowance | None] = ContextVar("allowance", default=None)


def of_check(phases: int) -> int:
    """The work that the check of a sketch of so many phases may do, and each run for its proofs
    where nobody granted less."""
    first = min(max(1, phases), FIRST_PHASES)
    further = max(0, phases - FIRST_PHASES)
    return min(PHASE * first + FURTHER_PHASE * further, CHECK)


def spend(work: int) -> None:
    """Count work; raises `OutOfWorkError` where less than that is left."""
    allowance = _CURRENT.get()
    if allowance is not None:
        allowance.left -= work
        if allowance.left < 0:
            raise OutOfWorkError


def left() -> int | None:
    """The work that may still be done here; None where it is not limited."""
    allowance = _CURRENT.get()
    return None if allowance is None else max(0, allowance.left)


def note(tried: str) -> None:
    """Record what was tried in vain for the current claim."""
    allowance = _CURRENT.get()
    if allowance is not None and tried not in allowance.tried:
        allowance.tried.append(tried)


def tried() -> str:
    """What was tried in vain for the current claim, joined to one text."""
    allowance = _CURRENT.get()
    return "; ".join(allowance.tried) if allowance is not None else ""


def claim(limit: int, function: Callable[[], Result], otherwise: Callable[[], Result]) -> Result:
    """The result of `function`, which decides one claim, or of `otherwise` where `function` does
    more work than `limit`. What is tried meanwhile is noted for this claim alone."""
    return _granted(limit, [], function, otherwise, "the work that one check may do was used up")


def attempt(
    what: str,
    limit: int,
    otherwise: Result,
    function: Callable[Given, Result],
    *args: Given.args,
    **named: Given.kwargs,
) -> Result:
    """The result of `function` for these arguments, as one of the ways to decide a claim;
    `otherwise` where it does more work than `limit`, and then `what` is noted as tried."""
    outer = _CURRENT.get()
    tried = [] if outer is None else outer.tried
    return _granted(limit, tried, lambda: function(*args, **named), lambda: otherwise, what)


def _granted(
    limit: int,
    tried: list[str],
    function: Callable[[], Result],
    otherwise: Callable[[], Result],
    told: str,
) -> Result:
    outer = _CURRENT.get()
    granted = limit if outer is None else min(limit, max(0, outer.left))
    inner = _Allowance(granted, tried)
    token = _CURRENT.set(inner)
    try:
        return function()
    except OutOfWorkError:
        note(told)
        return otherwise()
    finally:
        _CURRENT.reset(token)
        if outer is not None:
            outer.left -= granted - max(0, inner.left)


#: Question, and whether work is unlimited -> the answer and its work. The oldest are dropped.
_KEPT: dict[Hashable, tuple[object, int]] = {}
_MOST_KEPT = 1 << 13
on_forget(_KEPT.clear)


def known(question: Callable[[], Hashable], answer: Callable[[], Result]) -> Result:
    """The result of `answer`, or the one kept for an equal `question`. The work is counted again,
    so that a claim is given up at every tuning point or at none."""
    before = left()
    key = (before is None, question())
    kept = _KEPT.get(key)
    if kept is not None:
        found, work = kept
        spend(work)
        return found  # type: ignore[return-value]  # of the type that the question's kind has
    result = answer()
    after = left()
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.pop(next(iter(_KEPT)), None)
    _KEPT[key] = (result, 0 if before is None or after is None else before - after)
    return result
