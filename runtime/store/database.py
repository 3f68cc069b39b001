"""Opening the store: one SQLite file, made and migrated as needed, safe under concurrent writers.

Write-ahead log with `synchronous=FULL`: a transaction that was committed survives `kill -9` and a
power failure, one that was not leaves no trace. Writers take the lock before they read
(`BEGIN IMMEDIATE`) and wait for each other.

Garbage collection drops old failures, and then all rows to which nothing refers any more. Rows that
passed are never dropped, so that the best kernels stay the same. A failed verdict on a kernel that
has also passed for that task stays, too: without it, the kernel would count as verified.
"""

from __future__ import annotations

import datetime
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.runtime.store.schema import APPLICATION_ID, MIGRATIONS, VERSION

#: Seconds that a writer waits for others. Transactions take milliseconds.
PATIENCE = 20.0

_NO_STORE = "{path} is not a store of sketchc; name another file with --store"
_IN_USE = "the store {path} is in use by other processes: try again"
#: Messages for SQLite's errors; other errors keep SQLite's message.
_WORDS = {
    sqlite3.SQLITE_NOTADB: _NO_STORE,
    sqlite3.SQLITE_CORRUPT: "the store {path} is damaged ({error}); move it away (a new one is "
    "made), or restore a copy",
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_READONLY: "cannot {doing} the store {path}: it is read-only",
    sqlite3.SQLITE_FULL: "cannot {doing} the store {path}: the disk is full",
}


class StoreError(UsageError):
    """The store cannot be opened, read or written; the message is one line with the reason, and
    what to do where something can be done."""


