"""Collecting garbage: old failures go, and then whatever nothing refers to any more.

What passed is never dropped, so that the best kernels stay what they are. A failure that speaks
against a kernel which passed elsewhere stays, too: without it that kernel would count as verified.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Mapping

import attrs

from sketchc.runtime.store.database import transaction

#: Failures by kind, for each task and target newest first; with kind's own condition.
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

#: Table -> the condition under which nothing refers to a row; those that refer come first.
_UNUSED: dict[str, str] = {
    "kernels": """id NOT IN (SELECT kernel FROM verdicts)
        AND id NOT IN (SELECT kernel FROM measurements)""",
    "sketches": "id NOT IN (SELECT sketch FROM kernels WHERE sketch IS NOT NULL)",
    "tasks": """id NOT IN (SELECT task FROM verdicts) AND id NOT IN (SELECT task FROM measurements)
        AND id NOT IN (SELECT task FROM runs)""",
    "environments": """id NOT IN (SELECT environment FROM verdicts)
        AND id NOT IN (SELECT environment FROM measurements)
        AND id NOT IN (SELECT environment FROM runs)""",
    "texts": """digest NOT IN (
        SELECT text FROM tasks UNION SELECT text FROM task_modules
        UNION SELECT text FROM sketch_texts UNION SELECT text FROM kernels
        UNION SELECT sketch_text FROM kernels WHERE sketch_text IS NOT NULL
        UNION SELECT signature FROM verdicts WHERE signature IS NOT NULL
        UNION SELECT text FROM kernel_files UNION SELECT text FROM call_texts)""",
}


@attrs.frozen
class Collected:
    """How many rows of each table went (or would go), and the bytes that the file lost."""

    rows: Mapping[str, int]
    bytes: int


class _DryRun(Exception):
    """Undoes the transaction."""


def collect(
    connection: sqlite3.Connection, keep: int, older_than_days: float, dry_run: bool = False
) -> Collected:
    """Drop failures older than so many days, but the newest `keep` of each kind, task and target;
    then what nothing refers to; then give the space back. With `dry_run` only count."""
    age = datetime.timedelta(days=older_than_days)
    limit = (datetime.datetime.now(datetime.UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    before = _size(connection)
    rows: dict[str, int] = {}
    try:
        with transaction(connection):
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
    except _DryRun:
        return Collected(rows, 0)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Collected(rows, before - _size(connection))


def _size(connection: sqlite3.Connection) -> int:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    return int(pages) * int(connection.execute("PRAGMA page_size").fetchone()[0])
