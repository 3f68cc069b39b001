"""Worker handler: code of a test in a process that has torch, and of sketchc what serves it."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from typing import Any


def execute(request: dict[str, Any], _arrays: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run `request["code"]` in `request["folder"]`; the reply has what it printed, and the
    traceback if it raised."""
    os.chdir(request["folder"])
    printed = io.StringIO()
    raised = ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(request["code"], "<test>", "exec"), {"__name__": "__main__"})
    except Exception:
        raised = traceback.format_exc()
    return {"printed": printed.getvalue(), "raised": raised}, {}
