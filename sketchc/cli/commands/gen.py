"""`sketchc gen`: from a PyTorch task to a verified kernel, by agents."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchc.api import sketches
from sketchc.base.diagnostics import refuse
from sketchc.cli import options
from sketchc.cli.gen_report import report
from sketchc.cli.options import store_option, task_errors
from sketchc.cli.tuning.tune_sketch import duration

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.agents.run.run import RunOptions, RunResult
    from sketchc.cli.gen_partial import PartialRuns
    from sketchc.runtime.tune.tuner import Tuning

    #: The options of a run, and the text of the task's file.
    Wanted = tuple[RunOptions, str]

#: Options that win over `sketchc.toml` and the environment, and the file itself.
_SETTINGS = (
    *("config", "llm", "model", "base_url"),
    *("max_calls", "max_tokens", "max_cost", "max_seconds"),
)


@click.command()
@click.argument("task")
@options.target_option()
@options.hardware_option
@options.model_options(
    "openai, replay:FILE (a recorded ledger) or mailbox:DIR (prompts and replies as files)."
)
@click.option("--workflow", help="default, builtin, coder-only, kernelgen-only or verifier-only.")
@click.option(
    "--designer",
    type=click.Choice(["builtin", "llm", "both"]),
    help="Who writes the sketch. Default: a model where one is configured, else the built-in "
    "Designer (workflow builtin). Of both, which need -o, the faster verified kernel is kept.",
)
@click.option(
    "--emit",
    type=click.Choice(["graph", "loops", "phases", "sketch", "program"]),
    help="Print a stage of the built-in Designer, and make no kernel; program: the sketch as one "
    "that calls a sketch for each kind of layer.",
)
@click.option(
    "--allow-partial",
    is_flag=True,
    help="Where the built-in Designer has no form for some operations, let PyTorch compute these, "
    "between kernels of the rest. It never counts as passed.",
)
@click.option("--coder", type=click.Choice(["builtin", "llm"]), help="Who writes the kernel.")
@click.option("--sketch", "sketch", metavar="FILE", help="An existing sketch (coder-only).")
@click.option("--kernel", metavar="FILE", help="An existing kernel (verifier-only, coder-only).")
@click.option("--entry", default="", help="The kernel's function; default: found in the file.")
@options.set_option("Bind a constexpr or param.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Default: 5.")
@click.option(
    "--max-repairs",
    type=click.IntRange(min=0),
    help="How often the Designer may mend a sketch within one attempt. Default: 4.",
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
@click.option(
    "--tune",
    is_flag=True,
    help="Also find the tile sizes that are fastest here for the task's sizes, and write the "
    "kernel that has them.",
)
@click.option(
    "--budget",
    callback=duration,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="For the search of --tune: 20s, 5m.",
)
@click.option("--no-bench", is_flag=True, help="Do not measure a kernel that passed.")
@click.option(
    "--everything-to-coder",
    is_flag=True,
    help="Ablation: every failure goes to the Coder, whatever the evidence says.",
)
@click.option("--json", "as_json", is_flag=True, help="The trace as JSON on standard output.")
@options.quiet_option
@options.verify_ir_option
@store_option
def gen(**given: Any) -> int:
    """Turn a PyTorch task into a kernel: design, code, verify, mend.

    Exit status: 0 passed (or generated, where the workflow verifies nothing), 1 no kernel passed
    (or only for parts of the task: --allow-partial), 2 misuse or a broken task, 3 stopped by a cap
    or by the model's endpoint: --resume goes on.

    \b
    Examples:
      sketchc gen examples/tasks/layer_norm.py --target cpp
      sketchc gen examples/tasks/layer_norm.py --target cpp --tune --budget 2m
      sketchc gen examples/tasks/softmax.py --target cpp --llm replay:examples/ledgers/softmax.jsonl
      sketchc gen task.py --target triton_cuda --llm openai --model NAME -o out
      sketchc gen task.py --target cpp --llm mailbox:letters --coder llm
      sketchc gen task.py --target triton_cuda --llm openai --model NAME --designer both -o out
    """
    with task_errors(as_json=given["as_json"]):
        if given["emit"]:
            return _emit(given["task"], given["emit"], given["target"])
        return _gen(given)


def _emit(task: str, stage: str, target: str) -> int:
    """Print a stage of the built-in Designer, for each kind of inputs that needs a sketch of its
    own. Raises `UsageError`."""
    from sketchc.agents.autosketch.designer import design, has_f64, has_planes
    from sketchc.cli.gen_lists import ListRuns, groups_of
    from sketchc.runtime.tasks.task import load_task, task_path

    source = _text(str(task_path(task)[0]), "task file")
    groups = groups_of(task, source)
    with tempfile.TemporaryDirectory() as place:
        every = ListRuns(task, source, groups, Path(place))
        for number, path in enumerate(every.narrowed_tasks() if groups[1:] else [task]):
            with load_task(path) as loaded:
                doubles, planes = has_f64(target), has_planes(target)
                text = design(loaded, stage, doubles=doubles, planes=planes)
                click.echo("\n" * (number > 0) + text, nl=False)
    return 0


def _gen(given: dict[str, Any]) -> int:
    """Carry out `sketchc gen`; returns the exit status. Raises `UsageError`."""
    configuration = options.configuration_of(**{name: given[name] for name in _SETTINGS})
    output = None if given["output"] is None else Path(given["output"])
    if given["designer"] == "both":
        result, said = _both(given, configuration, output)
    else:
        wanted = _options(given, configuration)
        _check_tunable(given, wanted[0])
        if given["sketch"] and not _holds(given["sketch"], wanted[0], as_json=given["as_json"]):
            return 1
        result, said = _made(given, configuration, wanted, output), ""
    return report(result, said, as_json=given["as_json"])


def _made(
    given: dict[str, Any], configuration: Configuration, wanted: Wanted, output: Path | None
) -> RunResult:
    """The result of one run, or of a run for each group of the task's lists of inputs where the
    built-in Designer needs a sketch for each. Raises `UsageError`."""
    from sketchc.cli.gen_lists import ListRuns, groups_of
    from sketchc.cli.gen_run import default_folder

    asked, task_source = wanted
    timeout = configuration.target(asked.target).verify_timeout
    builtin = asked.workflow == "builtin"
    if given["allow_partial"] and not builtin:
        refuse("--allow-partial goes with the built-in Designer: --designer builtin")
    groups = groups_of(given["task"], task_source, timeout) if builtin else ()
    default = partial(default_folder, asked, configuration, given["resume"])
    every: ListRuns | PartialRuns | None = None
    if groups[1:]:
        every = ListRuns(given["task"], task_source, groups, output or default())
    elif given["allow_partial"]:
        every = _in_parts(given["task"], timeout, asked.target, output or default())
    if every is None:
        return _run(given, configuration, wanted, output)

    def run(task: str, place: Path) -> RunResult:
        own = {**_resumed(given, place), "task": task}
        return _run(own, configuration, _options(own, configuration), place)

    return every.generate(run)


def _in_parts(task: str, timeout: float, target: str, folder: Path) -> PartialRuns | None:
    """The runs for the parts of a task that have a form; None where all of it has one, or none."""
    from sketchc.cli.gen_partial import PartialRuns, cut_of

    found = cut_of(task, timeout)
    return None if found is None else PartialRuns(task, found, folder, target)


def _resumed(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The options of one of several runs: `resume` is set only where `folder` holds a run already,
    which then goes on, or stays as it is if it has ended."""
    from sketchc.cli.tuning.gen_tuned import UNTUNED

    begun = any((place / "run").exists() for place in (folder, folder / UNTUNED))
    return {**given, "resume": given["resume"] and begun}


