"""Measurements as text and as JSON, and read from JSON; and summaries of several kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.base.json_form import from_plain, number, to_plain
from sketchc.runtime.bench.judgement import poisoned_share
from sketchc.runtime.bench.measurement import (
    ENOUGH_SAMPLES,
    Baseline,
    Measurement,
    Summary,
    fast_p,
    geometric_mean,
    speedup,
    summarise,
)
from sketchc.runtime.verify.words import INCOMPLETE, sizes_text


def seconds_text(seconds: float) -> str:
    """Seconds with three digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def show(measured: Measurement, console: Console) -> None:
    """Print a measurement: its notes, the table of times, and the conclusion."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    own_list = f" ({escape(measured.own_list)})" if measured.own_list else ""
    say(
        f"[bold]{escape(measured.sketch)}[/bold] for {measured.target} ({measured.hardware}) at "
        f"{sizes_text(measured.symbols) or 'fixed sizes'}{own_list}, {measured.precision.name}, on "
        f"{escape(measured.machine.name)}, {measured.settings.threads} threads, "
        f"{'cold' if measured.settings.schedule.cold else 'warm'} caches"
    )
    for note in measured.notes:
        say(f"note: {escape(note)}")
    if measured.too_few:
        say(f"note: too few samples ({measured.kernel.samples} of at least {ENOUGH_SAMPLES})")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("median", "95 % interval", "samples", "GB/s", "roofline", "GFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, baseline in measured.baselines.items():
        _row(table, f"PyTorch {name}", baseline.times, measured, baseline.roofline)
    _row(table, f"sketchc {measured.target}", measured.kernel, measured, measured.roofline)
    console.print(table)
    say(summary(measured))


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


def gain_text(baseline: Baseline, precision: str) -> str:
    """The speedup over one baseline of a kernel in this class of precision as text, with the
    baseline's class where that is another one, or why none is quoted."""
    gain = baseline.speedup
    if gain is None:
        why = "it only makes a view" if baseline.idle else baseline.precision
        return f"no speedup over {baseline.name} is quoted ({why})"
    other = "" if baseline.precision == precision else f" in {baseline.precision}"
    return (
        f"{gain.of_medians:.2f}x of {baseline.name}{other} ({gain.low:.2f} to {gain.high:.2f}; "
        f"of means {gain.of_means:.2f}x)"
    )


def summary(measured: Measurement) -> str:
    """The conclusion of a measurement in one line."""
    own = measured.precision.name
    times = ", ".join(gain_text(baseline, own) for baseline in measured.baselines.values())
    if measured.problems:
        return f"failed: {'; '.join(p.reason for p in measured.problems)}; {times}"
    largest = max((comparison.max_error for comparison in measured.comparisons), default=0.0)
    return (
        f"passed: {times}; outputs of timed runs verified, largest error {largest:.2g}; "
        f"bandwidth {measured.machine.bandwidth / 1e9:.1f} GB/s"
    )


def to_json(measured: Measurement) -> dict[str, Any]:
    """All data of a measurement as JSON-able data, with the raw samples. "speedup" at the top level
    is over eager, which is always there; a speedup is null where none may be quoted."""
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
    data["sol_score"] = measured.sol_score
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


#: The most samples of one contender that are read from JSON.
_MOST_SAMPLES = 2000


