"""A measurement verifies what it timed; nothing here is said about how fast anything is.

Few commands measure all kernels, since starting a process that times takes seconds.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from shared_work import measuring
from timed_kernels import CHEATS, CLOSES, HONEST, RIGHT, SLEPT, TASK, UNVERIFIED, WAITED
from toolchains import require

from sketchc.base.diagnostics import UsageError
from sketchc.cli.commands.bench import bench as command
from sketchc.cli.main import run
from sketchc.runtime.tasks.description import TaskFailure

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Results = dict[str, Any]


def bench(*arguments: str) -> tuple[int, Any]:
    """Run the command; its exit status and what `--json` prints."""
    with measuring():
        result = CliRunner().invoke(
            command, [*arguments, "--no-store", "--json"], standalone_mode=False
        )
    if result.exception is not None:
        raise result.exception
    status: int = result.return_value
    return status, json.loads(result.stdout)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from sketchc.runtime.bench.schedule import Schedule

    require("cpp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        brief = partial(Schedule, warm_up_seconds=0.05, at_least_seconds=0.0)
        patch.setattr("sketchc.runtime.bench.schedule.Schedule", brief)
        yield


def bench_all(kernels: dict[str, str], folder: Path, *options: str) -> Results:
    """All kernels in one command: the result of each by name, "against", and the "status"."""
    (folder / "task.py").write_text(TASK)
    for name, text in kernels.items():
        (folder / name).write_text(text)
    files = [str(folder / name) for name in kernels]
    task = str(folder / "task.py")
    status, data = bench(*files, "--task", task, "--target", "cpp", "--seed", "5", *options)
    found = dict(zip(kernels, data["results"], strict=True))
    return {**found, "against": data["against"], "status": status}


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All of `CHEATS`, as if they had been verified."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sketchc.cli.commands.bench._require_right", lambda *_: None)
        return bench_all(CHEATS, tmp_path_factory.mktemp("cheats"), "--warm")


def reasons(result: Results) -> str:
    return "; ".join(problem["reason"] for problem in result["problems"])


@pytest.mark.sweep(3, together="timed")
@pytest.mark.parametrize("name", RIGHT)
def test_an_honest_kernel_is_measured(timed: Results, name: str) -> None:
    found = timed[name]
    assert found["passed"], reasons(found)
    assert len(found["comparisons"]) == 3
    assert all(not comparison["failure"] for comparison in found["comparisons"])
    assert found["source"] == CHEATS[name]


@pytest.mark.sweep(3, together="timed")
def test_outputs_that_a_kernel_is_given_are_poisoned(timed: Results) -> None:
    assert timed["honest.cpp"]["timer"]["poisoned"] == 1.0


@pytest.mark.sweep(3, together="timed")
def test_a_kernel_that_waits_is_slower_by_what_it_waits(timed: Results) -> None:
    """Its fastest sample: the machine may be busy."""
    fastest = timed["waits.cpp"]["kernel"]["minimum"] - timed["honest.cpp"]["kernel"]["minimum"]
    assert 0.7 * WAITED < fastest * 1e3 < 3 * WAITED


@pytest.mark.sweep(3, together="timed")
@pytest.mark.parametrize("name", ["remembers.cpp", "defers.cpp", "remembers.py"])
def test_what_a_timed_call_leaves_behind_is_verified(timed: Results, name: str) -> None:
    """Memory of earlier calls, and work after the return."""
    found = timed[name]
    assert found["failure"] == "numerical"
    assert "a timed output is wrong" in reasons(found)


@pytest.mark.sweep(3, together="timed")
@pytest.mark.parametrize("name", ["patches.cpp", "patches.py"])
def test_a_kernel_that_replaces_the_clock_is_refused(timed: Results, name: str) -> None:
    found = timed[name]
    assert found["failure"] == "policy"
    assert "it replaced time.perf_counter_ns while it was timed" in reasons(found)


@pytest.mark.sweep(3, together="timed")
def test_the_time_itself_gives_a_replaced_clock_away(timed: Results) -> None:
    """This one replaces the reference that is used, too."""
    found = reasons(timed["patches.cpp"])
    assert "it replaced sketchc.runtime.bench.timing._now" in found
    assert "the parent's clock" in found


@pytest.mark.sweep(3, together="timed")
def test_a_kernel_that_slows_the_baseline_down_is_refused(timed: Results) -> None:
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is one processor, and one thread")
    found = timed["slows.cpp"]
    assert found["failure"] == "policy"
    assert "it changed threads from" in reasons(found)


@pytest.mark.sweep(3, together="timed")
def test_a_kernel_cannot_reach_what_it_is_compared_with(timed: Results) -> None:
    """The baseline is timed in a process that never loads the kernel; and what the kernel changed
    in torch is refused all the same."""
    found = timed["wraps.py"]
    assert found["failure"] == "policy"
    assert "it replaced torch.Tensor.__add__" in reasons(found)
    assert found["eager"]["minimum"] * 1e3 < SLEPT


@pytest.mark.sweep(3, together="timed")
def test_failed_kernels_count_as_not_fast(timed: Results) -> None:
    (total,) = timed["against"]
    assert timed["status"] == 1
    assert (total["baseline"], total["kernels"], total["compared"]) == ("eager", len(CHEATS), 3)
    assert total["fast_p"]["0"] == pytest.approx(3 / len(CHEATS))
    gains = [timed[name]["speedup"]["of_medians"] for name in RIGHT]
    assert total["geometric_mean"] == pytest.approx(math.prod(gains) ** (1 / 3))
    assert total["fast_p"]["1"] == pytest.approx(sum(gain > 1 for gain in gains) / len(CHEATS))


VIEW = TASK.replace("x + 2.0 * x", "x.view(-1, 1)")
LISTS = TASK.replace(
    "def get_inputs() -> list[torch.Tensor]:\n    return [torch.randn(40_009)]",
    "def get_inputs_dyn_list() -> list[list[torch.Tensor]]:\n"
    "    return [[torch.randn(size)] for size in (40_009, 1_003, 40_009)]",
)


def test_what_only_makes_a_view_is_no_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sketchc.cli.commands.bench._require_right", lambda *_: None)
    (tmp_path / "view.py").write_text(VIEW)
    (tmp_path / "copies.cpp").write_text(HONEST.replace("3.0f * ", "").replace("triple", "view"))
    files = [str(tmp_path / name) for name in ("copies.cpp", "view.py")]
    status, found = bench(files[0], "--task", files[1], "--target", "cpp", "--samples", "5")
    assert status == 0, reasons(found)
    assert found["speedup"] is None
    assert any("only makes a view" in note for note in found["notes"])


def test_each_list_of_a_task_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And lists of the same sizes once."""
    monkeypatch.setattr("sketchc.cli.commands.bench._require_right", lambda *_: None)
    (tmp_path / "lists.py").write_text(LISTS)
    (tmp_path / "triple.cpp").write_text(HONEST)
    files = [str(tmp_path / name) for name in ("triple.cpp", "lists.py")]
    status, found = bench(files[0], "--task", files[1], "--target", "cpp", "--samples", "5")
    assert status == 0, found
    sizes = [list(one["symbols"].values()) for one in found["results"]]
    assert sizes == [[40_009], [1_003]]
    assert [one["own_list"] for one in found["results"]] == ["", "list 2 of get_inputs_dyn_list"]
    assert found["against"][0]["compared"] == 2


