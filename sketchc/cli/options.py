"""Options and helpers that several commands share."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sketchc.base import verification
from sketchc.base.diagnostics import (
    Diagnostic,
    Source,
    UsageError,
    refuse,
    refusing,
)
from sketchc.base.types import Scalar

if TYPE_CHECKING:
    from sketchc.agents.config.settings import Configuration
    from sketchc.api.sketches import SketchError
    from sketchc.ir.nodes import Proof
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.tasks.task import Task

LARGEST_SIZE = 2**63 - 1

Command = TypeVar("Command", bound=Callable[..., Any])

#: Adds `--verify-ir`, which switches the verifiers between stages on.
verify_ir_option = click.option(
    "--verify-ir",
    is_flag=True,
    expose_value=False,
    callback=lambda _context, _option, given: verification.enable() if given else None,
    help="Verify what each stage of the compiler hands to the next; for bugs of sketchc.",
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
hardware_option = click.option("--hardware", help="The chip; default: the target's own.")
sketch_option = click.option("--sketch", "name", help="Which sketch of the file.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress on standard error.")
entry_option = click.option("--entry", help="A kernel's function; default: found in the file.")
allow_unproved_option = click.option(
    "--allow-unproved", is_flag=True, help="What can be neither proved nor refuted only warns."
)


class _TargetOption(click.Option):
    """An option whose help names the targets, looked up only when the help is printed."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from sketchc.lowering.registry import all_targets

        *others, last = (
            f"{target.name} ({target.capabilities.default_hardware})" for target in all_targets()
        )
        names, text = super().get_help_record(ctx) or ("", "")
        return names, f"{', '.join(others)} or {last}{text}"


def target_option(*, required: bool = True, text: str = ".") -> Callable[[Command], Command]:
    """Adds `--target`; its help is the targets with their own chips, then `text`."""
    return click.option("--target", "-t", cls=_TargetOption, required=required, help=text)


def set_option(text: str) -> Callable[[Command], Command]:
    """Adds `--set NAME=VALUE`; the command gets all of them as `settings`."""
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text)


def threads_option(text: str = "Default: all cores.") -> Callable[[Command], Command]:
    """Adds `--threads`."""
    return click.option("--threads", type=click.IntRange(min=1), help=text)


def seed_option(text: str = "Default: a fresh one.") -> Callable[[Command], Command]:
    """Adds `--seed`."""
    return click.option("--seed", type=click.IntRange(min=0), help=text)


def plot_option(text: str) -> Callable[[Command], Command]:
    """Adds `--plot FILE.png`."""
    return click.option("--plot", metavar="FILE.png", help=text)


def symbols_option(text: str) -> Callable[[Command], Command]:
    """Adds `--symbols M=300,N=520`."""
    return click.option("--symbols", multiple=True, metavar="M=300,N=520", help=text)


def model_options(
    text: str = "openai, replay:FILE or mailbox:DIR.",
) -> Callable[[Command], Command]:
    """Adds the options that choose a language model: `--llm` (`text` is its help), `--model`,
    `--base-url` and `--config`."""

    def with_model(command: Command) -> Command:
        for option in (
            click.option(
                "--config", metavar="FILE", help="Settings; default: sketchc.toml, here or above."
            ),
            click.option("--base-url", help="An OpenAI-compatible endpoint."),
            click.option("--model", help="The model's name at all levels."),
            click.option("--llm", metavar="WHERE", help=text),
        ):
            command = option(command)
        return command

    return with_model


def parse_assignments(pairs: Iterable[str], option: str) -> dict[str, Scalar]:
    """`NAME=VALUE` pairs, several per item when separated by commas.

    Raises `UsageError` for what is not an assignment of a number, true or false.
    """
    values: dict[str, Scalar] = {}
    for item in pairs:
        for pair in item.split(","):
            name, equals, text = pair.partition("=")
            if not equals or not name.strip():
                refuse(f"{option} takes NAME=VALUE, not {pair!r}")
            values[name.strip()] = _scalar(text.strip(), option)
    return values


def parse_sizes(pairs: Iterable[str], option: str = "--symbols") -> dict[str, int]:
    """The sizes of an option. Raises `UsageError` for what is not an integer of 64 bits."""
    sizes: dict[str, int] = {}
    for name, value in parse_assignments(pairs, option).items():
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(f"{option}: the size {name} must be a whole number, not {value}")
        if abs(value) > LARGEST_SIZE:
            refuse(f"{option}: the size {name} does not fit 64 bits")
        sizes[name] = value
    return sizes


def _scalar(text: str, option: str) -> Scalar:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for convert in (int, float):
        with suppress(ValueError):
            return convert(text)
    raise UsageError(f"{option}: {text!r} is not a number, true or false")


def show_diagnostics(source: Source, diagnostics: Iterable[Diagnostic]) -> None:
    """Render diagnostics on standard error, in colour on a terminal."""
    from sketchc.cli.consoles import coloured
    from sketchc.reporting.text import render_text

    colour = coloured(sys.stderr)
    text = render_text(list(diagnostics), [source], colour)
    if text.strip():
        click.echo(text, nl=False, err=True, color=colour)


def diagnostics_json(error: SketchError | None) -> dict[str, Any]:
    """{"diagnostics": ...} as `sketchc check --format json` has them; nothing for None."""
    from sketchc.reporting.machine import plain

    if error is None:
        return {}
    return {"diagnostics": [plain(found) for found in error.diagnostics]}


