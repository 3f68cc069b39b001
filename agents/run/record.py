"""A run as data: what its `trace.json` holds. SUMMARY.md, the page of `sketchc report` and the
counts of suites are written from the same record, made of the run's last state or read again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.client import Spend
from sketchc.agents.state.state import RunState, Step
from sketchc.base.json_form import from_plain, number, to_plain
from sketchc.runtime.process.venvs import installed
from sketchc.runtime.verify.verdict import from_json

if TYPE_CHECKING:
    from sketchc.agents.run.run import RunOptions

#: Version of verdict.json and trace.json; raised with each change that an older reader misreads.
VERSION = 1


@attrs.frozen
class RunRecord:
    """What was asked, each step, each route, and how the run ended. `outcome` is "stopped" where it
    came to no end; `reason` then says why. `verdict` is without its cases, which are in
    verdict.json."""

    version: int
    outcome: str
    reason: str
    task: str
    target: str
    hardware: str
    workflow: str
    coder: str
    seed: int | None
    options: Mapping[str, Any]
    attempts: int
    steps: tuple[Step, ...]
    routes: tuple[Mapping[str, Any], ...]
    totals: Spend | None
    verdict: Mapping[str, Any] | None
    versions: Mapping[str, str]
    files: tuple[str, ...]

    @property
    def stopped(self) -> str:
        """Why the run stopped before an end; "" where it reached one."""
        return self.reason if self.outcome == "stopped" else ""

    @property
    def used(self) -> Spend:
        """The calls, tokens and costs of the run; all zero while the run goes on."""
        return self.totals or Spend()


@attrs.frozen
class RunVerdict:
    """What `verdict.json` holds: how the run ended, the whole verdict, and the measurement (why
    there is none: "not_measured"); neither where nothing was verified."""

    version: int
    outcome: str
    reason: str
    verdict: Mapping[str, Any] | None
    measurement: Mapping[str, Any] | None

    @property
    def gain(self) -> float | None:
        """The speedup over eager, of the medians; None where there is none."""
        found = (self.measurement or {}).get("speedup")
        return number(found.get("of_medians")) if isinstance(found, Mapping) else None

    @property
    def sol_score(self) -> float | None:
        """The measurement's `sol_score`; None where there is none."""
        return number((self.measurement or {}).get("sol_score"))


def run_verdict(state: RunState, stopped: str = "") -> RunVerdict:
    """What verdict.json holds of a run's last state."""
    ended = headline(state, stopped), stopped or state.reason
    return RunVerdict(VERSION, *ended, state.verdict, state.measurement)


def record_text(data: RunRecord | RunVerdict) -> str:
    """The text of trace.json or verdict.json."""
    return json.dumps(to_plain(attrs.asdict(data)), indent=1, ensure_ascii=False) + "\n"


#: What the files of a run are, by their endings.
FILES = {
    ".sketch": "the sketch",
    ".plan": "the plan: the sketch mapped onto the chip",
    ".map.json": "which lines of the kernel come from which lines of the sketch",
    "_dropin.py": "the drop-in module",
    "_task.py": "the task, which the drop-in builds on",
    "_module.cpp": "the glue of the Python module around the kernel",
    ".so": "the kernel as a Python module, for this machine",
    "trace.json": "every step and route, as data",
    "verdict.json": "the verdict and the measurement, as data",
    "SUMMARY.md": "the run in words",
    ".cpp": "the kernel",
    ".cu": "the kernel",
    ".py": "the kernel",
}


def headline(state: RunState, stopped: str) -> str:
    """How the run ended, in a word or two."""
    return "stopped" if stopped else state.outcome or "unfinished"


