"""Performance of this machine: bandwidth of memory and caches, peak FLOP/s by precision class.

Measured once per machine and kept in the user's cache folder with the date and the versions;
measured again on request, when the better value of each is kept, since other work only slows a
measurement.

A small C++ program, compiled for the machine and run in a process of its own, measures the limits
of a CPU. PyTorch's own kernels, the fallback where there is no compiler, read caches too slowly to
bound a kernel that reads them well. `OtherWork` measures how much of the processors' time other
processes take.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from sketchc.base.files import replace_file, user_folder
from sketchc.lowering.precisions import SPLIT, SPLIT_PRODUCTS
from sketchc.lowering.registry import all_targets
from sketchc.runtime.process.peer import compiler_environment, python_environment
from sketchc.runtime.process.templates import ForkedProcess
from sketchc.runtime.process.venvs import installed, processor_says
from sketchc.runtime.toolchains.native.compiler import compiler_version, find_compiler

if TYPE_CHECKING:
    import torch

    from sketchc.runtime.bench.timing import Clock

_Key = TypeVar("_Key", str, int)
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-ffp-contract=fast")
_TIMEOUT = 120.0

#: Twelve independent accumulators hide the latency of a fused multiply-add, and fit 16 registers.
SOURCE = r"""
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <omp.h>
#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
typedef float floats __attribute__((vector_size(WIDTH), aligned(4)));
typedef double doubles __attribute__((vector_size(WIDTH), aligned(8)));

static volatile double sink;

