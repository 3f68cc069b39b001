"""A small C++ program that says what this CPU can do at most: FLOP/s, and bytes/s by footprint.

It is compiled for the machine and run in a process of its own. PyTorch's own kernels, the fallback
where there is no compiler, read caches too slowly to bound a kernel that does it well.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from sketchc.runtime.process.environment import compiler_environment, python_environment
from sketchc.runtime.toolchains.cpp.toolchain import find_compiler

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


@attrs.frozen
class Probed:
    """FLOP/s of f32 and f64, and (bytes, bytes/s) for each footprint asked for."""

    f32: float
    f64: float
    reads: tuple[tuple[int, float], ...]


def probe(footprints: Sequence[int], threads: int) -> Probed | None:
    """Compile and run the program; None where there is no compiler, or it fails. Some seconds."""
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
            return read_probe(_run(run_it, {**python_environment(variables)}))
        except (OSError, subprocess.SubprocessError, ValueError):
            return None


def read_probe(printed: str) -> Probed:
    """What the program printed. Raises `ValueError`."""
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
    return Probed(rates["f32"], rates["f64"], tuple(reads))


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
