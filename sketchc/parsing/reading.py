"""Reading sketch files: one clear message for what is missing, not text, or far too large."""

from __future__ import annotations

import os
import sys

from sketchc.base.diagnostics import Diagnostic, DiagnosticError, Source, Span, UsageError, error
from sketchc.parsing.parser import MAXIMUM_SIZE

STANDARD_INPUT = "-"
SUFFIX = ".sketch"


def read(path: str) -> Source:
    """The text of a sketch file; "-" reads standard input.

    Raises `UsageError` for a path that cannot be read, and `DiagnosticError` for content that is
    not the text of a sketch: binary data (SK0131) or more than `MAXIMUM_SIZE` bytes (SK0132).
    """
    name = "<stdin>" if path == STANDARD_INPUT else path
    content = _content(path)
    size = len(content)
    if size > MAXIMUM_SIZE:
        raise DiagnosticError([_too_large(name, path)])
    offset = content.find(b"\0")
    what = "a NUL byte"
    text = ""
    if offset < 0:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            offset, what = error.start, "no UTF-8"
    if offset >= 0:
        raise DiagnosticError([_binary(name, offset, what)])
    return Source(name, text)


def _content(path: str) -> bytes:
    """The bytes of a file, one more than allowed at most."""
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read(MAXIMUM_SIZE + 1)
    try:
        with open(path, "rb") as file:
            return file.read(MAXIMUM_SIZE + 1)
    except IsADirectoryError:
        message = f"{path} is a directory, not a sketch"
        raise UsageError(message) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot read {path}: {reason}"
        raise UsageError(message) from error


def _start(name: str) -> Span:
    return Span(name, 0, 0, 1, 1, 1, 1)


def _too_large(name: str, path: str) -> Diagnostic:
    size = os.path.getsize(path) if os.path.isfile(path) else 0
    held = f"{size:,} bytes" if size else f"more than {MAXIMUM_SIZE:,} bytes"
    return error(
        _start(name),
        "SK0132",
        f"the file holds {held}; the limit is {MAXIMUM_SIZE:,}",
        help="a sketch is a page or two: give the path of one, or split the file",
    )


def _binary(name: str, offset: int, what: str) -> Diagnostic:
    return error(
        _start(name),
        "SK0131",
        f"the file is not text: {what} at byte offset {offset}",
        help="give the path of a sketch, saved as UTF-8",
    )


def sketch_files(path: str) -> list[str]:
    """The files that a command-line path stands for: itself, or all *.sketch below a directory.

    Raises `UsageError` for a directory that holds none.
    """
    if path == STANDARD_INPUT or not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIX)]
    if not found:
        message = f"the directory {path} holds no *{SUFFIX} files"
        raise UsageError(message)
    return found
