"""Runs of `sketchc gen` in the store, with the calls of their ledgers.

A call is a line of the ledger (`agents.llm.ledger`) as JSON data; its long texts stand in `texts`,
and `{"text": DIGEST}` in their place. `ledger_lines` makes the lines again as they were.
"""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from sketchc.runtime.store.writing import dump, insert, now, put_text, storable

Data = dict[str, Any]


@attrs.frozen
class RunRow:
    """A run as far as it has come. `outcome` is "" while it goes on; `header` is the first line of
    its ledger, `trace` its steps (at its end, the whole of trace.json)."""

    id: str
    target: str
    hardware: str
    workflow: str
    coder: str
    seed: int
    outcome: str
    reason: str
    attempts: int
    folder: str
    header: Mapping[str, Any]
    trace: Mapping[str, Any]


def put_run(
    connection: sqlite3.Connection,
    run: RunRow,
    task: str,
    environment: str,
    calls: Sequence[Mapping[str, Any]],
) -> str:
    """Keep a run, or what is new of it: its state, and the calls that are not there yet."""
    values = attrs.asdict(run, recurse=False)
    values |= {"task": task, "environment": environment, "seed": str(run.seed)}
    values |= {"header": dump(run.header), "trace": dump(run.trace), "recorded": now()}
    values["reason"] = storable(run.reason)
    known = connection.execute("SELECT 1 FROM runs WHERE id = ?", (run.id,)).fetchone()
    if known is None:
        insert(connection, "runs", values)
    else:
        changing = ("environment", "outcome", "reason", "attempts", "trace")
        assignments = ", ".join(f"{name} = ?" for name in changing)
        connection.execute(
            f"UPDATE runs SET {assignments} WHERE id = ?",
            [*(values[name] for name in changing), run.id],
        )
    query = "SELECT number FROM calls WHERE run = ?"
    there = {row["number"] for row in connection.execute(query, (run.id,))}
    for call in calls:
        if call["number"] not in there:
            _put_call(connection, run.id, call)
    return run.id


def _put_call(connection: sqlite3.Connection, run: str, call: Mapping[str, Any]) -> None:
    reply = call["reply"] or {}
    usage = reply.get("usage", {})
    line = copy.deepcopy(dict(call))
    digests = []
    for holder, name in _texts(line):
        content = holder[name]
        if not _is_utf8(content):
            continue  # half of a surrogate pair: only JSON's escapes hold it
        digests.append(put_text(connection, content))
        holder[name] = {"text": digests[-1]}
    connection.execute(
        "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run,
            call["number"],
            call["started"],
            call["provider"],
            call["request"]["purpose"],
            reply.get("model", ""),
            usage.get("input_tokens", 0),
            usage.get("output_tokens", 0),
            reply.get("cost"),
            float(reply.get("seconds", 0.0)),
            call["error"],
            json.dumps(line, separators=(",", ":")),  # in the ledger's own order
        ),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO call_texts VALUES (?, ?, ?)",
        [(run, call["number"], digest) for digest in digests],
    )


def _texts(line: Data) -> Iterator[tuple[Any, Any]]:
    """Where the long texts of a line are: (object or list, key or index)."""
    yield from ((line["parts"], version) for version in line.get("parts", ()))
    for message in line["request"]["messages"]:
        content = message["content"]
        if not isinstance(content, list):
            yield message, "content"
            continue
        for place, piece in enumerate(content):
            if isinstance(piece, str) or "text" in piece:  # no reference to a part
                yield content, place
    if line["reply"] is not None:
        yield line["reply"], "text"


def _is_utf8(content: str) -> bool:
    try:
        content.encode()
    except UnicodeEncodeError:
        return False
    return True


def ledger_lines(connection: sqlite3.Connection, run: str) -> list[Data]:
    """The lines of a run's ledger, the header first, equal to what was recorded."""
    header = connection.execute("SELECT header FROM runs WHERE id = ?", (run,)).fetchone()
    lines: list[Data] = [json.loads(header["header"])]
    rows = connection.execute("SELECT line FROM calls WHERE run = ? ORDER BY number", (run,))
    lines += [whole_line(row["line"], lambda digest: _content(connection, digest)) for row in rows]
    return lines


def whole_line(line: str, content: Callable[[str], str]) -> Data:
    """A call's line with its texts, given what a digest stands for."""
    data: Data = json.loads(line)
    for holder, name in _texts(data):
        if isinstance(holder[name], dict):
            holder[name] = content(holder[name]["text"])
    return data


def _content(connection: sqlite3.Connection, digest: str) -> str:
    row = connection.execute("SELECT content FROM texts WHERE digest = ?", (digest,)).fetchone()
    return str(row["content"])