def recorded(
    options: RunOptions, state: RunState, spend: Spend, stopped: str, files: Sequence[str]
) -> RunRecord:
    """The record of a run: of its options, its last state, and what it used."""
    shared = {name: getattr(options, name) for name in _SHARED}
    return RunRecord(
        **shared,
        version=VERSION,
        outcome=headline(state, stopped),
        reason=stopped or state.reason,
        options=attrs.asdict(options),
        attempts=state.attempt,
        steps=state.history,
        routes=tuple(_route(step) for step in state.history if "route" in step.details),
        totals=attrs.evolve(spend, seconds=round(sum(s.seconds for s in state.history), 3)),
        verdict=_short(state.verdict),
        versions=versions(state),
        files=tuple(files),
    )


#: The options that are fields of a record, too.
_SHARED = ("task", "target", "hardware", "workflow", "coder", "seed")


def _route(step: Step) -> dict[str, Any]:
    """One decision of the Conductor."""
    return {
        "step": step.number,
        "attempt": step.attempt,
        "failure": step.failure,
        "outcome": step.outcome,
        "decided_by": step.details.get("decided_by", "evidence"),
        **step.details["route"],
    }


def _short(verdict: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The verdict without its cases, which are in verdict.json."""
    if verdict is None:
        return None
    found = from_json(verdict)
    return {
        "verdict": found.word,
        "passed": found.passed,
        "failure": found.failure,
        "cases": len(found.cases),
        "passed_cases": sum(case.passed for case in found.cases),
        "how_it_runs": found.how_it_runs,
    }


def versions(state: RunState) -> dict[str, str]:
    """The versions of Python, sketchc, PyTorch and what else the verdict was made with."""
    found = {"python": sys.version.split()[0], **installed("sketchc", "torch")}
    return found | dict((state.verdict or {}).get("versions", {}))


# ---------------------------------------------------------------- what agents say of their steps


@attrs.frozen
class Route:
    """One decision of the Conductor: who gets the work, and what a model advised."""

    agent: str = "nobody"
    decided_by: str = "evidence"
    certain: bool = True
    reason: str = ""
    diagnosis: str = ""
    suggestion: str = ""


@attrs.frozen
class Diagnostic:
    """What is wrong with a sketch, as an agent was told; `line` 0 is none."""

    code: str
    message: str
    severity: str = "error"
    line: int = 0
    text: str = ""
    notes: tuple[str, ...] = ()
    help: str = ""


@attrs.frozen
class FailedCase:
    """The case that failed first: its sizes, and its kind of inputs."""

    sizes: Mapping[str, float | int | str]
    inputs: str
    inputs_are: str


@attrs.frozen
class FirstWrong:
    """The first wrong element of an output; values as text, where they are no numbers."""

    index: tuple[int, ...]
    expected: float | int | str
    actual: float | int | str
    error: float | int | str = ""
    allowed: float | int | str = ""


@attrs.frozen
class Tried:
    """One sketch that the Designer tried, and the stage that it came to."""

    number: int
    stage: str
    codes: tuple[str, ...]
    summary: str


@attrs.frozen
class Evidence:
    """The facts of a failure, in the words of docs/VERIFICATION.md: of a kernel, or the diagnostics
    of a sketch (of which `not_shown` more were not passed on)."""

    meaning: str
    reason: str
    case: FailedCase | None
    output: str
    elements: int | None
    wrong: int | None
    first_wrong: FirstWrong | None
    sketch_right: bool | None
    code_as_sketch: bool | None
    undecided: str
    diagnostics: tuple[Diagnostic, ...]
    not_shown: int
    log: tuple[Any, ...]


@attrs.frozen
class Details:
    """What stands beside a step in the trace: who wrote a kernel (`origin`), what a Designer
    tried, what is known of a failure, and what the Conductor decided."""

    origin: str
    attempts: tuple[Tried, ...]
    evidence: Evidence
    route: Route | None


def details_of(step: Step, text: Callable[[str], str] = str) -> Details:
    """What is said beside a step; each text goes through `text`."""
    given = step.details
    route = given.get("route")
    if isinstance(route, Mapping) and route:
        advice = given.get("advice")
        said = advice if isinstance(advice, Mapping) else {}
        route = {**said, **route, "decided_by": given.get("decided_by")}
    return from_plain(Details, {**given, "route": route or None}, text=text)
