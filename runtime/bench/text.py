"""A measurement as text and as JSON."""

from __future__ import annotations

from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.base.json_form import to_plain
from sketchc.runtime.bench.judgement import poisoned_share
from sketchc.runtime.bench.measurement import ENOUGH_SAMPLES, Baseline, Measurement, Summary
from sketchc.runtime.verify.words import sizes_text


def seconds_text(seconds: float) -> str:
    """Seconds with three digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def show(measured: Measurement, console: Console) -> None:
    """Print the table and the conclusion."""
    sizes = sizes_text(measured.symbols)
    console.print(
        f"[bold]{escape(measured.sketch)}[/bold] for {measured.target} ({measured.hardware}) at "
        f"{sizes or 'fixed sizes'}{_list(measured)}, {measured.precision.name}, on "
        f"{escape(measured.machine.name)}, {measured.settings.threads} threads, "
        f"{'cold' if measured.settings.schedule.cold else 'warm'} caches",
        highlight=False,
        soft_wrap=True,
    )
    for note in measured.notes:
        console.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
    if measured.too_few:
        console.print(
            f"note: too few samples ({measured.kernel.samples} of at least {ENOUGH_SAMPLES})",
            highlight=False,
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("median", "95 % interval", "samples", "GB/s", "roofline", "GFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, baseline in measured.baselines.items():
        _row(table, f"PyTorch {name}", baseline.times, measured, baseline.roofline)
    _row(table, f"sketchc {measured.target}", measured.kernel, measured, measured.roofline)
    console.print(table)
    console.print(summary(measured), highlight=False, soft_wrap=True)


def _list(measured: Measurement) -> str:
    """Which list of the task's inputs it is, where that does not go without saying."""
    return f" ({escape(measured.own_list)})" if measured.own_list else ""


def _row(table: Table, name: str, times: Summary, measured: Measurement, roofline: float) -> None:
    table.add_row(
        name,
        seconds_text(times.median),
        f"{seconds_text(times.low)} to {seconds_text(times.high)}",
        str(times.samples),
        f"{measured.bytes / times.median / 1e9:.1f}",
        f"{roofline:.0%}",
        f"{measured.flops / times.median / 1e9:.1f}",
    )


def gain_text(baseline: Baseline) -> str:
    """What the kernel gains on one baseline."""
    gain = baseline.speedup
    if gain is None:
        why = "it only makes a view" if baseline.idle else baseline.precision
        return f"no speedup over {baseline.name} is quoted ({why})"
    return (
        f"{gain.of_medians:.2f}x of {baseline.name} ({gain.low:.2f} to {gain.high:.2f}; "
        f"of means {gain.of_means:.2f}x)"
    )


def summary(measured: Measurement) -> str:
    """The conclusion in one line."""
    times = ", ".join(gain_text(baseline) for baseline in measured.baselines.values())
    if measured.problems:
        return f"failed: {'; '.join(p.reason for p in measured.problems)}; {times}"
    largest = max((comparison.max_error for comparison in measured.comparisons), default=0.0)
    return (
        f"passed: {times}; outputs of timed runs verified, largest error {largest:.2g}; "
        f"bandwidth {measured.machine.bandwidth / 1e9:.1f} GB/s"
    )


def to_json(measured: Measurement) -> dict[str, Any]:
    """Everything, with the raw samples. "speedup" at the top is over eager, which is always there;
    a speedup is null where none may be quoted."""
    data: dict[str, Any] = attrs.asdict(measured)
    data["passed"], data["failure"] = measured.passed, measured.failure
    data["believable"], data["too_few"] = measured.believable, measured.too_few
    data["seed"], data["device"] = measured.settings.seed, measured.settings.device
    data["eager"] = attrs.asdict(measured.eager)
    data["bytes"], data["flops"] = measured.bytes, measured.flops
    data["threads"], data["cold"] = measured.settings.threads, measured.settings.schedule.cold
    for name, baseline in measured.baselines.items():
        gain = None if baseline.speedup is None else attrs.asdict(baseline.speedup)
        data[f"{name}_speedup"], data[f"{name}_roofline"] = gain, baseline.roofline
    data["speedup"] = data["eager_speedup"]
    run = data.pop("run")
    data["samples"] = measured.samples
    data["timer"] = _timer(measured)
    data["rounds"] = [
        {"order": list(order), **variation}
        for order, variation in zip(run["orders"], run["variations"], strict=True)
    ]
    data["torch_settings"] = run["settings"]
    found: dict[str, Any] = to_plain(data)
    return found


def _timer(measured: Measurement) -> dict[str, Any]:
    """What the judgement of the clocks rests on, by contender and in the order of the samples."""
    run = measured.run
    names = (*run.baselines, "kernel")
    own = {name: [s for s in run.samples if s.contender == name] for name in names}
    return {
        "wall": {name: [s.wall for s in samples] for name, samples in own.items()},
        "copying": {name: [s.copying for s in samples] for name, samples in own.items()},
        "late": {name: [s.late for s in samples] for name, samples in own.items()},
        "bursts": [attrs.asdict(burst) for burst in run.bursts],
        "handshakes": list(run.handshakes),
        "alone": [sample.seconds for sample in run.alone],
        "alone_bursts": [attrs.asdict(burst) for burst in run.alone_bursts],
        "poisoned": poisoned_share(run.samples),
        "changes": list(run.changes),
    }
