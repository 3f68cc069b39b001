"""The store's file: made, migrated, refused; what is written is read back; the best kernels."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from store_cases import kernel, measurement, put, unsound, verdict

from sketchc.base.diagnostics import UsageError
from sketchc.base.files import default_store
from sketchc.runtime.store import reading, writing
from sketchc.runtime.store.database import (
    StoreError,
    collect,
    open_store,
    read_store,
    transaction,
)
from sketchc.runtime.store.schema import APPLICATION_ID, CLAIMS, VERSION


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[sqlite3.Connection]:
    with open_store(path) as connection:
        yield connection


# ---------------------------------------------------------------- the file


def test_the_default_store_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKETCHC_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_store() == Path("/data/sketchc/store.sqlite")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_store() == Path.home() / ".local/share/sketchc/store.sqlite"
    monkeypatch.setenv("SKETCHC_STORE", "/else/where")
    assert default_store() == Path("/else/where")


def test_a_store_is_made_with_its_folder_and_survives_a_power_failure(path: Path) -> None:
    with open_store(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL
        assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1
        assert connection.execute("PRAGMA user_version").fetchone()[0] == VERSION
    with read_store(path) as connection:
        assert reading.counts(connection) == dict.fromkeys(reading.KINDS, 0)


def test_reading_makes_no_store(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"), read_store(path):
        pass
    assert not path.parent.exists()


def first_version(path: Path, more: str = "") -> None:
    """A store as version 1 left it, with content."""
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        for statement in CLAIMS:
            connection.execute(statement)
        connection.executescript(
            f"""
            INSERT INTO texts VALUES ('d1', 'the task'), ('d2', 'the code');
            INSERT INTO tasks VALUES ('t1', 'old.py', 'Model', 'd1', '2026-01-01T00:00:00Z');
            INSERT INTO kernels VALUES ('k1', NULL, NULL, 'cpp', 'cpu', 'old', 'old', 'c++',
                'given', '{{}}', 'd2', '2026-01-01T00:00:00Z');
            INSERT INTO environments VALUES ('e1', '{{"g++":"11"}}');
            INSERT INTO verdicts VALUES ('aa11', 'k1', 't1', 'e1', 1, '', 9, 'natively', '5', 1,
                '{json.dumps(verdict(seed=5))}', '2026-01-01T00:00:00Z');
            INSERT INTO measurements VALUES ('bb22', 'k1', 't1', 'e1', 'a chip', '{{"M":3}}',
                'ieee f32', 1, '', 0.5, 2.0, '5', 1, '{json.dumps(measurement(0.5))}',
                '2026-01-02T00:00:00Z');
            PRAGMA application_id={APPLICATION_ID};
            PRAGMA user_version=1;
            {more}
            """
        )


def test_an_older_store_is_migrated_with_its_content_and_a_copy_is_kept(path: Path) -> None:
    first_version(path)
    with read_store(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == VERSION
        shown = reading.show(connection, "aa11")
        assert shown["evidence"]["seed"] == 5
        assert shown["run"] is None
        assert shown["signature"] is None
        assert shown["task"]["text"] == "the task"
        assert [row["kernel"] for row in reading.best_rows(connection)] == ["k1"]
        assert reading.list_rows(connection, "runs") == []
        assert unsound(connection) == []
    copy = path.with_name(f"{path.name}.schema-1")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
        assert connection.execute("SELECT id FROM verdicts").fetchall() == [("aa11",)]
    assert {p.name for p in path.parent.iterdir()} <= {
        path.name,
        copy.name,
        f"{path.name}-wal",
        f"{path.name}-shm",
    }


def test_a_copy_never_replaces_an_earlier_one(path: Path) -> None:
    first_version(path)
    earlier = path.with_name(f"{path.name}.schema-1")
    earlier.write_text("of an earlier store")
    with open_store(path):
        pass
    assert earlier.read_text() == "of an earlier store"
    assert path.with_name(f"{path.name}.schema-1.2").stat().st_size > 4096


def test_a_migration_that_fails_leaves_the_store_as_it_was(path: Path) -> None:
    first_version(path, "CREATE TABLE call_texts (in_the_way TEXT);")  # after `runs` was made
    with pytest.raises(StoreError, match="call_texts"), open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        assert "runs" not in tables
        assert connection.execute("SELECT count(*) FROM verdicts").fetchone()[0] == 1


def test_a_newer_store_is_refused_and_left_alone(path: Path) -> None:
    with open_store(path) as connection:
        connection.execute(f"PRAGMA user_version={VERSION + 1}")
    before = path.read_bytes()
    for opened in (open_store, read_store):
        message = f"has schema {VERSION + 1}, and this sketchc knows {VERSION}"
        with pytest.raises(StoreError, match=message), opened(path):
            pass
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"no database at all " * 400, b"SQLite format 3\0" + b"x" * 9000]
)
def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for opened in (open_store, read_store):
        with pytest.raises(StoreError, match=r"is not a store of sketchc|is damaged"), opened(path):
            pass
    assert path.read_bytes() == content


def test_the_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is not a store of sketchc"), open_store(path):
        pass
    assert path.read_bytes() == before


def test_a_damaged_store_is_one_clear_line(path: Path) -> None:
    with open_store(path) as connection:
        for number in range(40):
            put(connection, "t", f"{number}" * 3000, verdict())
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged") as found, read_store(path) as connection:
        reading.list_rows(connection, "verdicts")
    assert "\n" not in str(found.value)


def test_a_folder_in_the_place_of_the_store_is_one_clear_line(tmp_path: Path) -> None:
    for opened in (open_store, read_store):
        with pytest.raises(StoreError, match=str(tmp_path)), opened(tmp_path):
            pass


def test_a_transaction_is_undone_as_a_whole(store: sqlite3.Connection) -> None:
    def interrupted() -> None:
        with transaction(store):
            writing.put_text(store, "half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.execute("SELECT count(*) FROM texts").fetchone()[0] == 0


def test_references_are_kept_by_the_database(store: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError), transaction(store):
        writing.put_claim(store, "verdict", "no kernel", "no task", "no versions", verdict())


# ---------------------------------------------------------------- what is in it


def test_nothing_is_stored_twice(store: sqlite3.Connection) -> None:
    for seed in range(5):
        put(store, "t", "the code", verdict(seed=seed))
    assert reading.counts(store) == {
        "tasks": 1,
        "sketches": 0,
        "kernels": 1,
        "verdicts": 5,
        "measurements": 0,
        "runs": 0,
        "builds": 0,
        "tunings": 0,
    }
    assert store.execute("SELECT count(*) FROM texts").fetchone()[0] == 2


SKETCH = """sketch one {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    @llm_hint("parallel")
    for i in range(ceil(N, 16)):
        x = alloc([16])
        load(X[i*16:(i+1)*16] -> x)
        store(x -> Y[i*16:(i+1)*16])
}
"""


def test_spellings_of_a_sketch_are_one_sketch(store: sqlite3.Connection) -> None:
    spelt = SKETCH.replace("x", "tile").replace("matile", "max")
    with transaction(store):
        ids = [writing.put_kernel(store, kernel("code", sketch=text)) for text in (SKETCH, spelt)]
        other = writing.put_kernel(store, kernel("code", sketch=SKETCH.replace("16", "32")))
    assert ids[0] == ids[1] != other
    rows = reading.list_rows(store, "sketches")
    assert sorted(row["spellings"] for row in rows) == [1, 2]
    sketch = next(row for row in rows if row["spellings"] == 2)
    shown = reading.show(store, sketch["id"][:9])
    assert {spelling["text"] for spelling in shown["spellings"]} == {SKETCH, spelt}
    assert [row["id"] for row in shown["kernels"]] == [ids[0]]


def test_characters_without_a_utf8_form_are_kept_as_question_marks(
    store: sqlite3.Connection,
) -> None:
    put(store, "t", "half \ud800 a pair", verdict(failure="compile \udcff", passed=False))
    assert store.execute("SELECT content FROM texts WHERE content LIKE 'half%'").fetchone()[0] == (
        "half ? a pair"
    )


def test_ids_may_be_shortened_and_must_be_clear(store: sqlite3.Connection) -> None:
    ids = [put(store, "t", str(n), verdict(seed=n))[0] for n in range(40)]
    for identity in ids:
        assert reading.resolve(store, identity[:20]) == ("verdicts", identity)
        assert reading.resolve(store, identity.upper()) == ("verdicts", identity)
    with pytest.raises(UsageError, match="begins several ids"):
        reading.resolve(store, max("0123456789abcdef", key=[i[0] for i in ids].count))
    for wrong in ("", "xyz", "' OR 1", "f" * 40, "%"):
        with pytest.raises(UsageError, match="no id in the store begins with"):
            reading.resolve(store, wrong)


def test_lists_are_narrowed_down(store: sqlite3.Connection) -> None:
    put(store, "first", "a", verdict(), measurement(1.0))
    put(store, "second", "b", verdict(passed=False, failure="numerical"), target="triton_cuda")
    for kind in ("tasks", "kernels", "verdicts"):
        assert len(reading.list_rows(store, kind)) == 2
        assert len(reading.list_rows(store, kind, task="first.py")) == 1
        assert len(reading.list_rows(store, kind, target="triton_cuda")) == 1
        assert reading.list_rows(store, kind, "folder/first", "triton_cuda") == []
        assert reading.counts(store, "first")[kind] == 1
    assert reading.list_rows(store, "tasks", "second")[0]["failed"] == 1
    with pytest.raises(UsageError, match=r"holds no task third; it holds: first\.py, second\.py"):
        reading.list_rows(store, "verdicts", task="third")


# ---------------------------------------------------------------- the best


def best_sources(store: sqlite3.Connection, **filters: str) -> list[str]:
    rows = reading.best_rows(store, **filters)
    return [reading.show(store, row["kernel"])["text"] for row in rows]


def test_the_best_is_the_fastest_that_is_verified_and_was_right(store: sqlite3.Connection) -> None:
    put(store, "t", "slow", verdict(), measurement(3.0))
    put(store, "t", "good", verdict(), measurement(2.0), measurement(2.5))
    put(store, "t", "never verified", measurement(0.1))
    put(store, "t", "failed", verdict(passed=False, failure="numerical"), measurement(0.2))
    put(store, "t", "refuted later", verdict(), measurement(0.3))
    put(store, "t", "refuted later", verdict(passed=False, failure="nondeterministic", seed=2))
    put(store, "t", "wrong when timed", verdict(), measurement(0.4, passed=False))
    put(store, "another", "verified for another task", verdict())
    put(store, "t", "verified for another task", measurement(0.5))
    assert best_sources(store) == ["good"]
    assert reading.best_rows(store)[0]["median"] == 2.0


def test_failures_of_the_machinery_say_nothing_of_the_kernel(store: sqlite3.Connection) -> None:
    put(store, "t", "good", verdict(), measurement(1.0))
    put(store, "t", "good", verdict(passed=False, failure="infrastructure"))
    put(store, "t", "good", verdict(passed=False))  # the task refused every case
    assert best_sources(store) == ["good"]


def test_what_cannot_be_compared_is_not(store: sqlite3.Connection) -> None:
    coarse = {**measurement(0.1), "precision": {"name": "tf32"}}
    other_chip, other_size = measurement(0.2, device="other"), measurement(0.3, m=9)
    put(store, "t", "exact", verdict(), measurement(1.0))
    put(store, "t", "coarse", verdict(), coarse)
    put(store, "t", "on another chip", verdict(), other_chip)
    put(store, "t", "at another size", verdict(), other_size)
    put(store, "u", "of another task", verdict(), measurement(0.4))
    put(store, "t", "for another target", verdict(), measurement(0.5), target="triton_cuda")
    assert len(best_sources(store)) == 6
    assert best_sources(store, task="u") == ["of another task"]
    assert best_sources(store, target="triton_cuda") == ["for another target"]


# ---------------------------------------------------------------- garbage


def set_age(store: sqlite3.Connection, days: int) -> None:
    """Everything recorded so far becomes older."""
    older = f"strftime('%Y-%m-%dT%H:%M:%fZ', recorded, '-{days} days')"
    for table in ("verdicts", "measurements"):
        store.execute(f"UPDATE {table} SET recorded = {older}")


def test_garbage_is_old_failures_and_what_nothing_needs(store: sqlite3.Connection) -> None:
    wrong = verdict(passed=False, failure="numerical")
    for number in range(6):
        put(store, "t", f"old wrong {number} " * 500, wrong)
    put(store, "t", "refuted", verdict(), measurement(0.1))
    put(store, "t", "refuted", wrong)
    put(store, "t", "good", verdict(), measurement(2.0), measurement(0.1, passed=False))
    put(store, "gone", "wrong for a task of its own", wrong)
    set_age(store, 60)
    put(store, "t", "young wrong", wrong)
    best = reading.best_rows(store)
    assert best_sources(store) == ["good"]

    dry = collect(store, keep=1, older_than_days=30, dry_run=True)
    assert reading.counts(store)["verdicts"] == 11
    done = collect(store, keep=1, older_than_days=30)
    assert dry.rows == done.rows
    # Of task t the young failure is the newest; the one of the other task is its newest, too.
    assert done.rows["verdicts"] == 6
    assert done.bytes > 0
    assert reading.best_rows(store) == best  # "refuted" is as refuted as before
    kept = {reading.show(store, row["id"])["text"] for row in reading.list_rows(store, "kernels")}
    assert kept == {"refuted", "good", "young wrong", "wrong for a task of its own"}

    collect(store, keep=0, older_than_days=0)
    assert reading.best_rows(store) == best
    assert [row["name"] for row in reading.list_rows(store, "tasks")] == ["t.py"]
    assert store.execute("SELECT count(*) FROM texts").fetchone()[0] == 3
    assert unsound(store) == []


# ---------------------------------------------------------------- read-only media


def as_a_stranger(work: Callable[[], None]) -> None:
    """Do it in a process that may write nothing: root could write anywhere."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_store_is_read_where_nobody_may_write() -> None:
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is below a folder of the user's own
        path = Path(folder) / "store.sqlite"
        with open_store(path) as connection:
            put(connection, "t", "code", verdict())
        assert not path.with_name(f"{path.name}-wal").exists()
        path.chmod(0o444)
        Path(folder).chmod(0o555)

        def work() -> None:
            with read_store(path) as connection:
                assert len(reading.list_rows(connection, "verdicts")) == 1
            with pytest.raises(StoreError, match="cannot write the store"):  # noqa: SIM117
                with open_store(path) as connection:
                    put(connection, "t", "more", verdict())
            assert os.listdir(folder) == [path.name]

        as_a_stranger(work)
        Path(folder).chmod(0o755)
