"""`sketchc bench`: time kernels against their PyTorch tasks."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.api import sketches
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.cli import options
from sketchc.cli.consoles import make_console
from sketchc.cli.options import recorder, store_option, task_errors
from sketchc.cli.timed import (
    NotTimedHereError,
    Say,
    positive_sizes,
    require_speed,
    timing_progress,
)
from sketchc.cli.verify_files import VerifyRequest, candidate_of, lowered_early, verify_one
from sketchc.runtime.verify.seed import fresh_seed
from sketchc.runtime.verify.words import INCOMPLETE

if TYPE_CHECKING:
    from sketchc.runtime.bench.measurement import Measurement
    from sketchc.runtime.bench.schedule import Settings
    from sketchc.runtime.bench.text import Entry
    from sketchc.runtime.cases.lists import OwnList
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.verify.verify import Candidate

BASELINES = ("eager", "compile")


@attrs.frozen
class _Command:
    """The options of the command line, which hold for all kernels."""

    request: VerifyRequest
    settings: Settings
    measure_machine: bool
    store: Path | None
    as_json: bool = False


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--task",
    "tasks",
    required=True,
    multiple=True,
    metavar="TASK.py[:NAME]",
    help="A model or a function in PyTorch; one for each FILE, in their order, or one for all.",
)
@options.target_option(text=", where it runs at its own speed.")
@options.hardware_option
@options.set_option("Bind a constexpr, or a param the task does not give.")
@options.symbols_option("Other sizes than the task's.")
@options.sketch_option
@options.entry_option
@click.option(
    "--signature",
    metavar="X.sketch",
    help="The sketch that says what a kernel is called with, and what it must do at least.",
)
@click.option(
    "--baseline",
    type=click.Choice(["eager", "compile", "all"]),
    default="eager",
    show_default=True,
    help="Besides eager, which is always timed: torch.compile.",
)
@click.option(
    "--cold/--warm",
    default=True,
    show_default=True,
    help="Flush the caches before each sample, or leave the fresh inputs in them.",
)
@click.option(
    "--samples", type=click.IntRange(min=5), default=31, show_default=True, help="At least 30."
)
@options.threads_option()
@options.seed_option()
@click.option(
    "--measure-machine", is_flag=True, help="Measure bandwidth and peak again; the better counts."
)
@click.option("--json", "as_json", is_flag=True, help="Everything measured, with raw samples.")
@options.verify_ir_option
@store_option
def bench(
    files: tuple[str, ...],
    tasks: tuple[str, ...],
    settings: tuple[str, ...],
    symbols: tuple[str, ...],
    name: str | None,
    baseline: str,
    cold: bool,
    samples: int,
    threads: int | None,
    measure_machine: bool,
    as_json: bool,
    store: Path | None,
    **asked: Any,
) -> int:
    """Time kernels and PyTorch turn about, on the same inputs; verify the timed outputs.

    FILE is a sketch, or a kernel that somebody else wrote (.cpp; .py with a wrapper around Triton
    kernels, or a class ModelNew), which must pass `sketchc verify` first. With several of them,
    the share that is right and more than p times as fast (fast_p) and the geometric mean are shown.

    Exit status: 0 measured and right, 1 when a kernel fails, an output of a timed run is wrong, or
    a time cannot be true, 2 when nothing can be timed: the target does not run here at its own
    speed, or the task does not fit, is broken or not deterministic.

    \b
    Examples:
      sketchc bench examples/rms.sketch --task examples/tasks/rms.py --target cpp
      sketchc bench mine.cpp --task examples/tasks/rms.py --target cpp --baseline all
      sketchc bench a.sketch b.cpp --task a.py --task b.py --target cpp
    """
    with task_errors(as_json=as_json):
        constants = options.parse_assignments(settings, "--set")
        request = VerifyRequest("", constants=constants, sketch=name, **asked)
        sizes = positive_sizes(symbols)
        if find_spec("torch") is None:  # which everything is measured against, in other processes
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        from sketchc.runtime.bench.schedule import Schedule, Settings

        options.resolve_target(request.target, request.hardware)
        how = Settings(
            fresh_seed() if request.seed is None else request.seed,
            threads or len(os.sched_getaffinity(0)),
            Schedule(samples=samples, cold=cold),
            sizes,
            request.constants,
            baselines=BASELINES[:1] if baseline == "eager" else BASELINES,
        )
        command = _Command(request, how, measure_machine, store, as_json)
        pairs = _pairs(files, tasks)
        return _one(command, *pairs[0]) if len(pairs) == 1 else _many(command, pairs)


def _pairs(files: tuple[str, ...], tasks: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each file with its task. Raises `UsageError`."""
    if len(tasks) == 1:
        tasks = tasks * len(files)
    if len(tasks) != len(files):
        refuse(
            f"{len(files)} files and {len(tasks)} tasks: say --task once for each file, in their "
            "order, or once for all of them"
        )
    return list(zip(files, tasks, strict=True))


