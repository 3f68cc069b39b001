"""All examples in C++ against PyTorch eager on this CPU, at sizes that leave the caches.

    python benchmarks/cpu_examples.py [--json FILE] [--only NAME ...] [--samples N]

Each example is measured by `sketchc bench`'s own machinery: interleaved, same inputs, pinned
threads, outputs of timed runs verified. Prints one table; `--json` keeps all raw samples.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path

from sketchc.cli.verify import prepare
from sketchc.diagnostics import UsageError
from sketchc.runtime.bench.bench import Measurement, Settings, bench
from sketchc.runtime.bench.machine import Machine, this_machine
from sketchc.runtime.bench.report import seconds_text, to_json
from sketchc.runtime.bench.statistics import geometric_mean
from sketchc.runtime.bench.timing import Schedule
from sketchc.runtime.frontends.torch_task import TorchTask

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MATMULS = ("matmul", "batched_matmul", "matmul_bias_gelu")


def measure(name: str, machine: Machine, samples: int, threads: int) -> Measurement:
    """One example at its task's sizes."""
    candidate = prepare(str(EXAMPLES / f"{name}.sketch"), None, "cpp", None, {})
    settings = Settings(secrets.randbits(48), threads, Schedule(samples=samples))
    with (
        TorchTask(EXAMPLES / "tasks" / f"{name}.py") as task,
        tempfile.TemporaryDirectory() as folder,
    ):
        return bench(candidate, task, Path(folder), settings, machine)


def show(name: str, found: Measurement) -> None:
    gain = found.speedup
    print(
        f"{name:18} eager {seconds_text(found.eager.median):>8}  cpp "
        f"{seconds_text(found.kernel.median):>8}  {gain.of_medians:5.2f}x "
        f"[{gain.low:.2f}, {gain.high:.2f}]  roofline {found.roofline:4.0%} "
        f"(eager {found.eager_roofline:4.0%})  {found.flops / found.kernel.median / 1e9:6.1f} "
        f"GFLOP/s  {'right' if found.passed else 'WRONG'}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write everything here, raw samples included")
    parser.add_argument("--only", nargs="*", help="names of examples")
    parser.add_argument("--samples", type=int, default=31)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    names = options.only or sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
    machine = this_machine(measure=True)
    bandwidth = machine.bandwidth / 1e9
    print(f"{machine.name}, {options.threads} threads, {bandwidth:.1f} GB/s, {machine.versions}")
    measured: dict[str, Measurement] = {}
    for name in names:
        try:
            measured[name] = measure(name, machine, options.samples, options.threads)
        except UsageError as error:
            print(f"{name:18} not measured: {error}")
            continue
        show(name, measured[name])
    for title, group in (
        ("memory-bound examples", [n for n in measured if n not in MATMULS]),
        ("matrix products", [n for n in measured if n in MATMULS]),
    ):
        if group:
            mean = geometric_mean([measured[name].speedup.of_medians for name in group])
            print(f"geometric mean over {len(group)} {title}: {mean:.2f}x of eager")
    if options.json:
        data = {
            name: {**to_json(found), "task": f"examples/tasks/{name}.py"}
            for name, found in measured.items()
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    right = len(measured) == len(names) and all(found.passed for found in measured.values())
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
