"""Differences between texts, and writing files as a whole."""

from __future__ import annotations

import os

from sketchc.base.diagnostics import Source, UsageError


def difference(source: Source, text: str, changed: str) -> str:
    """A unified diff from the file to another text of it, labelled by how that came about."""
    import difflib

    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        source.name,
        f"{source.name} ({changed})",
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def write(path: str, text: str) -> None:
    """Replace a file's content, written aside first so that no failure loses it; a link stays."""
    path = os.path.realpath(path)
    aside = f"{path}.{os.getpid()}.tmp"
    try:
        mode = os.stat(path).st_mode
        with open(aside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(aside, mode)
        os.replace(aside, path)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise UsageError(message) from error
