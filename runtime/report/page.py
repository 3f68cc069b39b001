"""Renders a report as one HTML file that holds everything it shows.

Templates escape whatever they are given; should that ever fail, a content security policy that
names the page's own style and script by their digests keeps anything else from running or loading.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sketchc.base.version import __version__
from sketchc.runtime.report import plots, results, suite_plots, text
from sketchc.runtime.report.content import Measured, Page
from sketchc.runtime.report.steps import OPEN, Visit
from sketchc.runtime.verify.words import FAILED, PASSED, SKIPPED

_TEMPLATES = Path(__file__).parent / "templates"
#: The width of the time axis of the trace.
_AXIS = 1000.0
#: Functions that templates use as filters.
_FILTERS = (
    (text, "short seconds rate share times"),
    (results, "pairs sizes measured_at machine paper relaxed place element"),
)


@attrs.frozen
class Tile:
    """A large number at the top of the page: its text, its name, and the state that colours it."""

    value: str
    name: str
    state: str = ""


def render(page: Page) -> str:
    """`page` as HTML; deterministic: equal data gives equal bytes."""
    style, script = _own("style.css"), _own("page.js")
    failures = [(one, failure) for one in page.verdicts for failure in one.failures]
    shown = (
        _environment()
        .get_template("page.jinja")
        .render(
            page=page,
            version=__version__,
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
            plots=plots,
            suite_plots=suite_plots,
            tiles=tiles(page),
            sections=_sections(page, bool(failures)),
            failures=failures,
            more_failures=sum(one.count(FAILED) for one in page.verdicts) - len(failures),
            others=_others(page.measurements),
            gantt=gantt(page.trace.steps) if page.trace else [],
        )
    )
    return shown.lstrip()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for module, names in _FILTERS:
        environment.filters |= {name: getattr(module, name) for name in names.split()}
    environment.filters |= {"exact": repr, "bar": _bar}
    return environment


@cache
def _own(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """The page's content security policy: nothing may be loaded, and only the page's own style and
    script are applied."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest(style)}'; "
        f"script-src 'sha256-{digest(script)}'; base-uri 'none'; form-action 'none'"
    )


def _bar(worst: float) -> str:
    """The length of a small bar for `worst`, an error over the allowed error: full from 1 on."""
    length = 59.0 if not math.isfinite(worst) else 59.0 * min(max(worst, 0.0), 1.0)
    return f"{length:.1f}"


def tiles(page: Page) -> list[Tile]:
    """The tiles of a page: its most important numbers."""
    found = []
    if page.suite:
        whole = page.suite.overall
        found.append(Tile(f"{whole.passed} / {whole.tasks}", "tasks passed", page.state))
        found.append(Tile(str(whole.incomplete), "incomplete"))
        found += [
            Tile(cell, heading)
            for heading, cell in zip(page.suite.headings, whole.cells, strict=True)
            if "@" in heading or "mean" in heading
        ]
    if page.verdicts:
        cases = [case for one in page.verdicts for case in one.verdict.cases]
        passed = sum(case.state == PASSED for case in cases)
        ran = len(cases) - sum(case.state == SKIPPED for case in cases)
        states = {one.state for one in page.verdicts}
        state = FAILED if FAILED in states else OPEN if OPEN in states else PASSED
        found.append(Tile(f"{passed} / {ran}", "cases passed", state))
        errors = [case.worst for case in cases if case.worst is not None]
        if errors:
            worst = max(errors, key=lambda value: math.inf if math.isnan(value) else value)
            state = PASSED if worst <= 1 else FAILED
            found.append(Tile(text.short(worst), "largest error / allowed", state))
    if len(page.measurements) == 1:
        one = page.measurements[0]
        found += [Tile(text.times(gain.of_medians), f"of {name}") for name, gain in one.gains]
        share = next((c.share for c in one.contenders if c.own and c.share is not None), None)
        if share is not None:
            found.append(Tile(text.share(share), "of the roofline"))
    if page.trace:
        totals = dict(page.trace.totals)
        found.append(Tile(str(len(page.trace.steps)), "steps of agents"))
        if "calls" in totals:
            found.append(Tile(totals["calls"], "calls of a model"))
    return found


def _sections(page: Page, failures: bool) -> list[tuple[str, str]]:
    """(name, anchor) of the sections that the page has."""
    every = (
        ("Tasks", "suite", page.suite is not None),
        ("Verdict", "verdict", bool(page.verdicts)),
        ("Failures", "failures", failures),
        ("Speed", "speed", bool(page.measurements or page.not_measured)),
        ("Sketch and code", "code", page.code is not None),
        ("Agents", "trace", page.trace is not None),
        ("Particulars", "about", True),
    )
    return [(name, place) for name, place, there in every if there]


def _others(measurements: Sequence[Measured]) -> list[str]:
    """The names of baselines other than eager, each once."""
    names = [c.name for m in measurements for c in m.contenders if not c.own and c.key != "eager"]
    return list(dict.fromkeys(names))


def gantt(steps: Sequence[Visit]) -> list[tuple[Any, Any]]:
    """The start and width of each step on the time axis; no step is too narrow to be seen."""
    total = sum(visit.step.seconds for visit in steps) or 1.0
    found, start = [], 0.0
    for visit in steps:
        width = max(_AXIS * visit.step.seconds / total, 4.0)
        found.append((round(min(start, _AXIS - width), 1), round(width, 1)))
        start += _AXIS * visit.step.seconds / total
    return found
