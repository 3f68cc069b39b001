"""`sketchc suite`: `gen` on many tasks, what passes of them, and two such runs side by side."""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchc.base.diagnostics import refuse
from sketchc.cli import options
from sketchc.cli.options import Command, store_option, task_errors

if TYPE_CHECKING:
    from sketchc.agents.suites.run import Effort, Results, SuiteOptions
    from sketchc.agents.suites.sources import Suite

#: Options of `gen`, passed on to it unchanged.
_PASSED_ON = (
    *("config", "llm", "model", "base_url", "workflow", "designer", "coder"),
    *("max_attempts", "max_repairs", "max_calls", "max_tokens", "max_cost"),
)
DEFAULT_FOLDER = "sketchc-suites"


@click.group()
def suite() -> None:
    """Run `sketchc gen` on many tasks, and count what passes.

    A suite is `level1` (the operators of KernelBench's level 1, in our own words), the original
    files of a checkout (--kernelbench, --akg), or any folder of task files (--tasks).

    \b
    Examples:
      sketchc suite list level1
      sketchc suite run level1 --target cpp
      sketchc suite run --tasks examples/tasks --target cpp --only 'softmax|norm' -o out
      sketchc suite compare before after
    """


def _suite_options(command: Command) -> Command:
    """Adds the options that choose tasks; the command gets the suite as `chosen` (None without such
    an option), and the regular expression that its tasks match as `only`."""

    @click.argument("name", required=False, metavar="[SUITE]")
    @click.option("--kernelbench", metavar="DIR", help="A checkout of KernelBench: levels 1 to 3.")
    @click.option("--akg", metavar="DIR", help="A checkout of AKG: its dynamic and static parts.")
    @click.option(
        "--tasks", metavar="DIR", help="A folder of task files; folders in it are categories."
    )
    @click.option(
        "--sizes",
        type=click.Choice(["small", "full"]),
        help="Of level1: small ones (default), or the originals'.",
    )
    @click.option("--only", metavar="REGEX", help="Tasks whose name or category it is found in.")
    @wraps(command)
    def with_suite(*arguments: Any, only: str | None, **given: Any) -> Any:
        from sketchc.agents.suites.sources import FOLDERS, selected

        folders = {name: given.pop(name) for name in FOLDERS}
        chosen = _suite_of(given.pop("name"), given.pop("sizes"), folders)
        if chosen is not None and only is not None:
            chosen = selected(chosen, only)
        return command(*arguments, chosen=chosen, only=only or "", **given)

    return with_suite  # type: ignore[return-value]


def _suite_of(name: str | None, sizes: str | None, folders: dict[str, str | None]) -> Suite | None:
    """The suite that is asked for, if any. Raises `UsageError` for several or an unknown one."""
    from sketchc.agents.suites.sources import BUILT_IN, FOLDERS, LEVEL1, level1, paper_suite

    asked = [
        (FOLDERS[source], Path(folder)) for source, folder in folders.items() if folder is not None
    ]
    if name is None and not asked:
        return None
    if (name is not None) + len(asked) > 1:
        refuse(f"say one of SUITE, {', '.join(f'--{source}' for source in FOLDERS)}")
    if name is not None and name not in BUILT_IN:
        refuse(f"unknown suite {name!r}; known: {', '.join(BUILT_IN)}")
    if name == LEVEL1:
        return level1(full=sizes == "full")
    if sizes is not None:
        refuse(f"--sizes goes with {LEVEL1}: other tasks say their sizes themselves")
    if name is not None:
        return paper_suite(name)
    make, folder = asked[0]
    return make(folder)


@suite.command("list")
@_suite_options
@click.option("--output", "-o", metavar="DIR", help="Write the files of our own tasks into DIR.")
@options.json_option
def list_(chosen: Suite | None, only: str, output: str | None, as_json: bool) -> int:
    """List the tasks of a suite with their categories, and write their files; without one, the
    suites that there are.

    \b
    Examples:
      sketchc suite list level1
      sketchc suite list level1 --only matmul -o tasks
      sketchc suite list --kernelbench KernelBench --only level2
    """
    from sketchc.agents.suites.sources import BUILT_IN, write_task

    del only  # `chosen` is what it selects
    if chosen is None:
        click.echo("\n".join(f"{name}: {about}" for name, about in BUILT_IN.items()))
        return 0
    if output is not None:
        for task in chosen.tasks:
            click.echo(str(write_task(task, Path(output))))
        return 0
    if as_json:
        rows = [
            {
                "name": task.name,
                "category": task.category,
                "file": None if task.path is None else str(task.path),
                "sizes": task.sizes,
                "excluded": task.excluded,
            }
            for task in chosen.tasks
        ]
        click.echo(json.dumps({"suite": chosen.name, "tasks": rows}, indent=2))
        return 0
    from sketchc.cli.suite_tables import show_tasks

    show_tasks(chosen)
    counts = Counter(task.category for task in chosen.tasks if not task.excluded)
    shares = ", ".join(f"{count} {category}" for category, count in counts.items())
    click.echo(f"{chosen.name}: {counts.total()} tasks ({shares})")
    return 0


