"""What `sketchc suite run` does once its options are known: lock, go, show progress."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from sketchc.agents.suites.run import Effort, Results, SuiteFolder, SuiteOptions, SuiteRun
from sketchc.agents.suites.samples import Sample
from sketchc.agents.suites.sources import Suite
from sketchc.agents.workflows import load_workflow
from sketchc.cli.consoles import make_progress
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


class _Watch:
    """Counts what began and ended; says a line for each sample that ends, unless it is `quiet`."""

    def __init__(self, total: int, quiet: bool = False) -> None:
        self.quiet = quiet
        self.total, self.done, self.passed = total, 0, 0
        #: Samples that run, with what shows them.
        self.running: dict[tuple[str, int], Any] = {}
        self._lock = threading.Lock()  # samples begin in threads of their own

    def started(self, task: str, number: int) -> None:
        """Show that a sample begins."""
        with self._lock:
            self.running[task, number] = self.shown(f"{task} {number}")

    def ended(self, sample: Sample) -> None:
        """A sample has ended; one that was known before never began."""
        with self._lock:
            self.done += 1
            self.passed += sample.passed
            row = self.running.pop((sample.task, sample.number), None)
            self.told(sample, row)

    def shown(self, text: str) -> Any:
        """Show that a sample runs; returns what shows it."""
        return text

    def told(self, sample: Sample, row: Any) -> None:
        """Show how a sample has ended; `row` is what showed it, None where it never began."""
        if row is not None and not self.quiet:
            count = f"{self.done} of {self.total}, {self.passed} passed"
            click.echo(f"{row}: {sample.outcome} in {sample.seconds:.0f} s ({count})", err=True)


class _Bar(_Watch):
    """A bar over all samples, and a line for each that runs."""

    def __init__(self, progress: Any, total: int) -> None:
        super().__init__(total)
        self._progress = progress
        self._all = progress.add_task("suite", total=total, note="")

    def shown(self, text: str) -> Any:
        """A line of its own."""
        return self._progress.add_task(text, total=None, note="")

    def told(self, sample: Sample, row: Any) -> None:
        """The bar grows, and the line goes."""
        if row is not None:
            self._progress.remove_task(row)
        self._progress.update(self._all, completed=self.done, note=f"{self.passed} passed")


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[_Watch]:
    """Bars on a terminal, lines elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield _Watch(total, quiet)
        return
    with make_progress() as progress:
        yield _Bar(progress, total)
