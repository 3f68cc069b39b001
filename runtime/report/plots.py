"""The plots of a report, as SVG: errors over allowed errors, times, speedups, the roofline.

Colours and fonts come from the page's style (by classes), so that a drawing follows the reader's
colour scheme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from markupsafe import Markup

from sketchc.runtime.bench.measurement import Speedup
from sketchc.runtime.report.content import Contender, Measured
from sketchc.runtime.report.results import sizes
from sketchc.runtime.report.text import power, rate, seconds, short, times, unit_of
from sketchc.runtime.verify.verdict import Verdict

#: The width of a drawing in its own coordinates; the page scales it.
WIDTH = 440
#: The most letters in a line of that width.
_MOST_LETTERS = 64
#: Steps of a linear axis, times a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def _round_number(value: float) -> str:
    """A coordinate as text with at most two decimals; "0" for a number that is not finite."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


@attrs.frozen
class Scale:
    """Maps values from `low` to `high` to coordinates from `start` to `end`, linearly or
    logarithmically; values outside are moved to the edge."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        low, high = self.low, self.high
        if self.logarithmic:
            value = max(value, 1e-300)
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers within the scale, about `most` at most."""
        return _decades(self.low, self.high, most) if self.logarithmic else self._linear(most)

    def _linear(self, most: int) -> list[float]:
        width = self.high - self.low
        if not (0 < width < math.inf):
            return [self.low]
        size = 10.0 ** math.floor(math.log10(width / most))
        step = next(step * size for step in _STEPS if width / (step * size) <= most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


def linear_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A linear scale that contains 0 and all `values`, which must be finite."""
    low, high = min([0.0, *values]), max(values, default=1.0)
    high = high + 0.06 * (high - low or 1.0)
    return Scale(low, high, start, end)


def log_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A logarithmic scale over whole decades that contains all finite `values` above 0."""
    kept = [value for value in values if 0 < value < math.inf]
    low = math.floor(math.log10(min(kept, default=1.0)) - 0.02)
    high = math.ceil(math.log10(max(kept, default=10.0)) + 0.02)
    return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, logarithmic=True)


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    step = max(1, math.ceil((last - first) / most))
    return [10.0**place for place in range(first, last + 1, step)]


