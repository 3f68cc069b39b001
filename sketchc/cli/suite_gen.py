"""The entry point of the process that runs one sample of a suite: one `sketchc` command line."""

from __future__ import annotations

import socket
import sys

from sketchc.runtime.process import messages

#: The function below, as a process is told to call it.
PERFORM = "sketchc.cli.suite_gen:perform"


def perform(channel: socket.socket) -> None:
    """Run the command line that comes over the channel, and send its exit status back."""
    from sketchc.cli.main import run

    status = run([str(argument) for argument in messages.receive(channel)["arguments"]])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    messages.send(channel, {"status": status})
