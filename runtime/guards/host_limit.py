"""A time limit for wrappers that run only so that their launches are recorded."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds that importing a generated file, or running its wrapper without its kernels, may take.
HOST_SECONDS = 10.0


class HostTimeoutError(BaseException):
    """Raised inside a wrapper that takes too long; no `except Exception` catches it."""


@contextmanager
def host_limit(seconds: float) -> Iterator[None]:
    """Raise `HostTimeoutError` in the block after `seconds`. For the main thread only."""

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
    """Pause the time limit of `host_limit`, if there is one, within the block: for compilers."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
