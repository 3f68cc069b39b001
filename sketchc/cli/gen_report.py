"""What is said of a run of agents when it is over: steps, files, the last line, the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sketchc.agents.run.run import RunResult

#: Exit status by how a run ended.
STATUS = {
    "passed": 0,
    "generated": 0,
    "rejected": 1,
    "incomplete": 1,
    "exhausted": 1,
    "failed": 1,
}
#: That of a kernel of parts alone, with which no workflow ends.
PARTIAL = 1
STOPPED = 3


def report(result: RunResult, said: str = "", *, as_json: bool) -> int:
    """Print what a run left and how it ended, with `said` before the last line, or its trace;
    returns the exit status."""
    from sketchc.agents.run.run import INTERRUPTED

    if as_json:
        click.echo((result.folder / "trace.json").read_text("utf-8"), nl=False)
    else:
        _tell(result, said)
    if result.stopped:
        return 130 if result.stopped == INTERRUPTED else STOPPED
    return STATUS.get(result.state.outcome, PARTIAL)


def _tell(result: RunResult, said: str) -> None:
    from sketchc.agents.llm.messages import ReplayMissError

    _tell_steps(result)
    for path in result.files:
        click.echo(path)
    if said:
        click.echo(said)
    click.echo(headline(result))  # last, where whoever follows a log looks
    if result.stopped and ReplayMissError.kind not in result.stopped:
        click.echo("go on with: the same command and --resume", err=True)


def _tell_steps(result: RunResult) -> None:
    """Print the steps of a run as a table; columns in which nothing stands are left out."""
    from rich.markup import escape
    from rich.table import Table

    from sketchc.agents.run.summary import STEP_COLUMNS, STEP_NUMBERS, step_rows
    from sketchc.cli.consoles import make_console

    rows = [[str(cell) for cell in row] for row in step_rows(result.state.history)]
    told = [n for n in range(len(STEP_COLUMNS)) if any(row[n] for row in rows)]
    if not told:
        return
    shown = Table()
    for name in (STEP_COLUMNS[n] for n in told):
        shown.add_column(name, justify="right" if name in STEP_NUMBERS else "left")
    for row in rows:
        shown.add_row(*(escape(row[n]) for n in told))
    make_console(highlight=False).print(shown)


def headline(result: RunResult) -> str:
    """One line on how the run ended."""
    from sketchc.agents.run.summary import counted, ending

    state, asked, spend = result.state, result.options, result.spend
    ended = ending(state, result.stopped)
    used = f"{counted(spend.calls, 'call')}, {spend.input_tokens + spend.output_tokens:,} tokens"
    cost = f", {spend.cost:.4f} spent" if spend.cost else ""
    attempts = f"attempt {state.attempt} of {asked.max_attempts}; "
    if asked.workflow in ("verifier-only", "kernelgen-only"):
        attempts = ""
    return f"{Path(asked.task).stem} for {asked.target}: {ended} ({attempts}{used}{cost})"
