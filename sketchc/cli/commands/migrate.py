"""`sketchc migrate`: a kernel of one target, back to a sketch and down to another target."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from sketchc.api import sketches
from sketchc.base.diagnostics import refuse
from sketchc.base.types import Scalar
from sketchc.cli import migrating, options
from sketchc.cli.gen_report import report
from sketchc.cli.migrating import FoundTask, Original
from sketchc.cli.options import store_option, task_errors

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.run.run import RunOptions
    from sketchc.runtime.tasks.task import Task
    from sketchc.runtime.verify.verdict import Verdict

    Opened = Callable[[], Task] | None

#: Options that win over `sketchc.toml` and the environment, and the file itself.
_SETTINGS = (
    *("config", "llm", "model", "base_url"),
    *("max_calls", "max_tokens", "max_cost", "max_seconds"),
)


@click.command()
@click.argument("kernel")
@click.option("--from", "source_target", required=True, metavar="TARGET", help="What it is for.")
@click.option("--to", "target", required=True, metavar="TARGET", help="What it is to be for.")
@options.hardware_option
@click.option(
    "--task",
    metavar="TASK.py[:NAME]",
    help="What the kernel computes; default: the task that its comment or the store names, else "
    "the new kernel is compared with the original alone.",
)
@click.option(
    "--signature",
    metavar="X.sketch",
    help="Without a task: the sketch that says what a kernel by others is called with.",
)
@options.entry_option
@options.set_option("Bind a constexpr or param.")
@options.model_options(
    "Who reads a kernel by others: openai, replay:FILE (a recorded ledger) or mailbox:DIR."
)
@click.option("--coder", type=click.Choice(["builtin", "llm"]), help="Who writes the new kernel.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Default: 5.")
@click.option(
    "--max-repairs",
    type=click.IntRange(min=0),
    help="How often a model may mend its sketch within one attempt. Default: 4.",
)
@click.option("--max-calls", type=click.IntRange(min=1), help="Cap on calls to the model.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Cap on tokens, in and out.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Cap on money, by your prices.")
@click.option("--max-seconds", type=click.FloatRange(min=0), help="Cap on wall time.")
@options.seed_option("Default: a fresh one, kept in the trace.")
@click.option("--output", "-o", metavar="DIR", help="Default: a new folder in sketchc-runs.")
@click.option(
    "--resume", is_flag=True, help="Go on with the run in DIR; paid calls are not made again."
)
@click.option("--no-bench", is_flag=True, help="Do not measure a kernel that passed.")
@click.option("--json", "as_json", is_flag=True, help="The trace as JSON on standard output.")
@options.quiet_option
@options.verify_ir_option
@store_option
def migrate(**given: Any) -> int:
    """Bring a kernel to another target: back to a sketch, and down again.

    The sketch of a kernel that sketchc wrote stands in the comment at its end, or in the store; a
    kernel by others is read by a language model. The new kernel is verified against the task or,
    where there is none, against the original kernel, run here.

    Exit status: 0 passed, 1 no kernel passed, or the original no longer does what its sketch says,
    2 misuse or a broken task, 3 stopped by a cap or by the model's endpoint: --resume goes on.

    \b
    Examples:
      sketchc migrate softmax.py --from triton_cuda --to triton_ascend
      sketchc migrate softmax.cpp --from cpp --to cuda_c --task examples/tasks/softmax.py -o out
      sketchc migrate theirs.py --from triton_cuda --to cpp --task task.py --llm mailbox:letters
      sketchc migrate theirs.cu --from cuda_c --to triton_cuda --signature x.sketch --llm openai
    """
    with task_errors(as_json=given["as_json"]), tempfile.TemporaryDirectory() as place:
        try:
            return _migrate(given, Path(place))
        except sketches.SketchError as error:
            if not given["as_json"]:
                raise
            found = {"outcome": "failed", "reason": str(error), **options.diagnostics_json(error)}
            click.echo(json.dumps(found, indent=2))
            return 1


def _migrate(given: dict[str, Any], place: Path) -> int:
    """Carry out `sketchc migrate`; `place` takes builds and texts of the store. Returns the exit
    status. Raises `UsageError`, `SketchError`."""
    configuration = options.configuration_of(**{name: given[name] for name in _SETTINGS})
    target, chip = options.resolve_target(given["target"], given["hardware"])
    kernel = (given["kernel"], given["source_target"], given["entry"])
    original = migrating.read_original(*kernel, given["store"])
    if original.target == target and chip is None:
        refuse(f"{original.file} is for {target} already; say --hardware for another chip of it")
    task = migrating.find_own_task(original, given["task"], given["store"], place)
    say = _saying(given)
    if original.origin is None:
        return _by_model(given, configuration, original, task, place, say)
    say(f"the sketch of {original.file} is found in {original.where}")
    if given["signature"]:
        refuse(f"--signature is for kernels by others; {original.file} has a sketch")
    if original.changed and not _still_right(given, configuration, original, say):
        return 1
    return _by_sketch(given, configuration, original, task, place, say)


def _saying(given: dict[str, Any]) -> Callable[[str], None]:
    """A function that prints a line on standard error, unless all is to be quiet."""

    def say(text: str) -> None:
        if not given["quiet"]:
            click.echo(f"migrate: {text}", err=True)

    return say


def _still_right(
    given: dict[str, Any],
    configuration: Configuration,
    original: Original,
    say: Callable[[str], None],
) -> bool:
    """Whether a kernel that was changed still does what its sketch says; if not, prints why."""
    from sketchc.runtime.verify.seed import fresh_seed

    say(
        f"{original.file} or its sketch was changed since sketchc wrote it, or never shown to do "
        "what its sketch says: it is run beside it"
    )
    seed = fresh_seed() if given["seed"] is None else given["seed"]
    timeout = configuration.target(original.target).verify_timeout
    candidate = migrating.candidate_of(original)
    verdict = migrating.compared_with_sketch(candidate, seed, timeout)
    if verdict.passed:
        say(f"it does what the sketch says, in {len(verdict.cases)} cases")
        return True
    _refuted(original, verdict, as_json=given["as_json"])
    return False


def _refuted(original: Original, verdict: Verdict, *, as_json: bool) -> None:
    """Print that the original no longer does what its sketch says, with the verdict."""
    from sketchc.cli.consoles import make_console
    from sketchc.runtime.verify import text
    from sketchc.runtime.verify.verdict import to_json

    other = "Delete the comment" if original.where == migrating.COMMENT else "Add --no-store"
    word = "no longer does" if verdict.failures else "could not be shown to do"
    reason = (
        f"{original.file} {word} what the sketch in {original.where} says, so that sketch is not "
        f"the kernel's; nothing is migrated. {other} to have a model read the code, or put the "
        "code back"
    )
    if as_json:
        found = {"outcome": "failed", "reason": reason, "verdict": to_json(verdict)}
        click.echo(json.dumps(found, indent=2))
        return
    text.show(verdict, make_console())
    click.echo(f"error: {reason}", err=True)


# ---------------------------------------------------------------- the runs


def _by_sketch(
    given: dict[str, Any],
    configuration: Configuration,
    original: Original,
    task: FoundTask | None,
    place: Path,
    say: Callable[[str], None],
) -> int:
    """Lower the sketch that the kernel was made of, and verify; returns the exit status."""
    origin = original.origin
    assert origin is not None
    source, tree = migrating.own_sketch(original)
    constants = migrating.carried_settings(tree, origin)
    constants |= options.parse_assignments(given["settings"], "--set")
    wanted = _options(given, configuration, original, task, "coder-only")
    wanted = attrs.evolve(wanted, sketch=source.text, picked=tree.name, constants=constants)
    sketches.plan_sketch(source, tree, wanted.target, wanted.hardware, constants)
    opened: Opened = None
    if task is None:
        opened = _original_task(configuration, original, constants, place, say)
    return _run(given, configuration, wanted, task, opened, say)


def _original_task(
    configuration: Configuration,
    original: Original,
    constants: Mapping[str, Scalar],
    place: Path,
    say: Callable[[str], None],
) -> Opened:
    """The original as the task; its sketch, where the original cannot run here."""
    from sketchc.runtime.verify.design import SketchTask
    from sketchc.runtime.verify.original import KernelTask

    candidate = migrating.candidate_of(original)
    status = candidate.toolchain.status()
    if not status.can_run:
        say(f"no task is known, and {original.target} cannot run here: compared with the sketch")
        return partial(SketchTask, candidate.plan, constants, Path(original.file))
    say(f"no task is known: compared with the original alone, {status.how_it_runs}")
    timeout = configuration.target(original.target).verify_timeout
    return partial(KernelTask, candidate, place / "original", constants, timeout)


def _by_model(
    given: dict[str, Any],
    configuration: Configuration,
    original: Original,
    task: FoundTask | None,
    place: Path,
    say: Callable[[str], None],
) -> int:
    """Have a model write the sketch of a kernel by others, and go on as `sketchc gen` does; returns
    the exit status."""
    if not configuration.llm.provider:
        refuse(
            f"{original.file} holds no sketch in a comment at its end, and the store does not know "
            "its text: a model has to read it; say --llm, or see docs/CONFIGURATION.md"
        )
    say(f"{original.file} holds no sketch, and the store knows none: a model reads it")
    wanted = _options(given, configuration, original, task, "default")
    constants = options.parse_assignments(given["settings"], "--set")
    opened: Opened = None
    if task is not None and given["signature"]:
        refuse("--signature says what a kernel is called with where no task is known; leave it out")
    if task is None and given["signature"]:
        opened = _signed_task(given, configuration, original, constants, place)
    elif task is None:
        task = FoundTask(migrating.own_specification(original), "")
        os.environ |= migrating.interpreting(original.target)
    if task is None or not task.found:
        say("no task is known: the new kernel is compared with the original alone, run here")
    wanted = attrs.evolve(wanted, constants=constants)
    return _run(given, configuration, wanted, task, opened, say)


def _signed_task(
    given: dict[str, Any],
    configuration: Configuration,
    original: Original,
    constants: Mapping[str, Scalar],
    place: Path,
) -> Opened:
    """A kernel by others as the task, called as `--signature` says. Raises `UsageError`."""
    from sketchc.cli.verify_files import require_running
    from sketchc.runtime.verify.original import KernelTask

    candidate, own = migrating.signed_candidate(original, given["signature"], constants)
    require_running(candidate.toolchain, "there is no task, and the original cannot run here: {}")
    timeout = configuration.target(original.target).verify_timeout
    return partial(KernelTask, candidate, place / "original", own, timeout)


def _options(
    given: dict[str, Any],
    configuration: Configuration,
    original: Original,
    task: FoundTask | None,
    workflow: str,
) -> RunOptions:
    """The options of the run. Raises `UsageError`."""
    from sketchc.agents.run.run import RunOptions, digest
    from sketchc.agents.state.state import Migration
    from sketchc.lowering.hardware import load_hardware
    from sketchc.lowering.registry import load_target

    target, chip = options.resolve_target(given["target"], given["hardware"])
    repairs = given["max_repairs"]
    named = original.file if task is None else task.specification
    told = (original.where, "" if task is None else task.found, given["signature"] or "")
    return RunOptions(
        task=Path(named).name,
        task_digest=digest(original.code if task is None else _task_text(task)),
        target=target,
        hardware=load_hardware(chip or load_target(target).capabilities.default_hardware).name,
        workflow=workflow,
        coder=options.chosen_coder(target, given["coder"], configuration),
        seed=-1 if given["seed"] is None else given["seed"],
        entry=given["entry"] or "",
        max_attempts=given["max_attempts"] or configuration.max_attempts,
        max_repairs=configuration.max_repairs if repairs is None else repairs,
        migration=Migration(original.file, original.target, original.code, *told),
    )


def _task_text(task: FoundTask) -> str:
    from sketchc.runtime.tasks.task import task_path

    path = task_path(task.specification)[0]
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"cannot read the task file {path}: {error}", error)


def _run(
    given: dict[str, Any],
    configuration: Configuration,
    wanted: RunOptions,
    task: FoundTask | None,
    opened: Opened,
    say: Callable[[str], None],
) -> int:
    """Make the run, and say how it ended; returns the exit status. Raises `UsageError`."""
    from sketchc.cli.gen_run import generate

    migration = wanted.migration
    assert migration is not None
    if task is not None and not migration.alone and task.found != "--task":
        say(f"the task is {task.specification}: {task.found}")
    result = generate(
        wanted,
        Path(migration.file if task is None else task.specification),
        migration.text if task is None else _task_text(task),
        None if given["output"] is None else Path(given["output"]),
        configuration,
        resume=given["resume"],
        bench=not (given["no_bench"] or migration.alone),
        quiet=given["quiet"],
        store=given["store"],
        opened=opened,
    )
    alone = "against the original alone: no task is known" if migration.alone else ""
    return report(result, alone, as_json=given["as_json"])
