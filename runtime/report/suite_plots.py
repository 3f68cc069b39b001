"""The plots of a suite's page: the tasks that passed, by category, and the speedups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from sketchc.runtime.report.content import Category
from sketchc.runtime.report.plots import WIDTH, Drawing, linear_scale, log_scale, spread
from sketchc.runtime.report.text import power, short, times

_LEFT, _RIGHT = 14.0, WIDTH - 20.0
_TOP, _ROW = 6.0, 40.0


def shares_plot(categories: Sequence[Category], identifier: str) -> Markup:
    """A bar for each category, with its tasks that passed, are incomplete, and did not pass."""
    told = [f"{one.name}: {one.passed} of {one.tasks}" for one in categories]
    height = 50 + _ROW * len(categories)
    bottom = height - 42.0
    drawing = Drawing(identifier, "Tasks that passed", "; ".join(told), height)
    scale = linear_scale([float(one.tasks) for one in categories], _LEFT, _RIGHT)
    drawing.bottom_axis(scale, _TOP, bottom, "tasks", short)
    for row, (one, text) in enumerate(zip(categories, told, strict=True)):
        top, start = _TOP + 8 + _ROW * row, 0.0
        drawing.words(_LEFT, top + 6, text, "row")
        parts = (
            (one.passed, "good", "passed"),
            (one.incomplete, "unknown", "incomplete"),
            (one.failed, "bad", "did not pass"),
        )
        for count, kind, word in parts:
            left, right = scale(start), scale(start + count)
            if count:
                drawing.box(left, top + 11, right - left, 16, kind, f"{count} {word}")
            start += count
    return drawing.text()


def gains_plot(categories: Sequence[Category], identifier: str) -> Markup:
    """A dot for the speedup of each task, by category, on a logarithmic axis with a line at 1; ""
    where there are no speedups."""
    rows = [one for one in categories if one.gains]
    if not rows:
        return Markup()
    gains = [gain for one in rows for _, gain in one.gains if 0 < gain < math.inf]
    scale = log_scale([*gains, 1.0], _LEFT, _RIGHT)
    height = 50 + _ROW * len(rows)
    bottom = height - 42.0
    about = "One dot for each task; right of the line at 1 the kernel is faster than eager."
    drawing = Drawing(identifier, "Speedups over PyTorch eager", about, height)
    drawing.bottom_axis(scale, _TOP, bottom, "times as fast as eager", power)
    drawing.line(scale(1.0), _TOP, scale(1.0), bottom, "limit")
    for row, one in enumerate(rows):
        top = _TOP + 8 + _ROW * row
        drawing.words(_LEFT, top + 6, one.name, "row")
        for place, (name, gain) in enumerate(one.gains):
            kind = "dot good" if gain >= 1 else "dot bad"
            y = top + 20 + 10 * spread(place)
            drawing.dot(scale(gain), y, 3.6, kind, f"{name}: {times(gain)}")
    return drawing.text()
