"""Rows of claims, written within a transaction of the caller: texts, tasks, sketches, kernels,
environments, verdicts, measurements, runs. What is there already is not written again.

A call of a run is a line of its ledger (`agents.llm.ledger`) as JSON data; its long texts stand in
`texts`, and `{"text": DIGEST}` in their place. `ledger_lines` makes the lines again as they were.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

#: Of the JSON documents of verdicts and measurements (`evidence`); raised by one with every change
#: that an older reader would misread.
FORMAT = 1

Scalar = int | float | bool


@attrs.frozen
class TaskText:
    """A task's file: `name` without folder, its text, the texts of the modules beside it that it
    imports, by file name, and the class or function in it that is the task."""

    name: str
    text: str
    modules: Mapping[str, str] = attrs.field(factory=dict)
    subject: str = "Model"


@attrs.frozen
class SketchText:
    """A sketch: its text as written, its name in the text, its canonical hash."""

    text: str
    name: str
    canonical: str
    form: int


@attrs.frozen
class KernelRow:
    """A kernel, with all that it was made from. `origin` says who wrote it: "builtin", "llm" or
    "given"; `sketch` None: made without."""

    target: str
    hardware: str
    name: str
    entry: str
    language: str
    origin: str
    source: str
    constants: Mapping[str, Scalar] = attrs.field(factory=dict)
    extras: tuple[tuple[str, str], ...] = ()
    sketch: SketchText | None = None


@attrs.frozen
class RunStep:
    """The step of a run (its id, and a number) that a verdict or a measurement was made in. It is
    recorded once, however often that is asked for: a run that was killed does its last step again.
    """

    run: str
    step: int


def now() -> str:
    """In UTC, ISO 8601, to the microsecond: texts that sort by time."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def fresh_id() -> str:
    """128 random bits in hexadecimal: rows of different stores never have the same one."""
    return secrets.token_hex(16)


def digest_of(*parts: str) -> str:
    """SHA-256 over texts, in hexadecimal; one text gives the digest of its UTF-8 bytes."""
    hashed = hashlib.sha256()
    for number, part in enumerate(parts):
        encoded = part.encode()
        if number:
            hashed.update(b"\0%d\0" % len(encoded))  # where one ends and the next begins counts
        hashed.update(encoded)
    return hashed.hexdigest()


