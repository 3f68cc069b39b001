"""Why a task gives no answer, in one line: it raised, its process ended, or was killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sketchc.runtime.process import memory
from sketchc.runtime.process.peer import PeerEndedError
from sketchc.runtime.tasks.description import TaskFailure, TaskKilledError

#: Seconds until a machine that is short of memory is asked for more all the same.
_PATIENCE = 30.0

#: What the process does in answer to a request.
DOING = {
    "load": "while the file was loaded",
    "follow": "while another list of inputs was chosen",
    "describe": "while the model and its inputs were made and forward was run on them",
    "inputs": "in get_inputs",
    "valid": "in valid_inputs",
    "shapes": "in Model.__init__",
    "reference": "in Model.forward",
    "probe": "while it was run at other sizes",
    "determinism": "while forward was run twice on the same inputs",
    "numbers": "while forward was run on its own inputs",
    "readings": "while forward was run again",
    "thresholds": "while forward was run and its numbers were noted",
}


def raised(path: Path, report: Mapping[str, Any]) -> str:
    """One line for an exception of the task's own code."""
    line = f" (line {report['line']}: {report['text']})" if report["line"] else ""
    said = f": {report['message']}" if report["message"] else ""
    return f"{path}: {report['where']} raised {report['type']}{said}{line}"


def ended(path: Path, end: PeerEndedError, command: str, log: str, *, short: bool) -> TaskFailure:
    """What is said of a process that ended so while it was at a command and had printed `log`;
    `short`: the kernel has ended processes for want of memory since it started."""
    doing, status = DOING[command], end.status
    if status == -signal.SIGKILL and end.by_itself:
        left = f"{memory.text(memory.available())} of memory are free now"
        why = f"the machine ran out of memory; {left}" if short else left
        return TaskKilledError(f"{path}: the task's process was killed (SIGKILL) {doing}: {why}")
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    last = log.strip().split("\n")[-1]
    said = f"; its last line: {last[:300]}" if last else ""
    return TaskFailure(f"{path}: the task ended its process ({how}, {doing}){said}")


def wait_for_memory() -> None:
    """Until there is some, or for a while."""
    deadline = time.monotonic() + _PATIENCE
    while memory.is_short(memory.available()) and time.monotonic() < deadline:
        time.sleep(0.25)