def write_output(text: str, path: str | None) -> None:
    """Write to `path`, or to standard output. Raises `UsageError` if the file cannot be written."""
    if path is None or path == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    with writing(path):
        Path(path).write_text(text, "utf-8")


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an `OSError` from writing `path` inside into a `UsageError` with the reason, and a hint
    where its folder is missing."""
    try:
        yield
    except OSError as error:
        hint = "" if Path(path).parent.is_dir() else "; make its folder first"
        refuse(f"cannot write {path}: {error.strerror}{hint}", error)


#: An import's name -> the extra of sketchc that brings it; those of targets are in their records.
_EXTRAS = {"torch": "torch", "openai": "llm"}


def lacking(error: ImportError) -> str:
    """Which extra of sketchc to install, if `error` is for a missing optional package; else ""."""
    from sketchc.lowering.registry import all_targets

    name = (error.name or "").partition(".")[0]
    extras = _EXTRAS | dict(pair for target in all_targets() for pair in target.extras)
    if name not in extras or sys.modules.get(name) is not None:
        return ""
    return f"this needs {name}, which is not installed: pip install 'sketchc[{extras[name]}]'"


@contextmanager
def task_errors(*, as_json: bool) -> Iterator[None]:
    """With `as_json`, an error is also printed as an object on standard output: {"error":
    {"class": "task", "reason": ...}} for a task that is broken or not deterministic, class "usage"
    for every other misuse. The exception goes on, to be a line on standard error and status 2."""
    import json

    from sketchc.runtime.tasks.description import TaskFailure

    try:
        try:
            yield
        except ImportError as error:
            if missing := lacking(error):
                raise UsageError(missing) from error
            raise
    except UsageError as error:
        if as_json:
            kind = "task" if isinstance(error, TaskFailure) else "usage"
            click.echo(json.dumps({"error": {"class": kind, "reason": str(error)}}, indent=2))
        raise


def store_option(command: Command) -> Command:
    """Adds `--store` and `--no-store`; commands get `store`, the file to record into or None."""

    @click.option(
        "--store",
        "store",
        metavar="FILE",
        help="Where the result is kept; default: the user's store (see `sketchc store`).",
    )
    @click.option("--no-store", is_flag=True, help="Keep nothing.")
    @wraps(command)
    def with_store(*arguments: Any, store: str | None, no_store: bool, **given: Any) -> Any:
        return command(*arguments, store=None if no_store else store_path(store), **given)

    return with_store  # type: ignore[return-value]


def store_path(given: str | None) -> Path:
    """The store's file: as given, else the default one."""
    from sketchc.base.files import default_store

    return default_store() if given is None else Path(given)


#: Adds `--store` to a command that reads; it gets `store`, the path.
existing_store_option = click.option(
    "--store",
    metavar="FILE",
    help="Default: the user's store.",
    callback=lambda _context, _option, given: store_path(given),
)


def recorder(store: Path | None, task: Task) -> Recorder:
    """A recorder for a loaded task; it warns on standard error where it cannot record."""
    from sketchc.runtime.store.recording import Recorder

    return Recorder(store, task, lambda text: click.echo(text, err=True))


def chosen_coder(target: str, asked: str | None, configuration: Configuration) -> str:
    """Who writes kernels for a target: what was asked for, else what is configured; a target that
    is documents alone has no built-in Coder. Raises `UsageError` where that one was asked for."""
    from sketchc.lowering.registry import load_target

    if load_target(target).coder:
        found: str = asked or configuration.target(target).coder or configuration.coder
        return found
    if asked == "builtin":
        refuse(f"{target} has no built-in Coder, only documents: say --coder llm")
    return "llm"


def resolve_target(
    target: str | None,
    hardware: str | None,
    dsl: str | None = None,
    backend: str | None = None,
    arch: str | None = None,
) -> tuple[str, str | None]:
    """The target and chip by our options or the paper's (the last three). Raises `UsageError`."""
    from sketchc.lowering.registry import all_targets, load_target, target_names

    if target and dsl and target != dsl:
        refuse(f"--target {target} and --dsl {dsl} disagree")
    if hardware and arch and hardware != arch:
        refuse(f"--hardware {hardware} and --arch {arch} disagree")
    chosen = target or dsl
    if backend is not None:
        served = [one.name for one in all_targets() if one.backend == backend]
        if not served:
            known = sorted({one.backend for one in all_targets() if one.backend})
            refuse(f"unknown backend {backend!r}; known: {', '.join(known)}")
        chosen = chosen or served[0]
        if chosen not in served:
            refuse(f"target {chosen} does not run on backend {backend}")
    if chosen is None:
        refuse(f"say --target T, one of: {', '.join(target_names())}")
    return load_target(chosen).name, hardware or arch


def known_target(target: str | None) -> None:
    """Raises `UsageError` if `target` is not None and names no known target."""
    if target is not None:
        from sketchc.lowering.registry import load_target

        load_target(target)


def by_tier(proofs: Iterable[Proof]) -> str:
    """The number of proofs by tier, as `3 proved, 1 tested`; "" for no proofs."""
    tiers = Counter(proof.tier.value for proof in proofs)
    return ", ".join(f"{count} {tier}" for tier, count in tiers.items())


def configuration_of(config: str | None, **said: Any) -> Configuration:
    """The settings of the agents: the file, the environment, and what the command line says (None:
    nothing). Raises `UsageError`."""
    from sketchc.agents.config.settings import load, override

    return override(load(None if config is None else Path(config)), **said)


def difference(source: Source, text: str, changed: str) -> str:
    """A unified diff from `source` to its new `text`; the word `changed` labels the new text."""
    import difflib

    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        source.name,
        f"{source.name} ({changed})",
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def write(path: str, text: str) -> None:
    """Replace a file's content as a whole. Raises `UsageError` where it cannot be written."""
    from sketchc.base.files import replace_file

    with refusing(f"cannot write {path}"):
        replace_file(path, text)
