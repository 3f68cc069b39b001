"""Queries of the store: lists, one row with all that belongs to it, the best kernels.

All results are plain data for JSON; the command line makes tables from them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.runtime.store.schema import TABLES
from sketchc.runtime.store.writing import ledger_lines, text_of

#: The query for the list of each kind, newest first; `{where}` takes the conditions of `_FILTERS`.
_LISTS: dict[str, str] = {
    "tasks": """
        SELECT t.id, t.name, t.subject, t.recorded,
            (SELECT count(*) FROM verdicts v WHERE v.task = t.id AND v.passed) AS passed,
            (SELECT count(*) FROM verdicts v WHERE v.task = t.id AND v.failure != '') AS failed,
            (SELECT count(*) FROM verdicts v
                WHERE v.task = t.id AND NOT v.passed AND v.failure = '') AS incomplete,
            (SELECT count(*) FROM measurements m WHERE m.task = t.id) AS measurements
        FROM tasks t WHERE {where} ORDER BY t.recorded DESC, t.id""",
    "sketches": """
        SELECT s.id, s.name, s.recorded,
            (SELECT count(*) FROM sketch_texts x WHERE x.sketch = s.id) AS spellings,
            (SELECT count(*) FROM kernels k WHERE k.sketch = s.id) AS kernels
        FROM sketches s WHERE {where} ORDER BY s.recorded DESC, s.id""",
    "kernels": """
        SELECT k.id, k.name, k.target, k.hardware, k.origin, k.sketch, k.recorded,
            (SELECT count(*) FROM verdicts v WHERE v.kernel = k.id AND v.passed) AS passed,
            (SELECT count(*) FROM verdicts v WHERE v.kernel = k.id AND v.failure != '') AS failed,
            (SELECT count(*) FROM verdicts v
                WHERE v.kernel = k.id AND NOT v.passed AND v.failure = '') AS incomplete
        FROM kernels k WHERE {where} ORDER BY k.recorded DESC, k.id""",
    "verdicts": """
        SELECT v.id, t.name AS task, k.name AS kernel_name, k.target, k.hardware, v.passed,
            v.failure, v.cases, v.how_it_runs, v.seed, v.kernel, v.recorded
        FROM verdicts v JOIN kernels k ON k.id = v.kernel JOIN tasks t ON t.id = v.task
        WHERE {where} ORDER BY v.recorded DESC, v.id""",
    "measurements": """
        SELECT m.id, t.name AS task, k.name AS kernel_name, k.target, k.hardware, m.device,
            m.symbols, m.precision, m.median, m.speedup, m.passed, m.failure, m.kernel, m.recorded
        FROM measurements m JOIN kernels k ON k.id = m.kernel JOIN tasks t ON t.id = m.task
        WHERE {where} ORDER BY m.recorded DESC, m.id""",
    "runs": """
        SELECT r.id, t.name AS task, r.target, r.hardware, r.workflow, r.coder, r.outcome,
            r.reason, r.attempts, r.seed, r.folder, r.recorded,
            (SELECT count(*) FROM calls c WHERE c.run = r.id) AS calls,
            (SELECT coalesce(sum(c.input_tokens + c.output_tokens), 0) FROM calls c
                WHERE c.run = r.id) AS tokens,
            (SELECT coalesce(sum(c.cost), 0.0) FROM calls c WHERE c.run = r.id) AS cost
        FROM runs r JOIN tasks t ON t.id = r.task
        WHERE {where} ORDER BY r.recorded DESC, r.id""",
    "builds": """
        SELECT o.id, o.name, o.target, o.hardware, o.task, o.recorded,
            (SELECT count(*) FROM build_files f WHERE f.build = o.id) AS files
        FROM builds o WHERE {where} ORDER BY o.recorded DESC, o.id""",
    "tunings": """
        SELECT u.id, s.name AS sketch_name, t.name AS task, u.target, u.hardware, u.device,
            u.symbols, u.threads, u.best, u.seconds, u.default_seconds, u.recorded,
            (SELECT count(*) FROM tuning_points p WHERE p.tuning = u.id) AS points
        FROM tunings u JOIN sketches s ON s.id = u.sketch JOIN tasks t ON t.id = u.task
        WHERE {where} ORDER BY u.recorded DESC, u.id""",
}

#: The conditions that restrict each kind to tasks (by their ids) and to a target.
_FILTERS: dict[str, tuple[str, str]] = {
    "tasks": (
        "t.id IN ({tasks})",
        """t.id IN (SELECT v.task FROM verdicts v JOIN kernels k ON k.id = v.kernel
            WHERE k.target = ?)""",
    ),
    "sketches": (
        """s.id IN (SELECT k.sketch FROM kernels k JOIN verdicts v ON v.kernel = k.id
            WHERE v.task IN ({tasks}))""",
        "s.id IN (SELECT sketch FROM kernels WHERE target = ?)",
    ),
    "kernels": (
        """(k.id IN (SELECT kernel FROM verdicts WHERE task IN ({tasks}))
            OR k.id IN (SELECT kernel FROM measurements WHERE task IN ({tasks})))""",
        "k.target = ?",
    ),
    "verdicts": ("v.task IN ({tasks})", "k.target = ?"),
    "measurements": ("m.task IN ({tasks})", "k.target = ?"),
    "runs": ("r.task IN ({tasks})", "r.target = ?"),
    "builds": ("o.task IN ({tasks})", "o.target = ?"),
    "tunings": ("u.task IN ({tasks})", "u.target = ?"),
}

KINDS = tuple(_LISTS)

#: The fastest verified kernel of each task, target, chip, device, sizes and precision. Verified: a
#: verdict passed, and none failed through the kernel's fault. Only measurements that passed count.
_BEST = """
    WITH verified AS (
        SELECT kernel, task, max(recorded) AS last FROM verdicts
        GROUP BY kernel, task
        HAVING max(passed) AND NOT max(NOT passed AND failure NOT IN ('', 'infrastructure'))
    ), ranked AS (
        SELECT m.id AS measurement, m.kernel, m.task AS task_id, t.name AS task, k.name AS name,
            k.target, k.hardware, k.origin, k.sketch, m.precision, m.device, m.symbols, m.median,
            m.speedup, m.recorded, v.last,
            row_number() OVER (
                PARTITION BY m.task, k.target, k.hardware, m.device, m.symbols, m.precision
                ORDER BY m.median, m.recorded, m.id
            ) AS place
        FROM measurements m
        JOIN kernels k ON k.id = m.kernel
        JOIN tasks t ON t.id = m.task
        JOIN verified v ON v.kernel = m.kernel AND v.task = m.task
        WHERE m.passed AND {where}
    )
    SELECT r.*, (
        SELECT v.id FROM verdicts v
        WHERE v.kernel = r.kernel AND v.task = r.task_id AND v.passed
        ORDER BY v.recorded DESC LIMIT 1
    ) AS verdict
    FROM ranked r WHERE place = 1
    ORDER BY task, target, hardware, device, symbols, precision"""


def list_rows(
    connection: sqlite3.Connection,
    kind: str,
    task: str | None = None,
    target: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """The rows of a `kind` (of `KINDS`), newest first, at most `limit`. Raises `UsageError` for an
    unknown task."""
    where, values = _where(connection, *_FILTERS[kind], task, target)
    return _select(connection, kind, where, values, limit)


def _select(
    connection: sqlite3.Connection,
    kind: str,
    where: str,
    values: Sequence[str],
    limit: int | None = None,
) -> list[dict[str, Any]]:
    query = f"{_LISTS[kind].format(where=where)} LIMIT ?"
    rows = connection.execute(query, [*values, -1 if limit is None else limit])
    return [plain(kind, row) for row in rows]


def best_rows(
    connection: sqlite3.Connection, task: str | None = None, target: str | None = None
) -> list[dict[str, Any]]:
    """The fastest verified kernels, one for each task, target, chip, device, sizes and precision
    class. Raises `UsageError` for an unknown task."""
    where, values = _where(connection, *_FILTERS["measurements"], task, target)
    rows = connection.execute(_BEST.format(where=where), values)
    found = [plain("measurements", row) for row in rows]
    for data in found:
        del data["place"], data["last"]
    return found


def counts(
    connection: sqlite3.Connection, task: str | None = None, target: str | None = None
) -> dict[str, int]:
    """The number of rows of each kind for a task and a target. Raises `UsageError` for an unknown
    task."""
    found = {}
    for kind in KINDS:
        where, values = _where(connection, *_FILTERS[kind], task, target)
        query = f"SELECT count(*) FROM ({_LISTS[kind].format(where=where)})"
        found[kind] = int(connection.execute(query, values).fetchone()[0])
    return found


def _where(
    connection: sqlite3.Connection,
    for_task: str,
    for_target: str,
    task: str | None,
    target: str | None,
) -> tuple[str, list[str]]:
    conditions, values = ["1"], []
    if task is not None:
        ids = find_tasks(connection, task)
        condition = for_task.replace("{tasks}", ", ".join("?" * len(ids)))
        conditions.append(condition)
        values += ids * for_task.count("{tasks}")
    if target is not None:
        conditions.append(for_target)
        values.append(target)
    return " AND ".join(conditions), values


def find_tasks(connection: sqlite3.Connection, wanted: str) -> list[str]:
    """Ids of tasks by file name (with or without .py), or by the beginning of the id. Raises
    `UsageError` where there is none."""
    name = wanted.rsplit("/", 1)[-1].removesuffix(".py")
    rows = connection.execute("SELECT id, name FROM tasks").fetchall()
    found = [row["id"] for row in rows if row["name"].removesuffix(".py") == name]
    found = found or [row["id"] for row in rows if row["id"].startswith(wanted)]
    if not found:
        known = ", ".join(sorted({row["name"] for row in rows})[:8]) or "none"
        refuse(f"the store holds no task {wanted}; it holds: {known}")
    return found


# ---------------------------------------------------------------- one row


def resolve(connection: sqlite3.Connection, prefix: str) -> tuple[str, str]:
    """The kind and the whole id of the row whose id begins with `prefix`. Raises `UsageError` where
    there is none, or where there are several and none has exactly that id."""
    wanted = prefix.lower()
    found = []
    if wanted and all(letter in "0123456789abcdef" for letter in wanted):
        for kind in KINDS:
            # A range, and not LIKE, so that the index is used.
            rows = connection.execute(
                f"SELECT id FROM {kind} WHERE id >= ? AND id < ? LIMIT 5", (wanted, wanted + "g")
            )
            found += [(kind, str(row["id"])) for row in rows]
    exact = [pair for pair in found if pair[1] == wanted]
    found = exact if len(exact) == 1 else found
    if len(found) == 1:
        return found[0]
    if not found:
        refuse(f"no id in the store begins with {prefix!r}: see `sketchc store list`")
    several = ", ".join(f"{kind[:-1]} {identity[:12]}" for kind, identity in found[:5])
    raise UsageError(f"{prefix!r} begins several ids ({several}): write more of it")


#: Kind -> the other kinds whose rows are shown with one of that kind, and the condition for them.
_SHOWN_WITH: dict[str, dict[str, str]] = {
    "tasks": {
        "verdicts": "v.task = ?",
        "measurements": "m.task = ?",
        "builds": "o.task = ?",
        "tunings": "u.task = ?",
    },
    "sketches": {"kernels": "k.sketch = ?", "tunings": "u.sketch = ?"},
    "kernels": {"verdicts": "k.id = ?", "measurements": "k.id = ?"},
    "runs": {"verdicts": "v.run = ?", "measurements": "m.run = ?"},
}


def show(connection: sqlite3.Connection, prefix: str) -> dict[str, Any]:
    """Everything about the row whose id begins with `prefix`: the row, what it refers to (with
    texts), what refers to it; of a run also its ledger, with every prompt and reply."""
    kind, identity = resolve(connection, prefix)
    data: dict[str, Any] = {"kind": kind.removesuffix("es") if kind == "sketches" else kind[:-1]}
    data |= _whole(connection, kind, identity)
    for other, condition in _SHOWN_WITH.get(kind, {}).items():
        data[other] = _select(connection, other, condition, [identity])
    if kind == "runs":
        data["ledger"] = ledger_lines(connection, identity)
    return data


def _whole(connection: sqlite3.Connection, kind: str, identity: str) -> dict[str, Any]:
    """One row, with texts and rows in place of their digests and ids, and with its files."""
    query = f"SELECT * FROM {kind} WHERE id = ?"
    data = plain(kind, connection.execute(query, (identity,)).fetchone())
    for name in ("text", "sketch_text", "signature"):
        if data.get(name) is not None:
            data[name] = text_of(connection, data[name])
    if "environment" in data:
        data["environment"] = _whole(connection, "environments", data["environment"])["versions"]
    match kind:
        case "tasks":
            data["modules"] = _files(connection, "task_modules", "task", identity)
        case "builds":
            data["files"] = _files(connection, "build_files", "build", identity)
            data["task_name"] = _whole(connection, "tasks", data["task"])["name"]
        case "kernels":
            data["files"] = _files(connection, "kernel_files", "kernel", identity)
        case "sketches":
            rows = connection.execute(
                """SELECT x.name, t.content AS text FROM sketch_texts x
                JOIN texts t ON t.digest = x.text WHERE x.sketch = ? ORDER BY x.rowid""",
                (identity,),
            )
            data["spellings"] = [dict(row) for row in rows]
        case "verdicts" | "measurements":
            for name in ("kernel", "task"):
                data[name] = _whole(connection, f"{name}s", data[name])
        case "tunings":
            data["task_name"] = _whole(connection, "tasks", data["task"])["name"]
            query = "SELECT * FROM tuning_points WHERE tuning = ? ORDER BY rowid"
            rows = connection.execute(query, (identity,))
            data["points"] = [plain("tuning_points", row) for row in rows]
        case "runs":
            data["task_name"] = _whole(connection, "tasks", data["task"])["name"]
    return data


def _files(connection: sqlite3.Connection, table: str, owner: str, identity: str) -> dict[str, str]:
    rows = connection.execute(
        f"""SELECT f.name, t.content FROM {table} f JOIN texts t ON t.digest = f.text
        WHERE f.{owner} = ? ORDER BY f.name""",
        (identity,),
    )
    return {row["name"]: row["content"] for row in rows}


def plain(kind: str, row: sqlite3.Row) -> dict[str, Any]:
    """A row as plain data: JSON columns parsed, flags as booleans."""
    data = dict(row)
    for name in TABLES[kind]:
        if data.get(name) is not None:
            data[name] = json.loads(data[name])
    # In the lists of other kinds, "passed" is a number of verdicts.
    if kind in ("verdicts", "measurements") and "passed" in data:
        data["passed"] = bool(data["passed"])
    return data