def _run(
    given: dict[str, Any], configuration: Configuration, wanted: Wanted, output: Path | None
) -> RunResult:
    """The result of one run; with `--tune`, of the tuned one where that is better."""
    if not given["tune"]:
        return _run_once(given, configuration, wanted, output)
    from sketchc.cli.gen_run import default_folder
    from sketchc.cli.timed import timing_progress
    from sketchc.cli.tuning.gen_tuned import generate_tuned, tune_found
    from sketchc.cli.tuning.tune_sketch import TuneRequest
    from sketchc.cli.verify_files import VerifyRequest
    from sketchc.runtime.tune.tuner import Limits
    from sketchc.runtime.verify.seed import fresh_seed

    asked, task_source = wanted
    seed = fresh_seed() if given["seed"] is None else given["seed"]
    limits, threads = Limits("lfbo", given["budget"], seed), len(os.sched_getaffinity(0))

    def run(options: RunOptions, folder: Path) -> RunResult:
        own = _resumed(given, folder)
        return _run_once(own, configuration, (options, task_source), folder)

    def tune(sketch: str) -> Tuning:
        request = VerifyRequest(
            sketch, asked.target, asked.hardware, asked.constants, seed=seed, sized=False
        )
        own = TuneRequest(request, limits, {}, threads, given["store"])
        with timing_progress("tune", sketch, quiet=given["quiet"]) as say:
            return tune_found(own, given["task"], say)

    folder = output or default_folder(asked, configuration, given["resume"])
    result, said = generate_tuned(folder, asked, run, tune)
    if not given["quiet"]:
        click.echo(said, err=True)
    return result


def _run_once(
    given: dict[str, Any], configuration: Configuration, wanted: Wanted, output: Path | None
) -> RunResult:
    from sketchc.cli.gen_run import generate

    asked, task_source = wanted
    return generate(
        asked,
        Path(given["task"]),
        task_source,
        output,
        configuration,
        resume=given["resume"],
        bench=not given["no_bench"],
        quiet=given["quiet"],
        store=given["store"],
    )


def _both(
    given: dict[str, Any], configuration: Configuration, output: Path | None
) -> tuple[RunResult, str]:
    """The better of both Designers' runs, and why it is kept. Raises `UsageError`."""
    from sketchc.cli.gen_both import DESIGNERS, generate_both

    if output is None:
        refuse("--designer both needs a folder for its two runs: -o DIR")
    if given["workflow"] or given["sketch"] or given["kernel"]:
        refuse("--designer both has a workflow for each: leave --workflow, --sketch, --kernel out")
    if not configuration.llm.provider:
        refuse("--designer both needs a model: --llm, or sketchc.toml")
    wanted = {name: _options({**given, "designer": name}, configuration) for name in DESIGNERS}
    for one, _ in wanted.values():
        _check_tunable(given, one)

    def run(designer: str, folder: Path) -> RunResult:
        return _run(_resumed(given, folder), configuration, wanted[designer], folder)

    return generate_both(output, run)


