"""What a pool offers: jobs in, results out, in any order; here or on a cluster.

A job is a function by name and one argument: both travel to another process, or another machine, so
the argument and the result are plain data (they are pickled) and the function lives in a module. An
engine owes nothing else; `local` has the one for this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import attrs


@attrs.frozen
class Job:
    """`function` ("package.module:function") of one argument; `name` is for people."""

    name: str
    function: str
    argument: Any


@attrs.frozen
class Event:
    """Something to show while a job runs: `text` for people, `done` of `total` parts."""

    job: int
    text: str
    done: int = 0
    total: int = 0


@attrs.frozen
class Result:
    """What came of the job at this place of the list: its value, or why there is none.

    `error` is one line, "" for none: the process that ran it ended, or the function raised.
    """

    job: int
    value: Any = None
    error: str = ""


class Engine(Protocol):
    """Runs jobs at once; a context manager that ends what it started."""

    def run(
        self, jobs: Iterable[Job], watch: Callable[[Event], None] | None = None
    ) -> Iterator[Result]:
        """The results as they come; `watch` hears of progress in between."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...
