"""Tasks beside PyTorch on a GPU: what `level1_gpu.py` and `examples_gpu.py` share.

A task is built without a GPU: its sketch is planned with the cost model's choice for the task's
sizes, and written as a drop-in into FOLDER/NAME, with the kernels of further points of its tuning
space beside it. `tasks_queue.py`, which goes with them, measures all of it on the GPU. What it has
measured is packed into one file, from which tables are made.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
from points import candidates

ROOT = Path(__file__).resolve().parent.parent
TARGET = "triton_cuda"
#: Seconds that one task may take to be built, and pools of processes that are begun for all.
LONGEST, POOLS = 240, 3
#: Files that go to the GPU with the drop-ins.
_BESIDE = ("tasks_queue.py", "tasks_compile.py", "queued.py")


@attrs.frozen
class Given:
    """A task to be built: `text` is its file, `sketch` the sketch ("": the built-in Designer's).
    `points` more of the tuning space are built beside the plan's own choice, and it is measured
    `beside` eager and, where they are named, "compile" and "copy". `more` is kept with it."""

    name: str
    category: str
    sizes: str
    text: str
    sketch: str = ""
    beside: tuple[str, ...] = ("eager",)
    points: int = 0
    more: Mapping[str, Any] = attrs.field(factory=dict)


# ---------------------------------------------------------------- build


def build(given: Given, folder: Path) -> str:
    """Put the drop-in of one task into `folder`/NAME, and NAME.task.json beside that, which says
    what it is; returns a line about it. It takes `LONGEST` seconds at most."""

    def over(*_: Any) -> None:
        raise TimeoutError(f"takes more than {LONGEST} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(LONGEST)
    record: dict[str, Any] = {
        key: getattr(given, key) for key in ("name", "category", "sizes", "beside")
    } | dict(given.more)
    try:
        record |= made(given, folder / given.name)
    except Exception as error:  # one task that cannot be built keeps no other from it
        record["failure"] = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    (folder / f"{given.name}.task.json").write_text(json.dumps(record))
    points = len(record.get("points", ()))
    return f"{given.name}: {record.get('failure') or record['chosen']}, {points} points"


def made(given: Given, folder: Path) -> dict[str, Any]:
    """Write the drop-in of a task, and the kernels of further points; returns what the GPU needs to
    know of it. Raises what `design`, the planner and `write_dropin` raise."""
    from sketchc.agents.autosketch.designer import design, has_f64, has_planes
    from sketchc.base.diagnostics import Source
    from sketchc.lowering.passes.pipeline import planner
    from sketchc.lowering.passes.space import Space
    from sketchc.lowering.plan import has_product
    from sketchc.lowering.registry import load_target
    from sketchc.parsing.parser import parse
    from sketchc.runtime.cases.lists import bind_task
    from sketchc.runtime.cases.planned import known_sizes
    from sketchc.runtime.cases.sums import reduction_length
    from sketchc.runtime.dropin.torch_dropin import write_dropin
    from sketchc.runtime.tasks.task import load_task
    from sketchc.runtime.verify.compare import relative_tolerance

    (folder / "points").mkdir(parents=True, exist_ok=True)
    path = folder.parent / "tasks" / f"{given.name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(given.text)
    emit = load_target(TARGET).emit
    with load_task(str(path)) as task:
        doubles, planes = has_f64(TARGET), has_planes(TARGET)
        sketch = given.sketch or design(task, doubles=doubles, planes=planes)
        tree, _ = parse(Source(path.name, sketch))
        assert tree is not None
        entry = tree.entries[0]
        own = bind_task(planner(entry, TARGET).plan({}).plan.sketch, task, 1)
        sizes = known_sizes(own.symbols, own.params)
        plan = planner(entry, TARGET, sizes=sizes).plan({}).plan
        binding = bind_task(plan.sketch, task, 1)
        kernel = emit(plan)
        drop_in = write_dropin(folder, kernel, binding, task.path)
    space = Space(planner(entry, TARGET), {})
    points, sources = list[dict[str, Any]](), list[str]()
    for one in candidates(space, binding.symbols, binding.params, plan):
        source = emit(one.plan).source
        if source in sources:
            continue
        if sources:
            (folder / "points" / f"{len(sources)}.py").write_text(source)
        sources.append(source)
        points.append({"point": dict(one.values), "predicted": one.seconds})
        if len(points) > given.points:
            break
    shapes = binding.shapes(binding.symbols)
    named = (source.tensor for source in binding.tensors)
    terms = reduction_length(plan, binding, binding.symbols)
    return {
        "chosen": {c.name: c.value for c in plan.sketch.constants} | dict(plan.options),
        "points": points,
        "drop_in": drop_in.name,
        "entry": kernel.entry,
        "products": any(has_product(phase.body) for phase in plan.phases),
        "tensors": [(shapes[t.name], t.dtype.numpy_name) for t in named],
        "params": dict(binding.params),
        "tolerance": max(relative_tolerance(one.dtype, terms) for one in binding.outputs),
        "sketch": sketch,
    }


def build_all(folder: Path, tasks: Sequence[Given], jobs: int) -> None:
    """Build what is missing of the tasks, and write tasks.json with those that could be built."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in _BESIDE:
        shutil.copy(Path(__file__).with_name(file), folder)
    for _ in range(POOLS):  # a process that is killed ends its pool
        missing = [one for one in tasks if not (folder / f"{one.name}.task.json").exists()]
        with suppress(BrokenProcessPool), ProcessPoolExecutor(jobs) as pool:
            futures = [pool.submit(build, one, folder) for one in missing]
            for future in as_completed(futures):
                print(future.result(), flush=True)
    found = [folder / f"{one.name}.task.json" for one in tasks]
    records = [json.loads(path.read_text()) for path in found if path.exists()]
    built = [record for record in records if "failure" not in record]
    (folder / "tasks.json").write_text(json.dumps(built))
    left = sorted({one.name for one in tasks} - {record["name"] for record in built})
    print(f"{len(built)} of {len(tasks)} tasks are built; left out: {', '.join(left) or 'none'}")


# ---------------------------------------------------------------- pack


def pack(results: Path, folder: Path, data: Path) -> None:
    """Put what was measured of the tasks in `folder` into one file, beside what is there."""
    tasks = load(data) if data.exists() else {}
    for path in sorted(folder.glob("*.task.json")):
        record = json.loads(path.read_text())
        measured = results / f"{record['name']}.json"
        if measured.exists():
            record |= json.loads(measured.read_text())
        for key in {"failure", "wrong"} & record.keys():
            record[key] = re.sub(r"/\S*/", "", record[key] or "")  # places on a machine
        if measured.exists() or "failure" in record:
            tasks[record["name"]] = record
    text = json.dumps({"tasks": tasks}, indent=0, sort_keys=True)
    data.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(data: Path) -> dict[str, Any]:
    """The tasks that `pack` wrote, by name."""
    tasks: dict[str, Any] = json.loads(gzip.decompress(data.read_bytes()))["tasks"]
    return tasks


# ---------------------------------------------------------------- what was measured


def is_right(task: Mapping[str, Any]) -> bool:
    """Whether the plan's own choice was measured and is right."""
    failed = task.get("failure") or task.get("wrong")
    return not failed and "ours" in (task.get("samples") or {})


def ratio(task: Mapping[str, Any], one: str, other: str) -> float | None:
    """The median of the times of `one` over those of `other`, in turn; where no other point won,
    "tuned" is "ours". None for a task that is not right, or where one of them was not measured."""
    if not is_right(task):
        return None
    samples = {"tuned": task["samples"]["ours"], **task["samples"]}
    if one not in samples or other not in samples:
        return None
    return statistics.median(a / b for a, b in zip(samples[one], samples[other], strict=True))


def speedup(task: Mapping[str, Any], of: str = "ours") -> float | None:
    """The median of eager's times over ours, in turn; see `ratio`."""
    return ratio(task, "eager", of)


def is_tuned(task: Mapping[str, Any]) -> bool:
    """Whether other points than the plan's own choice were measured."""
    return len(task.get("points", ())) > 1


def geometric_mean(found: Iterable[float | None]) -> float:
    """The geometric mean of those that are known; NaN where none is."""
    known = [each for each in found if each is not None]
    return math.exp(statistics.fmean(map(math.log, known))) if known else math.nan


def median(task: Mapping[str, Any], name: str) -> float | None:
    """The median of the samples of one side, in milliseconds; None where there are none."""
    samples = {"tuned": task["samples"]["ours"], **task["samples"]} if is_right(task) else {}
    return statistics.median(samples[name]) if name in samples else None


def chosen_text(task: Mapping[str, Any]) -> str:
    """The constants and options of a task's plan."""
    return " ".join(f"{name}={value}" for name, value in task.get("chosen", {}).items())


def tuned_text(task: Mapping[str, Any]) -> str:
    """The point that won, as far as it was chosen among several; "" where it is the plan's own."""
    best = task.get("best", 0)
    if not best:
        return ""
    return " ".join(f"{name}={value}" for name, value in task["points"][best]["point"].items())


# ---------------------------------------------------------------- commands


def main(
    description: str,
    data: Path,
    tasks: Callable[[argparse.Namespace], list[Given]],
    lines: Callable[[Mapping[str, Any]], Iterable[str]],
    options: Callable[[argparse.ArgumentParser], None],
) -> int:
    """Do what the command line says: `tasks` are those to be built, `lines` show what is in `data`,
    and `options` adds what `tasks` asks for."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("do", choices=["build", "pack", "show"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--points", type=int, help="of each task, beside the plan's own choice")
    parser.add_argument("--results", type=Path, help="of pack; default: FOLDER/results")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--data", type=Path, default=data)
    options(parser)
    given = parser.parse_args()
    if given.do == "show":
        print("\n".join(lines(load(given.data))))
        return 0
    if given.folder is None:
        parser.error(f"{given.do} needs a folder")
    if given.do == "pack":
        pack(given.results or given.folder / "results", given.folder, given.data)
        return 0
    build_all(given.folder, tasks(given), given.jobs)
    return 0
