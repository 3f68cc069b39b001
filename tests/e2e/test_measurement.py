"""A measurement verifies what it timed; nothing here is said about time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from toolchains import require

from sketchc.cli.bench import bench as command
from sketchc.cli.verify import prepare
from sketchc.diagnostics import UsageError
from sketchc.runtime.bench import report
from sketchc.runtime.bench.bench import Measurement, Settings, bench
from sketchc.runtime.bench.machine import Machine
from sketchc.runtime.bench.timing import Schedule
from sketchc.runtime.frontends.torch_task import TorchTask

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Far below any real memory, so that no time is below the physical floor.
MACHINE = Machine("a machine", 1, 1e6, 1 << 30, {})
BRIEF = Schedule(samples=5, warm_up_seconds=0.0, at_least_seconds=0.0)


def measure(name: str, sketch: Path, folder: Path, **sizes: int) -> Measurement:
    require("cpp")
    candidate = prepare(str(sketch), None, "cpp", None, {})
    with TorchTask(EXAMPLES / "tasks" / f"{name}.py") as task:
        return bench(candidate, task, folder, Settings(7, 1, BRIEF, sizes), MACHINE)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("add", {"M": 33, "N": 257}), ("matmul_bias_gelu", {"M": 17, "N": 65, "K": 33})],
)
def test_a_measurement_verifies_both_sides(
    name: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    found = measure(name, EXAMPLES / f"{name}.sketch", tmp_path, **sizes)
    assert found.passed
    assert found.symbols == sizes
    assert len(found.comparisons) == found.input_sets == 3
    assert all(comparison.passed for comparison in found.eager_comparisons)
    assert len(found.samples["kernel"]) == len(found.samples["eager"]) == 5
    assert json.loads(json.dumps(report.to_json(found)))["samples"] == found.samples


def test_a_wrong_kernel_fails_the_measurement(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.sketch"
    text = (EXAMPLES / "add.sketch").read_text()
    wrong.write_text(text.replace("add(x, bias, y)", "sub(x, bias, y)"))
    found = measure("add", wrong, tmp_path, M=5, N=7)
    assert not found.passed
    assert "a timed output is wrong" in report.summary(found)


def test_sizes_the_sketch_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the sketch's symbols are M, N"):
        measure("add", EXAMPLES / "add.sketch", tmp_path, Q=5)


def test_a_target_that_is_not_at_its_own_speed_is_not_timed() -> None:
    arguments = ["--task", str(EXAMPLES / "tasks" / "add.py"), "--target", "triton_ascend"]
    result = CliRunner().invoke(command, [str(EXAMPLES / "add.sketch"), *arguments])
    assert isinstance(result.exception, UsageError)
    assert "cannot be timed on this machine" in str(result.exception)
