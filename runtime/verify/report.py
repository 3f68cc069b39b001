"""A verdict as text for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.runtime.verify.compare import Comparison
from sketchc.runtime.verify.verdict import FAILURES, CaseResult, Verdict


def show(verdict: Verdict, console: Console) -> None:
    """Print the table of cases, the evidence of the first failure, and the verdict in one line."""
    console.print(
        f"[bold]{escape(_subject(verdict))}[/bold] for {verdict.target} ({verdict.hardware}) "
        f"against {escape(verdict.task)}; runs: {escape(verdict.how_it_runs)}",
        highlight=False,
        soft_wrap=True,
    )
    for note in verdict.notes:
        console.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
    console.print(_table(verdict))
    if verdict.failures:
        _show_evidence(verdict.failures[0], console)
    skipped = [case for case in verdict.cases if case.failure == "skipped"]
    for case in skipped[:3]:
        console.print(f"skipped {case.shape.text}: {escape(case.reason)}", highlight=False)
    console.print(summary(verdict), highlight=False, soft_wrap=True)


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
        return (
            f"passed: {len(ran)} cases, every element within tolerance "
            f"(largest error {worst:.2g} of what is allowed), seed {verdict.seed}"
        )
    if not verdict.failures:
        return "not verified: the task refuses every case"
    return (
        f"failed ({verdict.failure}: {FAILURES.get(verdict.failure, 'see above')}): "
        f"{len(verdict.failures)} of {len(ran)} cases, seed {verdict.seed}"
    )


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
            case.kind,
            str(case.reduction_length),
            f"{worst.max_error:.2g}" if worst else "",
            f"{worst.worst:.2g}" if worst else "",
            _paper(case),
            "[green]passed[/green]" if case.passed else f"[red]{case.failure}[/red]",
        )
    return table


def _paper(case: CaseResult) -> str:
    rules = [comparison.paper for comparison in case.comparisons if comparison.paper]
    if not rules:
        return ""
    worst = max(rules, key=lambda rule: rule.fraction / rule.tau)
    return "pass" if worst.passed else f"fail ({worst.fraction:.2g} > {worst.tau:g})"


def _show_evidence(case: CaseResult, console: Console) -> None:
    console.print(
        f"first failure at {case.shape.text} ({case.kind} inputs, seed {case.seed}): "
        f"{escape(case.reason)}",
        highlight=False,
        soft_wrap=True,
    )
    for comparison in case.comparisons:
        if comparison.first is not None:
            console.print("  " + escape(_element(comparison)), highlight=False, soft_wrap=True)
    for line in case.log.strip().split("\n")[-12:] if case.log.strip() else []:
        console.print("  | " + escape(line), highlight=False, soft_wrap=True)


def _element(comparison: Comparison) -> str:
    first = comparison.first
    assert first is not None
    index = ", ".join(str(i) for i in first.index)
    return (
        f"{comparison.name}[{index}] is {first.actual!r} and should be {first.expected!r} "
        f"(allowed: {comparison.rtol:.2g} relative + {comparison.atol:.2g})"
    )
