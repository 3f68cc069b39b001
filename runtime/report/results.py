"""Verdicts and measurements on a page: read from their JSON (`sketchc verify --json`,
`sketchc bench --json`, `verdict.json` of a run), and put into words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from sketchc.base.json_form import number
from sketchc.runtime.bench import text as measurements
from sketchc.runtime.bench.measurement import Baseline, Measurement
from sketchc.runtime.report.content import Contender, Failure, Measured, Verified
from sketchc.runtime.report.steps import OPEN
from sketchc.runtime.report.text import sanitised, sanitised_line
from sketchc.runtime.verify.compare import PaperRule, Waiver
from sketchc.runtime.verify.evidence import clean_log
from sketchc.runtime.verify.verdict import FAILURES, CaseResult, Verdict, from_json
from sketchc.runtime.verify.words import FAILED, PASSED, sizes_text

#: The most cases that a page shows, and the most failures that it shows with all their evidence.
MOST_CASES = 400
MOST_FAILURES = 12
#: Characters of a log from which its excerpt is made.
_LOOKED_AT = 200_000
#: The defaults of `sketchc verify`: seconds for each run, and for further cases.
_TIMEOUT = 300.0
_BUDGET = 120.0

#: What is to blame, and why, by class of failure: for classes that determine it by themselves.
_BLAME = {
    "design": ("the sketch", "the sketch itself, interpreted, differs from the task on this case"),
    "infrastructure": ("", "the machinery failed, which says nothing about sketch or code"),
}
_OF_CODE = ("syntax", "api_misuse", "compile", "launch", "policy")


@attrs.frozen
class Reproduce:
    """How to run a verification again: `file` is the file to verify, `signature` the file of the
    sketch that a kernel by others (`foreign`) is called by, if not the one that the verdict names.
    """

    file: str
    signature: str = ""
    foreign: bool = False

    def command(self, verdict: Verdict) -> str:
        """The command line; "" where the verdict does not name its task."""
        asked = verdict.asked
        task, target = _word(asked.get("task") or verdict.task), sanitised_line(verdict.target)
        if not task or not target:
            return ""
        words = ["sketchc", "verify", _word(self.file), "--task", task, "--target", target]
        words += _option("--hardware", sanitised_line(verdict.hardware))
        if self.foreign:
            words += _option("--entry", sanitised_line(verdict.kernel.get("entry", "")))
            words += _option("--signature", _word(self.signature or asked.get("signature")))
        words += _option("--sketch", sanitised_line(asked.get("sketch") or ""))
        words += ["--seed", str(verdict.seed)]
        # A verdict of an older version has only the constants' values, not those of `--set`.
        given = asked.get("set") if asked else None if self.foreign else verdict.constants
        for name, value in sorted(given.items()) if isinstance(given, Mapping) else ():
            words += ["--set", f"{sanitised_line(name)}={_number(value)}"]
        return shlex.join(words + _limits(asked))


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else []


def _limits(asked: Mapping[str, Any]) -> list[str]:
    """The options for time limits that are not the defaults of `sketchc verify`."""
    run, task, budget = (number(asked.get(n)) for n in ("timeout", "task_timeout", "budget"))
    found = []
    for option, value, usual in (
        ("--timeout", run, _TIMEOUT),
        ("--task-timeout", task, max(run or _TIMEOUT, _TIMEOUT)),
        ("--budget", budget, _BUDGET),
    ):
        if value is not None and value != usual:
            found += [option, f"{value!r}"]
    return found


def _word(value: object) -> str:
    """A path, cleaned so that it can be shown in one line; "" for other values."""
    return sanitised(value).replace("\n", " ") if isinstance(value, str) else ""


def _number(value: object) -> str:
    """A value for `--set`, with all its digits."""
    return str(value).lower() if isinstance(value, bool) else sanitised_line(value)


def verified_of(data: object, reproduce: Reproduce | None = None) -> Verified:
    """The verification read from `data`, a verdict's JSON object."""
    plain = data if isinstance(data, Mapping) else {}
    whole, verdict = from_json(plain), from_json(plain, sanitised_line)
    notes = list(verdict.notes)
    if (more := len(verdict.cases) - MOST_CASES) > 0:
        notes.append(f"{more:,} more cases are in the JSON")
    notes += [f"not reached: {gap}" for gap in verdict.unreached]
    numbered = list(enumerate(verdict.cases[:MOST_CASES], 1))
    failed = [(number, case) for number, case in numbered if case.failed][:MOST_FAILURES]
    return Verified(
        verdict=attrs.evolve(verdict, cases=tuple(case for _, case in numbered)),
        state=OPEN if verdict.incomplete else verdict.word,
        notes=tuple(notes),
        failures=tuple(
            _failure(number, case, whole.cases[number - 1].log, verdict.sketch)
            for number, case in failed
        ),
        reproduce="" if reproduce is None else reproduce.command(whole),
    )


# ---------------------------------------------------------------- words


