"""How a task's process runs the user's code: what is wrong with it becomes one line.

Needs nothing but the standard library: it is also used where sketchc is not installed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TaskError(Exception):
    """The task is not what it should be; the message is for the user."""


class Raised(Exception):
    """The task's own code raised: where, what, and the line it happened on."""

    def __init__(self, where: str, error: BaseException, path: Path) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == str(path)]
        line, text = 0, ""
        if own:
            line, text = own[-1].lineno or 0, own[-1].line or ""
        elif isinstance(error, SyntaxError):
            line, text = error.lineno or 0, (error.text or "").strip()
        message = str(error).strip().split("\n")[0]
        if isinstance(error, SyntaxError):
            message = error.msg
        elif isinstance(error, SystemExit):
            message = f"the task ends the process with status {error.code}"
        self.report = {
            "where": where,
            "type": type(error).__name__,
            "message": message[:500],
            "line": line,
            "text": text[:200],
        }
        super().__init__(message)


@contextmanager
def user_code(where: str, path: Path) -> Iterator[None]:
    """Whatever the code inside raises becomes `Raised`."""
    try:
        yield
    except (TaskError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Raised(where, error, path) from None
