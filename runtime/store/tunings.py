"""What `sketchc tune` found, kept in the store: every measured point, and the one it chose.

Points are written a batch at a time, each batch in one transaction, so that a search that was
killed goes on with what it knew. A later `sketchc lower --tuned` reads the point that was chosen.
"""

from __future__ import annotations

import json
import math
import sqlite3
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
    """One point that was tried: its samples in seconds, or why it does not count (`failure`)."""

    point: Mapping[str, Scalar]
    samples: tuple[float, ...]
    failure: str = ""
    reason: str = ""
    seconds: float = math.inf


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
    """The points that are known of exactly this setting; none where there is no store yet. Raises
    `StoreError`."""
    if not path.exists():
        return []
    query = "SELECT * FROM tuning_points WHERE tuning = ? ORDER BY rowid"
    with read_store(path) as connection:
        rows = connection.execute(query, (setting.identity,)).fetchall()
    found = []
    for row in rows:
        if row["failure"] not in _TRY_AGAIN:
            samples = tuple(json.loads(row["samples"]))
            seconds = math.inf if row["seconds"] is None else float(row["seconds"])
            point = json.loads(row["point"])
            found.append(PointRow(point, samples, row["failure"], row["reason"], seconds))
    return found


def put_points(
    connection: sqlite3.Connection,
    task: str,
    environment: str,
    setting: Setting,
    points: Sequence[PointRow],
) -> str:
    """Keep points, with all their samples so far, within a transaction of the caller; returns the
    id of the tuning."""
    _put_setting(connection, task, environment, setting)
    for row in points:
        connection.execute(
            """INSERT OR REPLACE INTO tuning_points
            (tuning, point, seconds, samples, failure, reason, recorded)
            VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (
                *(setting.identity, dump(dict(row.point))),
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
    return [
        Tuned(
            Best(json.loads(row["best"]), float(row["seconds"]), row["default_seconds"]),
            json.loads(row["symbols"]),
            row["device"],
            row["hardware"],
            json.loads(row["compilers"]),
            row["threads"],
            row["recorded"],
        )
        for row in rows
        if json.loads(row["fixed"]).items() <= fixed.items()
        and all(json.loads(row["best"]).get(name, value) == value for name, value in fixed.items())
    ]


def nearest(found: Sequence[Tuned], symbols: Mapping[str, int]) -> Tuned:
    """The one of `found` (at least one, newest first) whose sizes are nearest to `symbols`, by the
    sum of squared logarithms of their ratios; the newest of several, and without `symbols`."""

    def distance(one: Tuned) -> float:
        pairs = ((size, one.symbols[name]) for name, size in symbols.items() if name in one.symbols)
        return math.fsum(math.log(max(a, 1) / max(b, 1)) ** 2 for a, b in pairs)

    return min(found, key=distance)
