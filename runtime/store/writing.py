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
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from sketchc.lowering.kernel import Kernel

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

    kernel: Kernel
    origin: str
    constants: Mapping[str, Scalar] = attrs.field(factory=dict)
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


def insert(connection: sqlite3.Connection, table: str, **values: Any) -> bool:
    """Insert one row by column names, unless one with its key is there; whether it is new."""
    columns = ", ".join(values)
    places = ", ".join("?" * len(values))
    # Only a row with the same key is passed over: OR IGNORE would drop broken ones in silence.
    query = f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"
    plain = [storable(value) if isinstance(value, str) else value for value in values.values()]
    return connection.execute(query, plain).rowcount == 1


def put_text(connection: sqlite3.Connection, content: str) -> str:
    """Keep a text; returns its digest. Characters without a UTF-8 form (a model may send half of a
    surrogate pair) become question marks, as they do in the files that compilers get."""
    content = storable(content)
    digest = digest_of(content)
    insert(connection, "texts", digest=digest, content=content)
    return digest


def put_task(connection: sqlite3.Connection, task: TaskText) -> str:
    """Keep a task; its id is a digest of its texts, and of what in them is the task."""
    text = put_text(connection, task.text)
    modules = {name: put_text(connection, content) for name, content in task.modules.items()}
    identity = digest_of(text, dump(modules), task.subject)
    own = {"name": task.name, "subject": task.subject, "text": text}
    insert(connection, "tasks", id=identity, **own, recorded=now())
    for name, digest in modules.items():
        insert(connection, "task_modules", task=identity, name=name, text=digest)
    return identity


def put_sketch(connection: sqlite3.Connection, sketch: SketchText) -> str:
    """Keep a sketch and this spelling of it; returns the digest of the text."""
    text = put_text(connection, sketch.text)
    identity, name = sketch.canonical, sketch.name
    insert(connection, "sketches", id=identity, form=sketch.form, name=name, recorded=now())
    insert(connection, "sketch_texts", sketch=identity, text=text, name=name)
    return text


def put_kernel(connection: sqlite3.Connection, row: KernelRow) -> str:
    """Keep a kernel; its id is a digest of all that it consists of and was made from. Another
    spelling of the same sketch that gives the same code gives the same kernel."""
    named, kernel = ("target", "hardware", "name", "entry", "language"), row.kernel
    own = {**{name: getattr(kernel, name) for name in named}, "origin": row.origin}
    own |= {"constants": dump(dict(row.constants)), "text": put_text(connection, kernel.source)}
    extras = {name: put_text(connection, content) for name, content in kernel.extras}
    made_from: dict[str, str | None] = {"sketch": None, "sketch_text": None}
    if row.sketch is not None:
        text = put_sketch(connection, row.sketch)
        made_from = {"sketch": row.sketch.canonical, "sketch_text": text}
    identity = digest_of(*own.values(), dump(extras), made_from["sketch"] or "")
    insert(connection, "kernels", id=identity, **made_from, **own, recorded=now())
    for name, digest in extras.items():
        insert(connection, "kernel_files", kernel=identity, name=name, text=digest)
    return identity


def put_environment(connection: sqlite3.Connection, versions: Mapping[str, str]) -> str:
    """Keep the versions of an environment; its id is a digest of them."""
    text = dump(dict(versions))
    identity = digest_of(text)
    insert(connection, "environments", id=identity, versions=text)
    return identity


def put_claim(
    connection: sqlite3.Connection,
    kind: str,
    kernel: str,
    task: str,
    environment: str,
    found: Mapping[str, Any],
    made_in: RunStep | None = None,
    signature: str | None = None,
) -> str:
    """Keep a "verdict" (`runtime.verify.verdict.to_json`), with the text of the sketch by which the
    kernel was called where one was named for that, or a "measurement" (`runtime.bench.text`);
    returns its id."""
    identity, run = secrets.token_hex(16), None  # no row of another store has the same one
    if made_in is not None:
        run = made_in.run
        identity = digest_of(run, str(made_in.step), kind)[:32]
    if kind == "measurement":
        own = _of_measurement(found)
    else:
        called = None if signature is None else put_text(connection, signature)
        own = {"signature": called, "failure": str(found["failure"]), "cases": len(found["cases"])}
        own["how_it_runs"] = str(found["how_it_runs"])
    own |= {"kernel": kernel, "task": task, "environment": environment, "run": run}
    own |= {"passed": int(bool(found["passed"])), "seed": str(found["seed"])}
    own |= {"format": FORMAT, "evidence": dump(found), "recorded": now()}
    insert(connection, f"{kind}s", id=identity, **own)
    return identity


def _of_measurement(measured: Mapping[str, Any]) -> dict[str, Any]:
    """What only measurements have. No speedup stands in one whose baseline is of another class of
    precision. A measurement that does not say its class is of none that others are."""
    speedup = measured.get("speedup")
    return {
        "device": str(measured["machine"]["name"]),
        "symbols": dump(measured["symbols"]),
        "precision": str(measured.get("precision", {"name": "unknown"})["name"]),
        "failure": str(measured.get("failure", "")),
        "median": float(measured["kernel"]["median"]),
        "speedup": None if speedup is None else float(speedup["of_medians"]),
    }


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
    if not insert(connection, "runs", **values):
        connection.execute(
            """UPDATE runs SET environment = :environment, outcome = :outcome, reason = :reason,
            attempts = :attempts, trace = :trace WHERE id = :id""",
            values,
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
        if storable(content) != content:
            continue  # half of a surrogate pair: only JSON's escapes hold it
        digests.append(put_text(connection, content))
        holder[name] = {"text": digests[-1]}
    insert(
        connection,
        "calls",
        run=run,
        number=call["number"],
        started=call["started"],
        provider=call["provider"],
        purpose=call["request"]["purpose"],
        model=reply.get("model", ""),
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        cost=reply.get("cost"),
        seconds=float(reply.get("seconds", 0.0)),
        error=call["error"],
        line=json.dumps(line, separators=(",", ":")),  # in the ledger's own order
    )
    for digest in digests:
        insert(connection, "call_texts", run=run, number=call["number"], text=digest)


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


def ledger_lines(connection: sqlite3.Connection, run: str) -> list[Data]:
    """The lines of a run's ledger, the header first, equal to what was recorded."""
    header = connection.execute("SELECT header FROM runs WHERE id = ?", (run,)).fetchone()
    lines: list[Data] = [json.loads(header["header"])]
    query = "SELECT line FROM calls WHERE run = ? ORDER BY number"
    for row in connection.execute(query, (run,)).fetchall():
        lines.append(json.loads(row["line"]))
        for holder, name in _texts(lines[-1]):
            if isinstance(holder[name], dict):
                holder[name] = text_of(connection, holder[name]["text"])
    return lines


def text_of(connection: sqlite3.Connection, digest: str) -> str:
    """The text of this digest."""
    row = connection.execute("SELECT content FROM texts WHERE digest = ?", (digest,)).fetchone()
    return str(row["content"])
