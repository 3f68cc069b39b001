"""From a measurement's JSON (`sketchc bench --json`, `verdict.json` of a run) to what a page shows.

The one place that knows the names of its fields. Every field may be missing: older files have no
second baseline, no precision class and no peak.
"""

from __future__ import annotations

import attrs

from sketchc.base.json_form import from_plain
from sketchc.runtime.bench.measurement import speedup, summarise
from sketchc.runtime.report.content import Contender, Gain, Measurement
from sketchc.runtime.report.fields import Fields
from sketchc.runtime.report.text import clean_line
from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.words import FAILED, PASSED, sizes_text

#: Names of contenders, as fields call them; any other is shown by its own name.
_NAMES = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "compiled": "torch.compile",
    "torch_compile": "torch.compile",
    "inductor": "torch.compile",
    "kernel": "sketchc kernel",
}
#: What of a measurement is shown elsewhere, or says nothing to a reader.
_FACTS = ("input_sets", "cold", "device")
_MOST_SAMPLES = 2000


def is_measurement(data: Fields) -> bool:
    """True for the JSON of `sketchc bench`."""
    return bool(data.within("kernel").mapping) and bool(data.within("samples").mapping)


def measurement_of(data: Fields) -> Measurement:
    """The measurement that a JSON object holds."""
    machine = data.within("machine")
    precision = _precision(data)
    contenders = _contenders(data)
    passed = data.truth("passed")
    threads = machine.integer("threads")
    notes = list(data.texts("notes"))
    if data.truth("too_few"):
        notes.append("too few samples for a firm median")
    facts = [*data.pairs("params")]
    facts += [
        (name.replace("_", " "), data.text(name).lower()) for name in _FACTS if data.text(name)
    ]
    return Measurement(
        title=data.text("sketch") or "kernel",
        task=data.text("task"),
        target=data.text("target"),
        hardware=data.text("hardware"),
        machine=machine.text("name") + (f", {threads} threads" if threads else ""),
        sizes=sizes_text(dict(data.within("symbols").entries())) or "fixed",
        seed=data.text("seed"),
        state=FAILED if passed is False else PASSED,
        contenders=contenders,
        gains=_gains(data, contenders),
        bytes=data.number("bytes"),
        flops=data.number("flops"),
        bandwidth=_positive(machine.number("bandwidth")),
        peak=_peak(data, machine, precision),
        precision=precision,
        notes=tuple(notes),
        constants=data.pairs("constants"),
        facts=tuple(facts),
        outputs=tuple(
            from_plain(Comparison, one.data, text=clean_line) for one in data.each("comparisons")
        ),
        problems=tuple(one.text("reason") for one in data.each("problems")),
        withheld=_withheld(data, contenders),
        sketch_text=data.long_text("sketch_text"),
        source=data.long_text("source"),
    )


def _positive(value: float | None) -> float | None:
    return value if value is not None and 0 < value < float("inf") else None


def _peak(data: Fields, machine: Fields, precision: str) -> float | None:
    """FLOP/s of the class that the kernel computes in; None where it is not known."""
    peaks = machine.within("peaks")
    found = peaks.number(precision) if precision else None
    given = machine.number("peak", "peak_flops"), data.number("peak", "peak_flops")
    return _positive(found) or _positive(given[0]) or _positive(given[1])


def _contenders(data: Fields) -> tuple[Contender, ...]:
    """All sides that were timed, baselines first, in the order of the samples."""
    samples = data.within("samples")
    keys = [key for key in samples.mapping if samples.numbers(key)]
    keys.sort(key=lambda key: key == "kernel")
    return tuple(_contender(data, key, samples.numbers(key)[:_MOST_SAMPLES]) for key in keys)


def _contender(data: Fields, key: str, samples: tuple[float, ...]) -> Contender:
    baseline = data.within("baselines").within(key)
    given = data.within(key)
    if not given.mapping:
        given = baseline.within("times")
    summary = summarise(samples)
    median = _positive(given.number("median")) or summary.median
    moved, flops = data.number("bytes"), data.number("flops")
    bandwidth = moved / median if moved and median > 0 else None
    memory = _positive(data.within("machine").number("bandwidth"))
    share = data.number("roofline" if key == "kernel" else f"{key}_roofline")
    if share is None and bandwidth and memory:
        share = bandwidth / memory
    own = given if given.mapping else Fields(attrs.asdict(summary))
    return Contender(
        key=key,
        name=_NAMES.get(key, clean_line(key).replace("_", " ")),
        samples=samples,
        median=median,
        low=own.number("low"),
        high=own.number("high"),
        minimum=own.number("minimum"),
        mean=own.number("mean"),
        bandwidth=bandwidth,
        rate=flops / median if flops and median > 0 else None,
        share=share,
        precision=_precision(data) if key == "kernel" else baseline.text("precision"),
    )


def _precision(data: Fields) -> str:
    return data.text("precision") or data.within("precision").text("name")


def _gains(data: Fields, contenders: tuple[Contender, ...]) -> tuple[Gain, ...]:
    """The speedup over each baseline: as it was reported, else from the samples. One that is there
    and null was withheld on purpose (another precision), so none is made up."""
    kernel = next((one for one in contenders if one.own), None)
    found = []
    for baseline in contenders:
        if baseline.own or kernel is None or _is_withheld(data, baseline.key):
            continue
        given = data.within(f"{baseline.key}_speedup")
        if not given.mapping and baseline.key == "eager":
            given = data.within("speedup")
        middle = given.number("of_medians")
        if middle is not None:
            low, high = given.number("low"), given.number("high")
            found.append(Gain(baseline.name, middle, low, high, given.number("of_means")))
        else:
            own = speedup(baseline.samples, kernel.samples)
            found.append(Gain(baseline.name, own.of_medians, own.low, own.high, own.of_means))
    return tuple(found)


def _is_withheld(data: Fields, key: str) -> bool:
    """Whether a speedup is there and null."""
    names = [f"{key}_speedup", *(["speedup"] if key == "eager" else [])]
    there = [name for name in names if name in data.mapping]
    return bool(there) and all(data.raw(name) is None for name in there)


def _withheld(data: Fields, contenders: tuple[Contender, ...]) -> tuple[str, ...]:
    """Why no speedup over a baseline is quoted."""
    return tuple(
        f"No speedup over {one.name} is quoted{_why_withheld(data, one)}"
        for one in contenders
        if not one.own and _is_withheld(data, one.key)
    )


def _why_withheld(data: Fields, one: Contender) -> str:
    if data.within("baselines").within(one.key).raw("idle") is True:
        return ": it only makes a view, and computes nothing"
    return f": it computes in {one.precision}" if one.precision else ""
