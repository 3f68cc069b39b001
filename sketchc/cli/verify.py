"""`sketchc verify`: a lowered sketch against a PyTorch task."""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sketchc.cli import options
from sketchc.diagnostics import DiagnosticError, UsageError

if TYPE_CHECKING:
    from sketchc.runtime.toolchains.base import Toolchain
    from sketchc.runtime.verify.verify import Candidate


@click.command()
@click.argument("file")
@click.option(
    "--task",
    required=True,
    metavar="TASK.py",
    help="A file with Model, get_inputs, get_init_inputs.",
)
@click.option("--target", "-t", required=True, help="triton_ascend, triton_cuda or cpp.")
@click.option("--hardware", help="The chip; default: the target's own.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Bind a constexpr, or a param the task does not give.",
)
@click.option("--sketch", "name", help="Which sketch of the file.")
@click.option("--seed", type=click.IntRange(min=0), help="Repeat a run; default: a fresh secret.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For each run of the kernel.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
def verify(
    file: str,
    task: str,
    target: str,
    hardware: str | None,
    settings: tuple[str, ...],
    name: str | None,
    seed: int | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Lower a sketch, compile it, run it on many sizes and inputs, compare with the task.

    Exit status: 0 passed, 1 failed, 2 when nothing could be verified (a task that raises or does
    not fit the sketch, a target that cannot run here).

    \b
    Example:
      sketchc verify examples/rms.sketch --task examples/tasks/rms.py --target cpp
    """
    constants = options.parse_assignments(settings, "--set")
    try:
        candidate = prepare(file, name, target, hardware, constants)
    except options.SketchError as error:
        options.show_diagnostics(error.source, error.diagnostics)
        return 1
    require_running(candidate.toolchain)
    from sketchc.runtime.frontends.torch_task import TorchTask
    from sketchc.runtime.verify import report
    from sketchc.runtime.verify.verdict import CaseResult, to_json
    from sketchc.runtime.verify.verify import verify as run_verification

    def progress(result: CaseResult) -> None:
        if sys.stderr.isatty():
            click.echo(f"{result.shape.text} ({result.kind}): {result.failure or 'ok'}", err=True)

    # The task is given no less than its default: importing torch alone may take seconds.
    patience = max(timeout, 300.0)
    with TorchTask(Path(task), patience) as loaded, tempfile.TemporaryDirectory() as folder:
        verdict = run_verification(
            candidate,
            loaded,
            Path(folder),
            secrets.randbits(48) if seed is None else seed,
            constants,
            progress,
            timeout=timeout,
        )
    if as_json:
        import json

        click.echo(json.dumps(to_json(verdict), indent=2))
    else:
        from rich.console import Console

        report.show(verdict, Console())
    return 0 if verdict.passed else 1 if verdict.failures else 2


def require_running(toolchain: Toolchain) -> None:
    """Raises `UsageError` where the target cannot run, with what is missing."""
    status = toolchain.status()
    if not status.can_run:
        lacks = f" (missing: {', '.join(status.missing)})" if status.missing else ""
        advice = status.advice or "see `sketchc targets`"
        msg = f"{toolchain.target} cannot run on this machine{lacks}; {advice}"
        raise UsageError(msg)


def prepare(
    file: str,
    name: str | None,
    target: str,
    hardware: str | None,
    constants: dict[str, options.Scalar],
) -> Candidate:
    """Lower `file` for `target`, with the toolchain that runs it.

    Raises `SketchError` for a sketch that does not lower and `UsageError` for unknown names.
    """
    from sketchc.cli.lower import check_bindable, resolve_target
    from sketchc.lowering.passes import build_plan
    from sketchc.lowering.registry import target_module
    from sketchc.runtime.toolchains.base import toolchain
    from sketchc.runtime.verify.verify import Candidate

    chosen, chip = resolve_target(target, hardware, None, None, None)
    source, tree = options.load_sketch(file, name)
    check_bindable(tree, constants)
    try:
        plan = build_plan(tree, chosen, chip, constants).plan
        kernel = target_module(chosen).emit(plan)
    except DiagnosticError as error:
        raise options.SketchError(source, error) from error
    return Candidate(plan, kernel, toolchain(chosen))
