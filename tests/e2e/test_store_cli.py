"""`sketchc store` on what `sketchc verify` and `bench` record: nothing of a claim is missing."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from shared_work import measuring
from small_tasks import small_task
from store_cases import put, verdict
from toolchains import require

from sketchc.cli.main import run
from sketchc.runtime.store.database import open_store

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RMS = EXAMPLES / "rms.sketch"
#: Small: the example's own are of millions of elements.
SIZES = {"B": 2, "F": 3, "D1": 5, "D2": 7}


class Store:
    """A store, asked through the command line."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.capsys = capsys

    def text(self, *arguments: str, status: int = 0) -> str:
        self.capsys.readouterr()
        assert run(["store", *arguments, "--store", str(self.path)]) == status
        return self.capsys.readouterr().out

    def data(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sketch, verified and measured, and a wrong one that failed."""
    require("cpp")
    folder = tmp_path_factory.mktemp("recorded")
    task = small_task("rms", folder)
    where = ["--task", str(task), "--target", "cpp", "--store", str(folder / "store.sqlite")]
    assert run(["verify", str(RMS), *where, "--seed", "5"]) == 0
    sizes = ",".join(f"{name}={value}" for name, value in SIZES.items())
    with measuring():
        options = ["--symbols", sizes, "--samples", "31", "--seed", "5"]
        assert run(["bench", str(RMS), *where, *options]) == 0
    assert run(["verify", str(wrong_sketch(folder)), *where]) == 1
    return folder / "store.sqlite"


def wrong_sketch(folder: Path) -> Path:
    """It subtracts squares, and fails at the first sizes."""
    path = folder / "wrong.sketch"
    path.write_text(RMS.read_text().replace("add(square_sum", "sub(square_sum"))
    return path


@pytest.fixture
def store(recorded: Path, capsys: pytest.CaptureFixture[str]) -> Store:
    return Store(recorded, capsys)


def test_everything_that_was_found_is_listed(store: Store) -> None:
    assert store.data("list") == {
        "store": str(store.path),
        "tasks": 1,
        "sketches": 2,
        "kernels": 2,
        "verdicts": 2,
        "measurements": 1,
        "runs": 0,
        "builds": 0,
        "tunings": 0,
    }
    failed, passed = store.data("list", "verdicts", "--task", "rms", "--target", "cpp")
    assert (passed["passed"], passed["failure"], passed["seed"]) == (True, "", "5")
    assert not failed["passed"]
    assert failed["failure"]
    assert store.data("list", "verdicts", "--target", "triton_cuda") == []
    for kind in ("tasks", "sketches", "kernels", "verdicts", "measurements", "runs", "builds"):
        rows, table = store.data("list", kind), store.text("list", kind)
        assert all(row["id"][:10] in table for row in rows)


def test_a_list_may_be_cut_off_at_the_newest(store: Store) -> None:
    everything = store.data("list", "verdicts")
    assert store.data("list", "verdicts", "--limit", "1") == everything[:1]
    text = store.text("list", "verdicts", "--limit", "1")
    assert everything[0]["id"][:10] in text
    assert everything[1]["id"][:10] not in text
    assert "there are more" in text
    assert "there are more" not in store.text("list", "verdicts", "--limit", "2")


def test_a_verdict_holds_all_that_the_claim_needs(store: Store) -> None:
    identity = store.data("list", "verdicts")[-1]["id"]
    shown = store.data("show", identity[:12])
    assert shown["task"]["text"] == (store.path.parent / "rms.py").read_text()
    assert shown["kernel"]["sketch_text"] == RMS.read_text()
    assert 'extern "C"' in shown["kernel"]["text"]
    assert shown["kernel"]["constants"]["TILE_SIZE"] == shown["evidence"]["constants"]["TILE_SIZE"]
    assert {"g++", "python", "sketchc", "processor", "system"} <= set(shown["environment"])
    cases = shown["evidence"]["cases"]
    assert len(cases) == shown["cases"] > 5
    assert all({"B", "F", "D1", "D2"} <= set(case["shape"]["symbols"]) for case in cases)
    assert [case["seed"] for case in cases] == [5 + number for number in range(len(cases))]
    text = store.text("show", identity[:12])
    assert RMS.read_text().strip().splitlines()[-1] in text
    assert "seed 5" in text


def test_what_the_store_holds_gives_the_same_verdict_again(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failure is repeated from the store alone: sketch, task and seed."""
    identity = store.data("list", "verdicts")[0]["id"]
    shown = store.data("show", identity)
    (tmp_path / "again.sketch").write_text(shown["kernel"]["sketch_text"])
    (tmp_path / "again.py").write_text(shown["task"]["text"])
    task = ["--task", str(tmp_path / "again.py"), "--target", shown["kernel"]["target"]]
    seed = ["--seed", shown["seed"], "--no-store", "--json"]
    capsys.readouterr()
    assert run(["verify", str(tmp_path / "again.sketch"), *task, *seed]) == 1
    again = json.loads(capsys.readouterr().out)
    for case in [*again["cases"], *shown["evidence"]["cases"]]:
        case.pop("seconds")
    assert again["cases"] == shown["evidence"]["cases"]


def test_a_measurement_keeps_its_raw_samples(store: Store) -> None:
    (listed,) = store.data("list", "measurements")
    shown = store.data("show", listed["id"])
    assert shown["symbols"] == SIZES
    samples = shown["evidence"]["samples"]
    assert len(samples["kernel"]) >= 5
    assert all(seconds > 0 for seconds in samples["kernel"] + samples["eager"])
    assert shown["median"] == shown["evidence"]["kernel"]["median"]
    assert shown["device"] == shown["evidence"]["machine"]["name"]
    assert shown["environment"]["torch"]
    assert f"{samples['kernel'][0]:.4g}" in store.text("show", listed["id"])


def test_the_best_is_the_verified_kernel(store: Store) -> None:
    (best,) = store.data("best", "--task", "examples/tasks/rms.py", "--target", "cpp")
    assert best["symbols"] == SIZES
    assert store.data("show", best["verdict"])["passed"]
    assert store.data("show", best["measurement"])["kernel"]["id"] == best["kernel"]
    assert best["kernel"][:10] in store.text("best")
    assert json.loads(store.text("best", "--target", "triton_cuda", "--json", status=1)) == []


def test_an_export_makes_the_same_store_again(store: Store, tmp_path: Path) -> None:
    document, lines = tmp_path / "store.json", tmp_path / "store.jsonl"
    store.text("export", "-o", str(document))
    store.text("export", "--format", "jsonl", "-o", str(lines))
    for file in (document, lines):
        copy = Store(tmp_path / f"{file.name}.sqlite", store.capsys)
        assert ", 0 were there" in copy.text("import", str(file))
        assert ": 0 rows added" in copy.text("import", str(file))  # it is there: nothing changes
        assert copy.text("export", "--format", "jsonl") == lines.read_text()
        assert copy.data("best") == store.data("best")


def test_an_export_that_was_changed_is_refused_whole(store: Store, tmp_path: Path) -> None:
    text = store.text("export", "--format", "jsonl")
    forged = tmp_path / "forged.jsonl"
    forged.write_text(text.replace("for (", "for  (", 1))
    copy = Store(tmp_path / "copy.sqlite", store.capsys)
    copy.text("import", str(forged), status=2)
    assert copy.data("list")["kernels"] == 0
    # A line is missing: what refers to it cannot be added.
    forged.write_text("".join(line for line in text.splitlines(True) if '"texts"' not in line))
    copy.text("import", str(forged), status=2)
    assert copy.data("list")["tasks"] == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no export",
        "{}",
        '{"format": "sketchc-store", "version": 99}',
        '{"format": "sketchc-store", "version": 2}\n5',
        '{"format": "sketchc-store", "version": 2, "tables": [1]}',
        '{"format": "sketchc-store", "version": 2, "tables": {"tasks": [{"id": 1}]}}',
        '{"format": "sketchc-store", "version": 2, "tables": {"nothing": []}}',
        "\udcff",
    ],
)
def test_what_is_no_export_is_one_clear_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert run(["store", "import", str(file), "--store", str(tmp_path / "s.sqlite")]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {file} ")
    assert message.count("\n") == 1


def test_a_sheet_has_a_line_for_each_verdict_and_measurement(store: Store) -> None:
    rows = list(csv.DictReader(io.StringIO(store.text("export", "--format", "csv"))))
    assert [row["kind"] for row in rows] == ["verdict", "measurement", "verdict"]
    assert [row["passed"] for row in rows] == ["1", "1", "0"]
    assert len(json.loads(rows[1]["samples"])["kernel"]) >= 5
    assert json.loads(rows[1]["symbols"]) == SIZES


def test_gc_says_what_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "store.sqlite", capsys)
    with open_store(store.path) as connection:
        put(connection, "t", "right", verdict())
        put(connection, "t", "wrong" * 5000, verdict(passed=False, failure="numerical"))
    now = ("gc", "--keep", "0", "--older-than", "0")
    assert "nothing" in store.text("gc")  # young, and among the newest
    assert "would go: 1 verdicts, 1 kernels, 1 texts" in store.text(*now, "--dry-run")
    assert store.data("list")["verdicts"] == 2
    done = store.data(*now)
    assert (done["rows"]["verdicts"], done["rows"]["texts"]) == (1, 1)
    assert done["bytes"] > 20_000
    assert [row["passed"] for row in store.data("list", "verdicts")] == [True]


