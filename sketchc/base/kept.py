"""Memoization of the stages of the compiler: results of recent calls are not computed again.

Only functions are memoized whose arguments and results are immutable: a sketch is checked,
planned and verified one after the other, by parts of sketchc that do not know of each other. What a
function reads besides (the hardware files, the targets) stays as it is while a process lives; a
test that replaces any of it calls `forget`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
Given = ParamSpec("Given")

#: How many results a function keeps: one of a sketch takes a megabyte.
SKETCHES = 128

_FORGET: list[Callable[[], None]] = []


def kept(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`function` with a cache of the results for its `SKETCHES` most recently used arguments.
    Exceptions are not cached."""
    cached = lru_cache(maxsize=SKETCHES)(function)
    forgotten(cached.cache_clear)
    return cached  # type: ignore[return-value]  # its arguments are hashable


def forgotten(clear: Callable[[], None]) -> None:
    """Have `forget` call `clear`."""
    _FORGET.append(clear)


def forget() -> None:
    """Drop all results that are kept, and clear all caches registered with `forgotten`."""
    for clear in _FORGET:
        clear()


class Named(dict[str, Result]):
    """Named values as an argument of a `kept` function. Values are compared by their `repr`: 1,
    1.0 and True differ, and so do 0.0 and -0.0."""

    def __hash__(self) -> int:  # type: ignore[override]  # nobody changes one
        return hash(frozenset(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and repr(self) == repr(other)

    __ne__ = object.__ne__
