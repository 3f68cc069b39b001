"""What this machine can do: bandwidth of memory and caches, and peak FLOP/s by precision class.

Measured once per machine and kept in the user's cache folder with the date and the versions;
measured again on request, when the better value of each is kept, since other work only slows it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import torch


@attrs.frozen
class Machine:
    """The device that was timed on.

    `bandwidth` of the memory in bytes/s, over arrays that leave the caches; `cache_bytes` is the
    last-level cache. `peaks` are FLOP/s by precision class; `levels` are (bytes, bytes/s) of
    reading as much data again and again, the smallest first. `measured` is when (UTC).
    """

    name: str
    threads: int
    bandwidth: float
    cache_bytes: int
    versions: Mapping[str, str]
    peaks: Mapping[str, float] = attrs.field(factory=dict)
    levels: tuple[tuple[int, float], ...] = ()
    measured: str = ""

    def peak(self, precision: str) -> float | None:
        """FLOP/s of a class; None where it was not measured."""
        return self.peaks.get(precision)

    def cached_bandwidth(self, footprint: int) -> float | None:
        """Bytes/s at which data of this size can be read again and again, to be on the safe side
        that of the largest size measured which does not exceed it; None where unknown."""
        if not self.levels:
            return None
        smaller = [rate for size, rate in self.levels if size <= footprint]
        return max(smaller[-1] if smaller else self.levels[0][1], self.bandwidth)


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
    """The machine's facts; measures what is not known yet (some seconds), or all with `measure`."""
    import torch

    if device == "cuda":
        name, threads = torch.cuda.get_device_name(), 1
        cache = int(torch.cuda.get_device_properties(0).L2_cache_size)
    else:
        name, threads, cache = processor_name(), torch.get_num_threads(), last_level_cache()
    key = f"{device}: {name}, {threads} threads, torch {torch.__version__}"
    known = _known()
    before = _machine(known.get(key))
    if before is not None and not measure:
        return before
    found = _measure(Machine(name, threads, 0.0, cache, versions(device)), device)
    if before is not None:
        found = better(before, found)
    _keep({**known, key: attrs.asdict(found)})
    return found


def versions(device: str) -> dict[str, str]:
    """Of everything that a time depends on: Python, torch, the C++ compiler, the GPU's driver."""
    import torch

    from sketchc.runtime.toolchains.cpp.toolchain import compiler_version, find_compiler

    found = {"torch": torch.__version__, "python": platform.python_version()}
    found["system"] = f"{platform.system()} {platform.release()}"
    compiler = find_compiler()
    if compiler is not None:
        found[Path(compiler).name] = compiler_version(compiler)
    if device == "cuda":
        from importlib import metadata

        found["cuda"] = str(torch.version.cuda)
        driver = Path("/proc/driver/nvidia/version")
        if driver.exists():
            found["driver"] = driver.read_text().split("\n")[0]
        with contextlib.suppress(metadata.PackageNotFoundError):
            found["triton"] = metadata.version("triton")
    return found


def better(one: Machine, other: Machine) -> Machine:
    """The faster of both in everything; date and versions of `other`, the later one."""
    peaks = {**one.peaks, **other.peaks}
    levels = {**dict(one.levels), **dict(other.levels)}
    return attrs.evolve(
        other,
        bandwidth=max(one.bandwidth, other.bandwidth),
        peaks={name: max(rate, one.peaks.get(name, 0.0)) for name, rate in peaks.items()},
        levels=tuple(
            (size, max(rate, dict(one.levels).get(size, 0.0)))
            for size, rate in sorted(levels.items())
        ),
    )


# ---------------------------------------------------------------- what is kept


def _known() -> dict[str, Any]:
    try:
        found = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _machine(kept: object) -> Machine | None:
    """What was kept of a machine; None where it is of another form (an earlier version's)."""
    if not isinstance(kept, dict):
        return None
    try:
        levels = tuple((int(size), float(rate)) for size, rate in kept["levels"])
        return Machine(**{**kept, "levels": levels})
    except (KeyError, TypeError, ValueError):
        return None


def _keep(known: Mapping[str, Any]) -> None:
    path = cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(known, indent=2))
        partial.replace(path)
    except OSError:
        # A read-only home only means measuring again next time.
        return


# ---------------------------------------------------------------- measuring