@attrs.define
class Drawing:
    """Collects shapes of an SVG drawing, which `text()` returns. `title` and `description` are for
    screen readers."""

    identifier: str
    title: str
    description: str
    height: float
    shapes: list[str] = attrs.field(factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Draw a line between two points."""
        places = (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))
        self.shapes.append(f"<line {_attributes(places)} class={_quoted(kind)}/>")

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Draw a line through several points."""
        shown = "L".join(f"{_round_number(x)} {_round_number(y)}" for x, y in points)
        self.shapes.append(f'<path d="M{shown}" class={_quoted(kind)}/>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, tip: str = ""
    ) -> None:
        """Draw a rectangle, with the tooltip `tip`."""
        places = (("x", x), ("y", y), ("width", max(width, 0.0)), ("height", max(height, 0.0)))
        self.shapes.append(f"<rect {_attributes(places)} class={_quoted(kind)}>{_tip(tip)}</rect>")

    def dot(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        """Draw a circle, with the tooltip `tip`."""
        places = (("cx", x), ("cy", y), ("r", radius))
        self.shapes.append(
            f"<circle {_attributes(places)} class={_quoted(kind)}>{_tip(tip)}</circle>"
        )

    def words(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "",
        anchor: str = "start",
        degrees: float = 0.0,
    ) -> None:
        """Write text at a point, turned clockwise around it by `degrees`, and cut to
        `_MOST_LETTERS`."""
        shown = text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}\u2026"
        places = (("x", x), ("y", y))
        named = f" class={_quoted(kind)}" if kind else ""
        around = " ".join(_round_number(value) for value in (degrees, x, y))
        turned = f' transform="rotate({around})"' if degrees else ""
        self.shapes.append(
            f"<text {_attributes(places)} text-anchor={_quoted(anchor)}{named}{turned}>"
            f"{html.escape(shown)}</text>"
        )

    def text(self) -> Markup:
        """The whole drawing as an SVG element."""
        name = html.escape(self.identifier, quote=True)
        size = f"0 0 {_round_number(WIDTH)} {_round_number(self.height)}"
        head = (
            f'<svg viewBox="{size}" role="img" aria-labelledby="{name}-title {name}-about" '
            f'class="plot"><title id="{name}-title">{html.escape(self.title)}</title>'
            f'<desc id="{name}-about">{html.escape(self.description)}</desc>'
        )
        return Markup(head + "".join(self.shapes) + "</svg>")

    # ------------------------------------------------------------ axes

    def bottom_axis(
        self,
        scale: Scale,
        top: float,
        bottom: float,
        label: str,
        shown: Callable[[float], str],
    ) -> None:
        """Draw the bottom axis with its label, ticks written by `shown`, and grid lines up to
        `top`."""
        for value in scale.ticks():
            x = scale(value)
            self.line(x, top, x, bottom, "grid")
            # At the ends of the axis, centred text would stick out.
            anchor = "start" if x < 24 else "end" if x > WIDTH - 24 else "middle"
            self.words(x, bottom + 15, shown(value), "tick", anchor)
        self.line(scale.start, bottom, scale.end, bottom, "axis")
        self.words((scale.start + scale.end) / 2, bottom + 33, label, "label", "middle")

    def left_axis(
        self, scale: Scale, left: float, right: float, label: str, shown: Callable[[float], str]
    ) -> None:
        """Draw the left axis with ticks written by `shown`, grid lines up to `right`, and its label
        above."""
        for value in scale.ticks():
            y = scale(value)
            self.line(left, y, right, y, "grid")
            self.words(left - 6, y + 4, shown(value), "tick", "end")
        self.line(left, scale.start, left, scale.end, "axis")
        self.words(4, min(scale.start, scale.end) - 10, label, "label")


def _attributes(places: Sequence[tuple[str, float]]) -> str:
    return " ".join(f'{name}="{_round_number(value)}"' for name, value in places)


def _quoted(text: str) -> str:
    return f'"{html.escape(text, quote=True)}"'


def _tip(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""


_LEFT, _RIGHT = 14.0, WIDTH - 20.0
#: The golden ratio's fractional part, for offsets that look random but are deterministic.
_GOLDEN = 0.6180339887
#: The left edge of the axis of errors: smaller ones are drawn there.
_SMALLEST = 1e-5
#: Where the largest sample exceeds the smallest by more than this factor, the axis is logarithmic.
_SPREAD = 30.0
#: The most rows of a plot over several measurements.
_MOST_ROWS = 24


def spread(place: int) -> float:
    """A deterministic offset between -0.5 and 0.5 for dot number `place`, so that dots of a row do
    not cover each other."""
    return (place * _GOLDEN) % 1.0 - 0.5


def errors_plot(verdict: Verdict, identifier: str) -> Markup:
    """The largest error of each output of each case over the allowed error, by kind of input, on a
    logarithmic axis; "" where there are none."""
    points: dict[str, list[tuple[float, int, str]]] = {}
    for number, case in enumerate(verdict.cases, 1):
        for output in case.comparisons:
            if not math.isnan(output.worst):
                tip = f"case {number}, {sizes(case)}, {output.name}: {short(output.worst)}"
                points.setdefault(case.kind or "inputs", []).append((output.worst, number, tip))
    if not points:
        return Markup()
    finite = [w for row in points.values() for w, _, _ in row if math.isfinite(w)]
    largest = max([*finite, 10.0])
    scale = Scale(_SMALLEST, 10.0 ** math.ceil(math.log10(largest)), _LEFT, _RIGHT, True)
    height = 64 + 40 * len(points)
    bottom = height - 42.0
    drawing = Drawing(
        identifier,
        "Errors against what is allowed",
        "One dot for each output of each case; right of the line at 1 an output is wrong.",
        height,
    )
    drawing.bottom_axis(scale, 12, bottom, "error / allowed (left edge: 0 or less)", power)
    one = scale(1.0)
    drawing.box(one, 12, _RIGHT - one, bottom - 12, "forbidden")
    drawing.line(one, 12, one, bottom, "limit")
    for row, (kind, found) in enumerate(points.items()):
        y = 22 + 40 * row
        drawing.words(_LEFT, y + 4, kind.replace("_", " "), "row")
        for place, (worst, _, tip) in enumerate(found):
            mark = "dot bad" if worst > 1 else "dot good"
            drawing.dot(scale(worst), y + 20 + 10 * spread(place), 3.6, mark, tip)
    return drawing.text()


# ---------------------------------------------------------------- times


def times_plot(measured: Measured, identifier: str) -> Markup:
    """Every raw sample of every contender, with a box from quartile to quartile, a line at the
    median, and whiskers to the last samples within 1.5 lengths of the box."""
    contenders = measured.contenders
    if not contenders:
        return Markup()
    samples = [value for one in contenders for value in one.samples if value > 0]
    wide = bool(samples) and max(samples) / min(samples) > _SPREAD
    scale = log_scale(samples, _LEFT, _RIGHT) if wide else linear_scale(samples, _LEFT, _RIGHT)
    unit, size = unit_of(max(samples, default=1.0))
    height = 60 + 62 * len(contenders)
    bottom = height - 42.0
    drawing = Drawing(
        identifier,
        f"Samples of {measured.title}",
        "; ".join(
            f"{one.name}: median {seconds(one.times.median)} of {len(one.samples)}"
            for one in contenders
        ),
        height,
    )
    label = f"time of one run ({unit})" + (", logarithmic" if wide else "")
    drawing.bottom_axis(
        scale, 8, bottom, label, seconds if wide else lambda value: _significant(value / size)
    )
    for row, one in enumerate(contenders):
        _samples(drawing, scale, 16 + 62.0 * row, one)
    return drawing.text()


def _samples(drawing: Drawing, scale: Scale, top: float, one: Contender) -> None:
    colour = f"who-{_colour(one)}"
    drawing.words(_LEFT, top + 4, f"{one.name}: {seconds(one.times.median)}", "row")
    middle = top + 27
    ordered = sorted(one.samples)
    low, high = map(float, np.quantile(ordered, [0.25, 0.75]))
    reach = 1.5 * (high - low)
    inside = [value for value in ordered if low - reach <= value <= high + reach] or ordered
    drawing.line(scale(inside[0]), middle, scale(inside[-1]), middle, f"whisker {colour}")
    width = max(scale(high) - scale(low), 1.0)
    drawing.box(scale(low), middle - 11, width, 22, f"box {colour}")
    for place, value in enumerate(one.samples):
        y = middle + 20 * spread(place)
        drawing.dot(scale(value), y, 2.6, f"sample {colour}", seconds(value, 4))
    at = scale(one.times.median)
    drawing.line(at, middle - 13, at, middle + 13, f"median {colour}")


def _significant(value: float) -> str:
    return f"{value:.4g}"


def _colour(one: Contender) -> str:
    """The name of a contender's colour in the page's classes."""
    if one.own:
        return "kernel"
    return "eager" if one.key == "eager" else "other"


# ---------------------------------------------------------------- speedups


def speedups_plot(measurements: Sequence[Measured], identifier: str) -> Markup:
    """A bar for each speedup with its 95 % interval, and a line at 1; "" where there are none."""
    rows: list[tuple[str, Speedup]] = []
    for one in measurements:
        for baseline, gain in one.gains:
            about = f"{one.title}, {one.measurement.target}: " if len(measurements) > 1 else ""
            rows.append((f"{about}against {baseline}", gain))
    rows = [row for row in rows if math.isfinite(row[1].of_medians)][:_MOST_ROWS]
    if not rows:
        return Markup()
    ends = [v for _, g in rows for v in (g.of_medians, g.high) if math.isfinite(v)]
    scale = linear_scale([*ends, 1.2], _LEFT, _RIGHT)
    height = 58 + 46 * len(rows)
    bottom = height - 42.0
    drawing = Drawing(
        identifier,
        "Speedups of the medians",
        "; ".join(f"{name}: {times(gain.of_medians)}" for name, gain in rows),
        height,
    )
    drawing.bottom_axis(scale, 6, bottom, "times as fast (95 % interval)", _significant)
    for row, (name, gain) in enumerate(rows):
        top = 12 + 46.0 * row
        drawing.words(_LEFT, top + 6, f"{name}: {times(gain.of_medians)}", "row")
        kind = "bar faster" if gain.of_medians >= 1 else "bar slower"
        tip = f"{times(gain.of_medians)} ({short(gain.low)} to {short(gain.high)})"
        drawing.box(_LEFT, top + 12, scale(gain.of_medians) - _LEFT, 18, kind, tip)
        left, right, y = scale(gain.low), scale(gain.high), top + 21
        drawing.line(left, y, right, y, "interval")
        for x in (left, right):
            drawing.line(x, y - 5, x, y + 5, "interval")
    drawing.line(scale(1.0), 6, scale(1.0), bottom, "limit")
    return drawing.text()


# ---------------------------------------------------------------- roofline


def roofline_plot(measurements: Sequence[Measured], identifier: str) -> Markup:
    """FLOP/s over FLOPs per byte, both logarithmic: the slope of the memory's bandwidth, the peak
    where it is known, and a point for each contender. Measurements with equal bandwidth and peak
    share a roof; "" where there is nothing to draw."""
    drawn = [m for m in measurements if m.measurement.flops and m.measurement.bytes and m.bandwidth]
    if not drawn:
        return Markup()
    # One roof for each machine and precision class.
    roofs = list(dict.fromkeys((m.bandwidth, m.peak) for m in drawn if m.bandwidth))
    points = [
        (m.measurement.flops / m.measurement.bytes, one.rate, one, m)
        for m in drawn
        for one in m.contenders
        if one.rate
    ]
    if not points:
        return Markup()
    ridges = [peak / bandwidth for bandwidth, peak in roofs if peak]
    intensities = [x for x, _, _, _ in points]
    x_scale = log_scale(
        [*intensities, *ridges, min(intensities) / 3, max(intensities) * 3], 52, _RIGHT
    )
    tops = [min(peak or math.inf, bandwidth * x_scale.high) for bandwidth, peak in roofs]
    height, bottom = 300.0, 258.0
    y_scale = log_scale([*(y for _, y, _, _ in points), *tops], bottom, 34)
    drawing = Drawing(
        identifier,
        "Roofline",
        "; ".join(
            f"{m.title}, {one.name}: {rate(y, 'FLOP/s')} at {short(x)} FLOP/byte"
            for x, y, one, m in points[:_MOST_ROWS]
        ),
        height,
    )
    drawing.left_axis(y_scale, 52, _RIGHT, "FLOP/s", lambda value: rate(value, "", 1).strip())
    drawing.bottom_axis(x_scale, 34, bottom, "FLOP per byte that must move", power)
    for bandwidth, peak in roofs:
        _roof(drawing, x_scale, y_scale, bandwidth, peak)
    for x, y, one, m in points:
        if one.own and m.bandwidth:
            roof = min(m.bandwidth * x, m.peak or math.inf)
            drawing.line(x_scale(x), y_scale(y), x_scale(x), y_scale(roof), "gap")
        tip = f"{m.title}, {one.name}: {rate(y, 'FLOP/s')}"
        size = 6.0 if one.own else 4.6
        drawing.dot(x_scale(x), y_scale(y), size, f"point who-{_colour(one)}", tip)
    return drawing.text()


def _roof(
    drawing: Drawing, x_scale: Scale, y_scale: Scale, bandwidth: float, peak: float | None
) -> None:
    """Draw a roof: the slope up to the ridge, then the peak, both cut off at the plot's edges."""
    first = max(x_scale.low, y_scale.low / bandwidth)
    last = min(x_scale.high, y_scale.high / bandwidth)
    ridge = min(peak / bandwidth, last) if peak else last
    points = [(x_scale(x), y_scale(bandwidth * x)) for x in (first, max(first, ridge))]
    if peak and ridge < x_scale.high:
        points.append((x_scale(x_scale.high), y_scale(peak)))
        drawing.words(_RIGHT, y_scale(peak) - 7, f"peak {rate(peak, 'FLOP/s')}", "roof-name", "end")
    drawing.path(points, "roof")
    (x1, y1), (x2, y2) = points[:2]
    degrees = math.degrees(math.atan2(y2 - y1, x2 - x1))
    x, y = x1 + 0.36 * (x2 - x1), y1 + 0.36 * (y2 - y1)
    away = math.radians(degrees - 90)
    x, y = x + 7 * math.cos(away), y + 7 * math.sin(away)
    drawing.words(x, y, f"memory {rate(bandwidth, 'B/s')}", "roof-name", "middle", degrees)
