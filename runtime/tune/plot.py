"""The best time so far against the time of the search, as an SVG file that stands alone."""

from __future__ import annotations

from sketchc.runtime.report.plots import WIDTH, Drawing, linear_scale
from sketchc.runtime.report.text import seconds
from sketchc.runtime.tune.tuner import Tuning

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 56.0, WIDTH - 20.0, 34.0, 208.0, 250.0

#: The colours of the report's classes, for a file that no page styles.
_STYLE = """<style>
text { font: 11px system-ui, sans-serif; fill: #333 }
.grid { stroke: #ddd } .axis { stroke: #888 } .limit { stroke: #b33; stroke-dasharray: 4 3 }
path { fill: none; stroke: #26a; stroke-width: 2 } .dot { fill: #26a }
</style><rect width="100%" height="100%" fill="#fff"/>"""


def best_plot(found: Tuning) -> str:
    """The file's text. A step for each batch at which the best median fell; the broken line is the
    time of the plan's own choice in the last measurement."""
    points = list(found.trace)
    default = None if found.default_times is None else found.default_times.median
    values = [value for _, value in points] + ([] if default is None else [default])
    across = linear_scale([at for at, _ in points], _LEFT, _RIGHT)
    up = linear_scale(values, _BOTTOM, _TOP)
    drawing = Drawing(
        "best",
        f"The best point of {found.sketch} so far",
        f"{len(points)} batches in {found.seconds:.1f} s",
        _HEIGHT,
    )
    drawing.left_axis(up, _LEFT, _RIGHT, "best so far", lambda value: seconds(value, 3))
    drawing.bottom_axis(across, _TOP, _BOTTOM, "seconds of search", lambda value: f"{value:g}")
    if default is not None:
        drawing.line(_LEFT, up(default), _RIGHT, up(default), "limit")
    steps: list[tuple[float, float]] = []
    for at, value in points:
        if steps:
            steps.append((across(at), steps[-1][1]))
        steps.append((across(at), up(value)))
        drawing.dot(across(at), up(value), 2.6, "dot", f"{at:.1f} s: {seconds(value, 4)}")
    if steps:
        drawing.path([*steps, (_RIGHT, steps[-1][1])], "best")
    head, rest = str(drawing.text()).split(">", 1)
    opened = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opened}>{_STYLE}{rest}\n"