def _measure(machine: Machine, device: str) -> Machine:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    bandwidth = measure_bandwidth(device, machine.cache_bytes)
    levels: tuple[tuple[int, float], ...]
    if device == "cuda":
        levels = ((machine.cache_bytes // 4, _cuda_cached(machine.cache_bytes // 4)),)
        peaks = _cuda_peaks()
    else:
        levels, peaks = _cpu(machine)
        bandwidth = max([bandwidth, *(r for s, r in levels if s >= 4 * machine.cache_bytes)])
    return attrs.evolve(machine, bandwidth=bandwidth, levels=levels, peaks=peaks, measured=now)


def _cpu(machine: Machine) -> tuple[tuple[tuple[int, float], ...], dict[str, float]]:
    """Cache levels and peaks: of a compiled program, and of PyTorch's products where they are
    faster (or there is no compiler)."""
    from sketchc.runtime.bench.probe import probe

    each, cache = machine.threads, machine.cache_bytes
    footprints = sorted({each * (16 << 10), each * (256 << 10), cache // 2, 4 * cache})
    probed = probe(footprints, machine.threads)
    import torch

    peaks = {"ieee f32": _product_rate(1024, torch.float32, "cpu")}
    levels: tuple[tuple[int, float], ...] = ()
    if probed is not None:
        peaks = {"ieee f32": max(peaks["ieee f32"], probed.f32), "ieee f64": probed.f64}
        levels = probed.reads
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        # Vectors of halves, where the CPU has arithmetic on them, hold twice as many.
        try:
            peaks[name] = max(2 * peaks["ieee f32"], _product_rate(512, dtype, "cpu"))
        except RuntimeError:
            peaks[name] = 2 * peaks["ieee f32"]
    return levels, peaks


def _cuda_peaks() -> dict[str, float]:
    """FLOP/s of matrix products by class; torch's settings are put back."""
    import torch

    before = torch.get_float32_matmul_precision()
    peaks = {}
    try:
        for name, dtype, setting in (
            ("ieee f64", torch.float64, "highest"),
            ("ieee f32", torch.float32, "highest"),
            ("tf32", torch.float32, "high"),
            ("f16", torch.float16, "highest"),
            ("bf16", torch.bfloat16, "highest"),
        ):
            torch.set_float32_matmul_precision(setting)
            peaks[name] = _product_rate(8192, dtype, "cuda")
    finally:
        torch.set_float32_matmul_precision(before)
    # Three products in tf32 make one in tf32x3.
    peaks["tf32x3"] = max(peaks["tf32"] / 3, peaks["ieee f32"])
    return peaks


def _product_rate(size: int, dtype: torch.dtype, device: str) -> float:
    import torch

    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(left)
    return 2.0 * size**3 / _fastest(lambda: torch.matmul(left, right, out=out), device)


def _fastest(operation: Callable[[], Any], device: str, times: int = 10) -> float:
    """The shortest of several times, in seconds."""
    from sketchc.runtime.bench.timing import CpuClock, CudaClock

    clock: CpuClock | CudaClock = CudaClock() if device == "cuda" else CpuClock()
    operation()
    return min(clock.measure(operation).seconds for _ in range(times))


def _cuda_cached(size: int) -> float:
    """Bytes/s of reading `size` bytes within the L2, again and again in one kernel."""
    import torch

    again = 64
    rows = torch.zeros(size // 4, device="cuda").expand(again, -1)
    return again * size / _fastest(lambda: rows.sum(dim=1), "cuda", 5)


def measure_bandwidth(device: str, cache_bytes: int) -> float:
    """The best of reading, copying and adding, in bytes/s that the arrays hold (no write-allocate
    traffic counted, as in STREAM)."""
    import torch

    count = max(8 * cache_bytes, 256 << 20) // 4
    a = torch.ones(count, device=device)
    b, c = torch.ones_like(a), torch.zeros_like(a)
    operations: list[tuple[int, Callable[[], Any]]] = [
        (1, lambda: torch.sum(a)),
        (2, lambda: c.copy_(a)),
        (3, lambda: torch.add(a, b, out=c)),
    ]
    best = 0.0
    for arrays, operation in operations:
        best = max(best, arrays * 4 * count / _fastest(operation, device, 5))
    return best
