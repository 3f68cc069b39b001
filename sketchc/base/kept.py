"""Results that are kept: what was asked lately is not worked out again.

Only functions of immutable arguments are, whose results nobody can change: a sketch is checked,
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

#: How many sketches are kept: one takes a megabyte.
SKETCHES = 128

_FORGET: list[Callable[[], None]] = []


def kept(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function that keeps its results for the arguments of its last `SKETCHES` calls. What it
    raises is not kept."""
    cached = lru_cache(maxsize=SKETCHES)(function)
    forgotten(cached.cache_clear)
    return cached  # type: ignore[return-value]  # its arguments are hashable


def forgotten(clear: Callable[[], None]) -> None:
    """Have `forget` call `clear`."""
    _FORGET.append(clear)


def forget() -> None:
    """Drop all that is kept."""
    for clear in _FORGET:
        clear()


class Named(dict[str, Result]):
    """Named values as an argument of such a function. They are told apart as they are written: 1,
    1.0 and True differ, and both zeros."""

    def __hash__(self) -> int:  # type: ignore[override]  # nobody changes one
        return hash(frozenset(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and repr(self) == repr(other)

    __ne__ = object.__ne__
