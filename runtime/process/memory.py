"""How much memory there is, how much processes hold, and whether the machine ran out of it.

Needs only the standard library: the trusted processes around a candidate use this module, too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: The environment variable with the most bytes that a run may hold, over all its processes.
BOUND = "SKETCHC_MEMORY_BOUND"
#: Bytes that one element of a task's tensors takes at the task's own sizes, in all processes
#: together: the inputs as they are in three processes, in float64 in two, and one more array.
ELEMENT_BYTES = 48
#: The share of the free memory that one case may plan to take.
_SHARE = 0.75
_ROOT = Path("/sys/fs/cgroup")
#: The machine is short where less than this share of its memory, or as many bytes, are left.
_SHORT_SHARE = 0.04
_SHORT_BYTES = 256 << 20


def total() -> int:
    """Bytes of memory in all: the machine's, or the limit of this process's control groups where
    that is smaller. 0 where the system does not say."""
    return min([_meminfo("MemTotal"), *(limit for limit, _ in _groups())])


def available() -> int:
    """Bytes that can be allocated now without any process being killed; 0 where unknown."""
    return min([_meminfo("MemAvailable"), *(max(0, most - used) for most, used in _groups())])


def allowed() -> int:
    """Bytes that this run may take: those that are available, or fewer where the suite that started
    the run has set a bound (in `BOUND`) above which it ends the run."""
    named = os.environ.get(BOUND, "")
    free = available()
    if not named.isdigit():
        return free
    return min(free, int(named)) if free else int(named)


def elements(free: int, more: float = 0.0) -> int:
    """The number of elements that all tensors of a task may have together where `free` bytes of
    memory are free; `more`: bytes for each element besides `ELEMENT_BYTES`."""
    return int(_SHARE * free / (ELEMENT_BYTES + more))


def is_short(left: int) -> bool:
    """Whether this machine is short of memory when `left` bytes are available."""
    whole = total()
    return whole > 0 and left < max(_SHORT_SHARE * whole, min(_SHORT_BYTES, whole // 8))


def kills() -> int:
    """How many processes the kernel's OOM killer has ended so far, in all control groups."""
    return _field("/proc/vmstat", "oom_kill")


def of_tree(root: int) -> int:
    """Bytes that process `root` and all its descendants hold; shared pages are counted once where
    the system tells each process's share."""
    return sum(map(_held, {root, *below(root)}))


def below(ancestor: int) -> set[int]:
    """The ids of all descendants of process `ancestor`."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold anything; the parent is the second word behind it.
            words = place.read_bytes().rpartition(b")")[2].split()
            parents[int(place.parent.name)] = int(words[1])
    found: set[int] = set()
    while more := {one for one, parent in parents.items() if parent in {ancestor, *found}} - found:
        found |= more
    return found


def _held(process: int) -> int:
    """Bytes that one process holds: its proportional share (PSS) where that may be read, else its
    resident set."""
    share = _field(f"/proc/{process}/smaps_rollup", "Pss:")
    return (share or _field(f"/proc/{process}/status", "VmRSS:")) << 10


def text(size: float) -> str:
    """`size`, a number of bytes, as text in GiB."""
    return f"{size / (1 << 30):.1f} GiB"


def _meminfo(name: str) -> int:
    return _field("/proc/meminfo", f"{name}:") << 10


def _field(path: str, name: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, errors="replace") as file:
        for line in file:
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    return 0


def _groups() -> list[tuple[int, int]]:
    """(limit, use without inactive file cache), in bytes, of each control group of this process
    that has a limit."""
    found = []
    for folder, most, used in _places():
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / most).read_text())  # "max" is no number
            held = int((folder / used).read_text())
            if limit < 1 << 60:
                cached = _field(str(folder / "memory.stat"), "inactive_file")
                found.append((limit, max(0, held - cached)))
    return found


def _places() -> list[tuple[Path, str, str]]:
    """(folder, name of the file with the limit, name of the file with the use) for each control
    group of this process and its parents."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = _ROOT, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = _ROOT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        # A container may see its own group as the root of the tree.
        inner = root / path.lstrip("/")
        for folder in (inner, *(p for p in inner.parents if p.is_relative_to(root))):
            found.append((folder, *names))
    return found
