"""Who may compile, and who has a device, where several candidates are judged at once.

Compiling takes a core, running a device: they are counted apart, so that one candidate compiles
while another runs. By default nobody waits. A pool gives its processes slots that they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol


class Slots(Protocol):
    """What a candidate asks for before it takes a core or a device."""

    def compiling(self) -> AbstractContextManager[None]:
        """Around a compiler."""

    def running(self) -> AbstractContextManager[None]:
        """Around a run, or a measurement: nobody else uses the device meanwhile."""

    def alone(self) -> AbstractContextManager[None]:
        """Around a run for which nobody else may compile, or run on another device. A device is
        asked for within, as ever."""


class _Free:
    """Nobody else is there."""

    def compiling(self) -> AbstractContextManager[None]:
        return nullcontext()

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()


_current: Slots = _Free()


def compiling() -> AbstractContextManager[None]:
    """Around a compiler, in this process's slots."""
    return _current.compiling()


def running() -> AbstractContextManager[None]:
    """Around a run, in this process's slots."""
    return _current.running()


def alone() -> AbstractContextManager[None]:
    """Around a run for which nobody else may compile or run, in this process's slots."""
    return _current.alone()


def use(slots: Slots) -> None:
    """From now on this process waits for these."""
    global _current
    _current = slots


@contextmanager
def using(slots: Slots) -> Iterator[None]:
    """`use` for a while."""
    before = _current
    use(slots)
    try:
        yield
    finally:
        use(before)