def dump(value: Any) -> str:
    """JSON with sorted keys: equal data is equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def storable(text: str) -> str:
    """A text as SQLite takes it; file names, too, may hold characters without a UTF-8 form."""
    return text.encode("utf-8", "replace").decode()


def put_text(connection: sqlite3.Connection, content: str) -> str:
    """Keep a text; returns its digest. Characters without a UTF-8 form (a model may send half of a
    surrogate pair) become question marks, as they do in the files that compilers get."""
    content = storable(content)
    digest = digest_of(content)
    connection.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (digest, content))
    return digest


def put_task(connection: sqlite3.Connection, task: TaskText) -> str:
    text = put_text(connection, task.text)
    modules = {name: put_text(connection, content) for name, content in task.modules.items()}
    identity = digest_of(text, dump(modules), task.subject)
    connection.execute(
        "INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?, ?)",
        (identity, storable(task.name), task.subject, text, now()),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO task_modules VALUES (?, ?, ?)",
        [(identity, name, digest) for name, digest in modules.items()],
    )
    return identity


def put_sketch(connection: sqlite3.Connection, sketch: SketchText) -> str:
    """Keep a sketch and this spelling of it; returns the digest of the text."""
    text = put_text(connection, sketch.text)
    connection.execute(
        "INSERT OR IGNORE INTO sketches VALUES (?, ?, ?, ?)",
        (sketch.canonical, sketch.form, sketch.name, now()),
    )
    connection.execute(
        "INSERT OR IGNORE INTO sketch_texts VALUES (?, ?, ?)",
        (sketch.canonical, text, sketch.name),
    )
    return text


def put_kernel(connection: sqlite3.Connection, kernel: KernelRow) -> str:
    """Keep a kernel; its id is a digest of all that it consists of and was made from. Another
    spelling of the same sketch that gives the same code gives the same kernel."""
    sketch = kernel.sketch
    sketch_text = None if sketch is None else put_sketch(connection, sketch)
    text = put_text(connection, kernel.source)
    extras = {name: put_text(connection, content) for name, content in kernel.extras}
    constants = dump(dict(kernel.constants))
    named = (kernel.target, kernel.hardware, kernel.name, kernel.entry, kernel.language)
    origin = (kernel.origin, constants)
    canonical = None if sketch is None else sketch.canonical
    identity = digest_of(*named, *origin, text, dump(extras), canonical or "")
    connection.execute(
        "INSERT OR IGNORE INTO kernels VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (identity, canonical, sketch_text, *named, *origin, text, now()),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO kernel_files VALUES (?, ?, ?)",
        [(identity, name, digest) for name, digest in extras.items()],
    )
    return identity


def put_environment(connection: sqlite3.Connection, versions: Mapping[str, str]) -> str:
    text = dump(dict(versions))
    identity = digest_of(text)
    connection.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (identity, text))
    return identity


def put_verdict(
    connection: sqlite3.Connection,
    kernel: str,
    task: str,
    environment: str,
    verdict: Mapping[str, Any],
    made_in: RunStep | None = None,
    signature: str | None = None,
) -> str:
    """Keep a verdict (`runtime.verify.verdict.to_json`), with the text of the sketch by which the
    kernel was called where one was named for that; returns its id."""
    values = {
        **_identity(made_in, "verdict"),
        "signature": None if signature is None else put_text(connection, signature),
        "kernel": kernel,
        "task": task,
        "environment": environment,
        "passed": int(bool(verdict["passed"])),
        "failure": str(verdict["failure"]),
        "cases": len(verdict["cases"]),
        "how_it_runs": str(verdict["how_it_runs"]),
        "seed": str(verdict["seed"]),
        "format": FORMAT,
        "evidence": dump(verdict),
        "recorded": now(),
    }
    return insert(connection, "verdicts", values)


def put_measurement(
    connection: sqlite3.Connection,
    kernel: str,
    task: str,
    environment: str,
    measured: Mapping[str, Any],
    made_in: RunStep | None = None,
) -> str:
    """Keep a measurement (`runtime.bench.report.to_json`); returns its id.

    No speedup stands in one whose baseline is of another class of precision. A measurement that
    does not say its class is of none that others are.
    """
    speedup = measured.get("speedup")
    precision = measured.get("precision", {"name": "unknown"})
    values = {
        **_identity(made_in, "measurement"),
        "kernel": kernel,
        "task": task,
        "environment": environment,
        "device": str(measured["machine"]["name"]),
        "symbols": dump(measured["symbols"]),
        "precision": str(precision["name"]),
        "passed": int(bool(measured["passed"])),
        "failure": str(measured.get("failure", "")),
        "median": float(measured["kernel"]["median"]),
        "speedup": None if speedup is None else float(speedup["of_medians"]),
        "seed": str(measured["seed"]),
        "format": FORMAT,
        "evidence": dump(measured),
        "recorded": now(),
    }
    return insert(connection, "measurements", values)


def _identity(made_in: RunStep | None, kind: str) -> dict[str, str | None]:
    if made_in is None:
        return {"id": fresh_id(), "run": None}
    return {"id": digest_of(made_in.run, str(made_in.step), kind)[:32], "run": made_in.run}


def insert(connection: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> str:
    """Insert one row by column names, unless its id is there; returns the id."""
    columns = ", ".join(values)
    places = ", ".join("?" * len(values))
    connection.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT (id) DO NOTHING",
        [storable(value) if isinstance(value, str) else value for value in values.values()],
    )
    return str(values["id"])


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
