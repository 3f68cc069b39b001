"""For processes that must not outlive the one that started them. Only the standard library."""

from __future__ import annotations

import ctypes
import os
import signal

#: Of prctl(2).
_PR_SET_PDEATHSIG = 1
#: Who started this process.
_PARENT = os.getppid()


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone, however it ended:
    nobody else would end what hangs. (Linux; elsewhere nothing happens.)"""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() == 1 and os.getpid() != 1 and _PARENT != 1:
        os._exit(1)  # it was gone before that
