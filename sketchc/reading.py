"""Reading sketch files: what cannot be a sketch is said in one clear message, before parsing."""

from __future__ import annotations

import sys
from pathlib import Path

from sketchc.diagnostics import UsageError
from sketchc.source import Source

#: No sketch is this long; a file that is gets refused before anything is spent on it.
LARGEST_FILE = 1_000_000


def read(path: str) -> Source:
    """The text of a file, or of standard input for "-".

    Raises `UsageError` for a file that is missing, unreadable, a folder, larger than
    `LARGEST_FILE` bytes, or not UTF-8 text (with the offset of the first bad byte).
    """
    data = _bytes(path)
    name = "<stdin>" if path == "-" else path
    if len(data) > LARGEST_FILE:
        msg = f"{name} is larger than {LARGEST_FILE:,} bytes; this cannot be a sketch"
        raise UsageError(msg)
    if b"\0" in data:
        msg = f"{name} is a binary file (NUL at byte {data.index(0):,}); give a text file"
        raise UsageError(msg)
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{name} is not UTF-8 text (byte {error.start:,}); save it as UTF-8"
        raise UsageError(msg) from error


def _bytes(path: str) -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read(LARGEST_FILE + 1)
        with Path(path).open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except FileNotFoundError as error:
        msg = f"there is no file {path}"
        raise UsageError(msg) from error
    except IsADirectoryError as error:
        msg = f"{path} is a folder; give a sketch file"
        raise UsageError(msg) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        msg = f"cannot read {path}: {reason}"
        raise UsageError(msg) from error
