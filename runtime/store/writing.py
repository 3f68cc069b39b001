"""Rows of claims, written within a transaction of the caller: texts, tasks, sketches, kernels,
environments, verdicts, measurements, runs. Rows that exist already are not written again.

A call of a run is a line of the run's ledger (`agents.llm.ledger`) as JSON data; long texts of the
line are in the table `texts`, with `{"text": DIGEST}` in their place. `ledger_lines` restores the
lines.
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

#: The version of the JSON documents of verdicts and measurements (`evidence`), increased by one
#: with every change that an older reader would misread.
FORMAT = 1

Scalar = int | float | bool


@attrs.frozen
class TaskText:
    """A task's file: its `name` without folder, its text, the texts of the modules beside it that
    it imports, by file name, and the name of the class or function that is the task (`subject`)."""

    name: str
    text: str
    modules: Mapping[str, str] = attrs.field(factory=dict)
    subject: str = "Model"


@attrs.frozen
class SketchText:
    """A sketch: its text as written, its name in the text, its canonical hash, and the version of
    the canonical form (`form`)."""

    text: str
    name: str
    canonical: str
    form: int


@attrs.frozen
class KernelRow:
    """A kernel, with all that it was made from. `origin` says who wrote it: "builtin", "llm" or
    "given"; `sketch` is None for a kernel that was written without one."""

    kernel: Kernel
    origin: str
    constants: Mapping[str, Scalar] = attrs.field(factory=dict)
    sketch: SketchText | None = None


@attrs.frozen
class RunStep:
    """The step, by its number, of the run with the id `run` in which a verdict or a measurement was
    made. The claim of a step is recorded only once: a run that was killed repeats its last step.
    """

    run: str
    step: int


def now() -> str:
    """The current time in UTC, ISO 8601, to the microsecond: texts that sort by time."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def digest_of(*parts: str) -> str:
    """The SHA-256 of `parts`, in hexadecimal; of a single text, that of its UTF-8 bytes."""
    hashed = hashlib.sha256()
    for number, part in enumerate(parts):
        encoded = part.encode()
        if number:
            hashed.update(b"\0%d\0" % len(encoded))  # so that the boundaries of texts count
        hashed.update(encoded)
    return hashed.hexdigest()


def dump(value: Any) -> str:
    """`value` as JSON with sorted keys, so that equal data gives equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def storable(text: str) -> str:
    """`text` with characters that have no UTF-8 form, which SQLite does not take, as question
    marks; file names may have such characters, too."""
    return text.encode("utf-8", "replace").decode()


def insert(connection: sqlite3.Connection, table: str, **values: Any) -> bool:
    """Insert one row by column names unless its key exists already; returns whether it is new."""
    columns = ", ".join(values)
    places = ", ".join("?" * len(values))
    # Only a row with an existing key is skipped: OR IGNORE would silently drop invalid rows.
    query = f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"
    plain = [storable(value) if isinstance(value, str) else value for value in values.values()]
    return connection.execute(query, plain).rowcount == 1


def put_text(connection: sqlite3.Connection, content: str) -> str:
    """Keep a text; returns its digest. Characters without a UTF-8 form (a model may send half of a
    surrogate pair) become question marks, as in the files that compilers get."""
    content = storable(content)
    digest = digest_of(content)
    insert(connection, "texts", digest=digest, content=content)
    return digest


def put_task(connection: sqlite3.Connection, task: TaskText) -> str:
    """Keep a task; returns its id, a digest of its texts and of its subject."""
    text = put_text(connection, task.text)
    modules = {name: put_text(connection, content) for name, content in task.modules.items()}
    identity = digest_of(text, dump(modules), task.subject)
    own = {"name": task.name, "subject": task.subject, "text": text}
    insert(connection, "tasks", id=identity, **own, recorded=now())
    for name, digest in modules.items():
        insert(connection, "task_modules", task=identity, name=name, text=digest)
    return identity


def put_sketch(connection: sqlite3.Connection, sketch: SketchText) -> str:
    """Keep a sketch and its text (one spelling of it); returns the digest of the text."""
    text = put_text(connection, sketch.text)
    identity, name = sketch.canonical, sketch.name
    insert(connection, "sketches", id=identity, form=sketch.form, name=name, recorded=now())
    insert(connection, "sketch_texts", sketch=identity, text=text, name=name)
    return text


def put_kernel(connection: sqlite3.Connection, row: KernelRow) -> str:
    """Keep a kernel; returns its id, a digest of all that it consists of and was made from. The
    sketch counts by its canonical hash: another spelling with equal code gives the same kernel."""
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
    """Keep the versions of an environment; returns its id, a digest of the versions."""
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
    """Keep a claim of the `kind` "verdict" (`runtime.verify.verdict.to_json`) or "measurement"
    (`runtime.bench.text`); returns its id. `signature` is the text of the sketch by which a kernel
    by others was called, where one was named."""
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
    """The columns that only measurements have. `speedup` is None where the baseline is of another
    class of precision. A measurement that does not state its class gets the class "unknown"."""
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
    """The current state of a run. `outcome` is "" while the run goes on; `header` is the first line
    of its ledger, `trace` its steps so far (at the end, the whole of trace.json)."""

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
    """Keep a run, or update it: its state, and those of `calls` that are not recorded yet. Returns
    its id."""
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
            continue  # with half of a surrogate pair, which only JSON's escapes can represent
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
    """The places of the long texts of a ledger's line: (object or list, key or index)."""
    yield from ((line["parts"], version) for version in line.get("parts", ()))
    for message in line["request"]["messages"]:
        content = message["content"]
        if not isinstance(content, list):
            yield message, "content"
            continue
        for place, piece in enumerate(content):
            if isinstance(piece, str) or "text" in piece:  # else a reference to a part
                yield content, place
    if line["reply"] is not None:
        yield line["reply"], "text"


def ledger_lines(connection: sqlite3.Connection, run: str) -> list[Data]:
    """The lines of a run's ledger, the header first, as they were recorded."""
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
    """The text with the given digest."""
    row = connection.execute("SELECT content FROM texts WHERE digest = ?", (digest,)).fetchone()
    return str(row["content"])
