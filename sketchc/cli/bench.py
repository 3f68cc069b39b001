"""`sketchc bench`: time a lowered sketch against its PyTorch task."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchc.cli import options
from sketchc.cli.verify import prepare
from sketchc.diagnostics import UsageError

if TYPE_CHECKING:
    from sketchc.runtime.bench.bench import Measurement
    from sketchc.runtime.verify.verify import Candidate


@click.command()
@click.argument("file")
@click.option("--task", required=True, metavar="TASK.py", help="A file in KernelBench's format.")
@click.option("--target", "-t", required=True, help="cpp, or triton_cuda on a machine with a GPU.")
@click.option("--hardware", help="The chip; default: the target's own.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Bind a constexpr, or a param the task does not give.",
)
@click.option(
    "--symbols", multiple=True, metavar="M=300,N=520", help="Other sizes than the task's."
)
@click.option("--sketch", "name", help="Which sketch of the file.")
@click.option("--samples", type=click.IntRange(min=5), default=31, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
@click.option("--seed", type=click.IntRange(min=0), help="Default: a fresh one.")
@click.option("--json", "as_json", is_flag=True, help="Everything measured, with raw samples.")
def bench(
    file: str,
    task: str,
    target: str,
    hardware: str | None,
    settings: tuple[str, ...],
    symbols: tuple[str, ...],
    name: str | None,
    samples: int,
    threads: int | None,
    seed: int | None,
    as_json: bool,
) -> int:
    """Time a sketch and PyTorch eager turn about, on the same inputs; verify the timed outputs.

    Exit status: 0 measured and right, 1 when an output of a timed run is wrong (or the time cannot
    be true), 2 when nothing can be timed: the target does not run here at its own speed, or the
    task does not fit.

    \b
    Example:
      sketchc bench examples/rms.sketch --task examples/tasks/rms.py --target cpp
    """
    constants = options.parse_assignments(settings, "--set")
    sizes = _sizes(symbols)
    try:
        candidate = prepare(file, name, target, hardware, constants)
    except options.SketchError as error:
        options.show_diagnostics(error.source, error.diagnostics)
        return 1
    _require_speed(candidate)
    from sketchc.runtime.bench.bench import Settings
    from sketchc.runtime.bench.bench import bench as measure
    from sketchc.runtime.bench.machine import this_machine
    from sketchc.runtime.bench.timing import Schedule
    from sketchc.runtime.frontends.torch_task import TorchTask

    device = "cuda" if candidate.plan.hardware.family == "nvidia" else "cpu"
    with TorchTask(Path(task)) as loaded, tempfile.TemporaryDirectory() as folder:
        measured = measure(
            candidate,
            loaded,
            Path(folder),
            Settings(
                secrets.randbits(48) if seed is None else seed,
                threads or len(os.sched_getaffinity(0)),
                Schedule(samples=samples),
                sizes,
                constants,
                device,
            ),
            this_machine(device),
        )
    _show(measured, as_json)
    return 0 if measured.passed else 1


def _show(measured: Measurement, as_json: bool) -> None:
    from sketchc.runtime.bench import report

    if as_json:
        import json

        click.echo(json.dumps(report.to_json(measured), indent=2))
        return
    from rich.console import Console

    report.show(measured, Console())


def _require_speed(candidate: Candidate) -> None:
    """Raises `UsageError` where the target does not run at its own speed."""
    status = candidate.toolchain.status()
    if not status.can_run or status.interpreted:
        how = f"runs: {status.how_it_runs}" if status.can_run else "it cannot run"
        advice = f"; {status.advice}" if status.advice else ""
        msg = f"{candidate.plan.target} cannot be timed on this machine: {how}{advice}"
        raise UsageError(msg)


def _sizes(pairs: tuple[str, ...]) -> dict[str, int]:
    """The sizes of `--symbols`. Raises `UsageError` for what is not a positive integer."""
    sizes = options.parse_sizes(pairs)
    for name, value in sizes.items():
        if value < 1:
            msg = f"--symbols {name}={value}: a size to measure at is a positive integer"
            raise UsageError(msg)
    return sizes