@suite.command("run")
@_suite_options
@options.target_option()
@options.hardware_option
@click.option(
    *("--samples", "-n"),
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs of gen on each task, for pass@k.",
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="At once. Default: all cores.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds that a sample may take.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0, min_open=True),
    default=8.0,
    show_default=True,
    help="GiB that a sample may hold, over all its processes.",
)
@click.option("--bench", is_flag=True, help="Measure what passes, one sample at a time.")
@click.option("--keep", metavar="DIR", help="Write the sketches of what passes into DIR.")
@click.option("--output", "-o", metavar="DIR", help=f"Default: a folder in {DEFAULT_FOLDER}.")
@options.model_options()
@click.option("--workflow", help="As for gen.")
@click.option("--designer", type=click.Choice(["builtin", "llm"]), help="As for gen.")
@click.option("--coder", type=click.Choice(["builtin", "llm"]), help="As for gen.")
@click.option("--max-attempts", type=click.IntRange(min=1), help="Of a sample; as for gen.")
@click.option("--max-repairs", type=click.IntRange(min=0), help="Of a sample; as for gen.")
@click.option("--max-calls", type=click.IntRange(min=1), help="Of a sample; as for gen.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Of a sample; as for gen.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Of a sample; as for gen.")
@options.seed_option("Of each first sample. Default: fresh.")
@options.json_option
@options.quiet_option
@store_option
def run_(chosen: Suite | None, **given: Any) -> int:
    """Run `sketchc gen` on every task of a suite, each in a process of its own.

    Prints what passed by category, and every miss with its reason; DIR holds results.json,
    report.html and what gen left of each sample. The same command goes on with a run that was
    stopped or killed. An incomplete verdict is no pass.

    Exit status: 0 every task passed, 1 some did not, 2 misuse, 130 interrupted.

    \b
    Examples:
      sketchc suite run level1 --target cpp --keep sketches
      sketchc suite run level1 --target cpp --only conv2d --timeout 120 -o out
      sketchc suite run --kernelbench KernelBench --only level2 --target cpp
      sketchc suite run level1 --target cpp --llm openai --model NAME --workflow default -n 4
    """
    with task_errors(as_json=given["as_json"]):
        return _run(chosen, given)


def _run(chosen: Suite | None, given: dict[str, Any]) -> int:
    """Carry out `sketchc suite run`; returns the exit status. Raises `UsageError`."""
    from sketchc.agents.suites.run import SuiteFolder
    from sketchc.cli.suite_run import perform_suite

    if chosen is None:
        refuse("say which tasks: SUITE (sketchc suite list), --kernelbench, --akg or --tasks")
    asked, effort = _asked(chosen, given)
    default = Path(DEFAULT_FOLDER) / f"{chosen.name}-{asked.target}"
    folder = SuiteFolder(Path(given["output"]) if given["output"] else default)
    try:
        results = perform_suite(folder, chosen, asked, effort, given["store"], given["quiet"])
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on with it", err=True)
        return 130
    if given["keep"]:
        _keep(folder.path, results, Path(given["keep"]))
    if given["as_json"]:
        click.echo(json.dumps(results.to_json(), indent=2))
    else:
        from sketchc.cli.suite_tables import show_results

        show_results(results)
        click.echo(str(folder.path / "results.json"))
    return 1 if results.misses else 0


def _asked(chosen: Suite, given: dict[str, Any]) -> tuple[SuiteOptions, Effort]:
    """The options of the run, and its samples, jobs and limits. Raises `UsageError`."""
    from sketchc.agents.suites.bounded import Bounds
    from sketchc.agents.suites.run import Effort, SuiteOptions
    from sketchc.agents.workflows import load_workflow

    target, chip = options.resolve_target(given["target"], given["hardware"])
    if given["workflow"]:
        load_workflow(given["workflow"])
    options.configuration_of(given["config"])
    jobs = given["jobs"] or (1 if given["bench"] else len(os.sched_getaffinity(0)))
    if given["bench"] and jobs > 1:
        refuse("--bench goes with --jobs 1: times taken beside other work say nothing")
    passed_on = []
    for name in _PASSED_ON:
        if given[name] is not None:
            passed_on += [f"--{name.replace('_', '-')}", str(given[name])]
    where = (chosen.name, target, chip or "", given["only"])
    return (
        SuiteOptions(*where, given["bench"], given["seed"], tuple(passed_on)),
        Effort(given["samples"], jobs, Bounds(given["timeout"], int(given["memory"] * 2**30))),
    )


def _keep(folder: Path, results: Results, place: Path) -> None:
    """Copy the sketch of each task that passed to `place`. Raises `UsageError`."""
    from sketchc.agents.suites.run import SuiteFolder

    for task in results.tasks:
        if not task.best.passed:
            continue
        kernel = SuiteFolder(folder).kernel(task.name, task.best.number)
        for sketch in kernel.glob("*.sketch"):
            path = place / f"{task.name}.sketch"
            with options.writing(str(path)):
                path.parent.mkdir(parents=True, exist_ok=True)
            options.write_output(sketch.read_text("utf-8"), str(path))


@suite.command("compare")
@click.argument("first", metavar="DIR")
@click.argument("second", metavar="DIR")
@options.json_option
def compare_(first: str, second: str, as_json: bool) -> int:
    """Show two runs side by side, with the significance of their difference.

    Tasks are paired by name and file. p is McNemar's exact test on what only one of the two passes,
    and the sign test on which is faster.

    \b
    Example:
      sketchc suite compare before after
    """
    import attrs

    from sketchc.agents.suites.comparing import compare
    from sketchc.agents.suites.run import SuiteFolder
    from sketchc.base.json_form import to_plain

    results = [SuiteFolder(Path(folder)).results() for folder in (first, second)]
    compared = compare(*results)
    if as_json:
        click.echo(json.dumps(to_plain(attrs.asdict(compared)), indent=2))
        return 0
    from sketchc.cli.suite_tables import show_compared

    show_compared(compared, *results)
    return 0
