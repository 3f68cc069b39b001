"""What a report shows, as plain data: made by the readers, drawn by the plots and the templates.

Texts in here are cleaned (`text.clean`), not escaped: the templates escape. Times are in seconds,
rates in bytes/s and FLOP/s.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from sketchc.runtime.bench.measurement import Measurement, Speedup, Summary
from sketchc.runtime.report.steps import Trace
from sketchc.runtime.verify.verdict import CaseResult, Verdict


@attrs.frozen
class Failure:
    """The evidence of one failed case, the `number`-th of its verdict. `blame` names who is wrong
    ("" where nobody asked), `why` says how that is known; `excerpt` are the lines of the log that
    matter, `log` is all of it."""

    number: int
    case: CaseResult
    meaning: str
    blame: str
    why: str
    excerpt: str = ""
    log: str = ""
    log_length: int = 0


@attrs.frozen
class Verified:
    """One verification: its verdict, with as many cases as are shown, how it ended, the notes
    on it, and the command that runs it again."""

    verdict: Verdict
    state: str
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    reproduce: str = ""

    @property
    def title(self) -> str:
        """The name of what was verified."""
        return self.verdict.sketch or "kernel"

    def count(self, state: str) -> int:
        """How many of the cases shown ended so."""
        return sum(case.state == state for case in self.verdict.cases)


@attrs.frozen
class Contender:
    """One side of a measurement. `share` is the attained share of the roofline, `gain` how many
    times faster the kernel is; `withheld` says why that is not quoted."""

    key: str
    name: str
    samples: Sequence[float]
    times: Summary
    bandwidth: float | None
    rate: float | None
    share: float | None
    precision: str = ""
    gain: Speedup | None = None
    withheld: str = ""

    @property
    def own(self) -> bool:
        """Whether this side is the kernel."""
        return self.key == "kernel"


@attrs.frozen
class Measured:
    """One measurement, and what is said of it. `bandwidth` is the memory's; `peak` is None where no
    peak is known: the roof is the memory's alone."""

    measurement: Measurement
    state: str
    contenders: tuple[Contender, ...]
    bandwidth: float | None
    peak: float | None
    notes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        """The name of what was measured."""
        return self.measurement.sketch or "kernel"

    @property
    def gains(self) -> list[tuple[str, Speedup]]:
        """The speedups, with the names of the baselines."""
        return [(one.name, one.gain) for one in self.contenders if one.gain is not None]


@attrs.frozen
class Line:
    """One line of a listing: pieces of (class of highlighting, text), the lines on the other side
    that it is linked with, and the number of its colour (0: none)."""

    number: int
    pieces: tuple[tuple[str, str], ...]
    links: tuple[int, ...] = ()
    colour: int = 0


@attrs.frozen
class Listing:
    """A file. Lines before `start` (1-based) are helpers that carry out no statement."""

    name: str
    language: str
    lines: tuple[Line, ...]
    start: int = 1


@attrs.frozen
class Code:
    """The sketch beside the code. `note` says how lines are linked, or why they are not."""

    sketch: Listing | None
    kernel: Listing | None
    linked: bool
    note: str


@attrs.frozen
class Category:
    """What is counted of a category of a suite's tasks; `cells` go with the suite's `headings`.
    `gains` are the speedups of what passed, with the names of the tasks."""

    name: str
    passed: int
    incomplete: int
    failed: int
    cells: tuple[str, ...]
    gains: tuple[tuple[str, float], ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks of the category."""
        return self.passed + self.incomplete + self.failed


@attrs.frozen
class TaskRow:
    """One task of a suite. `sizes` says whether it was verified at its own."""

    name: str
    category: str
    state: str
    word: str
    reason: str
    right: str
    sizes: str
    shapes: str
    seconds: float
    speedup: float | None
    lines: int


@attrs.frozen
class SuiteResults:
    """A suite's tasks, by category and one by one. The last category is all of them."""

    headings: tuple[str, ...]
    categories: tuple[Category, ...]
    tasks: tuple[TaskRow, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()

    @property
    def whole(self) -> Category:
        """The last category, which holds all tasks."""
        return self.categories[-1]


@attrs.frozen
class Page:
    """The whole report. `state` is that of the headline, `conclusion` one sentence."""

    title: str
    state: str
    word: str
    conclusion: str
    facts: tuple[tuple[str, str], ...]
    suite: SuiteResults | None = None
    verdicts: tuple[Verified, ...] = ()
    measurements: tuple[Measured, ...] = ()
    not_measured: str = ""
    code: Code | None = None
    trace: Trace | None = None
    files: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