def _one(command: _Command, file: str, task: str) -> int:
    """Measure and report the only kernel, whose failure is the command's; the exit status."""
    from sketchc.runtime.bench.driver import MeasurementFailedError

    try:
        entries = _measure(command, file, task)
    except sketches.SketchError as error:
        if command.as_json:
            told = {"passed": False, "failure": "", "error": str(error)}
            told |= {"kernel_file": file, "task": task, **options.diagnostics_json(error)}
            click.echo(json.dumps(told, indent=2))
        else:
            options.show_diagnostics(error.source, error.diagnostics)
        return 1
    except MeasurementFailedError as error:
        if command.as_json:
            named = {"kernel_file": file, "task": task, "verdict": _word(error.failure)}
            failed = {"passed": False, "failure": error.failure, "error": str(error)}
            click.echo(json.dumps({**named, **failed}, indent=2))
        elif error.failure == INCOMPLETE:
            click.echo(f"incomplete: {file}: {error}", err=True)
        else:
            click.echo(f"failed ({error.failure}): {file}: {error}", err=True)
        return 2 if error.failure == INCOMPLETE else 1
    found = entries[0].measurement
    if len(entries) > 1 or found is None:
        return _tell(command, entries)
    if command.as_json:
        click.echo(json.dumps(_data(found), indent=2))
    else:
        _show(entries[0])
    return 0 if found.passed else 1


def _many(command: _Command, pairs: list[tuple[str, str]]) -> int:
    """Measure each kernel on each list of its task's inputs; returns the exit status. A failure is
    an entry that counts as not fast; a target that cannot be timed here is an error for all."""
    entries = []
    for number, (file, task) in enumerate(pairs, 1):
        measure = partial(_measure, command, file, task, number, len(pairs))
        entries += _guarded(file, task, "", measure)
    return _tell(command, entries)


def _tell(command: _Command, entries: list[Entry]) -> int:
    """Print several measurements and their totals; returns the exit status."""
    from sketchc.runtime.bench import text

    totals = text.against(entries, command.settings.baselines)
    if command.as_json:
        summaries = [text.total_json(total) for total in totals]
        results = [_result(one) for one in entries]
        click.echo(json.dumps({"results": results, "against": summaries}, indent=2))
    else:
        for one in entries:
            _show(one)
            click.echo()
        for one in entries:
            if one.broken:
                click.echo(f"{one.name}: not measured: {one.reason}")
            elif one.measurement is None:
                word = one.failure if one.incomplete else f"failed ({one.failure})"
                click.echo(f"{one.name}: {word}: {one.reason}")
            else:
                click.echo(f"{one.name}: {text.summary(one.measurement)}")
        for total in totals:
            click.echo(text.total_text(total))
    if any(one.broken for one in entries):
        return 2
    if all(one.passed or one.incomplete for one in entries):
        return 0 if all(one.passed for one in entries) else 2
    return 1


def _word(failure: str) -> str:
    return INCOMPLETE if failure == INCOMPLETE else "failed"


def _result(entry: Entry) -> dict[str, Any]:
    """One kernel of several as plain data."""
    if entry.measurement is not None:
        return _data(entry.measurement)
    named = {"kernel_file": entry.kernel, "task": entry.task, "own_list": entry.own_list}
    if entry.broken:
        return {"error": {"class": "task", "reason": entry.reason}, **named}
    verdict = _word(entry.failure)
    failed = {"passed": False, "failure": entry.failure, "error": entry.reason}
    return {"verdict": verdict, **failed, **named}


def _guarded(
    file: str, task: str, own_list: str, measure: Callable[[], list[Entry]]
) -> list[Entry]:
    """The entries that `measure` returns; if it fails, one entry with the failure."""
    from sketchc.runtime.bench.driver import MeasurementFailedError
    from sketchc.runtime.bench.text import Entry
    from sketchc.runtime.tasks.description import TaskFailure

    named = Entry(file, task, own_list=own_list)
    try:
        return measure()
    except sketches.SketchError as error:
        options.show_diagnostics(error.source, error.diagnostics)
        failed = attrs.evolve(named, failure="design", reason="the sketch does not lower")
    except MeasurementFailedError as error:
        failed = attrs.evolve(named, failure=error.failure, reason=str(error))
    except TaskFailure as error:
        click.echo(f"error: {error}", err=True)
        failed = attrs.evolve(named, reason=str(error), broken=True)
    except NotTimedHereError:
        raise
    except UsageError as error:
        failed = attrs.evolve(named, failure="infrastructure", reason=str(error))
    return [failed]


def _show(entry: Entry) -> None:
    if entry.measurement is None:
        return
    from sketchc.runtime.bench import text

    text.show(entry.measurement, make_console())


