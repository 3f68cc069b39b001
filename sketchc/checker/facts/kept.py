"""Answers that are kept from one tuning point of a sketch to the next.

The systems of inequalities behind domains and proofs hold the values of the constants that they
use, and no others. Where a system comes back, at a point at which these are the same, so does its
answer. A `Store` is filled while `keeping` it; elsewhere nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

from sketchc.checker.facts import budget

Answer = TypeVar("Answer")

#: By question: the answer, and the work that it took.
Store: TypeAlias = dict[Hashable, tuple[object, int]]

_CURRENT: ContextVar[Store | None] = ContextVar("store", default=None)


@contextmanager
def keeping(store: Store) -> Iterator[None]:
    """A block that answers from the store where it can, and adds to it."""
    token = _CURRENT.set(store)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def known(question: Callable[[], Hashable], answer: Callable[[], Answer]) -> Answer:
    """What `answer` gives; where a store is kept, what it gave for an equal question. The work is
    counted again, so that a claim is given up at every point or at none."""
    store = _CURRENT.get()
    if store is None:
        return answer()
    before = budget.left()
    key = (before is None, question())
    if key in store:
        found, work = store[key]
        budget.spend(work)
        return found  # type: ignore[return-value]  # of the type that the question's kind has
    result = answer()
    after = budget.left()
    store[key] = (result, 0 if before is None or after is None else before - after)
    return result