def test_what_does_not_pass_verification_is_not_timed(tmp_path: Path) -> None:
    found = bench_all(UNVERIFIED, tmp_path)
    for name, failure in (("wrong.cpp", "numerical"), ("broken.cpp", "api_misuse")):
        assert found[name]["failure"] == failure
        assert "does not pass verification, and is not timed" in found[name]["error"]
        assert "samples" not in found[name]


def test_a_kernel_that_closes_all_pipes_and_goes_on_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sketchc.cli.commands.bench._require_right", lambda *_: None)
    monkeypatch.setattr("sketchc.runtime.process.peer._GRACE", 0.2)
    kernels = {"closes.cpp": CLOSES, "honest.cpp": HONEST}
    found = bench_all(kernels, tmp_path, "--samples", "5")["closes.cpp"]
    assert found["failure"] == "launch"
    assert "ended with status -9" in found["error"]


# ---------------------------------------------------------------- tasks that do not do

MODEL = """import os
import time
import torch
calls = []


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        {body}


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn({shape})]
"""
RELU = str(EXAMPLES / "relu.sketch")
UNFIT = {
    "dropout": ("return torch.relu(torch.nn.functional.dropout(x))", "two runs on the same inputs"),
    "a rare draw": ("return torch.relu(x) + (torch.rand(()) < 1e-9)", "draws random numbers"),
    "the time": ("return torch.relu(x) + time.time() // 86400 % 7", "two runs on the same inputs"),
    "the process": ("return torch.relu(x) + os.getpid() % 2", "a run in another process differs"),
    "no number": ("return torch.relu(x) * float('nan')", "every element of its outputs is NaN"),
}
#: Of two processes, either may be the one that adds one.
NUMBERS = re.compile(r"[\d.]+ and then [\d.]+")
#: Too large to be run twice before it is timed.
LARGE = "2050, 2050"


