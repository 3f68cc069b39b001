"""From a verdict's JSON (`sketchc verify --json`, `verdict.json` of a run) to what a page shows."""

from __future__ import annotations

import math
import shlex

import attrs

from sketchc.runtime.report.content import (
    FAILED,
    OPEN,
    PASSED,
    SKIPPED,
    Case,
    Failure,
    FirstWrong,
    Output,
    Verdict,
)
from sketchc.runtime.report.fields import Fields, number
from sketchc.runtime.report.text import clean, clean_line
from sketchc.runtime.verify.evidence import clean_log
from sketchc.runtime.verify.verdict import FAILURES
from sketchc.runtime.verify.words import INCOMPLETE

#: Cases that a page shows, and failures with all their evidence.
MOST_CASES = 400
MOST_FAILURES = 12
#: Characters of a log that are looked at for its excerpt.
_LOOKED_AT = 200_000
#: What `sketchc verify` gives each run, and further cases, in seconds, where nothing is said.
_TIMEOUT = 300.0
_BUDGET = 120.0

#: How sure it is who is wrong, from what the interpreter showed on the failing case.
_BLAME = {
    "design": ("the sketch", "the sketch itself, interpreted, differs from the task on this case"),
    "infrastructure": ("", "the machinery failed, which says nothing about sketch or code"),
}
_OF_CODE = ("syntax", "api_misuse", "compile", "launch", "policy")


@attrs.frozen
class Reproduce:
    """How to run a verification again: `file` is what is verified, `signature` the sketch that a
    kernel by others (`foreign`) goes with, where it is another file than the verdict names."""

    file: str
    signature: str = ""
    foreign: bool = False

    def command(self, data: Fields) -> str:
        """The command line; "" where the verdict does not name its task."""
        asked = data.within("asked")
        task, target = _word(asked.raw("task") or data.raw("task")), data.text("target")
        if not task or not target:
            return ""
        words = ["sketchc", "verify", _word(self.file), "--task", task, "--target", target]
        words += _option("--hardware", data.text("hardware"))
        if self.foreign:
            words += _option("--entry", data.within("kernel").text("entry"))
            words += _option("--signature", _word(self.signature or asked.raw("signature")))
        words += _option("--sketch", asked.text("sketch"))
        words += _option("--seed", data.text("seed"))
        # A verdict of an older version says which constants there were, not which were asked for.
        given = (
            asked
            if asked.mapping
            else Fields({"set": None if self.foreign else data.raw("constants")})
        )
        for name, value in sorted(given.within("set").mapping.items()):
            words += ["--set", f"{clean_line(name)}={_number(value)}"]
        return shlex.join(words + _limits(asked))


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else []


def _limits(asked: Fields) -> list[str]:
    """The bounds on time that are not those of `sketchc verify` itself."""
    found = []
    run, task = asked.number("timeout"), asked.number("task_timeout")
    if run is not None and run != _TIMEOUT:
        found += ["--timeout", f"{run!r}"]
    if task is not None and task != max(run or _TIMEOUT, _TIMEOUT):
        found += ["--task-timeout", f"{task!r}"]
    budget = asked.number("budget")
    if budget is not None and budget != _BUDGET:
        found += ["--budget", f"{budget!r}"]
    return found


def _word(value: object) -> str:
    """A path as it is, as far as it can be shown in one line."""
    return clean(value).replace("\n", " ") if isinstance(value, str) else ""


def _number(value: object) -> str:
    """A value of `--set` with all its digits."""
    return str(value).lower() if isinstance(value, bool) else clean_line(value)


def verdict_of(data: Fields, reproduce: Reproduce | None = None) -> Verdict:
    """The verdict that a JSON object holds."""
    cases = tuple(
        _case(number, case) for number, case in enumerate(data.each("cases")[:MOST_CASES], 1)
    )
    failed = [case for case in cases if case.state == FAILED]
    raw = data.each("cases")
    failures = tuple(
        _failure(case, raw[case.number - 1], data.text("sketch")) for case in failed[:MOST_FAILURES]
    )
    notes = [f"{note}" for note in data.texts("notes")]
    if len(raw) > MOST_CASES:
        notes.append(f"{len(raw) - MOST_CASES:,} more cases are in the JSON")
    passed = data.truth("passed")
    if passed is None:
        passed = not failed and any(case.state == PASSED for case in cases)
    state = PASSED if passed else FAILED
    if data.text("verdict") == INCOMPLETE:
        state = OPEN
    notes += [f"not reached: {gap}" for gap in data.texts("unreached")]
    return Verdict(
        title=data.text("sketch") or "kernel",
        task=data.text("task"),
        target=data.text("target"),
        hardware=data.text("hardware"),
        how_it_runs=data.text("how_it_runs"),
        seed=data.text("seed"),
        state=state,
        failure=data.text("failure") or (failed[0].failure if failed else ""),
        cases=cases,
        failures=failures,
        notes=tuple(notes),
        versions=data.pairs("versions"),
        constants=data.pairs("constants"),
        params=data.pairs("params"),
        reproduce="" if reproduce is None else reproduce.command(data),
    )


