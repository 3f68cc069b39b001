"""Write the results of docs/data/*.json into docs/BENCHMARKS.md, between its markers.

    python benchmarks/tables.py

A result whose data is not there says so; nothing in the tables is typed by hand.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_tasks

from sketchc.runtime.bench.measurement import fast_p, geometric_mean
from sketchc.runtime.bench.text import THRESHOLDS

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "BENCHMARKS.md"
#: So many tasks of `level1` are listed.
_SLOWEST = 10


def check_speed(data: dict[str, Any]) -> list[str]:
    """Best wall times of `sketchc check`."""
    lines = [
        f"{data['machine']}, Python {data['python']}.",
        "",
        "| example | best of 7 | all seven |",
        "|---|---|---|",
    ]
    starts = {f"rms, `{name}`": times for name, times in data.get("start_seconds", {}).items()}
    for name, samples in {**starts, **data["one_example_seconds"]}.items():
        shown = ", ".join(f"{sample:.3f}" for sample in samples)
        lines.append(f"| {name} | {min(samples):.3f} s | {shown} |")
    return [
        *lines,
        "",
        f"{data['count']:,} distinct sketches in one call: {data['many_seconds']:.2f} s.",
    ]


def interleaved(data: dict[str, Any]) -> list[str]:
    """A kernel against eager and torch.compile, as `interleaved.py` writes it."""
    measured = {name: found for name, found in data["results"].items() if "kernel" in found}
    first = next(iter(measured.values()))
    machine = first["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    load = first["surroundings"]["before"]["load"][0]
    peak = machine["peaks"].get("ieee f32", 0.0)
    lines = [
        f"{machine['name']}, {first['threads']} threads, {machine['bandwidth'] / 1e9:.1f} GB/s and "
        f"{peak / 1e9:.0f} GFLOP/s (f32) measured, load {load:.1f} at the start, {versions}.",
        "",
        "| example | sizes | class | eager | compile | kernel | of eager | of compile | roofline |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in data["results"].items():
        if "kernel" not in found:
            lines.append(f"| {name} | {found['error']} | | | | | | | |")
            continue
        sizes = ", ".join(f"{key}={value}" for key, value in found["symbols"].items())
        if not found["passed"]:
            sizes += f" **({found['problems'][0]['reason']})**"
        times = [_milliseconds(found["baselines"].get(key)) for key in ("eager", "compile")]
        gains = [_gain(found["baselines"].get(key)) for key in ("eager", "compile")]
        lines.append(
            f"| {name} | {sizes} | {found['precision']['name']} | {' | '.join(times)} | "
            f"{found['kernel']['median'] * 1e3:.3g} ms | {' | '.join(gains)} | "
            f"{found['roofline']:.0%} |"
        )
    lines.append("")
    for baseline in ("eager", "compile"):
        gains = [_speedup(found, baseline) for found in data["results"].values()]
        known = [gain for gain in gains if gain is not None]
        shares = ", ".join(f"fast_{p:g} {fast_p(gains, p):.0%}" for p in THRESHOLDS)
        mean = f"{geometric_mean(known):.2f}" if known else "none"
        lines += [f"Against {baseline}: {shares} of {len(gains)}; geometric mean {mean} over "
                  f"{len(known)}.", ""]  # fmt: skip
    return lines[:-1]


def _device(tasks: dict[str, Any]) -> str:
    """What tasks were measured on and with, in a sentence."""
    first = next(task for task in tasks.values() if task.get("device"))
    return f"{first['device']}, torch {first['torch']}, Triton {first['triton']}."


def level1(data: dict[str, Any]) -> list[str]:
    """The tasks of `level1` against eager, as `level1_gpu.py` packs them."""
    import level1_gpu

    tasks = data["tasks"]
    lines = [_device(tasks), "", *_totals(tasks, "ours")]
    if tuned := level1_gpu.tuned_tasks(tasks):
        lines += ["", f"Tuned, {len(tuned)} of them:", "", *_totals(tuned, "tuned")]
        far = level1_gpu.distance(tuned)
        lines += ["", f"The plan's own choice takes {far:.3f} of the tuned time (geometric mean)."]
    ratios = {name: gpu_tasks.speedup(task) for name, task in tasks.items()}
    slow = sorted((ratio, name) for name, ratio in ratios.items() if ratio is not None)[:_SLOWEST]
    lines += [
        "",
        "| the slowest beside eager | eager | ours | ratio | plan |",
        "|---|---|---|---|---|",
    ]
    for ratio, name in slow:
        eager, ours = (gpu_tasks.median(tasks[name], side) for side in ("eager", "ours"))
        plan = gpu_tasks.chosen_text(tasks[name])
        lines.append(f"| {name} | {eager:.3g} ms | {ours:.3g} ms | {ratio:.2f} | {plan} |")
    wrong = [
        f"{name}: {task.get('failure') or task.get('wrong')}"
        for name, task in tasks.items()
        if ratios[name] is None
    ]
    return [*lines, "", f"Not right, or not measured: {'; '.join(wrong) or 'none'}."]


def _totals(tasks: dict[str, Any], of: str) -> list[str]:
    """A row for each category that there is: of the plans' own choices, or of what was "tuned"."""
    import level1_gpu

    return [
        "| category | tasks | right | geometric mean | asked for | fast_1 |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {one.category} | {one.tasks} | {one.right} | {one.mean:.2f} | {one.wanted:.2f} | "
            f"{one.fast:.0%} |"
            for one in level1_gpu.totals(tasks, of)
            if one.tasks
        ),
    ]


