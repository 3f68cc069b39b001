"""What this machine can do: its memory bandwidth, measured once and kept in the cache folder."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Machine:
    """The device that was timed on. `bandwidth` in bytes/s (the best of read, copy and add over
    arrays that leave the caches); `cache_bytes` is its last-level cache."""

    name: str
    threads: int
    bandwidth: float
    cache_bytes: int
    versions: dict[str, str]


def cache_file() -> Path:
    """Where measurements of machines are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sketchc" / "machines.json"


def processor_name() -> str:
    """The CPU's model, and its number of usable cores."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.split("\n") if "model name" in line]
    model = names[0] if names else platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def last_level_cache() -> int:
    """The largest cache of CPU 0, in bytes; 32 MiB where the machine does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=32 << 20)


def this_machine(device: str = "cpu", measure: bool = False) -> Machine:
    """The machine's facts; measures the bandwidth when it is not known yet (some seconds).

    With `measure` it is measured again, and the better value kept: other work only slows it.
    """
    import torch

    if device == "cuda":
        name, threads = torch.cuda.get_device_name(), 1
        cache = int(torch.cuda.get_device_properties(0).L2_cache_size)
    else:
        name, threads, cache = processor_name(), torch.get_num_threads(), last_level_cache()
    key = f"{device}: {name}, {threads} threads, torch {torch.__version__}"
    known = _known()
    if measure or key not in known:
        known[key] = max(known.get(key, 0.0), measure_bandwidth(device, cache))
        _keep(known)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return Machine(name, threads, known[key], cache, versions)


def _known() -> dict[str, float]:
    try:
        found = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): float(value) for key, value in found.items()}


def _keep(known: dict[str, float]) -> None:
    path = cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(known, indent=2))
        partial.replace(path)
    except OSError:
        # A read-only home only means measuring again next time.
        return


def measure_bandwidth(device: str, cache_bytes: int) -> float:
    """The best of reading, copying and adding, in bytes/s that the arrays hold (no write-allocate
    traffic counted, as in STREAM)."""
    import torch

    from sketchc.runtime.bench.timing import Clock, CpuClock, CudaClock

    count = max(8 * cache_bytes, 256 << 20) // 4
    a = torch.rand(count, device=device)
    b, c = torch.rand_like(a), torch.empty_like(a)
    clock: Clock = CudaClock() if device == "cuda" else CpuClock()
    operations: list[tuple[int, Any]] = [
        (1, lambda: torch.sum(a)),
        (2, lambda: c.copy_(a)),
        (3, lambda: torch.add(a, b, out=c)),
    ]
    best = 0.0
    for arrays, operation in operations:
        operation()
        seconds = min(clock.measure(operation) for _ in range(10))
        best = max(best, arrays * 4 * count / seconds)
    return best
