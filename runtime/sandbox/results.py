"""What comes of a worker, and what it may use."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.runtime.process import memory
from sketchc.runtime.sandbox import confine

if TYPE_CHECKING:
    import numpy as np

#: What a worker may have of its own, together: folders in memory, processes and threads.
SCRATCH_BYTES = 2 << 30
PROCESSES = 512
#: CPU seconds of one process of a worker that serves many calls.
CPU_SECONDS = 4 * 3600
#: Of the machine's memory, for one worker.
_MEMORY_SHARE = 0.8
#: Kinds of a worker's end: somebody killed it while the machine was short of memory, or while there
#: was enough. A worker that held this share of what was free when it started made it short itself.
SHORT, KILLED = "MachineShortError", "KilledError"
_OWN_SHARE = 0.5


@attrs.frozen
class WorkerResult:
    """What came of one call.

    `exit_code` is negative when a signal ended the process (-6: aborted, -11: segmentation fault),
    and `reply` and `arrays` are there only when the handler returned. `error` is the handler's
    exception as "Type: message" and `traceback` its text; both are empty when it did not raise.
    `kinds` are the types of that exception and of those behind it.
    """

    exit_code: int
    timed_out: bool
    seconds: float
    output: str
    reply: Mapping[str, Any] | None = None
    arrays: Mapping[str, np.ndarray[Any, Any]] = attrs.field(factory=dict, repr=False)
    error: str = ""
    traceback: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.reply is not None

    def describe(self) -> str:
        """One line on why there is no reply."""
        if self.ok:
            return "done"
        if self.timed_out:
            return f"no answer within {self.seconds:.0f} s"
        if self.error:
            return self.error
        if self.exit_code < 0:
            return f"the process was ended by {_signal_name(-self.exit_code)}"
        return f"the process ended with status {self.exit_code} and no answer"


def outcome_of_end(plain: WorkerResult, told: Mapping[str, Any], limits: Limits) -> WorkerResult:
    """The result of a worker that ended, by what its watcher saw of it."""
    why, cap = str(told.get("why", "")), limits.settings()["memory_bytes"]
    if why == "memory" or told.get("own"):
        msg = f"MemoryError: its processes held more than {memory.text(cap)} of memory"
        return attrs.evolve(plain, error=msg, kinds=("MemoryError",))
    if why == "processes":
        msg = f"OSError: it started more than {limits.processes} processes"
        return attrs.evolve(plain, error=msg, kinds=("OSError",))
    if plain.exit_code != -signal.SIGKILL or "least" not in told:
        return plain
    return killed(plain, told)


def killed(plain: WorkerResult, told: Mapping[str, Any]) -> WorkerResult:
    """The result of a worker that somebody killed: the kernel does so where memory runs out."""
    held, free, least = (int(told[name]) for name in ("held", "free", "least"))
    if not (told["kills"] or memory.is_short(least)):
        msg = f"the process was ended by SIGKILL, with {memory.text(least)} of memory free"
        return attrs.evolve(plain, error=msg, kinds=(KILLED,))
    if held > _OWN_SHARE * free:
        msg = f"its processes held {memory.text(held)} of the {memory.text(free)} that were free"
        return attrs.evolve(plain, error=f"MemoryError: {msg}", kinds=("MemoryError",))
    msg = (
        "the process was ended by SIGKILL while the machine was short of memory "
        f"({memory.text(least)} of {memory.text(memory.total())} left)"
    )
    return attrs.evolve(plain, error=msg, kinds=(SHORT,))


@attrs.frozen
class Limits:
    """What one worker may use. `memory_bytes` is the address space of each process, and bounds what
    all of them hold; `cpu_seconds` (default: `CPU_SECONDS`) and `file_bytes` are of each process
    and each file."""

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    processes: int = PROCESSES

    def settings(self) -> dict[str, Any]:
        """As `confine.keep` takes them."""
        held = int(_machine_memory() * _MEMORY_SHARE)
        limits = {
            "RLIMIT_CORE": 0,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_CPU": self.cpu_seconds or CPU_SECONDS,
            "RLIMIT_FSIZE": self.file_bytes,
        }
        return {
            "limits": {key: value for key, value in limits.items() if value is not None},
            "memory_bytes": min(held, self.memory_bytes or held),
            "processes": self.processes,
            "scratch_bytes": min(SCRATCH_BYTES, held // 4),
        }


@attrs.frozen
class Isolation:
    """How workers are shut in on this machine: `confine.NAMESPACES`, or `PLAIN` and why."""

    mode: str = confine.NAMESPACES
    reason: str = ""

    @property
    def complete(self) -> bool:
        """Whether everything holds that this project can make hold."""
        return self.mode == confine.NAMESPACES

    @property
    def text(self) -> str:
        """One line for people."""
        if self.mode == confine.NAMESPACES:
            return "PID, network, IPC and mount namespaces; read-only files; system calls filtered"
        return (
            f"process groups and limits only, since this kernel refuses namespaces: {self.reason}"
        )


@functools.lru_cache(maxsize=1)
def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