def examples(data: dict[str, Any]) -> list[str]:
    """Examples against eager, torch.compile and a copy, as `examples_gpu.py` packs them."""
    import examples_gpu

    tasks = data["tasks"]
    lines = [
        _device(tasks),
        "",
        "| example | sizes | eager | compile | ours | tuned | of eager | of compile | of a copy | "
        "ours of tuned | point |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for task in tasks.values():
        if not gpu_tasks.is_tuned(task):
            continue
        if not gpu_tasks.is_right(task):
            lines.append(f"| {task['name']} | {task['sizes']} | {task['wrong']} |" + " |" * 8)
            continue
        sides = ("eager", "compile", "ours", "tuned")
        times = [f"{each:.3g} ms" if each else "" for each in map(_median(task), sides)]
        shares = [gpu_tasks.ratio(task, side, "tuned") for side in ("eager", "compile", "copy")]
        cells = [f"{share:.2f}" if share else "" for share in shares]
        distance = f"{gpu_tasks.ratio(task, 'ours', 'tuned'):.2f}"
        name = f"{task['name']} ({task['precision']})" if task["precision"] else task["name"]
        point = gpu_tasks.tuned_text(task) or "the plan's own"
        row = [name, task["sizes"], *times, *cells, distance, point]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", *(f"- {each}" for each in examples_gpu.sums(tasks))]
    others = [task for task in tasks.values() if not gpu_tasks.is_tuned(task)]
    ratios = sorted(
        (ratio, task["name"]) for task in others if (ratio := gpu_tasks.speedup(task)) is not None
    )
    if ratios:
        said = ", ".join(f"{name} {ratio:.2f}" for ratio, name in ratios)
        lines += ["", f"All others, at their tasks' own sizes, times of eager: {said}."]
    return lines


def _median(task: dict[str, Any]) -> Callable[[str], float | None]:
    return lambda side: gpu_tasks.median(task, side)


def _speedup(found: dict[str, Any], baseline: str) -> float | None:
    """Of medians; None for a kernel that failed, or may not be compared."""
    gain = found.get("baselines", {}).get(baseline, {}).get("speedup")
    return gain["of_medians"] if found["passed"] and gain else None


def _milliseconds(baseline: dict[str, Any] | None) -> str:
    return "" if baseline is None else f"{baseline['times']['median'] * 1e3:.3g} ms"


def _gain(baseline: dict[str, Any] | None) -> str:
    gain = None if baseline is None else baseline["speedup"]
    if gain is None:
        return ""
    return f"{gain['of_medians']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})"


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "check_speed": check_speed,
    "cpu_interleaved": interleaved,
    "examples_h200": examples,
    "level1_h200": level1,
}


def main() -> None:
    """Write all tables."""
    text = PAGE.read_text()
    for name, table in TABLES.items():
        path = DOCS / "data" / f"{name}.json"
        packed = path.with_suffix(".json.gz")
        if packed.exists():
            body = "\n".join(table(json.loads(gzip.decompress(packed.read_bytes()))))
        elif path.exists():
            body = "\n".join(table(json.loads(path.read_text())))
        else:
            body = f"Not measured yet: there is no data/{name}.json."
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        replacement = f"{start}\n{body}\n{end}"
        text = pattern.sub(lambda _, r=replacement: r, text)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
