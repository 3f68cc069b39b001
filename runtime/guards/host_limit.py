"""A clock for wrappers that run only to see what they launch: they have little to do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: What importing a generated file, or running its wrapper without its kernels, may take.
HOST_SECONDS = 10.0


class HostTimeoutError(BaseException):
    """Raised into a wrapper that does not come to an end; no `except Exception` catches it."""


@contextmanager
def host_limit(seconds: float) -> Iterator[None]:
    """Raise `HostTimeoutError` inside when the time is up. For the main thread only."""

    def stop(*_: object) -> None:
        raise HostTimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop the clock, if there is one: for compilers."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