def pairs(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Names and values as text, without values that are None, objects or lists."""
    plain = {
        name: value
        for name, value in values.items()
        if not isinstance(value, Mapping | list | tuple) and value is not None
    }
    return tuple((sanitised_line(name), _plain(value)) for name, value in plain.items())


def _plain(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return sanitised_line(text.lower() if isinstance(value, bool) else text)


def sizes(case: CaseResult) -> str:
    """The sizes of a case: `M=3, N=31`; "fixed" without symbols."""
    absent = case.shape.absent
    found = sizes_text(case.shape.symbols) or "fixed"
    return f"{found}, without {', '.join(absent)}" if absent else found


def paper(rule: PaperRule | None) -> str:
    """The result of the paper's rule for an output as text; "" where the rule was not applied."""
    if rule is None:
        return ""
    said = "accepts" if rule.passed else "rejects"
    return f"{said}: {100 * rule.fraction:.3g} % over {rule.tau:g}"


def relaxed(verdict: Verdict) -> list[tuple[int, str, str]]:
    """Where elements passed although they break the rule: (number of the case, name of the output,
    sentence)."""
    return [
        (number, output.name, _relaxed(waiver))
        for number, case in enumerate(verdict.cases, 1)
        for output in case.comparisons
        for waiver in output.waivers
    ]


def _relaxed(waiver: Waiver) -> str:
    bound = f", allowed {waiver.allowed:.2g}" if math.isfinite(waiver.allowed) else ""
    return (
        f"{waiver.count} pass: {waiver.why}; furthest off: [{place(waiver.index)}] is "
        f"{element(waiver.actual)}, the reference {element(waiver.expected)} "
        f"(off by {waiver.error:.2g}{bound})"
    )


def place(index: Sequence[int]) -> str:
    """An index as text."""
    return ", ".join(map(str, index))


def element(value: float | int) -> str:
    """An element as text, with enough digits to distinguish neighbouring f32 numbers."""
    return f"{value}"[:60] if isinstance(value, int) else f"{value:.9g}"


# ---------------------------------------------------------------- failures


def _failure(number: int, case: CaseResult, log: str, sketch: str) -> Failure:
    blame, why = _blame(case.failure, case.sketch_right, case.code_as_sketch)
    if not blame and case.undecided:
        why = f"undecided: {case.undecided}"
    excerpt = "\n".join(clean_log(log[:_LOOKED_AT], sketch)) if log.strip() else ""
    return Failure(
        number=number,
        case=case,
        meaning=FAILURES.get(case.failure, "a class that this version of sketchc does not know"),
        blame=blame,
        why=why,
        excerpt=sanitised(excerpt),
        log=sanitised(log).strip("\n"),
        log_length=len(log),
    )


def _blame(failure: str, sketch_right: bool | None, code_as_sketch: bool | None) -> tuple[str, str]:
    """What is wrong, "the sketch" or "the code", and how that is known; ("", why not) where it is
    not known."""
    if failure in _BLAME:
        return _BLAME[failure]
    if sketch_right is False:
        also = ", and the code differs from the sketch as well" if code_as_sketch is False else ""
        return "the sketch", f"interpreted, it differs from the task on this case{also}"
    if sketch_right is True:
        return (
            "the code",
            "the sketch, interpreted, equals the task on this case, so the code does not do what "
            "the sketch says",
        )
    if failure in _OF_CODE:
        return "the code", "it was not accepted, whatever the sketch means"
    if code_as_sketch is False:
        return "the code", "it differs from the sketch's own interpretation"
    return "", "nobody asked the interpreter on this case"


#: Names of contenders; any other is shown by its own name.
_NAMES = {"eager": "PyTorch eager", "compile": "torch.compile", "kernel": "sketchc kernel"}
#: Keys of a measurement's JSON whose values are shown beside its params.
_FACTS = ("input_sets", "cold", "device")


def measured_of(data: Mapping[str, Any]) -> Measured:
    """The measurement read from `data`, its JSON object."""
    read = measurements.from_json
    whole, found = read(data), read(data, sanitised_line)
    few = ["too few samples for a firm median"] if data.get("too_few") is True else []
    shown = {name: data[name] for name in _FACTS if data.get(name) is not None}
    bandwidth = _positive(found.machine.bandwidth)
    contenders = [_contender(found, baseline, bandwidth) for baseline in found.baselines.values()]
    if "kernel" in found.samples:
        contenders.append(_contender(found, None, bandwidth))
    return Measured(
        measurement=attrs.evolve(found, sketch_text=whole.sketch_text, source=whole.source),
        state=FAILED if data.get("passed") is False else PASSED,
        contenders=tuple(contenders),
        bandwidth=bandwidth,
        peak=_positive(found.machine.peaks.get(found.precision.name)),
        notes=(*found.notes, *few),
        facts=(
            *pairs(found.params),
            *((name.replace("_", " "), value) for name, value in pairs(shown)),
        ),
    )


def _positive(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None


def _contender(found: Measurement, baseline: Baseline | None, memory: float | None) -> Contender:
    """One contender of the measurement `found`: `baseline`, or the kernel where that is None.
    `memory` is the memory's bandwidth."""
    key = "kernel" if baseline is None else baseline.name
    side = found if baseline is None else baseline
    times = found.kernel if baseline is None else baseline.times
    there = times.median > 0
    bandwidth = found.bytes / times.median if found.bytes and there else None
    share = None if math.isnan(side.roofline) else side.roofline
    if share is None and bandwidth and memory:
        share = bandwidth / memory
    contender = Contender(
        key=key,
        name=_NAMES.get(key, key.replace("_", " ")),
        samples=found.samples[key],
        times=times,
        bandwidth=bandwidth,
        rate=found.flops / times.median if found.flops and there else None,
        share=share,
        precision=found.precision.name if baseline is None else baseline.precision,
    )
    if baseline is None or "kernel" not in found.samples:
        return contender
    why = f": it computes in {baseline.precision}" if baseline.precision else ""
    why = ": it only makes a view, and computes nothing" if baseline.idle else why
    withheld = f"No speedup over {contender.name} is quoted{why}"
    gain = baseline.speedup
    return attrs.evolve(contender, gain=gain, withheld="" if gain else withheld)


def measured_at(measured: Measured) -> str:
    """The sizes that a kernel was measured at; "fixed" without symbols."""
    return sizes_text(measured.measurement.symbols) or "fixed"


def machine(measured: Measured) -> str:
    """The name of the machine, with the number of threads if known."""
    found = measured.measurement.machine
    return found.name + (f", {found.threads} threads" if found.threads else "")
