"""Work that several workers of one test run need, done by the first of them."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
#: The folder of this test run, in the environment of all its workers (tests/conftest.py).
FOLDER = "SKETCHC_TEST_SHARED"


@contextmanager
def measuring() -> Iterator[None]:
    """While a test measures, no other test does: two would take each other's cores. (Not to be
    nested.)"""
    place = os.environ.get(FOLDER)
    if place is None:
        yield
        return
    with (Path(place) / "measuring.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def shared(name: str, make: Callable[[], Result]) -> Result:
    """`make()`, or what another worker has made; the others wait while one makes it."""
    place = os.environ.get(FOLDER)
    if place is None:
        return make()
    kept = Path(place) / f"{name}.pickle"
    with (Path(place) / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            result = make()
            kept.write_bytes(pickle.dumps(result))
            return result
    found: Result = pickle.loads(kept.read_bytes())
    return found