def _data(measured: Measurement) -> dict[str, Any]:
    from sketchc.runtime.bench import text

    command = shlex.join(["sketchc", *sys.argv[1:]])
    return {"command": command, **text.to_json(measured)}


# ---------------------------------------------------------------- one measurement


def _measure(command: _Command, file: str, task: str, number: int = 1, of: int = 1) -> list[Entry]:
    """Measure kernel `number` of `of` on each list of the task's inputs that fits; with --symbols,
    at those sizes alone. Raises `SketchError`, `UsageError`, and `MeasurementFailedError` where the
    kernel fails on the first list."""
    from sketchc.runtime.bench.text import Entry

    request = attrs.evolve(command.request, file=file)
    if not request.is_kernel:
        # What is wrong with a sketch is told before the task is loaded.
        request = lowered_early(request)
    with (
        timing_progress("bench", file, quiet=command.as_json, number=number, of=of) as say,
        _loaded(task, say) as loaded,
        tempfile.TemporaryDirectory() as folder,
    ):
        candidate = candidate_of(request, loaded)
        require_speed(candidate.toolchain)
        kept = recorder(command.store, loaded)
        if candidate.kernel.foreign:
            _require_right(request, loaded, kept, say)

        def time(place: Path, own: OwnList | None) -> list[Entry]:
            place.mkdir()
            measured = _time(command, candidate, loaded, place, say, own)
            kept.measurement(candidate, measured)
            return [Entry(file, task, measured, own_list=measured.own_list)]

        found = time(Path(folder) / "first", None)
        lists, refused = _other_lists(command, candidate, loaded)
        first = found[0].measurement
        assert first is not None
        found[0] = attrs.evolve(
            found[0], measurement=attrs.evolve(first, notes=(*first.notes, *refused))
        )
        for own in lists:
            place = Path(folder) / f"list {own.number}"
            found += _guarded(file, task, own.name, partial(time, place, own))
        return found


def _other_lists(
    command: _Command, candidate: Candidate, task: TaskClient
) -> tuple[list[OwnList], list[str]]:
    """The task's lists of inputs that are still to be measured, and notes on those that are not."""
    from sketchc.runtime.cases.lists import other_lists

    settings = command.settings
    if settings.sizes:
        return [], []
    lists = other_lists(candidate.plan.sketch, task, settings.seed, settings.values)
    refused = [f"{one.name} is not measured: {one.refused}" for one in lists if one.refused]
    return [one for one in lists if not one.refused], refused


def _loaded(task: str, say: Say) -> TaskClient:
    from sketchc.runtime.tasks.task import load_task

    say("loads the task")
    return load_task(task)


def _require_right(request: VerifyRequest, task: TaskClient, kept: Recorder, say: Say) -> None:
    """Raises `MeasurementFailedError` for a kernel that does not pass `sketchc verify`."""
    from sketchc.runtime.bench.driver import MeasurementFailedError

    say("verifies")
    outcome = verify_one(
        request,
        task,
        lambda case: say(f"verifies, {case.shape.text} ({case.kind}): {case.failure or 'ok'}"),
        recorder=kept,
    )
    if outcome.diagnostics is not None:
        raise outcome.diagnostics
    if outcome.verdict is None:
        raise UsageError(outcome.error)
    if not outcome.verdict.passed:
        if outcome.verdict.incomplete:
            msg = f"not all of it was reached, and it is not timed: {outcome.reason}"
            raise MeasurementFailedError(msg, INCOMPLETE)
        msg = f"it does not pass verification, and is not timed: {outcome.reason}"
        raise MeasurementFailedError(msg, outcome.verdict.failure)


def _time(
    command: _Command,
    candidate: Candidate,
    task: TaskClient,
    folder: Path,
    say: Say,
    own: OwnList | None,
) -> Measurement:
    """Measure on the list of inputs `own`, or on the first that fits. Where times alone are in
    doubt, kernel and machine are measured once more, and the second measurement counts: other work
    may have held up this process, or slowed the machine down."""
    from sketchc.runtime.bench.bench import bench as measure
    from sketchc.runtime.bench.machine import this_machine

    device = candidate.device
    settings = attrs.evolve(command.settings, device=device)
    say("measures the machine, unless it was measured before")
    machine = this_machine(device, command.measure_machine)
    measured = measure(candidate, task, folder, settings, machine, say, own)
    if not measured.disputed:
        return measured
    (folder / "again").mkdir()
    say("measures the machine, and then all once more")
    machine = this_machine(device, measure=True)
    again = measure(candidate, task, folder / "again", settings, machine, say, own)
    first = "; ".join(problem.reason for problem in measured.problems)
    return attrs.evolve(again, notes=(*again.notes, f"measured twice; at first, {first}"))
