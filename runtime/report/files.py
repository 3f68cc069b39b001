"""Reads the JSON files that commands printed into the contents of a page.

`sketchc verify --json` and `sketchc bench --json` print one object each; several files, and files
with lists or mappings of such objects, are joined on one page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.runtime.bench.measurement import Measurement
from sketchc.runtime.bench.text import is_measurement
from sketchc.runtime.report.content import Code, Measured, Page, Verified
from sketchc.runtime.report.results import Reproduce, machine, measured_of, pairs, verified_of
from sketchc.runtime.report.steps import OPEN
from sketchc.runtime.report.text import sanitised_line, times
from sketchc.runtime.verify.verdict import Verdict, from_json
from sketchc.runtime.verify.words import FAILED, PASSED, SKIPPED, sizes_text

#: The most bytes of a file that is read: far more than any command prints.
_LARGEST = 256 << 20
#: The most verdicts and measurements that are shown of one file.
MOST = 60
_WHAT = "a report is made of the JSON of `sketchc verify --json` or `sketchc bench --json`, or of "
_WHAT += "a folder that `sketchc gen` left"


@attrs.frozen
class Result:
    """The JSON of one verdict or measurement, and how to run a verification again."""

    data: Mapping[str, Any]
    reproduce: Reproduce | None = None


def read_json(path: Path) -> Any:
    """The parsed contents of a JSON file. Raises `UsageError`, with one line, for a file that
    cannot be read, is too large, or is no JSON."""
    try:
        if path.stat().st_size > _LARGEST:
            refuse(
                f"{path} is larger than {_LARGEST >> 20} MiB, which no command of sketchc prints"
            )
        return json.loads(path.read_bytes())
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror or error}", error)
    except (ValueError, RecursionError) as error:
        why = sanitised_line(error, 120)
        refuse(f"{path} holds no JSON ({why}); {_WHAT}", error)


def is_verdict(data: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the form that `sketchc verify --json` prints."""
    return isinstance(data.get("cases"), list) and "passed" in data


def found_in(data: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The verdicts and measurements in `data`, in order: `data` may be one of them, or a list or
    mapping of them, nested up to three deep."""
    if isinstance(data, Mapping) and (is_verdict(data) or is_measurement(data)):
        yield data
    elif depth <= 2 and isinstance(data, Mapping | list):
        for item in data.values() if isinstance(data, Mapping) else data:
            yield from found_in(item, depth + 1)


def results_in(paths: Sequence[Path], sketch: str = "") -> tuple[list[Result], list[str]]:
    """The verdicts and measurements in the files, in order, and notes on those that are left out.
    `sketch` is the file to name in commands that repeat a verification where the JSON names none.
    Raises `UsageError` for a file that holds neither verdict nor measurement."""
    results: list[Result] = []
    notes: list[str] = []
    for path in paths:
        found = list(found_in(read_json(path)))
        if not found:
            refuse(f"{path} holds no verdict and no measurement; {_WHAT}")
        if len(found) > MOST:
            notes.append(f"{sanitised_line(path)}: {len(found) - MOST} more are not shown")
        results += [Result(data, _reproduce(data, sketch)) for data in found[:MOST]]
    return results, notes


def _reproduce(data: Mapping[str, Any], sketch: str) -> Reproduce | None:
    if not is_verdict(data):
        return None
    kernel = from_json(data).kernel
    return Reproduce(
        str(kernel.get("path") or sketch or "FILE"), foreign=bool(kernel.get("foreign"))
    )


def page_of(results: Sequence[Result], code: Code | None = None, notes: Sequence[str] = ()) -> Page:
    """One page with all `results`, the listings `code`, and `notes`."""
    verdicts = [verified_of(one.data, one.reproduce) for one in results if is_verdict(one.data)]
    measurements = [measured_of(one.data) for one in results if not is_verdict(one.data)]
    states = {*(one.state for one in verdicts), *(one.state for one in measurements)}
    wrong = FAILED in states
    word, state = "passed" if verdicts else "measured", PASSED
    if OPEN in states:
        word, state = "incomplete", OPEN
    subjects = [(one.title, one.verdict.target) for one in verdicts]
    subjects += [(one.title, one.measurement.target) for one in measurements]
    names = list(dict.fromkeys(f"{title} for {target}" for title, target in subjects))
    return Page(
        title=names[0] if len(names) == 1 else f"{len(names)} kernels",
        state=FAILED if wrong else state,
        word="failed" if wrong else word,
        conclusion=conclusion(verdicts, measurements),
        facts=facts_of(verdicts, measurements),
        verdicts=tuple(verdicts),
        measurements=tuple(measurements),
        code=code,
        versions=versions_of(verdicts),
        notes=tuple(notes),
    )


def conclusion(verdicts: Sequence[Verified], measurements: Sequence[Measured]) -> str:
    """One sentence that summarises the verdicts and measurements."""
    said = []
    if len(verdicts) == 1:
        one = verdicts[0]
        skipped, wrong = one.count(SKIPPED), one.state == FAILED
        said.append(
            f"{one.count(PASSED)} of {len(one.verdict.cases) - skipped} cases passed"
            + (f", {skipped} were skipped" if skipped else "")
            + ("; not all was reached" if one.state == OPEN else "")
            + (f"; the first failure is {one.verdict.failure.replace('_', ' ')}" if wrong else "")
        )
    elif verdicts:
        right = sum(one.state == PASSED for one in verdicts)
        unknown = sum(one.state == OPEN for one in verdicts)
        beside = f", {unknown} incomplete" if unknown else ""
        said.append(f"{right} of {len(verdicts)} kernels are right{beside}")
    if len(measurements) == 1:
        said.append(" and ".join(_speedups(measurements[0])) or "no speedup is quoted")
    elif measurements:
        said.append(f"{len(measurements)} measurements")
    return "; ".join(said)


def facts_of(
    verdicts: Sequence[Verified], measurements: Sequence[Measured]
) -> tuple[tuple[str, str], ...]:
    """(name, value) of the facts below the headline; where verdicts and measurements differ, the
    first values and how many more there are."""
    found = [one.verdict for one in verdicts]
    of_all: list[Verdict | Measurement] = [*found, *(one.measurement for one in measurements)]
    rows = [
        ("task", [one.task for one in of_all]),
        ("target", [one.target for one in of_all]),
        ("chip", [one.hardware for one in of_all]),
        ("runs", [one.how_it_runs for one in found]),
        ("machine", [machine(one) for one in measurements]),
        (
            "seed",
            [str(one.seed) for one in found]
            + [str(one.measurement.settings.seed) for one in measurements],
        ),
        ("constants", [sizes_text(dict(pairs(one.constants))) for one in found]),
    ]
    if len(measurements) == 1:
        rows.append(("speedup", [", ".join(_speedups(measurements[0]))]))
    shown = [(name, _few(list(dict.fromkeys(v for v in values if v)))) for name, values in rows]
    return tuple((name, value) for name, value in shown if value)


def _few(values: list[str]) -> str:
    """The first three values as text, and how many more there are."""
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(values[:3]) + more


def _speedups(measured: Measured) -> list[str]:
    return [f"{times(gain.of_medians)} of {name}" for name, gain in measured.gains]


def versions_of(verdicts: Sequence[Verified]) -> tuple[tuple[str, str], ...]:
    """(name, version) of all verdicts' environments, each pair once."""
    return tuple(dict.fromkeys(pair for one in verdicts for pair in pairs(one.verdict.versions)))
