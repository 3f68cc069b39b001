"""Write the results of docs/data/*.json into docs/BENCHMARKS.md, between its markers.

    python benchmarks/tables.py

A result whose data is not there says so; nothing in the tables is typed by hand.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "BENCHMARKS.md"
MATMULS = ("matmul", "batched_matmul", "matmul_bias_gelu")


def check_speed(data: dict[str, Any]) -> list[str]:
    """Best wall times of `sketchc check`."""
    lines = [
        f"{data['machine']}, Python {data['python']}.",
        "",
        "| example | best of 7 | all seven |",
        "|---|---|---|",
    ]
    for name, samples in data["one_example_seconds"].items():
        shown = ", ".join(f"{sample:.3f}" for sample in samples)
        lines.append(f"| {name} | {min(samples):.3f} s | {shown} |")
    return [
        *lines,
        "",
        f"{data['count']:,} distinct sketches in one call: {data['many_seconds']:.2f} s.",
    ]


def cpu_examples(data: dict[str, Any]) -> list[str]:
    """C++ against eager."""
    first = next(iter(data.values()))
    machine = first["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        f"{machine['name']}, {machine['threads']} threads, {machine['bandwidth'] / 1e9:.1f} GB/s "
        f"measured, {versions}.",
        "",
        "| example | sizes | eager | cpp | speedup | 95 % interval | roofline | GFLOP/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in data.items():
        sizes = ", ".join(f"{key}={value}" for key, value in found["symbols"].items())
        gain = found["speedup"]
        if not found["passed"]:
            sizes += " **(an output is wrong)**"
        lines.append(
            f"| {name} | {sizes} | {found['eager']['median'] * 1e3:.2f} ms | "
            f"{found['kernel']['median'] * 1e3:.2f} ms | {gain['of_medians']:.2f} | "
            f"{gain['low']:.2f} to {gain['high']:.2f} | {found['roofline']:.0%} | "
            f"{found['flops'] / found['kernel']['median'] / 1e9:.1f} |"
        )
    lines.append("")
    for title, wanted in (("memory-bound examples", False), ("matrix products", True)):
        gains = [f["speedup"]["of_medians"] for n, f in data.items() if (n in MATMULS) is wanted]
        if gains:
            mean = statistics.geometric_mean(gains)
            lines.append(f"Geometric mean over {len(gains)} {title}: {mean:.2f}.")
    return lines


def cpu_interleaved(data: dict[str, Any]) -> list[str]:
    """C++ against eager and torch.compile, as `cpu_examples.py` writes it now."""
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
        "| example | sizes | class | eager | compile | C++ | of eager | of compile | roofline |",
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
    for total in data["against"]:
        shares = ", ".join(f"fast_{p} {share:.0%}" for p, share in total["fast_p"].items())
        mean = total["geometric_mean"]
        lines.append(
            f"Against {total['baseline']}: {shares} of {total['kernels']}; geometric mean "
            f"{'none' if mean is None else f'{mean:.2f}'} over {total['compared']}."
        )
        lines.append("")
    return lines[:-1]


def _milliseconds(baseline: dict[str, Any] | None) -> str:
    return "" if baseline is None else f"{baseline['times']['median'] * 1e3:.3g} ms"


def _gain(baseline: dict[str, Any] | None) -> str:
    gain = None if baseline is None else baseline["speedup"]
    if gain is None:
        return ""
    return f"{gain['of_medians']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})"


def gpu_examples(data: dict[str, Any]) -> list[str]:
    """Triton against eager, the defaults only."""
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    lines = [
        f"{data['device']}, {data['bandwidth'] / 1e12:.2f} TB/s measured, {versions}.",
        "",
        "| example | sizes | eager | triton | speedup | 95 % interval | roofline | TFLOP/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    gains = []
    for found in data["results"]:
        if not found["default"]:
            continue
        sizes = ", ".join(f"{key}={value}" for key, value in found["symbols"].items())
        if found["problem"]:
            lines.append(f"| {found['name']} | {sizes} | {found['problem']} | | | | | |")
            continue
        median = found["medians"]["kernel"]
        low, high = found["interval"]
        gains.append(found["speedup"])
        lines.append(
            f"| {found['name']} | {sizes} | {found['medians']['eager'] * 1e3:.3f} ms | "
            f"{median * 1e3:.3f} ms | {found['speedup']:.2f} | {low:.2f} to {high:.2f} | "
            f"{found['bytes'] / data['bandwidth'] / median:.0%} | "
            f"{found['flops'] / median / 1e12:.1f} |"
        )
    if gains:
        lines += ["", f"Geometric mean: {statistics.geometric_mean(gains):.2f}."]
    return lines


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "check_speed": check_speed,
    "cpu_examples": cpu_examples,
    "cpu_interleaved": cpu_interleaved,
    "gpu_examples": gpu_examples,
}


def main() -> None:
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
