"""A measurement on a page: what is read of its JSON (`sketchc bench --json`, `verdict.json` of a
run), and the words for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.runtime.bench.measurement import Baseline, Measurement
from sketchc.runtime.bench.text import from_json
from sketchc.runtime.report.content import Contender, Measured
from sketchc.runtime.report.text import clean_line
from sketchc.runtime.report.verdicts import pairs
from sketchc.runtime.verify.words import FAILED, PASSED, sizes_text

#: Names of contenders; any other is shown by its own name.
_NAMES = {"eager": "PyTorch eager", "compile": "torch.compile", "kernel": "sketchc kernel"}
#: What of a measurement is shown beside its params.
_FACTS = ("input_sets", "cold", "device")


def measured_of(data: Mapping[str, Any]) -> Measured:
    """The measurement that a JSON object holds."""
    whole, found = from_json(data), from_json(data, clean_line)
    few = ["too few samples for a firm median"] if data.get("too_few") is True else []
    shown = {name: data[name] for name in _FACTS if data.get(name) is not None}
    bandwidth = _positive(found.machine.bandwidth)
    contenders = [_contender(found, baseline, bandwidth) for baseline in found.baselines.values()]
    if "kernel" in found.samples:
        contenders.append(_contender(found, None, bandwidth))
    return Measured(
        measurement=attrs.evolve(found, sketch_text=whole.sketch_text, source=whole.source),
        state=FAILED if data.get("passed") is False else PASSED,
        contenders=tuple(contenders),
        bandwidth=bandwidth,
        peak=_positive(found.machine.peak(found.precision.name)),
        notes=(*found.notes, *few),
        facts=(
            *pairs(found.params),
            *((name.replace("_", " "), value) for name, value in pairs(shown)),
        ),
    )


def _positive(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None


def _contender(found: Measurement, baseline: Baseline | None, memory: float | None) -> Contender:
    """One side that was timed; `baseline` None is the kernel."""
    key = "kernel" if baseline is None else baseline.name
    side = found if baseline is None else baseline
    times = found.kernel if baseline is None else baseline.times
    there = times.median > 0
    bandwidth = found.bytes / times.median if found.bytes and there else None
    share = None if math.isnan(side.roofline) else side.roofline
    if share is None and bandwidth and memory:
        share = bandwidth / memory
    contender = Contender(
        key=key,
        name=_NAMES.get(key, key.replace("_", " ")),
        samples=found.samples[key],
        times=times,
        bandwidth=bandwidth,
        rate=found.flops / times.median if found.flops and there else None,
        share=share,
        precision=found.precision.name if baseline is None else baseline.precision,
    )
    if baseline is None or "kernel" not in found.samples:
        return contender
    why = f": it computes in {baseline.precision}" if baseline.precision else ""
    why = ": it only makes a view, and computes nothing" if baseline.idle else why
    withheld = f"No speedup over {contender.name} is quoted{why}"
    gain = baseline.speedup
    return attrs.evolve(contender, gain=gain, withheld="" if gain else withheld)


def sizes(measured: Measured) -> str:
    """The sizes that were measured; "fixed" without symbols."""
    return sizes_text(measured.measurement.symbols) or "fixed"


def machine(measured: Measured) -> str:
    """The machine, with its threads."""
    found = measured.measurement.machine
    return found.name + (f", {found.threads} threads" if found.threads else "")
