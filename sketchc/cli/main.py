"""The command line: one file per command, imported only when it is called.

Exit status: 0 fine, 1 diagnostics or a failed verdict, 2 misuse. A user never sees a traceback:
mistakes are diagnostics or one-line messages, and a compiler bug is reported as such.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
from typing import Any

import click

from sketchc.api.sketches import SketchError
from sketchc.base.diagnostics import UsageError
from sketchc.base.version import __version__
from sketchc.cli.consoles import forced
from sketchc.cli.options import lacking, show_diagnostics

#: command -> "module:attribute" beside the other commands, and the short help shown in the list.
COMMANDS: dict[str, tuple[str, str]] = {
    "check": (".check:check", "Report every diagnostic and every proof of sketches."),
    "lint": (".check:check", "The same as check."),
    "explain": (".explain:explain", "Explain a diagnostic code."),
    "fmt": (".fmt:fmt", "Format sketches."),
    "run": (".run:run", "Run a sketch in the reference interpreter."),
    "lower": (".lower:lower", "Lower a sketch to a target's source code."),
    "explain-plan": (
        ".explain_plan:explain_plan",
        "Predict what a plan costs, and what bounds it.",
    ),
    "verify": (".verify:verify", "Verify a lowered sketch against a PyTorch task."),
    "gen": (".gen:gen", "Turn a PyTorch task into a verified kernel, with agents."),
    "migrate": (".migrate:migrate", "Bring a kernel to another target, by way of a sketch."),
    "suite": (".suite:suite", "Run gen on many tasks, and count what passes."),
    "bench": (".bench:bench", "Measure a lowered sketch against a PyTorch task."),
    "tune": (".tune:tune", "Find the tile sizes that are fastest here, by measuring."),
    "store": (".store:store", "Show what was verified and measured."),
    "report": (".report:report", "Write an HTML page of a run, or of results."),
    "targets": (".targets:targets", "Show what can be compiled and run here."),
    "toolchain": (".targets:toolchain", "Install toolchains."),
    "llm": (".llm:llm", "Try the configured models; read ledgers of runs."),
    "docspec": (".docspec:docspec", "Show and check the documents of a target."),
    "demo": (".demo:demo", "The first minute: lower, prove, run, compare."),
}


#: What an output that takes no more bytes reports: a full disk, a quota, a limit on file sizes.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


#: Seconds after SIGINT or SIGTERM until an alarm ends the process, whatever it does.
_PATIENCE = 4.0
#: Exit status after SIGINT or SIGTERM.
_INTERRUPTED = 130


class LazyGroup(click.Group):
    """Loads a command's module when the command is used, so that `check` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now; None for an unknown one."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found = importlib.import_module(module, "sketchc.cli.commands")
        command: click.Command = getattr(found, attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sketchc")
def cli() -> None:
    """A compiler for Unified Sketches.

    Example: sketchc lower examples/rms.sketch --target triton_ascend

    Colours: NO_COLOR=1 turns them off, FORCE_COLOR=1 on, also into a pipe.
    """
    if forced():  # else click takes colours out of what is no terminal
        click.get_current_context().color = True


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process."""
    # Thousands of long-lived nodes and little garbage: collecting often would only cost start-up.
    gc.set_threshold(200_000, 20, 100)
    # NumPy's threads shall not spin for a thirtieth of a second after each product of matrices, in
    # this process and those that it starts: the next product is seldom there so soon.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    # Python leaves None where a shell closed a stream (`>&-`): what is said there goes nowhere.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _told_to_end)
    try:
        status = run(arguments)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    # From here on nothing is left to be written.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    checked = arguments is None and sys.argv[1:2] in (["check"], ["lint"])
    if (status == _INTERRUPTED or checked) and (_written() or status == _INTERRUPTED):
        # Exit handlers of large libraries take seconds, and child processes end with this one; a
        # check has started nothing, and freeing its many objects would take long.
        os._exit(status)
    sys.exit(status)


def _written() -> bool:
    """Flush standard output and error; False if one fails, which an ordinary exit reports."""
    written = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            written = False
    return written


def _told_to_end(*_: object) -> None:
    """Handle SIGINT and SIGTERM: raise `KeyboardInterrupt`, so that results are written and child
    processes ended; if that takes longer than `_PATIENCE`, an alarm ends the process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    raise KeyboardInterrupt


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        result: Any = cli.main(args=arguments, prog_name="sketchc", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    except click.ClickException as error:
        error.show()
        return 2
    except SketchError as error:
        show_diagnostics(error.source, error.diagnostics)
        return 1
    except UsageError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    except BrokenPipeError:
        return 1
    except MemoryError as error:
        click.echo(f"error: not enough memory: {error or 'choose smaller sizes'}", err=True)
        return 2
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            click.echo(f"error: cannot write: {error.strerror}", err=True)
            return 2
        if isinstance(error, ImportError) and (missing := lacking(error)):
            click.echo(f"error: {missing}", err=True)
            return 2
        return _internal(error)
    return result if isinstance(result, int) else 0


def _internal(error: Exception) -> int:
    """A bug in sketchc: say so, keep the traceback in a file, never on the screen."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="sketchc-crash-", suffix=".txt", delete=False
    ) as file:
        traceback.print_exception(error, file=file)
    click.echo(
        f"internal error: {type(error).__name__}: {error}\n"
        f"This is a bug in sketchc, not in your input. Please report it with {file.name}",
        err=True,
    )
    return 70


if __name__ == "__main__":
    main()
