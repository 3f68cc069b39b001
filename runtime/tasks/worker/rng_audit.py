"""Which random numbers a run of a task drew from NumPy's, Python's and the system's generators.

A task that draws in its run has no reference, however rarely the draw shows in its outputs. Draws
that the task seeds itself, in the same run, repeat. So what counts is the state that a generator
had when it was drawn from: a `Watch` around each of two runs, which begin with generators in other
states, notes it, and draws are fine where both noted the same.

For a task's own process, also where sketchc is not installed: it needs NumPy alone. `install` comes
before the task's file is loaded, which may import functions by name.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, Self

import numpy as np

#: What was drawn from, with digests of the states that the result depends on.
Event = tuple[Any, ...]

_CLASSES = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64", "RandomState")


class _Source:
    """A generator: its name, how its state is read, and a digest of its `start` state."""

    def __init__(self, name: str, read: Callable[[], object]) -> None:
        self.name, self.read = name, read
        self.start = self.digest()

    def digest(self) -> int:
        return _digest(self.read())


_watch: Watch | None = None
_installed = False
#: Every generator that was made since `install`, kept alive, so that no other gets its identity.
_made: dict[int, _Source] = {}


def _digest(state: object) -> int:
    if isinstance(state, Mapping):
        return hash(tuple((key, _digest(value)) for key, value in state.items()))
    if isinstance(state, np.ndarray):
        return hash(state.tobytes())
    return hash(state)


class Watch:
    """Notes the draws of one run: `events`."""

    def __init__(self, *more: tuple[str, Callable[[], object]]) -> None:
        """`more` are further generators: their names, and how their states are read."""
        self.events: list[Event] = []
        shared = (
            ("numpy.random", lambda: np.random.get_state(legacy=False)),
            ("random", random.getstate),
            *more,
        )
        self._shared = {name: _Source(name, read) for name, read in shared}
        self._before: Watch | None = None

    def __enter__(self) -> Self:
        global _watch
        self._before, _watch = _watch, self
        for source in (*self._shared.values(), *_made.values()):
            source.start = source.digest()
        self._old = set(_made)
        return self

    def __exit__(self, *_: object) -> None:
        global _watch
        _watch = self._before
        for source in self._shared.values():
            self._note(source)
        for identity, source in tuple(_made.items()):
            if (now := source.digest()) != source.start:
                old = identity in self._old
                self.events.append((source.name, now) if old else (source.name, source.start, now))

    def _note(self, source: _Source) -> None:
        if (now := source.digest()) != source.start:
            self.events.append((source.name, now))

    def reseeded(self, name: str, seed: Callable[[], Any]) -> Any:
        """Give a shared generator another state by `seed`, and note if it was drawn from before."""
        source = self._shared[name]
        self._note(source)
        with _unwatched():
            found = seed()
        source.start = source.digest()
        return found

    def system(self, content: bytes) -> None:
        """Note a draw of the system's random numbers, which never repeat."""
        self.events.append(("os.urandom", content))


def stir() -> None:
    """Give the shared generators other states: what is drawn from them unseeded shows."""
    random.seed()
    np.random.seed()


def first_that_differs(one: Sequence[Event], other: Sequence[Event]) -> str:
    """The first generator that two runs drew from in other states; "" where all draws repeat."""
    pairs = zip_longest(one, other)
    return next((str((a or b or ("",))[0]) for a, b in pairs if a != b), "")


@contextmanager
def _unwatched() -> Iterator[None]:
    """Within, no draws are noted: a generator is made or seeded, whose state shows that."""
    global _watch
    kept, _watch = _watch, None
    try:
        yield
    finally:
        _watch = kept


def install() -> None:
    """Let watches see generators that are made, and seeds of shared ones; once a process."""
    global _installed
    if _installed:
        return
    _installed = True
    for module, name in ((np.random, "numpy.random"), (random, "random")):
        for function in ("seed", "set_state", "setstate"):
            if hasattr(module, function):
                setattr(module, function, _seeding(name, getattr(module, function)))
    for name in _CLASSES:
        setattr(np.random, name, _remembered(getattr(np.random, name)))
    make = np.random.default_rng

    def default_rng(seed: Any = None) -> Any:
        with _unwatched():
            generator = make(seed)
        _remember(generator.bit_generator)
        return generator

    np.random.default_rng = default_rng
    _hear_of_python()


def _seeding(name: str, seed: Callable[..., Any]) -> Callable[..., Any]:
    def seeded(*arguments: Any, **named: Any) -> Any:
        if _watch is None:
            return seed(*arguments, **named)
        return _watch.reseeded(name, lambda: seed(*arguments, **named))

    return seeded


def _remembered(kind: Any) -> Any:
    """A class of NumPy's generators or bit generators whose instances are remembered."""

    class Remembered(kind):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            with _unwatched():
                super().__init__(*arguments, **named)
            _remember(getattr(self, "_bit_generator", self))

    Remembered.__name__ = Remembered.__qualname__ = kind.__name__
    Remembered.__module__ = kind.__module__
    return Remembered


def _remember(bits: Any) -> None:
    if id(bits) not in _made:
        _made[id(bits)] = _Source("a generator of NumPy", lambda: bits.state)


def _hear_of_python() -> None:
    """Wrap `random.Random`, and `os.urandom`, which gives the system's random bytes."""
    make = random.Random.__init__

    def made(self: random.Random, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        # `tempfile` draws the names of files, which are nobody's outputs.
        if sys._getframe(1).f_globals.get("__name__") == "tempfile":
            return
        if not isinstance(self, random.SystemRandom):
            _made[id(self)] = _Source("a generator of `random`", self.getstate)

    random.Random.__init__ = made  # type: ignore[method-assign]
    ask = os.urandom

    def urandom(size: int, /) -> bytes:
        content = ask(size)
        if _watch is not None:
            _watch.system(content)
        return content

    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]
