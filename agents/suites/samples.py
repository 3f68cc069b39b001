"""What is known of one sample of a suite: one run of `gen` on one task, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from sketchc.agents.run.record import RunRecord, RunVerdict
from sketchc.agents.suites.bounded import Ended
from sketchc.base.diagnostics import UsageError
from sketchc.base.json_form import from_plain
from sketchc.runtime.report.files import read_json
from sketchc.runtime.report.text import sanitised_line
from sketchc.runtime.verify.verdict import from_json
from sketchc.runtime.verify.words import INCOMPLETE, PASSED, SKIPPED

Data = TypeVar("Data")

BROKEN, CRASHED, STOPPED = "broken", "crashed", "stopped"
#: Outcomes after which the same command tries again: nothing was found out about the task.
AGAIN = frozenset({BROKEN, STOPPED})
#: What the names of shape cases at a task's own sizes begin with.
_OWN = "own sizes"
#: Exit statuses with which `gen` leaves its outputs behind.
_WRITTEN = (0, 1, 3)


@attrs.frozen
class Sample:
    """One run of `gen`. `outcome` is its own word ("passed", "incomplete", "rejected", "failed",
    ...), or "timeout", "memory", "crashed", or "broken" where nothing could be started.

    `static`: the kernel is right at the task's sizes, which are the `own` ones where the task did
    not have to be scaled down. `shapes` are the cases at other sizes that ran, of which
    `shapes_passed` passed. `speedup` is over eager, of the medians, and `sol_score` that
    of `bench`; None where nothing was measured. `digest` is of the task's file.
    """

    task: str
    number: int
    digest: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    peak: int = 0
    static: bool = False
    own: bool = False
    shapes: int = 0
    shapes_passed: int = 0
    speedup: float | None = None
    sol_score: float | None = None
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    sketch_lines: int = 0

    @property
    def passed(self) -> bool:
        """Whether the kernel is right."""
        return self.outcome == PASSED

    @property
    def incomplete(self) -> bool:
        """Whether nothing is known to be wrong, and not all was reached."""
        return self.outcome == INCOMPLETE


def read_sample(folder: Path, ended: Ended, task: str, number: int, digest: str) -> Sample:
    """The sample of a process that has ended, by what it left in its folder."""
    record = None
    if not ended.cut and ended.status in _WRITTEN:
        record = _json(folder / "trace.json", RunRecord)
    found = Sample(
        *(task, number, digest, *_outcome(record, ended)),
        seconds=round(ended.seconds, 1),
        peak=ended.peak,
    )
    if record is None:
        return found
    used = record.used
    result = _json(folder / "verdict.json", RunVerdict)
    sketches = [path.read_text("utf-8") for path in folder.glob("*.sketch")]
    return attrs.evolve(
        found,
        **_shapes(result.verdict or {}),
        speedup=result.gain,
        sol_score=result.sol_score,
        calls=used.calls,
        tokens=used.input_tokens + used.output_tokens,
        cost=used.cost,
        sketch_lines=sum(text.count("\n") for text in sketches),
    )


def _outcome(record: RunRecord | None, ended: Ended) -> tuple[str, str]:
    """The outcome, and why. There is a `record` where the run has come to its end."""
    if ended.cut:
        held = f"{ended.peak / 2**30:.1f} GiB in use"
        return ended.cut, f"ended by the suite after {ended.seconds:.0f} s with {held}"
    if record is not None:
        return record.outcome or CRASHED, record.reason
    lines = [line.strip() for line in ended.printed.split("\n") if line.strip()]
    if ended.status == 2:
        said = next((line for line in reversed(lines) if line.startswith("error: ")), "")
        return BROKEN, said.removeprefix("error: ") or "the command was refused"
    return CRASHED, f"status {ended.status}: {lines[-1] if lines else 'it printed nothing'}"


def _json(path: Path, kind: type[Data]) -> Data:
    """The data of a JSON file of the run; without any fields where it cannot be read."""
    try:
        data = read_json(path)
    except UsageError:
        data = {}
    return from_plain(kind, data, text=sanitised_line)


def _shapes(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a verdict says of the task's own sizes, and of others."""
    ran = [case for case in from_json(data).cases if case.state != SKIPPED]
    own = [case for case in ran if case.shape.name.startswith(_OWN)]
    others = [case for case in ran if not case.shape.name.startswith(_OWN)]
    return {
        "static": bool(own) and all(case.passed for case in own),
        "own": any(case.shape.own for case in own),
        "shapes": len(others),
        "shapes_passed": sum(case.passed for case in others),
    }