@contextmanager
def open_store(path: Path, patience: float = PATIENCE) -> Iterator[sqlite3.Connection]:
    """A connection for reading and writing; the file and its folder are made where missing, and an
    older store is migrated, with a copy of it kept beside.

    Raises `StoreError` for a file that cannot be written, is no store, is damaged, or was made by a
    newer sketchc; also for SQLite's and the system's errors while the connection is used.
    """
    with _explained(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(_connect(path, "rwc", patience)) as connection:
            _require_store(connection, path)
            if _version(connection) < VERSION:
                _migrate(connection, path)
            yield connection


@contextmanager
def read_store(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading; works on read-only media. An older store that can be written is
    migrated first. Raises `StoreError`, also where there is no store yet."""
    if not path.exists():
        msg = f"there is no store at {path} yet: `sketchc verify`, `bench` and `gen` make one"
        raise StoreError(msg)
    with _explained(path, "read"):
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        if writable and _needs_migration(path):
            with open_store(path):
                pass
        with closing(_connect_to_read(path, writable)) as connection:
            _require_store(connection, path)
            if _version(connection) < VERSION:
                msg = (
                    f"the store {path} was made by an older sketchc and cannot be migrated where "
                    "it is: copy it to a folder that can be written"
                )
                raise StoreError(msg)
            connection.execute("PRAGMA query_only=1")
            # One snapshot for everything that is read, whatever others write meanwhile.
            connection.execute("BEGIN")
            yield connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction around the block: commits at the end, rolls back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


# ---------------------------------------------------------------- connections


def _connect(path: Path, mode: str, patience: float, more: str = "") -> sqlite3.Connection:
    """A connection to the file `path` in SQLite's `mode`, "ro", "rw" or "rwc" (makes the file);
    `more` are further parameters of the URI."""
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}{more}",
        uri=True,
        timeout=patience,
        isolation_level=None,  # transactions are begun and ended here
    )
    connection.row_factory = sqlite3.Row
    if mode != "ro":
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")
    return connection


def _connect_to_read(path: Path, writable: bool) -> sqlite3.Connection:
    """A connection for reading. On media that cannot be written, SQLite cannot make the log's
    index: without a log (the last writer has closed the store) the file alone holds everything, and
    is opened as immutable."""
    connection = _connect(path, "rw" if writable else "ro", PATIENCE)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if writable or (log.exists() and log.stat().st_size):
            raise
        connection = _connect(path, "ro", PATIENCE, "&immutable=1")
    return connection


@contextmanager
def _explained(path: Path, doing: str) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system in the block into a `StoreError`."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        text = _WORDS.get(code, "cannot {doing} the store {path}: {error}")
        raise StoreError(text.format(path=path, doing=doing, error=error)) from error
    except OSError as error:
        raise StoreError(f"cannot {doing} the store {path}: {error.strerror or error}") from error


# ---------------------------------------------------------------- versions


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _require_store(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` for a database that is not a store, and for a store of a newer sketchc."""
    mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if mark != APPLICATION_ID and (mark or tables):
        raise StoreError(_NO_STORE.format(path=path))
    version = _version(connection)
    if version > VERSION:
        msg = (
            f"the store {path} has schema {version}, and this sketchc knows {VERSION}: use the "
            "sketchc that made it, or name another file with --store"
        )
        raise StoreError(msg)


def _needs_migration(path: Path) -> bool:
    with closing(_connect(path, "rw", PATIENCE)) as connection:
        _require_store(connection, path)
        return _version(connection) < VERSION


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema to `VERSION`, in one transaction; a store with content is copied first."""
    _use_log(connection)
    with transaction(connection):
        version = _version(connection)
        _require_store(connection, path)
        if version == VERSION:
            return  # another process has done it while this one waited for the lock
        if version:
            _keep_copy(path, version)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")


def _use_log(connection: sqlite3.Connection) -> None:
    """Set the file's journal mode to a write-ahead log, permanently. The change needs exclusive
    access for a moment, and SQLite does not wait for that. (A file system without shared memory
    keeps the rollback journal: as safe, slower.)"""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _keep_copy(path: Path, version: int) -> None:
    """Copy the committed state of the store to a file beside it; the caller holds the lock, so
    nobody writes meanwhile. The copy is moved into place when it is complete, and never over an
    earlier copy."""
    kept = path.with_name(f"{path.name}.schema-{version}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.schema-{version}.{number}")
    partial = path.with_name(f"{path.name}.copy-{os.getpid()}")
    try:
        with (
            closing(_connect(path, "ro", PATIENCE)) as source,
            closing(sqlite3.connect(partial)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
        partial.replace(kept)
    finally:
        partial.unlink(missing_ok=True)


#: For each table, the query for its failures, numbered (`place`) from the newest on for each task
#: and target.
_FAILURES: dict[str, str] = {
    "verdicts": """
        SELECT v.id, v.recorded, row_number() OVER (
            PARTITION BY v.task, k.target ORDER BY v.recorded DESC, v.id) AS place
        FROM verdicts v JOIN kernels k ON k.id = v.kernel
        WHERE NOT v.passed AND NOT EXISTS (
            SELECT 1 FROM verdicts p WHERE p.kernel = v.kernel AND p.task = v.task AND p.passed)""",
    "measurements": """
        SELECT m.id, m.recorded, row_number() OVER (
            PARTITION BY m.task, k.target ORDER BY m.recorded DESC, m.id) AS place
        FROM measurements m JOIN kernels k ON k.id = m.kernel
        WHERE NOT m.passed""",
    "runs": """
        SELECT r.id, r.recorded, row_number() OVER (
            PARTITION BY r.task, r.target ORDER BY r.recorded DESC, r.id) AS place
        FROM runs r WHERE r.outcome NOT IN ('passed', 'generated')""",
}

#: Table -> the condition that nothing refers to a row; a table comes before those it refers to.
_UNUSED: dict[str, str] = {
    "kernels": """id NOT IN (SELECT kernel FROM verdicts)
        AND id NOT IN (SELECT kernel FROM measurements)""",
    "sketches": """id NOT IN (SELECT sketch FROM kernels WHERE sketch IS NOT NULL)
        AND id NOT IN (SELECT sketch FROM tunings)""",
    "tasks": """id NOT IN (SELECT task FROM verdicts) AND id NOT IN (SELECT task FROM measurements)
        AND id NOT IN (SELECT task FROM runs) AND id NOT IN (SELECT task FROM builds)
        AND id NOT IN (SELECT task FROM tunings)""",
    "environments": """id NOT IN (SELECT environment FROM verdicts)
        AND id NOT IN (SELECT environment FROM measurements)
        AND id NOT IN (SELECT environment FROM runs)
        AND id NOT IN (SELECT environment FROM tunings)""",
    "texts": """digest NOT IN (
        SELECT text FROM tasks UNION SELECT text FROM task_modules
        UNION SELECT text FROM sketch_texts UNION SELECT text FROM kernels
        UNION SELECT sketch_text FROM kernels WHERE sketch_text IS NOT NULL
        UNION SELECT signature FROM verdicts WHERE signature IS NOT NULL
        UNION SELECT text FROM kernel_files UNION SELECT text FROM call_texts
        UNION SELECT text FROM build_files)""",
}


@attrs.frozen
class Collected:
    """How many rows of each table were dropped (or would be), and the bytes that were freed."""

    rows: Mapping[str, int]
    bytes: int


class _DryRun(Exception):
    """Raised in order to roll the transaction of a dry run back."""


def collect(
    connection: sqlite3.Connection, keep: int, older_than_days: float, dry_run: bool = False
) -> Collected:
    """Drop failures older than `older_than_days`, except the newest `keep` of each kind, task and
    target; then rows to which nothing refers; then free the space. With `dry_run` only count."""
    age = datetime.timedelta(days=older_than_days)
    limit = (datetime.datetime.now(datetime.UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    before = _size(connection)
    rows: dict[str, int] = {}
    with suppress(_DryRun), transaction(connection):
        for table, failures in _FAILURES.items():
            rows[table] = connection.execute(
                f"""DELETE FROM {table} WHERE id IN (
                    SELECT id FROM ({failures}) WHERE place > ? AND recorded < ?)""",
                (keep, limit),
            ).rowcount
        for table, unused in _UNUSED.items():
            rows[table] = connection.execute(f"DELETE FROM {table} WHERE {unused}").rowcount
        if dry_run:
            raise _DryRun
    if dry_run:
        return Collected(rows, 0)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Collected(rows, before - _size(connection))


def _size(connection: sqlite3.Connection) -> int:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages) * int(connection.execute("PRAGMA page_size").fetchone()[0])
