"""Examples in C++ against PyTorch eager and torch.compile, interleaved, in one run on this CPU.
(On a GPU: `examples_gpu.py`.)

    python benchmarks/interleaved.py [--json FILE] [--only NAME ...]
                                     [--samples N] [--threads N] [--eager-only] [--add]

Each example is measured by `sketchc bench`'s own machinery (docs/MEASUREMENT.md) at its task's own
sizes. Prints one line for each and the summary; `--json` keeps everything, raw samples included,
gzipped where FILE ends in .gz; with `--add`, beside what another run has left in FILE.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs

from sketchc.api.sketches import SketchError
from sketchc.base.diagnostics import UsageError
from sketchc.cli.verify_files import VerifyRequest, lower
from sketchc.runtime.bench import text
from sketchc.runtime.bench.bench import bench
from sketchc.runtime.bench.machine import Machine, this_machine
from sketchc.runtime.bench.measurement import Measurement
from sketchc.runtime.bench.schedule import Schedule, Settings
from sketchc.runtime.bench.text import Entry, summary, to_json
from sketchc.runtime.tasks.task import load_task

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: In the repository already, or long and easily drawn again from the seed.
_LEFT_OUT = ("source", "sketch_text", "rounds")


def measure(name: str, machine: Machine, settings: Settings) -> Measurement:
    """One example. Raises `UsageError` and `SketchError`."""
    candidate = lower(VerifyRequest(str(EXAMPLES / f"{name}.sketch"), "cpp"))
    settings = attrs.evolve(settings, seed=secrets.randbits(48))
    task = str(EXAMPLES / "tasks" / f"{name}.py")
    with load_task(task) as loaded, tempfile.TemporaryDirectory() as folder:
        return bench(candidate, loaded, Path(folder), settings, machine)


def entry_of(name: str, machine: Machine, settings: Settings) -> Entry:
    """The measurement, or why there is none: a failure counts as not fast."""
    try:
        return Entry(name, name, measure(name, machine, settings))
    except (UsageError, SketchError) as error:
        return Entry(name, name, failure=getattr(error, "failure", "infrastructure"),
                     reason=str(error))  # fmt: skip


def plain(entry: Entry) -> dict[str, Any]:
    """What is kept of one example: nothing that names a place on this machine."""
    if entry.measurement is None:
        return {"passed": False, "failure": entry.failure, "error": entry.reason}
    data = {k: v for k, v in to_json(entry.measurement).items() if k not in _LEFT_OUT}
    data["task"] = f"examples/tasks/{entry.kernel}.py"
    data["kernel_file"] = f"examples/{entry.kernel}.sketch"
    return data


def write(path: Path, data: dict[str, Any]) -> None:
    """Write JSON; the same data gives the same gzipped bytes."""
    text = json.dumps(data, indent=1) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text)


def read(path: Path) -> dict[str, Any]:
    """The results that `write` wrote."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    results: dict[str, Any] = json.loads(text)["results"]
    return results


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write everything here, raw samples included")
    parser.add_argument("--only", nargs="*", help="names of examples")
    parser.add_argument("--samples", type=int, default=31)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--add", action="store_true", help="keep the other examples of FILE")
    parser.add_argument("--eager-only", action="store_true", help="without torch.compile")
    options = parser.parse_args()
    names = options.only or sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
    baselines = ("eager",) if options.eager_only else ("eager", "compile")
    settings = Settings(
        0,
        options.threads,
        Schedule(samples=options.samples),
        baselines=baselines,
    )
    machine = this_machine("cpu", measure=True)
    print(f"{machine.name}, {options.threads} threads, {machine.bandwidth / 1e9:.1f} GB/s, "
          f"{machine.versions}")  # fmt: skip
    entries: list[Entry] = []
    results = read(options.json) if options.add else {}
    for name in names:
        entries.append(entry_of(name, machine, settings))
        found = entries[-1].measurement
        said = summary(found) if found is not None else f"not measured: {entries[-1].reason}"
        print(f"{name:22} {said}", flush=True)
        results[name] = plain(entries[-1])
        if options.json:  # after each: a run that is stopped has measured what it has
            write(options.json, {"results": results})
    for total in text.against(entries, baselines):
        print(text.total_text(total))
    return 0 if all(entry.passed for entry in entries) else 1


if __name__ == "__main__":
    sys.exit(main())
