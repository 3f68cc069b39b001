"""The options `--store` and `--no-store` of commands that record what they find."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sketchc.runtime.store.recording import Recorder
    from sketchc.runtime.tasks.task import Task

#: Names another file than the default one.
VARIABLE = "SKETCHC_STORE"


def default_store() -> Path:
    """$SKETCHC_STORE, else `sketchc/store.sqlite` in the user's data folder ($XDG_DATA_HOME, else
    ~/.local/share). The file need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local/share") / "sketchc" / "store.sqlite"


Command = TypeVar("Command", bound=Callable[..., Any])


def store_option(command: Command) -> Command:
    """Adds both options; the command gets `store`, the file to record into, None for none."""

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


def existing_store_option(command: Command) -> Command:
    """Adds `--store` to a command that reads; it gets `store`, the path."""

    @click.option("--store", "store", metavar="FILE", help="Default: the user's store.")
    @wraps(command)
    def with_store(*arguments: Any, store: str | None, **given: Any) -> Any:
        return command(*arguments, store=store_path(store), **given)

    return with_store  # type: ignore[return-value]


def store_path(given: str | None) -> Path:
    """The store's file: as given, else the default one."""
    from sketchc.cli.store_option import default_store

    return default_store() if given is None else Path(given)


def recorder(store: Path | None, task: Task) -> Recorder:
    """Records for a loaded task; says on standard error where it cannot."""
    from sketchc.runtime.store.recording import Recorder

    return Recorder(store, task, lambda text: click.echo(text, err=True))
