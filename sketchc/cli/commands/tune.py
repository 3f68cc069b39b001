"""`sketchc tune`: the tile sizes of a sketch that are fastest here, found by measuring."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.api import sketches
from sketchc.base.diagnostics import refuse
from sketchc.cli import options
from sketchc.cli.consoles import make_console
from sketchc.cli.options import store_option, task_errors
from sketchc.cli.timed import Say, positive_sizes, require_speed, timing_progress
from sketchc.cli.tuning.tune_sketch import (
    TuneRequest,
    again,
    again_for_sizes,
    duration,
    tune_for_sizes,
    tune_sketch,
)
from sketchc.cli.verify_files import VerifyRequest, lowered_early
from sketchc.runtime.report.drawings import axes, check_file
from sketchc.runtime.verify.seed import fresh_seed

if TYPE_CHECKING:
    from sketchc.runtime.tasks.client import TaskClient
    from sketchc.runtime.tune.sizes import SizesTuning
    from sketchc.runtime.tune.tuner import Tuning


@attrs.frozen
class _Command:
    """The options of the command line. `sizes` are those of `--sizes`; `task` is the file with the
    task, `alone` where there is no other, and the built-in Designer makes the sketch, which is kept
    in the file `output`."""

    asked: TuneRequest
    sizes: tuple[dict[str, int], ...]
    task: str
    alone: bool
    output: str | None
    plot: str | None
    as_json: bool
    quiet: bool


@click.command()
@click.argument("file", metavar="FILE|TASK.py")
@click.option(
    "--task",
    metavar="TASK.py[:NAME]",
    help="The task in PyTorch, where FILE is a sketch. A task alone: the built-in Designer makes "
    "the sketch, as in `gen`.",
)
@click.option(
    "--output", "-o", metavar="FILE.sketch", help="Keep the sketch that was made of a task alone."
)
@options.target_option(text=", where it runs at its own speed.")
@options.hardware_option
@options.set_option("Bind a constexpr: it does not vary.")
@options.symbols_option("The sizes to tune for; default: the task's.")
@click.option(
    "--sizes",
    "many",
    multiple=True,
    metavar="M=256,N=64",
    help="Several times, in place of --symbols: the fewest points such that each of these sizes is "
    "within 5 % of its best.",
)
@options.sketch_option
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    callback=duration,
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
    task: str | None,
    output: str | None,
    settings: tuple[str, ...],
    symbols: tuple[str, ...],
    many: tuple[str, ...],
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
      sketchc tune examples/tasks/softmax.py --target cpp -o softmax.sketch
      sketchc tune x.sketch --task x.py -t cpp --symbols M=4096,N=512 --budget 5m --plot best.png
      sketchc tune x.sketch --task x.py -t cpp --sizes M=64,N=4096 --sizes M=4096,N=64
      sketchc lower examples/matmul.sketch --target cpp --tuned
    """
    with task_errors(as_json=as_json):
        from sketchc.runtime.tune.tuner import Limits

        constants = options.parse_assignments(settings, "--set")
        request = VerifyRequest(
            file, constants=constants, sketch=name, seed=seed, sized=False, **asked
        )
        alone = _is_task_alone(request, task, output)
        if plot is not None:
            check_file(plot)
        options.resolve_target(request.target, request.hardware)
        limits = Limits(search, budget, fresh_seed() if seed is None else seed)
        threads = threads or len(os.sched_getaffinity(0))
        sizes = tuple(positive_sizes((one,), "--sizes") for one in many)
        if sizes and (symbols or plot is not None):
            refuse("--sizes stands in place of --symbols, and has no --plot: leave these out")
        asked_for = TuneRequest(request, limits, positive_sizes(symbols), threads, store)
        return _told(_Command(asked_for, sizes, task or file, alone, output, plot, as_json, quiet))


