"""One command line of sketchc in a process of its own, bounded in time and memory.

The process leads a session and ends with this one, however that ends; what it has started ends with
it. The caller names the function that runs there: the command line is a layer above this package.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

import attrs

from sketchc.runtime.process import memory
from sketchc.runtime.process.peer import Peer, PeerEndedError, program
from sketchc.runtime.process.templates import SHARED

#: Seconds between two looks at the clock and the memory.
_LOOK = 0.25
#: Seconds that the rest of a message takes at most.
_PATIENCE = 30.0

TIMEOUT, MEMORY, INTERRUPTED = "timeout", "memory", "interrupted"


@attrs.frozen
class Bounds:
    """Seconds of wall time, and bytes over all processes."""

    seconds: float
    memory: int


@attrs.frozen
class Ended:
    """How a process ended. `status` is its exit status, negative for a signal; `cut` says why it
    was ended before its time, "" where it was not. `printed` is the end of what it printed, `peak`
    the most memory that it was seen with, in bytes."""

    status: int
    cut: str
    printed: str
    seconds: float
    peak: int


def run_bounded(
    function: str, arguments: Sequence[str], bounds: Bounds, stop: threading.Event
) -> Ended:
    """Call `function` ("package.module:name") with a channel in a new process, tell it the
    `arguments`, and wait for {"status": ...}. Setting `stop` ends the process."""
    started = time.monotonic()
    # Only what descends from the process is counted, and ends with it.
    environment = {name: value for name, value in os.environ.items() if name != SHARED}
    environment[memory.BOUND] = str(bounds.memory)  # a task's own sizes are scaled to it
    peer = Peer(program(function, sys.executable, environment))
    status, cut, peak = 0, "", 0
    try:
        peer.tell({"arguments": list(arguments)}, started + bounds.seconds)
        while not cut and not peer.speaks(_LOOK):
            held = memory.of_tree(peer.process.pid)
            peak = max(peak, held)
            cut = _cut(bounds, time.monotonic() - started, held, stop)
        if not cut:
            status = _status(peer)
        return Ended(status, cut, peer.printed, time.monotonic() - started, peak)
    finally:
        peer.close()


def _status(peer: Peer) -> int:
    """The status that a process which has sent its message, or is gone, ended with."""
    try:
        return int(peer.hear(time.monotonic() + _PATIENCE)["status"])
    except PeerEndedError as error:
        return error.status


def _cut(bounds: Bounds, seconds: float, held: int, stop: threading.Event) -> str:
    """Why a process that has run so long and holds so much is to end; "" where it may go on."""
    if stop.is_set():
        return INTERRUPTED
    if seconds > bounds.seconds:
        return TIMEOUT
    return MEMORY if held > bounds.memory else ""
