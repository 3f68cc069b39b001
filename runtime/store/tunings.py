"""What `sketchc tune` found, kept in the store: every measured point, and the one it chose.

Points are written a batch at a time, each batch in one transaction, so that a search that was
killed goes on with what it knew. A later `sketchc lower --tuned` reads the point that was chosen.
"""

from __future__ import annotations

import json
import math
import sqlite3
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sketchc.base.types import Scalar
from sketchc.runtime.store.database import read_store
from sketchc.runtime.store.writing import (
    SketchText,
    TaskText,
    digest_of,
    dump,
    insert,
    now,
    put_sketch,
    storable,
)

#: A failed point is not tried again, except where the machine was at fault.
_TRY_AGAIN = ("infrastructure", "timeout")
#: The class of a point whose process was ended from outside, for which it may or may not be to
#: blame (it may have taken all memory): it is tried once more.
KILLED = "killed"


@attrs.frozen
class Setting:
    """All that times depend on. `device` is what kernels ran on, `compilers` the versions that
    built them; `fixed` are constants that did not vary; `cold`: caches were flushed."""

    sketch: SketchText
    task: TaskText
    target: str
    hardware: str
    device: str
    compilers: Mapping[str, str]
    symbols: Mapping[str, int]
    threads: int
    fixed: Mapping[str, Scalar]
    cold: bool = True

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the table that name the setting, apart from sketch and task."""
        return {
            "target": self.target,
            "hardware": self.hardware,
            "device": self.device,
            "compilers": dump(dict(self.compilers)),
            "symbols": dump(dict(self.symbols)),
            "threads": self.threads,
            "cold": int(self.cold),
            "fixed": dump(dict(self.fixed)),
        }

    @property
    def identity(self) -> str:
        """A digest of everything, with the task's texts and the canonical sketch."""
        task = (self.task.text, dump(dict(self.task.modules)), self.task.subject)
        own = (str(value) for value in self.columns.values())
        return digest_of(self.sketch.canonical, *task, *own)


@attrs.frozen
class PointRow:
    """One point that was tried: samples in seconds, and why it does not count (`failure`)."""

    point: Mapping[str, Scalar]
    samples: tuple[float, ...]
    failure: str = ""
    reason: str = ""

    @property
    def seconds(self) -> float:
        """The median; infinite for a point that does not count."""
        return statistics.median(self.samples) if self.samples and not self.failure else math.inf

    @property
    def settled(self) -> bool:
        """Whether the point failed through its own fault."""
        return self.failure not in ("", KILLED, *_TRY_AGAIN)


@attrs.frozen
class Best:
    """The point that was chosen: its median in seconds, and that of the plan's own choice (None
    where that fails)."""

    point: Mapping[str, Scalar]
    seconds: float
    default_seconds: float | None


@attrs.frozen
class Tuned:
    """What `sketchc tune` chose, and for what."""

    best: Best
    symbols: Mapping[str, int]
    device: str
    hardware: str
    compilers: Mapping[str, str]
    threads: int
    recorded: str


def known_points(path: Path, setting: Setting) -> list[PointRow]:
    """The points that are known of exactly this setting, also those of the class `KILLED`; none
    where there is no store yet. Raises `StoreError`."""
    if not path.exists():
        return []
    query = "SELECT * FROM tuning_points WHERE tuning = ? ORDER BY rowid"
    with read_store(path) as connection:
        rows = connection.execute(query, (setting.identity,)).fetchall()
    return [_point_row(row) for row in rows if row["failure"] not in _TRY_AGAIN]


def _point_row(row: sqlite3.Row) -> PointRow:
    samples = tuple(json.loads(row["samples"]))
    return PointRow(json.loads(row["point"]), samples, row["failure"], row["reason"])


def put_points(
    connection: sqlite3.Connection,
    task: str,
    environment: str,
    setting: Setting,
    points: Sequence[PointRow],
) -> str:
    """Keep points within a transaction of the caller, their samples beside those that are there:
    several searches may write at the same time. What a point failed by through its own fault stays,
    else the later word counts. Returns the id of the tuning."""
    _put_setting(connection, task, environment, setting)
    query = "SELECT * FROM tuning_points WHERE tuning = ? AND point = ?"
    for row in points:
        key = (setting.identity, dump(dict(row.point)))
        if (found := connection.execute(query, key).fetchone()) is not None:
            before = _point_row(found)
            later = before if before.settled else row
            row = attrs.evolve(later, samples=(*before.samples, *row.samples))
        connection.execute(
            """INSERT OR REPLACE INTO tuning_points
            (tuning, point, seconds, samples, failure, reason, recorded)
            VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (
                *key,
                row.seconds if math.isfinite(row.seconds) else None,
                *(dump(list(row.samples)), row.failure, storable(row.reason), now()),
            ),
        )
    return setting.identity


def put_best(
    connection: sqlite3.Connection, task: str, environment: str, setting: Setting, best: Best
) -> str:
    """Keep the point that was chosen and verified, within a transaction of the caller; returns the
    id of the tuning."""
    _put_setting(connection, task, environment, setting)
    connection.execute(
        "UPDATE tunings SET best = ?, seconds = ?, default_seconds = ?, recorded = ? WHERE id = ?",
        (dump(dict(best.point)), best.seconds, best.default_seconds, now(), setting.identity),
    )
    return setting.identity


def _put_setting(
    connection: sqlite3.Connection, task: str, environment: str, setting: Setting
) -> None:
    put_sketch(connection, setting.sketch)
    own = {"sketch": setting.sketch.canonical, "task": task, "environment": environment}
    own |= {**setting.columns, "best": "null", "recorded": now()}
    insert(connection, "tunings", id=setting.identity, **own)


def tuned_points(
    path: Path, sketch: str, target: str, hardware: str, fixed: Mapping[str, Scalar]
) -> list[Tuned]:
    """The points that were chosen for the sketch with this canonical hash on a chip, newest first;
    none where there is no store. What was `fixed` for a point must be so here, and what is `fixed`
    here must be so in the point. Raises `StoreError`."""
    if not path.exists():
        return []
    with read_store(path) as connection:
        rows = connection.execute(
            """SELECT * FROM tunings WHERE sketch = ? AND target = ? AND hardware = ?
            AND best != 'null' ORDER BY recorded DESC, id""",
            (sketch, target, hardware),
        ).fetchall()
    points = [json.loads(row["best"]) for row in rows]
    return [
        Tuned(
            Best(point, float(row["seconds"]), row["default_seconds"]),
            json.loads(row["symbols"]),
            row["device"],
            row["hardware"],
            json.loads(row["compilers"]),
            row["threads"],
            row["recorded"],
        )
        for row, point in zip(rows, points, strict=True)
        if json.loads(row["fixed"]).items() <= fixed.items()
        and all(point.get(name, value) == value for name, value in fixed.items())
    ]


def nearest(found: Sequence[Tuned], symbols: Mapping[str, int]) -> Tuned:
    """The one of `found` (at least one, newest first) whose sizes are nearest to `symbols`, by the
    sum of squared logarithms of their ratios; the newest of several, and without `symbols`."""

    def distance(one: Tuned) -> float:
        pairs = ((size, one.symbols[name]) for name, size in symbols.items() if name in one.symbols)
        return math.fsum(math.log(max(a, 1) / max(b, 1)) ** 2 for a, b in pairs)

    return min(found, key=distance)
