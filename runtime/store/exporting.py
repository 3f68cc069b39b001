"""Export of the store as one text, and import: to publish it, to move it between machines, to merge
stores.

JSON: `{"format": "sketchc-store", "version": 5, "tables": {"texts": [...], ...}}`; JSON Lines: that
head without tables, then one `{"table": ..., ...}` for each row. Both hold everything, with columns
whose text is JSON as data. CSV: one line for each verdict and measurement, for spreadsheets.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sketchc.base.diagnostics import refuse
from sketchc.runtime.store.schema import TABLES, VERSION
from sketchc.runtime.store.writing import digest_of, dump, insert

FORMAT = "sketchc-store"

#: (table, row) pairs, every row after those that it refers to.
Rows = list[tuple[str, Mapping[str, Any]]]
#: JSON columns whose keys keep their order, as in a ledger.
_ORDERED = ("line",)

_CSV = """
    SELECT 'verdict' AS kind, v.id, v.recorded, t.name AS task, v.task AS task_id, k.target,
        k.hardware, k.name, k.origin, NULL AS precision, v.kernel, k.sketch, v.passed, v.failure,
        v.seed, v.run, v.cases, v.how_it_runs, NULL AS device, NULL AS symbols,
        NULL AS median_seconds, NULL AS speedup, NULL AS samples
    FROM verdicts v JOIN kernels k ON k.id = v.kernel JOIN tasks t ON t.id = v.task
    UNION ALL
    SELECT 'measurement', m.id, m.recorded, t.name, m.task, k.target, k.hardware, k.name, k.origin,
        m.precision, m.kernel, k.sketch, m.passed, m.failure, m.seed, m.run, NULL, NULL, m.device,
        m.symbols, m.median, m.speedup, m.evidence
    FROM measurements m JOIN kernels k ON k.id = m.kernel JOIN tasks t ON t.id = m.task
    ORDER BY 3, 2"""


def export_json(connection: sqlite3.Connection) -> str:
    """The whole store as one JSON document."""
    tables = {table: list(_rows(connection, table)) for table in TABLES}
    return json.dumps({**_head(), "tables": tables}, indent=1, ensure_ascii=False) + "\n"


def export_jsonl(connection: sqlite3.Connection) -> Iterator[str]:
    """The whole store as JSON Lines, a line at a time."""
    yield json.dumps(_head()) + "\n"
    for table in TABLES:
        for row in _rows(connection, table):
            yield json.dumps({"table": table, **row}, ensure_ascii=False) + "\n"


def export_csv(connection: sqlite3.Connection) -> Iterator[str]:
    """Verdicts and measurements as CSV, oldest first, a line at a time; the column `samples` has
    seconds, as JSON."""
    rows = connection.execute(_CSV)
    names = [column[0] for column in rows.description]
    yield _csv_line(names)
    for row in rows:
        values = dict(zip(names, row, strict=True))
        if values["samples"] is not None:
            values["samples"] = json.dumps(json.loads(values["samples"]).get("samples"))
        yield _csv_line(values.values())


def _csv_line(values: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _head() -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION}


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid"):
        data = dict(row)
        for name in TABLES[table]:
            data[name] = json.loads(data[name])
        yield data


# ---------------------------------------------------------------- import


def import_rows(connection: sqlite3.Connection, rows: Rows, name: str) -> tuple[int, int]:
    """Add the rows of an export, within a transaction of the caller; returns how many are new, and
    how many existed. `name` is the file's, for errors. Raises `UsageError` for a damaged export."""
    new = known = 0
    for table, row in rows:
        try:
            added = _add(connection, table, row)
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            refuse(f"{name} is damaged: a row of {table} cannot be added ({error})", error)
        new, known = new + added, known + (not added)
    return new, known


def _add(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> bool:
    """Add one row; returns whether it was new. Raises `ValueError` for a row whose content does not
    match its digest or the table's columns, and SQLite's errors."""
    values = dict(row)
    for column in TABLES[table]:
        ordered = column in _ORDERED
        value = values[column]
        values[column] = json.dumps(value, separators=(",", ":")) if ordered else dump(value)
    if table == "texts" and digest_of(values["content"]) != values["digest"]:
        raise ValueError(f"the text {values['digest']} is not the one that was exported")
    if table == "environments" and digest_of(values["versions"]) != values["id"]:
        raise ValueError(f"the environment {values['id']} is not the one that was exported")
    columns = connection.execute(f"PRAGMA table_info({table})")
    if unknown := values.keys() - {row["name"] for row in columns}:
        raise ValueError(f"no column {', '.join(sorted(unknown))}")
    for value in values.values():
        str(value).encode()  # raises for what SQLite cannot hold
    added = insert(connection, table, **values)
    if table == "runs" and not added and values["outcome"]:
        # The export may have the outcome of a run that was still going on when recorded here.
        connection.execute(
            """UPDATE runs SET outcome = :outcome, reason = :reason, attempts = :attempts,
            trace = :trace WHERE id = :id AND outcome = ''""",
            values,
        )
    if table == "tunings" and not added and values["best"] != "null":
        # The export may have the end of a search that was killed here.
        connection.execute(
            """UPDATE tunings SET best = :best, seconds = :seconds, recorded = :recorded,
            default_seconds = :default_seconds WHERE id = :id AND best = 'null'""",
            values,
        )
    return added


def parse_export(text: str, name: str) -> Rows:
    """The rows of an export in JSON or JSON Lines, in the order of the tables.

    Raises `UsageError` for a text that is no export, and for an export that is damaged or was made
    by a newer sketchc. `name` is the file's, for errors.
    """
    head, lines = _documents(text, name)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        refuse(f"{name} is no export of a store: make one with `sketchc store export`")
    if not isinstance(head.get("version"), int) or head["version"] > VERSION:
        refuse(
            f"{name} has schema {head.get('version')}, and this sketchc knows {VERSION}: use the "
            "sketchc that made it"
        )
    try:
        tables = {
            str(table): [dict(row) for row in rows]
            for table, rows in head.get("tables", {}).items()
        }
        for line in lines:
            row = dict(line)
            tables.setdefault(str(row.pop("table")), []).append(row)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        refuse(f"{name} is damaged: not every line is a row of a table", error)
    if unknown := tables.keys() - TABLES.keys():
        refuse(f"{name} is damaged: there is no table {', '.join(sorted(unknown))}")
    return [(table, row) for table in TABLES for row in tables.get(table, ())]


def _documents(text: str, name: str) -> tuple[Any, list[Any]]:
    """The head and the parsed further lines of an export; a JSON document has only a head."""
    first, _, rest = text.partition("\n")
    try:
        try:
            # Not splitlines, which also splits at other characters, which texts may hold.
            return json.loads(first), [
                json.loads(line) for line in rest.split("\n") if line.strip()
            ]
        except ValueError:
            return json.loads(text), []
    except ValueError as error:
        refuse(f"{name} is neither JSON nor JSON Lines: {error}", error)
