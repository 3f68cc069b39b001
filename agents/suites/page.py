"""The page of a run of a suite: from its results to what a report shows."""

from __future__ import annotations

from pathlib import Path

from sketchc.agents.run.summary import counted
from sketchc.agents.suites.metrics import TaskResult, Totals, cells, headings
from sketchc.agents.suites.run import Results, SuiteFolder
from sketchc.base.version import __version__
from sketchc.runtime.report.content import Category, Page, SuiteResults, TaskRow
from sketchc.runtime.report.steps import OPEN
from sketchc.runtime.report.text import sanitised_line
from sketchc.runtime.verify.words import FAILED, INCOMPLETE, PASSED


def is_suite(folder: Path) -> bool:
    """Whether `sketchc suite run` left its results in `folder`."""
    return (folder / "results.json").exists() and (folder / "suite.json").exists()


def page_of_suite(folder: Path) -> Page:
    """The page of the results in a folder. Raises `UsageError`."""
    return page_of(SuiteFolder(folder).results())


def page_of(results: Results) -> Page:
    """The page of the results of a suite's run."""
    asked, rows = results.options, results.totals
    whole = rows[-1]
    state = PASSED if whole.passed == whole.tasks else FAILED
    told = {
        "suite": asked.suite,
        "target": asked.target,
        "chip": asked.hardware,
        "samples": str(len(results.tasks[0].samples)) if results.tasks else "",
        "seed": "" if asked.seed is None else str(asked.seed),
        "arguments": " ".join(asked.passed_on),
    }
    incomplete = f", {whole.incomplete} incomplete" if whole.incomplete else ""
    left = f"; {counted(len(results.left), 'task')} left" if results.left else ""
    return Page(
        title=f"{asked.suite} for {asked.target}",
        state=OPEN if results.left else state,
        word=f"{whole.passed} of {whole.tasks} passed",
        conclusion=f"{whole.passed} of {whole.tasks} tasks passed{incomplete}{left}",
        facts=tuple((name, sanitised_line(value)) for name, value in told.items() if value),
        suite=SuiteResults(
            tuple(headings(whole)),
            tuple(_category(row, results, whole) for row in rows),
            tuple(map(_task, results.tasks)),
            tuple(
                (sanitised_line(name), sanitised_line(reason)) for name, reason in results.excluded
            ),
            tuple(map(sanitised_line, results.left)),
        ),
        versions=(("sketchc", __version__),),
    )


def _category(row: Totals, results: Results, whole: Totals) -> Category:
    gains = tuple(
        (sanitised_line(task.name), task.speedup)
        for task in results.tasks
        if task.speedup is not None and (row is whole or task.category == row.category)
    )
    return Category(
        sanitised_line(row.category),
        *(row.passed, row.incomplete, row.failed),
        tuple(cells(row, whole)),
        gains,
    )


def _task(task: TaskResult) -> TaskRow:
    best = task.best
    return TaskRow(
        name=sanitised_line(task.name),
        category=sanitised_line(task.category),
        state=OPEN if task.word == INCOMPLETE else task.word,
        word=sanitised_line(best.outcome),
        reason=sanitised_line(best.reason),
        right=f"{task.right} of {len(task.samples)}",
        sizes="own" if best.own else "scaled down" if best.static else "",
        shapes=f"{best.shapes_passed} of {best.shapes}" if best.shapes else "",
        seconds=sum(sample.seconds for sample in task.samples),
        speedup=task.speedup,
        lines=best.sketch_lines,
    )
