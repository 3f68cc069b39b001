"""A verdict as text for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.runtime.verify.compare import Waiver
from sketchc.runtime.verify.verdict import FAILURES, CaseResult, Verdict
from sketchc.runtime.verify.words import UNBUILT

#: Relaxations that are printed one by one.
_MOST_RELAXED = 6
#: Values of one name that are printed.
_MOST_TRIED = 16


def show(verdict: Verdict, console: Console) -> None:
    """Print the table of cases, the evidence of the first failure, and the verdict in one line."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(
        f"[bold]{escape(_subject(verdict))}[/bold] for {verdict.target} ({verdict.hardware}) "
        f"against {escape(verdict.task)}; runs: {escape(verdict.how_it_runs)}"
    )
    for note in verdict.notes:
        say(f"note: {escape(note)}")
    if verdict.cases:
        console.print(_table(verdict))
    if verdict.failures:
        for line in _evidence(verdict.failures[0]):
            say(line)
    for line in (*relaxed(verdict), *tried(verdict)):
        say(escape(line))
    skipped = [case for case in verdict.cases if case.failure == "skipped"]
    for case in skipped[:3]:
        console.print(f"skipped {case.shape.text}: {escape(case.reason)}", highlight=False)
    say(summary(verdict))


def _subject(verdict: Verdict) -> str:
    """The sketch's name; of a kernel that somebody else wrote, its file and entry point."""
    kernel = verdict.kernel
    if kernel.get("foreign") and kernel.get("path"):
        return f"{kernel['path']}: {kernel['entry']}"
    return verdict.sketch


def summary(verdict: Verdict) -> str:
    """The verdict in one line."""
    ran = [case for case in verdict.cases if case.failure != "skipped"]
    if verdict.passed:
        worst = max((c.worst for case in ran for c in case.comparisons), default=0.0)
        waived = sum(c.waived for case in ran for c in case.comparisons)
        within = "every element within tolerance"
        if waived:
            within = f"all but {_elements(waived)} within tolerance, these by a relaxed rule"
        return (
            f"passed: {len(ran)} cases, {within} "
            f"(largest error {worst:.2g} of what is allowed), seed {verdict.seed}"
        )
    if verdict.word == UNBUILT:
        return f"{UNBUILT}: {verdict.unbuilt}"
    if verdict.incomplete:
        right = f"{len(ran)} cases are right, seed {verdict.seed}" if ran else "no case ran"
        return f"incomplete: {right}, but this was not reached: {'; '.join(verdict.gaps)}"
    return (
        f"failed ({verdict.failure}: {FAILURES.get(verdict.failure, 'see above')}): "
        f"{len(verdict.failures)} of {len(ran)} cases, seed {verdict.seed}"
    )


def tried(verdict: Verdict) -> list[str]:
    """The sizes, numbers, values and branches that the cases without a failure had."""
    found: dict[str, dict[object, None]] = {}
    for case in verdict.cases:
        if case.passed:
            shape = case.shape
            for name, value in {**shape.symbols, **verdict.params, **shape.numbers}.items():
                found.setdefault(name, {})[value] = None
    lines = [f"{name} in {_few(values)}" for name, values in found.items()]
    said = [f"tried: {'; '.join(lines)}"] if lines else []
    if verdict.planted:
        said.append(f"planted, with their neighbours: {_few(verdict.planted)}")
    if verdict.branches:
        said.append(f"branches taken: {'; '.join(verdict.branches)}")
    return said


def _few(values: Iterable[object]) -> str:
    """The first of some values, in ascending order, as text."""
    ordered = sorted(values, key=lambda value: float(value))  # type: ignore[arg-type]
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in ordered]
    more = len(texts) - _MOST_TRIED
    return ", ".join(texts[:_MOST_TRIED]) + (f" and {more} more" if more > 0 else "")


def relaxed(verdict: Verdict) -> list[str]:
    """Where elements passed although they break the rule: how many, why, and the one that is
    furthest off."""
    found = [
        f"relaxed at {case.shape.text} ({case.kind}): {_relaxation(comparison.name, waiver)}"
        for case in verdict.cases
        for comparison in case.comparisons
        for waiver in comparison.waivers
    ]
    more = len(found) - _MOST_RELAXED
    return found[:_MOST_RELAXED] + ([f"... and {more} more, in --json"] if more > 0 else [])


def _relaxation(name: str, waiver: Waiver) -> str:
    """One waiver of the output `name`, as a sentence."""
    index = ", ".join(str(i) for i in waiver.index)
    allowed = f", allowed {waiver.allowed:.2g}" if math.isfinite(waiver.allowed) else ""
    verb = "passes" if waiver.count == 1 else "pass"
    return (
        f"{_elements(waiver.count)} of {name} {verb}: {waiver.why}; furthest off: {name}[{index}] "
        f"is {waiver.actual!r}, the reference {waiver.expected!r} "
        f"(off by {waiver.error:.2g}{allowed})"
    )


def _elements(count: int) -> str:
    return f"{count:,} element" + ("" if count == 1 else "s")


def _table(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("sizes", max_width=44)
    table.add_column("inputs")
    for name in ("K", "max error", "of allowed", "paper's rule"):
        table.add_column(name, justify="right")
    table.add_column("result")
    for case in verdict.cases:
        worst = max(case.comparisons, key=lambda c: c.worst, default=None)
        table.add_row(
            escape(case.shape.text) + (" (own)" if case.shape.own else ""),
            case.drawn_as or case.kind,
            str(case.reduction_length),
            f"{worst.max_error:.2g}" if worst else "",
            f"{worst.worst:.2g}" if worst else "",
            _paper(case),
            _result(case),
        )
    return table


def _result(case: CaseResult) -> str:
    if not case.passed:
        return f"[red]{case.failure}[/red]"
    waived = sum(comparison.waived for comparison in case.comparisons)
    return "[green]passed[/green]" + (f", {waived:,} relaxed" if waived else "")


def _paper(case: CaseResult) -> str:
    rules = [comparison.paper for comparison in case.comparisons if comparison.paper]
    if not rules:
        return ""
    worst = max(rules, key=lambda rule: rule.fraction / rule.tau)
    return "pass" if worst.passed else f"fail ({worst.fraction:.2g} > {worst.tau:g})"


def _evidence(case: CaseResult) -> Iterator[str]:
    kind = case.drawn_as or case.kind
    yield (
        f"first failure at {case.shape.text} ({kind} inputs, seed {case.seed}): "
        f"{escape(case.reason)}"
    )
    for comparison in case.comparisons:
        if comparison.first is not None:
            first, rtol, atol = comparison.first, comparison.rtol, comparison.atol
            index = ", ".join(map(str, first.index))
            values = f"is {first.actual!r} and should be {first.expected!r}"
            allowed = f"(allowed: {rtol:.2g} relative + {atol:.2g})"
            yield "  " + escape(f"{comparison.name}[{index}] {values} {allowed}")
    for line in case.log.strip().split("\n")[-12:] if case.log.strip() else []:
        yield "  | " + escape(line)
