"""Whether a candidate may start programs: decided outside of it, and anew as often as one likes.

Where the parent asks for a gate, the kernel holds every `execve` of the candidate and of what it
starts until the watcher, which runs nothing of the candidate's, has answered (seccomp's user
notifications, Linux 5.5). No thread, child or code of the candidate's own is exempt, and nothing
that it writes into its memory changes the answer. When the gate is shut, programs that were started
before are ended with it. The candidate's own process never becomes another program.

The parent writes one byte to the watcher's status channel, and waits for {"gate": word}. Only the
standard library.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from sketchc.runtime.sandbox import seccomp

#: What the parent writes, and what is answered: "none" where there is no such filter.
OPEN, SHUT = b"+", b"-"
WORDS = {OPEN: "open", SHUT: "shut"}
NONE = "none"
#: `ioctl` requests, and `struct seccomp_notif` (its number and the thread) and its answer.
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_ASKED_BYTES = 80
_ASKED, _ANSWER = struct.Struct("<QI"), struct.Struct("<QqiI")
_CONTINUE = 1
#: Seconds that the end of what was started may take, and looks that must find nothing alive.
_PATIENCE = 5.0
_CLEAN_LOOKS = 2


def hand_over(channel: socket.socket) -> None:
    """In the candidate, before any code of its own: install the filter, give the listener away."""
    listener = seccomp.listen()
    try:
        socket.send_fds(channel, [b"g"], [listener] if listener >= 0 else [])
    finally:
        channel.close()
        if listener >= 0:
            os.close(listener)


def taken(channel: socket.socket) -> int | None:
    """In the watcher: the listener; None where the machine has none."""
    _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    return descriptors[0] if descriptors else None


class Gate:
    """The watcher's side. `others` lists the candidate's processes; `child` is the first one."""

    def __init__(
        self, listener: int | None, status: int, child: int, others: Callable[[], Iterator[int]]
    ) -> None:
        self._listener, self._status, self._child = listener, status, child
        self._others = others
        self._open = True
        self._asks = select.poll()
        self._watched = {status} if listener is None else {status, listener}
        for descriptor in self._watched:
            self._asks.register(descriptor, select.POLLIN)

    def start(self) -> threading.Thread:
        """Serve in a thread of the watcher, which ends with it, or when nobody can ask any more.
        Until then the descriptors must stay open: another file would get their numbers."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        return thread

    def _serve(self) -> None:
        while self._watched:
            for descriptor, event in self._asks.poll():
                if not event & select.POLLIN:
                    self._leave(descriptor)  # nobody is left on the other side
                elif descriptor == self._status:
                    with contextlib.suppress(OSError):
                        self._told(os.read(descriptor, 1))
                else:
                    self._judge()

    def _leave(self, descriptor: int) -> None:
        self._asks.unregister(descriptor)
        self._watched.discard(descriptor)

    def _told(self, word: bytes) -> None:
        if not word:
            self._leave(self._status)
            return
        answer = NONE
        if self._listener is not None:
            self._open = word == OPEN
            if not self._open:
                self._end_others()
            answer = WORDS[word]
        os.write(self._status, json.dumps({"gate": answer}).encode() + b"\n")

    def _judge(self) -> None:
        """Answer one `execve`."""
        assert self._listener is not None
        asked = bytearray(_ASKED_BYTES)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, asked)
        except OSError:
            return  # who asked has ended meanwhile
        number, thread = _ASKED.unpack_from(asked)
        allowed = self._open and _process_of(thread) not in (None, self._child)
        answer = (0, _CONTINUE) if allowed else (-errno.EPERM, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(number, 0, *answer))

    def _end_others(self) -> None:
        """End all processes but the first; that one, too, where it starts them too fast."""
        clean = 0
        deadline = time.monotonic() + _PATIENCE
        while clean < _CLEAN_LOOKS:
            found = [one for one in self._others() if one != self._child and _lives(one)]
            clean = 0 if found else clean + 1
            if found and time.monotonic() > deadline:
                found.append(self._child)
                clean = _CLEAN_LOOKS
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if found:
                time.sleep(0.001)


def _process_of(thread: int) -> int | None:
    """The process that a thread belongs to."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{thread}/status") as file:
        for line in file:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return None


def _lives(process: int) -> bool:
    """False for one that is gone, or has ended and waits for its parent to notice."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