static double now()
{
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

template <typename Vector, typename Scalar> static double multiply_add()
{
    const int64_t steps = 1 << 20;
    double best = 0.0;
    for (int turn = 0; turn < 7; ++turn) {
        double begin = 0.0, end = 0.0;
        #pragma omp parallel
        {
            Vector sums[12];
            Vector factor, step;
            for (int lane = 0; lane < int(WIDTH / sizeof(Scalar)); ++lane) {
                factor[lane] = Scalar(0.999) + Scalar(1e-4) * Scalar(lane & 1);
                step[lane] = Scalar(1e-3);
            }
            for (int i = 0; i < 12; ++i)
                sums[i] = step * Scalar(i);
            #pragma omp barrier
            #pragma omp master
            begin = now();
            #pragma omp barrier
            for (int64_t n = 0; n < steps; ++n)
                #pragma GCC unroll 12
                for (int i = 0; i < 12; ++i)
                    sums[i] = sums[i] * factor + step;
            #pragma omp barrier
            #pragma omp master
            end = now();
            Scalar total = 0;
            for (int i = 0; i < 12; ++i)
                total += sums[i][0];
            #pragma omp critical
            sink = sink + double(total);
        }
        double lanes = double(WIDTH / sizeof(Scalar));
        double rate = 2.0 * 12 * lanes * double(steps) * omp_get_max_threads() / (end - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

static double read(const float *data, int64_t bytes)
{
    const int64_t threads = omp_get_max_threads();
    const int64_t lanes = WIDTH / 4, block = 8 * lanes;
    const int64_t share = bytes / 4 / threads / block * block;
    if (share == 0)
        return 0.0;
    const int64_t wanted = int64_t(1) << 29;
    const int64_t repeats = 1 + wanted / bytes;
    double best = 0.0;
    for (int turn = 0; turn < 3; ++turn) {
        double begin = 0.0, end = 0.0;
        #pragma omp parallel
        {
            const float *own = data + share * omp_get_thread_num();
            floats sums[8] = {};
            #pragma omp barrier
            #pragma omp master
            begin = now();
            #pragma omp barrier
            for (int64_t n = 0; n < repeats; ++n) {
                __asm__ volatile("" : : "r"(own) : "memory");
                for (int64_t i = 0; i < share; i += block)
                    for (int j = 0; j < 8; ++j)
                        sums[j] += *(const floats *)(own + i + j * lanes);
            }
            #pragma omp barrier
            #pragma omp master
            end = now();
            floats total = {};
            for (int j = 0; j < 8; ++j)
                total += sums[j];
            #pragma omp critical
            sink = sink + double(total[0]);
        }
        double rate = double(share) * 4.0 * double(threads) * double(repeats) / (end - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int count, char **sizes)
{
    std::printf("f32 %.6e\n", multiply_add<floats, float>());
    std::printf("f64 %.6e\n", multiply_add<doubles, double>());
    int64_t largest = 0;
    for (int i = 1; i < count; ++i)
        largest = std::atoll(sizes[i]) > largest ? std::atoll(sizes[i]) : largest;
    float *data = static_cast<float *>(std::aligned_alloc(64, (largest + 63) / 64 * 64));
    if (data == nullptr)
        return 1;
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < largest / 4; ++i)
        data[i] = 1.0f;
    for (int i = 1; i < count; ++i)
        std::printf("read %lld %.6e\n", std::atoll(sizes[i]), read(data, std::atoll(sizes[i])));
    std::free(data);
    return 0;
}
"""


#: FLOP/s by type, "f32" and "f64", and (bytes, bytes/s) for each footprint.
Probed = tuple[Mapping[str, float], tuple[tuple[int, float], ...]]


def probe(footprints: Sequence[int], threads: int) -> Probed | None:
    """Compile and run the program `SOURCE` (some seconds), which reads arrays of `footprints`
    bytes; None where there is no compiler, or it fails."""
    compiler = find_compiler()
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="probe-") as name:
        folder = Path(name)
        source, program = folder / "probe.cpp", folder / "probe"
        source.write_text(SOURCE)
        compile_it = [compiler, *_FLAGS, str(source), "-o", str(program)]
        variables = {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
        run_it = [str(program), *map(str, footprints)]
        try:
            _run(compile_it, compiler_environment())
            return read_probe(_run(run_it, python_environment(variables)))
        except (OSError, subprocess.SubprocessError, ValueError):
            return None


def read_probe(printed: str) -> Probed:
    """Parse what the program printed. Raises `ValueError` for another form."""
    rates: dict[str, float] = {}
    reads = []
    for line in printed.splitlines():
        match line.split():
            case ["read", size, rate]:
                reads.append((int(size), float(rate)))
            case [name, rate]:
                rates[name] = float(rate)
            case _:
                raise ValueError(line)
    if not {"f32", "f64"} <= rates.keys():
        raise ValueError(printed)
    return rates, tuple(reads)


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=True,
        env=environment,
    )
    return done.stdout


@attrs.frozen
class Machine:
    """The device that was timed on.

    `bandwidth` of the memory in bytes/s, over arrays larger than the caches; `cache_bytes` is the
    size of the last-level cache. `peaks` are FLOP/s by precision class; `levels` are (bytes,
    bytes/s) of reading so many bytes again and again, the smallest first. `measured` is the time of
    the measurement (UTC).
    """

    name: str
    threads: int
    bandwidth: float
    cache_bytes: int
    versions: Mapping[str, str]
    peaks: Mapping[str, float] = attrs.field(factory=dict)
    levels: tuple[tuple[int, float], ...] = ()
    measured: str = ""

    def cached_bandwidth(self, footprint: int) -> float | None:
        """Bytes/s at which `footprint` bytes can be read again and again: conservatively, that of
        the largest measured size that does not exceed `footprint`; None where unknown."""
        if not self.levels:
            return None
        smaller = [rate for size, rate in self.levels if size <= footprint]
        return max(smaller[-1] if smaller else self.levels[0][1], self.bandwidth)


def cache_file() -> Path:
    """The file where measurements of machines are kept."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "machines.json"


def processor_name() -> str:
    """The CPU's model, and its number of usable cores."""
    model = processor_says("model name") or platform.machine()
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def device_name(device: str) -> str:
    """The name of the device of torch's type `device` here: the GPU's, or `processor_name`."""
    if device == "cuda":
        import torch

        return str(torch.cuda.get_device_name())
    return processor_name()


def data_caches() -> dict[int, int]:
    """The bytes of CPU 0's caches of data by their level; empty where the system does not say."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / n).read_text().strip() for n in ("level", "type", "size"))
        if kind != "Instruction":
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
            found[int(level)] = int(size.rstrip("KM")) * unit
    return found


def last_level_cache() -> int:
    """The size of CPU 0's largest cache, in bytes; 32 MiB where the system does not say."""
    return max(data_caches().values(), default=32 << 20)


def cache_bytes(device: str) -> int:
    """The size in bytes of the last cache before the memory of the device of torch's type."""
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    return last_level_cache()


def this_machine(device: str = "cpu", measure: bool = False) -> Machine:
    """This machine with its performance on `device`: as kept, or measured (some seconds) where it
    is not known yet, or with `measure`."""
    # On a CPU as many threads as are timed with.
    threads = 1 if device == "cuda" else len(os.sched_getaffinity(0))
    name, cache = device_name(device), cache_bytes(device)
    key = f"{device}: {name}, {threads} threads, torch {installed('torch').get('torch')}"
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
    """The versions that times on `device` depend on: Python, torch, the system, the C++ compiler,
    and on a GPU CUDA, the driver and the targets' packages."""
    found = {**installed("torch"), "python": platform.python_version()}
    found["system"] = f"{platform.system()} {platform.release()}"
    compiler = find_compiler()
    if compiler is not None:
        found[Path(compiler).name] = compiler_version(compiler)
    if device == "cuda":
        import torch

        found["cuda"] = str(torch.version.cuda)
        driver = Path("/proc/driver/nvidia/version")
        if driver.exists():
            found["driver"] = driver.read_text().split("\n")[0]
        for target in all_targets():
            found |= installed(*target.distributions) if target.device == device else {}
    return found


def better(one: Machine, other: Machine) -> Machine:
    """The better value of both machines' bandwidths and peaks; the rest from `other`, the later
    measurement."""

    def most(first: Mapping[_Key, float], second: Mapping[_Key, float]) -> dict[_Key, float]:
        return {key: max(first.get(key, 0.0), second.get(key, 0.0)) for key in {**first, **second}}

    return attrs.evolve(
        other,
        bandwidth=max(one.bandwidth, other.bandwidth),
        peaks=most(one.peaks, other.peaks),
        levels=tuple(sorted(most(dict(one.levels), dict(other.levels)).items())),
    )


# ---------------------------------------------------------------- what is kept


def _known() -> dict[str, Any]:
    try:
        found = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _machine(kept: object) -> Machine | None:
    """The machine of an entry of the cache file; None for another form (of an earlier version)."""
    if not isinstance(kept, dict):
        return None
    try:
        levels = tuple((int(size), float(rate)) for size, rate in kept["levels"])
        return Machine(**{**kept, "levels": levels})
    except (KeyError, TypeError, ValueError):
        return None


def _keep(known: Mapping[str, Any]) -> None:
    path = cache_file()
    with contextlib.suppress(OSError):  # a read-only home only means measuring again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(known, indent=2))


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
    """Cache levels and peaks of a CPU: of the compiled program, or of PyTorch's matrix products
    where these are faster or there is no compiler."""
    each, cache = machine.threads, machine.cache_bytes
    footprints = sorted({each * (16 << 10), each * (256 << 10), cache // 2, 4 * cache})
    probed = probe(footprints, machine.threads)
    import torch

    peaks = {"ieee f32": _product_rate(1024, torch.float32, "cpu")}
    levels: tuple[tuple[int, float], ...] = ()
    if probed is not None:
        rates, levels = probed
        peaks = {"ieee f32": max(peaks["ieee f32"], rates["f32"]), "ieee f64": rates["f64"]}
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        # A vector holds twice as many f16 or bf16 elements, where the CPU computes on them.
        try:
            peaks[name] = max(2 * peaks["ieee f32"], _product_rate(512, dtype, "cpu"))
        except RuntimeError:
            peaks[name] = 2 * peaks["ieee f32"]
    return levels, peaks


def _cuda_peaks() -> dict[str, float]:
    """FLOP/s of matrix products by precision class; torch's settings are restored."""
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
    # Three products in tf32 make one in tf32x3, and one in parts, as do six in bf16.
    peaks["tf32x3"] = max(peaks["tf32"] / 3, peaks["ieee f32"])
    peaks[SPLIT] = max(peaks["tf32x3"], peaks["bf16"] / SPLIT_PRODUCTS)
    return peaks


def _product_rate(size: int, dtype: torch.dtype, device: str) -> float:
    import torch

    left = torch.randn(size, size, device=device).to(dtype)
    right = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty_like(left)
    return 2.0 * size**3 / _fastest(lambda: torch.matmul(left, right, out=out), device)


def _fastest(operation: Callable[[], Any], device: str, times: int = 10) -> float:
    """The shortest of so many `times` of an operation, in seconds, after one that warms up."""
    from sketchc.runtime.bench.timing import CpuClock, CudaClock

    clock: Clock = CudaClock() if device == "cuda" else CpuClock()
    operation()
    return min(clock.measure(operation).seconds for _ in range(times))


def _cuda_cached(size: int) -> float:
    """Bytes/s of reading `size` bytes in the L2 cache, again and again in one kernel."""
    import torch

    again = 64
    rows = torch.zeros(size // 4, device="cuda").expand(again, -1)
    return again * size / _fastest(lambda: rows.sum(dim=1), "cuda", 5)


def measure_bandwidth(device: str, cache_bytes: int) -> float:
    """The best bandwidth of reading, copying and adding arrays, in bytes/s of the arrays (without
    write-allocate traffic, as in STREAM)."""
    import torch

    size = max(8 * cache_bytes, 256 << 20)
    if device == "cpu":  # a virtual machine names the whole cache of its host, and has less memory
        share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16
        size = min(size, max(share, 2 * cache_bytes))
    count = size // 4
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


#: From this share of other work on, measurements get a note that the machine is busy.
BUSY = 0.1
#: Columns of /proc/stat: all but idle and iowait, and the guests', which are counted twice.
_WORKING = (1, 2, 3, 6, 7, 8)


class OtherWork:
    """Other processes' work on `processors` since the object was made."""

    def __init__(self, processors: Sequence[int]) -> None:
        self._processors = frozenset(f"cpu{number}" for number in processors)
        self._started = time.monotonic()
        self._before = self._seconds()

    def share(self) -> float | None:
        """The share of the processors' time that other processes took; None where the system does
        not say."""
        elapsed = time.monotonic() - self._started
        if self._before is None or (now := self._seconds()) is None or elapsed <= 0:
            return None
        return max(0.0, (now - self._before) / (elapsed * len(self._processors)))

    def _seconds(self) -> float | None:
        """Seconds for which the processors worked, less those of this process and its children;
        None where unknown."""
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
        own += ForkedProcess.seconds
        return sum(ticks) / os.sysconf("SC_CLK_TCK") - own if ticks else None


def busy_note(share: float | None) -> str:
    """The note on a machine of whose processors other work took `share`; "" below `BUSY`."""
    if share is None or share < BUSY:
        return ""
    percent = 100 * min(share, 1.0)
    return (
        f"the machine is busy: other work took {percent:.0f} % of the processors meanwhile, and "
        "single numbers say little"
    )
