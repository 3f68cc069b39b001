"""Where a kernel comes from: the sketch that it was made from, found again.

A kernel's file ends in a comment that holds its sketch (`with_origin`), so that a file alone can be
lowered anew (`read_origin`). Where the comment is missing, the store may know the very text of the
code (`find_kernel`), and where no file of a task is at hand, the text of the task (`find_task`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.base.diagnostics import refuse
from sketchc.lowering.language import Language
from sketchc.lowering.source_map import digest

if TYPE_CHECKING:
    import sqlite3

    from sketchc.parsing import syntax
    from sketchc.runtime.store.writing import TaskText

# Whoever lowers writes origins; SQLite is loaded for those who ask the store.

Scalar = int | float | bool

#: The first line of the comment, behind the mark of comments.
_TITLE = "---- made by sketchc of the sketch below, which `sketchc migrate` reads ----"


@attrs.frozen
class Origin:
    """What a kernel was made of: the text with the sketch `name`, for a target and chip, with
    `settings` (what `--set` said). `task` is the file's name, with `:NAME` where one was picked,
    and `task_digest` the SHA-256 of the file's text; both are "" where no task was given. `code`
    is the digest of the code and its sketch when they were written, "" where nobody said it."""

    text: str
    name: str
    target: str
    hardware: str
    settings: Mapping[str, Scalar] = attrs.field(factory=dict)
    task: str = ""
    task_digest: str = ""
    code: str = ""

    def fits(self, code: str) -> bool:
        """Whether neither `code` nor the sketch has changed since sketchc wrote them."""
        return self.code == self._digest(code)

    def sealed(self, code: str) -> Origin:
        """This origin with the digest of `code`."""
        return attrs.evolve(self, code=self._digest(code))

    def _digest(self, code: str) -> str:
        made_of = (self.text, self.name, self.target, self.hardware, dict(self.settings))
        return digest(json.dumps([code, *made_of], sort_keys=True))


def with_origin(code: str, language: Language, origin: Origin) -> str:
    """The code of a kernel with a comment at its end that holds its sketch."""
    code = code if code.endswith("\n") else f"{code}\n"
    # A carriage return would end a comment, and means no more in a sketch than a line's end.
    plain = origin.text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    sketch = [line.rstrip() for line in plain.split("\n")]
    origin = attrs.evolve(origin, text="\n".join([*sketch, ""])).sealed(code)
    known = {k: v for k, v in attrs.asdict(origin).items() if k != "text" and v not in ("", {})}
    lines = [_TITLE, json.dumps(known), "", *sketch]
    comment = "\n".join(f"{language.comment} {line}".rstrip() for line in lines)
    return f"{code}\n\n{comment}\n"


def read_origin(text: str, language: Language) -> tuple[str, Origin | None]:
    """The code of a kernel's file without the comment, and what the comment says; None where there
    is none. Raises `UsageError` for a comment that cannot be read."""
    text = text.replace("\r\n", "\n")
    code, found, comment = text.partition(f"{language.comment} {_TITLE}\n")
    if not found:
        return text, None
    first, *lines = (_uncommented(line, language) for line in comment.rstrip("\n").split("\n"))
    code = code.removesuffix("\n\n")
    if _TITLE in comment or not all(
        line.startswith(language.comment) for line in comment.split("\n") if line
    ):
        refuse(
            "text stands behind the comment with the kernel's sketch, or a second such comment: "
            "it has to be the last thing in the file"
        )
    try:
        known = json.loads(first)
        settings = known.get("settings", {})
        words = [value for key, value in known.items() if key != "settings"]
        if not all(isinstance(word, str) for word in words) or not all(
            isinstance(value, bool | int | float) for value in settings.values()
        ):
            raise TypeError("a value of another type")
        origin = Origin(text="\n".join(lines[1:]) + "\n", **known)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        refuse(
            "the comment with the sketch at the kernel's end was changed and cannot be read; "
            "delete the comment to have a model read the code instead",
            error,
        )
    return code, origin


def _uncommented(line: str, language: Language) -> str:
    return line.removeprefix(language.comment).removeprefix(" ")


def named(sketches: Iterable[syntax.Sketch], name: str) -> list[syntax.Sketch]:
    """Those of a file's sketches that have the `name`, as written or as an identifier."""
    from sketchc.checker.api import identifier

    return [sketch for sketch in sketches if name in (sketch.name, identifier(sketch.name))]


# ---------------------------------------------------------------- in the store

_OF_CODE = """
    SELECT k.sketch_text, k.name, k.target, k.hardware, k.origin, v.evidence, v.task, v.passed
    FROM kernels k LEFT JOIN verdicts v ON v.kernel = k.id
    WHERE k.text = ? AND k.target = ?
    ORDER BY k.sketch_text IS NULL, v.passed DESC, v.recorded DESC, k.recorded DESC LIMIT 1"""
_OF_TASK = """
    SELECT id FROM tasks WHERE text = ? AND subject <> '' AND ? IN ('', subject)
    ORDER BY recorded DESC LIMIT 1"""


@attrs.frozen
class Known:
    """What the store knows of a kernel: its origin, and the task that it was last verified for."""

    origin: Origin | None = None
    task: TaskText | None = None


def find_kernel(path: Path | None, code: str, target: str) -> Known:
    """What the store at `path` knows of the very text `code`; nothing without a store. Raises
    `StoreError`."""
    from sketchc.runtime.store.database import read_store
    from sketchc.runtime.store.writing import digest_of, storable, text_of

    if path is None or not path.exists():
        return Known()
    with read_store(path) as connection:
        row = connection.execute(_OF_CODE, (digest_of(storable(code)), target)).fetchone()
        if row is None:
            return Known()
        task = None if row["task"] is None else _task(connection, row["task"])
        if row["sketch_text"] is None:
            return Known(None, task)
        asked: Mapping[str, Any] = json.loads(row["evidence"] or "{}").get("asked", {})
        text, settings = text_of(connection, row["sketch_text"]), asked.get("set", {})
        origin = Origin(text, row["name"], row["target"], row["hardware"], settings)
        does = does_what_its_sketch_says(row["origin"], bool(row["passed"]))
        return Known(origin.sealed(code) if does else origin, task)


def does_what_its_sketch_says(origin: str, passed: bool) -> bool:
    """Whether a kernel may be taken for what its sketch says: the built-in Coder's, or a model's
    that `passed`. One that a user gave has a sketch beside it, of which nobody made it."""
    return origin == "builtin" or (origin != "given" and passed)


def find_task(path: Path | None, text: str, subject: str) -> TaskText | None:
    """The task of the store at `path` whose file's `text` has this digest, and which has this
    `subject` ("": any); None where it knows none. Raises `StoreError`."""
    from sketchc.runtime.store.database import read_store

    if path is None or not path.exists():
        return None
    with read_store(path) as connection:
        row = connection.execute(_OF_TASK, (text, subject)).fetchone()
        return None if row is None else _task(connection, row["id"])


def _task(connection: sqlite3.Connection, identity: str) -> TaskText | None:
    """A task of the store; None for a kernel that stood for one."""
    from sketchc.runtime.store.writing import TaskText, text_of

    row = connection.execute(
        "SELECT name, subject, text FROM tasks WHERE id = ?", (identity,)
    ).fetchone()
    if not row["subject"]:
        return None
    modules = connection.execute(
        "SELECT name, text FROM task_modules WHERE task = ?", (identity,)
    ).fetchall()
    beside = {module["name"]: text_of(connection, module["text"]) for module in modules}
    return TaskText(row["name"], text_of(connection, row["text"]), beside, row["subject"])
