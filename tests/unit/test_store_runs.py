"""Runs in the store: ledgers that come back as they were, steps that are recorded once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from store_cases import measurement, verdict

from sketchc.agents.config.settings import Configuration
from sketchc.agents.run.run import RunFolder, RunOptions, digest
from sketchc.agents.state.state import KernelText, RunContext, RunState, Step
from sketchc.cli.gen_run import RunRecorder
from sketchc.cli.options import recorder
from sketchc.runtime.store import reading, writing
from sketchc.runtime.store.database import open_store, read_store, transaction
from sketchc.runtime.store.exporting import export_jsonl, import_rows, parse_export
from sketchc.runtime.store.writing import RunRow, ledger_lines, put_run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEDGER = EXAMPLES / "ledgers" / "attention_ascend.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in LEDGER.read_text().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with open_store(tmp_path / "store.sqlite") as connection:
        yield connection


def put(store: sqlite3.Connection, calls: list[dict[str, Any]], **changes: Any) -> None:
    row = RunRow(
        "ab12", "cpp", "cpu", "default", "llm", 5, "", "", 1, "/x", LINES[0], {"steps": []}
    )
    with transaction(store):
        task = writing.put_task(store, writing.TaskText("t.py", "# t"))
        environment = writing.put_environment(store, {})
        put_run(store, attrs.evolve(row, **changes), task, environment, calls)


def test_a_ledger_comes_back_as_it_was(store: sqlite3.Connection) -> None:
    assert len(LINES) > 2
    put(store, LINES[1:])
    # The order of keys as well: these are the very lines.
    assert [json.dumps(line) for line in ledger_lines(store, "ab12")[1:]] == [
        json.dumps(line) for line in LINES[1:]
    ]
    assert ledger_lines(store, "ab12")[0] == LINES[0]
    spent = sum(line["reply"]["usage"]["output_tokens"] for line in LINES[1:] if line["reply"])
    stored = store.execute("SELECT sum(output_tokens) FROM calls").fetchone()[0]
    assert stored == spent > 0


def test_a_run_that_goes_on_adds_what_is_new(store: sqlite3.Connection) -> None:
    put(store, LINES[1:2])
    texts = store.execute("SELECT count(*) FROM texts").fetchone()[0]
    put(store, LINES[1:2])
    assert store.execute("SELECT count(*) FROM texts").fetchone()[0] == texts
    assert reading.list_rows(store, "runs")[0]["outcome"] == ""
    put(store, LINES[1:], outcome="passed", attempts=3, trace={"steps": [1]})
    (row,) = reading.list_rows(store, "runs")
    assert (row["outcome"], row["attempts"], row["calls"]) == ("passed", 3, len(LINES) - 1)
    assert reading.show(store, "ab12")["trace"] == {"steps": [1]}


def _listed(content: str | list[Any]) -> list[Any]:
    return [content] if isinstance(content, str) else content


def test_prompts_that_many_calls_share_are_kept_once(store: sqlite3.Connection) -> None:
    calls = [{**LINES[1], "number": number} for number in range(1, 40)]
    put(store, calls)
    parts = LINES[1]["parts"].values()
    pieces = [piece for m in LINES[1]["request"]["messages"] for piece in _listed(m["content"])]
    texts = [*parts, *(piece for piece in pieces if isinstance(piece, str))]
    size = store.execute("SELECT sum(length(content)) FROM texts").fetchone()[0]
    whole = sum(map(len, texts)) + len(LINES[1]["reply"]["text"])
    assert size <= whole + len("# t")
    assert len(ledger_lines(store, "ab12")) == 40


def test_half_of_a_surrogate_pair_in_a_reply_is_kept(store: sqlite3.Connection) -> None:
    call = json.loads(json.dumps(LINES[1]))
    call["reply"]["text"] = "half \ud83d of a pair"
    put(store, [call], reason="ended at \udcff")
    assert ledger_lines(store, "ab12")[1] == call


def test_an_export_knows_better_how_a_run_ended(store: sqlite3.Connection, tmp_path: Path) -> None:
    put(store, LINES[1:2])
    with open_store(tmp_path / "other.sqlite") as other:
        put(other, LINES[1:], outcome="exhausted", attempts=5)
        text = "".join(export_jsonl(other))
    with transaction(store):
        import_rows(store, parse_export(text, "other"), "other")
    (row,) = reading.list_rows(store, "runs")
    assert (row["outcome"], row["attempts"], row["calls"]) == ("exhausted", 5, len(LINES) - 1)
    assert ledger_lines(store, "ab12") == LINES


# ---------------------------------------------------------------- as `sketchc gen` records it


@attrs.frozen
class GivenTask:
    """A task's file; nobody runs it here."""

    path: Path
    is_sketch: bool = False


