"""What `sketchc suite run` does once its options are known: lock, go, show progress."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sketchc.agents.suites.run import (
    Effort,
    Results,
    SuiteFolder,
    SuiteOptions,
    SuiteRun,
)
from sketchc.agents.suites.samples import Sample
from sketchc.agents.suites.sources import Suite
from sketchc.agents.workflows import load_workflow
from sketchc.cli.suite_gen import PERFORM
from sketchc.cli.verify_files import require_running
from sketchc.runtime.toolchains.base import toolchain


def perform_suite(
    folder: SuiteFolder,
    suite: Suite,
    options: SuiteOptions,
    effort: Effort,
    store: Path | None,
    quiet: bool,
) -> Results:
    """Start the run, or go on with it, to its end. Raises `UsageError`, and `KeyboardInterrupt`
    with everything kept that had ended."""
    passed_on = dict(zip(options.passed_on[::2], options.passed_on[1::2], strict=True))
    if "verifier" in load_workflow(passed_on.get("--workflow", "default")).agents:
        require_running(toolchain(options.target))
    kept = ("--no-store",) if store is None else ("--store", str(store))
    total = effort.samples * sum(not task.excluded for task in suite.tasks)
    with folder.lock(), _progress(total, quiet=quiet) as shown:
        folder.settle(options)
        run = SuiteRun(
            folder, suite, options, effort, PERFORM, kept, started=shown.started, ended=shown.ended
        )
        try:
            return run.go()
        finally:
            _write_page(folder.path)


def _write_page(folder: Path) -> None:
    """Beside the results, where there are any."""
    from sketchc.agents.suites.page import is_suite, page_of_suite
    from sketchc.cli.options import write_output
    from sketchc.runtime.report.page import render

    if is_suite(folder):
        write_output(render(page_of_suite(folder)), str(folder / "report.html"))


class _Silent:
    """Shows nothing."""

    def started(self, task: str, number: int) -> None:
        """A sample begins."""

    def ended(self, sample: Sample) -> None:
        """A sample has ended."""


class _Bar(_Silent):
    """A bar over all samples, and a line for each that runs."""

    def __init__(self, progress: Any, total: int) -> None:
        self._progress = progress
        self._all = progress.add_task("suite", total=total, note="")
        self._rows: dict[tuple[str, int], Any] = {}
        self._passed = 0
        self._lock = threading.Lock()

    def started(self, task: str, number: int) -> None:
        """A sample begins."""
        with self._lock:
            row = self._progress.add_task(f"{task} {number}", total=None, note="")
            self._rows[task, number] = row

    def ended(self, sample: Sample) -> None:
        """A sample has ended; one that was known already never began."""
        with self._lock:
            self._passed += sample.passed
            row = self._rows.pop((sample.task, sample.number), None)
            if row is not None:
                self._progress.remove_task(row)
            self._progress.update(self._all, advance=1, note=f"{self._passed} passed")


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[_Silent]:
    """Bars where somebody watches, else nothing."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sketchc.cli.consoles import make_console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=make_console(stderr=True), transient=True) as progress:
        yield _Bar(progress, total)
