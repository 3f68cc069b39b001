"""Scalable drawings in plain text: axes with ticks, marks, and escaped words.

Colours and fonts are the page's (classes), so that a drawing follows the reader's colour scheme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

import attrs

#: Of the drawing's own coordinates; the page scales it.
WIDTH = 440
#: Letters in a line of that width.
_MOST_LETTERS = 64
#: Steps of a linear axis, times a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def round_number(value: float) -> str:
    """A coordinate: two decimals are finer than anybody sees."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


@attrs.frozen
class Scale:
    """Values to coordinates, linear or logarithmic; what lies outside is moved to the edge."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value = max(value, 1e-300)
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the scale, at most about `most`."""
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


def linear_scale(values: Sequence[float], start: float, end: float, zero: bool = True) -> Scale:
    """A linear scale that holds all values (finite ones), from 0 where `zero`."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    low = min(low, 0.0) if zero else low - 0.05 * (high - low)
    high = high + 0.06 * (high - low or 1.0)
    return Scale(low, high, start, end)


def log_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A logarithmic scale over whole decades that holds all values above 0."""
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
    """Collects shapes; `text()` is the whole drawing. `title` and `description` are read out to
    those who do not see it."""

    identifier: str
    title: str
    description: str
    height: float
    width: float = WIDTH
    shapes: list[str] = attrs.field(factory=list)

    def add(self, shape: str) -> None:
        self.shapes.append(shape)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        places = (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2))
        self.add(f"<line {_attributes(places)} class={_quoted(kind)}/>")

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        shown = "L".join(f"{round_number(x)} {round_number(y)}" for x, y in points)
        self.add(f'<path d="M{shown}" class={_quoted(kind)}/>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, tip: str = ""
    ) -> None:
        places = (("x", x), ("y", y), ("width", max(width, 0.0)), ("height", max(height, 0.0)))
        self.add(f"<rect {_attributes(places)} class={_quoted(kind)}>{_tip(tip)}</rect>")

    def dot(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        places = (("cx", x), ("cy", y), ("r", radius))
        self.add(f"<circle {_attributes(places)} class={_quoted(kind)}>{_tip(tip)}</circle>")

    def words(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "",
        anchor: str = "start",
        degrees: float = 0.0,
    ) -> None:
        """Words at a place, turned clockwise around it; what would not fit is cut."""
        shown = text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}\u2026"
        places = (("x", x), ("y", y))
        named = f" class={_quoted(kind)}" if kind else ""
        around = " ".join(round_number(value) for value in (degrees, x, y))
        turned = f' transform="rotate({around})"' if degrees else ""
        self.add(
            f"<text {_attributes(places)} text-anchor={_quoted(anchor)}{named}{turned}>"
            f"{html.escape(shown)}</text>"
        )

    def text(self) -> str:
        name = html.escape(self.identifier, quote=True)
        size = f"0 0 {round_number(self.width)} {round_number(self.height)}"
        head = (
            f'<svg viewBox="{size}" role="img" aria-labelledby="{name}-title {name}-about" '
            f'class="plot"><title id="{name}-title">{html.escape(self.title)}</title>'
            f'<desc id="{name}-about">{html.escape(self.description)}</desc>'
        )
        return head + "".join(self.shapes) + "</svg>"

    # ------------------------------------------------------------ axes

    def bottom_axis(
        self,
        scale: Scale,
        top: float,
        bottom: float,
        label: str,
        shown: Callable[[float], str],
        most: int = 6,
    ) -> None:
        """Ticks and words below, and lines of a grid up to `top`."""
        for value in scale.ticks(most):
            x = scale(value)
            self.line(x, top, x, bottom, "grid")
            # Words at the ends would stick out.
            anchor = "start" if x < 24 else "end" if x > self.width - 24 else "middle"
            self.words(x, bottom + 15, shown(value), "tick", anchor)
        self.line(scale.start, bottom, scale.end, bottom, "axis")
        self.words((scale.start + scale.end) / 2, bottom + 33, label, "label", "middle")

    def left_axis(
        self, scale: Scale, left: float, right: float, label: str, shown: Callable[[float], str]
    ) -> None:
        """Ticks and words at the left; the label stands above the axis."""
        for value in scale.ticks():
            y = scale(value)
            self.line(left, y, right, y, "grid")
            self.words(left - 6, y + 4, shown(value), "tick", "end")
        self.line(left, scale.start, left, scale.end, "axis")
        self.words(4, min(scale.start, scale.end) - 10, label, "label")


def _attributes(places: Sequence[tuple[str, float]]) -> str:
    return " ".join(f'{name}="{round_number(value)}"' for name, value in places)


def _quoted(text: str) -> str:
    return f'"{html.escape(text, quote=True)}"'


def _tip(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""