class Silent:
    def note(self, agent: str, text: str) -> None:
        """Nothing."""


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    task: Any = GivenTask(EXAMPLES / "tasks" / "relu.py")
    description: Any = None
    return RunContext(
        task=task,
        description=description,
        task_source="",
        target="cpp",
        hardware="cpu",
        constants={},
        coder="builtin",
        model=None,
        configuration=Configuration(),
        seed=1,
        folder=tmp_path,
        progress=Silent(),
        max_attempts=5,
        max_repairs=4,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "out")
    found.inner.mkdir(parents=True)
    found.write_options(options())
    found.ledger_path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return found


def options() -> RunOptions:
    return RunOptions("relu.py", digest(""), "cpp", "cpu", "default", "builtin", 1)


def step(number: int, agent: str, outcome: str = "done") -> Step:
    return Step(number, agent, 1, outcome, "because")


STATE = RunState(
    node="verifier",
    sketch=(EXAMPLES / "relu.sketch").read_text(),
    kernel=KernelText("// the code", "relu", "c++", "llm"),
    verdict=verdict(passed=False, failure="numerical"),
    history=(step(1, "designer"), step(2, "coder"), step(3, "verifier", "failed")),
)


def test_a_step_is_recorded_once_however_often_it_is_done(
    tmp_path: Path, context: RunContext, folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.sqlite"
    done = attrs.evolve(
        STATE,
        node="",
        outcome="passed",
        verdict=verdict(),
        measurement=measurement(1.0),
        history=(*STATE.history, step(4, "conductor"), step(5, "coder"), step(6, "verifier")),
    )
    # Killed after its third step, gone on with from there, and killed before its end.
    for states in ((STATE,), (STATE, done), (done,)):
        kept = RunRecorder(recorder(path, context.task), folder, options())
        for state in states:
            kept.step(state, context)
    kept.end(done, "")
    assert capsys.readouterr().err == ""
    with read_store(path) as connection:
        (run,) = reading.list_rows(connection, "runs")
        assert (run["outcome"], run["calls"]) == ("passed", len(LINES) - 1)
        second, first = reading.list_rows(connection, "verdicts")
        assert (first["failure"], second["passed"]) == ("numerical", True)
        shown = reading.show(connection, second["id"])
        assert shown["run"] == run["id"]
        assert (shown["kernel"]["text"], shown["kernel"]["origin"]) == ("// the code", "llm")
        assert shown["kernel"]["sketch_text"] == STATE.sketch
        assert len(reading.list_rows(connection, "measurements")) == 1
        assert len(reading.show(connection, run["id"])["verdicts"]) == 2


def test_no_verdict_is_given_to_a_later_kernel(
    tmp_path: Path, context: RunContext, folder: RunFolder
) -> None:
    """The Coder has written another one when the run stops; the verdict is of the one before."""
    path = tmp_path / "store.sqlite"
    kept = RunRecorder(recorder(path, context.task), folder, options())
    later = attrs.evolve(
        STATE,
        kernel=KernelText("// another code", "relu", "c++", "llm"),
        history=(*STATE.history, step(4, "conductor"), step(5, "coder")),
    )
    kept.step(later, context)
    kept.end(later, "the money is spent")
    with read_store(path) as connection:
        assert reading.list_rows(connection, "verdicts") == []
        assert reading.list_rows(connection, "kernels") == []
        (run,) = reading.list_rows(connection, "runs")
        assert (run["outcome"], run["reason"]) == ("stopped", "the money is spent")
