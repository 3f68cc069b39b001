"""The `level1` suite at KernelBench's own sizes on a GPU, beside PyTorch eager.

    python benchmarks/level1_gpu.py build FOLDER [NAME ...] [--sizes full|small] [--jobs N]
                                          [--points N] [--stratified N --seed S [--others]]
    python FOLDER/tasks_queue.py FOLDER RESULTS          # on the GPU: torch and Triton alone
    python benchmarks/level1_gpu.py pack FOLDER [--results RESULTS] [--data FILE]
    python benchmarks/level1_gpu.py show [--data FILE]

`build` needs no GPU: the built-in Designer designs each task, the sketch is planned with the cost
model's choice for the task's sizes, and FOLDER gets its drop-in; with `--points`, also the kernels
of so many further points, the best by the cost model that are no neighbours. A task that is there
already is not built again; one that cannot be built is left out, and told. `--stratified` draws so
many tasks, of each category by its share; with `--others` all others come behind them, without
further points. `pack` puts what was measured into FILE, beside what is
there already; `show` prints a line for each task and one for each category: the geometric mean of
eager's times over ours, the lowest of them that is asked for, the share of all tasks that are right
and faster (fast_1), and the same of the points that won where there were several.
`python benchmarks/tables.py` writes the same into docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from gpu_tasks import (
    ROOT,
    Given,
    chosen_text,
    geometric_mean,
    is_tuned,
    main,
    median,
    ratio,
    speedup,
    tuned_text,
)

DATA = ROOT / "docs" / "data" / "level1_h200.json.gz"
#: The geometric means that are asked for, by category and over all.
WANTED = {
    "MatMul": 1.05,
    "Elementwise": 1.38,
    "Reduce & Norm": 1.8,
    "Convolution": 0.8,
    "Scan & Loss": 2.5,
    "all": 1.35,
}


def stratified(categories: Mapping[str, str], number: int, seed: int) -> list[str]:
    """`number` names of tasks (`categories` by name), of each category by its share: of the whole
    numbers that shares are rounded down to, those with the largest rests get one more."""
    rows: dict[str, list[str]] = {}
    for name, category in categories.items():
        rows.setdefault(category, []).append(name)
    shares = {key: number * len(own) / len(categories) for key, own in rows.items()}
    counts = {key: int(share) for key, share in shares.items()}
    rest = sorted(shares, key=lambda key: counts[key] - shares[key])
    for key in rest[: number - sum(counts.values())]:
        counts[key] += 1
    draw = random.Random(seed)
    chosen = {name for key, own in rows.items() for name in draw.sample(own, counts[key])}
    return [name for name in categories if name in chosen]


def tasks_of(given: argparse.Namespace) -> list[Given]:
    """The tasks that the command line asks for."""
    from sketchc.agents.suites.sources import level1

    suite = level1(full=given.sizes == "full").tasks
    names: Sequence[str] = given.names or [task.name for task in suite]
    if unknown := set(names) - {task.name for task in suite}:
        raise SystemExit(f"no such task: {', '.join(sorted(unknown))}")
    drawn = names
    if given.stratified:
        own = {task.name: task.category for task in suite if task.name in names}
        drawn = stratified(own, given.stratified, given.seed)
    found = [
        Given(task.name, task.category, task.sizes, task.text)
        for task in suite
        if task.name in (names if given.others else drawn)
    ]
    tuned = [attrs.evolve(one, points=given.points or 0) for one in found if one.name in drawn]
    return [*tuned, *(one for one in found if one.name not in drawn)]


# ---------------------------------------------------------------- show


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


def totals(tasks: Mapping[str, Any], of: str = "ours") -> list[Total]:
    """The totals by category, and over all at the end: of the plan's own choice, or of what was
    "tuned"."""
    found = []
    for category, wanted in WANTED.items():
        own = [task for task in tasks.values() if category in (task["category"], "all")]
        right = [each for task in own if (each := speedup(task, of)) is not None]
        fast = sum(each > 1.0 for each in right) / max(len(own), 1)
        mean = geometric_mean(right)
        found.append(Total(category, len(own), len(right), mean, wanted, fast))
    return found


def tuned_tasks(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """The tasks of which several points were measured."""
    return {name: task for name, task in tasks.items() if is_tuned(task)}


def distance(tasks: Mapping[str, Any]) -> float:
    """How many times as long as the points that won the plan's own choices take (geometric
    mean)."""
    return geometric_mean(ratio(task, "ours", "tuned") for task in tasks.values())


def lines(tasks: Mapping[str, Any]) -> Iterator[str]:
    """The table: a line for each task, then for each category."""
    head = ("eager ms", "ours ms", "ratio", "tuned ms", "ratio")
    yield f"{'':34}{''.join(f'{word:>11}' for word in head)}"
    for category in WANTED:
        yield from (_row(task) for task in tasks.values() if task["category"] == category)
    yield from _sums(tasks, "ours")
    if tuned := tuned_tasks(tasks):
        yield from _sums(tuned, "tuned")
        said = f"the plan's own choice takes {distance(tuned):.3f} of the tuned time"
        yield f"\n{said} (geometric mean of {len(tuned)} tasks)"


def _sums(tasks: Mapping[str, Any], of: str) -> Iterator[str]:
    yield f"\n{of:16}{'tasks':>8}{'right':>8}{'mean':>8}{'wanted':>8}{'fast_1':>8}"
    for one in totals(tasks, of):
        if one.tasks:
            mean = f"{one.mean:8.2f}" if not math.isnan(one.mean) else f"{'':8}"
            counts = f"{one.category:16}{one.tasks:8}{one.right:8}"
            yield f"{counts}{mean}{one.wanted:8.2f}{100 * one.fast:7.0f}%"


def _row(task: Mapping[str, Any]) -> str:
    chosen = chosen_text(task)
    eager, ours = median(task, "eager"), median(task, "ours")
    if eager is None or ours is None:
        return f"{task['name']:34}  {task.get('failure') or task.get('wrong')}  {chosen}"
    said = f"{task['name']:34}{eager:11.3f}{ours:11.3f}{speedup(task):11.2f}"
    if is_tuned(task):
        said += f"{median(task, 'tuned'):11.3f}{speedup(task, 'tuned'):11.2f}"
        chosen += f" -> {tuned_text(task)}" if tuned_text(task) else ""
    return f"{said}  {chosen}"


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `build`."""
    parser.add_argument("--sizes", choices=["full", "small"], default="full")
    parser.add_argument("--stratified", type=int, default=0, metavar="N", help="draw N tasks")
    parser.add_argument("--seed", type=int, default=0, help="of the tasks that are drawn")
    parser.add_argument("--others", action="store_true", help="the other tasks, too, untuned")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", DATA, tasks_of, lines, options))
