"""The ledger: one JSON object per line, appended and synced before anybody acts on it.

The first line is the header of the run; every further line is one call, answered or failed. A
recording that `replay:FILE` reads is such a file, as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sketchc.agents.llm.messages import Reply, Request

VERSION = 1


@attrs.frozen
class Header:
    """What a run was started with, as far as its prompts depend on it."""

    task: str  # the file's name, no folder
    target: str
    hardware: str
    workflow: str
    coder: str
    seed: int
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Record:
    """One call: the request, and its reply or the error it ended in (`error` = kind, "" for none).

    `number` counts from 1 over all records of the file.
    """

    number: int
    request: Request
    provider: str
    reply: Reply | None
    error: str = ""
    message: str = ""
    started: str = ""  # UTC, ISO 8601


class Ledger:
    """An append-only ledger file; see the module's docstring."""

    def __init__(self, path: Path | None) -> None:
        """Open for appending, reading what is there; `None` keeps records in memory only.

        A half-written last line (a run that was killed) is dropped. Raises `UsageError` for a file
        that is no ledger.
        """
        raise NotImplementedError

    @property
    def header(self) -> Header | None: ...

    @property
    def records(self) -> tuple[Record, ...]: ...

    def begin(self, header: Header) -> None:
        """Write the header of a new file; with one there already, the two must agree, else
        `UsageError` says what differs."""

    def append(
        self, request: Request, provider: str, reply: Reply | None, error: str = "", message: str = ""
    ) -> Record:
        """Write one record and sync it to disk before returning."""
        raise NotImplementedError
