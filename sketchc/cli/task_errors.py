"""Why there is no answer, for people and for programs: above all, a broken task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click

from sketchc.cli.extras import lacking


@contextmanager
def task_errors(*, as_json: bool) -> Iterator[None]:
    """With `as_json`, why there is no answer is an object on standard output, too: {"error":
    {"class": "task", "reason": ...}} for a task that is broken or not deterministic, class "usage"
    for every other misuse. The exception goes on, to be a line on standard error and status 2."""
    from sketchc.base.diagnostics import UsageError
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
