"""Drawings that commands write to a file: PNG, or what else the file's name asks matplotlib for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchc.base.diagnostics import refuse

if TYPE_CHECKING:
    from sketchc.lowering.cost.predict import Prediction
    from sketchc.lowering.plan import Plan


def check_file(file: str) -> None:
    """Raises `UsageError` where `axes` could not write a drawing to `file`: for want of matplotlib
    or of the folder, or for a kind of file that it does not write."""
    known = sorted(_figure().canvas.get_supported_filetypes())
    path = Path(file)
    if path.suffix.lower().lstrip(".") not in known:
        refuse(f"cannot write {file}: a drawing ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        refuse(f"cannot write {file}: there is no folder {path.parent}")


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        refuse("drawings need matplotlib: pip install 'sketchc[plot]'", error)
    return Figure(figsize=(7.0, 4.5), layout="constrained")


@contextmanager
def axes(file: str, title: str) -> Iterator[Any]:
    """The axes of a drawing that is written to `file` at the end. Raises `UsageError` as
    `check_file` does, and where `file` cannot be written."""
    check_file(file)
    figure = _figure()
    plot = figure.add_subplot()
    plot.set_title(title, fontsize=10)
    plot.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
    yield plot
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        refuse(f"cannot write {file}: {error.strerror}", error)


def draw_roofline(plan: Plan, found: Prediction, file: str) -> None:
    """Draw each launch of a plan under the chip's roofs: FLOP/s over FLOPs per byte of memory.
    Raises `UsageError` as `axes` does, and where the chip's file has no peaks."""
    facts = plan.hardware.facts
    bandwidth, peaks = facts["memory_bandwidth"], peaks_of(plan)
    points = [
        (launch.name, sum(launch.operations.values()) / max(launch.moved, 1.0), launch)
        for launch in found.launches
    ]
    kinds = {kind for launch in found.launches for kind in launch.operations} & peaks.keys()
    if not kinds:
        known = ", ".join(peaks) or "none"
        refuse(f"{plan.hardware.name} has no peak for this arithmetic (its file has: {known})")
    low = min([0.1, *(each for _, each, _ in points if each > 0)]) / 2
    high = max([peaks[kind] / bandwidth for kind in kinds] + [each for _, each, _ in points]) * 4
    with axes(file, f"{plan.sketch.name} for {plan.target} on {plan.hardware.name}") as plot:
        for kind in sorted(kinds):
            ridge = peaks[kind] / bandwidth
            roof = [low * bandwidth, peaks[kind], peaks[kind]]
            plot.plot([low, ridge, high], roof, linewidth=1.2, label=f"{kind}, memory")
        for name, intensity, launch in points:
            rate = sum(launch.operations.values()) * launch.times / launch.seconds
            plot.plot([max(intensity, low)], [rate], "o", label=f"{name}, predicted")
        plot.set(xscale="log", yscale="log", xlabel="FLOPs per byte", ylabel="FLOP/s")
        plot.legend(fontsize=8)


def peaks_of(plan: Plan) -> dict[str, float]:
    """The chip's peaks in FLOP/s by precision class: those of its file, or a CPU's by its clock,
    with two multiply-adds of vectors in each cycle."""
    from sketchc.lowering.cost import cpu

    facts = plan.hardware.facts
    if plan.hardware.family == "cpu":
        return cpu.peaks(facts, plan.hardware.cores)
    return dict(facts.get("flops", {}))