def unfit(folder: Path, body: str, shape: str = "24, 40") -> str:
    path = folder / "unfit.py"
    path.write_text(MODEL.format(body=body, shape=shape))
    return str(path)


@pytest.mark.parametrize("kernel", ["a sketch", "a kernel"])
@pytest.mark.parametrize("name", UNFIT)
def test_a_task_that_does_not_do_is_nobodys_failure(
    name: str, kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `sketchc verify` says it; and nothing is recorded."""
    body, words = UNFIT[name]
    (tmp_path / "own.cpp").write_text(HONEST)
    sketch = kernel == "a sketch"
    file = RELU if sketch else str(tmp_path / "own.cpp")
    task = unfit(tmp_path, body, "24, 40" if sketch else "40")
    text = [file, "--task", task, "--target", "cpp", "--json", "--seed", "5"]
    store = tmp_path / "store.sqlite"
    said = []
    for what in ("bench", "verify"):
        assert run([what, *text, "--store", str(store)]) == 2
        shown = capsys.readouterr()
        assert json.loads(shown.out)["error"]["class"] == "task"
        assert words in json.loads(shown.out)["error"]["reason"]
        said.append([NUMBERS.sub("...", one) for one in (shown.out, shown.err)])
    assert said[0] == said[1]
    assert not store.exists()


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["calls", "the process"])
def test_a_large_task_that_does_not_do_is_not_blamed_on_a_kernel(name: str, tmp_path: Path) -> None:
    """It is looked into when a kernel seems wrong, which this one does whatever the numbers are."""
    calls = "calls.append(1); return torch.relu(x) * (1 + len(calls))"
    process = "return torch.relu(x) + 1 + os.getpid() % 2"
    task = unfit(tmp_path, calls if name == "calls" else process, LARGE)
    with pytest.raises(TaskFailure, match="the task is not deterministic"):
        bench(RELU, "--task", task, "--target", "cpp")


def test_kernels_of_such_a_task_are_not_counted(tmp_path: Path) -> None:
    good = str(EXAMPLES / "tasks" / "relu.py")
    bad = unfit(tmp_path, UNFIT["dropout"][0])
    options = ("--task", bad, "--task", good, "--target", "cpp", "--symbols", "M=24,N=40")
    status, found = bench(RELU, RELU, *options)
    assert status == 2
    assert found["results"][0]["error"]["class"] == "task"
    assert "not deterministic" in found["results"][0]["error"]["reason"]
    assert found["results"][1]["passed"]
    (total,) = found["against"]
    assert (total["kernels"], total["fast_p"]["0"]) == (1, 1.0)


# ---------------------------------------------------------------- sketches


@pytest.fixture(scope="module")
def product() -> Results:
    """One sketch against eager and torch.compile."""
    status, data = bench(
        *(str(EXAMPLES / "matmul_bias_gelu.sketch"), "--target", "cpp", "--seed", "7"),
        *("--task", str(EXAMPLES / "tasks" / "matmul_bias_gelu.py"), "--baseline", "all"),
        *("--symbols", "M=17,N=65,K=33", "--threads", "1"),
    )
    assert status == 0, data["problems"]
    found: Results = data
    return found


@pytest.mark.sweep(6, together="product")
def test_all_sides_have_the_same_inputs_and_are_verified(product: Results) -> None:
    names = set(product["samples"])
    assert {"eager", "kernel"} <= names
    assert "compile" in names or any("torch.compile" in note for note in product["notes"])
    assert len({len(samples) for samples in product["samples"].values()}) == 1
    assert len(product["rounds"]) == len(product["samples"]["kernel"]) >= 30
    assert all(set(one["order"]) == names for one in product["rounds"])
    assert {one["place"] for one in product["rounds"]} == {0, 1, 2}
    assert {one["base"] for one in product["rounds"]} == {0, 1, 2}
    assert len(product["comparisons"]) == 3
    for baseline in product["baselines"].values():
        assert [one["failure"] for one in baseline["comparisons"]] == [""]
        assert baseline["precision"] == product["precision"]["name"] == "ieee f32"


@pytest.mark.sweep(6, together="product")
def test_everything_that_a_claim_needs_is_kept(product: Results) -> None:
    assert product["seed"] == 7
    assert product["symbols"] == {"M": 17, "N": 65, "K": 33}
    assert product["shapes"]["X"] == [17, 33]
    assert {"torch", "python", "g++"} <= set(product["versions"])
    assert product["torch_settings"]["threads"] == "1"
    assert product["torch_settings"]["float32 matmul precision"] == "highest"
    assert product["surroundings"]["before"]["load"]
    assert "extern" in product["source"]
    assert product["sketch_text"] == (EXAMPLES / "matmul_bias_gelu.sketch").read_text()
    text = (EXAMPLES / "tasks" / "matmul_bias_gelu.py").read_text()
    assert product["task_text"] == text
    assert product["machine"]["peaks"]["ieee f32"] > 0
    assert product["machine"]["measured"]
    assert shlex.split(product["command"])[0] == "sketchc"


@pytest.mark.sweep
def test_a_machine_that_was_busy_when_it_was_measured_is_measured_again() -> None:
    """Its floor would be above the times of every kernel."""
    from sketchc.runtime.bench.machine import cache_file, this_machine

    before = this_machine()
    kept = json.loads(cache_file().read_text())
    for one in kept.values():
        one["bandwidth"] /= 1000
        one["levels"] = [[size, rate / 1000] for size, rate in one["levels"]]
    cache_file().write_text(json.dumps(kept))
    task = str(EXAMPLES / "tasks" / "relu.py")
    status, found = bench(RELU, "--task", task, "--target", "cpp", "--symbols", "M=256,N=512")
    assert status == 0
    assert found["machine"]["bandwidth"] > before.bandwidth / 30
    assert found["kernel"]["minimum"] > found["floor"]["least"]
    assert json.loads(cache_file().read_text()) != kept


def test_sizes_the_sketch_does_not_have_are_refused() -> None:
    add = str(EXAMPLES / "add.sketch"), "--task", str(EXAMPLES / "tasks" / "add.py")
    with pytest.raises(UsageError, match="the sketch's symbols are M, N"):
        bench(*add, "--target", "cpp", "--symbols", "Q=5")


def test_each_file_has_its_task() -> None:
    with pytest.raises(UsageError, match="say --task once for each file"):
        bench("a.sketch", "b.sketch", "c.sketch", "--task", "a.py", "--task", "b.py", "-t", "cpp")


def test_a_target_that_is_not_at_its_own_speed_is_not_timed() -> None:
    with pytest.raises(UsageError, match="cannot be timed on this machine"):
        bench(
            *(str(EXAMPLES / "add.sketch"), "--target", "triton_ascend"),
            *("--task", str(EXAMPLES / "tasks" / "add.py")),
        )