def sizes_text(symbols: Fields) -> str:
    """`M=3, N=31`; "fixed" without symbols."""
    return ", ".join(f"{name}={value}" for name, value in symbols.entries()) or "fixed"


def _case(place: int, data: Fields) -> Case:
    shape, failure = data.within("shape"), data.text("failure")
    sizes = sizes_text(shape.within("symbols"))
    if absent := shape.texts("absent"):
        sizes += f", without {', '.join(absent)}"
    return Case(
        number=place,
        state=SKIPPED if failure == "skipped" else FAILED if failure else PASSED,
        failure=failure,
        sizes=sizes,
        own=shape.truth("own") is True,
        kind=data.text("kind"),
        seed=data.text("seed"),
        reason=data.text("reason"),
        seconds=data.number("seconds"),
        runs=data.integer("runs"),
        outputs=tuple(output_of(one) for one in data.each("comparisons")),
    )


def output_of(data: Fields) -> Output:
    """One comparison."""
    paper = data.within("paper")
    tau, fraction = paper.number("tau"), paper.number("fraction")
    said = ""
    if tau is not None and fraction is not None:
        said = f"{'accepts' if fraction <= tau else 'rejects'}: {100 * fraction:.3g} % over {tau:g}"
    return Output(
        name=data.text("name"),
        failure=data.text("failure"),
        reason=data.text("reason"),
        elements=data.integer("elements"),
        wrong=data.integer("wrong"),
        worst=data.number("worst"),
        max_error=data.number("max_error"),
        max_relative_error=data.number("max_relative_error"),
        rtol=data.number("rtol"),
        atol=data.number("atol"),
        paper=said,
        first=_first(data),
        relaxed=tuple(_relaxed(one) for one in data.each("waivers")),
    )


def _relaxed(data: Fields) -> str:
    """Elements that pass although they break the rule."""
    index = data.raw("index")
    places = ", ".join(str(i) for i in index) if isinstance(index, list) else ""
    allowed = data.number("allowed")
    bound = f", allowed {allowed:.2g}" if allowed is not None and math.isfinite(allowed) else ""
    error = data.number("error")
    off = "" if error is None else f" (off by {error:.2g}{bound})"
    return clean(
        f"{data.text('count')} pass: {data.text('why')}; furthest off: [{places}] is "
        f"{_value(data.raw('actual'))}, the reference {_value(data.raw('expected'))}{off}"
    )


def _first(data: Fields) -> FirstWrong | None:
    first = data.within("first")
    if not first.mapping:
        return None
    expected, actual = first.number("expected"), first.number("actual")
    difference = allowed = None
    rtol, atol = data.number("rtol"), data.number("atol")
    if expected is not None and actual is not None:
        difference = abs(actual - expected)
        if rtol and atol is not None and math.isfinite(difference):
            allowed = atol + rtol * abs(expected)
    index = first.raw("index")
    places = index if isinstance(index, list) else []
    return FirstWrong(
        output=data.text("name"),
        index=", ".join(str(place) for place in places if isinstance(place, int)),
        expected=_value(first.raw("expected")),
        actual=_value(first.raw("actual")),
        difference=difference if difference is None or math.isfinite(difference) else None,
        allowed=allowed,
    )


def _value(value: object) -> str:
    """An element, with as many digits as tell neighbours in f32 apart."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}"[:60]
    found = number(value)
    return "?" if found is None else f"{found:.9g}"


def _failure(case: Case, data: Fields, sketch: str) -> Failure:
    log = data.long_text("log")
    blame, why = _blame(case.failure, data.truth("sketch_right"), data.truth("code_as_sketch"))
    if not blame and (undecided := data.text("undecided")):
        why = f"undecided: {undecided}"
    excerpt = "\n".join(clean_log(log[:_LOOKED_AT], sketch)) if log.strip() else ""
    return Failure(
        case=case,
        meaning=FAILURES.get(case.failure, "a class that this version of sketchc does not know"),
        blame=blame,
        why=why,
        excerpt=clean(excerpt),
        log=clean(log).strip("\n"),
        log_length=len(log),
    )


def _blame(failure: str, sketch_right: bool | None, code_as_sketch: bool | None) -> tuple[str, str]:
    """Who is wrong, and how that is known; ("", why not) where it is not."""
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
