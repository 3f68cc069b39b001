"""`sketchc suite`: `gen` on many tasks, what passes of them, and two such runs side by side."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sketchc.base.diagnostics import UsageError
from sketchc.cli import options
from sketchc.cli.options import Command

if TYPE_CHECKING:
    from sketchc.agents.suites.sources import Suite


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
    """Adds what says which tasks; the command gets them as `chosen`, None where nothing does."""

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
        from sketchc.agents.suites.sources import selected

        names = ("name", "kernelbench", "akg", "tasks", "sizes")
        chosen = _suite_of(**{name: given.pop(name) for name in names})
        if chosen is not None and only is not None:
            chosen = selected(chosen, only)
        return command(*arguments, chosen=chosen, **given)

    return with_suite  # type: ignore[return-value]


def _suite_of(
    name: str | None,
    kernelbench: str | None,
    akg: str | None,
    tasks: str | None,
    sizes: str | None,
) -> Suite | None:
    """The suite that is asked for. Raises `UsageError` for several or an unknown one."""
    from sketchc.agents.suites import sources

    folders: dict[str, tuple[str | None, Callable[[Path], Suite]]] = {
        "--kernelbench": (kernelbench, sources.kernelbench_suite),
        "--akg": (akg, sources.akg_suite),
        "--tasks": (tasks, sources.folder_suite),
    }
    asked = [(make, Path(given)) for given, make in folders.values() if given is not None]
    if name is None and not asked:
        return None
    if (name is not None) + len(asked) > 1:
        msg = f"say one of SUITE, {', '.join(folders)}"
        raise UsageError(msg)
    if name is not None and name not in sources.BUILT_IN:
        msg = f"unknown suite {name!r}; known: {', '.join(sources.BUILT_IN)}"
        raise UsageError(msg)
    if name is not None:
        return sources.level1(full=sizes == "full")
    if sizes is not None:
        msg = f"--sizes goes with {sources.LEVEL1}: other tasks say their sizes themselves"
        raise UsageError(msg)
    make, folder = asked[0]
    return make(folder)


@suite.command("list")
@_suite_options
@click.option("--output", "-o", metavar="DIR", help="Write the task files of level1 into DIR.")
@options.json_option
def list_(chosen: Suite | None, output: str | None, as_json: bool) -> int:
    """List the tasks of a suite with their categories, and write their files; without one, the
    suites that there are.

    \b
    Examples:
      sketchc suite list level1
      sketchc suite list level1 --only matmul -o tasks
      sketchc suite list --kernelbench KernelBench --only level2
    """
    from sketchc.agents.suites.sources import BUILT_IN, write_task

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
