"""How long verifying a hundred plain C++ kernels takes, and what each costs beyond compile and run.

    python benchmarks/throughput.py [COUNT] [--json FILE]

Writes COUNT (100) distinct kernels (a row-wise softmax; every tenth is wrong), verifies them in one
`sketchc verify` command with an empty compiler cache, and then some of them one by one in this
process, with the time inside of the compiler and of the kernel's worker taken apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(16, 128)]
"""
KERNEL = """#include <cmath>
#include <cstdint>

// Kernel {number}.
extern "C" int64_t task(const float *X, float *Y, int64_t M, int64_t N)
{{
    for (int64_t i = 0; i < M; ++i) {{
        const float *const x = X + i * N;
        float *const y = Y + i * N;
        float largest = -INFINITY;
        for (int64_t j = 0; j < N; ++j) {{
            largest = std::fmax(largest, x[j]);
        }}
        float sum = 0;
        for (int64_t j = 0; j < N; ++j) {{
            y[j] = std::exp(x[j] - largest);
            sum += y[j];
        }}
        for (int64_t j = 0; j < N; ++j) {{
            y[j] {operation} sum;
        }}
    }}
    return 0;
}}
"""
#: How many are verified one by one.
APART = 20


class Timed:
    """Slots that nobody waits for, and how long they were taken."""

    def __init__(self) -> None:
        self.seconds = {"compiling": 0.0, "running": 0.0}

    @contextmanager
    def _taken(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - started

    def compiling(self) -> contextmanager[None]:
        """Counts the time of the block as spent in the compiler."""
        return self._taken("compiling")

    def running(self) -> contextmanager[None]:
        """Counts the time of the block as spent in the kernel's worker."""
        return self._taken("running")


def write(folder: Path, count: int) -> list[str]:
    """The task and the kernels; the kernels' paths."""
    (folder / "task.py").write_text(TASK)
    paths = []
    for number in range(count):
        path = folder / f"kernel_{number:03}.cpp"
        operation = "*=" if number % 10 == 0 else "/="
        path.write_text(KERNEL.format(number=number, operation=operation))
        paths.append(str(path))
    return paths


def together(folder: Path, paths: list[str]) -> dict[str, float]:
    """All in one command. Raises `RuntimeError` where the verdicts are not as they must be."""
    command = [sys.executable, "-m", "sketchc.cli.main", "verify", *paths, "--json", "--no-store"]
    command += ["--task", str(folder / "task.py"), "--target", "cpp"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - started
    verdicts = json.loads(done.stdout)["verdicts"]
    failures = [verdict["failure"] for verdict in verdicts]
    expected = ["numerical" if number % 10 == 0 else "" for number in range(len(paths))]
    if failures != expected:
        message = f"verdicts are {failures}"
        raise RuntimeError(message)
    cases = sum(len(verdict["cases"]) for verdict in verdicts)
    return {"kernels": len(paths), "cases": cases, "seconds": round(seconds, 2)}


def apart(folder: Path, paths: list[str]) -> list[dict[str, float]]:
    """One by one in this process: seconds in all, in the compiler, in the worker, and the rest."""
    from sketchc.cli.verify_files import VerifyRequest, verify_one
    from sketchc.runtime.process import pool
    from sketchc.runtime.tasks.task import load_task

    os.environ["XDG_CACHE_HOME"] = str(folder / "cache apart")
    rows = []
    with load_task(str(folder / "task.py")) as task:
        for path in paths:
            timed = Timed()
            started = time.perf_counter()
            pool.use(timed)
            verify_one(VerifyRequest(path, "cpp"), task)
            total = time.perf_counter() - started
            rest = total - sum(timed.seconds.values())
            row = {"total": total, **timed.seconds, "rest": rest}
            rows.append({name: round(seconds, 4) for name, seconds in row.items()})
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write(folder, given.count)
        found = {"together": together(folder, paths), "apart": apart(folder, paths[1 : APART + 2])}
    # The first also loads what all need.
    rows = found["apart"][1:]
    medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    whole = found["together"]
    print(f"{whole['kernels']} kernels, {whole['cases']} cases: {whole['seconds']} s")
    print("one by one, medians: " + ", ".join(f"{k} {v:.3f} s" for k, v in medians.items()))
    if given.json:
        given.json.write_text(json.dumps({**found, "medians": medians}, indent=1))


if __name__ == "__main__":
    main()
