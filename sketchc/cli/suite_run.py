"""What `sketchc suite run` does once its options are known: lock, go, show progress."""

from __future__ import annotations

from pathlib import Path

import click

from sketchc.agents.suites.run import Effort, Results, SuiteFolder, SuiteOptions, SuiteRun
from sketchc.agents.suites.samples import Sample
from sketchc.agents.suites.sources import Suite
from sketchc.agents.workflows import load_workflow
from sketchc.cli.consoles import watching
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
    """Start or resume the run, to its end. Raises `UsageError`, and `KeyboardInterrupt` with the
    results kept of all samples that had ended."""
    passed_on = dict(zip(options.passed_on[::2], options.passed_on[1::2], strict=True))
    if "verifier" in load_workflow(passed_on.get("--workflow", "default")).agents:
        require_running(toolchain(options.target), unbuilt=True)
    kept = ("--no-store",) if store is None else ("--store", str(store))
    total = effort.samples * sum(not task.excluded for task in suite.tasks)
    with folder.lock(), watching("suite", total, quiet=quiet) as watch:

        def started(task: str, number: int) -> None:
            watch.runs((task, number), f"{task} {number}")

        def ended(sample: Sample) -> None:
            began = watch.ends((sample.task, sample.number), passed=sample.passed)
            if began and not quiet and watch.progress is None:
                count = f"{watch.done} of {watch.total}, {watch.passed} passed"
                what = f"{sample.task} {sample.number}: {sample.outcome}"
                click.echo(f"{what} in {sample.seconds:.0f} s ({count})", err=True)

        folder.settle(options)
        run = SuiteRun(folder, suite, options, effort, PERFORM, kept, started, ended)
        try:
            return run.go()
        finally:
            _write_page(folder.path)


def _write_page(folder: Path) -> None:
    """Write report.html into `folder`, if it holds the results of a suite."""
    from sketchc.agents.suites.page import is_suite, page_of_suite
    from sketchc.cli.options import write_output
    from sketchc.runtime.report.page import render

    if is_suite(folder):
        write_output(render(page_of_suite(folder)), str(folder / "report.html"))
