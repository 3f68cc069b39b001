"""The API key: read once, then gone from where another process could find it.

A process's environment as it was started stays readable in /proc/PID/environ for every process of
the same user, also after `del os.environ[...]`, and a kernel under test is such a process. So
`take_key` overwrites the bytes there. What it cannot reach: the environment of the shell that
started us, if the key stands in that one's own block.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

#: Keys that were taken, by the variable's name: asking twice gives the same key.
_TAKEN: dict[str, str] = {}

#: What stands in place of a key.
REDACTED = "[key removed]"

#: Shorter values would be found in ordinary text; no provider's keys are that short.
_SHORTEST_KEY = 8

#: prctl(2): whether other processes of this user may read this one's memory, or a dump be written.
_PR_SET_DUMPABLE = 4


def take_key(name: str) -> str:
    """The value of the environment variable `name`, "" where it is unset; removes it everywhere.

    Afterwards neither `os.environ`, nor the C library's environment, nor /proc/self/environ hold
    the value, so that no process started later inherits it. Asked again, it returns the same key;
    a value that was set in between replaces it.
    """
    value = os.environ.get(name)
    if value is not None:
        _wipe_c_value(name)
        os.environ.pop(name, None)
        # What `os.environ` was made from.
        getattr(sys.modules.get("posix"), "environ", {}).pop(os.fsencode(name), None)
        _TAKEN[name] = value.strip()
    _wipe_initial_block(name)
    if _TAKEN.get(name):
        _forbid_reading_memory()
    return _TAKEN.get(name, "")


def redact(text: str, key: str) -> str:
    """`text` with the key replaced, for messages that quote what a server said."""
    return text.replace(key, REDACTED) if len(key) >= _SHORTEST_KEY else text


def _wipe_c_value(name: str) -> None:
    """Overwrite the value where the C library has it."""
    if sys.platform == "win32":
        return
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    library.getenv.argtypes = (ctypes.c_char_p,)
    address = library.getenv(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))


def _wipe_initial_block(name: str) -> None:
    """Overwrite every value of `name` in the block that the kernel shows as /proc/self/environ.

    The C library's copy may be a later one (a variable that was set twice), and the block may hold
    a name more than once.
    """
    try:
        text = Path("/proc/self/stat").read_bytes()
    except OSError:
        return  # no /proc: nobody else reads the block either
    # Fields 50 and 51 of proc(5); the second field is a name in parentheses that may hold spaces.
    fields = text[text.rindex(b")") + 2 :].split()
    start, end = int(fields[47]), int(fields[48])
    if not 0 < start < end:
        return
    prefix = os.fsencode(name) + b"="
    position = start
    while position < end:
        entry = ctypes.string_at(position)
        if entry.startswith(prefix):
            ctypes.memset(position + len(prefix), 0, len(entry) - len(prefix))
        position += len(entry) + 1


def _forbid_reading_memory() -> None:
    """Close this process's memory, which holds the key, to others, and write no core dumps."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
