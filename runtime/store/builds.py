"""The modules that `sketchc.compile` makes (its builds), kept as the texts of their files: another
process, or another machine after `sketchc store import`, need not make them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from sketchc.runtime.store import writing
from sketchc.runtime.store.database import open_store, read_store, transaction

#: The files of a build, unless a verdict found since that a kernel in it is wrong.
_SOUND = """
    SELECT f.name, t.content FROM build_files f
    JOIN builds o ON o.id = f.build JOIN texts t ON t.digest = f.text
    WHERE o.id = ? AND NOT EXISTS (
        SELECT 1 FROM verdicts v JOIN kernels k ON k.id = v.kernel
        WHERE v.task = o.task AND k.target = o.target
            AND NOT v.passed AND v.failure NOT IN ('', 'infrastructure')
            AND k.text IN (SELECT text FROM build_files WHERE build = o.id))"""


@attrs.frozen
class Build:
    """The module `name` for a target and a chip ("" for the target's own); `identity` tells what it
    was made from."""

    identity: str
    name: str
    target: str
    hardware: str


def keep_build(path: Path, build: Build, task: writing.TaskText, files: Mapping[str, str]) -> None:
    """Keep a build of a task in the store at `path`, in place of an earlier one of the same
    identity. Raises `StoreError`."""
    own = {name: getattr(build, name) for name in ("name", "target", "hardware")}
    with open_store(path) as connection, transaction(connection):
        connection.execute("DELETE FROM builds WHERE id = ?", (build.identity,))
        own["task"] = writing.put_task(connection, task)
        writing.insert(connection, "builds", id=build.identity, **own, recorded=writing.now())
        for name, content in files.items():
            text = writing.put_text(connection, content)
            writing.insert(connection, "build_files", build=build.identity, name=name, text=text)


def find_build(path: Path, identity: str) -> dict[str, str]:
    """The files of a build by name, for one folder; none where the store at `path` has none of this
    identity, or a verdict found since that it is wrong. Raises `StoreError`, also where there is no
    store."""
    with read_store(path) as connection:
        rows = connection.execute(_SOUND, (identity,))
        found = {str(row["name"]): str(row["content"]) for row in rows}
    # An import may hold anything: names that lead out of the folder are nobody's build.
    plain = all(Path(name).name == name and name != ".." for name in found)
    return found if plain else {}
