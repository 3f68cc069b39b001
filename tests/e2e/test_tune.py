"""`sketchc tune` on C++: the best point is found, verified and kept; a killed search goes on where
it was; a point that is wrong or ends its process is dropped, and the others are timed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from processes import started
from toolchains import require

from sketchc.cli.commands.lower import lower
from sketchc.cli.commands.tune import tune as command
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import planner
from sketchc.lowering.passes.space import Space
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import read
from sketchc.runtime.bench.driver import MeasurementFailedError
from sketchc.runtime.bench.prepared import prepare
from sketchc.runtime.bench.schedule import Schedule, Settings
from sketchc.runtime.store.tunings import KILLED, PointRow
from sketchc.runtime.tasks.task import load_task
from sketchc.runtime.toolchains.base import Artefact
from sketchc.runtime.toolchains.cpp.toolchain import CppToolchain
from sketchc.runtime.tune.sizes import SizesTuning, tune_sizes
from sketchc.runtime.tune.tuner import Limits, Request, Tuning, tune
from sketchc.runtime.verify.verify import Candidate

SKETCH = """sketch twice {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T in [64, 128, 256];
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        add(x, x, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
TASK = """import torch


def twice(x: "f32[N]"):
    return 2.0 * x
"""
NAMES = ["--symbols", "N=1000", "--seed", "5", "--threads", "1"]


@attrs.frozen
class Place:
    """A folder with a sketch, its task and a store."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def store(self) -> Path:
        return self.folder / "store.sqlite"

    def words(self, *more: str) -> list[str]:
        sketch, task = str(self.folder / "twice.sketch"), str(self.folder / "twice.py")
        return [sketch, "--task", task, "-t", "cpp", "--store", str(self.store), *NAMES, *more]

    def run(self, called: Any, *words: str) -> tuple[int, str, str]:
        """The status, the output and the errors of a command."""
        status = called.main(list(words), standalone_mode=False)
        shown = self.capsys.readouterr()
        return status, shown.out, shown.err

    def tuned(self, *more: str) -> dict[str, Any]:
        status, out, err = self.run(command, *self.words("--json", *more))
        assert status == 0, err
        found: dict[str, Any] = json.loads(out)
        return found


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    require("cpp")
    (tmp_path / "twice.sketch").write_text(SKETCH)
    (tmp_path / "twice.py").write_text(TASK)
    return Place(tmp_path, capsys)


def test_the_best_point_is_found_kept_and_taken(place: Place) -> None:
    """All points are tried, the winner is shown and kept, and the code of both commands is one,
    also of a sketch whose types the task decides."""
    text = SKETCH.replace("symbols:", "types: E in [f64, f32];\n    symbols:").replace(
        " f32; ", " E; "
    )
    (place.folder / "twice.sketch").write_text(text.replace("out f32", "out E"))
    pytest.importorskip("matplotlib")
    plot = place.folder / "best.svg"
    words = place.words("--search", "all", "--plot", str(plot))
    status, out, err = place.run(command, *words)
    assert status == 0, err
    assert "twice_f32 for cpp (cpu) at N=1000" in out
    assert "3 of 3 points tried, 0 illegal, 0 dropped" in out
    assert "all points are known" in out
    assert "passed: " in out
    assert ET.parse(plot).getroot().tag == "{http://www.w3.org/2000/svg}svg"

    again = next(line for line in out.splitlines() if line.startswith("again: sketchc lower "))
    chosen = again.rpartition(" ")[2]
    assert chosen in ("T=64", "T=128", "T=256")
    asked = (str(place.folder / "twice.sketch"), "-t", "cpp", "--sketch", "twice_f32", "--tuned")
    status, tuned, said = place.run(lower, *asked, "--store", str(place.store), "--symbols", "N=64")
    assert status == 0
    assert f"tuned: {chosen};" in said
    assert "at N=1000, 1 threads" in said
    assert place.run(lower, *again.split()[3:])[1] == tuned


def test_a_killed_search_goes_on_where_it_was(place: Place) -> None:
    """It is killed without warning as soon as one batch is in the store. The spelling of a sketch
    does not matter to what is known of it."""
    words = [sys.executable, "-m", "sketchc.cli.main", "tune", *place.words("--search", "random")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": dict(os.environ)}
    with started(words, **quiet) as process:
        deadline = time.monotonic() + 120
        while not kept(place.store):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    before = kept(place.store)
    text = SKETCH.replace("x = ", "tile = ").replace("-> x)", "-> tile)").replace("(x", "(tile")
    (place.folder / "twice.sketch").write_text(text.replace("tile, x, x", "tile, tile, tile"))
    found = place.tuned("--search", "random")
    assert found["known"] == before > 0
    assert (found["points"], found["tried"], found["ended"]) == (3, 3, "space")
    assert found["dropped"] == []
    assert found["symbols"] == {"N": 1000}
    assert found["default"] == {"T": 256}
    assert found["best_times"]["median"] <= found["default_times"]["median"]


def kept(store: Path) -> int:
    """How many points are in the store."""
    if not store.exists():
        return 0
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM tuning_points").fetchone()[0])
        except sqlite3.OperationalError:  # its tables are not made yet
            return 0


def test_without_a_tuned_point_lower_says_what_to_run(place: Place) -> None:
    from sketchc.base.diagnostics import UsageError

    sketch = str(place.folder / "twice.sketch")
    words = [sketch, "-t", "cpp", "--tuned", "--store", str(place.store), "--symbols", "N=7"]
    with pytest.raises(UsageError, match=r"run `sketchc tune .*twice.sketch --task TASK.py .*N=7`"):
        lower.main(words, standalone_mode=False)
    with pytest.raises(UsageError, match="the sketch's symbols are N"):
        lower.main([*words[:-1], "M=7"], standalone_mode=False)


# ---------------------------------------------------------------- points that do not count


class Faulty(CppToolchain):
    """Compiles kernels of some tile sizes from another source: a double of what it is given."""

    def __init__(self, faults: dict[int, Callable[[str], str]]) -> None:
        self.faults = faults

    def compile(self, kernel: Kernel, folder: Path, timeout: float = 300.0) -> Artefact:
        (size,) = (c.value for c in kernel.sketch.constants if c.name == "T")
        change = self.faults.get(int(size), str)
        source = change(kernel.source)
        return super().compile(attrs.evolve(kernel, source=source), folder, timeout)


def wrong(source: str) -> str:
    """Kernels that add three times."""
    assert " + " in source
    return source.replace("return 0;", "Y[0] += 1.0f; return 0;")


def crashing(source: str) -> str:
    return source.replace("return 0;", "__builtin_trap(); return 0;")


def crashing_later(source: str) -> str:
    """Kernels that are right at first."""
    trap = "static int calls; if (++calls > 6) __builtin_trap();"
    return source.replace("return 0;", f"{trap} return 0;")


def killed(source: str) -> str:
    """Kernels whose process ends as one that the system ends does."""
    return "#include <csignal>\n" + source.replace("return 0;", "raise(SIGKILL); return 0;")


def broken(source: str) -> str:
    return f"{source}\nthis is no C++\n"


def searched(
    place: Place,
    faults: dict[int, Callable[[str], str]],
    reject: tuple[int, ...] = (),
    known: Sequence[PointRow] = (),
) -> tuple[Tuning, list[PointRow]]:
    """What a search of all points finds, with the rows that it hands on to be kept."""
    rows: list[PointRow] = []
    with requests(place, faults, reject, [1000]) as (request,):
        return tune(attrs.evolve(request, record=rows.extend, known=known)), rows


def searched_sizes(
    place: Place, faults: dict[int, Callable[[str], str]], reject: tuple[int, ...]
) -> SizesTuning:
    """What a search of all points at two sizes finds."""
    with requests(place, faults, reject, [1000, 65]) as found:
        return tune_sizes(found)


@contextmanager
def requests(
    place: Place,
    faults: dict[int, Callable[[str], str]],
    reject: tuple[int, ...],
    sizes: Sequence[int],
) -> Iterator[list[Request]]:
    """Requests to search all points at each of the sizes."""
    source = read(str(place.folder / "twice.sketch"))
    from sketchc.api.sketches import the_sketch

    space = Space(planner(the_sketch(source), "cpp"), {})
    plan = space.plan({}).plan
    kernel = load_target("cpp").emit(plan)
    candidate = Candidate(plan, kernel, Faulty(faults), "twice.sketch", source)
    schedule = Schedule(warm_up_seconds=0.0)
    builds = Path(tempfile.mkdtemp(dir=place.folder))
    found = []
    with load_task(str(place.folder / "twice.py")) as task:
        for size in sizes:
            settings = Settings(5, 1, schedule, {"N": size})
            prepared, _ = prepare(candidate, task, settings, lambda doing: None, lambda: None)
            request = Request(
                *(space, prepared, "a chip", 1 << 20, builds, Limits("all", 60.0, 5)),
                verify=lambda point: "it was rejected" if point["T"] in reject else "",
            )
            found.append(request)
        yield found


def test_wrong_and_crashing_points_are_dropped_and_the_others_timed(place: Place) -> None:
    found, rows = searched(place, {64: wrong, 256: crashing})
    assert {one.point["T"]: one.failure for one in found.dropped} == {
        64: "numerical",
        256: "launch",
    }
    assert "its outputs are wrong" in next(o.reason for o in found.dropped if o.point["T"] == 64)
    assert found.best == {"T": 128}
    # The plan's own choice is the one that crashes: nothing is said of how much was gained.
    assert found.default == {"T": 256}
    assert found.gain is None
    assert {row.point["T"]: row.failure for row in rows} == {
        64: "numerical",
        128: "",
        256: "launch",
    }


def test_a_point_that_ends_the_process_between_others_is_dropped(place: Place) -> None:
    found, rows = searched(place, {128: crashing_later})
    assert [(one.point["T"], one.failure) for one in found.dropped] == [(128, "launch")]
    assert "ended with status" in found.dropped[0].reason
    assert found.best["T"] in (64, 256)
    assert found.gain is not None
    # The others went on in a new process, with what they had.
    for size in (64, 256):
        assert sum(len(row.samples) for row in rows if row.point["T"] == size) > 3


def test_a_point_that_was_killed_is_tried_once_more(place: Place) -> None:
    """A search that goes on counts it where it is not killed again, and else drops it for good."""
    found, rows = searched(place, {128: killed})
    assert [(one.point["T"], one.failure) for one in found.dropped] == [(128, KILLED)]
    assert [row.failure for row in rows if row.point["T"] == 128] == [KILLED]
    good, _ = searched(place, {}, known=rows)
    assert (good.tried, good.dropped) == (3, ())
    _, again = searched(place, {128: killed}, known=rows)
    failed = [row for row in again if row.point["T"] == 128]
    assert [row.failure for row in failed] == ["launch"]
    _, last = searched(place, {128: killed}, known=[*rows[:1], *failed])
    assert not any(row.point["T"] == 128 for row in last)


def test_points_that_do_not_compile_or_pass_are_not_the_best(place: Place) -> None:
    found, _ = searched(place, {256: broken}, reject=(64,))
    assert [(one.point["T"], one.failure) for one in found.dropped] == [(256, "syntax")]
    assert [one.point["T"] for one in found.rejected] in ([], [64])
    assert found.best == {"T": 128}


def test_where_no_point_counts_it_says_why(place: Place) -> None:
    with pytest.raises(MeasurementFailedError, match="no point passes: its outputs are wrong"):
        searched(place, {64: wrong, 128: wrong, 256: wrong})


# ---------------------------------------------------------------- several sizes at once

MANY = ["--sizes", "N=1000", "--sizes", "N=64", "--sizes", "N=65"]


def several(place: Place, *more: str) -> list[str]:
    words = place.words("--search", "all", *more)
    at = words.index("--symbols")
    return [*words[:at], *words[at + 2 :]]


def test_few_points_serve_several_sizes(place: Place) -> None:
    """The table has every point that is measured at every size; each size keeps the point that
    serves it, and a later `lower --tuned` takes that of the nearest size."""
    status, out, err = place.run(command, *several(place, *MANY, "--json"))
    assert status == 0, err
    found = json.loads(out)
    assert [row["symbols"] for row in found["sizes"]] == [{"N": 1000}, {"N": 64}, {"N": 65}]
    assert {row["tried"] for row in found["sizes"]} == {3}
    for row in found["sizes"]:
        assert len(row["seconds"]) == len(found["points"]) == 3
        assert row["chosen"] in found["chosen"]
        assert row["seconds"][row["chosen"]] <= 1.05 * min(row["seconds"])
    assert (found["rule"] == "") == (len(found["chosen"]) == 1)
    for asked, row in (("1100", 0), ("3", 1)):
        place_in_table = found["sizes"][row]["chosen"]
        words = [str(place.folder / "twice.sketch"), "-t", "cpp", "--tuned", "--symbols"]
        _, _, said = place.run(lower, *words, f"N={asked}", "--store", str(place.store))
        assert f"tuned: T={found['points'][place_in_table]['T']};" in said
    status, out, err = place.run(command, *several(place, *MANY))
    assert status == 0, err
    assert out.count("3 points tried (3 of them known from before)") == 3
    assert "3 sizes within 5% of the best point of each" in out
    again = next(line for line in out.splitlines() if line.startswith("again: sketchc lower "))
    assert place.run(lower, *again.split()[3:])[0] == 0


def test_sizes_that_cannot_be_tuned_for_are_refused(place: Place) -> None:
    from sketchc.base.diagnostics import UsageError

    for words, said in (
        (place.words("--sizes", "N=5"), "in place of --symbols"),
        (several(place, "--sizes", "N=5", "--sizes", "N=5"), "the same sizes twice"),
        (several(place, "--sizes", "N=0"), "--sizes N=0"),
        (several(place, "--sizes", "M=3"), "the sketch's symbols are N"),
        (several(place, "--sizes", "N=5", "--plot", "x.svg"), "has no --plot"),
    ):
        with pytest.raises(UsageError, match=said):
            command.main(words, standalone_mode=False)


def test_a_point_that_fails_at_one_size_serves_others(place: Place) -> None:
    """One that does not compile is dropped at all sizes, and one that does not pass is none that
    serves; the others do."""
    found = searched_sizes(place, {256: broken}, reject=(64,))
    points = [point["T"] for point in found.points]
    assert [points[column] for column in found.chosen] == [128]
    assert [(one.point["T"], one.failure) for one in found.dropped] == [(256, "syntax")]
    assert [one.point["T"] for one in found.rejected] in ([], [64])
    with pytest.raises(MeasurementFailedError, match="no point passes"):
        searched_sizes(place, {256: broken, 128: broken}, reject=(64,))
