"""The ledger: one JSON object per line, appended and synced before anybody acts on it.

The first line is the header of the run; every further line is one call, answered or failed. A
recording that `replay:FILE` reads is such a file, as it was written.

    {"sketchc_ledger": 2, "task": "softmax.py", "target": "cpp", ...}
    {"number": 1, "started": "2026-01-31T12:00:00Z", "provider": "openai", "request": {...}, ...}

A message stands there as a text, or as a list of texts and references to constant parts of prompts
(`{"part": "language", "version": "..."}`); "parts" of a record holds the text of each version that
no record before it has. Ledgers of version 1 know no parts, and can be read.

A process may be killed while it writes: what it leaves is a last line without its end, which
readers ignore and the next writer cuts off. Everything before it is whole.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from sketchc.agents.llm.messages import Message, Reply, Request
from sketchc.base.diagnostics import InternalError, refuse, refusing
from sketchc.base.json_form import from_plain

VERSION = 2
#: Versions that can be read.
_READ = (1, 2)

#: What every ledger begins with, up to its version.
MARK = b'{"sketchc_ledger": '


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
    started: str  # UTC, ISO 8601
    provider: str
    request: Request
    reply: Reply | None
    error: str
    message: str


@attrs.frozen
class Contents:
    """What a ledger file holds. `size` is the length in bytes of its whole lines; anything behind
    them is half-written. `header` is None in a file that nothing whole was written to. `texts` are
    the texts of constant parts by version."""

    header: Header | None
    records: tuple[Record, ...]
    size: int
    texts: Mapping[str, str] = attrs.field(factory=dict)


class Ledger:
    """An append-only ledger file, a context manager; see the module's docstring."""

    def __init__(self, path: Path | None) -> None:
        """Open for appending, reading what is there; `None` keeps records in memory only.

        A half-written last line (a run that was killed) is cut off. A file that does not exist is
        made by `begin`. Raises `UsageError` for a file that is no ledger, and for one that another
        process is writing to.
        """
        self.path = path
        self.header: Header | None = None
        self._records: list[Record] = []
        self._texts: dict[str, str] = {}
        self._file: BinaryIO | None = None
        if path is not None and path.exists():
            self._open(path)

    @property
    def records(self) -> tuple[Record, ...]:
        """All calls, in order."""
        return tuple(self._records)

    def begin(self, header: Header) -> None:
        """Write the header of a new file; with one there already, the two must agree, else
        `UsageError` says what differs."""
        plain = _header_to_json(header)
        if self.header is not None:
            _require_same(self.path, _header_to_json(self.header), plain)
            return
        if self.path is not None:
            if self._file is None:
                self._open(self.path)
            self._write(plain)
        self.header = header

    def append(
        self,
        request: Request,
        provider: str,
        reply: Reply | None,
        error: str = "",
        message: str = "",
        started: str = "",
    ) -> Record:
        """Write one record and sync it to disk before returning.

        `started` is when the call began, in UTC and ISO 8601; now, where it is not given. Raises
        `UsageError` when the disk takes no more; the file then ends where it did before.
        """
        number, started = len(self._records) + 1, started or timestamp()
        record = Record(number, started, provider, request, reply, error, message)
        if self.path is not None:
            if self.header is None:
                raise InternalError("a record was appended to a ledger that was not begun")
            parts = {part.version: part.text for part in request.parts}
            new = {version: text for version, text in parts.items() if version not in self._texts}
            self._write(_record_to_json(record, new))
            self._texts |= new
        self._records.append(record)
        return record

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; nothing can be appended any more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        with refusing(f"cannot write the ledger {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what `write` has returned from is with the operating system.
            file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        try:
            _lock(file, path)
            content = file.read()
            contents = parse(content, path)
            if contents.size < len(content):
                file.truncate(contents.size)
            file.seek(contents.size)
            if contents.size and not content[: contents.size].endswith(b"\n"):
                file.write(b"\n")  # a whole line that lost only its end
        except BaseException:
            file.close()
            raise
        self._file = file
        self.header = contents.header
        self._records = list(contents.records)
        self._texts = dict(contents.texts)

    def _write(self, plain: Mapping[str, Any]) -> None:
        line = _dump(plain) + b"\n"
        if self._file is None:
            raise InternalError(f"the ledger {self.path} is closed")
        start = self._file.tell()
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:]) or 0
            os.fsync(self._file.fileno())
        except BaseException as error:
            # A full disk, or Ctrl-C between two writes: nothing half-written stays, and what is
            # written whole does.
            if written < len(line):
                with contextlib.suppress(OSError):
                    self._file.truncate(start)
                    self._file.seek(start)
            if not isinstance(error, OSError):
                raise
            refuse(f"cannot write the ledger {self.path}: {error.strerror}", error)


