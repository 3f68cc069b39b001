"""`sketchc tune`: the tile sizes of a sketch that are fastest here, found by measuring."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.api import sketches
from sketchc.base.diagnostics import refuse
from sketchc.base.types import Scalar
from sketchc.cli import options
from sketchc.cli.consoles import make_console
from sketchc.cli.options import recorder, store_option, task_errors
from sketchc.cli.timed import positive_sizes, require_speed, timing_progress
from sketchc.cli.tuned import compilers
from sketchc.cli.verify_files import (
    VerifyRequest,
    candidate_of,
    lowered_early,
    types_of,
    verify_one,
)
from sketchc.runtime.report.drawings import axes, check_file
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from sketchc.lowering.passes.space import Point, Space
    from sketchc.parsing import syntax
    from sketchc.runtime.bench.prepared import Prepared
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.store.tunings import PointRow, Setting
    from sketchc.runtime.store.writing import TaskText
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.tune.tuner import Limits, Tuning
    from sketchc.runtime.verify.verify import Candidate

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
#: Seconds of warming up each point; a schedule of many points has no time for more.
_WARM_UP = 0.02


def _duration(_context: click.Context, _option: click.Parameter, value: str) -> float:
    """The seconds of `90`, `90s`, `1.5m` or `2h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: say 90s, 1.5m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


@attrs.frozen
class _Command:
    """The options of the command line."""

    request: VerifyRequest
    limits: Limits
    sizes: dict[str, int]
    threads: int
    store: Path | None
    plot: str | None
    as_json: bool
    quiet: bool


@click.command()
@click.argument("file")
@click.option("--task", required=True, metavar="TASK.py[:NAME]", help="A task in PyTorch.")
@options.target_option(text=", where it runs at its own speed.")
@options.hardware_option
@options.set_option("Bind a constexpr: it does not vary.")
@options.symbols_option("The sizes to tune for; default: the task's.")
@options.sketch_option
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    callback=_duration,
    metavar="TIME",
    help="For the search: 90s, 5m, 1h. The winner is verified and measured again after it.",
)
@click.option(
    "--search",
    type=click.Choice(["lfbo", "random", "all"]),
    default="lfbo",
    show_default=True,
    help="Bayesian optimisation, points at random, or all of them.",
)
@options.threads_option()
@options.seed_option()
@options.plot_option("Also draw the best so far against time.")
@click.option("--json", "as_json", is_flag=True, help="Everything found, as JSON.")
@options.quiet_option
@options.verify_ir_option
@store_option
def tune(
    file: str,
    task: str,
    settings: tuple[str, ...],
    symbols: tuple[str, ...],
    name: str | None,
    budget: float,
    search: str,
    threads: int | None,
    seed: int | None,
    plot: str | None,
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **asked: Any,
) -> int:
    """Find the tile sizes of a sketch that are fastest here, by measuring.

    Points of the space that the plan refuses are left out; the others are built and timed in turn,
    on the same inputs, and their outputs compared with the task. The best one is verified at all
    sizes, measured again beside the plan's own choice, and kept: `sketchc lower --tuned` takes it.
    All that was measured is kept as it comes: the same command goes on with it.

    Exit status: 0 done, 1 for a sketch that does not lower, or where no point passes, 2 misuse:
    the target does not run here at its own speed, the task does not fit or is broken.

    \b
    Examples:
      sketchc tune examples/matmul.sketch --task examples/tasks/matmul.py --target cpp
      sketchc tune x.sketch --task x.py -t cpp --symbols M=4096,N=512 --budget 5m --plot best.png
      sketchc lower examples/matmul.sketch --target cpp --tuned
    """
    with task_errors(as_json=as_json):
        from sketchc.runtime.tune.tuner import Limits

        constants = options.parse_assignments(settings, "--set")
        request = VerifyRequest(file, constants=constants, sketch=name, seed=seed, **asked)
        if request.is_kernel:
            refuse(f"{file} is a kernel: only a sketch has points to choose from")
        if plot is not None:
            check_file(plot)
        options.resolve_target(request.target, request.hardware)
        limits = Limits(search, budget, fresh_seed() if seed is None else seed)
        threads = threads or len(os.sched_getaffinity(0))
        sizes = positive_sizes(symbols)
        command = _Command(request, limits, sizes, threads, store, plot, as_json, quiet)
        return _told(command, task)


def _told(command: _Command, task: str) -> int:
    """Tune and report; returns the exit status."""
    from sketchc.runtime.bench.driver import MeasurementFailedError

    request = command.request
    try:
        found, again = _tuned(command, task)
    except sketches.SketchError as error:
        if command.as_json:
            told = {"passed": False, "error": str(error), **options.diagnostics_json(error)}
            click.echo(json.dumps(told, indent=2))
        else:
            options.show_diagnostics(error.source, error.diagnostics)
        return 1
    except MeasurementFailedError as error:
        if command.as_json:
            told = {"passed": False, "failure": error.failure, "error": str(error)}
            click.echo(json.dumps(told, indent=2))
        else:
            click.echo(f"failed ({error.failure}): {request.file}: {error}", err=True)
        return 1
    if command.plot is not None:
        _draw_search(found, command.plot)
    _report(command, found, again)
    return 0


def _report(command: _Command, found: Tuning, again: str) -> None:
    from sketchc.runtime.tune import text

    if command.as_json:
        own = {"command": shlex.join(["sketchc", *sys.argv[1:]]), "again": again, "passed": True}
        click.echo(json.dumps({**own, **text.to_json(found)}, indent=2))
    else:
        text.show(found, again, make_console())


def _again(request: VerifyRequest, tree: syntax.Sketch, found: Tuning) -> str:
    """The command that gives the winner's code; of a sketch with `types:` it names the instance."""
    from sketchc.runtime.tune.tuner import settings_text

    name = request.sketch if tree.generic is None else tree.name
    words = ["sketchc", "lower", request.file, "--target", found.target]
    words += [] if request.hardware is None else ["--hardware", request.hardware]
    words += [] if name is None else ["--sketch", name]
    point = {**request.constants, **found.best}
    return shlex.join([*words, *(["--set", settings_text(point)] if point else [])])


def _tuned(command: _Command, task: str) -> tuple[Tuning, str]:
    """Tune; returns what was found and the command that gives its code. Raises `SketchError`,
    `UsageError` and `MeasurementFailedError`."""
    from sketchc.runtime.bench.machine import cache_bytes, device_name
    from sketchc.runtime.bench.prepared import prepare
    from sketchc.runtime.bench.schedule import Schedule, Settings
    from sketchc.runtime.store.tunings import Best
    from sketchc.runtime.tasks.task import load_task
    from sketchc.runtime.tune.tuner import Request, tune

    request = lowered_early(command.request)
    quiet = command.quiet or command.as_json
    with (
        timing_progress("tune", request.file, quiet=quiet) as say,
        load_task(task) as loaded,
        tempfile.TemporaryDirectory() as folder,
    ):
        candidate = candidate_of(request, loaded)
        require_speed(candidate)
        device = device_name(candidate.device)
        schedule = Schedule(warm_up_seconds=_WARM_UP)
        settings = Settings(
            *(command.limits.seed, command.threads, schedule, command.sizes, request.constants),
            device=candidate.device,
        )
        tree, space = _space(request, loaded, candidate)
        prepared, _ = prepare(candidate, loaded, settings, say, lambda: None)
        kept = recorder(command.store, loaded)
        setting = None if kept.task is None else _setting(prepared, kept.task, device)
        versions = candidate.toolchain.status().versions

        def record(rows: Sequence[PointRow]) -> None:
            if setting is not None:
                kept.points(setting, rows, versions)

        found = tune(
            Request(
                *(space, prepared, device, cache_bytes(candidate.device), Path(folder)),
                *(command.limits, _Verifier(command, loaded, kept), record),
                *(_known(command.store, setting), say),
            )
        )
        if setting is not None:
            default = None if found.default_times is None else found.default_times.median
            kept.best_point(setting, Best(found.best, found.best_times.median, default), versions)
        return found, _again(request, tree, found)


def _setting(prepared: Prepared, task: TaskText, device: str) -> Setting:
    """What times depend on here, as the store knows it."""
    from sketchc.runtime.store.recording import sketch_text
    from sketchc.runtime.store.tunings import Setting

    candidate, settings = prepared.candidate, prepared.settings
    plan, source = candidate.plan, candidate.source
    assert source is not None  # tuned is a sketch
    return Setting(
        *(sketch_text(source.text, plan.sketch.name), task, plan.target, plan.hardware.name),
        *(device, compilers(candidate.toolchain), dict(prepared.symbols), settings.threads),
        *(dict(settings.values), settings.schedule.cold),
    )


def _known(store: Path | None, setting: Setting | None) -> list[PointRow]:
    """The points that the store knows of this setting; none, with a warning, where it cannot be
    read."""
    from sketchc.runtime.store.database import StoreError
    from sketchc.runtime.store.tunings import known_points

    if store is None or setting is None:
        return []
    try:
        return known_points(store, setting)
    except StoreError as error:
        click.echo(f"warning: nothing is known from before: {error}", err=True)
        return []


def _space(
    request: VerifyRequest, task: TaskClient, candidate: Candidate
) -> tuple[syntax.Sketch, Space]:
    """The sketch, the instance that the task's types decide, and its points."""
    from sketchc.lowering.passes.pipeline import planner
    from sketchc.lowering.passes.space import Space

    plan, source = candidate.plan, candidate.source
    assert source is not None  # tuned is a sketch
    tree = sketches.the_sketch(source, request.sketch, types_of(task))
    with sketches.pointing_into(source):
        made = planner(tree, plan.target, plan.hardware.name)
        return tree, Space(made, dict(request.constants))


class _Verifier:
    """Says why a point does not pass `sketchc verify`, "" where it does."""

    def __init__(self, command: _Command, task: TaskClient, kept: Recorder) -> None:
        self._command, self._task, self._kept = command, task, kept

    def __call__(self, point: Point) -> str:
        request = self._command.request
        constants: dict[str, Scalar] = {**request.constants, **point}
        whole = attrs.evolve(request, constants=constants, lowered=None)
        outcome = verify_one(whole, self._task, recorder=self._kept)
        if outcome.verdict is not None and outcome.verdict.passed:
            return ""
        return outcome.reason or outcome.word


def _draw_search(found: Tuning, file: str) -> None:
    """Draw the best median so far against the seconds of a search: a step for each batch at which
    it fell, and a broken line for the plan's own choice, as measured again at the end. Raises
    `UsageError` as `axes` does."""
    with axes(file, f"{found.sketch} for {found.target} on {found.device}") as plot:
        at = [seconds for seconds, _ in found.trace] + [found.seconds]
        best = [taken * 1e3 for _, taken in found.trace]
        plot.step(at, [*best, *best[-1:]], where="post", label="best so far")
        plot.plot(at[:-1], best, "o", markersize=3, color="C0")
        if found.default_times is not None:
            own = found.default_times.median * 1e3
            plot.axhline(own, linestyle="--", color="C1", label="the plan's own choice")
        plot.set(xlabel="seconds of search", ylabel="milliseconds")
        plot.set_ylim(bottom=0)
        plot.legend(fontsize=8)
