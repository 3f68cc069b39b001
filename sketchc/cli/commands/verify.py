"""`sketchc verify`: sketches and kernels against a task."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.api import sketches
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.cli import options
from sketchc.cli.options import recorder, store_option, task_errors
from sketchc.cli.verify_files import (
    Outcome,
    VerifyRequest,
    lowered_early,
    signature_text,
    to_json,
    verify_one,
)

if TYPE_CHECKING:
    from sketchc.runtime.verify.verdict import CaseResult

#: Verdicts up to so many are shown in full, before the table.
_MOST_IN_FULL = 8


@click.command()
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option(
    "--task",
    required=True,
    metavar="TASK.py[:NAME]",
    help="A model or a function in PyTorch, NumPy or MindSpore; see docs/TASKS.md.",
)
@options.target_option()
@options.hardware_option
@options.set_option("Bind a constexpr, or a param the task does not give.")
@options.sketch_option
@options.entry_option
@click.option(
    "--signature",
    metavar="X.sketch",
    help="The sketch that says what a kernel is called with; default: read off the task.",
)
@click.option(
    "--print-signature",
    is_flag=True,
    help="Show what a kernel's function must look like, and verify nothing.",
)
@options.seed_option("Repeat a run; default: a fresh secret.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For each run of the kernel.",
)
@click.option(
    "--task-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="For each run of the task; default: 300, or --timeout where that is longer.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For each file, beside compiling: cases that reach every loop, tile and tail.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Files at once; default: one more than there are cores, for several files.",
)
@store_option
@options.verify_ir_option
def verify(
    files: tuple[str, ...],
    task: str,
    settings: tuple[str, ...],
    name: str | None,
    print_signature: bool,
    task_timeout: float | None,
    as_json: bool,
    jobs: int | None,
    store: Path | None,
    **asked: Any,
) -> int:
    """Run sketches and kernels on many sizes and inputs, and compare with a task.

    A sketch is lowered and compiled first. A kernel that somebody else wrote is a C++ file (.cpp,
    .cc, .cxx) with an `extern "C"` function, or a Python file (.py) with a wrapper around Triton
    kernels or a class ModelNew with the interface of the task's Model; it must also do its work
    itself.

    Exit status: 0 all passed, 1 one failed, 2 one is incomplete (something of it was not reached)
    or could not be verified (the task, the target).

    \b
    Examples:
      sketchc verify examples/rms.sketch --task examples/tasks/rms.py --target cpp
      sketchc verify --print-signature --task examples/tasks/rms.py --target cpp
      sketchc verify mine.cpp other.cpp --task examples/tasks/rms.py --target cpp
    """
    with task_errors(as_json=as_json):
        constants = options.parse_assignments(settings, "--set")
        request = VerifyRequest("", constants=constants, sketch=name, **asked)
        # The task is given no less than its default: importing torch alone may take seconds.
        patience = task_timeout or max(request.timeout, 300.0)
        if print_signature:
            return _print_signature(request, task, patience)
        if not files:
            refuse("say which FILE to verify: a sketch, or a kernel (.cpp, .py)")
        requests = [attrs.evolve(request, file=file) for file in files]
        return _report(_outcomes(requests, task, patience, jobs, store), as_json)


def _outcomes(
    requests: list[VerifyRequest], task: str, patience: float, jobs: int | None, store: Path | None
) -> list[Outcome]:
    """The outcome of each file, in the order of the files."""
    from sketchc.runtime.tasks.task import load_task

    first = requests[0]
    options.resolve_target(first.target, first.hardware)
    if len(requests) > 1 and jobs != 1:
        return _at_once(requests, task, patience, store, jobs)
    try:
        # What is wrong with the only sketch is told before the task is loaded.
        if len(requests) == 1 and not first.is_kernel:
            requests = [lowered_early(first)]
    except sketches.SketchError as error:
        return [Outcome(first, diagnostics=error)]
    with load_task(task, patience) as loaded:
        kept = recorder(store, loaded)
        return [verify_one(request, loaded, _progress, kept) for request in requests]


def _at_once(
    requests: list[VerifyRequest], task: str, patience: float, store: Path | None, jobs: int | None
) -> list[Outcome]:
    """The outcomes of several files, verified in a pool of processes."""
    from sketchc.cli.verify_pool import verify_all
    from sketchc.lowering.registry import load_target
    from sketchc.runtime.process.pool import CPU, LocalEngine, devices_here
    from sketchc.runtime.toolchains.base import toolchain

    record, devices = load_target(requests[0].target), CPU
    if not toolchain(record.name).status().interpreted:
        devices = devices_here(record.devices_variable, record.device_files)
    with LocalEngine(jobs, devices=devices) as engine:
        return verify_all(requests, task, patience, store, engine)


def _report(outcomes: list[Outcome], as_json: bool) -> int:
    """Show the outcomes; returns the exit status."""
    if as_json:
        _show_json(outcomes)
    else:
        for outcome in outcomes if len(outcomes) <= _MOST_IN_FULL else ():
            _show(outcome, many=len(outcomes) > 1)
        if len(outcomes) > 1:
            _show_table(outcomes)
    statuses = {outcome.status for outcome in outcomes}
    return 1 if 1 in statuses else max(statuses)


def _progress(result: CaseResult) -> None:
    if sys.stderr.isatty():
        click.echo(f"{result.shape.text} ({result.kind}): {result.failure or 'ok'}", err=True)


def _print_signature(request: VerifyRequest, task: str, patience: float) -> int:
    from sketchc.runtime.tasks.task import load_task

    options.resolve_target(request.target, request.hardware)
    with load_task(task, patience) as loaded:
        click.echo(signature_text(request, loaded))
    return 0


def _show(outcome: Outcome, *, many: bool) -> None:
    """Print the verdict, the diagnostics or the error; raises the error if not `many` files."""
    if outcome.diagnostics is not None:
        found = outcome.diagnostics
        options.show_diagnostics(found.source, found.diagnostics)
    elif outcome.verdict is None:
        if not many:
            raise UsageError(outcome.error)
        click.echo(f"error: {outcome.request.file}: {outcome.error}", err=True)
    else:
        from sketchc.cli.consoles import make_console
        from sketchc.runtime.verify import text

        text.show(outcome.verdict, make_console())
    if many:
        click.echo()


def _show_json(outcomes: list[Outcome]) -> None:
    """Print one file's verdict as JSON; of several, {"verdict", "passed", "verdicts"}. Raises
    `UsageError` where the only file has neither a verdict nor diagnostics."""
    only = outcomes[0]
    if len(outcomes) > 1:
        verdicts = [to_json(outcome) for outcome in outcomes]
        passed = all(verdict["passed"] for verdict in verdicts)
        words = [verdict["verdict"] for verdict in verdicts]
        word = "passed" if passed else "failed" if "failed" in words else "incomplete"
        whole = {"verdict": word, "passed": passed, "verdicts": verdicts}
        click.echo(json.dumps(whole, indent=2))
    elif only.verdict is None and only.diagnostics is None:
        raise UsageError(only.error)
    else:
        click.echo(json.dumps(to_json(only), indent=2))


def _show_table(outcomes: list[Outcome]) -> None:
    """Print a line for each file; paths are not shortened, so that they can be copied."""
    width = max(len(outcome.request.file) for outcome in outcomes)
    click.echo(f"{'file':<{width}}  cases  result")
    for outcome in outcomes:
        ran = outcome.verdict.cases if outcome.verdict is not None else ()
        cases = sum(case.failure != "skipped" for case in ran)
        why = f": {outcome.reason}" if outcome.reason else ""
        click.echo(f"{outcome.request.file:<{width}}  {cases or '':>5}  {outcome.word}{why}")
    passed = sum(outcome.status == 0 for outcome in outcomes)
    click.echo(f"{passed} of {len(outcomes)} passed")