def _check_tunable(given: dict[str, Any], wanted: RunOptions) -> None:
    """Raises `UsageError` where `--tune` is asked for what cannot be tuned, or only its budget."""
    from click.core import ParameterSource

    from sketchc.cli.tuning.gen_tuned import require_tunable

    source = click.get_current_context().get_parameter_source("budget")
    if given["tune"]:
        require_tunable(wanted)
    elif source is ParameterSource.COMMANDLINE:
        refuse("--budget is for the search of --tune: add --tune, or leave --budget out")


def _options(given: dict[str, Any], configuration: Configuration) -> Wanted:
    """The options of the run, and the text of the task's file. Raises `UsageError`."""
    from sketchc.agents.run.run import RunOptions, digest
    from sketchc.agents.workflows import load_workflow
    from sketchc.lowering.hardware import load_hardware
    from sketchc.lowering.registry import load_target
    from sketchc.runtime.tasks.task import task_path

    target, chip = options.resolve_target(given["target"], given["hardware"])
    record = load_target(target)
    capabilities = record.capabilities
    hardware = load_hardware(chip or capabilities.default_hardware).name
    own = configuration.target(target)
    workflow = _workflow(given, configuration, own.workflow)
    load_workflow(workflow)
    coder = options.chosen_coder(target, given["coder"], configuration)
    _fitting(workflow, coder, given)
    source = _text(str(task_path(given["task"])[0]), "task file")
    return RunOptions(
        task=Path(given["task"]).name,
        task_digest=digest(source),
        target=target,
        hardware=hardware,
        workflow=workflow,
        coder=coder,
        seed=-1 if given["seed"] is None else given["seed"],
        constants=options.parse_assignments(given["settings"], "--set"),
        sketch=_text(given["sketch"], "sketch file") if given["sketch"] else "",
        kernel=_text(given["kernel"], "kernel file") if given["kernel"] else "",
        entry=given["entry"],
        max_attempts=given["max_attempts"] or configuration.max_attempts,
        max_repairs=(
            configuration.max_repairs if given["max_repairs"] is None else given["max_repairs"]
        ),
        everything_to_coder=given["everything_to_coder"],
    ), source


def _workflow(given: dict[str, Any], configuration: Configuration, own: str | None) -> str:
    """The workflow that is asked for, and that of the built-in Designer where nobody asks for one
    and no model is configured. Raises `UsageError` where options contradict each other."""
    designer, named = given["designer"], given["workflow"]
    if designer == "builtin" and named not in (None, "builtin"):
        refuse(f"--designer builtin goes with --workflow builtin, not with {named}")
    if designer == "llm" and named == "builtin":
        refuse("--workflow builtin has the built-in Designer: leave --designer llm out")
    found: str = named or own or configuration.workflow
    alone = not (configuration.llm.provider or given["sketch"] or given["kernel"])
    asked = named is not None or designer == "llm" or found != "default"
    return "builtin" if designer == "builtin" or (alone and not asked) else found


def _fitting(workflow: str, coder: str, given: dict[str, Any]) -> None:
    """Raises `UsageError` where given files do not go with the workflow."""
    if workflow == "verifier-only" and not given["kernel"]:
        refuse("--workflow verifier-only needs the kernel: --kernel FILE")
    if given["kernel"] and workflow not in ("verifier-only", "coder-only"):
        refuse(f"--kernel goes with verifier-only and coder-only, not with {workflow}")
    if workflow == "coder-only" and coder == "builtin" and not (given["sketch"] or given["kernel"]):
        refuse("the built-in Coder needs a sketch: add --sketch FILE, or --coder llm for a model")
    if given["sketch"] and workflow not in ("verifier-only", "coder-only"):
        refuse(
            f"--sketch goes with coder-only and verifier-only; in {workflow} the Designer writes it"
        )


def _holds(path: str, wanted: RunOptions, *, as_json: bool) -> bool:
    """Whether the sketch in `path` lowers; if not, prints why with `as_json`, else raises it."""
    try:
        source, tree = sketches.load_sketch(path)
        sketches.plan_sketch(source, tree, wanted.target, wanted.hardware, dict(wanted.constants))
    except sketches.SketchError as error:
        if not as_json:
            raise
        found = {"outcome": "failed", "reason": str(error), **options.diagnostics_json(error)}
        click.echo(json.dumps(found, indent=2))
        return False
    return True


def _text(path: str, what: str) -> str:
    try:
        text = Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        refuse(f"the {what} {path} is not UTF-8 text", error)
    except OSError as error:
        refuse(f"cannot read the {what} {path}: {error.strerror}", error)
    if not text.strip():
        refuse(f"the {what} {path} is empty")
    return text
