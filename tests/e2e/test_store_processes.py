"""The store under several writers at once, and under `kill -9` of writers at any moment."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import store_cases

from sketchc.runtime.store import reading
from sketchc.runtime.store.database import collect, open_store, read_store
from sketchc.runtime.store.schema import CLAIMS

WRITERS = 4


def writer(path: Path, number: int, count: int) -> subprocess.Popen[bytes]:
    """A process that writes; its standard output names what is committed."""
    return subprocess.Popen(
        [sys.executable, store_cases.__file__, str(path), str(number), str(count)],
        stdout=subprocess.PIPE,
        cwd=path.parent,
    )


@contextmanager
def writers(path: Path, count: int, turn: int = 0) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Several at once, whose kernels are those of no other turn; they have ended, one way or
    another, when the block has."""
    started = [writer(path, turn * WRITERS + number, count) for number in range(WRITERS)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def ids_of(output: bytes) -> list[str]:
    """The ids of whole lines: a writer that was killed may have been within one."""
    lines = output.decode().split("\n")[:-1]
    return [line for line in lines if line != "ready"]


def require_whole(path: Path, printed: list[str]) -> int:
    """Everything that was committed is there and whole, and so is everything else; returns how many
    verdicts there are."""
    with read_store(path) as connection:
        assert store_cases.unsound(connection) == []
        rows = reading.list_rows(connection, "verdicts")
        assert set(printed) <= {row["id"] for row in rows}
        for row in rows:
            shown = reading.show(connection, row["id"])
            assert shown["kernel"]["text"].startswith("// ")
            assert shown["task"]["text"] == f"# {shown['task']['name'].removesuffix('.py')}"
            assert shown["environment"] == {"g++": "12"}
            assert len(shown["evidence"]["cases"]) == shown["cases"] == 5
        # Nothing is there without what it belongs to: each transaction wrote all of its rows.
        assert len(reading.list_rows(connection, "kernels")) == len(rows)
        return len(rows)


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """They also make the file together; nobody waits in vain, and no row is lost."""
    path, count = tmp_path / "store.sqlite", 25
    with writers(path, count) as started:
        outputs = [process.communicate(timeout=60)[0] for process in started]
        assert [process.returncode for process in started] == [0] * WRITERS
    printed = [identity for output in outputs for identity in ids_of(output)]
    assert len(set(printed)) == WRITERS * count
    assert require_whole(path, printed) == WRITERS * count
    with read_store(path) as connection:
        assert reading.counts(connection)["tasks"] == 3


def test_nothing_committed_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    """Again and again, at a random moment, all of them at once, on the same file."""
    path, random_moment = tmp_path / "store.sqlite", random.Random(11)
    printed: list[str] = []
    turn = 0
    while turn < 8 or (len(printed) <= 30 and turn < 80):  # a slow disk commits little in a turn
        turn += 1
        with writers(path, 10_000, turn) as started:
            pipes = [process.stdout for process in started if process.stdout is not None]
            for pipe in pipes:  # the first has begun: interpreters start at different times
                assert select.select([pipe], [], [], 30)[0]
            time.sleep(random_moment.uniform(0.0, 0.12))
            for process in started:
                os.kill(process.pid, signal.SIGKILL)
            printed += [i for pipe in pipes for i in ids_of(pipe.read())]
            assert all(process.wait() == -signal.SIGKILL for process in started)
        there = require_whole(path, printed)
        # Each writer may have been killed between its commit and its printing.
        assert len(printed) <= there
    assert len(printed) > 30
    with open_store(path) as connection:  # and it goes on as if nothing had happened
        store_cases.put(connection, "t", "more", store_cases.verdict())
        before = reading.counts(connection)
        collect(connection, keep=0, older_than_days=0)
        assert reading.counts(connection) == before


def test_one_of_many_migrates_an_older_store(tmp_path: Path) -> None:
    """All come at once, each writes, and one copy is kept."""
    path, count = tmp_path / "store.sqlite", 3
    with closing(sqlite3.connect(path)) as connection:
        for statement in CLAIMS:
            connection.execute(statement)
        connection.executescript(
            f"PRAGMA application_id={store_cases.APPLICATION_ID}; PRAGMA user_version=1;"
        )
    with writers(path, count) as started:
        outputs = [process.communicate(timeout=60)[0] for process in started]
    printed = [identity for output in outputs for identity in ids_of(output)]
    assert require_whole(path, printed) == WRITERS * count
    assert [p.name for p in tmp_path.glob("*.schema-*")] == ["store.sqlite.schema-1"]
    assert not list(tmp_path.glob("*.copy-*"))