def is_measurement(data: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the form that `to_json` writes."""
    return all(isinstance(data.get(key), Mapping) and data[key] for key in ("kernel", "samples"))


def from_json(data: Mapping[str, Any], text: Callable[[str], str] = str) -> Measurement:
    """Read a measurement from JSON that `to_json` of this or another version wrote; each string is
    passed through `text`. Of the run, only the samples are known. Missing fields are empty; missing
    times and speedups are computed from the samples."""
    samples = {name: _numbers(values) for name, values in data["samples"].items()}
    samples = {name: values for name, values in samples.items() if values}
    names = [name for name in samples if name != "kernel"]
    precision, kernel = data.get("precision"), samples.get("kernel", [])
    taken = [{"contender": n, "seconds": value} for n in samples for value in samples[n]]
    whole = {
        "work": {"moved": data.get("bytes"), "operations": data.get("flops")},
        "settings": {"seed": data.get("seed")},
        **data,
        "precision": {"name": precision} if isinstance(precision, str) else precision,
        "kernel": _times(data["kernel"], kernel),
        "baselines": {name: _baseline(data, name, samples[name], kernel) for name in names},
        "run": {"baselines": names, "samples": taken},
    }
    return from_plain(Measurement, whole, text=text)


def _numbers(values: object) -> list[float]:
    """The first `_MOST_SAMPLES` finite numbers of a list; [] for other values."""
    found = [number(value) for value in values] if isinstance(values, list) else []
    return [value for value in found if value is not None and math.isfinite(value)][:_MOST_SAMPLES]


def _times(given: object, samples: Sequence[float]) -> dict[str, Any]:
    """A summary's fields: the reported ones that are positive and finite, else those computed from
    the samples."""
    found = attrs.asdict(summarise(samples)) if samples else {}
    reported = given.items() if isinstance(given, Mapping) else ()
    return found | {
        name: value for name, value in reported if 0 < (number(value) or 0.0) < math.inf
    }


def _baseline(
    data: Mapping[str, Any], name: str, samples: Sequence[float], kernel: Sequence[float]
) -> dict[str, Any]:
    """The fields of one baseline. Early versions had only eager, with its fields at the top level.
    A speedup that is null was withheld on purpose (another precision), so none is computed."""
    every = data.get("baselines")
    given = every.get(name) if isinstance(every, Mapping) else None
    given = given if isinstance(given, Mapping) else {}
    keys = [f"{name}_speedup", *(["speedup"] if name == "eager" else [])]
    said = [data[key] for key in keys if key in data]
    maps = [one for one in said if isinstance(one, Mapping)]
    known = [one for one in maps if number(one.get("of_medians")) is not None]
    own = attrs.asdict(speedup(samples, kernel)) if kernel else None
    return {
        "name": name,
        "roofline": data.get(f"{name}_roofline"),
        **given,
        "times": _times(data.get(name) or given.get("times"), samples),
        "speedup": known[0] if known else None if said and not any(said) else own,
    }


def _timer(measured: Measurement) -> dict[str, Any]:
    """The data that `judgement` judges the clocks by; those of samples by contender, in order."""
    run = measured.run
    names = (*run.baselines, "kernel")
    own = {name: [s for s in run.samples if s.contender == name] for name in names}
    return {
        **{
            field: {name: [getattr(s, field) for s in samples] for name, samples in own.items()}
            for field in ("wall", "copying", "late")
        },
        "bursts": [attrs.asdict(burst) for burst in run.bursts],
        "handshakes": list(run.handshakes),
        "alone": [sample.seconds for sample in run.alone],
        "alone_bursts": [attrs.asdict(burst) for burst in run.alone_bursts],
        "poisoned": poisoned_share(run.samples),
        "changes": list(run.changes),
    }


#: fast_p is reported for these p: correct, faster, more than twice as fast.
THRESHOLDS = (0.0, 1.0, 2.0)


@attrs.frozen
class Entry:
    """One kernel and its task: the measurement, or the class of failure and the reason.

    With a `broken` task, the kernel is not counted. A kernel whose failure is "incomplete" is
    counted, as one not known to be correct. `own_list`: the name of the list of the task's inputs,
    "" for the default.
    """

    kernel: str
    task: str
    measurement: Measurement | None = None
    failure: str = ""
    reason: str = ""
    broken: bool = False
    own_list: str = ""

    @property
    def name(self) -> str:
        """The kernel's name, with that of the list of inputs where it is not the default one."""
        return f"{self.kernel} ({self.own_list})" if self.own_list else self.kernel

    @property
    def passed(self) -> bool:
        """Whether there is a measurement that counts."""
        return self.measurement is not None and self.measurement.passed

    @property
    def incomplete(self) -> bool:
        """Whether the kernel is not known to be correct, since its verification is incomplete."""
        return self.failure == INCOMPLETE

    def gain(self, baseline: str) -> float | None:
        """The speedup of medians over `baseline`; None for a kernel that failed, or without a
        speedup over that baseline."""
        if self.measurement is None or not self.measurement.passed:
            return None
        found = self.measurement.baselines.get(baseline)
        return None if found is None or found.speedup is None else found.speedup.of_medians


@attrs.frozen
class Against:
    """All kernels against one baseline. `fast` maps p to fast_p, in which a kernel that failed, or
    may not be compared, counts as not fast; `geometric_mean` is of the speedups of the `compared`
    kernels, None if there are none."""

    baseline: str
    kernels: int
    compared: int
    incomplete: int
    fast: dict[float, float]
    geometric_mean: float | None


def against(entries: Sequence[Entry], baselines: Sequence[str]) -> tuple[Against, ...]:
    """The summary for each baseline, over all entries whose tasks are not broken."""
    entries = [entry for entry in entries if not entry.broken]
    found = []
    for baseline in baselines:
        gains = [entry.gain(baseline) for entry in entries]
        known = [gain for gain in gains if gain is not None]
        found.append(
            Against(
                baseline,
                len(entries),
                len(known),
                sum(entry.incomplete for entry in entries),
                {threshold: fast_p(gains, threshold) for threshold in THRESHOLDS},
                geometric_mean(known) if known else None,
            )
        )
    return tuple(found)


def total_text(total: Against) -> str:
    """The totals against one baseline, as one line of text."""
    shares = ", ".join(f"fast_{p:g} {share:.0%}" for p, share in total.fast.items())
    beside = f" ({total.incomplete} incomplete)" if total.incomplete else ""
    mean = "none" if total.geometric_mean is None else f"{total.geometric_mean:.2f}x"
    return (
        f"against {total.baseline}: {shares} of {total.kernels} kernels{beside}; "
        f"geometric mean {mean} over {total.compared}"
    )


def total_json(total: Against) -> dict[str, Any]:
    """The totals against one baseline, as plain data."""
    shares = {f"{p:g}": share for p, share in total.fast.items()}
    plain = {**attrs.asdict(total), "fast": shares}
    return {"fast_p" if name == "fast" else name: value for name, value in plain.items()}