def read_ledger(path: Path) -> Contents:
    """Read a ledger without touching it: for replaying, reports and tests.

    A half-written last line is left out. Raises `UsageError` for a file that is missing, that
    cannot be read, or that is no ledger (an empty file is none).
    """
    with refusing(f"cannot read the ledger {path}"):
        content = path.read_bytes()
    contents = parse(content, path)
    if contents.header is None:
        refuse(f"{path} holds no ledger: not even its first line was written")
    return contents


def parse(content: bytes, path: Path) -> Contents:
    """The ledger in `content`; `path` is named in errors. Raises `UsageError` for anything but a
    ledger whose last line may be half-written."""
    if not (content.startswith(MARK) or MARK.startswith(content)):
        refuse(f"{path} is not a ledger: its first line is not one of `sketchc gen`")
    header: Header | None = None
    records: list[Record] = []
    texts: dict[str, str] = {}
    size = 0
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        last = number == len(lines)
        if last and not line:
            break
        try:
            data = json.loads(line)
        except ValueError as error:
            if last:
                break
            refuse(f"line {number} of the ledger {path} is damaged: {error}", error)
        try:
            if not isinstance(data, dict):
                raise TypeError(f"a JSON object is expected, not {data!r:.60}")
            if header is None:
                header = _header_from_json(data, path)
            else:
                records.append(_record_from_json(data, len(records) + 1, texts))
        except (KeyError, TypeError, ValueError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            refuse(f"line {number} of the ledger {path} is not as it should be: {reason}", error)
        size += len(line) + (0 if last else 1)
    return Contents(header, tuple(records), size, texts)


def timestamp() -> str:
    """Now, in UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _dump(plain: Mapping[str, Any]) -> bytes:
    """One line of JSON, readable where UTF-8 can hold the text (a lone surrogate it cannot)."""
    try:
        return json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(plain).encode()


def _lock(file: BinaryIO, path: Path) -> None:
    """Lock the file: two runs on one ledger would pay twice and mix their records. The lock ends
    with this process, however that ends, and the processes that it starts do not have the lock."""
    try:
        import fcntl
    except ImportError:  # no POSIX: no lock
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            return  # a file system without locks
        refuse(f"another run is writing to the ledger {path}: wait for it, or stop it", error)


def _require_same(path: Path | None, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    old, new = json.loads(_dump(old)), json.loads(_dump(new))  # tuples and lists are the same
    different = [
        f"{name} was {old[name]!r}, is {new[name]!r}" for name in old if old[name] != new[name]
    ]
    if different:
        refuse(
            f"the ledger {path} belongs to a run that was started differently: "
            f"{'; '.join(different)}"
        )


def _header_to_json(header: Header) -> dict[str, Any]:
    return {"sketchc_ledger": VERSION, **attrs.asdict(header)}


def _header_from_json(data: Any, path: Path) -> Header:
    version = data["sketchc_ledger"]
    if not isinstance(version, int):
        raise TypeError(f"'sketchc_ledger' is {version!r:.60}")
    if version not in _READ:
        refuse(
            f"{path} is a ledger of version {version}; this sketchc reads version {VERSION}: "
            "use the sketchc that wrote it"
        )
    return from_plain(Header, data, strict=True)


def _record_to_json(record: Record, texts: Mapping[str, str]) -> dict[str, Any]:
    """One record as JSON data; `texts` are those of parts that no record before it has."""
    plain = attrs.asdict(record, value_serializer=_with_references)
    head = {name: plain.pop(name) for name in ("number", "started", "provider")}
    return {**head, "parts": dict(texts), **plain}


def _with_references(_: object, field: Any, value: Any) -> Any:
    """A serializer for attrs: messages as they stand in a ledger, other values as they are."""
    if field is None or field.name != "messages":
        return value
    return [{"role": message.role, "content": _content_to_json(message)} for message in value]


def _content_to_json(message: Message) -> Any:
    if not message.parts:
        return message.content
    return [
        piece if isinstance(piece, str) else {"part": piece.name, "version": piece.version}
        for piece in message.pieces
    ]


def _record_from_json(data: Any, expected: int, texts: dict[str, str]) -> Record:
    """The record in JSON data; the texts of its parts are added to `texts`, keyed by version."""
    if (number := data["number"]) != expected:
        raise TypeError(f"it has the number {number}, where {expected} comes next")
    data["reply"]  # KeyError
    texts |= data.get("parts", {})
    request = data["request"]
    messages = [
        {**message, "pieces": _pieces_of(message["content"], texts)}
        for message in request["messages"]
    ]
    whole = {**data, "request": {**request, "messages": messages}}
    return from_plain(Record, whole, strict=True)


def _pieces_of(content: Any, texts: Mapping[str, str]) -> list[Any]:
    if not isinstance(content, list):
        return [content]
    return [
        piece
        if isinstance(piece, str)
        else {"name": piece["part"], "text": texts[piece["version"]]}
        for piece in content
    ]
