"""How the processes of a pool tell what they are at, and notice that nobody is left to hear it.

A queue of `multiprocessing` has a lock, and a process that is killed while it holds that lock stops
all others, for ever. Packets of a socket need none: each arrives whole, or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import attrs

from sketchc.runtime.process.engine import Event

_END = b"end"
#: What is shown of a text, and the longest packet.
_MOST_CHARACTERS = 1000
_MOST_BYTES = 1 << 16


class Sender:
    """The end that the pool's processes have; it travels to them when they start."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, event: Event) -> None:
        """Let the other side know. What it has no room for is lost: a job never waits for that."""
        with contextlib.suppress(OSError):
            shown = attrs.evolve(event, text=event.text[:_MOST_CHARACTERS])
            content = json.dumps(attrs.astuple(shown)).encode()
            self._socket.send(content, socket.MSG_DONTWAIT)

    def send_end(self) -> None:
        """The last packet of one run; waits until there is room."""
        with contextlib.suppress(OSError):  # closed: whoever listened knows
            self._socket.send(_END)

    def end_with_receiver(self) -> None:
        """End this process when the one with the other end has ended, however that was. What it has
        started ends with it."""
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def _wait_for_the_end(self) -> None:
        ended = select.poll()
        ended.register(self._socket, 0)  # nothing but POLLHUP and POLLERR
        ended.poll()
        os._exit(1)

    def close(self) -> None:
        """Close this process's end."""
        self._socket.close()


class Channel:
    """Both ends: `sender` for the pool's processes, and the one where events arrive."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sender = Sender(theirs)

    def close(self) -> None:
        """Close both ends; processes that are still there end, and a thread that listens."""
        self._ours.shutdown(socket.SHUT_RDWR)
        self._ours.close()
        self.sender.close()

    @contextlib.contextmanager
    def watched_by(self, watch: Callable[[Event], None] | None) -> Iterator[None]:
        """`watch` hears of what is sent; what it raises is raised when the block ends."""
        failures: list[Exception] = []
        listener = threading.Thread(target=self._listen, args=(watch, failures), daemon=True)
        listener.start()
        try:
            yield
        finally:
            self.sender.send_end()
            listener.join()
        if failures:
            raise failures[0]

    def _listen(self, watch: Callable[[Event], None] | None, failures: list[Exception]) -> None:
        """Take events until the end, also when nobody wants them any more."""
        while (packet := self._ours.recv(_MOST_BYTES)) not in (_END, b""):
            if watch is None or failures:
                continue
            try:
                watch(Event(*json.loads(packet)))
            except Exception as error:
                failures.append(error)
