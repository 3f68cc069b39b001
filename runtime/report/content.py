"""What a report shows, as plain data: made by the readers, drawn by the plots and the templates.

Texts in here are cleaned (`text.clean`), not escaped: the templates escape. Times are in seconds,
rates in bytes/s and FLOP/s.
"""

from __future__ import annotations

import attrs

#: How something ended, also the name of its colour: right, wrong, neither.
PASSED, FAILED, SKIPPED, OPEN = "passed", "failed", "skipped", "open"


@attrs.frozen
class FirstWrong:
    """The first wrong element of an output. `difference` and `allowed` are None where they say
    nothing (NaN, integers)."""

    output: str
    index: str
    expected: str
    actual: str
    difference: float | None = None
    allowed: float | None = None


@attrs.frozen
class Output:
    """One output of one case. `worst` is the largest error as a share of what is allowed."""

    name: str
    failure: str
    reason: str
    elements: int | None
    wrong: int | None
    worst: float | None
    max_error: float | None
    max_relative_error: float | None
    rtol: float | None
    atol: float | None
    paper: str
    first: FirstWrong | None = None
    #: Where elements passed although they break the rule, and why.
    relaxed: tuple[str, ...] = ()


@attrs.frozen
class Case:
    """One run of the kernel. `state` is PASSED, FAILED or SKIPPED."""

    number: int
    state: str
    failure: str
    sizes: str
    own: bool
    kind: str
    seed: str
    reason: str
    seconds: float | None
    runs: int | None
    outputs: tuple[Output, ...]

    @property
    def worst(self) -> float | None:
        found = [output.worst for output in self.outputs if output.worst is not None]
        return max(found, default=None)

    @property
    def max_error(self) -> float | None:
        found = [output.max_error for output in self.outputs if output.max_error is not None]
        return max(found, default=None)

    @property
    def wrong(self) -> int | None:
        found = [output.wrong for output in self.outputs if output.wrong is not None]
        return sum(found) if found else None

    @property
    def elements(self) -> int | None:
        found = [output.elements for output in self.outputs if output.elements is not None]
        return sum(found) if found else None


@attrs.frozen
class Failure:
    """The evidence of one failed case. `blame` names who is wrong ("" where nobody asked), `why`
    says how that is known; `excerpt` are the lines of the log that matter, `log` is all of it."""

    case: Case
    meaning: str
    blame: str
    why: str
    excerpt: str = ""
    log: str = ""
    log_length: int = 0


@attrs.frozen
class Verdict:
    """One verification. `reproduce` is the command that runs it again."""

    title: str
    task: str
    target: str
    hardware: str
    how_it_runs: str
    seed: str
    state: str
    failure: str
    cases: tuple[Case, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]
    params: tuple[tuple[str, str], ...]
    reproduce: str = ""

    def count(self, state: str) -> int:
        return sum(case.state == state for case in self.cases)

    @property
    def relaxed(self) -> tuple[tuple[int, str, str], ...]:
        """Where elements passed although they break the rule: case, output, and a sentence."""
        return tuple(
            (case.number, output.name, said)
            for case in self.cases
            for output in case.outputs
            for said in output.relaxed
        )


@attrs.frozen
class Contender:
    """One side of a measurement. `low` and `high` bound the median with 95 % confidence; `share` is
    the attained share of the roofline."""

    key: str
    name: str
    samples: tuple[float, ...]
    median: float
    low: float | None
    high: float | None
    minimum: float | None
    mean: float | None
    bandwidth: float | None
    rate: float | None
    share: float | None
    precision: str = ""

    @property
    def own(self) -> bool:
        return self.key == "kernel"


@attrs.frozen
class Gain:
    """How many times faster the kernel is than `baseline` (a name): of the medians, with its 95 %
    interval, and of the means."""

    baseline: str
    of_medians: float
    low: float | None
    high: float | None
    of_means: float | None = None


@attrs.frozen
class Measurement:
    """One measurement. `peak` is None where no peak is known: the roof is the memory's alone.
    `problems` say why its times do not count, `withheld` why a speedup is not quoted. `sketch_text`
    and `source` are "" where the file does not hold them."""

    title: str
    task: str
    target: str
    hardware: str
    machine: str
    sizes: str
    seed: str
    state: str
    contenders: tuple[Contender, ...]
    gains: tuple[Gain, ...]
    bytes: float | None
    flops: float | None
    bandwidth: float | None
    peak: float | None
    precision: str
    notes: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    outputs: tuple[Output, ...] = ()
    problems: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    sketch_text: str = ""
    source: str = ""


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
class Message:
    role: str
    text: str


@attrs.frozen
class Call:
    """One call of a language model. `left_out` says that its texts are not in the page."""

    number: int
    purpose: str
    level: str
    provider: str
    model: str
    started: str
    outcome: str
    failed: bool
    tokens: str
    cost: str
    seconds: float
    messages: tuple[Message, ...]
    reply: str
    left_out: bool = False


@attrs.frozen
class Route:
    """One decision of the Conductor."""

    to: str
    decided_by: str
    certain: bool
    reason: str
    diagnosis: str = ""
    suggestion: str = ""


@attrs.frozen
class Diagnostic:
    code: str
    severity: str
    place: str
    message: str
    notes: tuple[str, ...] = ()


@attrs.frozen
class Step:
    """One visit to one agent. `evidence` are facts on its failure, `tried` what it tried inside."""

    number: int
    agent: str
    attempt: int | None
    state: str
    outcome: str
    failure: str
    reason: str
    seconds: float
    calls: int
    tokens: int
    cost: str
    route: Route | None = None
    evidence: tuple[tuple[str, str], ...] = ()
    log: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    tried: tuple[str, ...] = ()
    made: tuple[Call, ...] = ()


@attrs.frozen
class Trace:
    """What the agents did. `loose` are calls of a step that did not end."""

    steps: tuple[Step, ...]
    totals: tuple[tuple[str, str], ...]
    loose: tuple[Call, ...] = ()
    note: str = ""


@attrs.frozen
class Page:
    """The whole report. `state` is that of the headline, `conclusion` one sentence."""

    title: str
    state: str
    word: str
    conclusion: str
    facts: tuple[tuple[str, str], ...]
    verdicts: tuple[Verdict, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    not_measured: str = ""
    code: Code | None = None
    trace: Trace | None = None
    files: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
