"""The `level1` suite at KernelBench's own sizes on a GPU, beside PyTorch eager.

    python benchmarks/level1_gpu.py build FOLDER [NAME ...] [--sizes full|small] [--jobs N]
    python FOLDER/level1_queue.py FOLDER RESULTS         # on the GPU: torch and Triton alone
    python benchmarks/level1_gpu.py pack FOLDER [--results RESULTS] [--data FILE]
    python benchmarks/level1_gpu.py show [--data FILE]

`build` needs no GPU: the built-in Designer designs each task, the sketch is planned with the cost
model's choice for the task's sizes, and FOLDER gets its drop-in, which is all that
`level1_queue.py` needs. A task that is there already is not built again; one that cannot be built
is left out, and told. `pack` puts what was measured into FILE, beside what is there already; `show`
prints a line for each task and one for each category: the geometric mean of eager's times over
ours, the lowest of them that is asked for, and the share of all tasks that are right and faster
(fast_1). `python benchmarks/tables.py` writes the same into docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data" / "level1_h200.json.gz"
TARGET = "triton_cuda"
#: The geometric means that are asked for, by category and over all.
WANTED = {
    "MatMul": 1.05,
    "Elementwise": 1.38,
    "Reduce & Norm": 1.8,
    "Convolution": 0.8,
    "Scan & Loss": 2.5,
    "all": 1.35,
}
#: Seconds that one task may take to be built, and pools of processes that are begun for all.
LONGEST, POOLS = 240, 3
#: Files that go to the GPU with the drop-ins.
_BESIDE = ("level1_queue.py", "queued.py")


# ---------------------------------------------------------------- build


def build(name: str, folder: Path, full: bool) -> str:
    """Put the drop-in of one task into `folder`, and NAME.task.json beside it, which says what it
    is; returns a line about it. It takes `LONGEST` seconds at most."""
    from sketchc.agents.suites.sources import level1, write_task

    def over(*_: Any) -> None:
        raise TimeoutError(f"takes more than {LONGEST} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(LONGEST)
    task = next(one for one in level1(full=full).tasks if one.name == name)
    path = write_task(task, folder / "tasks")
    record: dict[str, Any] = {"name": name, "category": task.category, "sizes": task.sizes}
    try:
        record |= made(path, folder)
    except Exception as error:  # one task that cannot be built keeps no other from it
        record["failure"] = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    (folder / f"{name}.task.json").write_text(json.dumps(record))
    return f"{name}: {record.get('failure') or record['chosen']}"


def made(path: Path, folder: Path) -> dict[str, Any]:
    """Write the drop-in of the task at `path`; returns what the GPU needs to know of it. Raises
    what `design`, the planner and `write_dropin` raise."""
    from sketchc.agents.autosketch.designer import design, has_f64, has_planes
    from sketchc.base.diagnostics import Source
    from sketchc.checker.api import elaboration
    from sketchc.lowering.passes.pipeline import build_plan
    from sketchc.lowering.plan import has_product
    from sketchc.lowering.registry import load_target
    from sketchc.parsing.parser import parse
    from sketchc.runtime.cases.lists import bind_task
    from sketchc.runtime.cases.sums import reduction_length
    from sketchc.runtime.dropin.torch_dropin import write_dropin
    from sketchc.runtime.tasks.task import load_task
    from sketchc.runtime.verify.compare import relative_tolerance

    with load_task(str(path)) as task:
        text = design(task, doubles=has_f64(TARGET), planes=has_planes(TARGET))
        tree, _ = parse(Source(path.name, text))
        assert tree is not None
        sketch = elaboration(tree.entries[0], {}).sketch
        assert sketch is not None
        sizes = bind_task(sketch, task, 1).symbols
        plan = build_plan(tree.entries[0], TARGET, sizes=sizes).plan
        kernel = load_target(TARGET).emit(plan)
        binding = bind_task(plan.sketch, task, 1)
        write_dropin(folder, kernel, binding, task.path)
    shapes = binding.shapes(binding.symbols)
    sources = (source.tensor for source in binding.tensors)
    terms = reduction_length(plan, binding, binding.symbols)
    return {
        "chosen": {c.name: c.value for c in plan.sketch.constants} | dict(plan.options),
        "products": any(has_product(phase.body) for phase in plan.phases),
        "tensors": [(shapes[t.name], t.dtype.numpy_name) for t in sources],
        "params": dict(binding.params),
        "tolerance": max(relative_tolerance(one.dtype, terms) for one in binding.outputs),
        "sketch": text,
    }


def build_all(folder: Path, names: list[str], full: bool, jobs: int) -> None:
    """Build what is missing of the tasks, and write tasks.json with those that could be built."""
    from sketchc.agents.suites.level1 import rows

    folder.mkdir(parents=True, exist_ok=True)
    for file in _BESIDE:
        shutil.copy(Path(__file__).with_name(file), folder)
    wanted = names or [row.name for row in rows()]
    for _ in range(POOLS):  # a process that is killed ends its pool
        missing = [name for name in wanted if not (folder / f"{name}.task.json").exists()]
        with suppress(BrokenProcessPool), ProcessPoolExecutor(jobs) as pool:
            futures = [pool.submit(build, name, folder, full) for name in missing]
            for future in as_completed(futures):
                print(future.result(), flush=True)
    found = [folder / f"{name}.task.json" for name in wanted]
    records = [json.loads(path.read_text()) for path in found if path.exists()]
    built = [record for record in records if "failure" not in record]
    (folder / "tasks.json").write_text(json.dumps(built))
    left = sorted({*wanted} - {record["name"] for record in built})
    print(f"{len(built)} of {len(wanted)} tasks are built; left out: {', '.join(left) or 'none'}")


# ---------------------------------------------------------------- pack and show


def pack(results: Path, folder: Path, data: Path) -> None:
    """Put what was measured of the tasks in `folder` into one file, beside what is there."""
    tasks = load(data) if data.exists() else {}
    for path in sorted(folder.glob("*.task.json")):
        record = json.loads(path.read_text())
        measured = results / f"{record['name']}.json"
        if measured.exists():
            record |= json.loads(measured.read_text())
        for key in {"failure", "wrong"} & record.keys():
            record[key] = re.sub(r"/\S*/", "", record[key])  # places on a machine
        if measured.exists() or "failure" in record:
            tasks[record["name"]] = record
    text = json.dumps({"tasks": tasks}, indent=0, sort_keys=True)
    data.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(data: Path) -> dict[str, Any]:
    """The tasks that `pack` wrote, by name."""
    tasks: dict[str, Any] = json.loads(gzip.decompress(data.read_bytes()))["tasks"]
    return tasks


def speedup(task: Mapping[str, Any]) -> float | None:
    """The median of eager's times over ours, in turn; None for a task that is not right, or that
    was not measured."""
    if task.get("failure") or task.get("wrong") or not task.get("samples"):
        return None
    samples = task["samples"]
    return statistics.median(e / o for e, o in zip(samples["eager"], samples["ours"], strict=True))


@attrs.frozen
class Total:
    """What is counted of a category: its tasks, those that are right, the geometric mean of their
    ratios, the mean that is asked for, and the share of all tasks that are right and faster."""

    category: str
    tasks: int
    right: int
    mean: float
    wanted: float
    fast: float


def totals(tasks: Mapping[str, Any]) -> list[Total]:
    """The totals by category, and over all at the end."""
    found = []
    for category, wanted in WANTED.items():
        own = [task for task in tasks.values() if category in (task["category"], "all")]
        right = [ratio for ratio in map(speedup, own) if ratio is not None]
        mean = math.exp(statistics.fmean(map(math.log, right))) if right else math.nan
        fast = sum(ratio > 1.0 for ratio in right) / max(len(own), 1)
        found.append(Total(category, len(own), len(right), mean, wanted, fast))
    return found


def lines(tasks: Mapping[str, Any]) -> Iterator[str]:
    """The table: a line for each task, then for each category."""
    head = ("eager ms", "ours ms", "ratio")
    yield f"{'':34}{''.join(f'{word:>11}' for word in head)}"
    for category in WANTED:
        yield from (
            _row(task, speedup(task)) for task in tasks.values() if task["category"] == category
        )
    yield f"\n{'':16}{'tasks':>8}{'right':>8}{'mean':>8}{'wanted':>8}{'fast_1':>8}"
    for one in totals(tasks):
        counts = f"{one.category:16}{one.tasks:8}{one.right:8}"
        yield f"{counts}{one.mean:8.2f}{one.wanted:8.2f}{100 * one.fast:7.0f}%"


def medians(task: Mapping[str, Any]) -> tuple[float, float]:
    """The medians of eager's and our samples, in milliseconds."""
    eager, ours = (statistics.median(task["samples"][key]) for key in ("eager", "ours"))
    return eager, ours


def chosen_text(task: Mapping[str, Any]) -> str:
    """The constants and options of a task's plan."""
    return " ".join(f"{name}={value}" for name, value in task.get("chosen", {}).items())


def _row(task: Mapping[str, Any], ratio: float | None) -> str:
    chosen = chosen_text(task)
    if not task.get("samples"):
        return f"{task['name']:34}  {task.get('failure') or task.get('wrong')}  {chosen}"
    eager, ours = medians(task)
    said = f"{ratio:11.2f}" if ratio is not None else f"  {task['wrong']}"
    return f"{task['name']:34}{eager:11.3f}{ours:11.3f}{said}  {chosen}"


def main() -> int:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=["build", "pack", "show"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--sizes", choices=["full", "small"], default="full")
    parser.add_argument("--results", type=Path, help="of pack; default: FOLDER/results")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    if given.do == "show":
        print("\n".join(lines(load(given.data))))
        return 0
    if given.folder is None:
        parser.error(f"{given.do} needs a folder")
    if given.do == "pack":
        pack(given.results or given.folder / "results", given.folder, given.data)
        return 0
    build_all(given.folder, given.names, given.sizes == "full", given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
