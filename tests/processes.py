"""Processes of this machine, by what their command lines say."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that does not outlive the block. (`with Popen(...)` waits for it, for ever.)"""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        with process:
            pass


def running(mark: str) -> list[int]:
    """Processes that have the mark in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in place.read_bytes():
                found.append(int(place.parent.name))
    return found