def _is_task_alone(request: VerifyRequest, task: str | None, output: str | None) -> bool:
    """Whether the file is a task rather than a sketch. Raises `UsageError` where the options do not
    go together."""
    from sketchc.runtime.tasks.task import task_path

    if task is not None:
        if request.is_kernel:
            refuse(f"{request.file} is a kernel: only a sketch has points to choose from")
        if output is not None:
            refuse("-o keeps the sketch that is made of a task alone, and a sketch is given here")
        return False
    path = task_path(request.file)[0]
    if path.suffix != ".py":
        refuse(f"{request.file} is a sketch: say what it computes, with --task TASK.py")
    if request.sketch is not None:
        refuse("--sketch picks one of the sketches of a file, and a task is given here")
    return True


def _told(command: _Command) -> int:
    """Tune and report; returns the exit status."""
    from sketchc.runtime.bench.driver import MeasurementFailedError

    file = command.asked.request.file
    try:
        found, code = _tuned(command)
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
            click.echo(f"failed ({error.failure}): {file}: {error}", err=True)
        return 1
    _report(command, found, code)
    return 0


def _report(command: _Command, found: Tuning | SizesTuning, code: str) -> None:
    from sketchc.runtime.tune import sizes_text, text
    from sketchc.runtime.tune.tuner import Tuning

    if command.plot is not None:
        assert isinstance(found, Tuning)  # several sizes have no plot
        _draw_search(found, command.plot)
    if command.as_json:
        own = {"command": shlex.join(["sketchc", *sys.argv[1:]]), "again": code, "passed": True}
        told = text.to_json(found) if isinstance(found, Tuning) else sizes_text.to_json(found)
        click.echo(json.dumps({**own, **told}, indent=2))
    elif isinstance(found, Tuning):
        text.show(found, code, make_console())
    else:
        sizes_text.show(found, code, make_console())


def _tuned(command: _Command) -> tuple[Tuning | SizesTuning, str]:
    """Tune; returns what was found and the command that gives its code. Raises `SketchError`,
    `UsageError` and `MeasurementFailedError`."""
    from sketchc.runtime.tasks.task import load_task

    asked, quiet = command.asked, command.quiet or command.as_json
    if not command.alone:
        asked = attrs.evolve(asked, request=lowered_early(asked.request))
    with (
        timing_progress("tune", asked.request.file, quiet=quiet) as say,
        load_task(command.task) as task,
        tempfile.TemporaryDirectory() as folder,
    ):
        if command.alone:
            file = _designed(command, task, Path(folder), say)
            asked = attrs.evolve(asked, request=attrs.evolve(asked.request, file=file))
        unkept = command.task if command.alone and command.output is None else ""
        if command.sizes:
            many, tree = tune_for_sizes(asked, command.sizes, task, say)
            return many, again_for_sizes(asked, tree, many, unkept)
        found, tree = tune_sketch(asked, task, say)
        return found, again(asked.request, tree, found.best, unkept)


@attrs.frozen
class _Notes:
    """Says what the Designer is doing, as a run's progress."""

    say: Say

    def note(self, agent: str, text: str) -> None:
        self.say(f"{agent}: {text}")


def _designed(command: _Command, task: TaskClient, folder: Path, say: Say) -> str:
    """The file with the sketch that the built-in Designer makes: the one to keep it in, or one in
    `folder`. Raises `UsageError`."""
    from sketchc.agents.designer.messages import sketch_name
    from sketchc.agents.run.design import designed
    from sketchc.cli.gen_lists import groups_of
    from sketchc.lowering.hardware import load_hardware
    from sketchc.lowering.registry import load_target
    from sketchc.runtime.toolchains.base import toolchain

    request, limits = command.asked.request, command.asked.limits
    target, chip = options.resolve_target(request.target, request.hardware)
    require_speed(toolchain(target))
    if len(groups := groups_of(command.task, task.path.read_text("utf-8"))) > 1:
        refuse(
            f"the lists of inputs of {command.task} need {len(groups)} sketches, and one is tuned "
            "at a time: `sketchc gen --tune` makes and tunes all of them"
        )
    hardware = load_hardware(chip or load_target(target).capabilities.default_hardware).name
    asked = (target, hardware, request.constants, limits.seed)
    text = designed(task, *asked, folder, _Notes(say))
    file = command.output or str(folder / f"{sketch_name(task.path.stem)}.sketch")
    options.write(file, text)
    return file


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
