"""How much of the processors other work took meanwhile: by what the kernel counts for each of them,
less what this process and those that it has waited for used."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

#: From this share on, numbers of a machine are said to be those of a busy one.
BUSY = 0.1
#: Columns of /proc/stat: all but idle and waiting for disks, and guests, who are counted twice.
_WORKING = (1, 2, 3, 6, 7, 8)


class OtherWork:
    """Counts from its making on."""

    def __init__(self, processors: Sequence[int]) -> None:
        self._processors = frozenset(f"cpu{number}" for number in processors)
        self._started = time.monotonic()
        self._before = self._seconds()

    def share(self) -> float | None:
        """Of these processors' time, what went to others; None where the machine does not say."""
        elapsed = time.monotonic() - self._started
        if self._before is None or (now := self._seconds()) is None or elapsed <= 0:
            return None
        return max(0.0, (now - self._before) / (elapsed * len(self._processors)))

    def _seconds(self) -> float | None:
        """Seconds for which the processors worked, less this process's own."""
        try:
            with open("/proc/stat") as file:
                lines = [line.split() for line in file]
        except OSError:
            return None
        ticks = [
            sum(int(words[column]) for column in _WORKING)
            for words in lines
            if words and words[0] in self._processors
        ]
        used = os.times()
        own = used.user + used.system + used.children_user + used.children_system
        return sum(ticks) / os.sysconf("SC_CLK_TCK") - own if ticks else None


def busy_note(share: float | None) -> str:
    """What a reader must know of a busy machine; "" for others."""
    if share is None or share < BUSY:
        return ""
    percent = 100 * min(share, 1.0)
    return (
        f"the machine is busy: other work took {percent:.0f} % of the processors meanwhile, and "
        "single numbers say little"
    )