# ---------------------------------------------------------------- where nothing can be kept


def verify(folder: Path, *more: str) -> int:
    require("cpp")
    sketch, task = str(wrong_sketch(folder)), str(EXAMPLES / "tasks" / "rms.py")
    return run(["verify", sketch, "--task", task, "--target", "cpp", *more])


def test_nothing_is_kept_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKETCHC_STORE", str(tmp_path / "store.sqlite"))
    assert verify(tmp_path, "--no-store") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.sketch"]


def test_a_verdict_that_cannot_be_kept_is_given_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert verify(tmp_path, "--store", str(tmp_path / "file" / "store.sqlite"), "--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["failure"]
    assert captured.err.startswith("warning: not recorded: cannot write the store ")
    assert captured.err.count("\n") == 1


def test_what_is_no_store_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not a store " * 100)
    for command in (["list"], ["best"], ["show", "ab"], ["export"], ["gc"]):
        assert run(["store", *command, "--store", str(notes)]) == 2
        message = capsys.readouterr().err
        assert message == (
            f"error: {notes} is not a store of sketchc; name another file with --store\n"
        )
    assert notes.read_text() == "not a store " * 100


def test_misuse_is_one_clear_line(store: Store) -> None:
    for command, words in (
        (["show", "zz"], "no id in the store begins with 'zz'"),
        (["list", "verdicts", "--task", "unknown"], "the store holds no task unknown"),
        (["best", "--target", "toaster"], "unknown target 'toaster'"),
        (["export", "-o", "/no/such/folder/x"], "cannot write /no/such/folder/x"),
        (["import", "/no/such/file"], "cannot read /no/such/file"),
    ):
        store.capsys.readouterr()
        assert run(["store", *command, "--store", str(store.path)]) == 2
        message = store.capsys.readouterr().err
        assert words in message
        assert message.count("\n") == 1


def test_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "show", "best", "export", "import", "gc"):
        assert run(["store", command, "--help"]) == 0
        assert f"sketchc store {command} " in capsys.readouterr().out
