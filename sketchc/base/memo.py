"""Memoised functions: a result for the same arguments is not computed again.

Memoised are only functions of immutable arguments whose results nobody can change: a sketch is
checked, planned and verified in turn by parts of sketchc that do not know of each other. What such
a function reads besides (the hardware files, the targets) stays as it is while a process lives; a
test that replaces any of it calls `forget`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
Given = ParamSpec("Given")
Sketch = TypeVar("Sketch")

#: How many results of one function are kept: that of one sketch takes a megabyte.
SKETCHES = 128

_FORGET: list[Callable[[], None]] = []


def memoised(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`function`, which keeps the results of its last `SKETCHES` different calls. What it raises is
    not kept."""
    cached = lru_cache(maxsize=SKETCHES)(function)
    on_forget(cached.cache_clear)
    return cached  # type: ignore[return-value]  # its arguments are hashable


def on_forget(clear: Callable[[], None]) -> None:
    """Have `forget` call `clear`, which drops what somebody else keeps."""
    _FORGET.append(clear)


def forget() -> None:
    """Drop all memoised results."""
    for clear in _FORGET:
        clear()


def per_sketch(function: Callable[[Sketch], Result]) -> Callable[[Sketch], Result]:
    """`function` with a cache of its answers for the last eight sketches, told apart by identity:
    each sketch is asked about often."""
    last: list[tuple[Sketch, Result]] = []

    @wraps(function)
    def kept(sketch: Sketch) -> Result:
        for known, answer in last:
            if known is sketch:
                return answer
        answer = function(sketch)
        last[:] = [(sketch, answer), *last[:7]]
        return answer

    return kept


class Named(dict[str, Result]):
    """Values by name, as an argument of a memoised function. Two are equal where they are written
    alike: 1, 1.0 and True differ, and so do 0.0 and -0.0."""

    def __hash__(self) -> int:  # type: ignore[override]  # nobody changes one
        return hash(frozenset(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and repr(self) == repr(other)

    __ne__ = object.__ne__
