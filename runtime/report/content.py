"""The contents of a report as plain data: made by `files` and `results`, drawn by the plots and the
templates.

Texts in here are cleaned (`text.clean`), not escaped: the templates escape them. Times are in
seconds, rates in bytes/s and FLOP/s.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from sketchc.runtime.bench.measurement import Measurement, Speedup, Summary
from sketchc.runtime.report.steps import Trace
from sketchc.runtime.verify.verdict import CaseResult, Verdict


@attrs.frozen
class Failure:
    """The evidence of one failed case, the `number`-th of its verdict. `blame` names what is wrong,
    "the sketch" or "the code" ("" where unknown), `why` says how that is known, or why it is not;
    `excerpt` are the relevant lines of the log, `log` is the whole log as shown, and `log_length`
    its real length in characters."""

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
    """One verification: its verdict with only the cases that are shown, its outcome (`state`), the
    notes on it, and the command that runs it again."""

    verdict: Verdict
    state: str
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    reproduce: str = ""

    @property
    def title(self) -> str:
        """The name of the sketch that was verified, or "kernel"."""
        return self.verdict.sketch or "kernel"

    def count(self, state: str) -> int:
        """How many of the cases shown have this `state`."""
        return sum(case.state == state for case in self.verdict.cases)


@attrs.frozen
class Contender:
    """One side of a measurement, a baseline or the kernel. `share` is the attained share of the
    roofline, `gain` the kernel's speedup over a baseline; `withheld` says why none is quoted."""

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
    """One measurement, with its contenders, notes and facts. `bandwidth` is the memory's; `peak` is
    None where no peak FLOP/s is known: then the roofline is that of the memory alone."""

    measurement: Measurement
    state: str
    contenders: tuple[Contender, ...]
    bandwidth: float | None
    peak: float | None
    notes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        """The name of the sketch that was measured, or "kernel"."""
        return self.measurement.sketch or "kernel"

    @property
    def gains(self) -> list[tuple[str, Speedup]]:
        """The speedups, with the names of the baselines."""
        return [(one.name, one.gain) for one in self.contenders if one.gain is not None]


@attrs.frozen
class Line:
    """One line of a listing: pieces of (class of highlighting, text), the numbers of the lines of
    the other listing that it is linked with, and the number of its colour (0: none)."""

    number: int
    pieces: tuple[tuple[str, str], ...]
    links: tuple[int, ...] = ()
    colour: int = 0


@attrs.frozen
class Listing:
    """A file as it is shown. Lines before `start` (1-based) are helper code, which is not linked to
    any statement."""

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
    """The counts of one category of a suite's tasks; `cells` are texts for the suite's `headings`.
    `gains` are the speedups of kernels that passed, with the names of their tasks."""

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
    """One task of a suite. `sizes` says whether its kernel was verified at the task's own sizes."""

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
    """A suite's results, by category and by task. The last category is that of all tasks."""

    headings: tuple[str, ...]
    categories: tuple[Category, ...]
    tasks: tuple[TaskRow, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()

    @property
    def overall(self) -> Category:
        """The last category, which holds all tasks."""
        return self.categories[-1]


@attrs.frozen
class Page:
    """The whole report. `state` and `word` are the headline's, `conclusion` is one sentence."""

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
