"""What the processes of the tests of suites do: `perform` stands where the command line would."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time

from sketchc.runtime.process import messages

GROW = "import time; kept = bytearray(b'x') * (600 << 20); time.sleep(600)"


def perform(channel: socket.socket) -> None:
    """Do what the first argument says, and tell the status."""
    status = 0
    match messages.receive(channel)["arguments"]:
        case ["print"]:
            print("printed", flush=True)
        case ["refuse"]:
            status = 2
        case ["killed"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["hang"]:
            time.sleep(600)
        case ["grow"]:
            subprocess.run([sys.executable, "-c", GROW], check=False)
        case ["slow"]:  # the head of the message, and the rest after some looks at the clock
            body = b'{"status": 3}'
            channel.sendall(struct.pack("<Q", len(body)))
            time.sleep(1.0)
            channel.sendall(body)
            return
        case other:
            raise AssertionError(other)
    messages.send(channel, {"status": status})
